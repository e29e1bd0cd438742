"""Inputs at the edge: each gives a named error or warning that says what came and what to do."""

import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fairerclip import FairerCLIP, errors
from fairerclip._util.types import CODES
from fairerclip.errors import (
    ConstantPredictionWarning,
    ConstantSensitiveWarning,
    DroppedTermWarning,
    FairerClipError,
    IdleParameterWarning,
    LabelCycleWarning,
    LabelError,
    ManyCategoriesWarning,
    NonFiniteError,
    NoSensitiveWarning,
    NoSolutionError,
    NotConvergedWarning,
    NotDefiniteError,
    ParameterError,
    PromptError,
    RankWarning,
    ShapeError,
    TextCollapseError,
    TextCollapseWarning,
    UninformativePromptsWarning,
    VanishedLabelWarning,
    ZeroRowError,
    ZeroRowWarning,
)
from fairerclip.model.cross_validation import FoldedFits
from paper import PAPER
from small_models import AUTO, FIXED, small


def fit(e, *, X=None, y=None, s=None, text=None, **parameters):
    return small(**parameters).fit(
        e.X if X is None else X,
        e.y if y is None else y,
        sensitive_features=e.s if s is None else s,
        text=e.text if text is None else text,
    )


# Labels and groups ----------------------------------------------------------------------------------


def test_one_class(embeddings):
    e = embeddings()
    with pytest.raises(LabelError, match=r"at least 2 classes; got 1 class: \[0\]"):
        small().fit(e.X, np.zeros(240, dtype=int), sensitive_features=e.s)
    with pytest.raises(LabelError, match=r"y has one class only \(\[1\]\), and a fit needs at least two"):
        fit(e, y=np.ones(240, dtype=int))


def test_every_row_of_one_zero_shot_class(embeddings):
    e = embeddings()
    text = np.stack([e.X.mean(axis=0), -e.X.mean(axis=0)])
    X = e.X[e.X @ text[0] > 0]
    with pytest.raises(LabelError, match=r"zero-shot predictions have one class only \(\[0\]\).*same model"):
        small().fit(X, text=text, sensitive_features=np.arange(len(X)) % 2)


def test_neither_labels_nor_prompts(embeddings):
    e = embeddings()
    with pytest.raises(LabelError, match="give y, or text="):
        small().fit(e.X, sensitive_features=e.s)


def test_a_class_that_loses_all_its_weight(embeddings):
    e = embeddings(n_classes=3)
    weight = (e.y < 2).astype(float)
    with pytest.raises(LabelError, match=r"\[2\] have neither labelled rows nor prompts"):
        small().fit(e.X, e.y, sensitive_features=e.s, sample_weight=weight)


def test_a_named_class_without_rows_and_prompts(embeddings):
    e = embeddings()
    partly = [int(v) if i % 2 else None for i, v in enumerate(e.y)]
    with pytest.raises(LabelError, match=r"\[2\] have neither labelled rows.*give text="):
        small().fit(e.X, partly, sensitive_features=e.s, classes=[0, 1, 2])


def test_labels_in_two_columns(embeddings):
    e = embeddings()
    with pytest.raises(LabelError, match=r"1d array, got an array of shape \(240, 2\)"):
        small().fit(e.X, np.column_stack([e.y, e.y]), sensitive_features=e.s)


@pytest.mark.parametrize("criterion", ["marginal", "conditional"])
def test_one_group_is_a_warning_and_the_fit_goes_on(embeddings, criterion):
    e = embeddings()
    with pytest.warns(ConstantSensitiveWarning, match="'s' has one value only.*Check its labels or prompts"):
        m = fit(e, s=np.zeros(240, dtype=int), criterion=criterion)
    with pytest.warns(NoSensitiveWarning):
        free = small(criterion=criterion).fit(e.X, e.y, text=e.text)
    assert_array_equal(m.decision_function(e.X), free.decision_function(e.X))


def test_a_constant_quantity_is_a_warning_too(embeddings):
    with pytest.warns(ConstantSensitiveWarning, match="one value only"):
        fit(embeddings(), s=np.full(240, 0.5))


def test_no_sensitive_attribute_at_all(embeddings):
    e = embeddings()
    with pytest.warns(NoSensitiveWarning, match="neither sensitive_features nor sensitive_text") as caught:
        small().fit(e.X, e.y, text=e.text)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("choice", [FIXED, AUTO], ids=["fixed", "auto"])
