"""A small problem with an image and a text side, for tests of the alternation."""

import numpy as np

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
        self.e, self.c, self.y, self.s = e, c, e.y.astype(np.int64), e.s
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
