"""Class offsets and sensitive shifts: what they do to the scores, and that they travel with the model."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from fairerclip import FairerCLIP
from fairerclip.errors import ConstantPredictionWarning, ParameterError
from small_models import small


def fitted(e, *, offsets=None, sensitive_shifts=None, **parameters):
    model = small(**parameters).fit(e.X, e.y, sensitive_features=e.s, text=e.text)
    return model.at(offsets=offsets, sensitive_shifts=sensitive_shifts)


# Offsets --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("decision", ["target", "prompts"])
def test_offsets_are_added_to_the_scores(embeddings, n_classes, decision):
    e = embeddings(n_classes=n_classes)
    offsets = np.linspace(-0.3, 0.4, n_classes)
    plain, moved = (fitted(e, decision=decision, offsets=o) for o in (None, offsets))
    assert_allclose(moved.scores(e.X), plain.scores(e.X) + offsets, atol=1e-10)
    assert_array_equal(moved.components_, plain.components_)  # the encoder is the same, its origin may move
    assert_allclose(
        moved.transform(e.X) - moved.intercept_, plain.transform(e.X) - plain.intercept_, atol=1e-12
    )
    assert_array_equal(moved.predict(e.X), moved.classes_[moved.scores(e.X).argmax(axis=1)])
    if n_classes == 2:
        gap = offsets[1] - offsets[0]
        assert_allclose(moved.decision_function(e.X), plain.decision_function(e.X) + gap, atol=1e-10)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_huge_offset_is_always_predicted(embeddings, place):
    e = embeddings(n_classes=3)
    offsets = [0.0, 0.0, 0.0]
    offsets[place] = 1e6
    with pytest.warns(ConstantPredictionWarning, match="every training row is predicted"):
        m = small().fit(e.X, np.array(["a", "b", "c"])[e.y], sensitive_features=e.s).at(offsets=offsets)
    assert set(m.predict(e.X)) == {"abc"[place]}


def test_an_offset_moves_the_boundary_monotonously(embeddings):
    e = embeddings()
    shares = [np.mean(fitted(e, offsets=[0.0, o]).predict(e.X)) for o in (-0.5, -0.1, 0.0, 0.1, 0.5)]
    assert np.all(np.diff(shares) >= 0)
    assert shares[0] < shares[2] < shares[-1]


def test_offsets_that_are_alike_change_no_prediction(embeddings):
    e = embeddings(n_classes=3)
    assert_array_equal(fitted(e, offsets=[7.0, 7.0, 7.0]).predict(e.X), fitted(e).predict(e.X))


@pytest.mark.parametrize(
    "given", [[0.2, -0.3], (0.2, -0.3), np.array([0.2, -0.3])], ids=["list", "tuple", "array"]
)
def test_offsets_survive_a_file_and_end_with_a_fit(embeddings, tmp_path, given):
    e = embeddings()
    plain = fitted(e).scores(e.X)
    m = fitted(e, offsets=given)
    back = FairerCLIP.load(m.save(tmp_path / "model"))
    assert back.offsets_.tolist() == m.offsets_.tolist() == [0.2, -0.3]
    assert_array_equal(back.scores(e.X), m.scores(e.X))
    # They were learned for one fitted model: a new fit has none.
    for other in (clone(m), back, m):
        other.fit(e.X, e.y, sensitive_features=e.s, text=e.text)
        assert other.offsets_.tolist() == [0, 0]
        assert_array_equal(other.scores(e.X), plain)


@pytest.mark.parametrize(
    "offsets",
    [
        [1.0],
        [1.0, 2.0, 3.0],
        [],
        0.5,
        "much",
        ["a", "b"],
        [np.nan, 0.0],
        [np.inf, 0.0],
        [[1.0], [2.0]],
        [None, 1],
        {0: 1.0, 1: 0.0},
        {1.0, 2.0},
    ],
    ids=str,
)
def test_offsets_that_cannot_be_are_named(embeddings, offsets):
    with pytest.raises(
        ParameterError, match=r"offsets must be 2 numbers \(absolute value up to 1e\+30\), one"
    ):
        fitted(embeddings(), offsets=offsets)


def test_a_copy_with_offsets_leaves_the_model_as_it_was(embeddings):
    e = embeddings()
    m = fitted(e)
    before = m.scores(e.X)
    with pytest.raises(ParameterError, match="offsets"):
        m.at(offsets=[1.0])
    assert m.at(offsets=[0.5, 0.0]).offsets_.tolist() == [0.5, 0]
    assert m.offsets_.tolist() == [0, 0]
    assert_array_equal(m.scores(e.X), before)


def test_offsets_stay_with_a_copy_that_changes_other_parameters(embeddings):
    e = embeddings()
    moved, plain = fitted(e).at(offsets=[0.3, -0.1]).at(tau=0.2), fitted(e, tau=0.2)
    assert_allclose(moved.scores(e.X), plain.scores(e.X) + np.array([0.3, -0.1]), atol=1e-10)


def test_refinement_does_not_depend_on_offsets(embeddings):
    e = embeddings(seed=3, correlation=0.3, n=300)
    plain = small(refine=True, max_iter=30).fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    moved = plain.at(offsets=[0.0, 0.15])
    assert_array_equal(moved.pseudo_labels_, plain.predict(e.X))
    assert_allclose(moved.scores(e.X), plain.scores(e.X) + np.array([0.0, 0.15]), atol=1e-10)
    assert np.sum(moved.predict(e.X)) > np.sum(plain.predict(e.X))


def test_a_parameter_that_does_not_exist_is_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'tua'"):
        FairerCLIP(tua=1)


# Sensitive shifts -----------------------------------------------------------------------------------


def ridge(m, X, psi, weight):
    """What the model's features say of each sensitive value: ridge regression, on all rows at once."""
    w = weight / weight.sum()
    Phi = m.features_.transform(X)
    Phi = Phi - w @ Phi
    C = Phi.T @ (w[:, None] * Phi) + m.gamma * np.eye(Phi.shape[1])
    return Phi @ np.linalg.solve(C, Phi.T @ (w[:, None] * (psi - w @ psi)))


