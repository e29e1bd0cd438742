"""Rows for tests of feature maps."""

import numpy as np


def unit_rows(n, p, seed=0):
    X = np.random.RandomState(seed).normal(size=(n, p))
    return X / np.linalg.norm(X, axis=1, keepdims=True)
