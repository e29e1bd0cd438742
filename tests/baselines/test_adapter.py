"""The adapter and CLIP-Adapter."""

import importlib

import numpy as np
import pytest
from gradient_inputs import spurious

from fairerclip.baselines.adapter import Adapter

torch = pytest.importorskip("torch", reason="training by gradient needs the torch extra")
nets = importlib.import_module("fairerclip.baselines.gradient.nets")


def test_numpy_predicts_what_a_torch_module_with_the_same_weights_does():
    X, y, _, text = spurious(1, n_classes=3)
    net = nets.AdapterNet(nets.start_weights(7, 12, 4), text, 100.0)
    rows = torch.tensor(X, dtype=torch.float32)
    for part in rows.split(50):
        net(part)  # moves the running statistics off their start
    with torch.no_grad():
        net.norm.weight += torch.linspace(-0.5, 0.5, 7)
        net.norm.bias += torch.linspace(0.3, -0.3, 7)
        adapted = net.eval().adapt(rows)
        cosines = net(rows) / 100
    model = Adapter(hidden=7, epochs=1, device="cpu", random_state=0).fit(X, y, text=text)
    model.__dict__.update(net.fitted())
    np.testing.assert_allclose(model.transform(X), adapted.numpy(), atol=1e-5)
    np.testing.assert_allclose(model.scores(X) / 100, cosines.numpy(), atol=1e-5)
    unit = torch.nn.functional.cosine_similarity(adapted[:, None], net.text[None], dim=2)
    np.testing.assert_allclose(cosines.numpy(), unit.numpy(), atol=1e-5)


def test_batch_statistics_in_training_and_running_ones_after_it():
    X, _, _, text = spurious(2)
    net = nets.AdapterNet(nets.start_weights(5, 12, 1), text, 100.0)
    H = torch.tensor(X, dtype=torch.float32) @ net.w1.detach().T
    with torch.no_grad():
        trained = net.normalise(H)
        mean, var = H.mean(dim=0), H.var(dim=0, unbiased=False)
        expected = torch.relu((H - mean) / torch.sqrt(var + 1e-5))
    torch.testing.assert_close(trained, expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(net.norm.running_mean, 0.1 * mean)
    torch.testing.assert_close(net.norm.running_var, 0.9 + 0.1 * H.var(dim=0))


def test_clip_adapter_is_its_formula():
    X, y, _, text = spurious(3)
    model = Adapter(variant="clip-adapter", hidden=None, ratio=0.3, epochs=3, random_state=0).fit(
        X, y, text=text
    )
    assert model.hidden_weight_.shape == (3, 12)
    assert not model.hidden_bias_.any()
    assert not model.output_bias_.any()
    relu = lambda a: np.maximum(a, 0)  # noqa: E731
    inner = relu(relu(X @ model.hidden_weight_.T) @ model.output_weight_.T)
    np.testing.assert_allclose(model.transform(X), 0.3 * inner + 0.7 * X, rtol=1e-12)


def test_a_batch_of_one_row_does_not_break_batch_normalisation():
    X, y, _, text = spurious(6, n=129)
    model = Adapter(hidden=4, epochs=2, batch_size=128, random_state=0).fit(X, y, text=text)
    assert np.isfinite(model.scores(X)).all()
