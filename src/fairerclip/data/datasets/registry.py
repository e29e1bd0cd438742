"""Readers of the data sets by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from fairerclip.data.datasets.celeba import read as read_celeba
from fairerclip.data.datasets.cfd import read as read_cfd
from fairerclip.data.datasets.common import DatasetIndex
from fairerclip.data.datasets.facet import read as read_facet
from fairerclip.data.datasets.fairface import read as read_fairface
from fairerclip.data.datasets.metadata import read as read_metadata
from fairerclip.data.datasets.utkface import read as read_utkface
from fairerclip.data.datasets.waterbirds import read as read_waterbirds
from fairerclip.data.prompts.prompt_set import unknown
from fairerclip.errors import ParameterError

DATASETS: dict[str, Callable[..., DatasetIndex]] = {
    "waterbirds": read_waterbirds,
    "celeba": read_celeba,
    "fairface": read_fairface,
    "cfd": read_cfd,
    "utkface": read_utkface,
    "facet": read_facet,
    "metadata": read_metadata,
}


def read_dataset(name: str, root: str | os.PathLike[str], **options: Any) -> DatasetIndex:
    """Read the lists of a data set.

    Parameters
    ----------
    name : {"waterbirds", "celeba", "fairface", "cfd", "utkface", "facet", "metadata"}
        Name of the data set; "metadata" is any list of images with splits, classes and sensitive values.
    root : path-like
        Folder of the data set, in its official layout.
    **options
        Options of the ``read`` function of the data set.

    Returns
    -------
    DatasetIndex
        Paths, splits, classes and sensitive values of the images.

    Raises
    ------
    ParameterError
        There is no reader of that name.
    DatasetError
        The data set is absent, or its lists are damaged or in another form.
    """
    if name not in DATASETS:
        raise ParameterError(unknown("data sets", "reader for", name, DATASETS))
    return DATASETS[name](root, **options)
