"""Data sets in their official layouts: what each image is called, its split, its class and its groups.

Only lists are read here; no image is opened.
"""

from fairerclip.data.datasets.common import DatasetIndex
from fairerclip.data.datasets.registry import DATASETS, read_dataset

__all__ = ["DATASETS", "DatasetIndex", "read_dataset"]
