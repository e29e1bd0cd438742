"""Refinement of pseudo-labels, round by round, against Algorithm 1 on n rows with dense eigenproblems."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import eigh
from two_sides import GAMMA_TEXT, SETTING, Case, conditional_factor

from fairerclip.solver.alternation import alternate

ROUNDS = 5
GAMMA = 0.03
"""Enough that wrong labels are not learned by heart, with fewer rows than features, too."""


def naive_rounds(case, setting, y, free, rounds):
    """Algorithm 1 as printed, but for Z_T^(i+1) in the image half-step: every round builds the text rows anew.

    A row (image, prompt) stands for every prompt of the image's present class. Yields after each round eigenvalues of
    both sides, Z_I (n, r) and Z_T (c, r) turned onto it, and the labels that it predicts.
    """
    per_class = len(case.prompts.class_of) // case.c
    image_row = np.repeat(np.arange(len(y)), per_class)
    w = case.w[image_row] / per_class
    w = w / w.sum()
    Phi_I, psi = case.features.transform(case.e.X)[image_row], case.psi[image_row]
    Z_I = None
    for _ in range(rounds):
        prompt_row = np.concatenate([np.flatnonzero(case.prompts.class_of == k) for k in y])
        Phi_T, rows_y = case.prompts.Phi[prompt_row], y[image_row]
        onehot = np.eye(case.c)[rows_y]
        L_S = conditional_factor(rows_y, psi, w) if setting.criterion == "conditional" else psi

        def solve(Phi, gamma, side, Z, labels):
            weights = setting.weights(side)
            centred = Phi - w @ Phi
            C = centred.T @ (w[:, None] * centred) + gamma * np.eye(Phi.shape[1])
            B = np.zeros_like(C)
            for sigma, L in ((1.0, labels[0]), (-weights.sensitive, labels[1]), (weights.alignment, Z)):
                if L is None:
                    continue
                M = centred.T @ (w[:, None] * (L - w @ L))
                norm = np.linalg.norm(M, 2) ** 2
                if norm > 1e-20:
                    B += sigma * (M @ M.T) / (norm if setting.scaling == "spectral" else 1.0)
            values, U = eigh(B, C)
            values, U = values[::-1], U[:, ::-1]
            r = min(setting.n_components, int(np.sum(values > 1e-10 * np.abs(values).max())))
            return values[:r], centred @ U[:, :r]

        if Z_I is None:
            _, Z_I = solve(Phi_I, GAMMA, "image", None, (onehot, L_S))
        text_values, Z_T = solve(Phi_T, GAMMA_TEXT, "text", Z_I, (onehot, L_S))
        image_values, Z_I = solve(Phi_I, GAMMA, "image", Z_T, (onehot, L_S))
        u, _, vt = np.linalg.svd((w[:, None] * Z_T).T @ Z_I, full_matrices=False)
        means_I, means_T = (
            np.stack([w[rows_y == k] @ Z[rows_y == k] / w[rows_y == k].sum() for k in range(case.c)])
            for Z in (Z_I, Z_T @ (u @ vt))
        )
        zeros = (means_I.mean(axis=0), means_T.mean(axis=0)) if setting.zero == "balanced" else (0.0, 0.0)
        seen, directions = Z_I - zeros[0], means_T - zeros[1]
        cosines = seen @ (directions / np.linalg.norm(directions, axis=1, keepdims=True)).T
        predicted = cosines[::per_class].argmax(axis=1)
        y = np.where(free, predicted, y)
        yield image_values, text_values, Z_I[::per_class], means_T, y


def noisy(case, share, rng):
    """Labels of which a share is wrong."""
    wrong = (case.y + rng.integers(1, case.c, size=len(case.y))) % case.c
    return np.where(rng.random(len(case.y)) < share, wrong, case.y)


SHAPES = {
    "two classes, several prompts": {"c": 2, "v": 3, "prompts_per_class": 3, "n": 90},
    "three classes": {"c": 3, "v": 2, "prompts_per_class": 1, "n": 120},
    "fewer rows than features, three classes": {"c": 3, "v": 2, "prompts_per_class": 1, "n": 36},
}


@pytest.mark.parametrize("known", [0.0, 0.4], ids=["no labels", "some labels"])
@pytest.mark.parametrize("criterion", ["marginal", "conditional"])
@pytest.mark.parametrize("scaling", ["paper", "spectral"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_round_is_that_of_the_naive_algorithm(embeddings, shape, scaling, criterion, known):
    sizes = SHAPES[shape]
    case = Case(embeddings, **sizes, seed=5, correlation=0.5, gamma=GAMMA)
    rng = np.random.default_rng(7)
    free = rng.random(sizes["n"]) >= known
    start = np.where(free, noisy(case, 0.45, rng), case.y)
    zero = "mean" if criterion == "conditional" else "balanced"
    setting = replace(
        SETTING, scaling=scaling, criterion=criterion, n_components=sizes["c"] - 1, zero=zero, tau_z=0.4
    )
    Phi = case.features.transform(case.e.X)
    changed = 0
    for done, (values, text_values, Z_I, Z_T, labels) in enumerate(
        naive_rounds(case, setting, start, free, ROUNDS), 1
    ):
        assert np.all(np.bincount(labels, minlength=case.c) > 0)
        result = alternate(case.problem, start, replace(setting, max_iter=done), free)
        np.testing.assert_array_equal(result.labels, labels)
        np.testing.assert_allclose(result.last.image.eigenvalues, values, rtol=1e-8)
        if len(result.history) == done:
            np.testing.assert_allclose(result.last.text.eigenvalues, text_values, rtol=1e-8)
            changed += int(result.history[-1].label_changes > 0)
        else:  # where the text side would turn in its span alone, which changes nothing below, no round is run
            assert result.converged
        # Up to a rotation: the same inner products among images, and of images with prompts.
        found = result.last
        ours = (Phi - found.sides.image.mean) @ (found.sides.image.reduced.basis @ found.image.coefficients)
        np.testing.assert_allclose(ours @ ours.T, Z_I @ Z_I.T, atol=1e-8 * np.abs(Z_I @ Z_I.T).max())
        cross = Z_I @ Z_T.T
        np.testing.assert_allclose(ours @ found.text_vectors.T, cross, atol=1e-7 * np.abs(cross).max())
    # Else nothing was refined, or no text row was rebuilt twice.
    assert changed >= (2 if criterion == "marginal" and not known else 1)
    np.testing.assert_array_equal(labels[~free], case.y[~free])
