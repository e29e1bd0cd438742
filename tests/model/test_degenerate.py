"""Inputs at the edge: each gives finite numbers, or an error or a warning of the package."""

import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip import FairerCLIP
from fairerclip.errors import (
    ConstantPredictionWarning,
    ConstantSensitiveWarning,
    DroppedTermWarning,
    FairerClipError,
    FairerClipWarning,
    IdleParameterWarning,
    LabelError,
    ManyCategoriesWarning,
    NonFiniteError,
    NoSensitiveWarning,
    NoSolutionError,
    NotDefiniteError,
    ParameterError,
    PromptError,
    RankWarning,
    ShapeError,
    UninformativePromptsWarning,
    VanishedLabelWarning,
    ZeroRowError,
    ZeroRowWarning,
)
from small_models import AUTO, FIXED, small


def fit(e, parameters=None, **changes):
    arguments = {"X": e.X, "y": e.y, "sensitive_features": e.s, "text": e.text, **changes}
    return small(**(parameters or {})).fit(**arguments)


# Errors ---------------------------------------------------------------------------------------------

THREE = np.arange(240) % 3
REFUSED = {
    "one class": (LabelError, "[1]", lambda e: fit(e, y=np.ones(240, dtype=int))),
    "neither labels nor prompts": (LabelError, "text=", lambda e: fit(e, y=None, text=None)),
    "a class without weight": (
        LabelError,
        "[2]",
        lambda e: fit(e, y=THREE, text=None, sample_weight=(THREE < 2).astype(float)),
    ),
    "two columns of labels": (LabelError, "(240, 2)", lambda e: fit(e, y=np.column_stack([e.y, e.y]))),
    "few weights": (ShapeError, "(5,)", lambda e: fit(e, sample_weight=np.ones(5))),
    "negative weights": (ParameterError, "negative", lambda e: fit(e, sample_weight=-np.ones(240))),
    "weights that are NaN": (ParameterError, "finite", lambda e: fit(e, sample_weight=np.full(240, np.nan))),
    "no rows": (ShapeError, "0", lambda e: fit(e, X=e.X[:0])),
    "text as rows": (ShapeError, "<U", lambda e: fit(e, X=e.X.astype(str))),
    "huge rows": (NonFiniteError, "e+", lambda e: fit(e, {"normalize": False}, X=1e200 * e.X)),
    "prompts of another width": (ShapeError, "(11,)", lambda e: fit(e, text=e.text[:, 1:])),
    "a class without a prompt": (ShapeError, "(0, 12)", lambda e: fit(e, text=[e.text[:1], e.text[:0]])),
    "one prompt twice": (PromptError, "0 and 1", lambda e: fit(e, text=e.text[[0, 0]])),
    "fewer prompts than classes": (PromptError, "2", lambda e: fit(e, y=THREE)),
    "words as prompts": (PromptError, "encode", lambda e: fit(e, text=[["bird"], ["plane"]])),
    "prompts that cancel out": (
        PromptError,
        "entry 1",
        lambda e: fit(e, y=None, text=[e.text[:1], np.stack([e.text[1], -e.text[1]])]),
    ),
    "a ridge that is too small": (
        NotDefiniteError,
        "gamma",
        lambda e: fit(e, {"gamma": 1e-30, "n_features": 400}),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_fitted_is_refused(embeddings, name):
    error, fact, call = REFUSED[name]
    with pytest.raises(error) as caught:
        call(embeddings())
    assert fact in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("kernel", ["poly"]),
        ("dtype", ["float16"]),
        ("tau", [-0.1, 1, np.nan, np.inf, "much", True, None]),
        ("tau_text", [-0.1, 1]),
        ("gamma", [0, None]),
        ("n_features", [0, 2.5]),
        ("bandwidth", ["mean", -1.0]),
        ("random_state", ["lucky"]),
        ("zero_shot", [1.5, -0.1, np.nan, True, "half"]),
        ("class_offsets", ["learn", [0.1, -0.1]]),
        ("refine", [1]),
        ("class_weight", [{7: 2}, {0: -1}, {0: np.inf}, {0: 0, 1: 0}, "even", 1.0]),
        ("subsample", [{7: 0.5}, {0: 0}, {0: 2}, "balanced:x", 0.5, (0.5, 0.5, 1)]),
    ],
)
def test_a_parameter_out_of_range_is_named(embeddings, name, values):
    for value in values:
        with pytest.raises(ParameterError, match=name):
            fit(embeddings(), {name: value})


