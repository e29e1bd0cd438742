"""BendVLM: equal means of the nearest images, the best query that has them, and the directions of the first step."""

from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize

from fairerclip.baselines import BendVLM
from fairerclip.baselines.bend_vlm import equalised
from fairerclip.baselines.orth_proj import project, span
from fairerclip.data.embedding_rows import unit_rows


@pytest.mark.parametrize("n_values", [2, 3])
def test_the_closed_form_is_the_solution_of_the_published_problem(n_values):
    rng = np.random.default_rng(n_values)
    e0, means = unit_rows(rng.normal(size=(1, 6)))[0], 0.3 * rng.normal(size=(n_values, 6))
    ours = unit_rows(equalised(e0, means)[None])[0]
    constraints = [
        {"type": "eq", "fun": lambda e: e @ e - 1},
        *({"type": "eq", "fun": lambda e, m=m: e @ (m - means[0])} for m in means[1:]),
    ]
    found = minimize(lambda e: -e @ e0, e0, method="SLSQP", constraints=constraints, options={"ftol": 1e-14})
    assert found.success
    assert_allclose(ours, found.x, atol=1e-5)
    assert_allclose(means @ ours, means[0] @ ours, atol=1e-12)


@pytest.mark.parametrize(("n_sensitive", "n", "p"), [(2, 300, 12), (3, 50, 80)])
def test_a_bent_query_is_equally_similar_to_its_nearest_images_of_each_value(embeddings, n_sensitive, n, p):
    e = embeddings(seed=1, n=n, p=p, n_sensitive=n_sensitive)
    model = BendVLM(7, random_state=0).fit(
        e.X, text=e.text, sensitive_features=e.s, sensitive_text=e.sensitive_text
    )
    queries = unit_rows(np.random.default_rng(0).normal(size=(3, p)))
    rows = unit_rows(e.X).astype(np.float32).astype(float)
    for t, bent in zip(queries, model.transform_text(queries), strict=True):
        projected = project(t[None], model._local(t))[0]
        means = []
        for value in range(n_sensitive):
            group = rows[e.s == value]
            means.append(group[np.argsort(-(group @ projected))[:7]].mean(axis=0))
        assert np.ptp(np.array(means) @ projected) > 1e-3
        assert np.ptp(np.array(means) @ bent) < 1e-7


def test_the_directions_are_those_of_the_sentences_where_there_are_any(embeddings):
    e = embeddings(seed=2, p=20)
    rng = np.random.default_rng(2)
    sentences = {0: rng.normal(size=(2, 20)), 1: rng.normal(size=(3, 20))}
    given = {"text": e.text, "sensitive_text": e.sensitive_text, "counterfactual_text": sentences}
    model = BendVLM(random_state=0).fit(e.X, **given)
    assert model.diagnostics_["directions"] == "counterfactual sentences"
    unit = {k: unit_rows(v) for k, v in sentences.items()}
    plain = unit_rows(e.sensitive_text)
    basis = span(
        np.array(
            [
                plain[0] - plain[1],
                unit[0][0] - unit[0][1],
                *(unit[1][i] - unit[1][j] for i, j in [(0, 1), (0, 2), (1, 2)]),
            ]
        )
    )
    query = unit_rows(rng.normal(size=(1, 20)))
    e0 = project(query, basis)[0]
    assert_allclose(model.transform_text(query), unit_rows(equalised(e0, model._means(e0))[None]), atol=1e-12)


def test_reference_images_are_equally_many_of_each_value_and_drawn_by_weight(embeddings):
    e = embeddings(seed=5, n=300)
    given = {"text": e.text, "sensitive_features": e.s}
    model = BendVLM(max_reference=20, random_state=1).fit(e.X, **given)
    assert_array_equal(np.bincount(model.reference_groups_.astype(int)), [20, 20])
    weight = np.where(np.arange(300) < 150, 0.0, 1.0)
    weight[150:160] = 50.0
    heavy = BendVLM(max_reference=40, random_state=1).fit(e.X, sample_weight=weight, **given).reference_
    rows = unit_rows(e.X).astype(np.float32)
    numbers = np.array([np.abs(rows - row).sum(axis=1).argmin() for row in heavy])
    assert numbers.min() >= 150
    assert np.mean(numbers < 160) > 0.5


def test_composed_directions_are_those_that_plain_and_composed_differences_share_most(embeddings):
    e = embeddings(seed=3, p=30, n_sensitive=4)
    model = BendVLM(random_state=0).fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    query = unit_rows(np.random.default_rng(1).normal(size=(1, 30)) + 0.5 * e.sensitive_text[:1])[0]
    values, composed = unit_rows(e.sensitive_text), unit_rows(query + unit_rows(e.sensitive_text))
    pairs = list(combinations(range(4), 2))
    both = [*(values[a] - values[b] for a, b in pairs), *((composed[a] - composed[b]) / 2 for a, b in pairs)]
    expected = np.linalg.svd(np.array(both))[2][:3]
    basis = model._local(query)
    assert_allclose(basis.T @ basis, expected.T @ expected, atol=1e-10)
    assert np.linalg.norm(project(query[None], basis)) > 0.8  # the query itself is kept