@pytest.mark.parametrize(
    "kind",
    [
        *(ConstantSensitiveWarning, VanishedLabelWarning, ZeroRowWarning, RankWarning),
        *(ManyCategoriesWarning, IdleParameterWarning),
    ],
)
def test_warnings_point_at_the_line_that_called_fit(embeddings, kind, choice):
    e = embeddings(n_classes=3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if kind is ConstantSensitiveWarning:
            small(**choice).fit(e.X, e.y, sensitive_features=np.zeros(240))
        elif kind is VanishedLabelWarning:
            small(**choice).fit(e.X, e.y % 2, sensitive_features=e.s, text=e.text)
        elif kind is ZeroRowWarning:
            e.X[0] = 0
            small(**choice, normalize=False).fit(e.X, e.y, sensitive_features=e.s)
        elif kind is ManyCategoriesWarning:
            small(**{**choice, "tau": 0.0}).fit(e.X, e.y, sensitive_features=np.arange(240) % 60)
        elif kind is IdleParameterWarning:
            small(**choice, decision_zero="mean").fit(e.X, e.y, sensitive_features=e.s)
        else:
            small(**choice, n_components=9).fit(e.X, e.y, sensitive_features=e.s)
    assert {w.filename for w in caught if w.category is kind} == {__file__}


def test_group_weights_without_groups(embeddings):
    e = embeddings()
    with (
        pytest.warns(NoSensitiveWarning),
        pytest.raises(ParameterError, match="'group' needs a categorical"),
    ):
        small(class_weight="group").fit(e.X, e.y, text=e.text)


@pytest.mark.filterwarnings("ignore::fairerclip.errors.ConstantSensitiveWarning")
@pytest.mark.filterwarnings("ignore::fairerclip.errors.DroppedTermWarning")
def test_a_group_without_weight_leaves_a_term_that_is_dropped(embeddings):
    e = embeddings(seed=1)
    only = e.s == 1
    a, b = small(dtype="float32"), small(dtype="float32")
    a.fit(e.X, e.y, sensitive_features=e.s, text=e.text, sample_weight=only.astype(float))
    b.fit(e.X[only], e.y[only], sensitive_features=e.s[only], text=e.text)
    np.testing.assert_allclose(a.decision_function(e.X), b.decision_function(e.X), atol=1e-3)


def test_a_term_that_the_weights_make_vanish_is_a_warning(embeddings):
    e = embeddings(seed=1)
    weight = (e.s == 1).astype(float)
    with pytest.warns(DroppedTermWarning, match="dependence on s vanished .*left out of the objective"):
        m = small().fit(e.X, e.y, sensitive_features=e.s, text=e.text, sample_weight=weight)
    assert m.diagnostics_["dropped_terms"]["image"] == ["s"]


def test_balanced_groups_leave_nothing_of_s_on_the_text_side(embeddings):
    m = fit(embeddings(), class_weight="group")
    assert m.diagnostics_["dropped_terms"] == {"image": [], "text": ["s"]}


# Rows -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_row_that_is_not_finite_is_named(embeddings, value, dtype):
    e = embeddings()
    X = e.X.astype(dtype)
    X[137, 5] = value
    with pytest.raises(NonFiniteError, match="X contains NaN or infinity in row 137 of 240; remove"):
        fit(e, X=X)
    m = fit(e)
    for call in (m.predict, m.transform, m.decision_function, m.predict_proba, m.cosines):
        with pytest.raises(NonFiniteError, match="row 137"):
            call(X)


def test_many_bad_rows_are_counted(embeddings):
    e = embeddings()
    X = e.X.copy()
    X[10:20] = np.nan
    with pytest.raises(NonFiniteError, match=r"10 rows \(first: 10, 11, 12, 13, 14\) of 240"):
        fit(e, X=X)


def test_bad_rows_are_named_beyond_the_first_block(embeddings, monkeypatch):
    monkeypatch.setattr("fairerclip.data.row_pass.BLOCK_ROWS", 50)
    e = embeddings()
    e.X[[60, 201]] = np.nan
    with pytest.raises(NonFiniteError, match="first: 60, 201"):
        fit(e)


def test_a_zero_row_is_an_error_where_a_cosine_is_needed(embeddings):
    e = embeddings()
    e.X[7] = 0
    with pytest.raises(ZeroRowError, match="X is zero in row 7 of 240.*cosine with a prompt is undefined"):
        fit(e)


def test_a_zero_row_is_an_error_where_rows_are_brought_to_unit_length(embeddings):
    e = embeddings()
    e.X[7] = 0
    with pytest.raises(ZeroRowError, match="X is zero in row 7 of 240"):
        small().fit(e.X, e.y, sensitive_features=e.s)


def test_a_zero_row_is_a_warning_where_none_is_needed(embeddings):
    e = embeddings()
    m = fit(e)
    e.X[7] = 0
    with pytest.warns(ZeroRowWarning, match="row 7"):
        small(normalize=False).fit(e.X, e.y, sensitive_features=e.s)
    with pytest.warns(ZeroRowWarning, match="row 7"):
        assert np.isfinite(m.transform(e.X)).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("factor", [1e-200, 1e-25, 1e25, 1e200])
def test_magnitudes_that_no_embedding_has_are_named(embeddings, factor, dtype):
    e = embeddings()
    with pytest.raises(NonFiniteError, match="largest magnitude in X is 8.26e.*rescale X"):
        fit(e, X=e.X * factor, dtype=dtype, normalize=False)


def test_labels_that_do_not_count_as_many_as_rows(embeddings):
    e = embeddings()
    with pytest.raises(ShapeError, match="X has 240 rows but y has 5"):
        fit(e, y=e.y[:5])


@pytest.mark.parametrize(
    ("weight", "error", "message"),
    [
        (np.ones(5), ShapeError, r"\(5,\), expected \(240,\)"),
        (-np.ones(240), ParameterError, "nowhere negative"),
        (np.zeros(240), ParameterError, "not zero for every row"),
        (np.full(240, np.nan), ParameterError, "finite"),
        (["a"] * 240, ParameterError, "must hold numbers"),
        (np.full(240, 1e31), ParameterError, "largest sample_weight must be .* got 1e"),
        (np.ones(240, dtype=complex), ParameterError, "got an array of complex128"),
    ],
)
def test_weights_that_cannot_be(embeddings, weight, error, message):
    e = embeddings()
    with pytest.raises(error, match=message):
        small().fit(e.X, e.y, sensitive_features=e.s, sample_weight=weight)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros(12), "Expected 2D array"),
        (np.zeros((2, 3, 4)), "dim 3"),
        (np.zeros((0, 12)), "0 sample"),
        (np.zeros((5, 0)), "0 feature"),
        ([["a", "b"], ["c", "d"]], "real numbers; got an array of <U1"),
    ],
)
def test_embeddings_of_the_wrong_shape_are_our_error_too(X, message):
    with pytest.raises(ShapeError, match=message):
        small().fit(X, [0, 1])


