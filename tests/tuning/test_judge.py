"""The judge of cell accuracies, against loops over cells, levels and rows, and against draws of the posterior."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from tuning_inputs import labelled, noisy_scores

from fairerclip.tuning.judge import N_LEVELS, PRIOR_ROWS, Judge


def posterior(y, s, margins):
    """Of every cell (k, g): mean and standard deviation of its shift and the residuals of its class, row by row."""
    out = {}
    for k in np.unique(y).tolist():
        groups = np.unique(s[y == k]).tolist()
        mean = {
            g: np.mean([m for m, a, b in zip(margins, y, s, strict=True) if (a, b) == (k, g)]) for g in groups
        }
        residuals = np.array([m - mean[b] for m, a, b in zip(margins, y, s, strict=True) if a == k])
        spread, middle = np.sqrt(np.mean(np.square(residuals))), sum(mean.values()) / len(groups)
        for g in groups:
            n = sum((a, b) == (k, g) for a, b in zip(y, s, strict=True))
            centre = (n * mean[g] + PRIOR_ROWS * middle) / (n + PRIOR_ROWS)
            out[k, g] = (centre, spread / np.sqrt(n + PRIOR_ROWS), residuals)
    return out


def slow_survival(y, s, n_classes, n_groups, margins, shifts):
    """What docs/math.md#judge says, one cell, one shift and one level at a time."""
    out = np.full((len(shifts), n_classes, n_groups, N_LEVELS), np.nan)
    for (k, g), (centre, doubt, residuals) in posterior(y, s, margins).items():
        # Every residual as so many equal parts that a level has a whole number of them.
        parts = np.repeat(np.sort(residuals)[::-1], N_LEVELS).reshape(N_LEVELS, len(residuals))
        for b, shift in enumerate(shifts[:, k]):
            for level, part in enumerate(parts):
                out[b, k, g, level] = norm.cdf((centre + shift + part.mean()) / doubt)
    return out


def drawn_accuracies(y, s, margins, draws, seed=0):
    """(draws, cells) accuracies of the cells for shifts drawn from their posterior, with the residuals as they are."""
    rng = np.random.default_rng(seed)
    columns = []
    for centre, doubt, residuals in posterior(y, s, margins).values():
        shift = rng.normal(centre, doubt, size=draws)
        columns.append(1 - np.searchsorted(np.sort(residuals), -shift, side="right") / len(residuals))
    return np.column_stack(columns)


def accuracies(judge, margins):
    """(c, |S|) expected accuracies of one model."""
    return judge.survival(margins[None])[0, 0].mean(axis=-1)


@pytest.mark.parametrize(("n_classes", "n_groups"), [(2, 2), (3, 2), (2, 4), (2, 1), (4, 1)])
@pytest.mark.parametrize("n", [60, 23])
def test_survival_is_that_of_a_loop(n_classes, n_groups, n):
    y, s = labelled(3, n, n_classes, n_groups)
    judge = Judge(y, s, n_classes, n_groups)
    margins = np.array([judge.margins(noisy_scores(seed, y, n_classes)) for seed in (4, 5)])
    shifts = np.random.default_rng(5).normal(size=(2, 3, n_classes))
    found = judge.survival(margins, shifts)
    assert found.shape == (2, 3, n_classes, n_groups, N_LEVELS)
    for i in range(2):
        slow = slow_survival(y, s, n_classes, n_groups, margins[i], shifts[i])
        assert_allclose(found[i], slow, atol=1e-9)
        plain = slow_survival(y, s, n_classes, n_groups, margins[i], np.zeros((1, n_classes)))
        assert_allclose(judge.survival(margins)[i], plain, atol=1e-9)


@pytest.mark.parametrize(
    ("n", "n_classes", "n_groups"), [(30, 2, 2), (200, 2, 2), (1000, 2, 2), (300, 7, 4), (60, 3, 1)]
)
def test_levels_give_what_a_hundred_thousand_draws_give(n, n_classes, n_groups):
    y, s = labelled(20, n, n_classes, n_groups)
    judge = Judge(y, s, n_classes, n_groups)
    margins = judge.margins(noisy_scores(21, y, n_classes, strength=1.5))
    drawn = drawn_accuracies(y, s, margins, 100_000)
    survival = judge.survival(margins[None])[0, 0].reshape(-1, N_LEVELS)
    assert_allclose(survival.mean(axis=1), drawn.mean(axis=0), atol=0.003)
    assert survival.prod(axis=0).mean() == pytest.approx(drawn.min(axis=1).mean(), abs=0.003)


