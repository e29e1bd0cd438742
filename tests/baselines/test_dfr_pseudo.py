"""DFR on pseudo-groups, and the pseudo-groups themselves."""

import itertools

import numpy as np
import pytest
from gradient_inputs import spurious, training

from fairerclip.baselines.gradient.pseudo_groups import (
    balanced_draw,
    draw_cells,
    match_clusters,
    pseudo_groups,
)
from fairerclip.inputs.prompts import zero_shot

torch = pytest.importorskip("torch", reason="training by gradient needs the torch extra")


def cells_of(y, predicted, rows):
    return np.array([[np.sum((y[rows] == a) & (predicted[rows] == b)) for b in range(3)] for a in range(3)])


@pytest.mark.parametrize("how", ["subsample", "upsample"])
def test_true_classes_are_equally_many_in_each_predicted_class(how):
    rng = np.random.default_rng(11)
    y, predicted = rng.choice(3, size=400, p=[0.6, 0.3, 0.1]), rng.choice(3, size=400, p=[0.2, 0.5, 0.3])
    before = cells_of(y, predicted, np.arange(400))
    rows = balanced_draw(y, predicted, how, seed=5)
    after = cells_of(y, predicted, rows)
    wanted = before.min(axis=0) if how == "subsample" else before.max(axis=0)
    np.testing.assert_array_equal(after, np.tile(wanted, (3, 1)))
    if how == "subsample":
        assert len(set(rows)) == len(rows)
    else:
        assert set(rows) == set(range(400))


def test_cells_are_drawn_with_replacement_only_where_they_are_short():
    cells = np.repeat([0, 4], [30, 3])
    drawn = draw_cells(cells, 10, np.random.default_rng(6))
    assert np.bincount(cells[drawn]).tolist() == [10, 0, 0, 0, 10]
    assert len(set(drawn[cells[drawn] == 0])) == 10


def test_zero_shot_groups_are_the_zero_shot_classes():
    X, y, _, text = spurious(2, n_classes=3)
    found = pseudo_groups(training(X, y, text=text), "zero-shot", 0)
    np.testing.assert_array_equal(found, zero_shot(X, [t[None] for t in text])[0])


def test_clusters_are_matched_as_well_as_any_renaming_could():
    rng = np.random.default_rng(12)
    clusters, y = rng.integers(4, size=80), rng.integers(4, size=80)
    found = match_clusters(clusters, y, 4)
    best = max(np.sum(np.array(names)[clusters] == y) for names in itertools.permutations(range(4)))
    assert np.sum(found == y) == best


def test_kmeans_finds_separate_classes_without_prompts():
    rng = np.random.default_rng(13)
    y = np.arange(60) % 3
    X = np.eye(3, 20)[y] + 0.02 * rng.normal(size=(60, 20))
    np.testing.assert_array_equal(pseudo_groups(training(X, y), "kmeans", 4), y)