def test_another_width_at_prediction(embeddings):
    e = embeddings()
    m = fit(e)
    for call in (m.predict, m.transform, m.path([0.5]).predict_codes):
        with pytest.raises(ShapeError, match="X has 11 features, but FairerCLIP is expecting 12"):
            call(e.X[:, 1:])


# Prompts --------------------------------------------------------------------------------------------


def test_prompts_of_another_width(embeddings):
    e = embeddings()
    with pytest.raises(ShapeError, match=r"entry 0 has shape \(11,\), expected \(12,\).*same model"):
        fit(e, text=e.text[:, 1:])
    with pytest.raises(ShapeError, match=r"text: entry 1 has shape \(3, 7\)"):
        fit(e, text=[e.text[:1], np.ones((3, 7))])
    with pytest.raises(ShapeError, match="sensitive_text: entry 0"):
        small().fit(e.X, e.y, text=e.text, sensitive_text=np.ones((2, 3)))


def test_a_class_without_a_prompt(embeddings):
    e = embeddings()
    with pytest.raises(ShapeError, match="entry 1 has shape \\(0, 12\\)"):
        fit(e, text=[e.text[:1], e.text[:0]])


def test_the_same_prompt_twice(embeddings):
    e = embeddings()
    with pytest.raises(PromptError, match="entries 0 and 1 have the same prompt embedding.*differ"):
        fit(e, text=e.text[[0, 0]])
    with pytest.raises(PromptError, match=r"sensitive_text\['sex'\]: entries 0 and 2 have the same"):
        small().fit(e.X, e.y, text=e.text, sensitive_text={"sex": [*e.sensitive_text, e.sensitive_text[0]]})