def test_a_cell_without_rows_is_nan_and_does_not_move_the_others():
    y, s = labelled(6, 80)
    keep = ~((y == 0) & (s == 1))
    y, s = y[keep], s[keep]
    judge = Judge(y, s, 2, 2)
    margins = judge.margins(noisy_scores(7, y, 2))
    found = judge.survival(margins[None])[0]
    assert np.isnan(found[:, 0, 1]).all()
    assert np.isfinite(found[:, [0, 1, 1], [0, 0, 1]]).all()
    assert_allclose(found, slow_survival(y, s, 2, 2, margins, np.zeros((1, 2))), atol=1e-9)


def test_a_class_without_rows_is_nan():
    s = np.repeat([0, 1], 10)
    judge = Judge(np.zeros(20, dtype=np.int64), s, 2, 2)
    found = accuracies(judge, judge.margins(noisy_scores(8, judge.y, 2)))
    assert np.isnan(found[1]).all()
    assert np.isfinite(found[0]).all()


@pytest.mark.parametrize(("margin", "accuracy"), [(0.5, 1.0), (-0.5, 0.0)])
def test_constant_margins_leave_no_doubt(margin, accuracy):
    y, s = labelled(9, 40)
    found = Judge(y, s, 2, 2).survival(np.full((1, 40), margin))
    assert_array_equal(found, np.full((1, 1, 2, 2, N_LEVELS), accuracy))


def test_with_many_rows_the_posterior_is_narrow_and_at_the_raw_accuracy():
    y, s = labelled(10, 16_000)
    judge = Judge(y, s, 2, 2)
    margins = np.random.default_rng(11).normal(size=len(y)) + np.array([[0.8, -0.3], [0.1, 1.5]])[y, s]
    found = judge.survival(margins[None])[0, 0]
    for k in range(2):
        for g in range(2):
            raw = np.mean(margins[(y == k) & (s == g)] > 0)
            assert found[k, g].mean() == pytest.approx(raw, abs=0.015)
            doubtful = (found[k, g] > 0.05) & (found[k, g] < 0.95)
            assert doubtful.mean() < 0.05


def test_small_cells_are_shrunk_towards_their_class():
    """A cell whose few rows are all wrong is not believed to be all wrong, and the less so the fewer they are."""
    rng = np.random.default_rng(12)
    expected = []
    for n in (2, 8, 400):
        s = np.repeat([0, 1], [400, n])
        noise = rng.normal(scale=0.5, size=400 + n)
        noise[s == 1] -= noise[s == 1].mean()
        judge = Judge(np.zeros(400 + n, dtype=np.int64), s, 2, 2)
        expected.append(accuracies(judge, np.where(s == 0, 1.0, -1.0) + noise)[0, 1])
    assert expected[0] > expected[1] + 0.05 > expected[2] + 0.1
    assert expected[2] == pytest.approx(norm.cdf(-1 / 0.5), abs=0.02)


def test_a_shift_of_one_class_leaves_the_other():
    y, s = labelled(13, 60)
    judge = Judge(y, s, 2, 2)
    margins = judge.margins(noisy_scores(14, y, 2))
    shifts = np.array([[[0.0, 0.0], [0.7, 0.0], [-0.7, 0.0]]])
    plain, up, down = judge.survival(margins[None], shifts)[0]
    assert_array_equal(up[1], plain[1])
    assert np.all(up[0] >= plain[0])
    assert np.all(down[0] <= plain[0])
    assert down[0].mean() < plain[0].mean() < up[0].mean()


def test_nothing_is_drawn_and_models_do_not_touch_each_other():
    y, s = labelled(15, 60)
    judge, again = Judge(y, s, 2, 2), Judge(y, s, 2, 2)
    margins = np.array([judge.margins(noisy_scores(seed, y, 2)) for seed in (16, 17, 18)])
    assert_array_equal(judge.survival(margins), again.survival(margins))
    assert_array_equal(judge.survival(margins)[1:2], judge.survival(margins[1:2]))
    assert_array_equal(judge.of(np.ones(60, dtype=bool)).survival(margins), judge.survival(margins))


def test_classes_as_cells_are_a_judge_of_one_group():
    y, s = labelled(22, 60, 3, 2)
    margins = np.random.default_rng(23).normal(size=(2, 60))
    one = Judge(y, np.zeros(60, dtype=np.int64), 3, 1)
    assert_array_equal(Judge(y, s, 3, 2).by_class.survival(margins), one.survival(margins))


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
    assert_array_equal(judge.margins(np.stack([scores, 2 * scores]))[1], 2 * judge.margins(scores))
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
    found = judge.survival(np.array([[0.1, -0.1, 0.2, -0.2]]))[0, 0]
    assert ((found > 0.1) & (found < 0.9)).all(axis=-1).any()
    assert ((found.mean(axis=-1) > 0.1) & (found.mean(axis=-1) < 0.9)).all()
