"""DeAR and prompt debiasing: the losses are those that are written."""

from dataclasses import replace

import numpy as np
import pytest
from gradient_inputs import training
from numpy.testing import assert_allclose

from fairerclip.data.embedding_rows import unit_rows

torch = pytest.importorskip("torch")

from fairerclip.baselines.gradient.debiasing import (  # noqa: E402 - torch may be missing
    Adversary,
    AttributeNet,
    PromptNet,
    ResidualNet,
    contrastive,
    residual_epoch,
)
from fairerclip.baselines.gradient.loop import Run  # noqa: E402
from fairerclip.baselines.gradient.recipes import Recipe  # noqa: E402


def test_the_classifier_of_s_is_left_uncertain_by_the_loss_that_is_written(embeddings):
    e = embeddings(seed=4, n=40, n_sensitive=3)
    data = training(e.X, e.s, text=e.sensitive_text)
    net, classifier = ResidualNet(unit_rows(e.text), 100.0), AttributeNet(12, 5, 3, 0).requires_grad_(False)
    with torch.no_grad():
        net.weight += 0.1 * torch.randn(12, 12, generator=torch.Generator().manual_seed(0))
    x = unit_rows(e.X)
    changed = x + x @ net.weight.detach().numpy().T
    inner = np.maximum(10 * unit_rows(changed) @ classifier.w1.numpy().T, 0)
    logits = inner @ classifier.w2.numpy().T
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    divergence = np.mean([sum(np.log(1 / 3 / q) / 3 for q in row) for row in p])
    expected = np.mean(np.sum((changed - x) ** 2, axis=1)) + 0.7 * divergence
    found = residual_epoch(Run(net, data, Recipe(batch_size=64, lr=1e-9)), classifier, 0.7, np.arange(40))
    assert found.loss == pytest.approx(expected, rel=1e-4)


def test_the_contrastive_loss_is_that_of_both_directions():
    rng = np.random.default_rng(0)
    weight = np.array([1, 2, 0.5, 1, 3, 1])
    logits, unchanged = rng.normal(size=(2, 6, 3))

    def probabilities(values, prior):
        shares = prior * np.exp(values)
        return shares / shares.sum()

    to_images = 0.0
    for q, q0 in zip(logits.T, unchanged.T, strict=True):
        p, p0 = probabilities(q, weight), probabilities(q0, weight)
        to_images -= sum(b * np.log(a) for a, b in zip(p, p0, strict=True)) / 3
    expected = [
        (-np.sum(probabilities(q0, 1) * np.log(probabilities(q, 1))) + to_images) / 2
        for q, q0 in zip(logits, unchanged, strict=True)
    ]
    found = contrastive(*(torch.tensor(values) for values in (logits, unchanged, weight)))
    assert_allclose(found.numpy(), expected, atol=1e-12)


def test_the_adversary_of_prompt_debiasing_is_scored_as_written(embeddings):
    e = embeddings(seed=5, n=200, correlation=0.7)
    data = replace(training(e.X, e.s, text=e.sensitive_text), n_groups=2)
    run = Run(PromptNet(unit_rows(e.text), 100.0, 2, 0), data, Recipe())
    adversary = Adversary(run, data, 4, 0.1, 0)
    rows = torch.arange(50)
    logits = run.net(run.X[rows])
    z = logits.detach().numpy()
    z = (z - z.mean(axis=0)) / z.std(axis=0)
    inner = np.maximum(z @ adversary.net.w1.detach().numpy().T, 0) @ adversary.net.w2.detach().numpy().T
    p = np.exp(inner) / np.exp(inner).sum(axis=1, keepdims=True)
    expected = -np.mean(np.log(p[np.arange(50), e.s[:50]]))
    assert float(adversary.loss(logits, rows).detach()) == pytest.approx(expected, rel=1e-4)
    share = np.bincount(e.s) / 200
    assert adversary.entropy == pytest.approx(-np.sum(share * np.log(share)), rel=1e-6)