@pytest.mark.parametrize("value", [np.nan, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_rows_that_are_not_finite_are_named(embeddings, value, dtype, monkeypatch):
    monkeypatch.setattr("fairerclip.data.row_pass.BLOCK_ROWS", 50)
    e = embeddings()
    m, X = fit(e), e.X.astype(dtype)
    X[[137, 201], 5] = value
    for call in (lambda X: fit(e, X=X), m.predict, m.transform, m.predict_proba, m.cosines):
        with pytest.raises(NonFiniteError, match="137"):
            call(X)


def test_a_zero_row_is_an_error_where_it_needs_a_direction_and_else_a_warning(embeddings):
    e = embeddings()
    m = fit(e)
    e.X[7] = 0
    for text in (e.text, None):
        with pytest.raises(ZeroRowError, match="row 7"):
            fit(e, text=text)
    with pytest.warns(ZeroRowWarning, match="row 7"):
        fit(e, {"normalize": False}, text=None)
    with pytest.warns(ZeroRowWarning, match="row 7"):
        assert np.isfinite(m.transform(e.X)).all()


def test_another_width_at_prediction(embeddings):
    e = embeddings()
    m = fit(e)
    for call in (m.predict, m.transform, m.path([0.5]).predict_codes):
        with pytest.raises(ShapeError, match="11"):
            call(e.X[:, 1:])


# Warnings -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", ["marginal", "conditional"])
@pytest.mark.parametrize("value", [0, 0.5], ids=["one group", "a constant quantity"])
def test_one_sensitive_value_is_a_warning_and_a_fit_without_any(embeddings, criterion, value):
    e = embeddings()
    with pytest.warns(ConstantSensitiveWarning):
        m = fit(e, {"criterion": criterion}, sensitive_features=np.full(240, value))
    with pytest.warns(NoSensitiveWarning):
        free = fit(e, {"criterion": criterion}, sensitive_features=None)
    assert_array_equal(m.decision_function(e.X), free.decision_function(e.X))


WARNED = {
    NoSensitiveWarning: lambda e, own: fit(e, own, sensitive_features=None),
    VanishedLabelWarning: lambda e, own: fit(e, own, y=e.y % 2),
    ManyCategoriesWarning: lambda e, own: fit(
        e, {**own, "tau": 0.0}, text=None, sensitive_features=np.arange(240) % 60
    ),
    IdleParameterWarning: lambda e, own: fit(e, {**own, "decision_zero": "mean"}, text=None),
    RankWarning: lambda e, own: fit(e, {**own, "n_components": 9}, text=None),
}


@pytest.mark.parametrize("choice", [FIXED, AUTO], ids=["fixed", "auto"])
@pytest.mark.parametrize("kind", WARNED)
def test_warnings_point_at_the_line_that_called_fit(embeddings, kind, choice):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        WARNED[kind](embeddings(n_classes=3), choice)
    assert {w.filename for w in caught if w.category is kind} == {__file__}


@pytest.mark.filterwarnings("ignore::fairerclip.errors.ConstantSensitiveWarning")
def test_a_group_without_weight_leaves_a_term_that_is_dropped(embeddings):
    e = embeddings(seed=1)
    only = e.s == 1
    with pytest.warns(DroppedTermWarning):
        a = fit(e, sample_weight=only.astype(float))
    assert a.diagnostics_["dropped_terms"]["image"] == ["s"]
    b = fit(e, X=e.X[only], y=e.y[only], sensitive_features=e.s[only])
    assert_allclose(a.decision_function(e.X), b.decision_function(e.X), atol=1e-3)


def test_too_many_components(embeddings):
    e = embeddings()
    with pytest.warns(RankWarning):  # zero-shot scores that are not centred have one direction more
        m = fit(e, {"n_components": 7, "tau": 0.0})
    assert m.transform(e.X).shape == (240, 2)
    assert m.transform_text(e.text).shape == (2, 2)


# Few and strange rows -------------------------------------------------------------------------------


def test_prompts_leave_something_to_learn_where_s_is_y(embeddings):
    e = embeddings()
    m = fit(e, {"tau": 0.9}, sensitive_features=e.y)  # the zero-shot share of the target is not S
    assert np.all(m.eigenvalues_ > 0)
    with pytest.raises(NoSolutionError):
        fit(e, {"tau": 0.9, "zero_shot": 0.0}, sensitive_features=e.y)


def test_two_rows():
    X = np.array([[1.0, 0.2], [0.1, 1.0]])
    with pytest.raises(NoSolutionError):
        small().fit(X, [0, 1], sensitive_features=[0, 1])  # S is Y
    m = small(tau=0.0, tau_text=0.0).fit(X, ["a", "b"], sensitive_features=[0, 1])
    assert m.predict(X).tolist() == ["a", "b"]


@pytest.mark.parametrize("kernel", ["rbf", "orthogonal", "nystroem", "exact", "linear"])
def test_few_and_duplicate_rows(embeddings, kernel):
    e = embeddings(n=30)
    parameters = {"n_features": 300, "kernel": kernel, "tau": 0.3}
    m = fit(e, parameters)
    assert m.score(e.X, e.y) > 0.9
    assert m.diagnostics_["residual"] < 1e-6
    twice = np.repeat(np.arange(30), 5)
    again = fit(e, parameters, X=e.X[twice], y=e.y[twice], sensitive_features=e.s[twice])
    assert_array_equal(again.predict(e.X), m.predict(e.X))


@pytest.mark.parametrize("kernel", ["rbf", "exact", "linear"])
def test_identical_rows_are_never_silent(embeddings, kernel):
    e = embeddings()
    # Rounding in the mean of the features may be all that is left: an error, or a constant prediction.
    named = (NoSolutionError, ConstantPredictionWarning, RankWarning, UninformativePromptsWarning)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(named):
            fit(e, {"kernel": kernel}, X=np.repeat(e.X[:1], 240, axis=0))


def test_one_column():
    X = np.r_[np.linspace(1, 2, 30), np.linspace(4, 5, 30)][:, None]
    y, s = np.repeat([0, 1], 30), np.arange(60) % 2
    with pytest.raises(ShapeError, match="1 feature"):
        small().fit(X, y, sensitive_features=s)  # all rows have one direction
    for choice in (FIXED, AUTO):
        assert small(**choice, normalize=False).fit(X, y, sensitive_features=s).score(X, y) == 1


@pytest.mark.parametrize("prompted", [True, False])
def test_a_class_of_duplicates_cannot_be_cross_validated_but_fitted(embeddings, prompted):
    e = embeddings()
    e.X[e.y == 1] = e.X[e.y == 1][0]
    auto, fixed = (fit(e, choice, text=e.text if prompted else None) for choice in (AUTO, FIXED))
    assert "kept" in auto.diagnostics_["automatic"]
    assert_array_equal(auto.scores(e.X), fixed.scores(e.X))


def test_the_weight_of_guesses_has_no_effect_where_all_labels_are_guesses(embeddings):
    e = embeddings(correlation=0.3)
    a, b = (fit(e, {"guess_weight": w}, y=None) for w in (0.0, 1.0))
    assert_array_equal(a.scores(e.X), b.scores(e.X))


def test_the_weight_of_guesses_is_not_chosen_where_a_class_has_only_guesses(embeddings):
    e = embeddings(n_classes=3, n=400, correlation=0.3)
    y = np.where((e.y == 2) | (np.arange(400) % 4 > 0), np.nan, e.y)
    m = fit(e, {"guess_weight": "auto"}, y=y)
    assert m.guess_weight_ == 1
    assert (m.predict(e.X) == 2).any()


# Anything at all ------------------------------------------------------------------------------------

STRENGTH = st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.999])
PARAMETERS = {
    "tau": st.sampled_from([0.0, 0.5, 0.9, 0.999, "auto"]),
    "tau_z": STRENGTH,
    "tau_text": STRENGTH,
    "tau_z_text": STRENGTH,
    "gamma": st.sampled_from([1e-12, 1e-4, 1.0, "auto"]),
    "gamma_text": st.sampled_from([1e-12, 1e-4, 1.0]),
    "n_features": st.integers(1, 30),
    "kernel": st.sampled_from(["rbf", "orthogonal", "nystroem", "exact", "linear"]),
    "alignment": st.sampled_from(["linear", "rbf"]),
    "n_components": st.sampled_from([None, 1, 2, 9]),
    "criterion": st.sampled_from(["auto", "marginal", "conditional"]),
    "scaling": st.sampled_from(["spectral", "paper"]),
    "class_weight": st.sampled_from([None, "balanced", "group", {0: 0.5, 1: 2.0}, {0: 0}]),
    "subsample": st.sampled_from([None, None, "balanced", "balanced:0.5", {0: 0.5}]),
    "solver": st.sampled_from(["auto", "cholesky", "cg"]),
    "max_iter": st.integers(1, 4),
    "refine": st.booleans(),
    "zero_shot": st.sampled_from([None, 0.0, 0.5, 1.0, "auto"]),
    "guess_weight": st.sampled_from([0.0, 0.5, 1.0, "auto"]),
    "class_offsets": st.sampled_from([None, "auto"]),
    "decision": st.sampled_from(["target", "prompts"]),
    "decision_zero": st.sampled_from(["balanced", "mean", "none"]),
    "normalize": st.booleans(),
    "sensitive_terms": st.sampled_from(["each", "intersection"]),
    "dtype": st.sampled_from(["float32", "float64"]),
}


