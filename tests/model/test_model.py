"""The estimator: what it computes, what it gives back, and that mitigation mitigates."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from scipy.stats import wilcoxon
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from block_sizes import in_blocks
from fairerclip import FairerCLIP
from fairerclip.data import simulate
from fairerclip.errors import (
    FreeQueryError,
    ParameterError,
    PromptOrderWarning,
    ShapeError,
    TextCollapseError,
    TextCollapseWarning,
)
from fairerclip.metrics import dep
from paper import PAPER
from small_models import FIXED

KERNELS = ("rbf", "orthogonal", "nystroem", "exact", "linear")


def small(**parameters):
    return FairerCLIP(**{**FIXED, "n_features": 60, "dtype": "float64", "random_state": 0, **parameters})


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


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_predict_is_the_largest_cosine_and_the_sign_of_the_margin(embeddings, n_classes):
    e = embeddings(n_classes=n_classes, n=300)
    m = fitted(e, **PAPER)
    predicted, cosines, margin = m.predict(e.X), m.cosines(e.X), m.decision_function(e.X)
    assert cosines.shape == (300, n_classes)
    assert np.all(np.abs(cosines) <= 1 + 1e-12)
    assert_array_equal(predicted, m.classes_[cosines.argmax(axis=1)])
    if n_classes == 2:
        assert margin.shape == (300,)
        assert_array_equal(predicted, m.classes_[(margin > 0).astype(int)])
        assert_allclose(np.abs(cosines), 1)  # one dimension: a cosine is a sign
    else:
        assert margin.shape == (300, n_classes)
        assert_array_equal(predicted, m.classes_[margin.argmax(axis=1)])
    assert np.mean(predicted == e.y) > 0.8


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("parameters", [{}, PAPER], ids=["default", "paper"])
def test_predict_is_the_largest_score(embeddings, n_classes, parameters):
    e = embeddings(n_classes=n_classes, n=300)
    m = fitted(e, **parameters)
    scores, margin = m.scores(e.X), m.decision_function(e.X)
    assert_allclose(scores, m.transform(e.X) @ m.score_weights_.T + m.score_constants_, atol=1e-12)
    assert_array_equal(m.predict(e.X), m.classes_[scores.argmax(axis=1)])
    assert_allclose(margin, scores[:, 1] - scores[:, 0] if n_classes == 2 else scores)
    assert np.mean(m.predict(e.X) == e.y) > 0.8


@pytest.mark.parametrize("n_classes", [2, 4])
def test_probabilities_sum_to_one_and_keep_the_order_of_classes(embeddings, n_classes):
    e = embeddings(n_classes=n_classes)
    m = fitted(e)
    p, scores = m.predict_proba(e.X), m.decision_function(e.X)
    assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    assert np.all((p >= 0) & (p <= 1))
    assert_array_equal(m.classes_[p.argmax(axis=1)], m.predict(e.X))
    if n_classes > 2:
        assert_array_equal(np.argsort(p, axis=1), np.argsort(scores, axis=1))
    else:
        assert np.all(np.diff(p[np.argsort(scores), 1]) >= 0)


def test_the_temperature_is_the_most_likely_one(embeddings):
    e = embeddings(correlation=0.3, n=400)
    m = fitted(e, tau=0.9)
    codes = np.searchsorted(m.classes_, e.y)

    def loss(beta):
        m.fitted_ = replace(m.fitted_, temperature=beta)
        return -np.mean(np.log(m.predict_proba(e.X)[np.arange(len(codes)), codes]))

    best = m.temperature_
    assert loss(best) < min(loss(best * 0.95), loss(best * 1.05))


def test_the_objective_is_the_sum_of_the_eigenvalues(embeddings):
    m = fitted(embeddings(n_classes=4))
    assert m.eigenvalues_.shape == (3,)
    assert np.all(m.eigenvalues_ > 0)
    assert np.all(np.diff(m.eigenvalues_) <= 0)
    assert m.objective_ == pytest.approx(m.eigenvalues_.sum())
    assert m.diagnostics_["residual"] < 1e-8
    assert m.diagnostics_["converged"]
    assert m.n_iter_ == len(m.diagnostics_["objective"])


def test_components_are_orthonormal_in_the_regularised_covariance(embeddings):
    e = embeddings(n_classes=4)
    m = fitted(e, gamma=1e-3, class_weight=None)
    Z = m.transform(e.X) - m.intercept_
    U = m.components_
    assert_allclose(Z.T @ Z / len(Z) + 1e-3 * U.T @ U, np.eye(3), atol=1e-8)


def test_an_unfitted_model_says_so(embeddings):
    e = embeddings()
    for call in (
        "predict",
        "transform",
        "decision_function",
        "predict_proba",
        "cosines",
        "scores",
        "transform_text",
        "drift",
    ):
        with pytest.raises(NotFittedError):
            getattr(FairerCLIP(), call)(e.X)
    for call in (FairerCLIP().path, lambda: FairerCLIP().rank(0, e.X), lambda: FairerCLIP().save("nowhere")):
        with pytest.raises(NotFittedError):
            call()


# Kinds of input -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
def test_float16_float32_and_float64_inputs_agree(embeddings, kernel):
    e = embeddings(n=400)
    half = e.X.astype(np.float16)
    scores = {}
    for dtype in (np.float16, np.float32, np.float64):
        m = FairerCLIP(n_features=60, kernel=kernel, random_state=0)
        m.fit(half.astype(dtype), e.y, sensitive_features=e.s, text=e.text)
        scores[dtype] = m.decision_function(half.astype(dtype))
        expected = np.float64 if dtype == np.float64 else np.float32
        assert m.transform(half.astype(dtype)).dtype == expected
    for dtype in (np.float16, np.float32):
        assert_allclose(scores[dtype], scores[np.float64], atol=1e-3)
        assert np.mean((scores[dtype] > 0) == (scores[np.float64] > 0)) > 0.995


def test_float32_and_float64_working_precision_agree(embeddings):
    e = embeddings(n=400)
    a, b = (fitted(e, dtype=d).decision_function(e.X) for d in ("float32", "float64"))
    assert_allclose(a, b, atol=1e-3)
    assert not np.array_equal(a, b)  # the parameter does something


def memory_map(tmp_path, X):
    np.save(tmp_path / "x.npy", X)
    return np.load(tmp_path / "x.npy", mmap_mode="r")


def read_only(tmp_path, X):
    X = X.copy()
    X.flags.writeable = False
    return X


def fortran(tmp_path, X):
    return np.asfortranarray(X)


def strided(tmp_path, X):
    return np.repeat(np.repeat(X, 2, axis=0), 2, axis=1)[::2, ::2]


@pytest.mark.parametrize("make", [memory_map, read_only, fortran, strided])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_how_an_array_lies_in_memory_changes_nothing(embeddings, tmp_path, make, dtype):
    e = embeddings()
    plain = e.X.astype(dtype)
    other = make(tmp_path, plain)
    before = plain.copy()
    # subsample="balanced" so that rows are picked from the array, too. Zero-shot scores are float32
    # whatever the rows are, and their last bits depend on the order of the sums.
    for subsample, zero_shot in ((None, 0.0), ("balanced", 0.0), (None, 0.5)):
        parameters = {"class_weight": None, "subsample": subsample, "zero_shot": zero_shot}
        a, b = small(**parameters), small(**parameters)
        a.fit(plain, e.y, sensitive_features=e.s, text=e.text)
        b.fit(other, e.y, sensitive_features=e.s, text=e.text)
        exact = {"rtol": 1e-4 if dtype == np.float32 else 1e-9}
        tolerance = {"atol": 1e-5} if zero_shot else exact
        assert_allclose(b.transform(other), a.transform(plain), **tolerance)
        assert_array_equal(a.predict(plain), b.predict(other))
    assert_array_equal(plain, before)


def test_integers_and_lists_are_embeddings_too(embeddings):
    e = embeddings()
    X = np.round(e.X * 50).astype(int)
    a = small().fit(X, e.y, sensitive_features=e.s)
    b = small().fit(X.tolist(), e.y.tolist(), sensitive_features=e.s.tolist())
    c = small().fit(X.astype(float), e.y, sensitive_features=e.s)
    assert_array_equal(a.decision_function(X), b.decision_function(X.tolist()))
    assert_array_equal(a.decision_function(X), c.decision_function(X.astype(float)))


def test_transform_does_not_depend_on_how_rows_are_batched(embeddings, monkeypatch):
    e = embeddings()
    m = fitted(e)
    whole = m.transform(e.X)
    in_blocks(monkeypatch, 7, threads=2)
    assert_allclose(m.transform(e.X), whole, rtol=1e-10, atol=1e-12)
    assert_allclose(np.concatenate([m.transform(e.X[i : i + 1]) for i in range(20)]), whole[:20], atol=1e-10)


# Determinism ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("subsample", [None, "balanced"])
@pytest.mark.parametrize("alignment", ["linear", "rbf"])
def test_one_seed_gives_one_model_bit_for_bit(embeddings, subsample, alignment):
    e = embeddings(n_classes=3, n_sensitive=3)
    runs = []
    for seed in (3, 3, 4):
        m = FairerCLIP(n_features=60, random_state=seed, subsample=subsample, alignment=alignment)
        m.fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
        runs.append(np.concatenate([m.components_.ravel(), m.text_components_.ravel(), m.zero_]))
    assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


def test_a_generator_as_random_state_moves_on(embeddings):
    e = embeddings()
    state = np.random.RandomState(5)
    a, b = (fitted(e, random_state=state).components_ for _ in range(2))
    assert not np.array_equal(a, b)
    assert_array_equal(a, fitted(e, random_state=np.random.RandomState(5)).components_)


@pytest.mark.parametrize("kernel", ["rbf", "orthogonal", "exact", "linear"])
def test_the_order_of_rows_does_not_matter(embeddings, kernel):
    e = embeddings(n_classes=3)
    order = np.random.default_rng(0).permutation(len(e.X))
    a = fitted(e, kernel=kernel)
    b = small(kernel=kernel).fit(e.X[order], e.y[order], sensitive_features=e.s[order], text=e.text)
    assert_allclose(b.decision_function(e.X), a.decision_function(e.X), atol=1e-6)


# Mitigation mitigates -------------------------------------------------------------------------------


def scores_before_and_after(X, y, s, text, X_test, y_test, s_test, **parameters):
    out = []
    for tau in (0.0, 0.7):
        m = FairerCLIP(**{"n_features": 100, "random_state": 0, **parameters, "tau": tau})
        m.fit(X, y, sensitive_features=s, text=text)
        out.append(worst_group(y_test, s_test, m.predict(X_test)))
    return out


def p_value_of_a_rise(gains):
    moved = gains[gains != 0]  # SciPy before 1.13 warns of zeros, which it then leaves out itself
    return wilcoxon(moved, alternative="greater").pvalue


def test_the_worst_group_rises_from_tau_0_to_tau_07(embeddings):
    pairs = []
    for seed in range(20):
        e = embeddings(seed=seed, n=900, correlation=0.9)
        a, b = slice(0, 450), slice(450, None)
        # Labels alone: prompts next to the true class directions leave little to mitigate here.
        test = e.X[b], e.y[b], e.s[b]
        pairs.append(scores_before_and_after(e.X[a], e.y[a], e.s[a], e.text, *test, **PAPER))
    before, after = np.transpose(pairs)
    assert p_value_of_a_rise(after - before) < 0.05
    assert after.mean() > before.mean() + 0.03


@pytest.mark.parametrize("parameters", [{}, PAPER], ids=["default", "paper"])
def test_the_worst_group_rises_on_simulated_waterbirds(parameters):
    pairs = []
    for seed in range(10):
        task = simulate("waterbirds", seed=seed, scale=0.1, width=32)
        train, test = task.train, task.test
        pairs.append(
            scores_before_and_after(
                train.X,
                train.y,
                train.sensitive(),
                task.text_target,
                test.X,
                test.y,
                test.sensitive(),
                **parameters,
            )
        )
    before, after = np.transpose(pairs)
    assert p_value_of_a_rise(after - before) < 0.05
    assert after.mean() > before.mean() + 0.05


def test_the_worst_group_rises_without_any_label():
    gains = []
    for seed in range(10):
        task = simulate("waterbirds", seed=seed, scale=0.1, width=32)
        attribute = task.sensitive_attribute()
        worst = []
        for tau in (0.0, 0.7):
            m = FairerCLIP(tau=tau, n_features=100, random_state=0, max_iter=1)
            m.fit(task.train.X, text=task.text_target, sensitive_text=attribute.text)
            worst.append(worst_group(task.test.y, task.test.sensitive(), m.predict(task.test.X)))
        gains.append(worst[1] - worst[0])
    assert p_value_of_a_rise(np.array(gains)) < 0.05


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("scaling", ["spectral", "paper"])
@pytest.mark.parametrize("parameters", [{}, PAPER], ids=["default", "paper"])
def test_dependence_on_s_falls_as_tau_rises(embeddings, seed, scaling, parameters):
    e = embeddings(seed=seed, n=600)
    values = []
    for tau in (0.0, 0.3, 0.6, 0.8, 0.9, 0.95):
        Z = fitted(e, **{**parameters, "tau": tau, "scaling": scaling}).transform(e.X)
        values.append(dep(Z / Z.std(), e.s))
    assert np.all(np.diff(values) < 0)
    if scaling == "spectral":
        assert values[-1] < 0.1 * values[0]


def test_a_conditional_criterion_lowers_dependence_inside_each_class(embeddings):
    e = embeddings(n=900, correlation=0.6)
    inside = {}
    for tau in (0.0, 0.9):
        Z = fitted(e, tau=tau, criterion="conditional").transform(e.X)
        Z = Z / Z.std()
        inside[tau] = [dep(Z[e.y == k], e.s[e.y == k]) for k in (0, 1)]
    assert np.all(np.array(inside[0.9]) < 0.2 * np.array(inside[0.0]))


def test_a_probe_learns_s_before_and_not_after(embeddings):
    e = embeddings(n=900, correlation=0.8)
    probe = LogisticRegression()
    chance = max(np.mean(e.s), 1 - np.mean(e.s))
    raw = cross_val_score(probe, e.X, e.s).mean()
    at = {t: cross_val_score(probe, fitted(e, tau=t).transform(e.X), e.s).mean() for t in (0.0, 0.99)}
    noise = 0.5 / np.sqrt(len(e.s))
    assert raw > chance + 5 * noise
    assert at[0.0] > chance + 5 * noise
    assert at[0.99] < chance + 3 * noise


# What is given of y and text ------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [3, 5])
def test_many_classes_and_many_sensitive_values(embeddings, n_classes):
    e = embeddings(n_classes=n_classes, n_sensitive=3, n=500, p=16)
    m = fitted(e, tau=0.5)
    assert m.components_.shape == (60, n_classes - 1)
    assert np.mean(m.predict(e.X) == e.y) > 0.85


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


@pytest.mark.parametrize("subsample", [None, "balanced:0.5"])
def test_without_refinement_the_guesses_stay(embeddings, subsample):
    e = embeddings(correlation=0.3)
    guesses = (e.X @ e.text.T).argmax(axis=1)
    m = small(subsample=subsample).fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    assert_array_equal(m.pseudo_labels_, guesses)
    assert np.any(m.predict(e.X) != guesses)
    assert m.diagnostics_["label_changes"] == [0] * m.n_iter_
    if subsample is None:
        fixed = small(zero_shot=1.0)
        fixed.fit(e.X, guesses, text=e.text, sensitive_features=m.pseudo_sensitive_)
        assert_array_equal(m.decision_function(e.X), fixed.decision_function(e.X))


@pytest.mark.parametrize("share", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("mark", ["none", "nan", "constructor", "keyword"])
def test_partial_labels_keep_what_is_known(embeddings, share, mark):
    e = embeddings(n=400, correlation=0.3)
    rng = np.random.default_rng(1)
    known = np.zeros(400, dtype=bool)
    known[rng.choice(400, max(2, int(share * 400)), replace=False)] = True
    known[np.flatnonzero(e.y == 0)[0]] = known[np.flatnonzero(e.y == 1)[0]] = True
    wrong = (e.X @ e.text.T).argmax(axis=1) ^ 1  # known labels that contradict the prompts must stay
    constructor, keyword = {}, {}
    if mark == "none":
        y = [int(v) if k else None for v, k in zip(wrong, known, strict=True)]
    elif mark == "nan":
        y = np.where(known, wrong, np.nan)
    else:
        y = np.where(known, wrong, -9)
        (constructor if mark == "constructor" else keyword)["missing_label"] = -9
    m = small(max_iter=1, **constructor)
    with warnings.catch_warnings():
        # Named prompts: labels that contradict them are said, and kept.
        warnings.simplefilter("ignore", PromptOrderWarning)
        m.fit(e.X, y, text={0: e.text[0], 1: e.text[1]}, sensitive_features=e.s, **keyword)
    assert_array_equal(np.asarray(m.pseudo_labels_, dtype=int)[known], wrong[known])
    assert_array_equal(m.classes_, [0, 1])
    assert m.diagnostics_["pseudo_labels"]["rows"] == np.sum(~known)


@pytest.mark.parametrize("share", [0.01, 0.05, 0.2])
def test_true_partial_labels_without_prompts_are_enough(embeddings, share):
    e = embeddings(seed=1, n=1000, correlation=0.3)
    y = np.full(1000, None, dtype=object)
    known = np.random.default_rng(0).choice(1000, int(share * 1000), replace=False)
    y[known] = e.y[known]
    m = small(max_iter=1).fit(e.X, y, sensitive_features=e.s)
    assert np.mean(m.predict(e.X) == e.y) > 0.9


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


def test_balanced_class_weight_equals_explicit_weights(embeddings):
    e = unbalanced(embeddings)
    common = {"bandwidth": 2.0}  # the median distance depends on sample weights, but not on those of classes
    a = fitted(e, class_weight="balanced", **common)
    weight = 1 / np.bincount(e.y)[e.y]
    b = small(class_weight=None, **common)
    b.fit(e.X, e.y, sensitive_features=e.s, text=e.text, sample_weight=weight)
    assert_allclose(a.decision_function(e.X), b.decision_function(e.X), atol=1e-8)
    plain = fitted(e, class_weight=None, **common)
    assert not np.allclose(a.decision_function(e.X), plain.decision_function(e.X), atol=1e-3)
    assert_array_equal(a.decision_function(e.X), fitted(e, **common).decision_function(e.X))  # the default


def test_group_weights_equal_explicit_weights_of_the_cells(embeddings):
    e = unbalanced(embeddings)
    cell = 2 * e.y + e.s
    weight = 1 / np.bincount(cell)[cell]
    a = fitted(e, class_weight="group", criterion="conditional", bandwidth=2.0)
    b = small(criterion="conditional", class_weight=None, bandwidth=2.0)
    b.fit(e.X, e.y, sensitive_features=e.s, text=e.text, sample_weight=weight)
    assert_allclose(a.decision_function(e.X), b.decision_function(e.X), atol=1e-8)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_features_do_not_depend_on_weights_of_classes_or_groups(embeddings, kernel):
    e = unbalanced(embeddings)
    models = [fitted(e, kernel=kernel, class_weight=weight) for weight in (None, "balanced", "group")]
    first, *others = (m.features_.to_arrays() for m in models)
    for other in others:
        assert other.keys() == first.keys()
        for name, array in first.items():
            assert_array_equal(other[name], array)


def test_subsample_takes_as_many_rows_of_each_class(embeddings):
    e = unbalanced(embeddings)
    smaller = np.bincount(e.y).min()
    m = fitted(e, subsample="balanced")
    assert m.diagnostics_["rows"] == 2 * smaller
    assert fitted(e, subsample="balanced:0.5").diagnostics_["rows"] == 2 * round(0.5 * smaller)
    other = fitted(e, subsample="balanced", random_state=1)
    assert not np.allclose(m.mean_, other.mean_)


def test_a_mapping_of_shares_keeps_rows_of_each_class(embeddings):
    e = unbalanced(embeddings)
    zeros, ones = np.bincount(e.y)
    assert fitted(e, subsample={0: 0.25, 1: 1}).diagnostics_["rows"] == round(0.25 * zeros) + ones
    assert fitted(e, subsample={0: 0.5}).diagnostics_["rows"] == round(0.5 * zeros) + ones
    everything = fitted(e, subsample={0: 1.0, 1: 1.0})
    assert_array_equal(everything.components_, fitted(e).components_)


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


def test_equal_class_weights_change_nothing(embeddings):
    e = unbalanced(embeddings)
    equal, none = fitted(e, class_weight={0: 2.0, 1: 2.0}), fitted(e, class_weight=None)
    assert_allclose(equal.scores(e.X), none.scores(e.X), atol=1e-10)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({7: 2}, "not classes: \\[7\\]"),
        ({0: -1}, r"class_weight\[0\] must be a number in \[0, 1e\+30\]; got -1"),
        ({0: "much"}, "got 'much'"),
        ({0: np.inf}, "got inf"),
        ({0: 0, 1: 0}, "leaves no row a weight"),
        ("even", "'balanced', 'group'"),
        (1.0, "'balanced', 'group'"),
    ],
)
def test_a_class_weight_that_cannot_be_is_named(embeddings, value, message):
    with pytest.raises(ParameterError, match=message):
        fitted(embeddings(), class_weight=value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({7: 0.5}, "not classes: \\[7\\]"),
        ({0: 0}, "in \\(0, 1\\]; got 0"),
        ({0: 2}, "got 2"),
        ("balanced:x", "got 'x'"),
        ("balanced:", "got ''"),
        ("even", "'balanced', 'balanced:SHARE'"),
        (0.5, "'balanced', 'balanced:SHARE'"),
    ],
)
def test_a_subsample_that_cannot_be_is_named(embeddings, value, message):
    with pytest.raises(ParameterError, match=message):
        fitted(embeddings(), subsample=value)


@pytest.mark.parametrize("kernel", ["rbf", "orthogonal", "exact", "linear"])
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
    "parameters",
    [
        {"class_weight": "balanced"},
        {"class_weight": "group"},
        {"class_weight": {0: 0.5, 1: 2.0}},
        {"subsample": "balanced"},
        {"subsample": {0: 0.5}, "class_weight": "group"},
    ],
    ids=str,
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


def test_the_scale_of_weights_does_not_matter(embeddings):
    e = embeddings()
    weight = np.random.default_rng(0).uniform(size=len(e.X))
    a, b = (
        small().fit(e.X, e.y, sensitive_features=e.s, sample_weight=f * weight).decision_function(e.X)
        for f in (1, 1e6)
    )
    assert_allclose(a, b, atol=1e-8)


# Parameters that change the computation -------------------------------------------------------------


@pytest.mark.parametrize("n_components", [1, 2, 3])
def test_n_components_is_the_width_of_the_space(embeddings, n_components):
    e = embeddings(n_classes=4)
    if n_components == 1:  # four classes on one line share two directions
        with pytest.warns(TextCollapseWarning, match="Raise n_components"):
            m = fitted(e, n_components=1, max_iter=50)
    else:
        m = fitted(e, n_components=n_components, max_iter=50)
    # Fewer than three dimensions cannot hold the boundaries between four classes: one more column holds them.
    width = 3 if n_components == 3 else n_components + 1
    assert m.transform(e.X).shape == (len(e.X), width)
    assert m.transform_text(e.text).shape == (4, width)
    assert m.eigenvalues_.shape == (n_components,)
    if n_components == 3:
        assert_array_equal(m.components_, fitted(e).components_)


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_learns(embeddings, kernel):
    e = embeddings(n=400)
    m = fitted(e, kernel=kernel, tau=0.5)
    assert m.features_.kernel == kernel
    assert np.mean(m.predict(e.X) == e.y) > 0.9


def test_fourier_features_approach_the_exact_kernel(embeddings):
    e = embeddings(n=200)
    exact = fitted(e, kernel="exact", gamma=1e-2).transform(e.X)[:, 0]
    far, near = (
        np.corrcoef(exact, fitted(e, n_features=d, gamma=1e-2).transform(e.X)[:, 0])[0, 1] for d in (20, 2000)
    )
    assert near > 0.99
    assert near > far


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_conjugate_gradients_equal_cholesky(embeddings, kernel):
    e = embeddings(n_classes=3, n=600)
    a, b = (fitted(e, kernel=kernel, solver=s, gamma=1e-3) for s in ("cholesky", "cg"))
    assert b.diagnostics_["solver"] == "cg"
    assert_allclose(a.decision_function(e.X), b.decision_function(e.X), atol=1e-4)
    assert_array_equal(a.predict(e.X), b.predict(e.X))


def test_decision_zero_moves_the_threshold_of_unbalanced_classes(embeddings):
    e = unbalanced(embeddings)
    balanced, mean = (fitted(e, **PAPER, decision_zero=z) for z in ("balanced", "mean"))
    # Angles are measured from the origin of the learned space, which is the midpoint of the class means or the mean.
    midpoint = [np.mean([m.transform(e.X)[e.y == k].mean() for k in (0, 1)]) for m in (balanced, mean)]
    assert midpoint[0] == pytest.approx(0, abs=1e-8)
    assert mean.transform(e.X).mean() == pytest.approx(0, abs=1e-8)
    assert abs(midpoint[1]) > 0.1
    assert np.mean(mean.predict(e.X) == 1) > np.mean(balanced.predict(e.X) == 1)


# Text and retrieval ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_fitted_prompts_lie_where_the_class_directions_say(embeddings, n_classes):
    e = embeddings(n_classes=n_classes)
    m = fitted(e, **PAPER)
    Z = m.transform_text(e.text)
    assert Z.shape == (n_classes, n_classes - 1)
    assert_allclose(Z.mean(axis=0), 0, atol=1e-8)  # the balanced zero
    assert_allclose(Z / np.linalg.norm(Z, axis=1, keepdims=True), m.directions_, atol=1e-8)


def test_images_and_prompts_share_one_space(embeddings):
    e = embeddings(n_classes=4, p=16)
    m = fitted(e, tau=0.3)
    image = m.transform(e.X)
    means = np.stack([image[e.y == k].mean(axis=0) for k in range(4)])
    text = m.transform_text(e.text)
    means, text = means - means.mean(axis=0), text - text.mean(axis=0)
    assert_array_equal((means @ text.T).argmax(axis=1), np.arange(4))


def test_transform_text_names_what_is_wrong(embeddings):
    e = embeddings()
    m = fitted(e)
    with pytest.raises(ShapeError, match=r"\(m, 12\), with one row at least; got \(12,\)"):
        m.transform_text(e.text[0])
    with pytest.raises(ShapeError, match=r"\(2, 11\)"):
        m.transform_text(e.text[:, 1:])


def test_rank_is_by_score_best_first(embeddings):
    e = embeddings(n_classes=3)
    text = dict(zip("abc", e.text, strict=True))
    m = small().fit(e.X, np.array(["a", "b", "c"])[e.y], sensitive_features=e.s, text=text)
    scores = m.decision_function(e.X)
    everything = m.rank("b", e.X)
    assert_array_equal(np.sort(everything.indices), np.arange(len(e.X)))
    assert np.all(np.diff(everything.scores) <= 0)
    assert_array_equal(everything.scores, scores[everything.indices, 1])
    top = m.rank("b", e.X, 10)
    assert_array_equal(top.indices, everything.indices[:10])
    assert np.mean(e.y[top.indices] == 1) > 0.9


def test_rank_takes_labels_of_any_kind(embeddings):
    e = embeddings()
    labels = [("bird", int(v)) for v in e.y]
    text = {("bird", k): e.text[k] for k in (0, 1)}
    m = small().fit(e.X, labels, sensitive_features=e.s, text=text)
    assert np.mean(e.y[m.rank(("bird", 1), e.X, 20).indices] == 1) == 1


@pytest.mark.parametrize("query", ["zebra", 7, ("a", 1), None])
def test_a_free_query_is_an_error_that_says_why(embeddings, query):
    e = embeddings()
    with pytest.raises(FreeQueryError, match="fitted on: \\[0, 1\\].*holds the target alone"):
        fitted(e).rank(query, e.X)


def test_a_query_embedding_is_a_free_query_too(embeddings):
    e = embeddings()
    with pytest.raises(FreeQueryError, match="an array of shape \\(12,\\)"):
        fitted(e).rank(e.text[0], e.X)


@pytest.mark.parametrize("k", [0, 241, -1, 2.5])
def test_rank_refuses_a_k_that_cannot_be(embeddings, k):
    e = embeddings()
    with pytest.raises(ShapeError, match=r"k must be an integer in \[1, 240\]"):
        fitted(e).rank(0, e.X, k)


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


def test_a_fitted_attribute_is_missing_before_a_fit_under_its_own_name_and_cannot_be_set():
    model = FairerCLIP()
    with pytest.raises(AttributeError, match="'FairerCLIP' object has no attribute 'classes_'"):
        _ = model.classes_
    with pytest.raises(AttributeError, match="components_ is a result of fit and cannot be set"):
        model.components_ = np.eye(2)
