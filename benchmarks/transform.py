"""Rate of mitigating embeddings, over one bare p×p product of the same rows.

A fitted `EmbeddingMitigator` maps rows of float32, and of float16, block by block. The bare product multiplies the same
blocks with a square matrix of float32. Rows are made by blocks, outside of the timing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import numpy as np
from harness import Benchmark, options
from simulated_rows import SimulatedRows

from fairerclip import EmbeddingMitigator

BLOCK = 65_536
"""Rows that are made, mapped and multiplied at once."""


def fitted(rows: SimulatedRows, n: int) -> EmbeddingMitigator:
    """Fit a mitigator on simulated rows."""
    train = rows.draw(n)
    return EmbeddingMitigator().fit(
        train.X, sensitive_features=train.s, sensitive_text=dict(enumerate(rows.sensitive_text[:, None]))
    )


def measure(model: EmbeddingMitigator, base: np.ndarray, n: int, dtype: str) -> tuple[float, float]:
    """Return seconds of mapping n rows, and of the bare product of the same rows."""
    width = base.shape[1]
    matrix = np.random.default_rng(0).normal(size=(width, width)).astype(np.float32)
    mapping = product = 0.0
    for start in range(0, n, BLOCK):
        scale = np.float32(1 + start / n)  # other rows in each block, made quickly
        X = (base[: min(BLOCK, n - start)] * scale).astype(dtype)
        began = time.perf_counter()
        model.transform(X)
        mapping += time.perf_counter() - began
        began = time.perf_counter()
        X.astype(np.float32, copy=False) @ matrix
        product += time.perf_counter() - began
    return mapping, product


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure."""
    parser = options(repeats=1)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=512)
    bench = Benchmark(parser, arguments)
    n, width = bench.settings.rows, bench.settings.width
    rows = SimulatedRows(width)
    model = fitted(rows, min(n, 4000))
    base = rows.draw(min(n, BLOCK), first=1000).X
    measure(model, base, len(base), "float32")  # so that neither pays for the first call
    for _ in range(bench.settings.repeats):
        for dtype in ("float32", "float16"):
            mitigated, product = measure(model, base, n, dtype)
            bench.seconds.setdefault(f"mitigated, {dtype}", []).append(mitigated)
            bench.seconds.setdefault(f"product, {dtype}", []).append(product)
    for dtype in ("float32", "float16"):
        bench.ratio(
            f"rate of mitigating {dtype} rows / rate of a bare p×p product",
            f"product, {dtype}",
            f"mitigated, {dtype}",
            at_least=0.7,
        )
        rate = n / bench.best(f"mitigated, {dtype}")
        bench.figure(f"{dtype} rows mitigated", rate, "per second", better="higher")
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
