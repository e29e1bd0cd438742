"""Zero-shot scores from class prompts that have lost what the sensitive prompts span."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fairerclip import FairerCLIP
from fairerclip.baselines import OrthProj, ZeroShot
from fairerclip.inputs.prompts import without_span
from fairerclip.tuning.candidates import AS_ORTHOGONAL, AS_ZERO_SHOT


@pytest.mark.parametrize("seed", range(5))
def test_without_span_is_the_residual_of_least_squares(seed):
    rng = np.random.default_rng(seed)
    T, other = rng.normal(size=(3, 9)), rng.normal(size=(4, 9))
    other[3] = other[0] - other[1]  # a prompt that adds no direction
    coefficients = np.linalg.lstsq(other.T, T.T, rcond=None)[0]
    assert_allclose(without_span(T, other), T - (other.T @ coefficients).T, atol=1e-10)
    assert_allclose(without_span(T, other) @ other.T, 0, atol=1e-10)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_two_prompt_classifiers_are_points_of_the_model(embeddings, n_classes):
    e = embeddings(n=400, n_classes=n_classes, seed=3)
    given = {"text": e.text, "sensitive_text": e.sensitive_text}
    for parameters, baseline in ((AS_ZERO_SHOT, ZeroShot()), (AS_ORTHOGONAL, OrthProj())):
        model = FairerCLIP(**parameters, tau=0.0, dtype="float64", random_state=0).fit(e.X, **given)
        same = model.predict(e.X) == baseline.fit(e.X, **given).predict(e.X)
        assert same.mean() > 0.995  # a row on a boundary may fall on either side of a tiny ridge
