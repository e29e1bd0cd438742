"""Rankings by free queries before and after a method, for tests."""

import numpy as np

from fairerclip.baselines import ZeroShot
from fairerclip.metrics import correlation_inside_groups, max_skew


def skew_and_order(model, X, queries, s, k):
    """Mean MaxSkew@k of the queries before and after, and the mean rank correlation inside groups."""
    before = ZeroShot().fit(X, text=queries).query_scores(X, queries)
    after = model.query_scores(X, queries)
    first, last = (
        float(np.mean([max_skew(column, s, k=k) for column in scores.T])) for scores in (before, after)
    )
    return first, last, float(np.mean(correlation_inside_groups(before, after, s)))
