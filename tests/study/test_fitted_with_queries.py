"""Methods for rankings that learn from the queries of a comparison, as docs/explanation/baselines.md says."""

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

from fairerclip.study.method import make
from fairerclip.study.methods import EMBEDDING
from fairerclip.study.ranking_run import ranking_methods
from light import smaller_forests

small_forests = pytest.fixture(scope="module", autouse=True)(smaller_forests)
METHODS = {method.key: method for method in ranking_methods() if method.key != EMBEDDING}
LEARN = {"orth-cali", "prism", "roboshot", "fairclip-2022", "prompt-debiasing"}
USE_THE_MEAN = {"sfid", "spd"}


def scores(method, e, text):
    """Scores of two queries that are not in ``text``."""
    model = make(method, method.candidates[0], seed=0, max_steps=4)
    model.fit(e.X, text=text, sensitive_features=e.s, sensitive_text=e.sensitive_text)
    return model.query_scores(e.X, np.random.default_rng(3).normal(size=(2, e.X.shape[1])))


@pytest.mark.parametrize("key", METHODS)
def test_only_these_methods_answer_other_queries_differently_after_a_fit_with_other_queries(embeddings, key):
    method = METHODS[key]
    if method.gradient and find_spec("torch") is None:
        pytest.skip("training by gradient needs torch")
    if key == "prompt-debiasing":  # the adversary alone learns at first
        method = replace(method, candidates=[{"warm_up": 0}])
    e = embeddings(n=120)
    other = np.random.default_rng(1).normal(size=(4, 12))
    equal = np.allclose(scores(method, e, e.text), scores(method, e, other), rtol=0, atol=1e-9)
    assert equal == (key not in LEARN | USE_THE_MEAN)


@pytest.mark.parametrize("key", sorted(USE_THE_MEAN))
def test_fills_depend_on_the_mean_of_the_queries_alone(embeddings, key):
    e = embeddings(n=120)
    axes = np.eye(12)
    pairs = [
        np.stack([axes[0] + axes[k], axes[0] - axes[k]]) for k in (1, 2)
    ]  # unit rows of both have one mean
    first, second = (scores(METHODS[key], e, pair) for pair in pairs)
    np.testing.assert_allclose(first, second, atol=1e-9)
