"""Training rows judge together with validation rows, each scored by models that were fitted without it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tuning_inputs import (
    START,
    TINY,
    all_rows,
    figures,
    prompts,
    remember,
    searched,
    small,
    task,
    tuned,
)

from fairerclip.errors import ParameterError, UnusedRowsWarning
from fairerclip.tuning import found_rows


@pytest.fixture
def seen(monkeypatch):
    return remember(monkeypatch)


def exact(**parameters):
    """A model whose features depend on its seed alone, so that a fit on some of the rows has the same."""
    return small(**{**START, "bandwidth": 1.5, "dtype": "float64", **parameters})


def refit(t, parameters, rows, **given):
    """A plain fit on some of the training rows."""
    own = {
        name: v[rows] if name in ("sensitive_features", "sample_weight") else v for name, v in given.items()
    }
    return exact(**parameters).fit(t.train.X[rows], t.train.y[rows], **own)


def expected_scores(t, parameters, splits, **given):
    """Scores of training rows by refits without them, then of validation rows by the fit on all."""
    n = len(t.train.y)
    out = np.full((n, t.n_classes), np.nan)
    for fitted_on, scored in splits:
        out[scored] = refit(t, parameters, fitted_on, **given).scores(t.train.X[scored])
    return np.concatenate([out, refit(t, parameters, np.arange(n), **given).scores(t.val.X)])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "groups"), [("waterbirds", "guessed"), ("multiclass", "known")])
def test_every_candidate_scores_training_rows_as_a_plain_refit_on_the_other_folds(name, groups, seen):
    t = task(name)
    given = prompts(t)
    if groups == "known":
        given = {"text": t.text_target, "sensitive_text": None, "sensitive_features": t.train.sensitive()}
    searched_ = searched(t, exact(), options={"cv": 3}, **given)
    found, pool = seen["found"], seen["pool"]
    assert [len(split.scored) for split in found.splits] == [len(t.train.y) // 3] * 3
    record, n, m = figures(searched_.best_estimator_), len(t.train.y), len(t.val.y)
    assert (record["rows"], record["validation_rows"], record["folds"]) == (n + m, m, 3)
    chosen = np.random.default_rng(61).choice(len(pool.candidates), 5, replace=False)
    for candidate in (pool.candidates[i] for i in {0, 1, *chosen.tolist()}):
        expected = expected_scores(t, candidate.parameters, found.splits, **given)
        assert_allclose(candidate.scores, expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize(
    "parameters",
    [
        {"kernel": "linear", "class_weight": "group"},
        {"gamma_text": 1e-2, "tau_z": 0.2, "scaling": "paper"},
        {"orthogonal": True, "class_weight": None},
        {"decision": "prompts", "refine": True},
        {"solver": "cg"},
    ],
    ids=str,
)
def test_fits_of_a_search_space_may_differ_in_any_parameter(parameters, seen):
    t = task()
    given = {**prompts(t), "sensitive_features": t.train.sensitive()}
    searched(t, exact(), search=one_point(parameters), options={"cv": 3}, **given)
    candidate = seen["pool"].candidates[-1]
    assert candidate.parameters == {**parameters, "tau": 0.5, "zero_shot": 0.3, "criterion": "marginal"}
    expected = expected_scores(t, candidate.parameters, seen["found"].splits, **given)
    assert_allclose(candidate.scores, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(
    "parameters",
    [{"kernel": "nystroem", "n_features": 30}, {"subsample": {0: 0.5}}],
    ids=str,
)
def test_fits_that_draw_rows_score_validation_rows_as_a_plain_refit(parameters, seen):
    """The draw is that of all rows: a refit on some of them would draw others."""
    t = task()
    searched(t, exact(), search=one_point(parameters), options={"cv": 3})
    candidate, n = seen["pool"].candidates[-1], len(t.train.y)
    expected = refit(t, candidate.parameters, np.arange(n), **prompts(t)).scores(t.val.X)
    assert_allclose(candidate.scores[n:], expected, rtol=2e-6, atol=1e-6)
    assert len(candidate.scores) == n + len(t.val.y)
    assert np.isfinite(candidate.scores).all()
    # Out of fold: near the scores of the fit on all rows, and not these.
    inside = refit(t, candidate.parameters, np.arange(n), **prompts(t)).scores(t.train.X)
    assert 1e-3 < np.abs(candidate.scores[:n] - inside).max()
    assert np.corrcoef(candidate.scores[:n, 0], inside[:, 0])[0, 1] > 0.9


def one_point(parameters):
    return {
        "fits": [{"gamma": 1e-2}, parameters],
        "taus": [0.5],
        "zero_shots": [0.3],
        "criteria": ["marginal"],
    }


def test_figures_of_the_table_are_those_of_all_rows_that_judge(seen):
    t = task()
    given = {"text": t.text_target, "sensitive_text": None, "sensitive_features": t.train.sensitive()}
    search = searched(t, exact(), **given)
    _, y, s = all_rows(t)
    predicted = expected_scores(t, {}, seen["found"].splits, **given).argmax(axis=1)
    cells = [np.mean(predicted[(y == a) & (s == b)] == a) for a in (0, 1) for b in (0, 1)]
    assert search.results_[0]["average"] == pytest.approx(np.mean(predicted == y))
    assert search.results_[0]["worst_group"] == pytest.approx(min(cells))
    assert search.results_[0]["score"] == search.results_[0]["worst_group"]


def test_groups_keep_rows_together_with_and_without_validation_rows(seen):
    t = task()
    people = np.arange(len(t.train.y)) // 3
    for validation in ("val", None):
        searched(t, search=TINY, validation=validation, groups=people)
        splits = seen["found"].splits
        assert sum(len(split.scored) for split in splits) == len(people)
        for split in splits:
            assert_array_equal(np.intersect1d(people[split.scored], people[split.fitted_on]), [])


def test_without_cross_validation_the_validation_rows_judge_alone(seen):
    t = task()
    found = figures(tuned(t, search=TINY, options={"cv": None}))
    assert (found["rows"], found["validation_rows"], found["folds"]) == (len(t.val.y), len(t.val.y), None)
    assert seen["found"].splits == []
    with pytest.raises(ParameterError):
        searched(t, search=TINY, groups=t.train.y, options={"cv": None})
    # Without validation rows there is nothing else to judge on.
    alone = figures(tuned(t, search=TINY, validation=None, options={"cv": None}))
    assert alone == figures(tuned(t, search=TINY, validation=None, options={"cv": 4}))


def test_without_labels_in_training_the_validation_rows_judge_alone():
    t = task()
    found = figures(tuned(t, y=[None] * len(t.train.y), search=TINY))
    assert (found["rows"], found["validation_rows"], found["folds"]) == (len(t.val.y), len(t.val.y), None)


@pytest.mark.parametrize("validated", [True, False])
def test_rows_without_a_label_are_fitted_on_in_every_fold_and_not_judged(validated, seen):
    t = task()
    y = t.train.y.astype(object)
    y[::3] = None
    known = np.flatnonzero([label is not None for label in y])
    model = tuned(t, y=y, search=TINY, validation="val" if validated else None)
    found = seen["found"]
    assert figures(model)["rows"] == len(known) + (len(t.val.y) if validated else 0)
    assert_array_equal(found.judged.rows[: len(known)], known)
    for split in found.splits:
        assert set(range(0, len(y), 3)) <= set(split.fitted_on.tolist())
    assert model.pseudo_labels_ is not None


def test_rows_of_weight_zero_are_not_judged():
    t = task()
    weight = (np.arange(len(t.train.y)) % 4 > 0).astype(float)
    for validation, more in (("val", len(t.val.y)), (None, 0)):
        found = figures(tuned(t, search=TINY, validation=validation, sample_weight=weight))
        assert found["rows"] == int(weight.sum()) + more


def few_labels(t, rows):
    y = np.full(len(t.train.y), None, dtype=object)
    y[rows] = t.train.y[rows]
    return y


@pytest.mark.parametrize(("kept", "fact"), [([1, 1], "2 "), ([6, 0], "one class"), ([6, 1], "class 1")])
def test_too_few_labels_to_cross_validate_leave_the_validation_rows_alone(kept, fact):
    t = task()
    rows = np.concatenate([np.flatnonzero(t.train.y == k)[:n] for k, n in enumerate(kept)])
    y = few_labels(t, rows)
    with pytest.warns(UnusedRowsWarning, match=fact):
        found = tuned(t, y=y, search=TINY)
    assert figures(found) == figures(tuned(t, y=y, search=TINY, options={"cv": None}))
    assert figures(found)["rows"] == len(t.val.y)


def test_more_training_rows_than_can_be_judged_are_drawn_from_every_cell(monkeypatch, seen):
    monkeypatch.setattr(found_rows, "MOST_ROWS", 100)
    t = task()
    given = {"sensitive_text": None, "sensitive_features": t.train.sensitive()}
    searched(t, search=TINY, **given)
    found = seen["found"]
    s = t.train.sensitive()
    rows = found.judged.rows[: found.trained_rows]
    counts = {(a, b): (np.sum((t.train.y == a) & (s == b))) for a in (0, 1) for b in (0, 1)}
    taken = {(a, b): (np.sum((t.train.y[rows] == a) & (s[rows] == b))) for a, b in counts}
    assert taken == {cell: min(n, 25) for cell, n in counts.items()}
    assert found.validation_rows == len(t.val.y)
    for split in found.splits:  # all others are fitted on in every fold
        assert len(split.fitted_on) == len(t.train.y) - len(split.scored)
