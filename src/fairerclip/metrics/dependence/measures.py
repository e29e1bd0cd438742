"""How much a representation holds of an attribute: Dep, HSIC and kernel canonical correlation.

All are 0 for a constant attribute, and their estimates are above 0 for an independent one:
`fairerclip.metrics.permutation_test` says whether a value is more than chance.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError, cho_solve, cholesky, eigh, solve_triangular

from fairerclip._util.checks import check_positive
from fairerclip.errors import NotDefiniteError
from fairerclip.features import make_features, rbf_kernel, resolve_bandwidth
from fairerclip.features.feature_map import RandomState, as_rng
from fairerclip.metrics.dependence.attribute import (
    BLOCK,
    KernelAttribute,
    centred,
    read_pair,
    row_blocks,
    trivial,
)
from fairerclip.metrics.label_codes import FloatArray

EXACT_ROWS = 2000
"""Up to so many rows `kcc` factors the kernel matrix exactly."""

DEP_SEED = 0
"""Draws the rows of a median bandwidth in `dep`, which takes no seed."""

Features = Callable[[slice], FloatArray]


@dataclass(frozen=True)
class MeasureOptions:
    """What the measures are told: as the parameters of `kcc`, of which `dep` and `hsic` use the bandwidth alone."""

    bandwidth: float | str
    regularization: float
    n_features: int

    def __post_init__(self) -> None:
        check_positive("regularization", self.regularization)


def dep(Z: ArrayLike, S: Any, *, kind: str = "auto", bandwidth: float | str = "median") -> float:
    r"""Dependence of a representation on an attribute: the sum of squared covariances with functions of S.

    Eq. (2) of Dehdashtian et al. 2024 (arXiv:2403.15593); see docs/math.md#dep.
    O(n·r) time for a categorical S, O(n²·r) for a continuous one; O(n·r) memory.

    Parameters
    ----------
    Z : array, shape (n, r) or (n,)
        Representation. The value scales with the square of Z: compare like with like.
    S : array, shape (n,) or (n, m)
        Attribute. Several categorical columns are intersected.
    kind : "auto", "categorical" or "continuous"
        "auto" takes floats of which at least one is not an integer as continuous, all else as categories.
    bandwidth : float, "median" or "3*median"
        σ of the RBF kernel of a continuous S. The median is over at most 1000 rows, drawn with a fixed seed.

    Returns
    -------
    float
        At least 0.

    Notes
    -----
    :math:`\frac{1}{n^2} \|Z^\top H L_S\|_F^2` with :math:`L_S L_S^\top = K_S`: one-hot columns for
    categories (delta kernel); :math:`\operatorname{tr}(Z_c^\top K_S Z_c) / n^2` by blocks of rows for RBF.

    Examples
    --------
    >>> dep([[1.0], [1.0], [-1.0], [-1.0]], ["a", "a", "b", "b"])  # group sums ±2: (4 + 4) / 16
    0.5
    >>> dep([[1.0], [-1.0], [1.0], [-1.0]], ["a", "a", "b", "b"])
    0.0
    """
    rows, attribute = read_pair(Z, S, kind, ("Z", "S"))
    if trivial(rows, attribute):
        return 0.0
    Zc, n = centred(rows), len(rows)  # (n, r)
    if attribute.categorical:
        order = np.argsort(attribute.rows, kind="stable")
        starts = np.flatnonzero(np.diff(attribute.rows[order], prepend=-1))
        sums = np.add.reduceat(Zc[order], starts, axis=0)  # (|S|, r)
        return float((sums**2).sum()) / n**2
    attribute = attribute.resolved(bandwidth, DEP_SEED)
    total = sum(float(np.vdot(Zc[block], attribute.kernel(block) @ Zc)) for block in row_blocks(n))
    return max(0.0, total / n**2)


def hsic(
    X: ArrayLike,
    Y: Any,
    *,
    kind: str = "auto",
    bandwidth: float | str = "median",
    random_state: RandomState = None,
) -> float:
    r"""Hilbert-Schmidt independence criterion, biased estimate: tr(KHLH)/n².

    The HSIC of Gretton et al. 2005 that Dehdashtian et al. report for embeddings; see docs/math.md#hsic.
    O(n²·p) time, O(n·p + block·n) memory: no n×n array is formed.

    Parameters
    ----------
    X : array, shape (n, p) or (n,)
        Rows under an RBF kernel.
    Y : array, shape (n,) or (n, m)
        Attribute: delta kernel on categories (several columns are intersected), RBF on quantities.
    kind : "auto", "categorical" or "continuous"
        As in `dep`.
    bandwidth : float, "median" or "3*median"
        σ of the RBF kernels; a median is found for X and Y each on its own.
    random_state : None, int, RandomState or Generator
        Draws the rows of a median bandwidth where n > 1000.

    Returns
    -------
    float
        At least 0; 0 in the limit exactly for independent X and Y.

    Examples
    --------
    >>> x = [0.0, 0.1, 5.0, 5.1]
    >>> hsic(x, [0, 0, 1, 1]) > 10 * hsic(x, [0, 1, 0, 1])
    True
    """
    rows, attribute = read_pair(X, Y, kind, ("X", "Y"))
    if trivial(rows, attribute):
        return 0.0
    n, rng = len(rows), as_rng(random_state)
    sigma = resolve_bandwidth(bandwidth, rows, random_state=rng)
    attribute = attribute.resolved(bandwidth, rng)
    cross, k_rows, l_rows = 0.0, np.empty(n), np.empty(n)
    k_shift = l_shift = 0.0
    for block in row_blocks(n):
        K, L = rbf_kernel(rows[block], rows, sigma), attribute.kernel(block)  # (b, n)
        # H takes out any constant; taking out a near mean first leaves less to cancel below.
        if block.start == 0:
            k_shift, l_shift = float(K.mean()), float(L.mean())
        K -= k_shift
        L -= l_shift
        cross += float(np.vdot(K, L))
        k_rows[block], l_rows[block] = K.sum(axis=1), L.sum(axis=1)
    trace = cross - 2 * float(k_rows @ l_rows) / n + float(k_rows.sum() * l_rows.sum()) / n**2
    return max(0.0, trace / n**2)


def hsic_bound(Y: Any) -> float:
    r"""Upper bound of `hsic` with these categories, whatever the rows are; see docs/math.md#hsic-bound.

    O(n + c²) time. Any kernel of the rows with values in [0, 1] will do.

    Parameters
    ----------
    Y : array, shape (n,) or (n, m)
        Categories; several columns are intersected.

    Returns
    -------
    float
        4p²(1 − p)² for two categories of shares p and 1 − p, so 1/4 at most.

    Examples
    --------
    >>> hsic_bound([0, 0, 1, 1]), hsic_bound([0, 0, 0, 1])
    (0.25, 0.140625)
    """
    codes = KernelAttribute.read(Y, "categorical", "Y").rows
    share = np.bincount(codes) / len(codes)
    # HSIC = Σ_jk A_jk ⟨μ_j, μ_k⟩ with mean embeddings μ whose inner products lie in [0, 1].
    A = np.diag(share**2) - np.outer(share**2, share) - np.outer(share, share**2)
    A += (share**2).sum() * np.outer(share, share)
    return float(np.maximum(A, 0.0).sum())


def kcc(
    X: ArrayLike,
    Y: Any,
    *,
    kind: str = "auto",
    regularization: float = 1e-2,
    n_features: int = 2000,
    bandwidth: float | str = "median",
    random_state: RandomState = None,
) -> float:
    r"""Kernel canonical correlation: the largest correlation between functions of X and of Y, regularised.

    After Bach and Jordan 2002, which Dehdashtian et al. report for embeddings; see docs/math.md#kcc.
    O(n³) time and O(n²) memory up to 2000 rows, O(n·D² + D³) and O(D²) with D features beyond.

    Parameters
    ----------
    X : array, shape (n, p) or (n,)
        Rows under an RBF kernel.
    Y : array, shape (n,) or (n, m)
        Attribute: one-hot categories, or quantities under an RBF kernel.
    kind : "auto", "categorical" or "continuous"
        As in `dep`.
    regularization : float, default=1e-2
        κ > 0, added to covariances that are normalised by 1/n. The kernels have k(x, x) = 1, so that the
        eigenvalues of a covariance sum to 1 at most: κ is on that scale, and does not depend on n.
    n_features : int, default=2000
        Random Fourier features where n > 2000; up to 2000 rows the kernel matrix is factored exactly.
    bandwidth : float, "median" or "3*median"
        σ of the RBF kernels.
    random_state : None, int, RandomState or Generator
        Draws the features, and the rows of a median bandwidth where n > 1000.

    Returns
    -------
    float
        In [0, 1].

    Notes
    -----
    The largest singular value of :math:`(C_{xx}+κI)^{-1/2} C_{xy} (C_{yy}+κI)^{-1/2}`, computed as
    :math:`L_x^{-1} C_{xy} L_y^{-\top}` from Cholesky factors; up to 2000 rows through the equal form
    :math:`W_y^\top (K_x + nκI)^{-1} K_x W_y` in the centred Gram matrix. In Gram matrices the penalty is
    K² + nκK; Bach and Jordan's (K + nκ'/2)² agrees to first order for κ' = κ. With a small κ and few rows
    any two variables are correlated: values of different κ or n do not compare.

    Examples
    --------
    >>> x = [0.0, 0.1, 5.0, 5.1]
    >>> round(kcc(x, [0, 0, 1, 1]), 2), round(kcc(x, [0, 1, 0, 1]), 2)
    (0.98, 0.05)
    """
    rows, attribute = read_pair(X, Y, kind, ("X", "Y"))
    check_positive("regularization", regularization)
    if trivial(rows, attribute):
        return 0.0
    rng = as_rng(random_state)
    if len(rows) <= EXACT_ROWS:
        K = centred_gram(rows, resolve_bandwidth(bandwidth, rows, random_state=rng))
        return gram_correlation(K, attribute.resolved(bandwidth, rng).factor(), regularization)
    maps = feature_maps(rows, attribute, n_features, bandwidth, rng)
    return correlation_of_features(*maps, len(rows), regularization)


def root_of_top(G: FloatArray) -> float:
    """Square root of the largest eigenvalue of G (k, k), symmetric but for rounding."""
    top = eigh((G + G.T) / 2, eigvals_only=True, subset_by_index=[len(G) - 1, len(G) - 1])
    return float(np.sqrt(np.clip(top[0], 0.0, 1.0)))


def gram_correlation(K: FloatArray, F: FloatArray, regularization: float) -> float:
    """Largest canonical correlation of centred Gram matrix K (n, n) and a centred factor F (n, k) of the other."""
    W = whitened(F, regularization)
    return root_of_top(W.T @ smooth(K, K @ W, regularization))


def centred_gram(rows: FloatArray, sigma: float) -> FloatArray:
    """HKH (n, n) of the RBF kernel."""
    K = rbf_kernel(rows, rows, sigma)
    K -= K.mean(axis=0)
    K -= K.mean(axis=1, keepdims=True)
    return np.asarray((K + K.T) / 2)


def cholesky_factor(C: FloatArray, shift: float) -> FloatArray:
    """Lower factor of C + shift·I, (D, D)."""
    shifted = C.copy()
    shifted[np.diag_indices_from(shifted)] += shift
    try:
        return np.asarray(cholesky(shifted, lower=True, overwrite_a=True))
    except LinAlgError as error:
        raise NotDefiniteError(
            "the regularised covariance is not positive definite in floating point; raise regularization"
        ) from error


def smooth(K: FloatArray, B: FloatArray, regularization: float) -> FloatArray:
    """(K + nκI)⁻¹ B, (n, m). With B = KW it is W projected on whitened functions of X, without features."""
    factor = cholesky_factor(K, len(K) * regularization)
    return np.asarray(cho_solve((factor, True), B))


def whitened(Phi: FloatArray, regularization: float) -> FloatArray:
    """Φ(C + κI)^(-1/2)/√n up to a rotation, for centred Φ (n, D) and C = ΦᵀΦ/n."""
    n = len(Phi)
    factor = cholesky_factor(Phi.T @ Phi / n, regularization)
    return np.ascontiguousarray(solve_triangular(factor, Phi.T, lower=True).T / np.sqrt(n))


def fourier_map(values: FloatArray, n_features: int, bandwidth: float | str, rng: RandomState) -> Features:
    """Return a function from a slice of the rows ``values`` (n, p) to their features (b, D)."""
    phi = make_features("rbf", values, n_features=n_features, bandwidth=bandwidth, random_state=rng)
    return lambda block: np.asarray(phi.transform(values[block]), dtype=np.float64)


def feature_maps(
    rows: FloatArray, attribute: KernelAttribute, n_features: int, bandwidth: float | str, rng: RandomState
) -> tuple[Features, Features]:
    """Features of the rows X (n, p), and of the attribute; drawn in this order."""
    of_rows = fourier_map(rows, n_features, bandwidth, rng)
    if not attribute.categorical:
        return of_rows, fourier_map(attribute.rows, n_features, bandwidth, rng)
    factor = attribute.factor()
    return of_rows, lambda block: factor[block]


def correlation_of_features(x: Features, y: Features, n: int, regularization: float) -> float:
    """Largest canonical correlation of two feature maps over n rows, taken by blocks; O(D²) memory."""
    split, width = x(slice(0, 1)).shape[1], y(slice(0, 1)).shape[1]
    width += split
    total, square, shift = np.zeros(width), np.zeros((width, width)), np.zeros(width)
    step = max(1, BLOCK // width)
    for start in range(0, n, step):
        block = slice(start, min(start + step, n))
        both = np.concatenate([x(block), y(block)], axis=1)  # (b, D_x + D_y)
        shift = shift if start else both.mean(axis=0)
        both -= shift
        total += both.sum(axis=0)
        square += both.T @ both
    C = square / n - np.outer(total / n, total / n)
    factors = [cholesky_factor(C[part, part], regularization) for part in (slice(split), slice(split, None))]
    M = solve_triangular(factors[0], C[:split, split:], lower=True)
    M = solve_triangular(factors[1], M.T, lower=True)  # (D_y, D_x)
    return root_of_top(M @ M.T if len(M) <= M.shape[1] else M.T @ M)
