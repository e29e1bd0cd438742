"""The loop that methods trained by gradient share."""

import importlib
from functools import partial

import numpy as np
import pytest
from gradient_inputs import split, spurious, training
from scipy.special import softmax

from fairerclip.baselines.adapter import Adapter
from fairerclip.baselines.gradient.recipes import Recipe, check_recipe, seed_of
from fairerclip.baselines.gradient.sgd_probe import train_probe
from fairerclip.baselines.linear_probe import LinearProbe
from fairerclip.errors import LabelError, MissingExtraError, NonFiniteError, ParameterError

torch = pytest.importorskip("torch", reason="training by gradient needs the torch extra")
loop = importlib.import_module("fairerclip.baselines.gradient.loop")


class Counter(torch.nn.Module):
    """A net whose only parameter is the number of the epoch, and which predicts by a plan."""

    def __init__(self, predictions=()):
        super().__init__()
        self.epoch = torch.nn.Parameter(torch.zeros(1), requires_grad=False)
        self.register_buffer("twice", torch.zeros(1))
        self.predictions = predictions

    def run_epoch(self, epoch):
        assert self.training
        self.epoch += 1
        self.twice += 2
        return loop.Epoch(1.0 / epoch, 10)

    def fitted(self):
        return {"epoch": self.epoch.numpy().copy()}

    def forward(self, X):
        assert not self.training
        predicted = self.predictions[int(self.epoch) - 1]
        return torch.nn.functional.one_hot(torch.as_tensor(predicted), 2).float()


def train(net, validation=None, **recipe):
    """What the loop says of the epochs of a `Counter`."""
    run = loop.Run(net, training(np.eye(4), [0, 1, 0, 1]), Recipe(device="cpu", **recipe))
    return run.train(net.run_epoch, validation)


def plan():
    """Validation rows in four cells, and predictions of four epochs with worst groups 0, 1/2, 1/2 and 0."""
    y, s = np.repeat([0, 1], 4), np.tile([0, 0, 1, 1], 2)
    data = training(np.eye(4), [0, 1, 0, 1], validation=(np.ones((8, 4)), y, s))
    all_right, one_cell_half = y.copy(), y.copy()
    one_cell_half[0] = 1
    two_halves = one_cell_half.copy()
    two_halves[7] = 0
    return data.validation, [np.zeros(8, dtype=int), two_halves, one_cell_half, 1 - all_right]


def test_the_epoch_with_the_best_validation_worst_group_is_kept_ties_by_average():
    validation, predictions = plan()
    net = Counter(predictions)
    found = train(net, validation, epochs=4)
    assert [record["worst_group"] for record in found["history"]] == [0, 0.5, 0.5, 0]
    assert [record["average"] for record in found["history"]] == [0.5, 0.75, 0.875, 0]
    assert found["epoch"] == 3
    assert found["kept"] == loop.KEPT_BEST
    assert float(net.epoch) == 3
    assert float(net.twice) == 6


def test_without_validation_rows_the_last_epoch_is_kept_and_said_so():
    net = Counter()
    found = train(net, epochs=5)
    assert (found["epoch"], found["epochs"], found["kept"]) == (5, 5, loop.KEPT_LAST)
    assert float(net.epoch) == 5
    assert "worst_group" not in found["history"][0]


def test_the_weights_kept_are_those_of_the_best_recorded_epoch():
    (X, y, text), validation = split(2, noise=1.0)
    options = {"hidden": 6, "lr": 0.05, "random_state": 4, "device": "cpu"}
    best = Adapter(epochs=20, **options).fit(X, y, text=text, validation=validation)
    history = best.diagnostics_["history"]
    wanted = max(history, key=lambda r: (r["worst_group"], r["average"], -r["epoch"]))
    assert best.diagnostics_["epoch"] == wanted["epoch"] < 20
    stopped = Adapter(epochs=wanted["epoch"], **options).fit(X, y, text=text)
    assert stopped.diagnostics_["kept"] == loop.KEPT_LAST
    for name in Adapter.fitted:
        np.testing.assert_array_equal(getattr(best, name), getattr(stopped, name))


def test_the_cap_stops_after_the_epoch_in_which_so_many_batches_were_seen():
    found = train(Counter(), epochs=50, max_steps=25)
    assert (found["epochs"], found["steps"], found["stopped"]) == (3, 30, "max_steps")
    assert len(found["history"]) == 3
    found = train(Counter(), epochs=3, max_steps=30)
    assert (found["epochs"], found["stopped"]) == (3, "epochs")  # it came to its end


def test_a_capped_training_does_not_depend_on_the_clock(monkeypatch):
    (X, y, text), _ = split(3)
    make = partial(Adapter, hidden=4, epochs=50, batch_size=16, max_steps=40, device="cpu", random_state=1)
    first = make().fit(X, y, text=text)
    clock = iter(range(0, 10**9, 10**4))  # a machine that takes hours
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    second = make().fit(X, y, text=text)
    assert first.diagnostics_["stopped"] == second.diagnostics_["stopped"] == "max_steps"
    for name in Adapter.fitted:
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


