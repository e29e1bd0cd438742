"""DeAR and prompt debiasing: what is trained hides S, the rest stays as it was."""

from dataclasses import replace

import numpy as np
import pytest
from free_rankings import skew_and_order
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from fairerclip.baselines import DeAR, PromptDebiasing, ZeroShot, load_baseline
from fairerclip.data import simulate
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.errors import ConstantSensitiveWarning, ParameterError

torch = pytest.importorskip("torch")

MODELS = [DeAR(random_state=0, epochs=4), PromptDebiasing(random_state=0, epochs=4)]
both = pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)


def leaning(n=600, p=32, seed=7):
    """Rows with S along one axis, its prompts, and queries that lean towards one value."""
    rng = np.random.default_rng(seed)
    s = np.arange(n) % 2
    axis = unit_rows(rng.normal(size=(1, p)))[0]
    X = rng.normal(size=(n, p)) + 2.5 * np.outer(2 * s - 1, axis)
    return X, s, np.array([-axis, axis]), rng.normal(size=(10, p)) + 1.5 * axis


@pytest.mark.parametrize(
    ("model", "strength", "least"),
    [(MODELS[0], 3, 0.9), (MODELS[1], 30, 0.55)],
    ids=lambda given: type(given).__name__,
)
def test_skew_falls_and_images_or_prompts_alone_change(model, strength, least):
    X, s, prompts, queries = leaning()
    fitted = (
        clone(model)
        .set_params(epochs=20, batch_size=32, strength=strength)
        .fit(X, text=queries[:6], sensitive_text=prompts)
    )
    before, after, order = skew_and_order(fitted, X, queries, s, k=100)
    assert after < 0.25 < 0.35 < before
    assert order > least
    assert fitted.changes_embeddings == (np.abs(fitted.transform(X) - unit_rows(X)).max() > 1e-3)
    assert fitted.changes_prompts == (
        np.abs(fitted.transform_text(queries) - unit_rows(queries)).max() > 1e-3
    )


@both
@pytest.mark.parametrize(("n_classes", "n_sensitive"), [(2, 2), (4, 3)])
def test_it_ranks_by_any_query_and_answers_the_same_after_saving(
    embeddings, tmp_path, model, n_classes, n_sensitive
):
    e = embeddings(seed=1, n=80, p=100, n_classes=n_classes, n_sensitive=n_sensitive, correlation=0.4)
    fitted = clone(model).fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    assert_allclose(fitted.query_scores(e.X, e.text), fitted.scores(e.X), atol=1e-10)
    assert np.mean(fitted.predict(e.X) == e.y) > 1.4 / n_classes
    back = load_baseline(fitted.save(tmp_path / "m"))
    assert_array_equal(back.scores(e.X), fitted.scores(e.X))
    assert_array_equal(back.query_scores(e.X, e.X[:3]), fitted.query_scores(e.X, e.X[:3]))
    assert "arXiv:" in model.needs.paper
    assert model.needs.paper.split("arXiv:")[1] in type(model).__doc__
    assert set(model.shapes) == set(model.fitted)


@both
def test_seeds_states_after_epochs_and_a_limit_of_steps(embeddings, model):
    e = embeddings(seed=2, n=300)
    given = {"text": e.text, "sensitive_features": e.s}
    states = []
    a = clone(model).set_params(progress=lambda record: states.append(record["fitted"]())).fit(e.X, **given)
    b = clone(model).fit(e.X, **given)
    assert_array_equal(a.scores(e.X), b.scores(e.X))
    assert len(states) == 4
    for name, value in states[-1].items():
        assert_array_equal(getattr(a, name), value)
    assert any(np.abs(states[0][name] - states[-1][name]).max() > 1e-6 for name in states[0])
    short = clone(model).set_params(max_steps=1).fit(e.X, **given)
    assert short.diagnostics_["stopped"] == "max_steps"
    kept = clone(model).fit(e.X, **given, validation=(e.X, e.y, e.s))
    assert kept.diagnostics_["kept"] == "best validation worst group"