@pytest.mark.slow
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(data=st.data(), parameters=st.fixed_dictionaries(PARAMETERS))
def test_anything_gives_finite_numbers_or_a_named_error(data, parameters):
    n, p, c, v = (data.draw(st.integers(1, most)) for most in (25, 4, 4, 3))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))

    def one_of(*values):
        return data.draw(st.sampled_from(values))

    normal = rng.normal(size=(n, p))
    X = one_of(
        normal,
        rng.integers(-1, 2, size=(n, p)).astype(float),
        np.repeat(normal[:1], n, axis=0),
        normal.astype(np.float16),
        1e6 + normal,
        1e-12 * normal,
    )
    y = one_of(None, rng.integers(c, size=n), [None if rng.random() < 0.4 else k % c for k in range(n)])
    given_s = one_of(
        None, rng.integers(v, size=n), normal[:, 0], rng.integers(v, size=(n, 2)), np.full(n, np.nan)
    )
    text = one_of(None, rng.normal(size=(c, p)), [rng.normal(size=(2, p)) for _ in range(c)])
    sensitive_text = one_of(None, rng.normal(size=(v, p)))
    weight = one_of(None, rng.choice([0, 1, 2.5], size=n))
    offsets = one_of(None, None, rng.normal(size=c).tolist(), [1e6, 0.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairerClipWarning)
        try:
            m = FairerCLIP(**parameters, random_state=0).fit(
                X,
                y,
                sensitive_features=given_s,
                text=text,
                sensitive_text=sensitive_text,
                sample_weight=weight,
            )
            m = m.at(offsets=offsets)
        except FairerClipError:
            return
        for out in (m.transform(X), m.decision_function(X), m.predict_proba(X), m.cosines(X)):
            assert np.isfinite(out).all()
            assert len(out) == n
        if m.decision == "prompts":
            assert np.isfinite(m.transform_text(np.ones((1, p)))).all()
        elif text is not None:
            assert np.isfinite(m.transform_text(m.prompts_)).all()
        assert set(m.predict(X)) <= set(m.classes_.tolist())
        assert np.isfinite([m.objective_, m.temperature_, m.diagnostics_["residual"]]).all()
