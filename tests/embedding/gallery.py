"""A small gallery: rows with a common mean, topics and sensitive values, prompts of the values, and free queries."""

import numpy as np

from fairerclip.data.embedding_rows import unit_rows


class Gallery:
    """Unit rows (n, p); queries ask for topics and lean towards a sensitive value, as those of CLIP do."""

    def __init__(self, seed=0, n=300, p=10, v=2, n_queries=6, lean=0.5, noise=0.5, world=0):
        fixed, rng = np.random.default_rng(world), np.random.default_rng(seed)
        mean = 2 * fixed.normal(size=p) / np.sqrt(p)
        values = fixed.normal(size=(v, p)) / np.sqrt(p) * 1.2
        values -= values.mean(axis=0)
        topics = fixed.normal(size=(n_queries, p)) / np.sqrt(p)
        self.s = rng.integers(v, size=n)
        strength = rng.normal(size=(n, n_queries))
        x = mean + values[self.s] + 0.5 * strength @ topics + noise * rng.normal(size=(n, p)) / np.sqrt(p)
        self.X = unit_rows(x)
        text = fixed.normal(size=p) / np.sqrt(p)
        self.prompts = unit_rows(text + values + 0.05 * fixed.normal(size=(v, p)))
        self.Q = unit_rows(text + topics + lean * values[np.arange(n_queries) % v])
        self.names = np.array([f"value {k}" for k in range(v)])
        self.text = dict(zip(self.names.tolist(), self.prompts, strict=True))
        self.named = self.names[self.s]


def naive_map(X, q, labels, tau, gamma, weight=None):
    """The score of q for rows X with linear features: the minimiser of the objective, by a dense p×p solve."""
    w = np.ones(len(X)) if weight is None else np.asarray(weight, dtype=float)
    w = w / w.sum()
    Xc, Lc = X - w @ X, labels - w @ labels
    values, vectors = np.linalg.eigh(Lc.T @ (w[:, None] * Lc))
    L = Lc @ vectors / np.sqrt(values)
    M = Xc.T @ (w[:, None] * L)
    C = Xc.T @ (w[:, None] * Xc) + gamma * np.eye(X.shape[1])
    rho = np.linalg.eigvalsh(M.T @ np.linalg.solve(C, M)).max()
    u = q - np.linalg.solve(C + tau / rho * M @ M.T, tau / rho * M @ (M.T @ q))
    return Xc @ u + (w @ X) @ q
