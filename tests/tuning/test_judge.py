"""The judge of cell accuracies, against loops over cells, draws and rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm, qmc
from tuning_inputs import labelled, noisy_scores

from fairerclip.tuning.judge import DRAWS, PRIOR_ROWS, Judge


def slow_accuracies(y, s, n_classes, n_groups, margins, shifts):
    """What docs/math.md#judge says, one row, one draw and one cell at a time."""
    uniform = qmc.Sobol(n_classes * n_groups, seed=0).random(DRAWS)
    normals = norm.ppf(np.clip(uniform, 1e-4, 1 - 1e-4))
    out = np.full((len(shifts), DRAWS, n_classes, n_groups), np.nan)
    for k in range(n_classes):
        present = [g for g in range(n_groups) if np.any((y == k) & (s == g))]
        if not present:
            continue
        mean = {
            g: np.mean([m for m, a, b in zip(margins, y, s, strict=True) if (a, b) == (k, g)])
            for g in present
        }
        residuals = [m - mean[b] for m, a, b in zip(margins, y, s, strict=True) if a == k]
        spread = np.sqrt(np.mean(np.square(residuals)))
        middle = sum(mean.values()) / len(present)
        for g in present:
            n = sum((a, b) == (k, g) for a, b in zip(y, s, strict=True))
            centre = (n * mean[g] + PRIOR_ROWS * middle) / (n + PRIOR_ROWS)
            for b, shift in enumerate(shifts[:, k]):
                for d in range(DRAWS):
                    moved = centre + spread / np.sqrt(n + PRIOR_ROWS) * normals[d, k * n_groups + g] + shift
                    out[b, d, k, g] = np.mean([residual + moved > 0 for residual in residuals])
    return out


@pytest.mark.parametrize(("n_classes", "n_groups"), [(2, 2), (3, 2), (2, 4), (2, 1), (4, 1)])
def test_accuracies_are_those_of_a_loop(n_classes, n_groups):
    y, s = labelled(3, 60, n_classes, n_groups)
    judge = Judge(y, s, n_classes, n_groups)
    margins = judge.margins(noisy_scores(4, y, n_classes))
    shifts = np.random.default_rng(5).normal(size=(3, n_classes))
    found = judge.accuracies(margins, shifts)
    assert found.shape == (3, DRAWS, n_classes, n_groups)
    assert_allclose(found, slow_accuracies(y, s, n_classes, n_groups, margins, shifts), atol=1e-12)
    plain = slow_accuracies(y, s, n_classes, n_groups, margins, np.zeros((1, n_classes)))
    assert_allclose(judge.accuracies(margins), plain, atol=1e-12)


def test_a_cell_without_rows_is_nan_and_does_not_move_the_others():
    y, s = labelled(6, 80)
    keep = ~((y == 0) & (s == 1))
    y, s = y[keep], s[keep]
    judge = Judge(y, s, 2, 2)
    margins = judge.margins(noisy_scores(7, y, 2))
    found = judge.accuracies(margins)
    assert np.isnan(found[:, :, 0, 1]).all()
    assert np.isfinite(found[:, :, [0, 1, 1], [0, 0, 1]]).all()
    assert_allclose(found, slow_accuracies(y, s, 2, 2, margins, np.zeros((1, 2))), atol=1e-12)


def test_a_class_without_rows_is_nan():
    s = np.repeat([0, 1], 10)
    judge = Judge(np.zeros(20, dtype=np.int64), s, 2, 2)
    found = judge.accuracies(judge.margins(noisy_scores(8, judge.y, 2)))
    assert np.isnan(found[:, :, 1]).all()
    assert np.isfinite(found[:, :, 0]).all()


@pytest.mark.parametrize(("margin", "accuracy"), [(0.5, 1.0), (-0.5, 0.0)])
def test_constant_margins_leave_no_doubt(margin, accuracy):
    y, s = labelled(9, 40)
    assert_array_equal(Judge(y, s, 2, 2).accuracies(np.full(40, margin)), np.full((1, DRAWS, 2, 2), accuracy))


