"""Sentences, free queries and wordings of a task: in every form of file, checked, and part of the digest."""

from dataclasses import replace

import numpy as np
import pytest

from fairerclip.auditing.run import digest
from fairerclip.data import SentencePairs, Sentences, load_task, save_task, simulate
from fairerclip.errors import TaskFileError

RNG = np.random.default_rng(0)
SPURIOUS = Sentences(RNG.normal(size=(3, 32)).astype(np.float32), ("a forest", "a moutain", "a port"))
BOTH = Sentences(
    RNG.normal(size=(4, 32)).astype(np.float32), ("a", "b", "c", "d"), np.array([0, 0, 1, 1], dtype=np.int64)
)

QUERIES = Sentences(RNG.normal(size=(2, 32)).astype(np.float32), ("a nest", "a bird that dives"))
HARMFUL = SentencePairs(RNG.normal(size=(2, 2, 32)).astype(np.float32), (("land", "water"), ("a b", "é")))
HELPFUL = SentencePairs(RNG.normal(size=(1, 2, 32)).astype(np.float32), (("a beak", "a bill"),))


@pytest.fixture(scope="module")
def bare():
    return replace(simulate("waterbirds", seed=1, scale=0.02, width=32), variants=None)


@pytest.fixture(scope="module")
def task(bare):
    variants = simulate("waterbirds", seed=1, scale=0.02, width=32).variants
    texts = {"spurious": SPURIOUS, "counterfactual": BOTH, "queries": QUERIES}
    return replace(bare, variants=variants, harmful=HARMFUL, helpful=HELPFUL, **texts)


@pytest.mark.parametrize("name", ["t.npz", "t.safetensors"])
def test_texts_come_back_from_every_form(tmp_path, task, bare, name):
    back = load_task(save_task(task, tmp_path / name))
    for part in ("spurious", "counterfactual", "queries", "harmful", "helpful"):
        np.testing.assert_array_equal(getattr(back, part).text, getattr(task, part).text)
        assert getattr(back, part).prompts == getattr(task, part).prompts
    assert back.spurious.classes is None
    np.testing.assert_array_equal(back.counterfactual.classes, BOTH.classes)
    np.testing.assert_array_equal(back.variants.text, task.variants.text)
    assert back.variants.templates == task.variants.templates
    assert back.variants.text.dtype == np.float32
    plain = load_task(save_task(bare, tmp_path / f"bare-{name}"))
    assert (plain.spurious, plain.counterfactual, plain.queries, plain.variants) == (None,) * 4
    assert plain.sentence_pairs == {}


def test_the_digest_covers_every_part(task, bare):
    parts = [
        replace(bare, spurious=SPURIOUS),
        replace(bare, counterfactual=BOTH),
        replace(bare, counterfactual=replace(BOTH, classes=BOTH.classes[::-1].copy())),
        replace(bare, queries=QUERIES),
        replace(bare, harmful=HARMFUL),
        replace(bare, helpful=HARMFUL),
        task,
    ]
    assert len({digest(part) for part in [bare, *parts]}) == 8


T, C = SPURIOUS.text, BOTH.classes
V = np.ones((3, 2, 32), dtype=np.float32)
NAMED = np.array(["a {}", "b {}", "c {}"])


@pytest.mark.parametrize(
    ("arrays", "fact"),
    [
        ({"text_spurious": T[0]}, "text_spurious"),
        ({"text_spurious": T[:, :5]}, "width 32"),
        ({"text_spurious": T * np.nan}, "3 rows"),
        ({"text_spurious": T, "spurious_prompts": np.array(["a", " ", "c"])}, "empty"),
        ({"spurious_prompts": np.array(["a"])}, "text_spurious"),
        ({"text_counterfactual": T}, "counterfactual_classes"),
        ({"text_counterfactual": T, "counterfactual_classes": C[:3] + 1}, "2"),
        ({"text_harmful": T}, "text_harmful"),
        ({"text_helpful": HELPFUL.text * np.nan}, "finite"),
        ({"text_helpful": HELPFUL.text, "helpful_prompts": np.array(["a", "b"])}, "1 × 2"),
        ({"text_querys": T}, "'text_queries'"),
        ({"text_target_variants": V[:, :1]}, r"\(3, 1, 32\)"),
        ({"text_target_variants": np.where(np.arange(32) == 7, np.nan, V)}, "NaN"),
        ({"text_target_variants": V * np.float32([[[1]], [[0]], [[1]]])}, "row"),
        ({"text_target_variants": V, "target_templates": NAMED[:2]}, "got 2"),
        ({"target_templates": NAMED}, "text_target_variants"),
    ],
)
def test_texts_that_do_not_fit_are_refused(tmp_path, bare, arrays, fact):
    np.savez(tmp_path / "t.npz", image_test=bare.test.X, text_target=bare.text_target, **arrays)
    with pytest.raises(TaskFileError, match=fact):
        load_task(tmp_path / "t.npz")


def test_texts_need_no_words_and_any_precision(tmp_path, bare):
    arrays = {"text_spurious": T, "text_queries": T, "text_harmful": HARMFUL.text}
    arrays |= {"image_test": bare.test.X, "text_target": bare.text_target, "text_target_variants": 3.0 * V}
    np.savez(tmp_path / "t.npz", **arrays)
    task = load_task(tmp_path / "t.npz")
    assert task.spurious.prompts[1] == "spurious sentence 2"
    assert task.queries.prompts[1] == "query 2"
    assert task.harmful.prompts[1] == ("harmful sentence 3", "harmful sentence 4")
    assert task.variants.templates == ("wording 1", "wording 2", "wording 3")
    np.testing.assert_array_equal(task.variants.text, 3 * V)


def test_a_task_with_bad_texts_is_not_written(tmp_path, task):
    short = replace(task.variants, templates=task.variants.templates[:2])
    for bad in ({"variants": short}, {"spurious": replace(SPURIOUS, prompts=("a",))}):
        with pytest.raises(TaskFileError):
            save_task(replace(task, **bad), tmp_path / "t.npz")
        assert not (tmp_path / "t.npz").exists()
