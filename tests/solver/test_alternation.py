"""Algorithm 1 against a slow reference that keeps n rows on both sides and solves D×D problems."""

from dataclasses import replace

import numpy as np
import pytest
from two_sides import SETTING, Case, naive_rounds

from fairerclip.errors import (
    LabelCycleWarning,
    NotConvergedWarning,
    RankWarning,
    TextCollapseError,
)
from fairerclip.solver import alternation
from fairerclip.solver.alternation import alternate
from fairerclip.solver.pairing import procrustes
from fairerclip.solver.rows import FeatureRows


def package_scores(case, result):
    encoders = result.last.encoders()
    Z = (case.features.transform(case.e.X) - encoders.mean) @ encoders.components
    return encoders.decision.scores(Z + encoders.intercept)


@pytest.mark.parametrize("decision", ["target", "prompts"])
@pytest.mark.parametrize("zero_shot", [None, 0.3, 1.0])
@pytest.mark.parametrize("scaling", ["spectral", "paper"])
@pytest.mark.parametrize(
    ("c", "v", "prompts", "criterion"),
    [(2, 2, 1, "marginal"), (2, 2, 3, "conditional"), (4, 3, 2, "marginal"), (3, 2, 1, "conditional")],
    ids=str,
)
def test_the_alternation_equals_the_naive_one_on_n_rows(
    embeddings, decision, zero_shot, scaling, c, v, prompts, criterion
):
    case = Case(embeddings, c=c, v=v, prompts_per_class=prompts, scores=zero_shot is not None)
    setting = replace(
        SETTING,
        scaling=scaling,
        criterion=criterion,
        n_components=c - 1,
        zero_shot=zero_shot or 0.0,
        decision=decision,
    )
    result = alternate(case.problem, case.y, setting)
    *_, (values, text_values, _, _, scores, _) = naive_rounds(
        case, setting, case.y, np.zeros(len(case.y), dtype=bool), len(result.history)
    )
    np.testing.assert_allclose(result.last.image.eigenvalues, values, rtol=1e-8)
    np.testing.assert_allclose(result.last.text.eigenvalues, text_values, rtol=1e-8)
    np.testing.assert_allclose(package_scores(case, result), scores, atol=1e-6 * np.abs(scores).max())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("scores", [False, True])
def test_two_classes_with_one_prompt_each_reach_the_closed_form_at_once(embeddings, seed, scores):
    # Centred scores of two classes have one direction, too, and the pairing goes along it.
    case = Case(embeddings, seed=seed, scores=scores)
    setting = replace(SETTING, zero_shot=0.5 * scores, decision="target")
    result = alternate(case.problem, case.y, setting)
    assert len(result.history) == 1
    assert result.converged
    lam = 0.6 / 0.4 / (1 + 0.5 / 0.5)  # λ_s / (1 + λ_z): the alignment term only rescales τ
    alone = alternate(case.problem, case.y, replace(setting, tau=lam / (1 + lam), tau_z=0.0))
    np.testing.assert_allclose(
        package_scores(case, result), package_scores(case, alone), rtol=1e-8, atol=1e-10
    )


def test_the_objective_never_falls_with_the_papers_scaling(embeddings):
    case = Case(embeddings, c=4, v=3, prompts_per_class=3)
    setting = replace(
        SETTING, scaling="paper", n_components=1, tau=0.5, tau_text=0.5, tau_z=0.9, tau_z_text=0.9
    )
    history = alternate(case.problem, case.y, setting).history
    # Eq. (4): the alignment term belongs to both sides and is counted once.
    J = [sum(h.image.values()) + sum(h.text.values()) - h.text["z"] for h in history]
    assert len(J) > 2
    assert np.all(np.diff(J) > -1e-9 * abs(J[0]))
    assert J[-1] > J[0]


def test_the_parts_of_the_objective_sum_to_the_eigenvalues(embeddings):
    case = Case(embeddings, c=3)
    last = alternate(case.problem, case.y, replace(SETTING, n_components=2)).last
    assert sum(last.image.parts.values()) == pytest.approx(last.image.eigenvalues.sum(), rel=1e-10)
    assert sum(last.text.parts.values()) == pytest.approx(last.text.eigenvalues.sum(), rel=1e-10)
    assert last.sides.image.residual(last.image) < 1e-10


