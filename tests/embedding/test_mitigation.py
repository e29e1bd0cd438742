"""Mitigation mitigates: the skew of free queries falls, and the order inside groups stays."""

import numpy as np
import pytest
from gallery import Gallery
from scipy.stats import wilcoxon
from sklearn.linear_model import LogisticRegression

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


def test_a_probe_learns_s_from_scores_before_and_no_linear_probe_does_after():
    g = Gallery(n=600, v=3)
    after = EmbeddingMitigator(1, about=None).fit(g.X, sensitive_features=g.s).transform(g.X)
    chance = np.bincount(g.s).max() / 600

    def learned(rows):
        probe = LogisticRegression(C=1e4, max_iter=5000).fit(rows, g.s)
        return probe.score(rows, g.s)

    assert learned(g.X) > 0.9
    # Groups have the same means, so that a linear probe of the rows of the fit has nothing to learn.
    assert learned(after) < chance + 0.03


@pytest.mark.real
def test_the_skew_of_free_queries_by_sex_falls_by_half_on_real_faces(real_data):
    task = load_task(real_data / "fairface.npz")
    Q = unit_rows(np.load(real_data / "fairface_queries.npz", allow_pickle=False)["text"].astype(np.float32))
    prompts = task.sensitive["sex"].text
    fairer = EmbeddingMitigator().fit(task.train.X, sensitive_text={"sex": prompts})
    Q = Q[fairer.query_meaning(Q).mitigated]
    assert len(Q) > 50
    X, s = unit_rows(task.test.X), np.asarray(task.test.s["sex"])
    before, after = X @ Q.T, fairer.scores(X, Q)
    skews = [np.mean(max_skew(table, s, 1000)) for table in (before, after)]
    assert skews[1] < 0.5 * skews[0]
    assert correlation_inside_groups(before, after, s).mean() > 0.9
