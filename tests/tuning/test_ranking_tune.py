"""`FairerCLIPSearch(objective="max_skew")`: rankings by prompt with less skew that still follow the prompt."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import spearmanr
from tuning_inputs import task

from fairerclip import FairerCLIP
from fairerclip.errors import FairerClipError, LabelError, ParameterError, PromptError, ShapeError
from fairerclip.inputs.sensitive_columns import SoftValues
from fairerclip.metrics import max_skew
from fairerclip.tuning.ranking import RANK_CORRELATION, TOP_SHARE, _equal_top
from small_models import tune


def portraits():
    return task("gallery", scale=0.2)


def ranked(t, attribute="sex", model=None, validation=None, **given):
    rows = validation or (t.val.X, None, t.val.s[attribute])
    arguments = {"text": t.text_target, **given}
    model = model or FairerCLIP(random_state=0)
    return tune(model, t.train.X, validation=rows, objective="max_skew", **arguments)


def cosines(t, X):
    T = t.text_target / np.linalg.norm(t.text_target, axis=1, keepdims=True)
    return X / np.linalg.norm(X, axis=1, keepdims=True) @ T.T


def mean_skew(scores, groups):
    """Mean MaxSkew over prompts, less what any order has by chance: the largest of several shares is above its own."""
    k = round(TOP_SHARE * len(scores))
    rng = np.random.default_rng(97)
    chance = [max_skew(rng.normal(size=scores.shape), groups, k) for _ in range(10)]
    return float(np.mean(max_skew(scores, groups, k)) - np.mean(chance))


@pytest.mark.parametrize("true_values", [False, True])
def test_skew_falls_on_fresh_rows_and_the_order_is_kept(true_values):
    t = portraits()
    given = {"sensitive_features": t.train.s["sex"]} if true_values else {}
    model = ranked(t, **given)
    check(cosines(t, t.test.X), model.scores(t.test.X), t.test.s["sex"])
    found = model.diagnostics_["tuning"]
    assert found["chosen"]["rank_correlation"] >= RANK_CORRELATION
    assert found["chosen"]["max_skew"] < found["before"]["max_skew"]
    assert found["rows"] == len(t.val.X)


@pytest.mark.parametrize("true_values", [False, True])
@pytest.mark.parametrize("n_groups", [2, 4])
def test_planted_skew_of_several_groups_falls_on_fresh_rows(n_groups, true_values):
    """Each prompt leans to one group; the simulated portraits have hardly any skew by race beyond chance."""
    rng = np.random.default_rng(98)
    basis = np.linalg.qr(rng.normal(size=(24, n_groups + 3)))[0].T
    groups, topics = basis[:n_groups], basis[n_groups:]
    text = topics + 0.5 * groups[np.arange(3) % n_groups]
    s = {name: rng.integers(n_groups, size=n) for name, n in (("train", 1200), ("val", 400), ("test", 3000))}
    X = {name: groups[codes] + 0.5 * rng.normal(size=(len(codes), 24)) for name, codes in s.items()}
    given = {"sensitive_features": s["train"]} if true_values else {}
    model = tune(
        FairerCLIP(random_state=0),
        X["train"],
        validation=(X["val"], None, s["val"]),
        objective="max_skew",
        text=text,
        **given,
    )
    unit = [a / np.linalg.norm(a, axis=1, keepdims=True) for a in (X["test"], text)]
    check(unit[0] @ unit[1].T, model.scores(X["test"]), s["test"])


def check(before, after, groups):
    """Skew falls by half at least, where there is some, and inside the groups the order is kept."""
    assert mean_skew(before, groups) > 0.1
    assert mean_skew(after, groups) < 0.5 * mean_skew(before, groups)
    kept = [
        spearmanr(before[groups == g, j], after[groups == g, j]).statistic
        for g in np.unique(groups)
        for j in range(before.shape[1])
    ]
    assert np.mean(kept) >= RANK_CORRELATION


@pytest.mark.filterwarnings(
    "ignore:10 components were asked for, the text side:fairerclip.errors.RankWarning"
)
def test_before_any_shift_the_scores_rank_as_zero_shot_does():
    t = portraits()
    model = ranked(t)
    plain = model.fit(t.train.X, text=t.text_target, sensitive_features=t.train.s["sex"])
    for j, column in enumerate(cosines(t, t.test.X).T):
        assert spearmanr(column, plain.scores(t.test.X)[:, j]).statistic > 0.99


@pytest.mark.filterwarnings(
    "ignore:10 components were asked for, the text side:fairerclip.errors.RankWarning"
)
@pytest.mark.parametrize("decision", ["target", "prompts"])
def test_scores_are_the_old_ones_less_what_the_rows_say_of_the_groups(decision):
    """Ridge regression of the groups on the rows, all at once."""
    t = portraits()
    s = t.train.s["race"]
    model = ranked(
        t, "race", FairerCLIP(random_state=0, dtype="float64", decision=decision), sensitive_features=s
    )
    shifts = model.sensitive_shifts_
    assert shifts.shape == (10, 7)
    plain = FairerCLIP(**model.get_params()).fit(t.train.X, text=t.text_target, sensitive_features=s)
    Phi, fresh = (model.features_.transform(X.astype(np.float64)) for X in (t.train.X, t.test.X))
    mean = Phi.mean(axis=0)
    psi = np.eye(7)[s]
    C = (Phi - mean).T @ (Phi - mean) / len(s) + model.gamma * np.eye(Phi.shape[1])
    V = np.linalg.solve(C, (Phi - mean).T @ (psi - psi.mean(axis=0)) / len(s))
    X = t.test.X.astype(np.float64)
    assert_allclose(model.scores(X), plain.scores(X) - (fresh - mean) @ V @ shifts.T, atol=1e-6)
    assert model.decision == "target"  # the zero-shot scores are what a ranking follows


def test_rows_are_ranked_by_each_prompt():
    t = portraits()
    model = ranked(t)
    scores = model.scores(t.test.X)
    for j, prompt in enumerate(model.classes_):
        ranking = model.rank(prompt, t.test.X, 50)
        assert_array_equal(ranking.indices, np.argsort(-scores[:, j], kind="stable")[:50])
        assert_allclose(ranking.scores, scores[ranking.indices, j])


def test_names_of_prompts_are_classes():
    t = portraits()
    names = [f"adjective {j}" for j in range(len(t.text_target))]
    model = ranked(t, text=dict(zip(names, t.text_target, strict=True)))
    assert model.classes_.tolist() == names
    assert_allclose(model.scores(t.test.X), ranked(t).scores(t.test.X), atol=1e-8)
    assert len(model.rank("adjective 3", t.test.X, 5).indices) == 5


def test_a_tuned_ranking_survives_a_file(tmp_path):
    t = portraits()
    model = ranked(t)
    back = FairerCLIP.load(model.save(tmp_path / "model"))
    assert_array_equal(back.scores(t.test.X), model.scores(t.test.X))
    assert back.diagnostics_["tuning"] == json.loads(json.dumps(model.diagnostics_["tuning"]))
    assert_allclose(back.sensitive_shifts_, model.sensitive_shifts_)


def test_equal_seeds_give_equal_rankings_and_progress_is_called():
    t = portraits()
    seen = []
    first, again = (ranked(t, progress=lambda *done: seen.append(done)) for _ in range(2))
    assert_array_equal(first.scores(t.test.X), again.scores(t.test.X))
    assert seen == [(1, 1), (1, 1)]


def test_the_chosen_strength_is_the_largest_that_follows_the_prompts():
    found = ranked(portraits(), "race").diagnostics_["tuning"]
    rows = [found["chosen"], *found["neighbours"]]
    assert all(abs(row["strength"] - found["chosen"]["strength"]) < 0.15 for row in rows)
    stronger = [row for row in found["neighbours"] if row["strength"] > found["chosen"]["strength"]]
    assert all(row["rank_correlation"] < RANK_CORRELATION for row in stronger)
    assert found["before"]["strength"] == 0.0


@pytest.mark.parametrize("how", ["None", "missing_label"])
def test_rows_without_a_group_are_left_out(how):
    t = portraits()
    s = t.val.s["sex"]
    keep = np.arange(len(s)) % 4 > 0
    some = (
        [int(g) if k else None for g, k in zip(s, keep, strict=True)]
        if how == "None"
        else np.where(keep, s, -1)
    )
    options = {} if how == "None" else {"missing_label": -1}
    model = ranked(t, validation=(t.val.X, None, some), **options)
    assert model.diagnostics_["tuning"]["rows"] == int(keep.sum())
    expected = ranked(t, validation=(t.val.X[keep], None, s[keep]))
    assert_allclose(model.scores(t.test.X), expected.scores(t.test.X), atol=1e-8)


def test_the_order_of_the_values_in_training_does_not_matter():
    t = portraits()
    P = np.eye(2)[t.train.s["sex"]]
    plain = ranked(t, sensitive_features=SoftValues(P, [0, 1]))
    turned = ranked(t, sensitive_features=SoftValues(P[:, ::-1], [1, 0]))
    assert_allclose(turned.scores(t.test.X), plain.scores(t.test.X), atol=1e-6)
    assert_allclose(turned.sensitive_shifts_[:, ::-1], plain.sensitive_shifts_, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda t: {"text": None}, PromptError, "a ranking follows prompts: give text"),
        (lambda t: {"validation": (t.val.X, None)}, LabelError, "MaxSkew is measured on groups"),
        (lambda t: {"validation": (t.val.X, None, t.val.s)}, LabelError, "one sensitive attribute; got 2"),
        (
            lambda t: {"validation": (t.val.X, None, np.zeros(len(t.val.X), dtype=int))},
            LabelError,
            "fewer than two groups",
        ),
        (
            lambda t: {"validation": (t.val.X, None, t.val.s["sex"][1:])},
            ShapeError,
            "has 240 rows but s has 239",
        ),
        (lambda t: {"validation": (t.val.X[:, :5], None, t.val.s["sex"])}, ShapeError, "as wide as X"),
        (
            lambda t: {"validation": (t.val.X[:4], None, np.array([0, 1, 0, 1]))},
            LabelError,
            "no group of validation s has more than 2 rows",
        ),
        (lambda t: {"sensitive_features": t.train.s}, LabelError, "the training rows have 2 that vary"),
        (
            lambda t: {"sensitive_features": np.array(["f", "m"])[t.train.s["sex"]]},
            LabelError,
            r"training rows have sensitive values \['f', 'm'\], the validation rows \[0, 1\]",
        ),
        (lambda t: {"sensitive_features": t.train.s["race"]}, LabelError, "they must be the same"),
        (
            lambda t: {"sensitive_features": t.train.X[:, 0].astype(float)},
            LabelError,
            "1 that vary, 1 of them quantities",
        ),
        (lambda t: {"search": {"taus": [0.5]}}, ParameterError, "search_space cannot be used with max_skew"),
        (lambda t: {"accuracy_floor": 0.5}, ParameterError, "accuracy_floor cannot be used with max_skew"),
    ],
)
def test_what_a_ranking_cannot_be_tuned_on_is_named(change, error, message):
    t = portraits()
    with pytest.raises(error, match=message) as caught:
        ranked(t, **change(t))
    assert isinstance(caught.value, FairerClipError)


def test_shares_in_the_top_become_those_of_the_collection():
    rng = np.random.default_rng(95)
    s = rng.integers(2, size=4000)
    onehot = np.eye(2)[s]
    scores = rng.normal(size=4000) + 0.8 * s
    shift = _equal_top(scores, onehot, onehot)
    top = np.argsort(-(scores - onehot @ shift))[:800]
    assert s[np.argsort(-scores)[:800]].mean() > 0.7
    assert s[top].mean() == pytest.approx(s.mean(), abs=0.04)
    assert shift[1] - shift[0] == pytest.approx(0.8, abs=0.1)


def test_scores_without_skew_get_nearly_no_shift():
    rng = np.random.default_rng(96)
    s = np.arange(4000) % 2
    scores = np.repeat(rng.normal(size=2000), 2)  # each pair has one of both groups
    assert_allclose(_equal_top(scores, np.eye(2)[s], np.eye(2)[s]), 0, atol=1e-9)
