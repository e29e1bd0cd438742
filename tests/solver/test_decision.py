"""From embeddings to classes, against formulas written out class by class."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip.solver.decision import Decision


def means(seed=0, c=4, r=3):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(c, r)), rng.normal(size=(c, r)), rng.normal(size=(50, r))


def prompts_rule(seed=0, c=4, r=3, present=None, kind="balanced"):
    image, text, Z = means(seed, c, r)
    present = np.ones(c, dtype=bool) if present is None else present
    zeros = image[present].mean(axis=0), text[present].mean(axis=0)
    if kind == "mean":
        zeros = np.zeros(r), np.zeros(r)
    return Decision.of(text, present, zeros), image, text, Z


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["balanced", "mean"])
def test_the_papers_rule_is_the_largest_cosine_from_the_zero(seed, kind):
    rule, image, text, Z = prompts_rule(seed, kind=kind)
    zero, text_zero = (image.mean(axis=0), text.mean(axis=0)) if kind == "balanced" else (0.0, 0.0)
    for k in range(4):
        a, b = Z - zero, text[k] - text_zero
        cosine = a @ b / (np.linalg.norm(a, axis=1) * np.linalg.norm(b))
        assert_allclose(rule.cosines(Z)[:, k], cosine, atol=1e-12)
        assert_allclose(rule.scores(Z)[:, k], a @ b / np.linalg.norm(b), atol=1e-12)
    assert_array_equal(rule.scores(Z).argmax(axis=1), rule.cosines(Z).argmax(axis=1))


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_target_rule_is_a_blend_of_class_means_and_predicted_scores(seed, share):
    rule, image, _, Z = prompts_rule(seed)
    rng = np.random.default_rng(seed + 9)
    slopes, constants = rng.normal(size=(4, 3)), rng.normal(size=4)
    target = rule.by_target(image, np.ones(4, dtype=bool), share, (slopes, constants))
    for k in range(4):
        labels = (Z @ image[k] - image[k] @ image[k] / 2) / 4
        prompts = Z @ slopes[k] + constants[k]
        assert_allclose(target.scores(Z)[:, k], (1 - share) * labels + share * prompts, atol=1e-12)
    assert_array_equal(target.cosines(Z), rule.cosines(Z))  # the paper's cosines stay beside it


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_a_class_without_rows_is_scored_by_its_prompt_alone(share):
    present = np.array([True, False, True, True])
    rule, image, _, Z = prompts_rule(present=present)
    image[1] = 0  # as a side has it
    rng = np.random.default_rng(3)
    slopes, constants = rng.normal(size=(4, 3)), rng.normal(size=4)
    scores = rule.by_target(image, present, share, (slopes, constants)).scores(Z)
    assert_allclose(scores[:, 1], Z @ slopes[1] + constants[1], atol=1e-12)
    labels = (Z @ image[2] - image[2] @ image[2] / 2) / 3  # three classes have rows
    assert_allclose(scores[:, 2], (1 - share) * labels + share * (Z @ slopes[2] + constants[2]), atol=1e-12)


@pytest.mark.parametrize("c", [2, 3, 6])
def test_a_moved_origin_changes_no_score_and_no_cosine(c):
    rule, image, _, Z = prompts_rule(c=c, r=c - 1)
    step = np.random.default_rng(5).normal(size=c - 1)
    for decision in (rule, rule.by_target(image, np.ones(c, dtype=bool), 0.0, None)):
        moved = decision.moved(step)
        assert_allclose(moved.scores(Z + step), decision.scores(Z), atol=1e-12)
        assert_allclose(moved.cosines(Z + step), decision.cosines(Z), atol=1e-12)


@pytest.mark.parametrize("c", [2, 3, 6])
def test_after_the_step_of_the_origin_inner_products_decide(c):
    rule, image, _, Z = prompts_rule(c=c, r=c - 1)
    target = rule.by_target(image, np.ones(c, dtype=bool), 0.0, None).with_offsets(np.linspace(-1, 2, c))
    step = target.origin_step()
    moved = target.moved(step)
    assert_allclose(moved.constants, moved.constants[0], atol=1e-10)
    products = (Z + step) @ moved.weights.T
    assert_array_equal(products.argmax(axis=1), target.scores(Z).argmax(axis=1))


def test_too_few_dimensions_for_the_boundaries_get_a_constant_coordinate():
    rule, image, _, Z = prompts_rule(c=5, r=2)
    target = rule.by_target(image, np.ones(5, dtype=bool), 0.0, None)
    assert target.origin_step() is None
    wide = target.with_constant_coordinate()
    ones = np.column_stack([Z, np.ones(len(Z))])
    assert_allclose(ones @ wide.weights.T, target.scores(Z), atol=1e-12)
    assert_allclose(wide.cosines(ones), target.cosines(Z), atol=1e-12)
