"""An accuracy floor is a floor: where a model of the search reaches it on the validation rows, the chosen one does."""

import warnings
from functools import partial

import numpy as np
import pytest
from tuning_inputs import SEARCH, held, labelled, noisy_scores, pool_of, prompts, small, task, tuned

from fairerclip import FairerCLIP
from fairerclip.data import load_task
from fairerclip.errors import AccuracyFloorWarning
from fairerclip.experiment import Experiment
from fairerclip.tuning import search as module
from fairerclip.tuning.choose import choose, halves, strategies
from fairerclip.tuning.judge import Judge
from fairerclip.tuning.objectives import OBJECTIVES, Objective
from small_models import tune


@pytest.fixture(autouse=True)
def _few_halves(monkeypatch):
    # How often rows are halved has no part in a floor.
    monkeypatch.setattr("fairerclip.tuning.choose.halves", partial(halves, repeats=3))


def share(y, scores):
    return float(np.mean(scores.argmax(axis=1) == y))


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_chosen_candidate_reaches_every_floor_that_a_candidate_reaches(name, n_classes):
    y, s = labelled(1, 150, n_classes)
    scores = np.array([noisy_scores(10 + i, y, n_classes, strength=0.5 * i) for i in range(6)])
    scores[-1, (y == 1) & (s == 1)] -= 4 * np.eye(n_classes)[1]  # the most accurate one is unfair to a group
    scores = scores.astype(np.float32).astype(np.float64)
    judge = Judge(y, s, n_classes, 2)
    reached = [share(y, values) for values in scores]
    for floor in (0.0, *sorted(reached), max(reached) - 1e-9):
        choice = choose(pool_of(scores), judge, Objective(name, floor)).choice
        assert share(y, scores[choice.candidate] + choice.offsets) >= floor


@pytest.mark.parametrize("name", OBJECTIVES)
def test_where_no_candidate_reaches_the_floor_the_most_accurate_is_taken(name):
    y, s = labelled(2, 150)
    scores = np.array([noisy_scores(20 + i, y, 2, strength=0.5 * i) for i in range(6)])
    scores = scores.astype(np.float32).astype(np.float64)
    judge, objective = Judge(y, s, 2, 2), Objective(name, 0.999)
    choice = choose(pool_of(scores), judge, objective).choice
    options = strategies(pool_of(scores), scores, judge, objective).values()
    right = share(y, scores[choice.candidate] + choice.offsets)
    assert right == max(share(y, scores[o.candidate] + o.offsets) for o in options)
    assert right >= max(share(y, values) for values in scores)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_tuned_model_keeps_the_floor_on_its_validation_rows_or_says_that_it_does_not(objective):
    made = task()
    X, y, _ = held(made)
    for floor in (0.75, 0.85):
        model = tuned(made, objective=objective, accuracy_floor=floor)
        assert model.diagnostics_["tuning"]["floor_met"] is True
        assert model.diagnostics_["tuning"]["chosen"]["average"] >= floor
        assert np.mean(model.predict(X) == y) >= floor
    with pytest.warns(
        AccuracyFloorWarning, match=r"no model of the search reaches the accuracy_floor of 0\.9999"
    ):
        model = tuned(made, objective=objective, accuracy_floor=0.9999)
    assert model.diagnostics_["tuning"]["floor_met"] is False


@pytest.mark.parametrize("objective", ["eod", "equalized_odds"])
def test_the_floor_that_zero_shot_sets_is_kept_or_the_miss_is_said(objective, monkeypatch):
    made = task()
    X, y, _ = held(made)
    model = tuned(made, objective=objective)
    found = model.diagnostics_["tuning"]
    assert found["floor_met"] is True
    assert np.mean(model.predict(X) == y) >= found["accuracy_floor"]
    monkeypatch.setattr(
        "fairerclip.tuning.choose.zero_shot", lambda rows, text: (y, None)
    )  # zero-shot that is always right
    with pytest.warns(AccuracyFloorWarning, match="reaches the floor that zero-shot sets of 1 on"):
        model = tuned(made, objective=objective)
    assert model.diagnostics_["tuning"]["floor_met"] is False


