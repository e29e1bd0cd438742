"""Simulated tasks have the counts, the geometry and the failures that they are drawn to have."""

from dataclasses import replace
from functools import cache
from importlib import import_module
from operator import attrgetter

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.linear_model import LogisticRegression

from fairerclip.data import load_task, save_task, simulate
from fairerclip.data.simulate import GENERATORS, MIN_CELL, multiclass
from fairerclip.embedding.query_meaning import check_queries, meaning_of
from fairerclip.errors import ParameterError


@cache
def drawn(name, seed=0, scale=None):
    return simulate(name, seed=seed, scale=scale)


def cell_counts(split):
    return {
        (int(a), int(b)): int(((split.y == a) & (split.sensitive() == b)).sum())
        for a in np.unique(split.y)
        for b in np.unique(split.sensitive())
    }


def by_group(predicted, split):
    """Average and accuracy per cell, in per cent."""
    hit, s = predicted == split.y, split.sensitive()
    cells = {cell: 100 * hit[(split.y == cell[0]) & (s == cell[1])].mean() for cell in cell_counts(split)}
    return 100 * hit.mean(), cells


def zero_shot(task):
    return by_group((task.test.X @ task.text_target.T).argmax(axis=1), task.test)


def zero_shot_sensitive(task):
    read = (task.test.X @ task.sensitive_attribute().text.T).argmax(axis=1)
    return 100 * (read == task.test.sensitive()).mean()


def probe(task):
    mean, spread = task.train.X.mean(axis=0), task.train.X.std(axis=0)
    model = LogisticRegression(max_iter=1000).fit((task.train.X - mean) / spread, task.train.y)
    return by_group(model.predict((task.test.X - mean) / spread), task.test)


def max_skew(task, name, share=5):
    s, k = task.test.sensitive(name), len(task.test) // share
    reference = np.bincount(s) / len(s)
    top = [np.argsort(-(task.test.X @ prompt))[:k] for prompt in task.text_target]
    return np.array([np.log(np.bincount(s[t], minlength=len(reference)) / k / reference).max() for t in top])


def test_a_woman_is_asked_for_and_a_nurse_is_not():
    task = simulate("gallery", seed=0, scale=0.02, width=128)
    prompts = {"sex": list(task.sensitive["sex"].text[:, None])}
    mitigated = meaning_of(check_queries(task.queries.text, 128), prompts, 0.4).mitigated
    assert mitigated.tolist() == [True] * 6 + [False]


def test_cells_have_the_counts_or_proportions_of_the_real_data():
    birds, faces = drawn("waterbirds"), drawn("celeba")
    assert cell_counts(birds.train) == {(0, 0): 3498, (0, 1): 184, (1, 0): 56, (1, 1): 1057}
    assert cell_counts(birds.val) == {(0, 0): 467, (0, 1): 466, (1, 0): 133, (1, 1): 133}
    assert cell_counts(birds.test) == {(0, 0): 2255, (0, 1): 2255, (1, 0): 642, (1, 1): 642}
    assert cell_counts(faces.train) == {(0, 0): 3581, (0, 1): 3344, (1, 0): 1144, (1, 1): 69}
    assert cell_counts(faces.test) == {(0, 0): 488, (0, 1): 377, (1, 0): 124, (1, 1): 9}
    assert cell_counts(simulate("celeba", scale=0.001, width=64).val)[1, 1] == MIN_CELL == 4
    for split in drawn("cheekbones").splits.values():
        share = [split.y[split.sensitive() == value].mean() for value in (0, 1)]
        assert share == pytest.approx([0.55, 0.35], abs=0.01)


