"""What methods trained by gradient are given, for tests."""

import numpy as np

from fairerclip.baselines.baseline import Baseline
from fairerclip.baselines.training_data import Needs


class Capture(Baseline):
    """Keeps the training rows that a method would see."""

    needs = Needs(labels="none", text=False, sensitive=False, validation=False, paper="")
    fitted = ()

    def _learn(self, data):
        self.data_ = data


def training(X, y, **arguments):
    """Training rows of `Baseline.fit`'s arguments."""
    return Capture().fit(X, y, **arguments).data_


def spurious(seed, n=240, p=12, n_classes=2, correlation=0.85, noise=0.35, lean=1.0):
    """Unit rows, classes, groups and prompts, ``lean`` times as much along the group as along the class.

    Zero-shot is mostly wrong about rows whose group is that of another class.
    """
    rng = np.random.default_rng([seed, 77])
    directions = np.linalg.qr(rng.normal(size=(p, 2 * n_classes)))[0].T
    classes, values = directions[:n_classes], lean * directions[n_classes:]
    y = rng.integers(n_classes, size=n)
    y[:n_classes] = np.arange(n_classes)
    s = np.where(rng.random(n) < correlation, y, rng.integers(n_classes, size=n))
    X = classes[y] + values[s] + noise * rng.normal(size=(n, p))
    text = classes + values
    unit = [a / np.linalg.norm(a, axis=1, keepdims=True) for a in (X, text)]
    return unit[0], y, s, unit[1]


def worst_group(right, y, s):
    """The smallest share of right rows over cells of class and group."""
    return min(right[(y == a) & (s == b)].mean() for a in np.unique(y) for b in np.unique(s))


def split(seed, **options):
    """(X, y, text) to train on and (X, y, s) to validate on."""
    X, y, s, text = spurious(seed, **options)
    half = len(X) // 2
    return (X[:half], y[:half], text), (X[half:], y[half:], s[half:])
