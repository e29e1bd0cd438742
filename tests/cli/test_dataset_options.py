"""Options of the commands of data sets are arguments of their readers."""

import pytest
from test_cli import refused

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


@pytest.mark.parametrize("command", ["cfd", "utkface", "facet", "metadata"])
@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ("0.5,0.5", "three numbers"),
        ("a,b,c", "three numbers"),
        ("1,1,-1", "sum to 1"),
        ("nan,0,1", "sum to 1"),
    ],
)
def test_bad_shares_are_refused(run, tmp_path, command, shares, words):
    split = ("--split", "none") if command == "metadata" else ()
    assert refused(
        run("task", command, tmp_path, "-o", tmp_path / "t.npz", *split, "--shares", shares), words
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--shares", "0,0,1"), "give --split none too"),
        (("--split", "none", "--split-names", "a=val"), "is for a column of splits"),
        (("--split-names", "a"), "expects VALUE=train, val, test or none"),
        (("--split-names", "a=val,a=test"), "each value once"),
        (("--split-names", "a=dev"), "expected train, val, test or None"),
    ],
)
def test_options_of_splits_that_do_not_fit_are_refused(run, tmp_path, given, words):
    assert refused(run("task", "metadata", tmp_path, "-o", tmp_path / "t.npz", *given), words)
