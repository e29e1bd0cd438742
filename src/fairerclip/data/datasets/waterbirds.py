"""Reader of Waterbirds: birds on backgrounds, 95 % of them on their usual one in train (Sagawa et al. 2020)."""

from __future__ import annotations

import os

from fairerclip._util.files import reading
from fairerclip.data.datasets import common
from fairerclip.data.datasets.common import DatasetIndex, Origin
from fairerclip.data.simulate import BIRDS, PLACES, WATERBIRDS_ROWS
from fairerclip.errors import DatasetError

NAME = "waterbirds"
FOLDERS = ("waterbird_complete95_forest2water2", "waterbirds_v1.0")
METADATA = "metadata.csv"
COLUMNS = ("img_filename", "y", "split", "place")
ATTRIBUTE = "background"
BINARY = {"0": 0, "1": 1}
ORIGIN = Origin(
    "Waterbirds",
    "the group_DRO project of Sagawa et al. (Distributionally Robust Neural Networks, ICLR 2020) or from WILDS",
    f"  {FOLDERS[0]}/            (or {FOLDERS[1]}/)\n"
    "    metadata.csv           img_id,img_filename,y,split,place,place_filename\n"
    "    001.Black_footed_Albatross/*.jpg\n"
    "    …",
)


@reading(DatasetError)
def read(root: str | os.PathLike[str], *, check_images: bool = False) -> DatasetIndex:
    """Read the list of Waterbirds.

    Parameters
    ----------
    root : path-like
        Folder with ``metadata.csv``, or the folder above it if it has its official or its WILDS name.
    check_images : bool
        Raise if an image is not on disk.

    Returns
    -------
    DatasetIndex
        Classes ``landbird``, ``waterbird``; sensitive attribute ``background``.

    Raises
    ------
    DatasetError
        The data set is absent, or ``metadata.csv`` is damaged or in another form.
    """
    folder = common.as_folder(root, ORIGIN)
    location = common.first_with([folder, *(folder / name for name in FOLDERS)], (METADATA,))
    if location is None:
        raise ORIGIN.missing(folder, f"there is no {METADATA}")
    home, file = location
    table = common.read_columns(file, COLUMNS)
    ids = common.image_ids(table["img_filename"], file)
    split = common.splits_of(table["split"], file, "split")
    y, place = (common.coded(table[column], BINARY, file, column) for column in ("y", "place"))
    if check_images:
        common.check_images(home, ids, ORIGIN.title)
    notes = common.group_notes(split, y, place, (BIRDS, PLACES), WATERBIRDS_ROWS)
    return DatasetIndex(NAME, home, ids, split, y, BIRDS, {ATTRIBUTE: (place, PLACES)}, NAME, notes)
