"""The choice does not depend on names, codes or the order of rows, classes and groups, nor on random numbers."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tuning_inputs import SEARCH, figures, held, searched, small, task

from fairerclip import FairerCLIP
from fairerclip.data import load_task
from fairerclip.experiment import Experiment
from fairerclip.tuning import search as module
from small_models import tune


def exact():
    """A model whose features do not depend on the order of the rows."""
    return small(bandwidth=1.5, dtype="float64")


def described(model):
    found = figures(model)
    parameters = {k: v for k, v in found["chosen"]["parameters"].items() if k != "offsets"}
    return parameters, found["strategy"], found["rows"]


def assert_same_choice(again, first):
    assert described(again) == described(first)
    for name in ("value", "gain", "doubt", "average"):
        assert figures(again)[name] == pytest.approx(figures(first)[name], abs=1e-5), name


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("name", ["waterbirds", "multiclass"])
def test_renamed_classes_and_groups_and_another_order_of_rows_give_the_same_model(name, known):
    t = task(name)
    X, y, s = held(t)
    n, rng = t.n_classes, np.random.default_rng(1)
    train, val = rng.permutation(len(t.train.y)), rng.permutation(len(y))
    sensitive = t.sensitive_attribute().text
    given = {"sensitive_text": None, "sensitive_features": t.train.sensitive()} if known else {}
    first = searched(t, exact(), **given).best_estimator_
    # Names whose sorted order is another: the last class is first now, and groups are the other way round.
    labels, groups = np.array(["zebra", "yak", "wolf"])[:n], np.array(["night", "day"])
    if known:
        given = {"sensitive_features": groups[t.train.sensitive()[train]]}
    else:
        given = {"sensitive_text": {"day": sensitive[1], "night": sensitive[0]}}
    again = tune(
        exact(),
        t.train.X[train],
        labels[t.train.y[train]],
        validation=(X[val], labels[y[val]], groups[s[val]]),
        search=SEARCH,
        text={labels[k]: t.text_target[k] for k in reversed(range(n))},
        **given,
    )
    assert again.classes_.tolist() == labels[::-1].tolist()
    assert_same_choice(again, first)
    assert_allclose(again.offsets_[::-1], first.offsets_, atol=1e-5)
    assert np.mean(labels[first.predict(t.test.X)] == again.predict(t.test.X)) > 0.999


@pytest.mark.parametrize("objective", ["worst_group", "worst_class", "equalized_odds", "average"])
def test_every_objective_chooses_the_same_model_in_another_order(objective):
    t = task()
    X, y, s = held(t)
    rng = np.random.default_rng(2)
    train, val = rng.permutation(len(t.train.y)), rng.permutation(len(y))
    options = {"objective": objective}
    first = searched(t, exact(), options=options).best_estimator_
    again = tune(
        exact(),
        t.train.X[train],
        1 - t.train.y[train],
        validation=(X[val], 1 - y[val], 1 - s[val]),
        search=SEARCH,
        objective=objective,
        text=t.text_target[::-1],
        sensitive_text=t.sensitive_attribute().text[::-1],
    )
    assert_same_choice(again, first)
    assert_allclose(again.offsets_[::-1], first.offsets_, atol=1e-5)


def test_the_lengths_of_rows_do_not_matter():
    t = task()
    X, y, s = held(t)
    first = searched(t, exact()).best_estimator_
    rng = np.random.default_rng(3)
    again = tune(
        exact(),
        t.train.X * rng.uniform(0.5, 2, size=(len(t.train.y), 1)),
        t.train.y,
        validation=(X * rng.uniform(0.5, 2, size=(len(y), 1)), y, s),
        search=SEARCH,
        text=t.text_target,
        sensitive_text=t.sensitive_attribute().text,
    )
    assert_same_choice(again, first)


def test_folds_of_a_seed_are_the_same_for_every_order_of_rows():
    """Rows are dealt to folds by their content."""
    t = task()
    order = np.random.default_rng(4).permutation(len(t.train.y))
    found = []
    for rows in (np.arange(len(order)), order):
        scores = {}

        def keep(y, predicted, groups, scores=scores):
            scores[len(scores)] = predicted
            return float(np.mean(predicted == y))

        tune(
            exact(),
            t.train.X[rows],
            t.train.y[rows],
            search=SEARCH,
            objective=keep,
            text=t.text_target,
            sensitive_text=t.sensitive_attribute().text,
        )
        back = np.argsort(rows)
        found.append(np.array([scores[k][back] for k in range(len(scores))]))
    assert np.mean(found[0] == found[1]) > 0.999


@pytest.mark.real
@pytest.mark.parametrize("name", ["pacs", "celeba_blond"])
def test_on_real_rows_the_codes_of_groups_do_not_change_the_model(real_data, name, monkeypatch):
    real = load_task(real_data / f"{name}.npz")
    experiment = Experiment.of(real)
    pools = []

    def once(*args, **options):
        if not pools:
            pools.append(gather(*args, **options))
        return pools[0]

    gather = module.gather
    monkeypatch.setattr(module, "gather", once)  # the fits do not see the groups of validation rows
    arguments = experiment.arguments("target")
    X, y = arguments.pop("X"), arguments.pop("y")
    arguments["sensitive_text"] = real.sensitive_attribute().text  # without names
    val = real.val
    found = []
    for seed in range(2):
        names = np.random.default_rng(seed).permutation(int(val.sensitive().max()) + 1)
        groups = np.array([f"group {k}" for k in names])[val.sensitive()]
        model = tune(
            FairerCLIP(n_features=300, random_state=0),
            *(X, y),
            validation=(val.X, experiment.target(val), groups),
            search=SEARCH,
            **arguments,
        )
        found.append((described(model), model.offsets_, model.predict(real.test.X)))
    assert found[1][0] == found[0][0]
    assert_allclose(found[1][1], found[0][1], atol=1e-6)
    assert_array_equal(found[1][2], found[0][2])
