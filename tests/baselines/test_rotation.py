"""Closed-form rotation: the kept length is the published formula, and the minimiser of the problem it is from."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize_scalar

from fairerclip.baselines import Rotation, ZeroShot
from fairerclip.baselines.rotation import kept_length, rotate


def unit(a):
    return a / np.linalg.norm(a, axis=-1, keepdims=True)


def published(a, b):
    E = a + (1 - b) / a
    return (E - b * np.sqrt(E**2 - a**2)) / (E**2 + b**2)


def problem(alpha, a, b, w):
    """The larger of the share of the attribute that is left and the share of similarity that is lost, weighted."""
    similarity = np.sqrt(1 - alpha**2) * b + alpha * a
    return max(w * alpha / a, (1 - w) * (1 - similarity) / (1 - b))


def test_the_kept_length_solves_the_problem_that_it_is_from():
    for a in (0.01, 0.3, 0.7, 0.999):
        for w in (0.05, 0.5, 0.8, 0.99):
            b = np.sqrt(1 - a**2)
            found = minimize_scalar(
                problem, bounds=(0, a), args=(a, b, w), method="bounded", options={"xatol": 1e-12}
            )
            assert float(kept_length(np.array([a]), np.array([b]), w)[0]) == pytest.approx(found.x, abs=1e-6)


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
