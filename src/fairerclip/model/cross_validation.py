"""Cross-validation at the price of a fit: moments of parts of the rows are summed once, and every fit adds them up.

The feature map sees no labels, so all splits share it. Moments of the rows of each fold and cell (class × group) are
kept without weights by class or group; a fit without a fold adds those of the other folds, each with the weight that
its cell has in that fit. docs/math.md#folds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import F64, Ints
from fairerclip.data.row_pass import is_remote
from fairerclip.errors import NoSolutionError, TextCollapseError
from fairerclip.model.fit_data import FitData
from fairerclip.model.prepare import Prepared
from fairerclip.solver.alternation import Round, Setting
from fairerclip.solver.grid import grid_scores
from fairerclip.solver.moments import MomentResult, MomentTable
from fairerclip.solver.rows import FeatureRows, sums_budget
from fairerclip.solver.solver_choice import solver_for


class FoldSplit(NamedTuple):
    """Rows to fit on and rows to score, by their numbers in X, both in rising order."""

    fitted_on: Ints
    scored: Ints


def deal_folds(keys: F64, cell: Ints, n_folds: int, groups: Ints | None = None, seed: int = 0) -> Ints:
    """Return a fold number (m,) for each row, so that every cell is spread evenly over the folds.

    Folds follow the content of the rows: neither their order nor the numbers of the cells matter. Rows with equal keys
    are duplicates and stay in one fold.

    Parameters
    ----------
    keys : array of shape (m,)
        Keys of the rows, equal for equal rows (`judging.evidence.row_keys`).
    cell : int array of shape (m,)
        Cell of each row: its class × group.
    n_folds : int
        Number of folds.
    groups : int array of shape (m,), or None
        Rows with equal entries stay in one fold. They are dealt by the rarest cell among them.
    seed : int
        Seed of the draws.
    """
    unit = np.unique(keys if groups is None else groups, return_inverse=True)[1].reshape(-1)
    sizes, sums = np.bincount(cell), np.bincount(cell, weights=keys)
    # Equal rows in different units are told apart by the other rows of their units.
    unit_sums = np.bincount(unit, weights=keys)
    rarest_first = np.lexsort((unit_sums[unit], keys, sums[cell], sizes[cell]))
    row_of_unit = rarest_first[np.unique(unit[rarest_first], return_index=True)[1]]
    place = np.empty(len(keys), dtype=np.int64)
    place[rarest_first] = np.arange(len(keys))
    ordered = row_of_unit[np.argsort(place[row_of_unit])]  # units by cell, then by key
    # Shuffled within each cell, so that neighbouring keys do not follow the same pattern.
    shuffled = ordered[np.random.default_rng(seed).permutation(len(ordered))]
    rank = np.empty(len(keys), dtype=np.int64)
    rank[rarest_first] = np.unique(
        np.column_stack([sizes[cell], sums[cell]])[rarest_first], axis=0, return_inverse=True
    )[1].reshape(-1)
    dealt = shuffled[np.argsort(rank[shuffled], kind="stable")]
    fold_of_unit = np.empty(len(row_of_unit), dtype=np.int64)
    fold_of_unit[unit[dealt]] = np.arange(len(dealt)) % n_folds
    return np.asarray(fold_of_unit[unit])


def _crossed(part: Ints, values: NDArray[Any]) -> Ints:
    """Return numbers (m,), from 0 on, of the combinations of two columns; one column at a time saves memory."""
    combined = part * (int(values.max()) + 1) + values
    return np.unique(combined, return_inverse=True)[1].reshape(-1)


def _first_rows(part: Ints, places: Ints | None) -> Ints:
    """Return one row of each part that occurs at some places, by its number among these places."""
    own = part if places is None else part[places]
    first = np.full(int(part.max()) + 1, -1, dtype=np.int64)
    first[own[::-1]] = np.arange(len(own))[::-1]
    return first[first >= 0]


class FoldedFits:
    """Fits on parts of the rows, for any row weights and γ, from one pass over the rows.

    Parameters
    ----------
    data : FitData
        Rows of the fit, with their features.
    splits : sequence of FoldSplit
        Rows to fit on and to score.
    by_group : bool
        Whether row weights may differ between groups of a class.
    budget : int or None
        Bytes that the table of moments may take; None for `sums_budget`. If it needs more, each fit makes a pass of
        its own over the rows.
    variants : sequence of FitData
        The same rows, labels and features with other zero-shot scores: `variant` returns their fits, from the same
        pass.
    keeps : bool
        Whether to keep fits that have no table of moments, as far as there is memory: the next call of `prepare` with
        the same weights and another γ continues from them.
    """

    def __init__(
        self,
        data: FitData,
        splits: Sequence[FoldSplit],
        *,
        by_group: bool = True,
        budget: int | None = None,
        variants: Sequence[FitData] = (),
        keeps: bool = False,
    ) -> None:
        self.data, self.splits = data, splits
        self._keeps = keeps
        self._near: dict[str, Prepared] = {}
        self._designs = [own.design() for own in (data, *variants)]
        self._variants, self._number = (data, *variants), 0
        self._scored: tuple[Ints, FeatureRows] | None = None
        # Rows that the same splits fit on, in the same cell, have the same factor in every fit: they are one part.
        self._part = data.y
        if by_group and data.groups is not None:
            self._part = _crossed(self._part, data.groups)
        if data.guessed is not None:
            self._part = _crossed(self._part, data.guessed)
        inside = [np.isin(data.chosen, split.fitted_on) for split in splits]
        for kept in inside:
            self._part = _crossed(self._part, kept)
        # Rows of each fit, the last of which is on all rows; of each part one row, which tells its factor.
        self._places = [*(np.flatnonzero(kept) for kept in inside), None]
        self._first_rows = [_first_rows(self._part, kept) for kept in self._places]
        n_parts, D = int(self._part.max()) + 1, data.rows.n_features
        solver = solver_for(data.params["solver"], data.rows, data.X.shape[1], fits=len(splits))
        fits = n_parts * D * D * 8 <= (sums_budget(data.how.memory_budget) if budget is None else budget)
        # Without prompts, guessed labels depend on the rows that are fitted on, and so do the label columns.
        fixed = data.target.has_text or data.guessed is None
        self.is_direct = solver == "cholesky"
        self._table = self._sum(n_parts) if fits and fixed and self.is_direct else None

    @property
    def shares_moments(self) -> bool:
        """Whether one pass over the rows serves all fits."""
        return self._table is not None

    def variant(self, number: int) -> FoldedFits:
        """Return the fits with the zero-shot scores of a variant, from 1 on; 0 are these fits themselves."""
        other = copy(self)
        other.data, other._number, other._near = self._variants[number], number, {}
        return other

    def _sum(self, n_parts: int) -> MomentTable:
        design, weight = self._designs[0], self.data.weight[self.data.chosen]
        if len(self._designs) > 1:
            scores = [own.scores for own in self._designs if own.scores is not None]
            design = replace(design, scores=np.concatenate(scores, axis=1))
        D = self.data.rows.n_features
        start = partial(MomentTable, n_parts, D, design.n_columns, shift=self.data.rows.centre())
        rows, how = self.data.rows, self.data.how
        return rows.sum_many(start, [design, weight, self._part], how, values=n_parts * D * D)

    def prepare(
        self,
        class_weight: Any,
        gammas: Sequence[float],
        guess_weight: float = 1.0,
        *,
        all_rows: bool = False,
    ) -> Iterator[tuple[int, Prepared]]:
        """Yield for the rows of each split the fit with each γ, the largest γ first, with the number of the split.

        With ``all_rows`` the fit on all rows follows those of the splits, with the number of splits as its number.
        Where no table of moments serves all fits, a fit has the features and sums of the one with the γ before it, and
        conjugate gradients start from its solutions.
        """
        numbers = list(range(len(self.splits) + all_rows))
        moments = self._moments(class_weight, guess_weight, numbers)
        for number, found in zip(numbers, moments, strict=True):
            key = repr((class_weight, guess_weight, number))
            near = self._near.get(key)
            for gamma in sorted(map(float, gammas), reverse=True):
                if near is not None and self._solver(near, gamma) == near.problem.solver:
                    prepared = near.at(gamma)
                else:
                    own = found
                    if found is not None and found.covariance is not None and len(gammas) > 1:
                        # The factor overwrites its covariance, and the next γ needs it again.
                        own = replace(found, covariance=found.covariance.copy())
                    prepared = self.data.prepare(
                        *(class_weight, gamma),
                        guess_weight=guess_weight,
                        places=self._places[number],
                        moments=own,
                    )
                yield number, prepared
                near = prepared if found is None else None
            if near is not None and self._keeps_another(near):
                self._near[key] = near

    def _solver(self, near: Prepared, gamma: float) -> str:
        """Return the solver of a fit like another one, with another γ."""
        return solver_for(self.data.params["solver"], near.problem.rows, self.data.X.shape[1], gamma=gamma)

    def _keeps_another(self, near: Prepared) -> bool:
        """Return whether there is memory to keep one more fit besides those that are kept."""
        if is_remote(self.data.X):
            return False  # each fit has features of its own on the workers
        # Its features are those of all rows, which are kept once. A factor has D² numbers at most, a basis n·K.
        D, K = near.problem.sides(near.y).image.cross.shape
        needed = (len(self._near) + 1) * 8 * (D**2 + len(near.rows) * K)
        return self._keeps and self.data.rows.kept and needed <= sums_budget(self.data.how.memory_budget)

    def prepare_all(self, class_weight: Any, gamma: float, guess_weight: float = 1.0) -> Prepared:
        """Return the fit on all rows."""
        moments = self._moments(class_weight, guess_weight, [len(self.splits)])[0]
        return self.data.prepare(class_weight, gamma, guess_weight=guess_weight, moments=moments)

    def _moments(
        self, class_weight: Any, guess_weight: float, numbers: Sequence[int]
    ) -> list[MomentResult | None]:
        """Return the moments of numbered sets of rows with the weights of a fit on each; None if each makes a pass."""
        if self._table is None:
            return [None] * len(numbers)
        base = self.data.weight[self.data.chosen]
        factors = np.zeros((len(numbers), int(self._part.max()) + 1))
        for row, number in zip(factors, numbers, strict=True):
            places, first = self._places[number], self._first_rows[number]
            at: Any = slice(None) if places is None else places
            # All rows of a part have the same factor: one of them tells it.
            weight = self.data.weigh(class_weight, at, guess_weight)[first]
            row[self._part[at][first]] = weight / base[at][first]
        return [self._of_variant(found) for found in self._table.combine(factors)]

    def _of_variant(self, found: MomentResult) -> MomentResult:
        """Return moments with the columns of one set of zero-shot scores."""
        if len(self._designs) == 1:
            return found
        c, K = self._designs[0].n_classes, self._designs[0].n_columns
        labels = np.arange(K - c)
        own = np.concatenate([labels, K - c + c * self._number + np.arange(c)])
        return replace(found, cross=found.cross[:, own])

    def scores(
        self, number: int, prepared: Prepared, settings: Sequence[Setting], *, refine: bool
    ) -> list[F64 | None]:
        """Return the scores (m, c) of the rows that a split scores, at each setting; None without a solution."""
        rows = self.splits[number].scored
        return settings_scores(
            prepared, settings, lambda mean, basis: self._project(rows, mean, basis), refine=refine
        )

    def _project(self, rows: Ints, mean: F64, basis: F64) -> F64:
        """Return (Φ − mean) @ basis (m, q) of rows of X that are scored."""
        X, remote = self.data.X, is_remote(self.data.X)
        if self.data.rows.kept and not remote:
            return self.data.project(rows, mean, basis)
        # The features of all rows are not kept here. Those of the scored rows are few, and every fit needs them.
        if self._scored is None:
            every = np.unique(np.concatenate([split.scored for split in self.splits]))
            X, own = (X[every], None) if remote else (X, every)
            self._scored = (every, self.data.more_rows(X, own))
        every, features = self._scored
        return features.project_some(np.searchsorted(every, rows), mean, basis)


def settings_scores(
    prepared: Prepared, settings: Sequence[Setting], project: Callable[[F64, F64], F64], *, refine: bool
) -> list[F64 | None]:
    """Return the scores (m, c) of rows at each setting of a fit; None where a setting has no solution.

    ``project`` returns (Φ − mean) @ basis of the rows.
    """

    def solve(setting: Setting) -> Round:
        return prepared.solve(setting, refine=refine).last

    if prepared.class_factors is None and not (refine and prepared.free.any()):
        sides = prepared.problem.sides(prepared.y)
        P = project(sides.image.mean, sides.image.reduced.basis)
        return grid_scores(sides, settings, P, solve)
    out: list[F64 | None] = []
    for setting in settings:
        try:
            solved = solve(setting)
        except (NoSolutionError, TextCollapseError):
            out.append(None)
            continue
        image = solved.sides.image
        Z = project(image.mean, image.reduced.basis @ solved.image.coefficients)
        out.append(solved.decision.scores(Z))
    return out
