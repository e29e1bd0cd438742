"""The FairerCLIP method in numpy alone: two closed-form solutions, alternated.

Dehdashtian, Wang, Boddeti, "FairerCLIP", ICLR 2024 (arXiv:2403.15593). This is the simplest form of
the method, for categorical labels and one prompt per class; the package covers more cases, is faster
and checks its input. Run it: it makes a small biased problem and prints accuracies.
"""

import numpy as np


def fourier_features(X, n_features, rng):
    """Return a map to random features whose inner products approximate exp(-d²/median d²)."""
    sample = X[rng.permutation(len(X))[:500]]
    d2 = np.sum((sample[:, None] - sample[None]) ** 2, axis=-1)
    sigma = np.sqrt(np.quantile(d2[d2 > 1e-12], 0.5, method="lower") / 2)
    Omega = rng.normal(size=(X.shape[1], n_features)) / sigma
    b = rng.uniform(0, 2 * np.pi, size=n_features)
    return lambda X: np.sqrt(2 / n_features) * np.cos(X @ Omega + b)


def exact_features(T):
    """Return features of the prompts whose inner products are exactly the same kernel."""
    d2 = np.sum((T[:, None] - T[None]) ** 2, axis=-1)
    values, vectors = np.linalg.eigh(np.exp(-d2 / np.quantile(d2[d2 > 1e-12], 0.5, method="lower")))
    return vectors * np.sqrt(values)  # (c, c)


def cosine_labels(X, T):
    """Predict zero-shot: the class whose prompt has the largest cosine."""
    unit = [a / np.linalg.norm(a, axis=1, keepdims=True) for a in (X, T)]
    return (unit[0] @ unit[1].T).argmax(axis=1)


def solve(Phi, gamma, terms, r):
    """Solve Eq. (8): maximise Σ σ_j Dep(Z, L_j) over Z = Φ_c U with UᵀCU = I, in k×k instead of D×D.

    With M_j = Φ_cᵀL_j/n the D×D matrix is B = Σ σ_j M_j M_jᵀ, of rank k: the solution lies in the
    span of C⁻¹[M_1 M_2 …]. Each term is divided by its spectral norm, as in the authors' code.
    """
    n, D = Phi.shape
    Phi_c = Phi - Phi.mean(axis=0)
    L = np.linalg.cholesky(Phi_c.T @ Phi_c / n + gamma * np.eye(D))
    M = [Phi_c.T @ label / n for _, label in terms]
    sigma = np.concatenate(
        [np.full(m.shape[1], s / np.linalg.norm(m, 2) ** 2) for (s, _), m in zip(terms, M, strict=True)]
    )
    Q, S, Vt = np.linalg.svd(np.linalg.solve(L, np.concatenate(M, axis=1)), full_matrices=False)
    keep = S > 1e-10 * S[0]  # the factors may be collinear: the alignment lies in the span of Y
    Q, R = Q[:, keep], S[keep, None] * Vt[keep]
    values, a = np.linalg.eigh((R * sigma) @ R.T)
    best = np.argsort(-values)[:r]
    best = best[values[best] > 0]  # the other eigenvalues of the full problem are zero or negative
    return np.linalg.solve(L.T, Q @ a[:, best]), values[best]


def fairerclip(X, T, y, s, *, tau=0.7, tau_z=0.7, tau_text=0.1, tau_z_text=0.1, gamma=1e-4, phi):
    """Run Algorithm 1 with labels y and s; without labels, take y from `cosine_labels` and repeat."""
    c, strength = len(T), lambda t: t / (1 - t)
    Y, S = np.eye(c)[y], np.eye(s.max() + 1)[s]
    Phi_I, Phi_T = phi(X), exact_features(T)[y]  # the prompt of each image is that of its class
    U, _ = solve(Phi_I, gamma, [(1, Y), (-strength(tau), S)], c - 1)
    for _ in range(10):
        Z_I = (Phi_I - Phi_I.mean(axis=0)) @ U
        V, _ = solve(Phi_T, gamma, [(1, Y), (-strength(tau_text), S), (strength(tau_z_text), Z_I)], c - 1)
        Z_T = (Phi_T - Phi_T.mean(axis=0)) @ V
        U, values = solve(Phi_I, gamma, [(1, Y), (-strength(tau), S), (strength(tau_z), Z_T)], c - 1)
    Z_I = (Phi_I - Phi_I.mean(axis=0)) @ U
    u, _, vt = np.linalg.svd(Z_T.T @ Z_I, full_matrices=False)  # each side is free up to a rotation
    Z_T = Z_T @ (u @ vt)
    means_I, means_T = (np.stack([Z[y == k].mean(axis=0) for k in range(c)]) for Z in (Z_I, Z_T))
    directions = means_T - means_T.mean(axis=0)  # angles are measured from the midpoint of the classes
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    mean, zero = Phi_I.mean(axis=0), means_I.mean(axis=0)
    return (lambda X: ((phi(X) - mean) @ U - zero) @ directions.T), values


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    n, p = 2000, 32
    y = rng.integers(2, size=n)
    s = np.where(rng.random(n) < 0.9, y, 1 - y)  # the background predicts the bird
    y_dir, s_dir = rng.normal(size=(2, p))
    sign = 2 * np.stack([y, s], axis=1) - 1
    X = 0.6 * sign[:, :1] * y_dir + 0.8 * sign[:, 1:] * s_dir + 1.5 * rng.normal(size=(n, p))
    T = np.stack([-y_dir, y_dir]) + 0.5 * np.stack([-s_dir, s_dir])  # the prompts are biased, too
    phi = fourier_features(X, 300, rng)
    for tau in (0.0, 0.5, 0.7):
        scores, values = fairerclip(X, T, y, s, tau=tau, phi=phi)
        right = scores(X).argmax(axis=1) == y
        groups = {(a, b): right[(y == a) & (s == b)].mean() for a in (0, 1) for b in (0, 1)}
        print(
            f"τ={tau}: average {right.mean():.3f}, worst group {min(groups.values()):.3f}, Σλ {values.sum():.1f}"
        )
