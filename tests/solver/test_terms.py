import numpy as np
import pytest

from fairerclip.solver.moments import Moments
from fairerclip.solver.terms import (
    Attribute,
    LabelDesign,
    LabelTable,
    alignment_map,
    conditional_map,
    marginal_map,
    target_map,
)


def setup(seed=0, n=80, D=6, c=3, q=(4, 2)):
    rng = np.random.default_rng(seed)
    y = rng.integers(c, size=n)
    w = rng.uniform(0.1, 1.0, size=n)
    w /= w.sum()
    onehot = np.eye(q[0])[rng.integers(q[0], size=n)]
    attributes = (Attribute("kind", onehot), Attribute("size", rng.normal(size=(n, q[1]))))
    Phi = rng.normal(size=(n, D)) + 3.0
    design = LabelDesign(y, c, attributes)
    moments = Moments(D, design.n_columns).update(Phi, design.rows(slice(0, n)), w).finalise()
    return Phi, y, w, attributes, moments, LabelTable.of(moments.labels, design)


def factor(Phi, w, L):
    """M = Φ_cᵀ W L_c, on all rows at once."""
    return (Phi - w @ Phi).T @ (w[:, None] * (L - w @ L))


@pytest.mark.parametrize("seed", range(4))
def test_the_target_map_gives_the_one_hot_factor(seed):
    Phi, y, w, _, moments, table = setup(seed)
    np.testing.assert_allclose(moments.cross @ target_map(table), factor(Phi, w, np.eye(3)[y]), atol=1e-13)


@pytest.mark.parametrize("which", [0, 1])
def test_the_marginal_map_gives_the_attribute_factor(which):
    Phi, _, w, attributes, moments, table = setup()
    M = moments.cross @ marginal_map(table, table.slices[which])
    np.testing.assert_allclose(M, factor(Phi, w, attributes[which].psi), atol=1e-13)


@pytest.mark.parametrize("which", [0, 1])
def test_the_conditional_map_centres_and_scales_inside_each_class(which):
    Phi, y, w, attributes, moments, table = setup()
    expected = []
    for k in range(3):
        inside = y == k
        share = w[inside].sum()
        v = w[inside] / share
        L = attributes[which].psi[inside]
        centred = L - v @ L
        spread = np.sum(v @ centred**2)
        features = Phi[inside] - v @ Phi[inside]
        expected.append(features.T @ (w[inside][:, None] * centred) / (share * np.sqrt(spread)))
    M = moments.cross @ conditional_map(table, table.slices[which])
    np.testing.assert_allclose(M, np.concatenate(expected, axis=1), atol=1e-12)


def test_a_class_in_which_s_is_constant_contributes_nothing():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 20)
    s = np.where(y == 0, 0, rng.integers(2, size=40))
    design = LabelDesign(y, 2, (Attribute("s", np.eye(2)[s]),))
    J = design.rows(slice(0, 40))
    table = LabelTable.of(J.T @ J / 40, design)
    assert conditional_map(table, table.slices[0]).shape == (6, 2)


def test_the_alignment_map_pairs_images_with_the_prompts_of_their_class():
    Phi, y, w, _, moments, table = setup()
    other = np.random.default_rng(5).normal(size=(3, 2))
    np.testing.assert_allclose(
        moments.cross @ alignment_map(table, other), factor(Phi, w, other[y]), atol=1e-13
    )


def test_the_variance_of_a_map_is_that_of_its_label_factor():
    _, _, w, attributes, _, table = setup()
    L = attributes[1].psi
    expected = np.sum(w @ (L - w @ L) ** 2)
    assert table.variance(marginal_map(table, table.slices[1])) == pytest.approx(expected, rel=1e-12)


def test_class_shares_and_means_are_those_of_the_rows():
    _, y, w, attributes, _, table = setup()
    for k in range(3):
        inside = y == k
        assert table.class_share[k] == pytest.approx(w[inside].sum())
        mean = w[inside] @ attributes[1].psi[inside] / w[inside].sum()
        np.testing.assert_allclose(table.class_means[k, table.slices[1]], mean)
