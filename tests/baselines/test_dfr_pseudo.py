"""DFR on pseudo-groups, and the pseudo-groups themselves."""

import itertools

import numpy as np
import pytest
from gradient_inputs import spurious, training, worst_group

from fairerclip.baselines.gradient.pseudo_groups import (
    balanced_draw,
    draw_cells,
    equalise,
    match_clusters,
    pseudo_groups,
)
from fairerclip.baselines.gradient.sgd_probe import train_probe, train_pseudo
from fairerclip.errors import ParameterError, PromptError
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


def test_classes_that_a_predicted_class_lacks_do_not_empty_it():
    y, predicted = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 0, 0, 0, 1, 1])
    assert sorted(y[balanced_draw(y, predicted, "subsample", 1)]) == [0, 1, 1, 1]


def test_draws_change_with_the_epoch_and_repeat_with_the_seed():
    y, predicted = np.repeat([0, 1], [40, 20]), np.arange(60) % 2
    first, again, next_one = (balanced_draw(y, predicted, "subsample", seed) for seed in (8, 8, 9))
    np.testing.assert_array_equal(first, again)
    assert set(first) != set(next_one)


def test_equalise_returns_what_rows_are_called():
    names = np.array([10, 11, 12, 13, 14])
    drawn = equalise(np.array([0, 0, 0, 1, 1]), "subsample", np.random.default_rng(2), names)
    assert len(drawn) == 4
    assert set(drawn) <= set(names)


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


def test_kmeans_takes_fewer_distinct_rows_than_classes():
    X, y = np.repeat(np.eye(2, 5), 3, axis=0), [0, 0, 1, 1, 2, 2]
    assert set(pseudo_groups(training(X, y), "kmeans", 0)) <= {0, 1, 2}


@pytest.mark.parametrize("how", ["subsample", "upsample"])
def test_balancing_raises_the_worst_group_where_zero_shot_reads_the_group(how):
    X, y, s, text = spurious(3, n=2000, correlation=0.9, lean=2.0)
    data = training(X, y, text=text)

    def worst(fitted):
        return worst_group((X @ fitted[0].T + fitted[1]).argmax(axis=1) == y, y, s)

    options = {"epochs": 15, "lr": 0.01, "random_state": 1}
    assert worst(train_pseudo(data, how, **options)) > worst(train_probe(data, **options)) + 0.05


def test_the_same_seed_gives_the_same_weights_and_another_seed_others():
    X, y, _, text = spurious(4)
    data = training(X, y, text=text)
    first, again, other = (train_pseudo(data, epochs=3, random_state=s)[0] for s in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3


def test_diagnostics_say_how_many_rows_an_epoch_had_and_how_good_the_groups_are():
    X, y, _, text = spurious(4)
    data = training(X, y, text=text)
    _, _, found = train_pseudo(data, "upsample", epochs=2, random_state=0)
    predicted = pseudo_groups(data, "zero-shot", 0)
    assert found["rows_per_epoch"] == len(balanced_draw(y, predicted, "upsample", 1))
    assert found["agreement"] == np.mean(predicted == y)


def test_wrong_arguments_say_what_is_accepted():
    X, y, _, text = spurious(4)
    with pytest.raises(ParameterError, match="how must be one of 'subsample', 'upsample'; got 'down'"):
        train_pseudo(training(X, y, text=text), "down")
    with pytest.raises(ParameterError, match="groups must be one of 'zero-shot', 'kmeans'; got 'umap'"):
        train_pseudo(training(X, y, text=text), groups="umap")
    with pytest.raises(PromptError, match="give text, or use groups='kmeans'"):
        train_pseudo(training(X, y))
