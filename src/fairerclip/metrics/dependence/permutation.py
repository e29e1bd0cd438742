"""Permutation test of independence with any of the dependence measures."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np

from fairerclip._util.checks import check_choice
from fairerclip.errors import ParameterError
from fairerclip.features import rbf_kernel, resolve_bandwidth
from fairerclip.features.feature_map import RandomState, Rng, as_rng
from fairerclip.metrics.dependence.attribute import KernelAttribute, centred, read_pair, row_blocks, trivial
from fairerclip.metrics.dependence.measures import (
    DEP_SEED,
    EXACT_ROWS,
    MeasureOptions,
    centred_gram,
    feature_maps,
    smooth,
    whitened,
)
from fairerclip.metrics.label_codes import FloatArray, IntArray, as_labels, same_length

Scorer = Callable[[IntArray], FloatArray]

_BATCH = 2**23
"""Number of permuted values computed at a time (64 MB)."""

_TIE = 1e-10
"""Relative difference up to which a permuted value counts as equal to the observed one."""


@dataclass(frozen=True, eq=False)
class PermutationResult:
    """Result of `permutation_test`: the observed statistic, its p-value and the permuted values (B,)."""

    statistic: float
    p_value: float
    null: FloatArray


def permutation_test(
    X: Any,
    S: Any,
    *,
    statistic: str | Callable[[Any, Any], float] = "dep",
    n_permutations: int = 999,
    kind: str = "auto",
    bandwidth: float | str = "median",
    regularization: float = 1e-2,
    n_features: int = 2000,
    random_state: RandomState = None,
) -> PermutationResult:
    """Test independence of X and S by comparing a statistic with its values for permuted S.

    See docs/math.md#permutation. With B permutations and a factor of S of k columns (one fewer than the
    categories, some tens for a quantity) the time is O(B·n·r·k) for "dep", O(n²·(p + B·k)) for "hsic" and
    O(n·D² + B·n·D·k) for "kcc" (D = n up to 2000 rows). Memory is 64 MB, and n·D values for "kcc".

    Parameters
    ----------
    X : array of shape (n, d) or (n,)
        Representation, or the first argument of a callable.
    S : array of shape (n,) or (n, m)
        Attribute; its rows are permuted.
    statistic : {"dep", "hsic", "kcc"} or callable, default="dep"
        A callable takes (X, permuted S) and returns a float that grows with dependence.
    n_permutations : int, default=999
        B; the smallest p-value is 1/(B + 1).
    kind, bandwidth, regularization, n_features
        As in `dep`, `hsic` and `kcc`; ignored for a callable.
    random_state : None, int, RandomState or Generator
        Draws the bandwidth rows and features as the measure does, then the permutations.

    Returns
    -------
    PermutationResult
        p = (1 + #{null ≥ observed}) / (1 + B) is valid for any n; a permuted value that equals the observed
        one up to rounding counts as ≥.

    Notes
    -----
    The test is of independence of X and S, not of independence given a class. Rows must be exchangeable:
    several frames of one video or photos of one person make p too small.

    Examples
    --------
    >>> x = [0.0, 0.1, 0.2, 0.3, 5.0, 5.1, 5.2, 5.3]
    >>> result = permutation_test(x, [0, 0, 0, 0, 1, 1, 1, 1], n_permutations=199, random_state=0)
    >>> result.p_value < 0.06 and result.null.shape == (199,)
    True
    """
    B = check_permutations(n_permutations)
    rng = as_rng(random_state)
    if callable(statistic):
        scorer, n, batch = _callable_scorer(statistic, X, S)
        return _run(scorer, n, B, batch, rng)
    check_choice("statistic", statistic, tuple(_SCORERS))
    options = MeasureOptions(bandwidth, regularization, n_features)
    rows, attribute = read_pair(X, S, kind, ("X", "S"))
    return permute_attribute(rows, attribute, statistic, B, options, rng)


def check_permutations(n_permutations: int) -> int:
    """Return the number of permutations as an int, and raise if it is below 1."""
    B = index(n_permutations)
    if B < 1:
        raise ParameterError(f"n_permutations must be at least 1; got {B}")
    return B


def permute_attribute(
    rows: FloatArray, attribute: KernelAttribute, statistic: str, B: int, options: MeasureOptions, rng: Rng
) -> PermutationResult:
    """Run `permutation_test` on rows and an attribute that are already checked."""
    if trivial(rows, attribute):
        return PermutationResult(0.0, 1.0, np.zeros(B))
    scorer, width = _SCORERS[statistic](rows, attribute, options, rng)
    return _run(scorer, len(rows), B, max(1, _BATCH // width), rng)


def _orders(n: int, B: int, batch: int, rng: Rng) -> Iterator[IntArray]:
    """Yield the identity and B permutations in batches (b, n); the draws do not depend on the batch size."""
    todo = [np.arange(n)]
    for _ in range(B):
        if len(todo) == batch:
            yield np.stack(todo)
            todo = []
        todo.append(rng.permutation(n))
    yield np.stack(todo)


def _run(scorer: Scorer, n: int, B: int, batch: int, rng: Rng) -> PermutationResult:
    values = np.concatenate([scorer(orders) for orders in _orders(n, B, batch, rng)])
    observed, null = float(values[0]), values[1:]
    # The absolute part is for an observed value that is zero up to rounding.
    slack = _TIE * abs(observed) + 1e-14 * float(np.abs(null).max())
    exceed = int((null >= observed - slack).sum())
    return PermutationResult(observed, (1 + exceed) / (1 + B), null)


def _callable_scorer(function: Callable[[Any, Any], float], X: Any, S: Any) -> tuple[Scorer, int, int]:
    labels = as_labels(S, "S")
    n = same_length(X=X, S=labels)
    return lambda orders: np.array([float(function(X, labels[order])) for order in orders]), n, 1


def _permuted(F: FloatArray, orders: IntArray) -> FloatArray:
    """Return the rows of F (n, k) in each of b orders, side by side (n, b·k)."""
    return F[orders.T].reshape(len(F), -1)


def _dep_scorer(
    rows: FloatArray, attribute: KernelAttribute, options: MeasureOptions, rng: Rng
) -> tuple[Scorer, int]:
    """Return the scorer ‖Z_cᵀF‖²/n² with FFᵀ = HK_SH, in which only the rows of F are permuted."""
    Zt = centred(rows).T
    F = attribute.resolved(options.bandwidth, DEP_SEED).factor()
    n, k = F.shape

    def score(orders: IntArray) -> FloatArray:
        T = Zt @ _permuted(F, orders)
        return np.asarray(np.einsum("ij,ij->j", T, T).reshape(-1, k).sum(axis=1) / n**2)

    return score, max(n, len(Zt)) * k


def _hsic_scorer(
    rows: FloatArray, attribute: KernelAttribute, options: MeasureOptions, rng: Rng
) -> tuple[Scorer, int]:
    """Return the scorer tr(FᵀKF)/n² with FFᵀ = HLH; K is computed in row blocks, once per batch of permutations."""
    sigma = resolve_bandwidth(options.bandwidth, rows, random_state=rng)
    F = attribute.resolved(options.bandwidth, rng).factor()
    n, k = F.shape

    def score(orders: IntArray) -> FloatArray:
        Fp = _permuted(F, orders)
        sums = np.zeros(Fp.shape[1])
        for block in row_blocks(n):
            sums += np.einsum("ij,ij->j", rbf_kernel(rows[block], rows, sigma) @ Fp, Fp[block])
        return np.asarray(sums.reshape(-1, k).sum(axis=1) / n**2)

    return score, n * k


def _kcc_scorer(
    rows: FloatArray, attribute: KernelAttribute, options: MeasureOptions, rng: Rng
) -> tuple[Scorer, int]:
    """Return the scorer of KCC; both sides are whitened once, since C does not change when rows are permuted."""
    n = len(rows)
    if n <= EXACT_ROWS:
        K = centred_gram(rows, resolve_bandwidth(options.bandwidth, rows, random_state=rng))
        W = whitened(attribute.resolved(options.bandwidth, rng).factor(), options.regularization)
        A = smooth(K, K, options.regularization)  # (n, n)
    else:
        x, y = (
            features(slice(0, n))
            for features in feature_maps(rows, attribute, options.n_features, options.bandwidth, rng)
        )
        A = whitened(centred(x), options.regularization).T  # (D, n)
        W = whitened(centred(y), options.regularization)
    k = W.shape[1]

    def score(orders: IntArray) -> FloatArray:
        right = _permuted(W, orders)
        image = A @ right
        left = right if n <= EXACT_ROWS else image
        if k == 1:
            top = np.einsum("ij,ij->j", left, image)
        else:
            by_order = [side.reshape(len(side), -1, k).transpose(1, 2, 0).copy() for side in (left, image)]
            G = by_order[0] @ by_order[1].transpose(0, 2, 1)  # (b, k, k)
            top = np.linalg.eigvalsh((G + G.transpose(0, 2, 1)) / 2)[:, -1]
        return np.asarray(np.sqrt(np.clip(top, 0.0, 1.0)))

    return score, max(A.shape) * k


_SCORERS: dict[str, Callable[..., tuple[Scorer, int]]] = {
    "dep": _dep_scorer,
    "hsic": _hsic_scorer,
    "kcc": _kcc_scorer,
}
