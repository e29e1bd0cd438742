"""Readers of data sets in their official layouts: path, split, class and sensitive values of each image.

Only lists are read; no image is opened.
"""

from fairerclip.data.datasets.common import DatasetIndex
from fairerclip.data.datasets.registry import DATASETS, read_dataset

__all__ = ["DATASETS", "DatasetIndex", "read_dataset"]
