"""The adapter and CLIP-Adapter."""

import importlib
import subprocess
import sys

import numpy as np
import pytest
from gradient_inputs import split, spurious

from fairerclip.baselines.adapter import Adapter
from fairerclip.errors import ParameterError, PromptError

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


def test_clip_adapter_with_zero_weights_is_the_identity_times_four_fifths():
    X, y, _, text = spurious(3)
    model = Adapter(variant="clip-adapter", epochs=1, device="cpu").fit(X, y, text=text)
    model.hidden_weight_ = np.zeros_like(model.hidden_weight_)
    np.testing.assert_allclose(model.transform(X), 0.8 * X, rtol=1e-12)
    np.testing.assert_allclose(model.scores(X), 100 * X @ text.T, rtol=1e-9)


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


@pytest.mark.parametrize("variant", ["batchnorm", "clip-adapter"])
def test_it_learns_more_than_zero_shot_knows_and_leaves_the_text_alone(variant):
    X, y, _, text = spurious(4, n=400, n_classes=3)
    given = text.copy()
    model = Adapter(variant=variant, epochs=30, lr=0.01, random_state=1).fit(X, y, text=text)
    np.testing.assert_array_equal(text, given)
    np.testing.assert_allclose(model.text_, given, atol=1e-12)
    before = np.mean((X @ text.T).argmax(axis=1) == y)
    assert np.mean(model.predict(X) == y) > before + 0.05
    losses = [record["loss"] for record in model.diagnostics_["history"]]
    assert losses[-1] < 0.5 * losses[0]


def test_the_same_seed_gives_the_same_weights_and_another_seed_others():
    (X, y, text), validation = split(5)
    first, again, other = (
        Adapter(hidden=6, epochs=3, random_state=seed, device="cpu").fit(
            X, y, text=text, validation=validation
        )
        for seed in (5, 5, 6)
    )
    for name in Adapter.fitted:
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
    assert np.abs(first.output_weight_ - other.output_weight_).max() > 1e-3


@pytest.mark.parametrize("n", [2, 3, 129])
def test_a_batch_of_one_row_does_not_break_batch_normalisation(n):
    X, y, _, text = spurious(6, n=n)
    for batch_size in (1, 128):
        model = Adapter(hidden=4, epochs=2, batch_size=batch_size, random_state=0).fit(X, y, text=text)
        assert np.isfinite(model.scores(X)).all()


def test_any_labels_and_any_length_of_rows():
    X, y, _, text = spurious(7, n_classes=3)
    names = np.array(["bird", "cat", "dog"])
    model = Adapter(hidden=4, epochs=2, random_state=0).fit(
        X, names[y], text=dict(zip(names, text, strict=True))
    )
    assert set(model.predict(X)) <= set(names)
    assert model.decision_function(X).shape == (len(X), 3)
    assert model.transform(X).shape == X.shape


def test_prediction_needs_no_torch(tmp_path):
    X, y, _, text = spurious(8)
    model = Adapter(hidden=4, epochs=1, random_state=0).fit(X, y, text=text)
    np.savez(
        tmp_path / "a.npz", X=X, scores=model.scores(X), **{k: getattr(model, k) for k in Adapter.fitted}
    )
    code = f"""
import sys, numpy as np
from fairerclip.baselines.adapter import Adapter
a = np.load({str(tmp_path / "a.npz")!r})
model = Adapter()
for name in Adapter.fitted:
    setattr(model, name, a[name])
model.n_features_in_, model.normalize_, model.offsets_ = 12, True, np.zeros(2)
print(np.array_equal(model.scores(a["X"]), a["scores"]), "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["True", "False"]


def test_wrong_parameters_say_what_is_accepted():
    X, y, _, text = spurious(8, n=20)
    for option, message in (
        ({"variant": "mlp"}, "variant must be one of 'batchnorm', 'clip-adapter'; got 'mlp'"),
        ({"hidden": 0}, "hidden must be a whole number from 1 to 65,536; got 0"),
        ({"ratio": 2}, "ratio must be"),
        ({"temperature": 0}, "temperature must be"),
    ):
        with pytest.raises(ParameterError, match=message):
            Adapter(epochs=1, **option).fit(X, y, text=text)
    with pytest.raises(PromptError, match="give text"):
        Adapter(epochs=1).fit(X, y)
