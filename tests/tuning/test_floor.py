"""An accuracy floor is a floor: where a model of the search reaches it on the judged rows, the chosen one does."""

import numpy as np
import pytest
from tuning_inputs import START, TINY, all_rows, figures, held, small, task, tuned

from fairerclip.errors import AccuracyFloorWarning
from fairerclip.inputs.prompts import zero_shot
from fairerclip.judging.objectives import OBJECTIVES
from fairerclip.tuning import record

ALONE = {"cv": None}
"""Validation rows judge alone: what is judged is what a test can count with the fitted model."""


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_tuned_model_keeps_the_floor_on_the_judged_rows_or_says_that_it_does_not(objective):
    made = task()
    X, y, _ = held(made)
    for floor in (0.75, 0.83):
        model = tuned(made, objective=objective, accuracy_floor=floor, search=TINY, options=ALONE)
        assert figures(model)["floor_met"] is True
        assert figures(model)["average"] == figures(model)["chosen"]["average"] >= floor
        assert np.mean(model.predict(X) == y) >= floor
    together = figures(tuned(made, objective=objective, accuracy_floor=0.85, search=TINY))
    assert together["floor_met"] is True
    assert together["average"] >= 0.85
    with pytest.warns(AccuracyFloorWarning, match=r"0\.9999"):
        model = tuned(made, objective=objective, accuracy_floor=0.9999, search=TINY)
    assert figures(model)["floor_met"] is False
    assert figures(model)["accuracy_floor"] == 0.9999


def test_a_floor_that_nothing_reaches_takes_the_most_accurate_candidate():
    made = task()
    _, y, _ = all_rows(made)
    seen = []

    def accuracy(truth, predicted, groups):
        seen.append(float(np.mean(predicted == y)))
        return seen[-1]

    tuned(made, objective=accuracy)
    for objective in ("worst_group", "eod"):
        with pytest.warns(AccuracyFloorWarning):
            model = tuned(made, objective=objective, accuracy_floor=0.9999)
        assert figures(model)["average"] >= max(seen)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["eod", "equalized_odds"])
def test_the_floor_that_zero_shot_sets_is_kept_or_the_miss_is_said(objective, monkeypatch):
    """One class for every row has no EOD; zero-shot's average is the floor where none is given."""
    made = task()
    X, y, _ = all_rows(made)
    model = tuned(made, objective=objective)
    right = zero_shot(X, [row[None] for row in made.text_target])[0] == y
    assert figures(model)["accuracy_floor"] == np.mean(right)
    assert figures(model)["floor_met"] is True
    assert len(set(model.predict(made.val.X).tolist())) == made.n_classes
    # A zero-shot classifier that is always right.
    monkeypatch.setattr(record, "zero_shot", lambda rows, text: (y, None))
    with pytest.warns(AccuracyFloorWarning):
        model = tuned(made, objective=objective)
    assert figures(model)["floor_met"] is False


def test_without_prompts_the_floor_is_what_the_given_model_reaches():
    made = task()
    X, y, _ = held(made)
    given = {"text": None, "sensitive_text": None, "sensitive_features": made.train.sensitive()}
    plain = small(**START).fit(made.train.X, made.train.y, sensitive_features=made.train.sensitive())
    model = tuned(made, objective="eod", options=ALONE, **given)
    assert figures(model)["accuracy_floor"] == pytest.approx(np.mean(plain.predict(X) == y))
    assert figures(model)["floor_met"] is True


@pytest.mark.parametrize("objective", ["equalized_odds"])
def test_a_difference_between_groups_reaches_its_floor_by_a_boundary(objective):
    """No candidate reaches the floor with its own boundary; one reaches it with another, and nothing is warned of."""
    made = task()
    X, y, _ = held(made)
    own = []

    def accuracy(truth, predicted, groups):
        own.append(float(np.mean(predicted == truth)))
        return own[-1]

    given = {"search": TINY, "options": ALONE}
    given |= {"sensitive_text": None, "sensitive_features": made.train.sensitive()}
    tuned(made, objective=accuracy, **given)
    floor = max(own) + 0.02
    model = tuned(made, objective=objective, accuracy_floor=floor, **given)
    assert np.any(model.offsets_)
    assert figures(model)["floor_met"] is True
    assert figures(model)["average"] == np.mean(model.predict(X) == y)
    assert figures(model)["average"] >= floor


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["eod", "worst_group"])
def test_eod_in_the_table_is_that_of_the_second_class_in_the_order_of_the_prompts(objective):
    """As it is in the objective: of ["water", "land"] it is about land, whatever the alphabet says."""
    made = task()
    X, y, s = held(made)
    names = np.array(["water", "land"])  # codes 0 and 1
    model = tuned(
        made,
        y=names[made.train.y],
        validation=(X, names[y], s),
        objective=objective,
        classes=names.tolist(),
    )
    right = model.predict(X) == names[y]
    recall = {k: [np.mean(right[(y == k) & (s == g)]) for g in (0, 1)] for k in (0, 1)}
    eod = {k: abs(a - b) for k, (a, b) in recall.items()}
    assert eod[0] != pytest.approx(eod[1], abs=1e-3)  # or the test could not fail
    found = figures(model)
    assert found["chosen"]["eod"] == pytest.approx(eod[1], abs=1e-12)
    assert found["chosen"]["positive"] == "land"
    assert all(row["positive"] == "land" for row in found["neighbours"])