def test_the_same_prompt_twice_in_one_class_is_fine(embeddings):
    e = embeddings()
    m = fit(e, text=[e.text[[0, 0]], e.text[[1]]])
    np.testing.assert_allclose(m.decision_function(e.X), fit(e).decision_function(e.X), atol=1e-6)


def test_prompts_of_the_wrong_number(embeddings):
    e = embeddings()
    with pytest.raises(
        PromptError, match=r"array of 2 entries and y has the labels \[0, 1, 2\].*numbers 0 to 1"
    ):
        fit(e, y=np.arange(240) % 3)
    with pytest.raises(PromptError, match="at least 2 classes; got 1"):
        fit(e, text=e.text[:1])


@pytest.mark.parametrize(
    "text", ["a photo of a bird", 5, {"a": ["bird"], "b": ["plane"]}, [["bird"], ["plane"]]]
)
def test_prompts_that_are_no_embeddings(embeddings, text):
    with pytest.raises(PromptError, match="got (str|int|dict)|encode the prompts first"):
        fit(embeddings(), text=text)


def test_a_prompt_that_is_zero_or_not_finite(embeddings):
    e = embeddings()
    with pytest.raises(ZeroRowError, match=r"text\[1\] is zero in row 0"):
        fit(e, text=e.text * [[1], [0]])
    with pytest.raises(NonFiniteError, match=r"text\[1\] contains NaN"):
        fit(e, text=e.text * [[1], [np.nan]])


def test_prompts_that_cancel_out(embeddings):
    e = embeddings()
    with pytest.raises(PromptError, match="entry 1 are zero or cancel out"):
        small().fit(e.X, text=[e.text[:1], np.stack([e.text[1], -e.text[1]])], sensitive_features=e.s)


# Parameters -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tau", "tau_z", "tau_text", "tau_z_text"])
@pytest.mark.parametrize("value", [-0.1, 1, 1.5, np.nan, np.inf, "much", True])
def test_a_strength_out_of_range(embeddings, name, value):
    with pytest.raises(ParameterError, match=rf"{name} must be a number in \[0, 1\) with scaling='spectral'"):
        fit(embeddings(), **{name: value})


@pytest.mark.parametrize("name", ["tau", "tau_z"])
def test_only_the_text_side_follows_another(embeddings, name):
    with pytest.raises(ParameterError, match=rf"{name} must be a number in \[0, 1\)"):
        fit(embeddings(), **{name: None})


def test_the_papers_scaling_takes_any_strength(embeddings):
    e = embeddings()
    assert fit(e, tau=3.0, tau_z=2, scaling="paper").predict(e.X).shape == (240,)
    with pytest.raises(ParameterError, match=r"tau must be a number in \[0, 1e\+30\]"):
        fit(e, tau=-1, scaling="paper")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"kernel": "poly"}, "kernel must be one of 'rbf', .*got 'poly'"),
        ({"alignment": "cubic"}, "alignment must be one of 'linear', 'rbf'; got 'cubic'"),
        ({"criterion": "equal"}, "criterion must be one of 'auto', 'marginal', 'conditional'; got 'equal'"),
        ({"scaling": "none"}, "scaling must be one of"),
        ({"solver": "lobpcg"}, "solver must be one of"),
        ({"dtype": "float16"}, "dtype must be one of"),
        ({"decision_zero": "median"}, "decision_zero must be one of"),
        ({"sensitive_terms": "all"}, "sensitive_terms must be one of"),
        ({"sensitive_kind": "ordinal"}, "sensitive_kind must be one of"),
        ({"gamma": 0}, r"gamma must be a number in \[1e-30, 1e\+30\] or 'auto'; got 0"),
        ({"gamma_text": -1.0}, r"gamma_text must be a number in \[1e-30.*got -1.0"),
        ({"n_features": 0}, "n_features must be a whole number from 1 to 32,768; got 0"),
        ({"n_features": 2.5}, "n_features must be a whole number from 1.*got 2.5"),
        ({"n_components": 0}, "n_components must be a whole number from 1"),
        ({"max_iter": 0}, "max_iter must be a whole number from 1"),
        ({"bandwidth": "mean"}, "bandwidth must be .*'mean'"),
        ({"bandwidth": -1.0}, "bandwidth must be"),
        ({"random_state": "lucky"}, "random_state: 'lucky'"),
        ({"decision": "coin"}, "decision must be one of 'target', 'prompts'; got 'coin'"),
        ({"zero_shot": 1.5}, r"zero_shot must be a number in \[0, 1\], 'auto' or None; got 1.5"),
        ({"zero_shot": -0.1}, "zero_shot must be a number"),
        ({"zero_shot": np.nan}, "zero_shot must be a number"),
        ({"zero_shot": True}, "zero_shot must be a number"),
        ({"zero_shot": "half"}, "zero_shot must be a number"),
        ({"guess_weight": 1.5}, r"guess_weight must be a number in \[0, 1\] or 'auto'; got 1.5"),
        ({"guess_weight": None}, "guess_weight must be a number"),
        ({"class_offsets": "learn"}, "class_offsets must be one of 'auto', None; got 'learn'"),
        ({"class_offsets": [0.1, -0.1]}, "class_offsets must be one of"),
        ({"gamma": None}, "gamma must be a number"),
        ({"gamma_text": "auto"}, "gamma_text must be a number"),
        ({"refine": 1}, "refine must be one of True, False; got 1"),
        ({"refine": None}, "refine must be one of True, False; got None"),
    ],
    ids=str,
)
def test_a_parameter_out_of_range(embeddings, parameters, message):
    with pytest.raises(ParameterError, match=message):
        fit(embeddings(), **parameters)


