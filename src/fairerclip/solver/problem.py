"""Data of one fit: everything that depends neither on τ nor on the criterion.

C depends on the features and the row weights alone, so it is factored once. A new set of labels needs
one pass for the cross-moments and a few triangular solves.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from fairerclip._util.types import F64, Floats, Ints
from fairerclip.solver.iterative import ConjugateGradientFactor
from fairerclip.solver.label_change import changed_moments
from fairerclip.solver.lowrank import CholeskyFactor, Factor
from fairerclip.solver.moments import MomentResult, Moments
from fairerclip.solver.rows import DEFAULT_PASSES, FeatureRows, PassOptions
from fairerclip.solver.sides import Side
from fairerclip.solver.terms import Attribute, LabelDesign, LabelMoments

if TYPE_CHECKING:
    from fairerclip.features import FeatureMap


CHANGED_SHARE = 0.25
"""Largest share of changed labels for which sums over the changed rows take the place of a pass over all rows."""


@dataclass(frozen=True)
class Prompts:
    """Distinct rows of the text side: every prompt once, with its class."""

    features: FeatureMap
    Phi: F64
    """(m, D_T)"""
    class_of: Ints
    """(m,) class code of each prompt."""
    n_classes: int

    @cached_property
    def share(self) -> F64:
        """(c, m) share of each prompt in its class; the prompts of a class have equal shares."""
        A = np.zeros((self.n_classes, len(self.class_of)))
        A[self.class_of, np.arange(len(self.class_of))] = 1.0
        return np.asarray(A / A.sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class Sides:
    """Both modalities for one set of labels."""

    y: Ints
    image: Side
    text: Side
    prompts: Prompts
    rows: FeatureRows
    weight: F64
    """(n,) row weights."""

    @cached_property
    def image_rows(self) -> F64:
        """(n, q) training rows in the reduced basis: Z = image_rows @ coefficients."""
        reduced = self.image.reduced
        if reduced.projected is not None:
            return reduced.projected
        return self.rows.project(self.image.mean, reduced.basis)

    @cached_property
    def text_rows(self) -> F64:
        """(m, q_T) prompts in the reduced basis."""
        return (self.prompts.Phi - self.text.mean) @ self.text.reduced.basis

    def text_vectors(self, coefficients: F64) -> F64:
        """Return z_T (c, r), the mean over the prompts of each class, also for a class without rows."""
        return self.prompts.share @ (self.text_rows @ coefficients)


class Problem:
    """Features, factor of C and sensitive attributes of the training rows.

    Parameters
    ----------
    rows : FeatureRows
        Features of the n training rows.
    weight : array of shape (n,)
        Non-negative row weights.
    attributes : tuple of Attribute
        Sensitive attributes as feature columns.
    prompts : Prompts
        The text side.
    y : array of shape (n,)
        Initial class codes.
    gamma, gamma_text : float
        Ridges of both sides.
    solver : {"cholesky", "cg"}
        Direct or iterative solution.
    random_state : RandomState
        Draws the rows of the preconditioner of "cg".
    scores : array of shape (n, c) or None
        Zero-shot scores of the rows.
    moments : MomentResult or None
        Moments of the rows with these weights and labels, with the covariance for "cholesky", where they are known
        already: there is no pass over the rows then. The covariance is overwritten.
    keeps : bool
        Whether features are kept when ΦᵀΦ is summed, for passes that come later.
    how : PassOptions
        Memory and progress of passes over the rows.
    """

    def __init__(
        self,
        rows: FeatureRows,
        weight: F64,
        attributes: tuple[Attribute, ...],
        prompts: Prompts,
        y: Ints,
        *,
        gamma: float,
        gamma_text: float,
        solver: str,
        random_state: np.random.RandomState,
        scores: Floats | None = None,
        moments: MomentResult | None = None,
        keeps: bool = True,
        how: PassOptions = DEFAULT_PASSES,
    ) -> None:
        self.rows, self.weight, self._how = rows, weight, how
        self._keeps = keeps
        self.n_rows = rows.n_rows
        self._scores = scores
        self.attributes, self.prompts = attributes, prompts
        self.gamma_text = gamma_text
        self.solver = solver
        moments = self._pass(y, covariance=solver == "cholesky") if moments is None else moments
        self.factor: Factor
        if moments.covariance is not None:
            self.solver = "cholesky"  # whatever the choice would have been: the sum is there
            self.factor = CholeskyFactor(moments.covariance, gamma)
        else:
            self.factor = ConjugateGradientFactor(rows, weight, moments.mean, gamma, random_state, how=how)
        self._latest = self._sides(y, moments)
        # The first labels, and not the latest, so that a result does not depend on the labels in between.
        self._first = self._design(self._latest.y), replace(moments, covariance=None)

    @cached_property
    def n_present(self) -> int:
        """Number of classes that have rows."""
        return int(np.count_nonzero(self._latest.image.table.class_share))

    def at(self, gamma: float) -> Problem:
        """Return the problem of another γ, without a pass over the rows before it is solved.

        Features and sums are shared, and with "cg" the sampled rows, and the solutions of this γ to start from.
        """
        other = copy(self)
        other.factor = self.factor.at(gamma)
        image = self._latest.image
        image = Side(image.mean, image.cross, image.trace, other.factor, image.table)
        other._latest = replace(self._latest, image=image)
        return other

    def sides(self, y: Ints) -> Sides:
        """Return both sides for the labels y; the latest result is cached, since every τ of a path needs it."""
        if not np.array_equal(y, self._latest.y):
            self._latest = self._sides(y, self._moments(y))
        return self._latest

    def _moments(self, y: Ints) -> MomentResult:
        design, known = self._first
        changed = np.count_nonzero(y != design.y)
        if changed <= CHANGED_SHARE * len(y):
            return (
                changed_moments(self.rows, self.weight, known, design, self._design(y)) if changed else known
            )
        return self._pass(y, covariance=False)

    def _design(self, y: Ints) -> LabelDesign:
        return LabelDesign(y, self.prompts.n_classes, self.attributes, self._scores)

    def _pass(self, y: Ints, *, covariance: bool) -> MomentResult:
        design = self._design(y)
        D = self.rows.n_features
        start = partial(Moments, D, design.n_columns, covariance=covariance, shift=self.rows.centre())
        if not covariance:
            return self.rows.sum(start, [design, self.weight], progress=self._how.progress).finalise()
        rows = self.rows if self._keeps else self.rows.once()
        return rows.sum_many(start, [design, self.weight], self._how, values=D * D).finalise()

    def _sides(self, y: Ints, moments: MomentResult) -> Sides:
        table = LabelMoments.of(self._design(y), self.weight)
        image = Side(moments.mean, moments.cross, moments.trace, self.factor, table)
        text = text_side(self.prompts, table.without_scores(), self.gamma_text)
        return Sides(y.copy(), image, text, self.prompts, self.rows, self.weight)


def text_side(prompts: Prompts, table: LabelMoments, gamma: float) -> Side:
    """Return the text side of the distinct prompts with weights, in place of n repeated rows.

    The weight of a class is divided equally among its prompts, and the labels of a prompt are the mean
    (1, ψ) of the images of its class. The moments equal those of the n repeated rows; docs/math.md#text.
    """
    weight = prompts.share.T @ table.class_share  # (m,)
    J = np.zeros((len(weight), table.n_classes, table.width))
    J[np.arange(len(weight)), prompts.class_of] = table.class_means[prompts.class_of]
    moments = Moments(prompts.Phi.shape[1], table.n_classes * table.width)
    moments.update(prompts.Phi, J.reshape(len(weight), -1), weight)
    result = moments.finalise()
    if result.covariance is None:
        raise AssertionError("the text side always forms its covariance")
    return Side(result.mean, result.cross, result.trace, CholeskyFactor(result.covariance, gamma), table)
