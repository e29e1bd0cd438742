"""Small random problems. Not in a conftest: the conftest of whichever folder came last would be imported."""

import numpy as np


class Embeddings:
    """Unit rows whose mean moves with y and with s; prompts near the class directions."""

    def __init__(self, seed=0, n=240, p=12, n_classes=2, n_sensitive=2, correlation=0.8):
        rng = np.random.default_rng(seed)
        self.y = rng.integers(n_classes, size=n)
        self.s = np.where(
            rng.random(n) < correlation, self.y % n_sensitive, rng.integers(n_sensitive, size=n)
        )
        classes, values = rng.normal(size=(n_classes, p)), rng.normal(size=(n_sensitive, p))
        self.X = self._unit(classes[self.y] + values[self.s] + 0.8 * rng.normal(size=(n, p)))
        self.text = self._unit(classes + 0.2 * rng.normal(size=classes.shape))
        self.sensitive_text = self._unit(values + 0.2 * rng.normal(size=values.shape))

    @staticmethod
    def _unit(a):
        return a / np.linalg.norm(a, axis=1, keepdims=True)
