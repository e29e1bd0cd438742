"""Refinement of pseudo-labels, round by round, against Algorithm 1 on n rows with dense eigenproblems."""

from dataclasses import replace

import numpy as np
import pytest
from two_sides import SETTING, Case, naive_rounds

from fairerclip.solver.alternation import alternate

ROUNDS = 5
GAMMA = 0.03
"""Enough that wrong labels are not learned by heart, with fewer rows than features, too."""


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
    for done, (values, text_values, Z_I, Z_T, _, labels) in enumerate(
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
