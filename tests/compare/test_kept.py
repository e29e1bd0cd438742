"""Kept answers: as they were, or told of and made again; and what other comparisons may replace."""

import json

import pytest

from fairerclip.errors import KeptRunWarning, OutputExistsError
from fairerclip.study.compare import check_comparison
from fairerclip.study.kept import MAX_BYTES, read_kept, write_kept

KEY = {"method": "m", "candidates": [{"C": 1.0}]}
ANSWER = {"figures": {"1": 0.1 + 0.2, "ä": None}, "predicted": [0, 1, 1]}


def test_an_answer_is_kept_for_its_key_alone(tmp_path):
    file = tmp_path / "runs" / "m.json"
    assert read_kept(file, KEY) is None
    write_kept(file, KEY, {**ANSWER, "figures": {1: 0.1 + 0.2, "ä": None}})
    assert read_kept(file, KEY) == ANSWER
    assert read_kept(file, {**KEY, "method": "other"}) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[:-1],
        lambda raw: b"",
        lambda raw: b"\xff" + raw,
        lambda raw: b"[]",
        lambda raw: raw.replace(b"[0, 1, 1]", b"[0, 1, 2]"),
        lambda raw: json.dumps({**json.loads(raw), "answer": {}}).encode(),
        lambda raw: json.dumps({**json.loads(raw), "answer": [1]}).encode(),
        lambda raw: json.dumps({"key": KEY, "run": ANSWER, "more": 1}).encode(),
        lambda raw: raw + b" " * MAX_BYTES,
    ],
    ids=range(9),
)
def test_an_answer_that_is_not_as_it_was_written_is_told_of(tmp_path, damage):
    file = tmp_path / "m.json"
    write_kept(file, KEY, ANSWER)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.warns(KeptRunWarning, match=r"is run again: .*m\.json"):
        assert read_kept(file, KEY) is None


def test_an_answer_as_an_earlier_version_kept_it_is_not_used(tmp_path):
    file = tmp_path / "m.json"
    file.write_text(json.dumps({"key": KEY, "run": ANSWER}))
    assert read_kept(file, KEY) is None


DATA = {"digest": "sha256:1", "classes": ["a", "b"], "sensitive": ["s"]}


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, True),
        ({"notes.txt": "mine"}, True),
        ({"comparison.json": {"format": "fairerclip-comparison", "task": DATA}}, True),
        ({"comparison.json": {"format": "fairerclip-comparison", "task": {**DATA, "digest": "2"}}}, False),
        ({"comparison.json": {"format": "another", "task": DATA}}, False),
        ({"comparison.json": ["mine"]}, False),
        ({"comparison.json": "mine"}, False),
        ({"comparison.md": "mine"}, False),
    ],
    ids=range(8),
)
def test_only_a_comparison_of_the_same_task_is_replaced_unasked(tmp_path, files, free):
    for name, content in files.items():
        (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
    check_comparison(tmp_path, DATA, overwrite=True)
    if free:
        check_comparison(tmp_path, DATA, overwrite=False)
    else:
        with pytest.raises(
            OutputExistsError, match=r"comparison\..*; choose another folder or .*--overwrite"
        ):
            check_comparison(tmp_path, DATA, overwrite=False)
