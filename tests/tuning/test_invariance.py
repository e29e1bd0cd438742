"""The choice does not depend on names, codes or the order of rows, classes and groups, nor on random numbers."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tuning_inputs import SEARCH, figures, held, searched, small, task

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


@pytest.mark.slow
@pytest.mark.parametrize(("name", "known"), [("waterbirds", False), ("multiclass", True)])
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


@pytest.mark.parametrize("objective", ["worst_class", "equalized_odds"])
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
