"""The estimator: what it computes, what it gives back, and that mitigation mitigates."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from scipy.stats import wilcoxon

from block_sizes import in_blocks
from fairerclip import FairerCLIP
from fairerclip.data import simulate
from fairerclip.errors import PromptOrderWarning, TextCollapseError
from fairerclip.metrics import dep
from paper import PAPER
from small_models import small

KERNELS = ("rbf", "orthogonal", "nystroem", "exact", "linear")


def fitted(e, **parameters):
    return small(**parameters).fit(e.X, e.y, sensitive_features=e.s, text=e.text)


def worst_group(y, s, predicted):
    return min(np.mean(predicted[(y == a) & (s == b)] == a) for a, b in set(zip(y, s, strict=True)))


# What the methods give ------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("n_classes", [2, 4])
def test_transform_is_centred_features_times_components(embeddings, kernel, n_classes):
    e = embeddings(n_classes=n_classes)
    for class_weight in (None, "balanced"):
        m = fitted(e, kernel=kernel, class_weight=class_weight)
        Z = m.transform(e.X)
        assert Z.shape == (len(e.X), n_classes - 1)
        centred = (m.features_.transform(e.X) - m.mean_) @ m.components_
        assert_allclose(Z, centred + m.intercept_, rtol=1e-9, atol=1e-9)
        # The features are centred on their weighted mean.
        weight = np.ones(len(e.X)) if class_weight is None else 1 / np.bincount(e.y)[e.y]
        assert_allclose(weight @ centred / weight.sum(), 0, atol=1e-8)


def test_the_temperature_is_the_most_likely_one(embeddings):
    e = embeddings(correlation=0.3, n=400)
    m = fitted(e, tau=0.9)
    codes = np.searchsorted(m.classes_, e.y)

    def loss(beta):
        m.fitted_ = replace(m.fitted_, temperature=beta)
        return -np.mean(np.log(m.predict_proba(e.X)[np.arange(len(codes)), codes]))

    best = m.temperature_
    assert loss(best) < min(loss(best * 0.95), loss(best * 1.05))


def test_components_are_orthonormal_in_the_regularised_covariance(embeddings):
    e = embeddings(n_classes=4)
    m = fitted(e, gamma=1e-3, class_weight=None)
    Z = m.transform(e.X) - m.intercept_
    U = m.components_
    assert_allclose(Z.T @ Z / len(Z) + 1e-3 * U.T @ U, np.eye(3), atol=1e-8)


# Kinds of input -------------------------------------------------------------------------------------


def test_transform_does_not_depend_on_how_rows_are_batched(embeddings, monkeypatch):
    e = embeddings()
    m = fitted(e)
    whole = m.transform(e.X)
    in_blocks(monkeypatch, 7, threads=2)
    assert_allclose(m.transform(e.X), whole, rtol=1e-10, atol=1e-12)
    assert_allclose(np.concatenate([m.transform(e.X[i : i + 1]) for i in range(20)]), whole[:20], atol=1e-10)


# Mitigation mitigates -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parameters", "labels"),
    [({}, True), (PAPER, True), ({"max_iter": 1}, False)],
    ids=["default", "paper", "no labels"],
)
def test_the_worst_group_rises_on_simulated_waterbirds(parameters, labels):
    pairs = []
    for seed in range(10):
        task = simulate("waterbirds", seed=seed, scale=0.1, width=32)
        s_text, test = task.sensitive_attribute().text, task.test
        y, given = task.train.y, {"sensitive_features": task.train.sensitive()}
        if not labels:
            y, given = None, {"sensitive_text": s_text}
        worst = []
        for tau in (0.0, 0.7):
            m = FairerCLIP(**{"n_features": 100, "random_state": 0, **parameters, "tau": tau})
            m.fit(task.train.X, y, text=task.text_target, **given)
            worst.append(worst_group(test.y, test.sensitive(), m.predict(test.X)))
        pairs.append(worst)
    before, after = np.transpose(pairs)
    gains = after - before
    assert wilcoxon(gains[gains != 0], alternative="greater").pvalue < 0.05
    assert after.mean() > before.mean() + (0.05 if labels else 0.0)


@pytest.mark.parametrize("scaling", ["spectral", "paper"])
@pytest.mark.parametrize("parameters", [{}, PAPER], ids=["default", "paper"])
def test_dependence_on_s_falls_as_tau_rises(embeddings, scaling, parameters):
    e = embeddings(n=600)
    values = []
    for tau in (0.0, 0.3, 0.6, 0.8, 0.9, 0.95):
        Z = fitted(e, **{**parameters, "tau": tau, "scaling": scaling}).transform(e.X)
        values.append(dep(Z / Z.std(), e.s))
    assert np.all(np.diff(values) < 0)
    if scaling == "spectral":
        assert values[-1] < 0.1 * values[0]


# What is given of y and text ------------------------------------------------------------------------


def test_several_prompts_per_class_as_a_list_of_arrays(embeddings):
    e = embeddings(n_classes=3)
    rng = np.random.default_rng(0)
    groups = [t + 0.1 * rng.normal(size=(m, t.size)) for t, m in zip(e.text, (1, 3, 4), strict=True)]
    m = small().fit(e.X, e.y, sensitive_features=e.s, text=groups)
    assert np.mean(m.predict(e.X) == e.y) > 0.85
    assert m.text_features_.n_features == 8  # the exact kernel of eight prompts
    one = small().fit(e.X, e.y, sensitive_features=e.s, text=[g[:1] for g in groups])
    flat = small().fit(e.X, e.y, sensitive_features=e.s, text=np.stack([g[0] for g in groups]))
    assert_array_equal(one.decision_function(e.X), flat.decision_function(e.X))
    assert not np.allclose(one.decision_function(e.X), m.decision_function(e.X))


def test_text_none_takes_class_means(embeddings):
    e = embeddings(n_classes=3)
    means = np.stack([e.X[e.y == k].mean(axis=0) for k in range(3)])
    for decision in ("target", "prompts"):
        # Means are no prompts: without text there is no zero-shot score to share in.
        a = small(decision=decision).fit(e.X, e.y, sensitive_features=e.s)
        b = small(decision=decision, zero_shot=0.0, normalize=False)
        b.fit(e.X, e.y, sensitive_features=e.s, text=means)
        assert_allclose(a.decision_function(e.X), b.decision_function(e.X), atol=1e-6)


def test_label_free_starts_from_the_zero_shot_prediction(embeddings):
    e = embeddings(n_classes=3, correlation=0.3)
    zero_shot = (e.X @ e.text.T).argmax(axis=1)
    for parameters in (PAPER, {"zero_shot": 0.75}):
        m, fixed = (small(**{**parameters, "max_iter": 1}) for _ in range(2))
        m.fit(e.X, text=e.text, sensitive_features=e.s)
        fixed.fit(e.X, zero_shot, text=e.text, sensitive_features=e.s)
        assert_array_equal(m.decision_function(e.X), fixed.decision_function(e.X))
        assert fixed.pseudo_labels_ is None
    assert_array_equal(m.classes_, [0, 1, 2])
    assert m.diagnostics_["pseudo_labels"]["rows"] == len(e.X)


@pytest.mark.parametrize("parameters", [PAPER, {"refine": True}], ids=["paper", "default"])
def test_label_free_refinement_ends_at_its_own_predictions(embeddings, parameters):
    e = embeddings(seed=3, correlation=0.3, n=300)
    m = small(max_iter=30, **parameters)
    m.fit(e.X, text=e.text, sensitive_text=e.sensitive_text, classes=["no", "yes"])
    assert m.diagnostics_["converged"]
    assert_array_equal(m.pseudo_labels_, m.predict(e.X))
    assert set(m.pseudo_labels_) == {"no", "yes"}
    assert_array_equal(m.pseudo_sensitive_, (e.X @ e.sensitive_text.T).argmax(axis=1))
    guesses = np.array(["no", "yes"])[(e.X @ e.text.T).argmax(axis=1)]
    assert np.any(m.pseudo_labels_ != guesses)


def test_without_refinement_the_guesses_stay(embeddings):
    e = embeddings(correlation=0.3)
    guesses = (e.X @ e.text.T).argmax(axis=1)
    m = small(subsample="balanced:0.5").fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    assert_array_equal(m.pseudo_labels_, guesses)
    assert np.any(m.predict(e.X) != guesses)
    assert m.diagnostics_["label_changes"] == [0] * m.n_iter_


@pytest.mark.parametrize("mark", [None, np.nan, "constructor", "keyword"])
def test_partial_labels_keep_what_is_known(embeddings, mark):
    e = embeddings(n=400, correlation=0.3)
    rng = np.random.default_rng(1)
    known = np.zeros(400, dtype=bool)
    known[rng.choice(400, 20, replace=False)] = True
    known[np.flatnonzero(e.y == 0)[0]] = known[np.flatnonzero(e.y == 1)[0]] = True
    wrong = (e.X @ e.text.T).argmax(axis=1) ^ 1  # known labels that contradict the prompts must stay
    named = isinstance(mark, str)
    y = [int(v) if k else -9 if named else mark for v, k in zip(wrong, known, strict=True)]
    constructor, keyword = (
        {"missing_label": -9} if mark == where else {} for where in ("constructor", "keyword")
    )
    m = small(max_iter=1, **constructor)
    with warnings.catch_warnings():
        # Named prompts: labels that contradict them are said, and kept.
        warnings.simplefilter("ignore", PromptOrderWarning)
        m.fit(e.X, y, text={0: e.text[0], 1: e.text[1]}, sensitive_features=e.s, **keyword)
    assert_array_equal(np.asarray(m.pseudo_labels_, dtype=int)[known], wrong[known])
    assert_array_equal(m.classes_, [0, 1])
    assert m.diagnostics_["pseudo_labels"]["rows"] == np.sum(~known)


@pytest.mark.parametrize("mark", [None, np.nan, -1])
def test_all_labels_missing_is_the_same_as_no_labels(embeddings, mark):
    e = embeddings(n_classes=3)
    y = [mark] * len(e.X)
    a = small(max_iter=1).fit(e.X, y, text=e.text, sensitive_features=e.s, missing_label=-1)
    b = small(max_iter=1).fit(e.X, text=e.text, sensitive_features=e.s)
    assert_array_equal(a.decision_function(e.X), b.decision_function(e.X))
    assert_array_equal(a.classes_, b.classes_)


# Weights --------------------------------------------------------------------------------------------


def unbalanced(embeddings, n=400):
    e = embeddings(n=n, correlation=0.6)
    keep = (e.y == 0) | (np.arange(n) % 4 == 0)
    e.X, e.y, e.s = e.X[keep], e.y[keep], e.s[keep]
    return e


@pytest.mark.parametrize("class_weight", ["balanced", "group"])
def test_weights_of_classes_and_groups_equal_explicit_weights(embeddings, class_weight):
    e = unbalanced(embeddings)
    common = {"bandwidth": 2.0}  # the median distance depends on sample weights, but not on those of classes
    cell = e.y if class_weight == "balanced" else 2 * e.y + e.s
    a, plain = (fitted(e, class_weight=weight, **common) for weight in (class_weight, None))
    b = small(class_weight=None, **common)
    weight = 1e6 / np.bincount(cell)[cell]  # their scale does not matter
    b.fit(e.X, e.y, sensitive_features=e.s, text=e.text, sample_weight=weight)
    assert_allclose(a.decision_function(e.X), b.decision_function(e.X), atol=1e-8)
    assert not np.allclose(a.decision_function(e.X), plain.decision_function(e.X), atol=1e-3)


def test_subsamples_have_the_rows_of_each_class_that_were_asked_for(embeddings):
    e = unbalanced(embeddings)
    zeros, ones = np.bincount(e.y)
    for subsample, rows in (
        ("balanced", 2 * ones),
        ("balanced:0.5", 2 * round(0.5 * ones)),
        ({0: 0.25, 1: 1}, round(0.25 * zeros) + ones),
        ((0.5, 1), round(0.5 * zeros) + ones),
    ):
        m, other = (fitted(e, subsample=subsample, random_state=seed) for seed in (0, 1))
        assert m.diagnostics_["rows"] == rows
        assert not np.allclose(m.mean_, other.mean_)


@pytest.mark.parametrize("decision", ["target", "prompts"])
def test_class_weights_are_sample_weights_and_move_the_boundary_as_if_a_class_were_likelier(
    embeddings, decision
):
    e = unbalanced(embeddings)
    weighted = fitted(e, class_weight={0: 0.25, 1: 3}, decision=decision)
    by_hand = small(class_weight=None, decision=decision)
    by_hand.fit(e.X, e.y, sensitive_features=e.s, text=e.text, sample_weight=np.where(e.y == 0, 0.25, 3))
    assert_array_equal(weighted.components_, by_hand.components_)
    scores = by_hand.scores(e.X)
    beta = minimize_scalar(
        lambda log_beta: -np.mean(log_softmax(np.exp(log_beta) * scores, axis=1)[np.arange(len(e.y)), e.y]),
        bounds=(-10, 10),
        method="bounded",
        options={"xatol": 1e-9},
    )
    likelier = np.exp(beta.x) * scores + np.log([0.25, 3])
    moved = np.exp(beta.x) * weighted.scores(e.X)
    assert_allclose(moved[:, 1] - moved[:, 0], likelier[:, 1] - likelier[:, 0], atol=1e-4)
    assert np.mean(weighted.predict(e.X)) > np.mean(by_hand.predict(e.X))


def test_decision_zero_moves_the_threshold_of_unbalanced_classes(embeddings):
    e = unbalanced(embeddings)
    balanced, mean = (fitted(e, **PAPER, decision_zero=z) for z in ("balanced", "mean"))
    # Angles are measured from the origin of the learned space, which is the midpoint of the class means or the mean.
    midpoint = [np.mean([m.transform(e.X)[e.y == k].mean() for k in (0, 1)]) for m in (balanced, mean)]
    assert midpoint[0] == pytest.approx(0, abs=1e-8)
    assert mean.transform(e.X).mean() == pytest.approx(0, abs=1e-8)
    assert abs(midpoint[1]) > 0.1
    assert np.mean(mean.predict(e.X) == 1) > np.mean(balanced.predict(e.X) == 1)


@pytest.mark.parametrize("kernel", ["rbf", "exact"])
@pytest.mark.parametrize("kind", ["categorical", "continuous"])
def test_an_integer_weight_is_repetition_and_zero_is_removal(embeddings, kernel, kind):
    e = embeddings(n_classes=3, n=120)
    rng = np.random.default_rng(0)
    s = e.s if kind == "categorical" else np.round(rng.normal(size=120) + e.s, 0) + 0.5
    weight = rng.integers(0, 4, size=120)
    weighted = small(kernel=kernel)
    weighted.fit(e.X, e.y, sensitive_features=s, text=e.text, sample_weight=weight)
    rows = np.repeat(np.arange(120), weight)
    repeated = small(kernel=kernel).fit(e.X[rows], e.y[rows], sensitive_features=s[rows], text=e.text)
    assert_allclose(weighted.decision_function(e.X), repeated.decision_function(e.X), atol=1e-6)
    assert_allclose(weighted.predict_proba(e.X), repeated.predict_proba(e.X), atol=1e-6)


@pytest.mark.parametrize(
    "parameters", [{"class_weight": "balanced"}, {"subsample": {0: 0.5}, "class_weight": "group"}], ids=str
)
def test_a_row_of_weight_zero_takes_no_part_in_weights_and_draws(embeddings, parameters):
    e = embeddings(n=200)
    weight = (np.arange(200) % 3 > 0).astype(float)
    a, b = small(**parameters), small(**parameters)
    a.fit(e.X, e.y, sensitive_features=e.s, text=e.text, sample_weight=weight)
    kept = weight > 0
    b.fit(e.X[kept], e.y[kept], sensitive_features=e.s[kept], text=e.text)
    assert_allclose(a.decision_function(e.X), b.decision_function(e.X), atol=1e-8)
    assert a.diagnostics_["rows"] == b.diagnostics_["rows"]


# Fitted again ---------------------------------------------------------------------------------------


def test_a_refit_that_fails_leaves_the_model_as_it_was(embeddings):
    e = embeddings()
    m = FairerCLIP(n_features=60, random_state=0).fit(e.X, e.y, sensitive_features=e.s, text=e.text)
    before = m.decision_function(e.X)
    m.set_params(tau_text=0.95, tau_z_text=0.0)
    with pytest.raises(TextCollapseError):
        m.fit(e.X, e.y + 5, sensitive_features=e.s, text=e.text, classes=[5, 6], missing_label=7)
    assert_array_equal(m.decision_function(e.X), before)
    assert m.classes_.tolist() == [0, 1]
    assert m.missing_label_ is None
