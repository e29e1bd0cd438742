"""The choice does not depend on names, codes or the order of rows, classes and groups, nor on random numbers."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from tuning_inputs import SEARCH, held, noisy_scores, pool_of, prompts, small, task

from fairerclip import FairerCLIP
from fairerclip.data import load_task
from fairerclip.experiment import Experiment
from fairerclip.tuning import search as module
from fairerclip.tuning.choose import choose, halves
from fairerclip.tuning.judge import Judge
from fairerclip.tuning.objectives import OBJECTIVES, Objective
from small_models import tune


@st.composite
def problems(draw):
    """Labels and scores of a few models on a few rows, some of which are there twice; cells may be empty."""
    n_classes, n_groups = draw(st.integers(2, 4)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(12, 40))
    y, s = rng.integers(n_classes, size=n), rng.integers(n_groups, size=n)
    bias = rng.normal(size=n_classes) * draw(st.sampled_from([0.0, 1.0]))
    scores = np.array([noisy_scores(rng, y, n_classes, strength=i) + bias for i in range(5)])
    twice = np.concatenate([np.arange(n), rng.integers(n, size=draw(st.integers(0, 6)))])
    return y[twice], s[twice], scores[:, twice], n_classes, n_groups, rng


@settings(max_examples=8, deadline=None)
@given(problem=problems(), name=st.sampled_from(OBJECTIVES), floor=st.sampled_from([None, 0.6, 0.9]))
def test_the_choice_is_the_same_under_other_codes_and_another_order_of_rows(problem, name, floor):
    y, s, scores, n_classes, n_groups, rng = problem
    objective = Objective(name, floor)
    first = choose(pool_of(scores), Judge(y, s, n_classes, n_groups), objective)
    rows, groups = rng.permutation(len(y)), rng.permutation(n_groups)
    # Of two classes EOD is about the second: to swap them is to ask for something else.
    classes = np.arange(2) if name == "eod" and n_classes == 2 else rng.permutation(n_classes)
    moved = scores[:, rows][:, :, classes]  # class classes[k] has the code k now
    judge = Judge(classes.argsort()[y[rows]], groups[s[rows]], n_classes, n_groups)
    again = choose(pool_of(moved), judge, objective)
    assert (again.choice.candidate, again.strategy) == (first.choice.candidate, first.strategy)
    assert_allclose(again.choice.offsets, first.choice.offsets[classes], atol=1e-12)
    assert again.value == pytest.approx(first.value, abs=1e-12)
    for strategy, value in first.held_out.items():
        assert again.held_out[strategy] == pytest.approx(value, abs=1e-9)


def described(model):
    found = model.diagnostics_["tuning"]
    parameters = {k: v for k, v in found["chosen"]["parameters"].items() if k != "offsets"}
    return parameters, found["strategy"]


@pytest.mark.parametrize("name", ["waterbirds", "multiclass"])
def test_renamed_classes_groups_and_another_order_of_rows_give_the_same_model(name):
    t = task(name)
    X, y, s = held(t)
    n = t.n_classes
    order = np.random.default_rng(1).permutation(len(y))
    first = tune(small(), t.train.X, t.train.y, validation=(X, y, s), search=SEARCH, **prompts(t))
    # Names whose sorted order is another: the last class is first now, and groups are the other way round.
    labels = np.array(["zebra", "yak", "wolf"])[:n]
    groups = np.array(["night", "day"])
    again = tune(
        small(),
        t.train.X,
        labels[t.train.y],
        validation=(X[order], labels[y[order]], groups[s[order]]),
        search=SEARCH,
        text={labels[k]: t.text_target[k] for k in reversed(range(n))},
        sensitive_text=t.sensitive_attribute().text,
    )
    assert again.classes_.tolist() == labels[::-1].tolist()
    assert described(again) == described(first)
    offsets = [m.offsets_ for m in (first, again)]
    assert_allclose(offsets[1][::-1], offsets[0], atol=1e-5)
    assert np.mean(labels[first.predict(t.test.X)] == again.predict(t.test.X)) > 0.999


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
    monkeypatch.setattr(
        "fairerclip.tuning.choose.halves", partial(halves, repeats=6)
    )  # as invariant, and quicker
    arguments = experiment.arguments("target")
    X, y = arguments.pop("X"), arguments.pop("y")
    val = real.val
    found = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        codes = rng.permutation(int(val.sensitive().max()) + 1)[val.sensitive()]
        model = tune(
            FairerCLIP(random_state=0), X, y, validation=(val.X, experiment.target(val), codes), **arguments
        )
        found.append((described(model), model.offsets_, model.predict(real.test.X)))
    for again in found[1:]:
        assert again[0] == found[0][0]
        assert again[1] is None if found[0][1] is None else np.allclose(again[1], found[0][1], atol=1e-12)
        assert_array_equal(again[2], found[0][2])
