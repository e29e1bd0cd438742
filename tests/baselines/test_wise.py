"""WiSE: zero-shot at one end, a probe at the other, and a straight line between."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip.baselines import LinearProbe, WiSE, ZeroShot


def centred(scores):
    return scores - scores.mean(axis=1, keepdims=True)


@pytest.mark.parametrize(("n_classes", "balance"), [(2, "group"), (4, None)])
def test_the_ends_are_zero_shot_and_the_probe(embeddings, n_classes, balance):
    e = embeddings(seed=1, n_classes=n_classes)
    X = 3 * e.X  # the heads see rows of length one
    options, groups = {"C": 0.2, "class_weight": balance}, {"sensitive_features": e.s}
    zero, probe = ZeroShot().fit(X, text=e.text), LinearProbe(**options).fit(e.X, e.y, **groups)
    ends = [WiSE(alpha, **options).fit(X, e.y, text=e.text, **groups) for alpha in (0, 1)]
    for end, other, scale in zip(ends, (zero, probe), ends[0].scales_, strict=True):
        assert_array_equal(end.predict(X), other.predict(e.X))
        assert_allclose(scale * end.scores(X), centred(other.scores(e.X)), atol=1e-10)
    assert np.any(ends[0].predict(X) != ends[1].predict(X))


def test_c_is_chosen_on_validation_rows(embeddings):
    e, grid = embeddings(seed=5, n=300, p=30), (1e-5, 1e-2, 10.0)
    v = (5 * e.X[80:], e.y[80:], e.s[80:])
    model = WiSE(C=grid).fit(e.X[:80], e.y[:80], text=e.text, validation=v)
    probe = LinearProbe(C=grid).fit(e.X[:80], e.y[:80], validation=(e.X[80:], *v[1:]))
    assert model.diagnostics_["C"] == probe.diagnostics_["C"]


def test_both_heads_are_equally_loud_whatever_c_is_and_scores_between_lie_on_a_line(embeddings):
    e = embeddings(seed=3, n_classes=3)
    for C in (1e-4, 100.0):
        low, high, between = (WiSE(a, C=C).fit(e.X, e.y, text=e.text).scores(e.X) for a in (0.0, 1.0, 0.3))
        for scores in (low, high):
            assert np.sqrt(np.mean((scores - scores.mean(axis=0)) ** 2)) == pytest.approx(1)
        assert_allclose(between, 0.7 * low + 0.3 * high, atol=1e-12)