def test_too_many_components(embeddings):
    e = embeddings()
    with pytest.warns(
        RankWarning, match="7 components were asked for, the .* side has 1 .*Lower n_components"
    ):
        m = fit(e, **{**PAPER, "n_components": 7, "tau": 0.0})
    assert m.transform(e.X).shape == (240, 1)


def test_too_many_components_for_zero_shot_scores_that_are_not_centred(embeddings):
    e = embeddings()
    with (
        pytest.warns(RankWarning, match="7 components were asked for, the image side has 2 "),
        pytest.warns(RankWarning, match="7 components were asked for, the text side has 1 "),
    ):
        m = fit(e, n_components=7, tau=0.0)
    assert m.transform(e.X).shape == (240, 2)
    assert m.transform_text(e.text).shape == (2, 2)


def test_tau_zero_has_no_sensitive_term(embeddings):
    e = embeddings()
    m = fit(e, tau=0.0, tau_text=0.0)
    assert set(m.diagnostics_["objective"][-1]["image"]) == {"y", "z"}


def test_tau_close_to_one(embeddings):
    e = embeddings()
    m = fit(e, tau=0.999)
    assert np.isfinite(m.predict_proba(e.X)).all()
    assert len(set(m.predict(e.X))) == 2


def test_the_text_side_collapses(embeddings):
    with pytest.raises(TextCollapseError, match="tau_text=0.9.*Lower tau_text.*scaling='paper'"):
        fit(embeddings(), scaling="spectral", tau_text=0.9)


def test_a_penalty_that_wins_everywhere(embeddings):
    e = embeddings()
    with pytest.raises(NoSolutionError, match="no direction has a positive objective at tau=0.9.*Lower tau"):
        fit(e, s=e.y, **{**PAPER, "tau": 0.9})


def test_prompts_leave_something_to_learn_where_s_is_y(embeddings):
    e = embeddings()
    m = fit(e, s=e.y, tau=0.9)  # the zero-shot share of the target is not S, so that a direction is left
    assert np.all(m.eigenvalues_ > 0)
    with pytest.raises(NoSolutionError, match="Lower tau"):
        fit(e, s=e.y, tau=0.9, zero_shot=0.0)


def test_a_ridge_too_small_to_matter(embeddings):
    e = embeddings(n=30)
    with pytest.raises(NotDefiniteError, match="not positive definite at gamma=1e-30.*raise gamma"):
        fit(e, gamma=1e-30, kernel="rbf", n_features=200)


def test_every_training_row_predicted_alike(embeddings, monkeypatch):
    e = embeddings()
    monkeypatch.setattr(
        "fairerclip.solver.rows.Projection.__call__", lambda self, Phi: (np.ones((len(Phi), 1)),)
    )
    with pytest.warns(ConstantPredictionWarning, match="every training row is predicted to be .*lower tau"):
        fit(e)