@pytest.mark.parametrize(("n_classes", "n_sensitive"), [(2, 2), (2, 3), (4, 3)], ids=str)
@pytest.mark.parametrize("decision", ["target", "prompts"])
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_shifts_take_off_what_a_ridge_regression_reads(
    embeddings, n_classes, n_sensitive, decision, class_weight
):
    e = embeddings(n_classes=n_classes, n_sensitive=n_sensitive)
    shifts = np.random.default_rng(6).normal(size=(n_classes, n_sensitive))
    common = {"decision": decision, "class_weight": class_weight, "offsets": np.linspace(0, 0.1, n_classes)}
    plain, shifted = (fitted(e, sensitive_shifts=s, **common) for s in (None, shifts))
    weight = np.ones(len(e.y)) if class_weight is None else 1 / np.bincount(e.y)[e.y]
    read = ridge(plain, e.X, np.eye(n_sensitive)[e.s], weight)
    assert_allclose(shifted.scores(e.X), plain.scores(e.X) - read @ shifts.T, atol=1e-8)
    # The space is that of the scores now.
    assert shifted.transform(e.X).shape == (len(e.X), n_classes)
    assert shifted.transform_text(e.text).shape == (n_classes, n_classes)
    assert_allclose(shifted.transform(e.X) + shifted.score_constants_, shifted.scores(e.X), atol=1e-10)
    assert_array_equal(shifted.eigenvalues_, plain.eigenvalues_)
    assert len(shifted.get_feature_names_out()) == n_classes


def test_shifts_of_zero_change_nothing(embeddings):
    e = embeddings(n_classes=3)
    plain, shifted = (fitted(e, sensitive_shifts=s) for s in (None, np.zeros((3, 2))))
    assert_allclose(shifted.scores(e.X), plain.scores(e.X), atol=1e-10)
    assert_array_equal(shifted.predict(e.X), plain.predict(e.X))


def test_shifts_of_several_attributes_are_one_number_for_each_value_of_each(embeddings):
    e = embeddings()
    other = np.random.default_rng(11).integers(3, size=len(e.y))
    shifts = np.random.default_rng(6).normal(size=(2, 5))
    given = {"sensitive_features": {"a": e.s, "b": other}, "text": e.text}
    plain = small(class_weight=None).fit(e.X, e.y, **given)
    shifted = plain.at(sensitive_shifts=shifts)
    read = ridge(plain, e.X, np.column_stack([np.eye(2)[e.s], np.eye(3)[other]]), np.ones(len(e.y)))
    assert_allclose(shifted.scores(e.X), plain.scores(e.X) - read @ shifts.T, atol=1e-8)


def test_a_shift_parts_the_ranks_of_a_sensitive_value(embeddings):
    e = embeddings(correlation=0.3)
    means = []
    for size in (0.0, 0.5, 1.0):
        m = fitted(e, sensitive_shifts=[[0.0, 0.0], [0.0, size]], tau=0.0)
        of_class = m.scores(e.X)[:, 1]
        means.append(of_class[e.s == 1].mean() - of_class[e.s == 0].mean())
    assert means[0] > means[1] > means[2]


def test_shifts_survive_a_file_and_a_pickle(embeddings, tmp_path):
    import pickle

    e = embeddings(n_classes=3)
    shifts = np.random.default_rng(6).normal(size=(3, 2))
    m = fitted(e, sensitive_shifts=shifts, offsets=[0.1, 0.0, -0.1])
    back = FairerCLIP.load(m.save(tmp_path / "model"))
    again = pickle.loads(pickle.dumps(m))  # noqa: S301 - our own bytes
    assert_array_equal(back.sensitive_shifts_, shifts)
    for other in (back, again):
        for call in ("scores", "transform", "predict_proba", "cosines"):
            assert_array_equal(getattr(other, call)(e.X), getattr(m, call)(e.X))
        assert_array_equal(other.transform_text(e.text), m.transform_text(e.text))
        assert_array_equal(other.eigenvalues_, m.eigenvalues_)


@pytest.mark.parametrize(
    "shifts",
    [
        [[1.0, 2.0]],
        [[1.0], [2.0]],
        [1.0, 2.0],
        3.0,
        "ab",
        [["a", "b"]] * 2,
        [[np.nan, 0.0]] * 2,
        [[1, 2], [3]],
        [],
        {(1.0, 2.0): 0, (3.0, 4.0): 0},
    ],
    ids=str,
)
def test_shifts_that_cannot_be_are_named(embeddings, shifts):
    with pytest.raises(ParameterError, match=r"sensitive_shifts must be 2 rows of 2 numbers \(absolute"):
        fitted(embeddings(), sensitive_shifts=shifts)