def test_with_many_rows_the_draws_centre_on_the_raw_accuracy():
    y, s = labelled(10, 16_000)
    judge = Judge(y, s, 2, 2)
    margins = np.random.default_rng(11).normal(size=len(y)) + np.array([[0.8, -0.3], [0.1, 1.5]])[y, s]
    found = judge.accuracies(margins)[0]
    for k in range(2):
        for g in range(2):
            raw = np.mean(margins[(y == k) & (s == g)] > 0)
            assert found[:, k, g].mean() == pytest.approx(raw, abs=0.015)
            assert found[:, k, g].std() < 0.02


def test_small_cells_are_shrunk_towards_their_class():
    """A cell whose few rows are all wrong is not believed to be all wrong, and the less so the fewer they are."""
    rng = np.random.default_rng(12)
    expected = []
    for n in (2, 8, 400):
        s = np.repeat([0, 1], [400, n])
        noise = rng.normal(scale=0.5, size=400 + n)
        noise[s == 1] -= noise[s == 1].mean()
        judge = Judge(np.zeros(400 + n, dtype=np.int64), s, 2, 2)
        expected.append(judge.accuracies(np.where(s == 0, 1.0, -1.0) + noise)[0, :, 0, 1].mean())
    assert expected[0] > expected[1] + 0.05 > expected[2] + 0.1
    assert expected[2] == pytest.approx(norm.cdf(-1 / 0.5), abs=0.02)


def test_a_shift_of_one_class_leaves_the_other():
    y, s = labelled(13, 60)
    judge = Judge(y, s, 2, 2)
    margins = judge.margins(noisy_scores(14, y, 2))
    plain, up, down = judge.accuracies(margins, np.array([[0.0, 0.0], [0.7, 0.0], [-0.7, 0.0]]))
    assert_array_equal(up[:, 1], plain[:, 1])
    assert np.all(up[:, 0] >= plain[:, 0])
    assert np.all(down[:, 0] <= plain[:, 0])
    assert down[:, 0].mean() < plain[:, 0].mean() < up[:, 0].mean()


def test_the_draws_are_the_same_for_every_model_and_every_part_of_the_rows():
    y, s = labelled(15, 60)
    judge, again = Judge(y, s, 2, 2), Judge(y, s, 2, 2)
    margins = judge.margins(noisy_scores(16, y, 2))
    assert_array_equal(judge.accuracies(margins), again.accuracies(margins))
    assert_array_equal(judge.of(np.ones(60, dtype=bool)).accuracies(margins), judge.accuracies(margins))


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_margins_hits_counts_and_cells_are_those_of_loops(n_classes):
    y, s = labelled(17, 50, n_classes, 3)
    judge = Judge(y, s, n_classes, 3)
    scores = noisy_scores(18, y, n_classes)
    before = scores.copy()
    margins = [row[k] - max(v for j, v in enumerate(row) if j != k) for row, k in zip(scores, y, strict=True)]
    assert_allclose(judge.margins(scores), margins, atol=1e-14)
    assert_array_equal(scores, before)
    hits, counts = np.zeros((n_classes, 3), dtype=int), np.zeros((n_classes, 3), dtype=int)
    for row, k, g in zip(scores, y, s, strict=True):
        counts[k, g] += 1
        hits[k, g] += row.argmax() == k
    assert_array_equal(judge.hits(scores), hits)
    assert_array_equal(judge.counts, counts)
    assert_array_equal(judge.margins(scores) > 0, scores.argmax(axis=1) == y)
    for rows in judge.cells():
        assert len(set(zip(y[rows], s[rows], strict=True))) == 1
    assert_array_equal(np.sort(np.concatenate(judge.cells())), np.arange(50))


def test_part_of_the_rows_keeps_classes_and_groups():
    y, s = labelled(19, 40, 3, 2)
    rows = y != 2
    part = Judge(y, s, 3, 2).of(rows)
    assert_array_equal(part.y, y[rows])
    assert_array_equal(part.s, s[rows])
    assert part.counts.shape == (3, 2)
    assert_array_equal(part.counts[2], [0, 0])
    assert len(part.cells()) == 4


def test_one_row_in_each_cell_is_no_certainty():
    """Rows that are their own mean show no spread: all margins tell it instead."""
    judge = Judge(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), 2, 2)
    drawn = judge.accuracies(np.array([0.1, -0.1, 0.2, -0.2]))
    assert (drawn.std(axis=1) > 0.1).all()
    assert ((drawn.mean(axis=1) > 0) & (drawn.mean(axis=1) < 1)).all()