def test_two_classes_on_one_direction(embeddings):
    with pytest.warns(TextCollapseWarning, match="same direction: they cannot be told apart. Raise n_comp"):
        fit(embeddings(n_classes=3), n_components=1, max_iter=100)


def test_the_cap_on_rounds(embeddings):
    e = embeddings(n_classes=4)
    with pytest.warns(NotConvergedWarning, match="max_iter=2 rounds while the encoders still moved"):
        fit(e, n_components=2, max_iter=2)


def test_pseudo_labels_that_go_round_in_circles(embeddings, monkeypatch):
    e = embeddings()
    zero_shot = (e.X @ e.text.T).argmax(axis=1).astype(CODES)
    flip = zero_shot.copy()
    flip[:5] = 1 - flip[:5]
    answers = {zero_shot.tobytes(): flip, flip.tobytes(): zero_shot}
    monkeypatch.setattr(
        "fairerclip.solver.alternation.Round.predict", lambda self: answers[self.sides.y.tobytes()]
    )
    with pytest.warns(LabelCycleWarning, match=r"after 2 rounds.*\(5 rows alternate\).*max_iter=1"):
        small(refine=True).fit(e.X, text=e.text, sensitive_features=e.s)


def test_a_class_that_refinement_empties(embeddings, monkeypatch):
    e = embeddings()
    monkeypatch.setattr(
        "fairerclip.solver.alternation.Round.predict", lambda self: np.zeros(240, dtype=np.int64)
    )
    with pytest.raises((NoSolutionError, TextCollapseError)):
        small(refine=True).fit(e.X, text=e.text, sensitive_features=e.s)
    with pytest.warns(
        VanishedLabelWarning, match="class number 1 after refinement; lower tau, set max_iter=1"
    ):
        small(refine=True, max_iter=1).fit(e.X, text=e.text, sensitive_features=e.s)


# Few and strange rows -------------------------------------------------------------------------------


def test_two_rows():
    X = np.array([[1.0, 0.2], [0.1, 1.0]])
    with pytest.raises(NoSolutionError, match="Lower tau"):
        small().fit(X, [0, 1], sensitive_features=[0, 1])  # S is Y
    m = small(tau=0.0, tau_text=0.0).fit(X, ["a", "b"], sensitive_features=[0, 1])
    assert m.predict(X).tolist() == ["a", "b"]


@pytest.mark.parametrize("kernel", ["rbf", "orthogonal", "nystroem", "exact", "linear"])
def test_fewer_rows_than_features(embeddings, kernel):
    e = embeddings(n=30)
    m = fit(e, n_features=300, kernel=kernel, tau=0.3)
    assert m.score(e.X, e.y) > 0.9
    assert m.diagnostics_["residual"] < 1e-6


@pytest.mark.parametrize("kernel", ["rbf", "nystroem", "exact", "linear"])
def test_duplicate_rows(embeddings, kernel):
    e = embeddings(n=40)
    twice = np.repeat(np.arange(40), 5)
    a = fit(e, kernel=kernel, n_features=50, tau=0.3)
    b = fit(e, X=e.X[twice], y=e.y[twice], s=e.s[twice], kernel=kernel, n_features=50, tau=0.3)
    assert_array_equal(a.predict(e.X), b.predict(e.X))


@pytest.mark.parametrize("kernel", ["rbf", "exact", "linear"])
def test_identical_rows_are_never_silent(embeddings, kernel):
    e = embeddings()
    # Rounding in the mean of the features may be all that is left: an error, or a constant prediction.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        named = (NoSolutionError, ConstantPredictionWarning, RankWarning, UninformativePromptsWarning)
        with pytest.raises(named):
            fit(e, X=np.repeat(e.X[:1], 240, axis=0), kernel=kernel)


@pytest.mark.parametrize("kernel", ["rbf", "exact", "linear"])
def test_constant_columns_change_nothing(embeddings, kernel):
    e = embeddings()
    wide = np.hstack([e.X, np.full((240, 3), 0.5)])
    m = small(kernel=kernel).fit(wide, e.y, sensitive_features=e.s)
    assert np.isfinite(m.transform(wide)).all()
    if kernel != "rbf":  # random features of wider rows are other features
        plain = small(kernel=kernel).fit(e.X, e.y, sensitive_features=e.s)
        if kernel == "exact":
            np.testing.assert_allclose(m.decision_function(wide), plain.decision_function(e.X), atol=1e-5)
        assert_array_equal(m.predict(wide), plain.predict(e.X))


