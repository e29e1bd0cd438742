"""Sentences and free queries of a task: in every form of file, checked, and part of the digest."""

from dataclasses import replace

import numpy as np
import pytest

from fairerclip.auditing.run import digest
from fairerclip.data import SentencePairs, Sentences, Split, Task, load_task, save_task, simulate
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
    return simulate("waterbirds", seed=1, scale=0.02, width=32)


@pytest.fixture(scope="module")
def task(bare):
    return replace(
        bare, spurious=SPURIOUS, counterfactual=BOTH, queries=QUERIES, harmful=HARMFUL, helpful=HELPFUL
    )


@pytest.mark.parametrize("name", ["t.npz", "t.safetensors"])
def test_sentences_come_back_from_every_form(tmp_path, task, bare, name):
    back = load_task(save_task(task, tmp_path / name))
    for found, given in (
        (back.spurious, SPURIOUS),
        (back.counterfactual, BOTH),
        (back.queries, QUERIES),
        (back.harmful, HARMFUL),
        (back.helpful, HELPFUL),
    ):
        np.testing.assert_array_equal(found.text, given.text)
        assert found.prompts == given.prompts
    assert back.spurious.classes is None
    np.testing.assert_array_equal(back.counterfactual.classes, BOTH.classes)
    plain = load_task(save_task(bare, tmp_path / f"bare-{name}"))
    assert plain.spurious is None
    assert plain.counterfactual is None
    assert plain.queries is None
    assert plain.sentence_pairs == {}


def test_the_digest_covers_them_only_where_there_are_any(task, bare):
    X = np.eye(3, dtype=np.float32)
    tiny = Task("tiny", {"train": Split(X, np.array([0, 1, -1]))}, X[:2], ("a", "b"), ("a", "b"))
    # What it was before a task could have sentences: results of earlier versions stay comparable.
    assert digest(tiny) == "sha256:109887baa2f3cf40fd9e15f7b8b050cc742ff483282480d5375324847e858e90"
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


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"text_spurious": T[0]}, r"text_spurious: expected floats \(n, p\)"),
        ({"text_spurious": T[:, :5]}, r"rows of width 32 as the images, got \(3, 5\)"),
        ({"text_spurious": np.full((10_001, 32), 1.0)}, r"at most 10000 rows"),
        ({"text_spurious": T * np.nan}, "NaN or infinity in 3 rows"),
        (
            {"text_spurious": T, "spurious_prompts": np.array(["a"])},
            "each of the 3 rows of text_spurious, got 1",
        ),
        ({"text_spurious": T, "spurious_prompts": np.array(["a", " ", "c"])}, "1 of them empty"),
        ({"spurious_prompts": np.array(["a"])}, "expected text_spurious with spurious_prompts, got none"),
        ({"text_counterfactual": T}, "expected counterfactual_classes, the class of each row"),
        ({"counterfactual_classes": C}, "expected text_counterfactual with counterfactual_classes"),
        ({"text_counterfactual": T, "counterfactual_classes": C}, "expected 3 integers"),
        ({"text_counterfactual": T, "counterfactual_classes": C[:3] + 1}, "to 1, got .2. in 1 rows: 2"),
        ({"text_counterfactual": T, "counterfactual_classes": C[:3] - 1}, "a class from 0 to 1"),
        ({"text_queries": T[:, :5]}, r"text_queries: expected at most 10000 rows of width 32"),
        ({"text_queries": T * 0}, "text_queries: expected rows with a direction"),
        ({"query_prompts": np.array(["a"])}, "expected text_queries with query_prompts, got none"),
        (
            {"text_queries": T, "query_prompts": np.array(["a"])},
            "query_prompts: expected a text for each of the 3",
        ),
        ({"text_harmful": T}, r"text_harmful: expected floats \(m, 2, 32\)"),
        ({"text_helpful": HELPFUL.text * np.nan}, "counted over pairs and sentences: expected finite"),
        ({"text_harmful": HARMFUL.text[:0]}, "expected 1 to 10000 pairs, got 0"),
        ({"harmful_prompts": np.array([["a", "b"]])}, "expected text_harmful with harmful_prompts, got none"),
        (
            {"text_helpful": HELPFUL.text, "helpful_prompts": np.array(["a", "b"])},
            "each of the 1 × 2 sentences",
        ),
        ({"text_helpful": HELPFUL.text, "helpful_prompts": np.array([["a", " "]])}, "or empty ones"),
        ({"text_querys": T}, "did you mean 'text_queries'"),
        ({"text_spurius": T}, "did you mean 'text_spurious'"),
    ],
)
def test_sentences_that_do_not_fit_are_refused(tmp_path, bare, arrays, message):
    np.savez(tmp_path / "t.npz", image_test=bare.test.X, text_target=bare.text_target, **arrays)
    with pytest.raises(TaskFileError, match=message):
        load_task(tmp_path / "t.npz")


def test_sentences_need_no_words(tmp_path, bare):
    np.savez(
        tmp_path / "t.npz",
        image_test=bare.test.X,
        text_target=bare.text_target,
        text_spurious=T,
        text_queries=T,
        text_harmful=HARMFUL.text,
    )
    task = load_task(tmp_path / "t.npz")
    assert task.spurious.prompts[1] == "spurious sentence 2"
    assert task.queries.prompts[1] == "query 2"
    assert task.harmful.prompts[1] == ("harmful sentence 3", "harmful sentence 4")


def test_a_task_with_bad_sentences_is_not_written(tmp_path, bare):
    with pytest.raises(TaskFileError, match="spurious_prompts"):
        save_task(replace(bare, spurious=replace(SPURIOUS, prompts=("a",))), tmp_path / "t.npz")
    assert not (tmp_path / "t.npz").exists()