def test_without_prompts_the_floor_is_what_the_given_model_reaches():
    made = task()
    X, y, _ = held(made)
    given = {"text": None, "sensitive_text": None, "sensitive_features": made.train.sensitive()}
    plain = small().fit(made.train.X, made.train.y, sensitive_features=made.train.sensitive())
    model = tuned(made, objective="eod", **given)
    assert model.diagnostics_["tuning"]["accuracy_floor"] == pytest.approx(np.mean(plain.predict(X) == y))
    assert model.diagnostics_["tuning"]["floor_met"] is True


@pytest.mark.parametrize("objective", ["eod", "worst_group"])
def test_eod_in_the_table_is_that_of_the_second_class_in_the_order_of_the_prompts(objective):
    """As it is in the objective: of ["water", "land"] it is about land, whatever the alphabet says."""
    made = task()
    X, y, s = held(made)
    names = np.array(["water", "land"])  # codes 0 and 1
    model = tune(
        small(),
        made.train.X,
        names[made.train.y],
        validation=(X, names[y], s),
        objective=objective,
        search=SEARCH,
        classes=names.tolist(),
        **prompts(made),
    )
    right = model.predict(X) == names[y]
    recall = {k: [np.mean(right[(y == k) & (s == g)]) for g in (0, 1)] for k in (0, 1)}
    eod = {k: abs(a - b) for k, (a, b) in recall.items()}
    assert eod[0] != pytest.approx(eod[1], abs=1e-3)  # or the test could not fail
    found = model.diagnostics_["tuning"]
    assert found["chosen"]["eod"] == pytest.approx(eod[1], abs=1e-12)
    assert found["chosen"]["positive"] == "land"
    assert all(row["positive"] == "land" for row in found["neighbours"])


def test_the_eod_that_a_search_makes_small_is_the_one_that_its_table_shows():
    """Two candidates, each fair in one class: the search takes the one that is fair in the second."""
    counts = np.repeat([[0, 0], [0, 1], [1, 0], [1, 1]], 50, axis=0)
    y, s = counts.T
    rng = np.random.default_rng(3)
    hit = {k: np.where((y == k) & (s == 1), rng.random(200) < 0.5, True) for k in (0, 1)}
    scores = np.array(
        [np.eye(2)[np.where(hit[k], y, 1 - y)] + 0.01 * rng.normal(size=(200, 2)) for k in (1, 0)]
    )
    chosen = choose(pool_of(scores), Judge(y, s, 2, 2), Objective("eod"))
    assert chosen.choice.candidate == 1


@pytest.mark.real
def test_on_real_faces_every_floor_is_kept(real_data, monkeypatch):
    blond_pool = []
    real = load_task(real_data / "celeba_blond.npz")
    experiment = Experiment.of(real)
    gather = module.gather

    def once(*args, **options):
        if not blond_pool:
            blond_pool.append(gather(*args, **options))
        return blond_pool[0]

    monkeypatch.setattr(module, "gather", once)
    y = experiment.target(real.val)
    asked = [
        ("eod", 0.75),
        ("eod", 0.8),
        ("eod", 0.85),
        ("eod", 0.88),
        ("worst_group", 0.88),
        ("worst_class", 0.88),
    ]
    for objective, floor in asked:
        model = experiment.tune(FairerCLIP(random_state=0), "target", objective, accuracy_floor=floor)
        assert np.mean(model.predict(real.val.X) == y) >= floor
        assert model.diagnostics_["tuning"]["floor_met"] is True
    with pytest.warns(AccuracyFloorWarning, match=r"reaches the accuracy_floor of 0\.999"):
        model = experiment.tune(FairerCLIP(random_state=0), "target", objective, accuracy_floor=0.999)
    assert model.diagnostics_["tuning"]["floor_met"] is False
    plain = [np.mean(c.scores.argmax(axis=1) == real.val.y) for c in blond_pool[0].candidates]
    assert np.mean(model.predict(real.val.X) == y) >= max(plain)
    with warnings.catch_warnings():
        warnings.simplefilter("error", AccuracyFloorWarning)
        experiment.tune(FairerCLIP(random_state=0), "target", objective)
