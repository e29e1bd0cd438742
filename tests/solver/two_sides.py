"""A small problem with an image and a text side, for tests of the alternation."""

import numpy as np
from scipy.linalg import eigh

from fairerclip.features import make_features
from fairerclip.solver.alternation import Setting
from fairerclip.solver.problem import Problem, Prompts
from fairerclip.solver.rows import FeatureRows
from fairerclip.solver.terms import Attribute

SETTING = Setting(
    tau=0.6,
    tau_z=0.5,
    tau_text=0.1,
    tau_z_text=0.2,
    criterion="marginal",
    scaling="spectral",
    alignment="linear",
    zero="balanced",
    n_components=1,
    max_iter=30,
    seed=0,
)
GAMMA, GAMMA_TEXT = 1e-3, 1e-3


class Case:
    def __init__(
        self,
        embeddings,
        *,
        c=2,
        v=2,
        prompts_per_class=1,
        n=150,
        seed=0,
        correlation=0.6,
        scores=False,
        gamma=GAMMA,
    ):
        rng = np.random.default_rng(seed + 100)
        e = embeddings(seed=seed, n=n, n_classes=c, n_sensitive=v, correlation=correlation)
        self.e, self.c, self.y, self.s, self.gamma = e, c, e.y.astype(np.int64), e.s, gamma
        self.w = rng.uniform(0.5, 1.5, size=n)
        self.features = make_features("rbf", e.X, n_features=40, bandwidth="median", random_state=seed)
        T = np.repeat(e.text, prompts_per_class, axis=0)
        if prompts_per_class > 1:
            T = T + 0.3 * rng.normal(size=T.shape)
        text_features = make_features("exact", T, n_features=1, bandwidth="median", random_state=0)
        class_of = np.repeat(np.arange(c), prompts_per_class)
        self.prompts = Prompts(text_features, text_features.transform(T), class_of, c)
        self.psi = np.eye(v)[e.s]
        cosines = e.X @ e.text.T
        self.scores = cosines - cosines.mean(axis=1, keepdims=True) if scores else None
        self.problem = Problem(
            FeatureRows(self.features, e.X, dtype="float64", block_rows=37),
            self.w,
            (Attribute("s", self.psi),),
            self.prompts,
            self.y,
            gamma=gamma,
            gamma_text=GAMMA_TEXT,
            solver="cholesky",
            random_state=np.random.RandomState(0),
            scores=self.scores,
        )


def conditional_factor(y, psi, w):
    columns = []
    for k in np.unique(y):
        inside = y == k
        v = w * inside / w[inside].sum()
        centred = (psi - v @ psi) * inside[:, None]
        spread = np.sum(v @ (psi - v @ psi) ** 2)
        if spread > 1e-12:
            columns.append(centred * (w.sum() / (w[inside].sum() * np.sqrt(spread))))
    return np.concatenate(columns, axis=1)


def naive_rounds(case, setting, y, free, rounds):
    """Algorithm 1 as printed on n rows, but for Z_T^(i+1) in the image half-step; no reduction anywhere.

    A row (image, prompt) stands for every prompt of the image's present class, and text rows are built anew in each
    round. Yields after each round eigenvalues of both sides, Z_I (n, r), Z_T (c, r) turned onto it, the scores (n, c),
    and the labels with those predicted where they are free.
    """
    per_class = len(case.prompts.class_of) // case.c
    image_row = np.repeat(np.arange(len(y)), per_class)
    w = case.w[image_row] / per_class
    w = w / w.sum()
    Phi_I, psi = case.features.transform(case.e.X)[image_row], case.psi[image_row]
    Z_I = None
    for _ in range(rounds):
        prompt_row = np.concatenate([np.flatnonzero(case.prompts.class_of == k) for k in y])
        Phi_T, rows_y = case.prompts.Phi[prompt_row], y[image_row]
        onehot = np.eye(case.c)[rows_y]
        L_S = conditional_factor(rows_y, psi, w) if setting.criterion == "conditional" else psi
        blend, V = onehot, None
        if case.scores is not None:
            V = case.scores[image_row]
            V = V * np.sqrt(np.sum(w @ (onehot - w @ onehot) ** 2) / np.sum(w @ (V - w @ V) ** 2))
            blend = (1 - setting.zero_shot) * onehot + setting.zero_shot * V

        def means(Z, rows_y=rows_y):
            return np.stack([w[rows_y == k] @ Z[rows_y == k] / w[rows_y == k].sum() for k in range(case.c)])

        def solve(Phi, gamma, side, target, Z, L_S=L_S):
            weights = setting.weights(side)
            centred = Phi - w @ Phi
            C = centred.T @ (w[:, None] * centred) + gamma * np.eye(Phi.shape[1])
            B = np.zeros_like(C)
            for sigma, L in ((1.0, target), (-weights.sensitive, L_S), (weights.alignment, Z)):
                if L is None:
                    continue
                M = centred.T @ (w[:, None] * (L - w @ L))
                norm = np.linalg.norm(M, 2) ** 2
                if norm > 1e-20:
                    B += sigma * (M @ M.T) / (norm if setting.scaling == "spectral" else 1.0)
            values, U = eigh(B, C)
            values, U = values[::-1], U[:, ::-1]
            r = min(setting.n_components, int(np.sum(values > 1e-10 * np.abs(values).max())))
            return values[:r], centred @ U[:, :r]

        if Z_I is None:
            _, Z_I = solve(Phi_I, case.gamma, "image", blend, None)
        text_values, Z_T = solve(Phi_T, GAMMA_TEXT, "text", onehot, Z_I)
        # Rows as they are without scores; with them a row is paired with every class, as its target says.
        paired = Z_T if V is None else blend @ means(Z_T)
        image_values, Z_I = solve(Phi_I, case.gamma, "image", blend, paired)
        u, _, vt = np.linalg.svd((w[:, None] * Z_T).T @ Z_I, full_matrices=False)
        means_I, means_T = means(Z_I), means(Z_T @ (u @ vt))
        if setting.decision == "target":
            # −|z − mean|²/2 without what all classes share, by the number of classes; scores by least squares.
            rho = setting.zero_shot if V is not None else 0.0
            scores = (1 - rho) * (Z_I @ means_I.T - np.sum(means_I**2, axis=1) / 2) / case.c
            if V is not None:
                scores += rho * (Z_I @ (Z_I.T @ (w[:, None] * V)) + w @ V)
        else:
            balanced = setting.zero == "balanced"
            zeros = (means_I.mean(axis=0), means_T.mean(axis=0)) if balanced else (0.0, 0.0)
            directions = means_T - zeros[1]
            directions = directions / np.linalg.norm(directions, axis=1, keepdims=True)
            scores = (Z_I - zeros[0]) @ directions.T
        scores = scores[::per_class]
        y = np.where(free, scores.argmax(axis=1), y)
        yield image_values, text_values, Z_I[::per_class], means_T, scores, y
