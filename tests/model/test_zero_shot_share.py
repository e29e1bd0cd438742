"""The zero-shot share of the target: a whole fit against dense algebra, its limits, and what None stands for."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import linalg

from fairerclip.inputs.prompts import prototypes, zero_shot_scores
from small_models import small


def cosines_of(X, text):
    rows, prompts = (a / np.linalg.norm(a, axis=1, keepdims=True) for a in (X, text))
    return rows @ prompts.T


def naive_scores(e, *, centred=True):
    cosines = cosines_of(e.X, e.text)
    return cosines - cosines.mean(axis=1, keepdims=True) if centred else cosines


class Dense:
    """Eq. (8) with nothing reduced: J, M, B and C as they are written, for a fitted model's features."""

    def __init__(self, e, m, share, weight):
        c, v = len(e.text), e.s.max() + 1
        self.w = weight / weight.sum()
        Phi = m.features_.transform(e.X)
        self.Phi = Phi - self.w @ Phi
        onehot, psi = np.eye(c)[e.y], np.eye(v)[e.s]
        self.V = naive_scores(e, centred=m.n_components is None or m.n_components < c)
        self.V = self.V * np.sqrt(self.variance(onehot) / self.variance(self.V))
        target = (1 - share) * onehot + share * self.V
        # z_T of the model's own fixed point; its rotation onto the image side leaves M Mᵀ as it is.
        terms = [(1.0, target), (-m.tau / (1 - m.tau), psi)]
        text_vectors = (m.text_features_.transform(e.text) - m.text_mean_) @ m.text_components_
        terms.append((m.tau_z / (1 - m.tau_z), target @ text_vectors))
        self.B = np.zeros((Phi.shape[1],) * 2)
        for sigma, L in terms:
            M = self.Phi.T @ (self.w[:, None] * (L - self.w @ L))
            self.B += sigma * M @ M.T / np.linalg.norm(M @ M.T, 2)
        self.C = self.Phi.T @ (self.w[:, None] * self.Phi) + m.gamma * np.eye(Phi.shape[1])
        values, U = linalg.eigh(self.B, self.C)
        self.values, self.U = values[::-1], U[:, ::-1]

    def variance(self, L):
        return np.sum(self.w @ (L - self.w @ L) ** 2)


@pytest.mark.parametrize(
    ("share", "n_classes", "n_sensitive", "class_weight"),
    [(0.25, 2, 2, None), (0.5, 3, 3, "balanced"), (1.0, 5, 2, None), (0.5, 2, 3, "balanced")],
)
def test_a_fit_equals_the_dense_eigenproblem(embeddings, share, n_classes, n_sensitive, class_weight):
    e = embeddings(n_classes=n_classes, n_sensitive=n_sensitive, n=300, correlation=0.6)
    m = small(zero_shot=share, class_weight=class_weight, tau=0.6, max_iter=200)
    m.fit(e.X, e.y, sensitive_features=e.s, text=e.text)
    weight = np.ones(300) if class_weight is None else 1 / np.bincount(e.y)[e.y]
    dense = Dense(e, m, share, weight)
    r = n_classes - 1
    # Cosines are float32 in the fit and float64 here.
    assert_allclose(m.eigenvalues_, dense.values[:r], rtol=1e-5)
    overlap = np.linalg.svd(m.components_.T @ dense.C @ dense.U[:, :r], compute_uv=False)
    assert_allclose(overlap, 1, atol=1e-5)
    # The decision, from the definition: class means and least squares of the scores on Z.
    Z = dense.Phi @ m.components_
    means = np.stack([Z[e.y == k].mean(axis=0) for k in range(n_classes)])
    slopes = (dense.w[:, None] * dense.V).T @ Z
    labels = (Z @ means.T - np.sum(means**2, axis=1) / 2) / n_classes
    expected = (1 - share) * labels + share * (Z @ slopes.T + dense.w @ dense.V)
    assert_allclose(m.scores(e.X), expected, atol=1e-5)


def test_room_for_every_class_keeps_what_prompts_have_in_common(embeddings, monkeypatch):
    monkeypatch.setattr("fairerclip.data.row_pass.BLOCK_ROWS", 70)
    e = embeddings(n_classes=3, n=300)
    assert_allclose(
        zero_shot_scores(e.X, prototypes(list(e.text[:, None])), centred=True), naive_scores(e), atol=1e-6
    )
    plain = zero_shot_scores(5 * e.X, prototypes(list(e.text[:, None])), centred=False)
    assert_allclose(plain, naive_scores(e, centred=False), atol=1e-6)
    assert plain.dtype == np.float32


# Limits ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 5])
def test_prompts_alone_and_no_penalty_are_the_zero_shot_classifier(embeddings, n_classes):
    e = embeddings(n_classes=n_classes, n=400)
    m = small(zero_shot=1.0, tau=0.0, tau_z=0.0, kernel="linear", gamma=1e-9)
    m.fit(e.X, e.y, sensitive_features=e.s, text=e.text)
    cosines = cosines_of(e.X, e.text)
    top = np.sort(cosines, axis=1)
    clear = top[:, -1] - top[:, -2] > 1e-4  # float32 cosines in the fit
    assert clear.sum() > 390
    assert_array_equal(m.predict(e.X)[clear], cosines.argmax(axis=1)[clear])
    # Not the classes alone: the scores are the centred cosines, up to one scale.
    scores, expected = m.scores(e.X), naive_scores(e)
    beta = np.sum(scores * expected) / np.sum(expected**2)
    assert beta > 0
    assert_allclose(scores, beta * expected, atol=1e-4 * np.abs(scores).max())


# What None stands for -------------------------------------------------------------------------------


@pytest.mark.parametrize(("known", "share"), [(240, 0.5), (130, 0.5), (80, 1.0), (None, 1.0)])
def test_none_is_a_half_where_labels_are_known_and_one_where_most_are_guesses(embeddings, known, share):
    e = embeddings(n_classes=3)
    given = {"sensitive_features": e.s, "text": e.text}
    y = None if known is None else [int(v) if i < known else None for i, v in enumerate(e.y)]
    default, same = (small(zero_shot=z).fit(e.X, y, **given) for z in (None, share))
    assert default.zero_shot_ == share
    assert_array_equal(default.scores(e.X), same.scores(e.X))


@pytest.mark.parametrize("share", [None, 1.0])
def test_without_text_there_is_nothing_to_share(embeddings, share):
    e = embeddings(n_classes=3)
    a, b = (small(zero_shot=z).fit(e.X, e.y, sensitive_features=e.s) for z in (share, 0.0))
    assert_array_equal(a.scores(e.X), b.scores(e.X))
