"""Closed-form rotation: the kept length is the published formula, and the minimiser of the problem it is from."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize_scalar

from fairerclip.baselines import Rotation, ZeroShot
from fairerclip.baselines.rotation import kept_length, rotate
from fairerclip.errors import ExportError, ParameterError, PromptError, TextCollapseWarning
from fairerclip.export.model_computation import computation_of

LENGTHS = np.array([0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999])


def unit(a):
    return a / np.linalg.norm(a, axis=-1, keepdims=True)


def published(a, b):
    E = a + (1 - b) / a
    return (E - b * np.sqrt(E**2 - a**2)) / (E**2 + b**2)


def problem(alpha, a, b, w):
    """The larger of the share of the attribute that is left and the share of similarity that is lost, weighted."""
    similarity = np.sqrt(1 - alpha**2) * b + alpha * a
    return max(w * alpha / a, (1 - w) * (1 - similarity) / (1 - b))


def test_half_the_weight_gives_the_published_formula():
    b = np.sqrt(1 - LENGTHS**2)
    assert_allclose(kept_length(LENGTHS, b, 0.5), published(LENGTHS, b), rtol=1e-9)


@pytest.mark.parametrize("w", [0.05, 0.5, 0.8, 0.99])
@pytest.mark.parametrize("a", LENGTHS)
def test_the_kept_length_solves_the_problem_that_it_is_from(a, w):
    b = np.sqrt(1 - a**2)
    found = minimize_scalar(
        problem, bounds=(0, a), args=(a, b, w), method="bounded", options={"xatol": 1e-12}
    )
    alpha = float(kept_length(np.array([a]), np.array([b]), w)[0])
    assert problem(alpha, a, b, w) <= found.fun + 1e-9
    assert alpha == pytest.approx(found.x, abs=1e-6)


def test_rows_stay_on_the_sphere_and_in_their_plane(embeddings):
    e = embeddings(seed=1, n_classes=3, n_sensitive=3)
    model = Rotation().fit(3 * e.X, text=e.text, sensitive_text=2 * e.sensitive_text)
    basis = np.linalg.qr((e.sensitive_text[1:] - e.sensitive_text[0]).T)[0]
    assert model.basis_.shape == (2, 12)
    moved = model.transform(e.X)
    for x, u in zip(unit(e.X), moved, strict=True):
        along = basis @ (basis.T @ x)
        across = x - along
        alpha = published(np.linalg.norm(along), np.linalg.norm(across))
        assert_allclose(u, np.sqrt(1 - alpha**2) * unit(across) + alpha * unit(along), atol=1e-12)
    assert_allclose(np.linalg.norm(moved, axis=1), 1)
    assert_allclose(model.text_, model.transform(e.text), atol=1e-12)
    assert_allclose(model.scores(e.X), moved @ model.text_.T, atol=1e-12)


def test_weights_go_from_no_change_to_the_projection(embeddings):
    e = embeddings(seed=2)
    given = {"text": e.text, "sensitive_text": e.sensitive_text}
    left = [Rotation(w).fit(e.X, **given) for w in (0.0, 0.2, 0.5, 0.9, 1.0)]
    assert_allclose(left[0].transform(e.X), unit(e.X), atol=1e-12)
    assert_allclose(left[0].scores(e.X), ZeroShot().fit(e.X, text=e.text).scores(e.X), atol=1e-12)
    difference = e.sensitive_text[0] - e.sensitive_text[1]
    assert_allclose(left[-1].transform(e.X) @ difference, 0, atol=1e-12)
    sizes = [np.abs(model.transform(e.X) @ difference) for model in left]
    assert all((np.diff(sizes, axis=0) < 0).ravel())


def test_rows_with_one_part_only_do_not_change():
    basis = np.eye(3)[:1]
    for weight in (0.5, 1.0):
        for row in ([[1.0, 0.0, 0.0]], [[0.0, 0.6, 0.8]], [[-1.0, 1e-13, 0.0]]):
            assert_allclose(rotate(np.array(row), basis, weight), row, atol=1e-12)
    assert_allclose(rotate(np.array([[0.6, 0.8, 0.0]]), np.zeros((0, 3)), 0.5), [[0.6, 0.8, 0.0]])


def test_several_attributes_are_the_sum_of_their_spans(embeddings):
    e, rng = embeddings(seed=3), np.random.default_rng(3)
    age = unit(rng.normal(size=(3, 12)))
    prompts = {"sex": e.sensitive_text, "age": age}
    model = Rotation(1.0).fit(e.X, text=e.text, sensitive_text=prompts)
    crossed = np.array([a + b for a in e.sensitive_text for b in age])
    assert model.basis_.shape == (3, 12)
    assert_allclose(model.transform(e.X) @ (crossed - crossed[0]).T, 0, atol=1e-12)


def test_several_prompts_of_a_value_are_averaged(embeddings):
    e, rng = embeddings(seed=4), np.random.default_rng(4)
    several = [e.sensitive_text[v] + 0.2 * rng.normal(size=(3, 12)) for v in (0, 1)]
    model = Rotation().fit(e.X, text=e.text, sensitive_text=several)
    means = [unit(unit(rows).mean(axis=0)) for rows in several]
    assert abs(unit(means[1] - means[0]) @ model.basis_[0]) == pytest.approx(1)


def test_what_is_wrong_is_named(embeddings):
    e = embeddings()
    with pytest.raises(PromptError, match="give sensitive_text"):
        Rotation().fit(e.X, text=e.text, sensitive_features=e.s)
    for weight in (-0.1, 1.1, float("nan")):
        with pytest.raises(ParameterError, match="weight must be a number"):
            Rotation(weight).fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    model = Rotation().fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    for part in ("classifier", "image", "text"):
        with pytest.raises(ExportError, match="Rotation cannot be exported"):
            computation_of(model, part)


def test_a_sensitive_direction_in_a_class_prompt_loses_its_effect():
    rng = np.random.default_rng(5)
    y, s = np.arange(400) % 2, np.arange(400) // 2 % 2
    axes = np.eye(10)
    X = axes[y] + 1.5 * axes[2 + s] + 0.1 * rng.normal(size=(400, 10))
    given = {"text": axes[:2] + 0.8 * axes[2:4], "sensitive_text": axes[2:4]}
    plain, turned = (np.mean(m.fit(X, **given).predict(X) == y) for m in (ZeroShot(), Rotation()))
    assert plain < 0.65
    assert turned > 0.95


def test_classes_that_differ_in_what_is_removed_alone_are_named(embeddings):
    e = embeddings(seed=2, n_classes=3)
    with pytest.warns(TextCollapseWarning, match="difference of the prompts of classes 'a' and 'c' after"):
        model = Rotation(weight=1.0).fit(
            e.X, text=dict(zip("abc", e.text, strict=True)), sensitive_text=e.text[[0, 2]]
        )
    scores = model.scores(e.X)
    assert np.abs(scores[:, 0] - scores[:, 2]).max() < 1e-12
    Rotation().fit(e.X, text=e.text, sensitive_text=e.text[[0, 2]])
