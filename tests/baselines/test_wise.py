"""WiSE: zero-shot at one end, a probe at the other, and a straight line between."""

import numpy as np
import pytest
from gradient_inputs import spurious
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip.baselines import LinearProbe, WiSE, ZeroShot
from fairerclip.metrics import group_report


def centred(scores):
    return scores - scores.mean(axis=1, keepdims=True)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_ends_are_zero_shot_and_the_probe(embeddings, n_classes):
    e = embeddings(seed=1, n_classes=n_classes)
    X = 3 * e.X  # the heads see rows of length one
    zero, probe = ZeroShot().fit(X, text=e.text), LinearProbe(C=0.2).fit(e.X, e.y)
    ends = [WiSE(alpha, C=0.2).fit(X, e.y, text=e.text) for alpha in (0, 1)]
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


def test_few_correlated_rows_gain_from_the_prompts_and_the_prompts_from_the_rows():
    worst, average = np.zeros(3), np.zeros(3)
    for seed in range(4):
        X, y, s, _ = spurious(seed, n=1200, correlation=0.9)
        test = slice(600, 1200)
        cells = [[X[(y == c) & (s == v)].mean(axis=0) for v in range(2)] for c in range(2)]
        text = np.mean(cells, axis=1) - np.mean(cells, axis=(0, 1))  # of the classes alone
        text += 0.15 * np.random.default_rng(seed).normal(size=text.shape)
        for place, model in enumerate((ZeroShot(), LinearProbe(), WiSE())):
            fitted = model.fit(X[:60], y[:60], text=text)
            report = group_report(y[test], fitted.predict(X[test]), s[test])
            worst[place] += report.worst.accuracy / 4
            average[place] += report.average / 4
    assert worst[2] > worst[1] + 0.1
    assert average[2] > average[0] + 0.05


def test_both_heads_are_equally_loud_whatever_c_is_and_scores_between_lie_on_a_line(embeddings):
    e = embeddings(seed=3, n_classes=3)
    for C in (1e-4, 100.0):
        low, high, between = (WiSE(a, C=C).fit(e.X, e.y, text=e.text).scores(e.X) for a in (0.0, 1.0, 0.3))
        for scores in (low, high):
            assert np.sqrt(np.mean((scores - scores.mean(axis=0)) ** 2)) == pytest.approx(1)
        assert_allclose(between, 0.7 * low + 0.3 * high, atol=1e-12)


def test_the_probe_may_balance_groups(embeddings):
    e = embeddings(seed=4, correlation=0.95)
    given = {"text": e.text, "sensitive_features": e.s}
    probe = LinearProbe(C=0.01, class_weight="group").fit(e.X, e.y, sensitive_features=e.s)
    end = WiSE(1.0, C=0.01, class_weight="group").fit(e.X, e.y, **given)
    assert_allclose(end.scales_[1] * end.scores(e.X), centred(probe.scores(e.X)), atol=1e-10)
    plain = WiSE(1.0, C=0.01).fit(e.X, e.y, **given)
    assert not np.allclose(end.scores(e.X), plain.scores(e.X), atol=1e-3)
