"""Mitigation mitigates; scikit-learn's checks of EmbeddingMitigator, and life inside its pipelines."""

import numpy as np
import pytest
from gallery import Gallery
from numpy.testing import assert_allclose
from scipy.stats import wilcoxon
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator

from fairerclip import EmbeddingMitigator
from fairerclip.data import load_task
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.metrics.retrieval.inside_groups import correlation_inside_groups
from fairerclip.metrics.retrieval.skew import max_skew

FITS = {
    "true values": lambda g: {"sensitive_features": g.named, "sensitive_text": g.text},
    "prompts": lambda g: {"sensitive_text": g.text},
    "labelled rows": lambda g: {"labelled": (g.X[:60], g.named[:60])},
}


@pytest.mark.parametrize("given", FITS)
def test_the_skew_of_free_queries_falls_on_new_rows(given):
    fit, new = (Gallery(n=900, p=24, n_queries=20, lean=0.8, seed=seed) for seed in (0, 1))
    fairer = EmbeddingMitigator(about=None).fit(fit.X, **FITS[given](fit))
    before, scores = new.X @ new.Q.T, fairer.scores(new.X, new.Q)
    skews = [np.asarray(max_skew(table, new.s, 100)) for table in (before, scores)]
    assert wilcoxon(skews[0], skews[1], alternative="greater").pvalue < 1e-4
    assert skews[1].mean() < 0.6 * skews[0].mean()
    assert correlation_inside_groups(before, scores, new.s).mean() > 0.8


@pytest.mark.real
def test_the_skew_of_free_queries_by_sex_falls_by_half_on_real_faces(real_data):
    task = load_task(real_data / "fairface.npz")
    Q = unit_rows(np.load(real_data / "fairface_queries.npz", allow_pickle=False)["text"].astype(np.float32))
    fairer = EmbeddingMitigator().fit(task.train.X, sensitive_text={"sex": task.sensitive["sex"].text})
    Q = Q[fairer.query_meaning(Q).mitigated]
    assert len(Q) > 50
    X, s = unit_rows(task.test.X), np.asarray(task.test.s["sex"])
    before, after = X @ Q.T, fairer.scores(X, Q)
    skews = [np.mean(max_skew(table, s, 1000)) for table in (before, after)]
    assert skews[1] < 0.5 * skews[0]
    assert correlation_inside_groups(before, after, s).mean() > 0.9


EXPECTED = {
    "check_estimators_dtypes": "one of its integer rows is zero, which has no direction: an error by contract",
}


def checks():
    for estimator, check in estimator_checks_generator(EmbeddingMitigator()):
        name = check.func.__name__ if hasattr(check, "func") else check.__name__
        details = "-".join(f"{k}={v}" for k, v in getattr(check, "keywords", {}).items())
        marks = pytest.mark.xfail(reason=EXPECTED[name], strict=True) if name in EXPECTED else ()
        yield pytest.param(estimator, check, id=f"{name}-{details}", marks=marks)


@pytest.mark.filterwarnings("ignore::fairerclip.errors.NoSensitiveWarning")
@pytest.mark.parametrize(("estimator", "check"), [*checks()])
def test_a_check_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("call", ["transform", "drift", "query_meaning", "save", "scores", "rank", "path"])
def test_an_unfitted_mitigator_says_so(call, tmp_path):
    given = {"save": (tmp_path / "m",), "scores": (np.eye(3),) * 2, "rank": (np.eye(3),) * 2}
    given["path"] = (np.eye(3), np.eye(3), [0, 1, 0])
    with pytest.raises(NotFittedError):
        getattr(EmbeddingMitigator(), call)(*given.get(call, (np.eye(3),)))


def test_a_pipeline_passes_sensitive_features_on():
    g = Gallery()
    y = (g.X[:, 0] > 0).astype(int)
    pipe = make_pipeline(EmbeddingMitigator(), LogisticRegression())
    pipe.fit(g.X, y, embeddingmitigator__sensitive_features=g.s)
    alone = EmbeddingMitigator().fit(g.X, sensitive_features=g.s)
    assert_allclose(pipe[:-1].transform(g.X), alone.transform(g.X))
