"""Numbers of a search with the constants written out: of its record, of its table, and of rankings."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import spearmanr
from tuning_inputs import START, TINY, all_rows, figures, remember, searched, small, task

from fairerclip.errors import LabelError
from fairerclip.judging.evidence import Evidence
from fairerclip.judging.objectives import Objective, judge_scores
from fairerclip.metrics import max_skew
from fairerclip.tuning.candidates import FITS, TAUS, ZERO_SHOTS
from fairerclip.tuning.pool import Candidate, Pool
from fairerclip.tuning.ranking import STRENGTHS, _equal_top, _judge, _known_groups
from fairerclip.tuning.record import candidate_table

WORST = Objective("worst_group")


# The record -----------------------------------------------------------------------------------------------


def known(t):
    return {"sensitive_text": None, "sensitive_features": t.train.sensitive()}


def test_gain_and_doubt_are_those_of_the_posterior_over_the_given_parameters(monkeypatch):
    seen = remember(monkeypatch)
    found = searched(task(), search=TINY)
    record, pool, evidence = figures(found.best_estimator_), seen["pool"], seen["found"].judged.evidence
    draws = judge_scores(evidence, WORST, pool.scores)
    moved = [c.scores + found.best_estimator_.offsets_ for c in pool.candidates]
    gains = judge_scores(evidence, WORST, np.array(moved)) - draws[0]
    place = int(np.argmin(np.abs(gains.mean(axis=1) - record["gain"])))
    assert record["gain"] == pytest.approx(gains[place].mean(), abs=1e-6)
    assert record["doubt"] == pytest.approx(gains[place].std(), abs=1e-6)
    assert record["value"] == pytest.approx((gains + draws[0])[place].mean(), abs=1e-6)
    lower = gains.mean(axis=1) - 1.5 * gains.std(axis=1)
    assert lower[place] > 0
    for row, own in zip(found.results_, draws, strict=True):
        assert row["value"] == pytest.approx(own.mean())
        expected = (own - draws[0]).mean() - 1.5 * (own - draws[0]).std()
        assert row["lower_gain"] == pytest.approx(expected, abs=1e-7)
    assert found.results_[0]["lower_gain"] == 0


def test_a_record_is_plain_numbers_and_words_and_has_no_others():
    record = searched(task(), search=TINY, options={"cv": 3}).best_estimator_.diagnostics_["tuning"]
    assert json.loads(json.dumps(record)) == record
    assert list(record) == [
        *(
            "objective",
            "accuracy_floor",
            "floor_met",
            "rows",
            "validation_rows",
            "groups",
            "strategy",
            "gain",
        ),
        *("doubt", "fits", "fits_planned", "candidates", "seconds", "failures", "folds", "value", "average"),
        *("chosen", "neighbours"),
    ]


def test_the_average_of_the_record_counts_all_rows_that_judge_and_the_figures_the_validation_rows(
    monkeypatch,
):
    seen = remember(monkeypatch)
    t = task()
    found = searched(t, small(**START), search=TINY, **known(t))
    record = figures(found.best_estimator_)
    _, y, s = all_rows(t)
    offsets = found.best_estimator_.offsets_
    right = [(c.scores + offsets).argmax(axis=1) == y for c in seen["pool"].candidates]
    matching = [r for r in right if np.mean(r) == record["average"]]
    assert matching
    n = len(t.train.y)
    assert any(record["chosen"]["average"] == pytest.approx(np.mean(r[n:])) for r in matching)
    cells = [[np.mean(r[(y == a) & (s == b)]) for a in (0, 1) for b in (0, 1)] for r in matching]
    assert any(found.best_score_ == pytest.approx(min(cell)) for cell in cells)
    # Without validation rows the figures are those of the training rows, out of fold.
    alone = searched(t, small(**START), search=TINY, validation=None, **known(t))
    record = figures(alone.best_estimator_)
    assert record["chosen"]["average"] == record["average"]
    assert record["chosen"]["worst_group"] == pytest.approx(alone.best_score_)


def test_a_cell_that_no_row_is_expected_in_is_not_the_worst_group():
    """Groups that are read from prompts have a little of every row in every cell."""
    y = np.repeat([0, 1], 50)
    P = np.column_stack([np.full(100, 0.999), np.full(100, 0.001)])
    P[y == 0] = 0.5
    evidence = Evidence(y, P, 2, np.linspace(-1, 1, 100))
    scores = np.eye(2)[y].astype(np.float32)
    scores[50] = [1, 0]  # one wrong row of the second class
    P[50], P[51] = [0.96, 0.04], [0.999, 0.001]
    pool = Pool([Candidate({}, 0, scores)], 0, {}, 1, 1, 0.0, [])
    params = small(**START).get_params()
    (row,) = candidate_table(pool, evidence, WORST, params)
    assert evidence.counts[1, 1] < 0.5
    assert row["worst_group"] == pytest.approx(1 - 0.96 / evidence.counts[1, 0])


def test_the_default_search_has_these_fits_and_points():
    assert TAUS == (0.0, 0.5, 0.7, 0.8, 0.9, 0.98)
    assert ZERO_SHOTS == (0.0, 0.25, 0.5, 0.75, 1.0)
    assert [(fit["gamma"], fit["class_weight"]) for fit in FITS] == [
        (gamma, weight) for gamma in (1e-3, 3e-4, 1e-4, 4e-3) for weight in ("balanced", "group")
    ]


# Rankings -------------------------------------------------------------------------------------------------


def test_a_strength_is_judged_by_the_skew_of_a_fifth_and_the_least_agreement_inside_a_group():
    rng = np.random.default_rng(0)
    old, taken = rng.normal(size=(43, 2)), rng.normal(size=(43, 2))
    codes = np.repeat(
        [0, 1, 2], [20, 21, 2]
    )  # the last has too few rows for an order, though it is turned round
    taken[-2:] = (old[-2:] - old[[-1, -2]]) / 0.4
    new = old - 0.4 * taken
    found = _judge(0.4, old, taken, codes)
    inside = [spearmanr(old[codes == g, j], new[codes == g, j])[0] for g in (0, 1) for j in (0, 1)]
    assert found["rank_correlation"] == pytest.approx(min(inside))
    assert found["max_skew"] == pytest.approx(np.mean(max_skew(new, codes, 9)))
    assert _judge(0.0, old, taken, codes)["rank_correlation"] == 1.0


def test_strengths_fall_from_one_to_nothing_by_tenths():
    assert_allclose(STRENGTHS, np.linspace(1, 0, 11), atol=1e-12)


def test_a_ranking_needs_two_groups_and_one_of_three_rows():
    codes, values = _known_groups(["a", "b", "a", None, "a"], 5, None)
    assert codes.tolist() == [0, 1, 0, -1, 0]
    assert values.tolist() == ["a", "b"]
    with pytest.raises(LabelError, match="no group of validation s has more than 2 rows"):
        _known_groups(["a", "b", "a", None, "b"], 5, None)
    with pytest.raises(LabelError, match="fewer than two groups"):
        _known_groups(["a", "a", "a", None, "a"], 5, None)


def test_shifts_bring_the_shares_of_the_soft_top_to_those_of_all_rows():
    rng = np.random.default_rng(0)
    groups = np.eye(2)[(rng.random(2000) < 0.3).astype(int)]
    explained = np.column_stack([groups, np.ones(2000)])[:, :2] + 0.1 * rng.normal(size=(2000, 2))
    scores = rng.normal(size=2000) + 0.8 * groups[:, 1]
    shift = _equal_top(scores, explained, groups)
    moved = scores - explained @ shift
    softness = 0.25 * moved.std() / 2
    top = 1 / (1 + np.exp(-(moved - np.quantile(moved, 0.8)) / softness))
    assert_allclose(groups.T @ top / top.sum(), groups.mean(axis=0), rtol=2e-3)
    assert_array_equal(
        _equal_top(scores, np.ones((2000, 2)), groups), 0.0
    )  # rows that say nothing of the groups
