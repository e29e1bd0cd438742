"""Tasks in notebooks and terminals: names and counts, never arrays."""

from dataclasses import replace

import numpy as np
import pytest

from fairerclip.data import Sensitive, Split, Task
from fairerclip.errors import ParameterError
from notebook_html import HOSTILE, shown, tables


@pytest.fixture
def task():
    rows = Split(
        np.arange(12, dtype=np.float32).reshape(4, 3) + 0.125,
        np.array([0, 1, 1, -1]),
        {"sex": np.array([0, 1, 1, 0])},
        np.array(["a.jpg", "b.jpg", "c.jpg", "d.jpg"]),
    )
    other = Split(np.eye(3, dtype=np.float32), np.array([1, 0, 0]))
    sex = Sensitive("sex", ("female", "male"), ("a woman", "a man"))
    return Task(
        "pets", {"train": rows, "test": other}, None, ("a cat", "a dog"), ("cat", "dog"), {"sex": sex}
    )


def test_hostile_names_are_text(task):
    sex = Sensitive(HOSTILE, (HOSTILE, "b"), ("a woman", HOSTILE))
    splits = {
        "train": replace(task.train, s={HOSTILE: task.train.s["sex"]}, ids=np.array([HOSTILE, "b", "c", "d"]))
    }
    hostile = Task(HOSTILE, splits, None, (HOSTILE, "y"), (HOSTILE, "b"), {HOSTILE: sex})
    assert "<script>" in "".join(shown(hostile).itertext())
    assert "<script>" in "".join(shown(hostile.head()).itertext())
    assert "\u202e" not in repr(hostile) + repr(hostile.head())
    assert max(map(len, repr(hostile.head()).splitlines())) < 150


def test_a_task_shows_its_counts_and_prompts_and_no_embeddings(task):
    counts, prompts = tables(shown(task))
    assert counts == [
        ["group", "train", "test"],
        ["? × female", "1", "0"],
        ["cat × female", "1", "0"],
        ["dog × male", "2", "0"],
        ["cat", "0", "2"],
        ["dog", "0", "1"],
    ]
    assert prompts[1:] == [
        ["class", "cat", "a cat"],
        ["class", "dog", "a dog"],
        ["sex", "female", "a woman"],
        ["sex", "male", "a man"],
    ]
    forms = [repr(task), task._repr_html_(), repr(task.head()), task.head()._repr_html_()]
    assert not [form for form in forms if ".125" in form]
    for n in (0, 1.5, 10**6, "5"):
        with pytest.raises(ParameterError):
            task.head(n)
