"""Conjugate gradients give the model that a Cholesky factor gives, whatever the data and the parameters."""

import warnings

import numpy as np
import pytest

from fairerclip import FairerCLIP
from fairerclip.errors import FairerClipWarning


def case(number, embeddings):
    """Return embeddings and parameters drawn from a number; each case differs from the others in many ways."""
    rng = np.random.default_rng(number)
    e = embeddings(seed=number, n=int(rng.integers(150, 1500)), n_classes=int(rng.integers(2, 5)))
    parameters = {
        "n_features": int(rng.integers(40, 900)),
        "n_components": 1 + number % 3,
        "gamma": float(10 ** rng.uniform(-4, -2)),
        "tau": float(rng.uniform(0, 0.9)),
        "tau_z": 0.3,
        "zero_shot": 0.0,
        "class_offsets": None,
        "criterion": ["marginal", "conditional"][number % 2],
        "class_weight": [None, "balanced", "group"][number % 3],
        "kernel": ["rbf", "orthogonal", "linear"][number // 2 % 3],
        "dtype": ["float32", "float64"][number // 4 % 2],
        "max_iter": 3,
        "refine": True,
        "random_state": number,
    }
    return e, parameters


@pytest.mark.parametrize(("number", "labels"), [(k, k % 3 > 0) for k in range(8)])
def test_components_and_predictions_of_both_solvers_agree(embeddings, number, labels):
    e, parameters = case(number, embeddings)
    given = {"sensitive_features": e.s} if labels else {"sensitive_text": e.sensitive_text}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairerClipWarning)
        direct, iterative = (
            FairerCLIP(solver=solver, **parameters).fit(e.X, e.y if labels else None, text=e.text, **given)
            for solver in ("cholesky", "cg")
        )
    U, V = direct.components_, iterative.components_
    assert np.linalg.norm(U - V) <= 1e-4 * np.linalg.norm(U)
    assert np.mean(direct.predict(e.X) == iterative.predict(e.X)) >= 0.9999
    found = iterative.diagnostics_
    assert 0 < found["solver_residual"] <= found["solver_tolerance"] <= 3e-6
