"""Numbers of a search with the constants written out: of its record and of its table."""

import numpy as np
import pytest
from tuning_inputs import START, TINY, all_rows, figures, remember, searched, small, task

from fairerclip.judging.objectives import Objective, judge_scores
from fairerclip.tuning.candidates import FITS, TAUS, ZERO_SHOTS

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


def test_the_default_search_has_these_fits_and_points():
    assert TAUS == (0.0, 0.5, 0.7, 0.8, 0.9, 0.98)
    assert ZERO_SHOTS == (0.0, 0.25, 0.5, 0.75, 1.0)
    assert [(fit["gamma"], fit["class_weight"]) for fit in FITS] == [
        (gamma, weight) for gamma in (1e-3, 3e-4, 1e-4, 4e-3) for weight in ("balanced", "group")
    ]
