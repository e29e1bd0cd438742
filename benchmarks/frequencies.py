"""Frequencies of random Fourier features: independent, orthogonal, or as products with Hadamard matrices.

Kernel errors are those of doubly centred kernel matrices of simulated rows, because a fit centres its features. A
feature pass is cos(XΩ + b). Hadamard matrices are applied as two products with smaller ones per round, either three
rounds for each block of frequencies, or one round that all blocks share and one of each block. The time to draw
frequencies is compared with a fit of the size of Waterbirds.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from bare import BareFeatures
from harness import Benchmark, counts, options
from scipy.linalg import hadamard
from simulated_rows import FIXED, SimulatedRows

from fairerclip import FairerCLIP
from fairerclip.features import FourierFeatures, rbf_kernel

KERNEL_ROWS = 500
"""Rows whose kernel matrix is approximated."""
STEP = 64
"""Rows that are transformed at once: they stay in the cache of a core."""
ROUNDS = {"three rounds": (0, 3), "one shared round and one": (1, 1)}
"""Rounds that all blocks of frequencies share, and rounds of each block."""


class HadamardFeatures:
    """Features cos(xΩ + b) whose Ω (p, D) is never formed: rounds of random signs and a Hadamard matrix (float32)."""

    def __init__(self, width: int, features: int, *, shared: int, own: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.width, self.features = width, features
        self.q = q = 1 << max(1, (width - 1).bit_length())  # rows are padded to this width
        blocks = -(-features // q)
        self.first = rng.choice([-1, 1], size=(shared, q, 1)).astype(np.float32)
        self.signs = rng.choice([-1, 1], size=(blocks, own, q, 1)).astype(np.float32)
        self.lengths = np.sqrt(rng.chisquare(q, size=(blocks, q, 1))).astype(np.float32)
        self.b = rng.uniform(0, 2 * np.pi, size=(blocks, q, 1)).astype(np.float32)
        # H of q rows is the Kronecker product of two smaller ones, here scaled to orthogonal matrices.
        left = 1 << (q.bit_length() // 2)
        self.factors = [(hadamard(m) / np.sqrt(m)).astype(np.float32) for m in (left, q // left)]

    def transform(self, X: np.ndarray, *, cosines: bool = True) -> np.ndarray:
        """Return cos(XΩ + b) (n, D), or XΩ without cosines."""
        out = np.empty((len(X), self.features), np.float32)
        rows, u, v = (np.empty((self.q, STEP), np.float32) for _ in range(3))  # columns are rows of X
        for start in range(0, len(X), STEP):
            part = X[start : start + STEP]
            rows[:] = 0.0
            rows[: self.width, : len(part)] = part.T
            for signs in self.first:
                self._round(rows, signs, rows, v)
            for k, (first, *others) in enumerate(self.signs):
                self._round(rows, first, u, v)
                for signs in others:
                    self._round(u, signs, u, v)
                u *= self.lengths[k]
                if cosines:
                    u += self.b[k]
                    np.cos(u, out=u)
                columns = slice(k * self.q, min((k + 1) * self.q, self.features))
                out[start : start + STEP, columns] = u[: columns.stop - columns.start, : len(part)].T
        return out

    def _round(self, x: np.ndarray, signs: np.ndarray, out: np.ndarray, work: np.ndarray) -> None:
        """Compute out = H diag(signs) x (q, STEP) by the two factors of H."""
        left, right = self.factors
        a, b = len(left), len(right)
        np.multiply(x, signs, out=out)
        np.matmul(left, out.reshape(a, -1), out=work.reshape(a, -1))
        np.matmul(right, work.reshape(a, b, -1), out=out.reshape(a, b, -1))


def kernel_errors(bench: Benchmark, width: int, features: int) -> None:
    """Compare mean squared errors of kernel values with those of independent frequencies."""
    X = SimulatedRows(width).draw(KERNEL_ROWS).X
    errors: dict[str, list[float]] = {}
    for seed in range(bench.settings.seeds):
        maps = {
            name: FourierFeatures.fit(
                X,
                n_features=features,
                bandwidth="3*median",
                orthogonal=name == "orthogonal",
                random_state=seed,
            )
            for name in ("independent", "orthogonal")
        }
        sigma = maps["independent"].bandwidth
        found = {name: phi.transform(X) for name, phi in maps.items()}
        for name, (shared, own) in ROUNDS.items():
            phi = HadamardFeatures(width, features, shared=shared, own=own, seed=seed)
            found[f"Hadamard, {name}"] = phi.transform(X / np.float32(sigma)) * np.sqrt(2 / features)
        K = rbf_kernel(X, X, sigma)
        for name, Phi in found.items():
            E = Phi.astype(np.float64) @ Phi.T - K
            E -= E.mean(axis=0)
            E -= E.mean(axis=1, keepdims=True)
            errors.setdefault(name, []).append(float(np.mean(E**2)))
    for name in list(errors)[1:]:
        ratio = np.mean(errors[name]) / np.mean(errors["independent"])
        bench.figure(f"squared kernel error, {name} / independent, p={width}, D={features}", float(ratio))


def time_passes(bench: Benchmark, width: int, features: int) -> None:
    """Time XΩ and cos(XΩ + b), dense and by Hadamard matrices."""
    X = np.random.default_rng(0).standard_normal((bench.settings.rows, width), dtype=np.float32)
    size = f"p={width}, D={features}"
    dense = BareFeatures.draw(width, features)
    calls = {f"product, {size}": lambda: dense.product(X), f"pass, {size}": lambda: dense.feature_pass(X)}
    for name, (shared, own) in ROUNDS.items():
        phi = HadamardFeatures(width, features, shared=shared, own=own)
        calls[f"{name}, product, {size}"] = lambda phi=phi: phi.transform(X, cosines=False)
        calls[f"{name}, pass, {size}"] = lambda phi=phi: phi.transform(X)
    bench.in_turns(calls)
    for kind in ("product", "pass"):
        for name in ROUNDS:
            above, below = f"{name}, {kind}, {size}", f"{kind}, {size}"
            bench.ratio(f"{kind} by Hadamard matrices, {name} / dense, {size}", above, below)


def time_draws(bench: Benchmark, width: int, features: Sequence[int]) -> None:
    """Time the extra seconds that orthogonal frequencies take to draw, over a fit."""
    rows = SimulatedRows(width)
    train = rows.draw(bench.settings.fit_rows)
    model = FairerCLIP(n_features=bench.settings.fit_features, random_state=0, **FIXED)
    sizes = sorted({bench.settings.fit_features, max(features)})
    calls = {
        f"draw, {name}, D={D}": lambda name=name, D=D: FourierFeatures.fit(
            train.X[:2], n_features=D, bandwidth=1.0, orthogonal=name == "orthogonal", random_state=0
        )
        for D in sizes
        for name in ("independent", "orthogonal")
    }
    bench.in_turns({"fit": lambda: model.fit(train.X, train.y, **rows.prompts), **calls})
    for D in sizes:
        extra = bench.best(f"draw, orthogonal, D={D}") - bench.best(f"draw, independent, D={D}")
        bench.figure(
            f"extra time to draw orthogonal frequencies, p={width}, D={D} / fit of D={bench.settings.fit_features}",
            extra / bench.best("fit"),
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure."""
    parser = options()
    parser.add_argument("--rows", type=int, default=8192, help="rows of a feature pass")
    parser.add_argument("--widths", type=counts, default=(512, 768))
    parser.add_argument("--features", type=counts, default=(1000, 8000))
    parser.add_argument("--kernel-features", type=counts, default=(500, 1000, 3000))
    parser.add_argument("--seeds", type=int, default=8, help="draws of which kernel errors are averaged")
    parser.add_argument("--fit-rows", type=int, default=4795)
    parser.add_argument("--fit-features", type=int, default=3000)
    bench = Benchmark(parser, arguments)
    asked = bench.settings
    for width in asked.widths:
        for features in asked.kernel_features:
            kernel_errors(bench, width, features)
        for features in asked.features:
            time_passes(bench, width, features)
    time_draws(bench, max(asked.widths), asked.features)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
