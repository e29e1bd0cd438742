"""Measures of the dependence of a representation on an attribute: Dep, HSIC and kernel canonical correlation.

All are 0 for a constant attribute. Their estimates are above 0 even for an independent attribute;
`fairerclip.metrics.permutation_test` tests whether a value is more than chance.
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
"""Largest number of rows for which `kcc` factors the kernel matrix exactly."""

DEP_SEED = 0
"""Seed for the rows of a median bandwidth in `dep`, which has no `random_state`."""

Features = Callable[[slice], FloatArray]


@dataclass(frozen=True)
class MeasureOptions:
    """Parameters of the measures, as in `kcc`; `dep` and `hsic` use the bandwidth alone."""

    bandwidth: float | str
    regularization: float
    n_features: int

    def __post_init__(self) -> None:
        check_positive("regularization", self.regularization)


def dep(Z: ArrayLike, S: Any, *, kind: str = "auto", bandwidth: float | str = "median") -> float:
    r"""Compute Dep(Z, S), the sum of squared covariances of a representation with functions of an attribute.

    Eq. (2) of Dehdashtian et al. 2024 (arXiv:2403.15593); see docs/math.md#dep.
    O(n·r) time for a categorical S, O(n²·r) for a continuous one; O(n·r) memory.

    Parameters
    ----------
    Z : array of shape (n, r) or (n,)
        Representation. The value scales with the square of Z, so compare representations of equal scale.
    S : array of shape (n,) or (n, m)
        Attribute. Several categorical columns are intersected.
    kind : {"auto", "categorical", "continuous"}
        "auto" treats floats that are not all integers as continuous, everything else as categories.
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
    r"""Compute the biased estimate tr(KHLH)/n² of the Hilbert-Schmidt independence criterion.

    The HSIC of Gretton et al. 2005 that Dehdashtian et al. report for embeddings; see docs/math.md#hsic.
    O(n²·p) time, O(n·p + block·n) memory: no n×n array is formed.

    Parameters
    ----------
    X : array of shape (n, p) or (n,)
        Rows under an RBF kernel.
    Y : array of shape (n,) or (n, m)
        Attribute: delta kernel on categories (several columns are intersected), RBF on quantities.
    kind : {"auto", "categorical", "continuous"}
        As in `dep`.
    bandwidth : float, "median" or "3*median"
        σ of the RBF kernels; a median is computed separately for X and for Y.
    random_state : None, int, RandomState or Generator
        Draws the rows of a median bandwidth if n > 1000.

    Returns
    -------
    float
        At least 0. As n grows it tends to 0 if and only if X and Y are independent.

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
        # H removes any constant; subtracting a near mean first reduces the cancellation below.
        if block.start == 0:
            k_shift, l_shift = float(K.mean()), float(L.mean())
        K -= k_shift
        L -= l_shift
        cross += float(np.vdot(K, L))
        k_rows[block], l_rows[block] = K.sum(axis=1), L.sum(axis=1)
    trace = cross - 2 * float(k_rows @ l_rows) / n + float(k_rows.sum() * l_rows.sum()) / n**2
    return max(0.0, trace / n**2)


def hsic_bound(Y: Any) -> float:
    r"""Compute the upper bound of `hsic` with these categories for any rows; see docs/math.md#hsic-bound.

    O(n + c²) time. It holds for every kernel of the rows with values in [0, 1].

    Parameters
    ----------
    Y : array of shape (n,) or (n, m)
        Categories; several columns are intersected.

    Returns
    -------
    float
        4p²(1 − p)² for two categories of shares p and 1 − p, so at most 1/4.

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
    r"""Compute the kernel canonical correlation, the largest regularised correlation of functions of X and of Y.

    After Bach and Jordan 2002, which Dehdashtian et al. report for embeddings; see docs/math.md#kcc.
    O(n³) time and O(n²) memory up to 2000 rows; for more, O(n·D² + D³) and O(D²) with D features.

    Parameters
    ----------
    X : array of shape (n, p) or (n,)
        Rows under an RBF kernel.
    Y : array of shape (n,) or (n, m)
        Attribute: one-hot categories, or quantities under an RBF kernel.
    kind : {"auto", "categorical", "continuous"}
        As in `dep`.
    regularization : float, default=1e-2
        κ > 0, added to covariances normalised by 1/n, whose eigenvalues sum to at most 1 for any n.
    n_features : int, default=2000
        Number of random Fourier features if n > 2000; up to 2000 rows the kernel matrix is factored exactly.
    bandwidth : float, "median" or "3*median"
        σ of the RBF kernels.
    random_state : None, int, RandomState or Generator
        Draws the features, and the rows of a median bandwidth if n > 1000.

    Returns
    -------
    float
        In [0, 1].

    Notes
    -----
    The largest singular value of :math:`(C_{xx}+κI)^{-1/2} C_{xy} (C_{yy}+κI)^{-1/2}`, up to 2000 rows in the
    equal form :math:`W_y^\top (K_x + nκI)^{-1} K_x W_y` with the centred Gram matrix. The penalty K² + nκK
    agrees to first order with Bach and Jordan's (K + nκ'/2)² for κ' = κ. With a small κ and few rows any two
    variables are correlated, so values at different κ or n cannot be compared.

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
    """Return the square root of the largest eigenvalue, cut to [0, 1], of G (k, k), symmetric up to rounding."""
    top = eigh((G + G.T) / 2, eigvals_only=True, subset_by_index=[len(G) - 1, len(G) - 1])
    return float(np.sqrt(np.clip(top[0], 0.0, 1.0)))


def gram_correlation(K: FloatArray, F: FloatArray, regularization: float) -> float:
    """Return the largest canonical correlation for a centred Gram matrix K (n, n) and a centred factor F (n, k)."""
    W = whitened(F, regularization)
    return root_of_top(W.T @ smooth(K, K @ W, regularization))


def centred_gram(rows: FloatArray, sigma: float) -> FloatArray:
    """Return HKH (n, n) of the RBF kernel."""
    K = rbf_kernel(rows, rows, sigma)
    K -= K.mean(axis=0)
    K -= K.mean(axis=1, keepdims=True)
    return np.asarray((K + K.T) / 2)


def cholesky_factor(C: FloatArray, shift: float) -> FloatArray:
    """Return the lower Cholesky factor (D, D) of C + shift·I."""
    shifted = C.copy()
    shifted[np.diag_indices_from(shifted)] += shift
    try:
        return np.asarray(cholesky(shifted, lower=True, overwrite_a=True))
    except LinAlgError as error:
        raise NotDefiniteError(
            "the regularised covariance is not positive definite in floating point; raise regularization"
        ) from error


def smooth(K: FloatArray, B: FloatArray, regularization: float) -> FloatArray:
    """Return (K + nκI)⁻¹ B (n, m). For B = KW it is the projection of W on the whitened functions of X."""
    factor = cholesky_factor(K, len(K) * regularization)
    return np.asarray(cho_solve((factor, True), B))


def whitened(Phi: FloatArray, regularization: float) -> FloatArray:
    """Return Φ(C + κI)^(-1/2)/√n up to a rotation, for centred Φ (n, D) and C = ΦᵀΦ/n."""
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
    """Return the feature functions of the rows X (n, p) and of the attribute, drawn in this order."""
    of_rows = fourier_map(rows, n_features, bandwidth, rng)
    if not attribute.categorical:
        return of_rows, fourier_map(attribute.rows, n_features, bandwidth, rng)
    factor = attribute.factor()
    return of_rows, lambda block: factor[block]


def correlation_of_features(x: Features, y: Features, n: int, regularization: float) -> float:
    """Compute the largest canonical correlation of two feature maps over n rows, in blocks; O(D²) memory."""
    split, width = x(slice(0, 1)).shape[1], y(slice(0, 1)).shape[1]
    width += split
    total, square, shift = np.zeros(width), np.zeros((width, width)), np.zeros(width)
    step = max(1, BLOCK // width)
    for start in range(0, n, step):
        block = slice(start, min(start + step, n))
        joint = np.concatenate([x(block), y(block)], axis=1)  # (b, D_x + D_y)
        shift = shift if start else joint.mean(axis=0)
        joint -= shift
        total += joint.sum(axis=0)
        square += joint.T @ joint
    C = square / n - np.outer(total / n, total / n)
    factors = [cholesky_factor(C[part, part], regularization) for part in (slice(split), slice(split, None))]
    M = solve_triangular(factors[0], C[:split, split:], lower=True)
    M = solve_triangular(factors[1], M.T, lower=True)  # (D_y, D_x)
    return root_of_top(M @ M.T if len(M) <= M.shape[1] else M.T @ M)
