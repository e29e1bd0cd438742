"""PPA: the projection, the pseudo-groups, and the probe over groups against a literal minimisation."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import log_softmax

from fairerclip.baselines import PPA, LinearProbe
from fairerclip.baselines.class_folds import class_folds
from fairerclip.baselines.logistic import Scaling

TIGHT = {"tol": 1e-8}


def projector(Z):
    return np.eye(Z.shape[1]) - Z.T @ np.linalg.inv(Z @ Z.T) @ Z


def biased(e, folds, first_C=0.01, seed=0):
    """What the biased probe predicts: fitted on projected rows of other folds, with the class prior divided out."""
    X, found = e.X @ projector(e.text), np.empty_like(e.y)
    fold = class_folds(e.y, folds, seed)
    for k in range(folds):
        learned = fold != k if folds > 1 else fold == k
        # Lengths differ after the projection, and a probe normalises rows: so the probe is fitted by hand.
        scaling = Scaling.of(X[learned], np.ones(learned.sum()), "scalar")
        coef, intercept = group_probe(scaling.apply(X[learned]), e.y[learned], first_C)
        scores = scaling.apply(X) @ coef.T + intercept - np.log(np.bincount(e.y[learned]) / learned.sum())
        found[fold == k] = scores.argmax(axis=1)[fold == k]
    return found


def group_probe(Z, group, C, correction=0.0):
    """Minimise ½‖W‖² + C·Σ CE(Wz + b + correction), literally; two groups have half of C, as scikit-learn's probe."""
    k, p = int(group.max()) + 1, Z.shape[1]
    C, Y = C / 2 if k == 2 else C, np.eye(k)[group]

    def objective(theta):
        W = theta.reshape(k, p + 1)
        logs = log_softmax(Z @ W[:, :-1].T + W[:, -1] + correction, axis=1)
        slope = C * (np.exp(logs) - Y).T
        gradient = np.column_stack([slope @ Z + W[:, :-1], slope.sum(axis=1)])
        return 0.5 * np.sum(W[:, :-1] ** 2) - C * np.sum(Y * logs), gradient.ravel()

    found = minimize(objective, np.zeros(k * (p + 1)), jac=True, method="BFGS", options={"gtol": 1e-8})
    W = found.x.reshape(k, p + 1)
    return W[:, :-1], W[:, -1]


@pytest.mark.parametrize(("n_classes", "folds"), [(2, 3), (3, 2), (2, 1)])
def test_it_equals_the_definition(embeddings, n_classes, folds):
    e = embeddings(seed=1, n_classes=n_classes, p=6)
    model = PPA(0.7, C=0.4, folds=folds, random_state=0, **TIGHT).fit(e.X, e.y, text=e.text)
    wrong = biased(e, folds) != e.y
    counts = [[int(np.sum((e.y == k) & (wrong == w))) for w in (False, True)] for k in range(n_classes)]
    assert model.diagnostics_["groups"] == counts
    assert np.min(counts) > 0
    # The correction is a part of the loss here, as in the paper; the model adds it to the intercepts.
    group = 2 * e.y + wrong
    correction = 0.7 * np.log(np.bincount(group) / len(group))
    scaling = Scaling.of(e.X, np.ones(len(e.y)), "scalar")
    W, b = group_probe(scaling.apply(e.X), group, 0.4, correction)
    summed = np.stack([W[2 * k] + W[2 * k + 1] for k in range(n_classes)])
    shift = np.stack([b[2 * k] + b[2 * k + 1] for k in range(n_classes)])
    expected = scaling.apply(e.X) @ summed.T + shift
    margins = 2 * (
        model.scores(e.X) - model.scores(e.X)[:, :1]
    )  # the mean of two groups is half of their sum
    assert_allclose(margins, expected - expected[:, :1], atol=1e-4)


def test_a_biased_probe_without_errors_leaves_the_classes(embeddings):
    e = embeddings(seed=5, n=40, p=100)
    model = PPA(first_C=100.0, folds=1, random_state=0).fit(e.X, e.y, text=e.text)
    assert "gets every row right" in model.diagnostics_["note"]
    probe = LinearProbe().fit(e.X, e.y)
    assert_allclose(model.coef_, probe.coef_, atol=1e-9)
    assert_allclose(model.intercept_, probe.intercept_ - np.log(np.bincount(e.y) / 40), atol=1e-9)
