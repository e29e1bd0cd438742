"""One side, image or text, with its labels: the terms in reduced coordinates, and their solution.

Both sides are instances of one class. A side holds the second moments of its features in a factor of C,
and its labels in cross-moments; everything else is small.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fairerclip._util.types import F64
from fairerclip.solver.lowrank import Factor, Reduced, solve_reduced
from fairerclip.solver.terms import LabelMoments, alignment_map, scores_map, sensitive_maps, target_map

VANISHED = 1e-12
"""A term whose squared norm is at most this share of its Cauchy-Schwarz bound counts as zero."""


@dataclass(frozen=True)
class Term:
    """One Dep term without its weight σ: the reduced matrix, the spectral norm, and whether it vanished."""

    name: str
    B: F64
    """(q, q) = (R A)(R A)ᵀ."""
    A: F64
    """(K, k) the label map: M = cross @ A."""
    norm: float
    """‖M Mᵀ‖₂ = ‖M‖₂², by which ``scaling="spectral"`` divides."""
    vanished: bool
    """Whether the term is zero up to rounding."""


@dataclass(frozen=True)
class Weights:
    """Weights of the S and alignment terms on one side, before spectral scaling."""

    sensitive: float
    alignment: float


def term_weight(tau: float, scaling: str) -> float:
    """Return τ as in the paper, or τ/(1−τ) as in the authors' code (``scaling="spectral"``)."""
    return tau / (1.0 - tau) if scaling == "spectral" else tau


@dataclass(frozen=True)
class SideSolution:
    """Solution of one side, U = E @ coefficients, with the class means of Z = Φ_c U."""

    coefficients: F64
    """(q, r)"""
    eigenvalues: F64
    n_positive: int
    class_means: F64
    """(c, r) mean of Z inside each class, about the weighted mean of all rows."""
    dropped: tuple[str, ...]
    """Names of the terms that vanished and were left out."""
    terms: tuple[tuple[float, Term], ...]
    """Pairs (σ, term) of the sum B = Σ σ M Mᵀ."""

    @cached_property
    def parts(self) -> dict[str, float]:
        """Signed contribution of each term to the objective; together they equal the sum of the eigenvalues."""
        a = self.coefficients
        return {term.name: float(sigma * np.sum(a * (term.B @ a))) for sigma, term in self.terms}