def test_one_column(embeddings):
    X = np.r_[np.linspace(1, 2, 30), np.linspace(4, 5, 30)][:, None]
    y, s = np.repeat([0, 1], 30), np.arange(60) % 2
    with pytest.raises(ShapeError, match=r"1 feature\(s\), and rows of one column have no direction"):
        small(tau=0.3).fit(X, y, sensitive_features=s)
    assert small(tau=0.3, normalize=False).fit(X, y, sensitive_features=s).score(X, y) == 1


def test_one_column_can_be_fitted_with_parameters_left_to_the_data():
    X = np.r_[np.linspace(1, 2, 30), np.linspace(4, 5, 30)][:, None]  # all rows have one direction
    y, s = np.repeat([0, 1], 30), np.arange(60) % 2
    m = small(**AUTO, normalize=False).fit(X, y, sensitive_features=s)
    assert m.diagnostics_["automatic"]["kept"] == "the rows of a class are all alike"
    assert m.score(X, y) == 1


@pytest.mark.parametrize("prompted", [True, False])
def test_a_class_of_duplicates_cannot_be_cross_validated_but_fitted(embeddings, prompted):
    e = embeddings()
    e.X[e.y == 1] = e.X[e.y == 1][0]
    given = {"sensitive_features": e.s, "text": e.text if prompted else None}
    m = small(**AUTO).fit(e.X, e.y, **given)
    assert m.diagnostics_["automatic"]["kept"] == "the rows of a class are all alike"
    assert_array_equal(m.scores(e.X), small().fit(e.X, e.y, **given).scores(e.X))


def test_a_fold_that_cannot_be_fitted_does_not_stop_a_fit_that_can(embeddings, monkeypatch):
    def fail(*given):
        raise NotDefiniteError("the rows of a fold")

    monkeypatch.setattr(FoldedFits, "prepare", fail)
    e = embeddings()
    auto, fixed = (
        small(**choice).fit(e.X, e.y, sensitive_features=e.s, text=e.text) for choice in (AUTO, FIXED)
    )
    assert auto.diagnostics_["automatic"]["kept"] == "no solution in every fold"
    np.testing.assert_allclose(auto.scores(e.X), fixed.scores(e.X), atol=1e-8)


@pytest.mark.parametrize("guess_weight", [0.0, 0.3])
def test_the_weight_of_guesses_has_no_effect_where_all_labels_are_guesses(embeddings, guess_weight):
    e = embeddings(correlation=0.3)
    given = {"text": e.text, "sensitive_features": e.s}
    a, b = (small(guess_weight=w).fit(e.X, **given) for w in (guess_weight, 1.0))
    assert_array_equal(a.scores(e.X), b.scores(e.X))


def test_the_weight_of_guesses_is_not_chosen_where_a_class_has_only_guesses(embeddings):
    e = embeddings(n_classes=3, n=400, correlation=0.3)
    y = np.where((e.y == 2) | (np.arange(400) % 4 > 0), np.nan, e.y)
    m = small(guess_weight="auto").fit(e.X, y, text=e.text, sensitive_features=e.s)
    assert m.guess_weight_ == 1
    assert (m.predict(e.X) == 2).any()


def test_a_large_offset_does_not_hurt(embeddings):
    e = embeddings()
    a = small(kernel="exact", normalize=False).fit(e.X, e.y, sensitive_features=e.s)
    b = small(kernel="exact", normalize=False).fit(e.X + 1e4, e.y, sensitive_features=e.s)
    np.testing.assert_allclose(b.decision_function(e.X + 1e4), a.decision_function(e.X), atol=1e-3)


# Anything at all ------------------------------------------------------------------------------------