def test_rbf_alignment_gives_a_sensible_and_deterministic_solution(embeddings):
    case = Case(embeddings, c=3)
    setting = replace(SETTING, alignment="rbf", n_components=2)
    a, b = (package_scores(case, alternate(case.problem, case.y, setting)) for _ in range(2))
    np.testing.assert_array_equal(a, b)
    assert np.mean(a.argmax(axis=1) == case.y) > 0.8


@pytest.mark.parametrize("prompts", [1, 3])
def test_refinement_ends_where_labels_and_predictions_agree(embeddings, prompts):
    case = Case(embeddings, prompts_per_class=prompts, correlation=0.3)
    rng = np.random.default_rng(0)
    noisy = np.where(rng.random(len(case.y)) < 0.2, 1 - case.y, case.y)
    everything = np.ones(len(case.y), dtype=bool)
    result = alternate(case.problem, noisy, SETTING, everything)
    assert result.converged
    assert result.history[0].label_changes > 0
    assert result.history[-1].label_changes == 0
    np.testing.assert_array_equal(result.labels, result.last.predict())
    assert np.mean(result.labels == case.y) > np.mean(noisy == case.y)


def test_a_cycle_of_labels_is_noticed(embeddings, monkeypatch):
    case = Case(embeddings)
    flip = case.y.copy()
    flip[:5] = 1 - flip[:5]
    answers = {case.y.tobytes(): flip, flip.tobytes(): case.y}
    monkeypatch.setattr(alternation.Round, "predict", lambda self: answers[self.sides.y.tobytes()])
    result = alternate(case.problem, case.y, SETTING, np.ones(len(case.y), dtype=bool))
    assert [kind for kind, _ in result.notes] == [LabelCycleWarning]
    assert len(result.history) == 2


def test_the_cap_is_a_note_when_labels_still_move(embeddings, monkeypatch):
    case = Case(embeddings)
    rng = np.random.default_rng(0)
    monkeypatch.setattr(alternation.Round, "predict", lambda self: rng.permutation(self.sides.y))
    result = alternate(case.problem, case.y, replace(SETTING, max_iter=3), np.ones(len(case.y), dtype=bool))
    assert not result.converged
    assert any(kind is NotConvergedWarning for kind, _ in result.notes)


def test_the_text_side_collapses_where_the_theory_says(embeddings):
    # With one prompt per class the S term is collinear with Y: 1 + λ_z − λ_s ≤ 0 leaves nothing.
    case = Case(embeddings)
    alternate(case.problem, case.y, replace(SETTING, tau_text=0.66, tau_z_text=0.5))
    with pytest.raises(TextCollapseError):
        alternate(case.problem, case.y, replace(SETTING, tau_text=0.67, tau_z_text=0.5))


def test_more_components_than_the_rank_is_a_note(embeddings):
    case = Case(embeddings)
    result = alternate(case.problem, case.y, replace(SETTING, n_components=5))
    assert any(kind is RankWarning for kind, _ in result.notes)
    assert result.last.encoders().components.shape[1] == len(result.last.image.eigenvalues) < 5


@pytest.mark.parametrize("seed", range(2))
def test_procrustes_is_the_best_of_many_rotations(seed):
    rng = np.random.default_rng(seed)
    source, target, w = rng.normal(size=(6, 3)), rng.normal(size=(6, 3)), rng.uniform(size=6)
    best = np.sum(w[:, None] * (source @ procrustes(source, target, w)) * target)
    for _ in range(200):
        q, _ = np.linalg.qr(rng.normal(size=(3, 3)))
        assert np.sum(w[:, None] * (source @ q) * target) <= best + 1e-12


def test_kept_features_change_nothing(embeddings):
    case = Case(embeddings)
    small = FeatureRows(case.features, case.e.X, dtype="float64", block_rows=37, budget=0)
    assert not small.kept
    assert case.problem.rows.kept
    mean, basis = np.zeros(40), np.eye(40)
    np.testing.assert_array_equal(small.project(mean, basis), case.problem.rows.project(mean, basis))
    np.testing.assert_array_equal(small.take(np.array([3, 5])), small.project(mean, basis)[[3, 5]])
