"""Options of the commands of data sets are arguments of their readers."""

import pytest

from fairerclip.cli import dataset_options
from fairerclip.data.datasets import common, read_dataset


def test_the_default_shares_are_those_of_the_readers():
    assert dataset_options.split_shares(dataset_options.SHARES) == common.SHARES


@pytest.mark.parametrize(
    ("command", "given"),
    [
        (dataset_options.cfd, {}),
        (dataset_options.utkface, {}),
        (dataset_options.facet, {}),
        (dataset_options.metadata, {"split": "none"}),
    ],
)
def test_shares_are_given_to_the_reader_if_they_are_given(command, given):
    assert command(**given, shares="0,0,1", seed=3).items() >= {"shares": (0, 0, 1), "seed": 3}.items()
    assert "shares" not in command(**given)


def test_all_rows_may_be_test_rows(tmp_path):
    (tmp_path / "UTKFace").mkdir()
    for age in range(4):
        (tmp_path / "UTKFace" / f"{age}_1_0_20170117175041574.jpg.chip.jpg").touch()
    index = read_dataset("utkface", tmp_path, **dataset_options.utkface(shares="0,0,1"))
    assert index.counts() == {"train": 0, "val": 0, "test": 4}


def test_names_of_splits_are_given_to_the_reader():
    given = dataset_options.metadata(split_names="id_val=val, id_test=none")
    assert given["split_names"] == {"id_val": "val", "id_test": None}
    assert dataset_options.metadata()["split_names"] is None


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (("--split", "none", "--shares", "0.5,0.5"), "three numbers"),
        (("--split", "none", "--shares", "nan,0,1"), "sum to 1"),
        (("--shares", "0,0,1"), "--split none"),
        (("--split", "none", "--split-names", "a=val"), "column of splits"),
        (("--split-names", "a=dev"), "train, val, test"),
    ],
)
def test_options_of_splits_that_do_not_fit_are_refused(refused, tmp_path, given, word):
    refused(("task", "metadata", tmp_path, "-o", tmp_path / "t.npz", *given), word)