@both
def test_weights_count_and_one_value_of_s_changes_nothing(embeddings, model):
    e = embeddings(seed=3, n=300)
    weight = np.where(np.arange(300) < 200, 1.0, 0.0)
    a = clone(model).fit(e.X, text=e.text, sensitive_features=e.s, sample_weight=weight)
    b = clone(model).fit(e.X[:200], text=e.text, sensitive_features=e.s[:200])
    assert_allclose(a.scores(e.X), b.scores(e.X), atol=1e-6)
    heavy = clone(model).fit(e.X, text=e.text, sensitive_features=e.s, sample_weight=1.0 + 9 * e.s)
    even = clone(model).fit(e.X, text=e.text, sensitive_features=e.s)
    assert np.abs(heavy.scores(e.X) - even.scores(e.X)).max() > 1e-5
    with pytest.warns(ConstantSensitiveWarning):
        constant = clone(model).fit(e.X, text=e.text, sensitive_features=np.zeros(300))
    assert_allclose(constant.scores(e.X), ZeroShot().fit(e.X, text=e.text).scores(e.X), atol=1e-5)
    with pytest.raises(ParameterError, match="strength must be a positive number"):
        clone(model).set_params(strength=0).fit(e.X, text=e.text, sensitive_features=e.s)


def test_the_classifier_of_s_is_left_uncertain_by_the_loss_that_is_written(embeddings):
    from gradient_inputs import training

    from fairerclip.baselines.gradient.debiasing import AttributeNet, ResidualNet, residual_epoch, unevenness
    from fairerclip.baselines.gradient.loop import Run
    from fairerclip.baselines.gradient.recipes import Recipe

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
    assert unevenness(torch.zeros(2, 3)).tolist() == pytest.approx([0.0, 0.0], abs=1e-6)
    uneven = []
    for strength in (1e-6, 10.0):
        model = DeAR(strength=strength, random_state=0, epochs=300, classifier_epochs=60).fit(
            e.X, text=e.text, sensitive_features=e.s
        )
        uneven.append(np.ptp([model.transform(e.X)[e.s == v].mean(axis=0) for v in range(3)], axis=0).max())
    assert uneven[1] < 0.7 * uneven[0]


def test_an_offset_alone_hides_little_and_the_adversary_is_scored_as_written(embeddings):
    from gradient_inputs import training

    from fairerclip.baselines.gradient.debiasing import Adversary, PromptNet
    from fairerclip.baselines.gradient.loop import Run
    from fairerclip.baselines.gradient.recipes import Recipe

    X, s, prompts, queries = leaning(n=300)
    text = np.array([queries[0] - 3.0 * prompts[1], queries[1]])

    def dependence(model):
        fitted = model.fit(X, text=text, sensitive_features=s)
        return abs(np.corrcoef(fitted.decision_function(X), s)[0, 1])

    recipe = {"strength": 10, "temperature": 5.0, "batch_size": 32, "random_state": 0}
    offset, low_rank = (dependence(PromptDebiasing(rank=rank, **recipe)) for rank in (0, 8))
    assert low_rank < 0.75 * offset
    assert offset > 0.7 * dependence(ZeroShot())
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


def test_prompt_debiasing_lowers_the_skew_of_a_gallery_and_keeps_its_order():
    task = simulate("gallery", seed=1, scale=0.1, width=64)
    given = {"text": task.text_target, "sensitive_text": task.sensitive["sex"].text}
    model = PromptDebiasing(random_state=0).fit(task.train.X, **given)
    s = task.test.sensitive("sex")
    before, after, order = skew_and_order(model, task.test.X, np.asarray(task.text_target), s, k=100)
    assert after < 0.6 * before
    assert order > 0.85


def test_the_contrastive_loss_is_that_of_both_directions():
    from fairerclip.baselines.gradient.debiasing import contrastive

    rng = np.random.default_rng(0)
    logits, unchanged, weight = (
        rng.normal(size=(6, 3)),
        rng.normal(size=(6, 3)),
        np.array([1, 2, 0.5, 1, 3, 1]),
    )

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
    moved = torch.tensor(unchanged + rng.normal(size=(6, 1)))  # the same amount for all classes of an image
    first, second = (
        contrastive(values, torch.tensor(unchanged), torch.tensor(weight)).mean()
        for values in (torch.tensor(unchanged), moved)
    )
    assert second > first + 0.01, "what moves whole images is seen"
