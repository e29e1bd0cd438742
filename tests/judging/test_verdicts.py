"""What labelled rows tell of many models at once is what they tell of each model alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fairerclip.judging.evidence import Evidence
from fairerclip.judging.objectives import OBJECTIVES, Objective, judge_scores
from fairerclip.judging.verdicts import Verdicts


def rows_of(seed, n, n_classes, n_groups):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(n_classes), rng.integers(n_classes, size=n - n_classes)])
    evidence = Evidence(y, rng.dirichlet(np.full(n_groups, 0.4), size=n), n_classes, rng.normal(size=n))
    scores = rng.normal(size=(5, n, n_classes)) + np.eye(n_classes)[y]
    scores[0, ::3] = 0.5  # equal scores: the first class wins
    return evidence, scores.astype(np.float32)


def counted(evidence, scores):
    """Expected numbers of right rows of one model, in a loop over rows."""
    out = np.zeros(evidence.counts.shape)
    for y, P, own in zip(evidence.y, evidence.groups, scores, strict=True):
        if int(own.argmax()) == y:
            out[y] += P
    return out


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 10**6), st.integers(12, 60), st.integers(2, 4), st.integers(1, 3))
def test_all_models_at_once_are_each_model_alone(seed, n, n_classes, n_groups):
    evidence, scores = rows_of(seed, n, n_classes, n_groups)
    for name in OBJECTIVES:
        goal = Objective(name)
        found = Verdicts.of(evidence, goal, scores)
        for g, own in enumerate(scores):
            assert_allclose(found.hits[g], counted(evidence, own), atol=1e-12)
            assert_allclose(found.draws[g], judge_scores(evidence, goal, own[None])[0], atol=1e-6)
            figure = goal.figures(found.hits, evidence.counts)[g]
            assert figure == pytest.approx(goal.figure(evidence, own), nan_ok=True)
        parts = [Verdicts.of(evidence, goal, scores[:2]), Verdicts.of(evidence, goal, scores[2:])]
        joined = Verdicts.joined(parts)
        assert_allclose(joined.draws, found.draws, atol=1e-6)
        assert_allclose(joined.at(3).hits[0], found.hits[3])