def test_multiclass_is_tied_in_train_only():
    task = drawn("multiclass")
    tied = task.train.y % 3 == task.train.sensitive()
    assert tied.mean() == pytest.approx(0.9, abs=0.005)
    for split in (task.val, task.test):
        assert len(set(cell_counts(split).values())) == 1
    other = multiclass(n_classes=3, n_sensitive=2, correlation=1.0, width=64)
    assert cell_counts(other.train)[0, 1] == 0, "full correlation leaves cells empty"
    assert (other.n_classes, len(other.sensitive_attribute().names)) == (3, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", GENERATORS)
def test_rows_have_unit_length_and_a_modality_gap_and_are_in_random_order(name):
    task = drawn(name)
    texts = [task.text_target, *(a.text for a in task.sensitive.values())]
    for rows in (*texts, *(split.X for split in task.splits.values())):
        assert rows.dtype == np.float32
        assert rows.shape[1] == 512
        assert np.abs(np.linalg.norm(rows, axis=1) - 1).max() < 1e-5
    X = task.test.X
    for text in texts:
        assert 0.2 <= (X @ text.T).mean() <= 0.3
    assert 0.5 <= (X[:300] @ X[300:600].T).mean() <= 0.7
    assert 0.75 <= (task.text_target[0] @ task.text_target[1]) <= 0.97
    assert np.abs(task.train.X[:1000] @ X[:1000].T).max() < 0.99, "splits share no rows"
    spectrum = np.linalg.svd(X[:1000] - X[:1000].mean(axis=0), compute_uv=False) ** 2
    assert spectrum[0] / spectrum[100] > 5, "noise is anisotropic"
    if task.train.y is not None:
        order = np.corrcoef(np.arange(len(task.train)), task.train.y)[0, 1]
        assert np.abs(order) < 0.05


def small(name, seed=3):
    return simulate(name, seed=seed, scale=0.01, width=64)


@pytest.mark.parametrize("name", GENERATORS)
def test_seed_decides_everything_and_a_file_keeps_it(name, tmp_path):
    first, again, other = small(name), small(name), small(name, 4)
    back = load_task(save_task(first, tmp_path / "a.npz"))
    for split in first.splits:
        for same in (again, back):
            assert_array_equal(same.splits[split].X, first.splits[split].X)
        assert not np.array_equal(first.splits[split].X, other.splits[split].X)
    assert_array_equal(again.text_target, first.text_target)
    assert_array_equal(again.variants.text, first.variants.text)
    assert not np.array_equal(first.text_target, other.text_target)
    assert back.simulated
    assert back.name == f"{name} (simulated)"


@pytest.mark.parametrize("name", GENERATORS)
def test_other_wordings_and_free_queries_are_drawn_apart_from_everything_else(name, monkeypatch):
    task = small(name)
    assert task.variants.text.shape == (5, task.n_classes, 64)
    assert np.linalg.norm(task.variants.text, axis=2) == pytest.approx(1.0, abs=1e-5)
    module = import_module("fairerclip.data.simulate")
    monkeypatch.setattr(module, "WORDINGS", 1)
    monkeypatch.setattr(module, "free_queries", lambda space, rng: None)
    fewer = small(name)
    for part in ("text_target", "train.X", "test.X"):
        assert_array_equal(attrgetter(part)(task), attrgetter(part)(fewer))
    assert_array_equal(task.variants.text[:1], fewer.variants.text)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_prompts_and_probes_fail_the_groups_that_they_fail_in_the_real_data(seed):
    birds, faces, cheeks = (drawn(name, seed) for name in ("waterbirds", "celeba", "cheekbones"))
    average, cells = zero_shot(birds)
    assert 80 <= average <= 90
    assert 35 <= min(cells.values()) <= 60
    assert min(cells, key=cells.get) == (1, 0), "waterbirds on land"
    average, cells = probe(birds)
    assert 80 <= average <= 93
    assert 50 <= min(cells.values()) <= 75
    average, cells = zero_shot(faces)
    assert 85 <= average <= 90
    assert 65 <= cells[1, 1] <= 78
    assert probe(faces)[1][1, 1] <= 56, "of nine rows; about 31 at larger scale"
    average, cells = zero_shot(cheeks)
    assert 70 <= average <= 80
    assert 8 <= cells[1, 0] - cells[1, 1] <= 20
    for task in (birds, faces, cheeks):
        assert 88 <= zero_shot_sensitive(task) <= 97
    average, cells = zero_shot(drawn("multiclass", seed))
    assert 80 <= average <= 90
    assert 40 <= min(cells.values()) <= 70
    worst = min(cells, key=cells.get)
    assert worst[1] != worst[0] % 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_gallery_prompts_skew_what_they_retrieve(seed):
    task = drawn("gallery", seed)
    assert all(split.y is None for split in task.splits.values())
    assert {name: a.text.shape[0] for name, a in task.sensitive.items()} == {"sex": 2, "race": 7}
    by_chance = np.random.default_rng(seed).permutation(len(task.test))
    for name, skew, chance in (("sex", 0.12, 0.06), ("race", 0.2, 0.15)):
        assert max_skew(task, name).mean() > skew
        shuffled = replace(task.test, s={name: task.test.s[name][by_chance]})
        assert max_skew(replace(task, splits={"test": shuffled}), name).mean() < chance


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (simulate, {"name": "waterbird"}),
        *((simulate, {"name": "waterbirds"} | bad) for bad in ({"scale": 0}, {"scale": float("nan")})),
        *((simulate, {"name": "waterbirds"} | bad) for bad in ({"seed": -1}, {"seed": 1.5}, {"width": 20})),
        (multiclass, {"n_classes": 1}),
        (multiclass, {"correlation": 0.1}),
    ],
)
def test_bad_parameters_are_refused(make, options):
    with pytest.raises(ParameterError):
        make(**options)