@dataclass(frozen=True)
class Side:
    """Reduced moments of one modality for one set of labels.

    Parameters
    ----------
    mean : array of shape (D,)
        Weighted mean of the features.
    cross : array of shape (D, K)
        Φ_cᵀ W J.
    trace : float
        Total variance of the features.
    factor : Factor
        Factor of C.
    table : LabelMoments
        Moments of the labels.
    """

    mean: F64
    cross: F64
    trace: float
    factor: Factor
    table: LabelMoments
    _terms: dict[str, list[Term]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def reduced(self) -> Reduced:
        """Basis of the span of C⁻¹ cross, which contains the solutions for all terms and criteria."""
        return self.factor.reduce(self.cross)

    @cached_property
    def _root(self) -> F64:
        """R (min(D, K), K) with RᵀR = crossᵀ cross; gives spectral norms at a cost that does not depend on D."""
        D, K = self.cross.shape
        return self.cross if K >= D else np.asarray(np.linalg.qr(self.cross, mode="r"))

    def term(self, name: str, A: F64) -> Term:
        """Return the reduced term of a label map A (K, k)."""
        RA = self.reduced.coordinates @ A  # (q, k)
        M = self._root @ A  # has the singular values of M_j
        small = M.T @ M if M.shape[0] > M.shape[1] else M @ M.T
        norm = float(np.linalg.eigvalsh(small)[-1]) if A.shape[1] else 0.0
        variance = self.table.variance(A)
        constant = variance == 0 or self.trace <= VANISHED * float(self.mean @ self.mean)
        vanished = constant or float(np.trace(small)) <= VANISHED * self.trace * variance
        return Term(name, RA @ RA.T, A, norm, vanished)

    def target_term(self, zero_shot: float) -> Term:
        """Return the term Dep(Z, Y), cached by the share of zero-shot scores."""
        key = f"y:{zero_shot}"
        if key not in self._terms:
            self._terms[key] = [self.term("y", target_map(self.table, zero_shot))]
        return self._terms[key][0]

    def sensitive_terms(self, criterion: str) -> list[Term]:
        """Return one term per sensitive attribute, cached by criterion."""
        if criterion not in self._terms:
            self._terms[criterion] = [self.term(n, A) for n, A in sensitive_maps(self.table, criterion)]
        return self._terms[criterion]

    def solve(
        self,
        weights: Weights,
        other: F64 | None,
        *,
        r: int,
        criterion: str,
        scaling: str,
        zero_shot: float = 0.0,
    ) -> SideSolution:
        """Solve Eq. (7): maximise over one encoder, with the other one fixed at class means ``other`` (c, r)."""
        target, sensitive = self.target_term(zero_shot), self.sensitive_terms(criterion)
        signed = [(1.0, target), *((-weights.sensitive, term) for term in sensitive)]
        if other is not None:
            signed.append((weights.alignment, self.term("z", alignment_map(target.A, other))))
        active = [
            (sigma / term.norm if scaling == "spectral" else sigma, term)
            for sigma, term in signed
            if sigma != 0 and not term.vanished
        ]
        q = self.reduced.coordinates.shape[0]
        T = sum((sigma * term.B for sigma, term in active), start=np.zeros((q, q)))
        solution = solve_reduced(T, r)
        a, means = self._with_sign(solution.coefficients)
        return SideSolution(
            coefficients=a,
            eigenvalues=solution.eigenvalues,
            n_positive=solution.n_positive,
            class_means=means,
            dropped=tuple(t.name for sigma, t in signed if sigma != 0 and t.vanished),
            terms=tuple(active),
        )

    def class_means(self, a: F64) -> F64:
        """Return the mean of Z = Φ_c E a inside each class (c, r); zero for a class without rows."""
        return self._class_coordinates @ a

    @cached_property
    def _class_coordinates(self) -> F64:
        share = self.table.class_share[:, None]
        sums = self.reduced.coordinates[:, self.table.class_columns].T  # (c, q)
        return np.divide(sums, share, out=np.zeros_like(sums), where=share > 0)

    def predicted_scores(self, a: F64) -> tuple[F64, F64]:
        """Return weights (c, r) and constants (c,) that predict the scaled zero-shot scores from Z = Φ_c E a."""
        A = scores_map(self.table)
        return (self.reduced.coordinates @ A).T @ a, self.table.means @ A

    def residual(self, solution: SideSolution) -> float:
        """Return ‖B U − C U Λ‖ / ‖C U Λ‖ in feature space, the relative residual of Eq. (8)."""
        U = self.reduced.basis @ solution.coefficients  # (D, r)
        inner = self.cross.T @ U  # (K, r)
        BU = self.cross @ sum(
            (sigma * (term.A @ (term.A.T @ inner)) for sigma, term in solution.terms),
            start=np.zeros_like(inner),
        )
        CU = self.factor.apply(U) * solution.eigenvalues
        return float(np.linalg.norm(BU - CU) / np.linalg.norm(CU))

    def _with_sign(self, a: F64) -> tuple[F64, F64]:
        # The sign of an eigenvector is arbitrary. The mean of the last class with rows is made positive,
        # so that a refit, another machine or a neighbouring τ gives the same encoder.
        means = self.class_means(a)
        if means.size == 0:
            return a, means
        last = means[self._last_class]
        largest = means[np.abs(means).argmax(axis=0), np.arange(means.shape[1])]
        sign = np.where(np.where(np.abs(last) > 1e-8 * np.abs(largest), last, largest) < 0, -1.0, 1.0)
        return a * sign, means * sign

    @cached_property
    def _last_class(self) -> int:
        return int(np.flatnonzero(self.table.class_share > 0)[-1])
