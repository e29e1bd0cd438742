"""Kept answers: as they were, or told of and made again; and what other comparisons may replace."""

import contextlib
import hashlib
import json
from dataclasses import replace

import pytest

from fairerclip.auditing.validation import Count, Keyed, Many, Number
from fairerclip.errors import KeptRunWarning, OutputExistsError
from fairerclip.study.comparison import ComparedData, check_comparison
from fairerclip.study.jobs import Answer, Job, Words, read_kept, write_kept

KEY = {"method": "m", "candidates": [{"C": 1.0}]}


class Counted(Answer):
    figures: Keyed[Number | None]
    predicted: Many[Count]
    notes: Many[Words] = ()


ANSWER = Counted(figures={"1": 0.1 + 0.2, "ä": None}, predicted=(0, 1, 1))
JOB = Job("m", KEY, "m.json", Counted, Counted, {})


def test_an_answer_is_kept_for_its_key_alone(tmp_path):
    file = tmp_path / "runs" / "m.json"
    assert read_kept(file, JOB) is None
    write_kept(file, KEY, ANSWER)
    assert read_kept(file, JOB) == ANSWER
    assert read_kept(file, replace(JOB, key={**KEY, "method": "other"})) is None


def with_answer(answer):
    """A kept file that is whole, but whose answer is not of the job's class."""
    digest = hashlib.sha256(json.dumps(answer).encode()).hexdigest()
    return json.dumps({"key": KEY, "answer": answer, "sha256": digest}).encode()


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw.replace(b"[0, 1, 1]", b"[0, 1, 2]"),
        lambda raw: with_answer({"figures": {}, "predicted": [-1]}),
    ],
    ids=["changed", "another class"],
)
def test_an_answer_that_is_not_as_it_was_written_is_told_of(tmp_path, damage):
    file = tmp_path / "m.json"
    write_kept(file, KEY, ANSWER)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.warns(KeptRunWarning):
        assert read_kept(file, JOB) is None


DATA = {"digest": "sha256:1", "classes": ["a", "b"], "sensitive": ["s"]}


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({"notes.txt": "mine"}, True),
        ({"comparison.json": {"format": "fairerclip-comparison", "task": DATA}}, True),
        ({"comparison.json": {"format": "fairerclip-comparison", "task": {**DATA, "digest": "2"}}}, False),
    ],
    ids=["other file", "same task", "other task"],
)
def test_only_a_comparison_of_the_same_task_is_replaced_unasked(tmp_path, files, free):
    for name, content in files.items():
        (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
    data = ComparedData.model_validate(DATA)
    check_comparison(tmp_path, data, overwrite=True)
    with contextlib.nullcontext() if free else pytest.raises(OutputExistsError):
        check_comparison(tmp_path, data, overwrite=False)
