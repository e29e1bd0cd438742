"""MaxSkew of many queries: the figures of `retrieval_changes`, without those that take longer."""

import numpy as np
import pytest

from fairerclip.metrics import query_skews, retrieval_changes, retrieval_report


@pytest.fixture(scope="module")
def gallery():
    rng = np.random.default_rng(0)
    groups = rng.choice(["a", "b", "c"], size=90, p=[0.5, 0.3, 0.2])
    before = rng.normal(size=(90, 3)) + (groups == "a")[:, None]
    after = before - 0.9 * (groups == "a")[:, None] + 0.2 * rng.normal(size=(90, 3))
    after[:, 2] = before[:, 2]
    return before, after, groups


@pytest.mark.parametrize("reference", ["population", "uniform"])
def test_figures_and_intervals_are_those_of_the_full_report(gallery, reference):
    before, after, groups = gallery
    options = {"reference": reference, "random_state": 3, "n_replicates": 100}
    found, full = (f(before, after, groups, 20, **options) for f in (query_skews, retrieval_changes))
    assert found.before == tuple(query.figures.max_skew for query in full.before.queries)
    assert found.after == tuple(query.figures.max_skew for query in full.after.queries)
    assert found.changes == tuple(change["max_skew"] for change in full.changes)
    assert found.clear == full.clear
    assert found.kept == pytest.approx([drift.overlap.value for drift in full.drift])
    assert found.counts_after.tolist() == [list(query.counts) for query in full.after.queries]
    assert (found.groups, found.shares) == (full.before.groups, full.before.shares)


def test_without_other_scores_there_is_only_before(gallery):
    before, _, groups = gallery
    found = query_skews(before, None, groups, 20, random_state=3, n_replicates=100)
    full = retrieval_report(before, groups, 20, random_state=3, n_replicates=100)
    assert found.before == tuple(query.figures.max_skew for query in full.queries)
    assert (found.after, found.changes, found.clear, found.kept, found.counts_after) == (None,) * 5