NAMED = [
    getattr(errors, name)
    for name in dir(errors)
    if isinstance(getattr(errors, name), type) and issubclass(getattr(errors, name), errors.FairerClipWarning)
]


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(data=st.data())
def test_anything_gives_finite_numbers_or_a_named_error(data):
    pick = data.draw
    n, p = pick(st.integers(1, 25), "n"), pick(st.integers(1, 4), "p")
    c, v = pick(st.integers(1, 4), "c"), pick(st.integers(1, 3), "v")
    rng = np.random.default_rng(pick(st.integers(0, 10**6), "seed"))
    X = pick(
        st.sampled_from(
            [
                rng.normal(size=(n, p)),
                rng.integers(-1, 2, size=(n, p)).astype(float),
                np.repeat(rng.normal(size=(1, p)), n, axis=0),
                rng.normal(size=(n, p)).astype(np.float16),
                1e6 + rng.normal(size=(n, p)),
                1e-12 * rng.normal(size=(n, p)),
            ]
        ),
        "X",
    )
    y = pick(
        st.sampled_from(
            [
                None,
                rng.integers(c, size=n),
                [None if rng.random() < 0.4 else int(k) for k in rng.integers(c, size=n)],
            ]
        ),
        "y",
    )
    s = pick(
        st.sampled_from(
            [
                None,
                rng.integers(v, size=n),
                rng.normal(size=n),
                rng.integers(v, size=(n, 2)),
                np.full(n, np.nan),
            ]
        ),
        "s",
    )
    text = pick(st.sampled_from([None, rng.normal(size=(c, p)), [rng.normal(size=(2, p)) for _ in range(c)]]))
    sensitive_text = pick(st.sampled_from([None, rng.normal(size=(v, p))]))
    weight = pick(st.sampled_from([None, rng.choice([0, 1, 2.5], size=n)]))
    strength = st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.999])
    m = FairerCLIP(
        tau=pick(st.sampled_from([0.0, 0.5, 0.9, 0.999, "auto"])),
        tau_z=pick(strength),
        tau_text=pick(strength),
        tau_z_text=pick(strength),
        gamma=pick(st.sampled_from([1e-12, 1e-4, 1.0, "auto"])),
        gamma_text=pick(st.sampled_from([1e-12, 1e-4, 1.0])),
        n_features=pick(st.integers(1, 30)),
        kernel=pick(st.sampled_from(["rbf", "orthogonal", "nystroem", "exact", "linear"])),
        alignment=pick(st.sampled_from(["linear", "rbf"])),
        n_components=pick(st.sampled_from([None, 1, 2, 9])),
        criterion=pick(st.sampled_from(["auto", "marginal", "conditional"])),
        scaling=pick(st.sampled_from(["spectral", "paper"])),
        class_weight=pick(st.sampled_from([None, "balanced", "group", {0: 0.5, 1: 2.0}, {0: 0}])),
        subsample=pick(st.sampled_from([None, None, "balanced", "balanced:0.5", {0: 0.5}])),
        solver=pick(st.sampled_from(["auto", "cholesky", "cg"])),
        max_iter=pick(st.integers(1, 4)),
        refine=pick(st.booleans()),
        zero_shot=pick(st.sampled_from([None, 0.0, 0.5, 1.0, "auto"])),
        guess_weight=pick(st.sampled_from([0.0, 0.5, 1.0, "auto"])),
        class_offsets=pick(st.sampled_from([None, "auto"])),
        decision=pick(st.sampled_from(["target", "prompts"])),
        decision_zero=pick(st.sampled_from(["balanced", "mean", "none"])),
        normalize=pick(st.booleans()),
        sensitive_terms=pick(st.sampled_from(["each", "intersection"])),
        random_state=0,
        dtype=pick(st.sampled_from(["float32", "float64"])),
    )
    learned = {
        "offsets": pick(st.sampled_from([None, None, rng.normal(size=c).tolist(), [1e6, 0.0]])),
        "sensitive_shifts": pick(st.sampled_from([None, None, rng.normal(size=(c, v)).tolist(), [[]] * c])),
    }
    with warnings.catch_warnings():
        for kind in NAMED:
            warnings.simplefilter("ignore", kind)
        try:
            m.fit(
                X,
                y,
                sensitive_features=s,
                text=text,
                sensitive_text=sensitive_text,
                sample_weight=weight,
            )
            m = m.at(**learned)
        except FairerClipError:
            return
        for out in (m.transform(X), m.decision_function(X), m.predict_proba(X), m.cosines(X)):
            assert np.isfinite(out).all()
            assert len(out) == n
        if m.decision == "prompts" and m.sensitive_shifts_ is None:
            assert np.isfinite(m.transform_text(np.ones((1, p)))).all()
        elif text is not None:
            assert np.isfinite(m.transform_text(m.prompts_)).all()
        assert set(m.predict(X)) <= set(m.classes_.tolist())
        assert np.isfinite([m.objective_, m.temperature_, m.diagnostics_["residual"]]).all()
