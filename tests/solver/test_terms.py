import numpy as np
import pytest

from fairerclip.solver.moments import Moments
from fairerclip.solver.terms import (
    Attribute,
    LabelDesign,
    LabelMoments,
    alignment_map,
    conditional_map,
    marginal_map,
    scores_map,
    target_map,
)


def setup(seed=0, n=80, D=6, c=3, q=(4, 2), scores=None):
    rng = np.random.default_rng(seed)
    y = rng.integers(c, size=n)
    w = rng.uniform(0.1, 1.0, size=n)
    w /= w.sum()
    onehot = np.eye(q[0])[rng.integers(q[0], size=n)]
    attributes = (Attribute("kind", onehot), Attribute("size", rng.normal(size=(n, q[1]))))
    Phi = rng.normal(size=(n, D)) + 3.0
    design = LabelDesign(y, c, attributes, scores)
    moments = Moments(D, design.n_columns).update(Phi, design.rows(slice(0, n)), w).finalise()
    return Phi, y, w, attributes, moments, LabelMoments.of(design, w)


def with_scores(seed=0, dtype="float64"):
    """The same with zero-shot scores V, and all label columns J (n, K) written out."""
    rng = np.random.default_rng(seed + 30)
    _, y, w, attributes, _, _ = setup(seed)
    # Scores that know something of y, with an offset of their own per class, in the precision they come in.
    V = (rng.normal(size=(len(y), 3)) + 2 * np.eye(3)[y] + np.arange(3)).astype(dtype)
    Phi, *_, moments, table = setup(seed, scores=V)
    inner = np.column_stack([np.ones(len(y)), *(a.psi for a in attributes)])
    V = V.astype(np.float64)
    J = np.column_stack([*(inner * (y == k)[:, None] for k in range(3)), V])
    return Phi, y, w, V, J, moments, table


def factor(Phi, w, L):
    """M = Φ_cᵀ W L_c, on all rows at once."""
    return (Phi - w @ Phi).T @ (w[:, None] * (L - w @ L))


def spread(w, L):
    """Tr Cov(L), on all rows at once."""
    return np.sum(w @ (L - w @ L) ** 2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(2))
def test_the_scores_map_gives_the_scores_with_the_spread_of_the_labels(seed, dtype):
    Phi, y, w, V, _, moments, table = with_scores(seed, dtype)
    beta = np.sqrt(spread(w, np.eye(3)[y]) / spread(w, V))
    assert table.has_scores
    np.testing.assert_allclose(moments.cross @ scores_map(table), factor(Phi, w, beta * V), atol=1e-12)
    assert table.variance(scores_map(table)) == pytest.approx(spread(w, np.eye(3)[y]), rel=1e-10)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("seed", range(2))
def test_the_target_map_blends_labels_and_scores(seed, share):
    Phi, y, w, V, _, moments, table = with_scores(seed)
    beta = np.sqrt(spread(w, np.eye(3)[y]) / spread(w, V))
    L = (1 - share) * np.eye(3)[y] + share * beta * V
    np.testing.assert_allclose(moments.cross @ target_map(table, share), factor(Phi, w, L), atol=1e-12)
    assert table.variance(target_map(table, share)) == pytest.approx(spread(w, L), rel=1e-10)


def test_scores_that_do_not_vary_leave_the_labels():
    rng = np.random.default_rng(0)
    y, w = rng.integers(2, size=40), np.full(40, 1 / 40)
    design = LabelDesign(y, 2, (), np.full((40, 2), 0.3))
    table = LabelMoments.of(design, w)
    assert table.variance(scores_map(table)) == 0
    assert table.variance(target_map(table, 0.5)) == pytest.approx(0.25 * spread(w, np.eye(2)[y]), rel=1e-10)


@pytest.mark.parametrize("seed", range(2))
def test_the_moments_of_a_table_with_scores_are_those_of_its_columns(seed):
    _, _, w, _, J, _, table = with_scores(seed)
    np.testing.assert_allclose(table.second(np.eye(J.shape[1])), J.T @ (w[:, None] * J), atol=1e-13)
    np.testing.assert_allclose(table.means, w @ J, atol=1e-13)
    A = np.random.default_rng(seed + 7).normal(size=(J.shape[1], 4))
    assert table.variance(A) == pytest.approx(spread(w, J @ A), rel=1e-10)


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
    table = LabelMoments.of(design, np.ones(40))
    assert conditional_map(table, table.slices[0]).shape == (6, 2)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_the_alignment_pairs_images_with_all_prompts_as_far_as_their_scores_say(share):
    Phi, y, w, V, _, moments, table = with_scores()
    other = np.random.default_rng(5).normal(size=(3, 2))
    beta = np.sqrt(spread(w, np.eye(3)[y]) / spread(w, V))
    paired = (1 - share) * other[y] + share * beta * V @ other
    M = moments.cross @ alignment_map(target_map(table, share), other)
    np.testing.assert_allclose(M, factor(Phi, w, paired), atol=1e-12)


def test_class_shares_and_means_are_those_of_the_rows():
    _, y, w, attributes, _, table = setup()
    for k in range(3):
        inside = y == k
        assert table.class_share[k] == pytest.approx(w[inside].sum())
        mean = w[inside] @ attributes[1].psi[inside] / w[inside].sum()
        np.testing.assert_allclose(table.class_means[k, table.slices[1]], mean)