@pytest.mark.parametrize("kind", ["batchnorm", "clip-adapter", "probe"])
def test_the_models_of_earlier_epochs_can_be_had(kind):
    (X, y, text), _ = split(2)
    told = []
    options = {"epochs": 5, "batch_size": 32, "device": "cpu"}

    def fit(epochs, progress=None):
        if kind == "probe":
            recipe = {**options, "epochs": epochs, "progress": progress}
            return LinearProbe(solver="sgd", recipe=recipe, random_state=0).fit(X, y)
        given = {**options, "epochs": epochs, "progress": progress}
        return Adapter(variant=kind, hidden=4, random_state=0, **given).fit(X, y, text=text)

    model = fit(5, lambda record: told.append(record["fitted"]()))
    earlier = fit(3)
    assert len(told) == 5
    for name, array in told[2].items():
        np.testing.assert_array_equal(array, getattr(earlier, name))
        np.testing.assert_array_equal(told[4][name], getattr(model, name))
        assert not np.array_equal(array, told[4][name]) or not array.any()


def test_progress_is_told_of_every_epoch():
    told = []
    train(Counter(), epochs=3, progress=told.append)
    assert [(r["epoch"], r["epochs"], r["loss"]) for r in told] == [(1, 3, 1.0), (2, 3, 0.5), (3, 3, 1 / 3)]


def test_weights_move_by_momentum_and_decay():
    X, y, _, _ = spurious(8)
    data = training(X, y)
    options = {
        "lr": 0.03,
        "momentum": 0.8,
        "weight_decay": 0.1,
        "batch_size": len(X),
        "scale": 1,
        "random_state": 2,
    }
    (first, _), (second, bias), (third, _) = (train_probe(data, epochs=k, **options)[:2] for k in (1, 2, 3))
    P = softmax(X @ second.T + bias, axis=1)
    gradient = (P - np.eye(2)[y]).T @ X / len(X) + 0.1 * second
    np.testing.assert_allclose((second - third) / 0.03, 0.8 * (first - second) / 0.03 + gradient, atol=1e-5)


def test_neither_the_generator_nor_the_threads_of_torch_change():
    (X, y, text), validation = split(3)
    torch.manual_seed(99)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    Adapter(hidden=4, epochs=2, random_state=0).fit(X, y, text=text, validation=validation)
    train_probe(training(X, y), epochs=2, random_state=0)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.get_num_threads() == threads


def test_threads_come_back_after_an_error():
    threads = torch.get_num_threads()
    seen = []

    def fails():
        with loop.one_thread():
            seen.append(torch.get_num_threads())
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fails()
    assert seen == [1]
    assert torch.get_num_threads() == threads


def test_it_trains_inside_no_grad():
    (X, y, text), _ = split(3)
    with torch.no_grad():
        inside = Adapter(hidden=4, epochs=2, random_state=0, device="cpu").fit(X, y, text=text)
    outside = Adapter(hidden=4, epochs=2, random_state=0, device="cpu").fit(X, y, text=text)
    np.testing.assert_array_equal(inside.output_weight_, outside.output_weight_)


def test_divergence_is_an_error_that_names_the_epoch():
    X, y, _, _ = spurious(4)
    with pytest.raises(NonFiniteError, match=r"diverged in epoch \d+ .*lower lr"):
        train_probe(training(X * 1e20, y), epochs=9, lr=1e18, random_state=0)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"epochs": 0}, "epochs must be a whole number from 1 .*got 0"),
        ({"batch_size": 2.5}, "batch_size must be a whole number from 1 .*got 2.5"),
        ({"lr": 0}, "lr must be a positive number.*got 0"),
        ({"lr": float("nan")}, "lr must be"),
        ({"momentum": 1}, r"momentum must be a number in \[0, 1\); got 1"),
        ({"weight_decay": -1}, "weight_decay must be"),
        ({"max_steps": 0}, "max_steps must be"),
        ({"max_steps": 2.5}, "max_steps must be"),
        ({"device": "tpu"}, "device must be one of 'auto', 'cpu', 'cuda'; got 'tpu'"),
        ({"progress": 3}, "progress must be callable or None; got 3"),
    ],
)
def test_bad_recipes_are_refused(option, message):
    with pytest.raises(ParameterError, match=message):
        check_recipe(Recipe(**option))


def test_a_gpu_that_is_not_there_is_an_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    X, y, _, _ = spurious(4)
    with pytest.raises(ParameterError, match="torch sees no GPU; use 'auto' or 'cpu'"):
        train_probe(training(X, y), epochs=1, device="cuda")


def test_seeds_of_every_kind():
    assert seed_of(7) == seed_of(np.int64(7)) == 7
    assert seed_of(np.random.RandomState(3)) == seed_of(np.random.RandomState(3))
    assert seed_of(None) != seed_of(None)
    for wrong in (-1, "seven"):
        with pytest.raises(ParameterError, match="random_state must be"):
            seed_of(wrong)


def test_rows_without_weight_count_for_nothing():
    X, y, _, _ = spurious(5)
    weight = (np.arange(len(X)) % 3 > 0).astype(float)
    with_zeros = train_probe(training(X, y, sample_weight=weight), epochs=3, random_state=1)
    without = train_probe(training(X[weight > 0], y[weight > 0]), epochs=3, random_state=1)
    np.testing.assert_array_equal(with_zeros[0], without[0])


def test_training_needs_labels():
    X, _, _, text = spurious(5)
    with pytest.raises(LabelError, match="give y"):
        train_probe(training(X, None, text=text), epochs=1)


def test_missing_torch_is_one_line_that_names_the_extra(monkeypatch):
    import sys

    X, y, _, text = spurious(5)
    monkeypatch.setitem(sys.modules, "torch", None)
    for fit in (
        lambda: train_probe(training(X, y), epochs=1),
        lambda: Adapter(epochs=1).fit(X, y, text=text),
    ):
        with pytest.raises(MissingExtraError, match=r'pip install "fairerclip\[torch\]"') as caught:
            fit()
        assert "\n" not in str(caught.value)
