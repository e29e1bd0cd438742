"""Cross-validation at the price of a fit: moments of parts of the rows are summed once, and every fit adds them up.

The feature map sees no labels, so all splits share it. Moments of the rows of each fold and cell (class × group) are
kept without weights by class or group; a fit without a fold adds those of the other folds, each with the weight that
its cell has in that fit. docs/math.md#folds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import F64, Ints
from fairerclip.data.row_checkpoint import digest
from fairerclip.errors import NoSolutionError, TextCollapseError
from fairerclip.model.fit_data import FitData
from fairerclip.model.prepare import Prepared
from fairerclip.solver.alternation import Round, Setting
from fairerclip.solver.grid import grid_scores
from fairerclip.solver.moments import MomentResult, MomentTable
from fairerclip.solver.problem import choose_solver
from fairerclip.solver.rows import cache_budget


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
        Bytes that the table of moments may take; None for `cache_budget`. If it needs more, each fit makes a pass of
        its own over the rows.
    """

    def __init__(
        self, data: FitData, splits: Sequence[FoldSplit], *, by_group: bool = True, budget: int | None = None
    ) -> None:
        self.data, self.splits = data, splits
        # Rows that the same splits fit on, in the same cell, have the same factor in every fit: they are one part.
        self._part = data.y
        if by_group and data.groups is not None:
            self._part = _crossed(self._part, data.groups)
        if data.guessed is not None:
            self._part = _crossed(self._part, data.guessed)
        inside = [np.isin(data.chosen, split.fitted_on) for split in splits]
        self._places = [np.flatnonzero(kept) for kept in inside]
        for kept in inside:
            self._part = _crossed(self._part, kept)
        n_parts, D = int(self._part.max()) + 1, data.rows.n_features
        solver = choose_solver(data.params["solver"], data.rows.n_rows, D, data.rows.dtype.itemsize)
        fits = n_parts * D * D * 8 <= (cache_budget(data.how.memory_budget) if budget is None else budget)
        # Without prompts, guessed labels depend on the rows that are fitted on, and so do the label columns.
        fixed = data.target.has_text or data.guessed is None
        self._table = self._sum(n_parts) if fits and fixed and solver == "cholesky" else None

    @property
    def shares_moments(self) -> bool:
        """Whether one pass over the rows serves all fits."""
        return self._table is not None

    def _sum(self, n_parts: int) -> MomentTable:
        design, weight = self.data.design(), self.data.weight[self.data.chosen]
        D = self.data.rows.n_features
        start = partial(MomentTable, n_parts, D, design.n_columns)
        columns, purpose = [design, weight, self._part], digest("table", self._part)
        return self.data.rows.sum_saved(start, columns, self.data.how, purpose, values=n_parts * D * D)

    def prepare(
        self, class_weight: Any, gammas: Sequence[float], guess_weight: float = 1.0
    ) -> Iterator[tuple[int, Prepared]]:
        """Yield for each γ the fit on the rows of each split, with the number of the split."""
        places: list[Ints | None] = list(self._places)
        moments = self._moments(class_weight, guess_weight, places)
        for turn, gamma in enumerate(gammas, 1):
            for number, (kept, found) in enumerate(zip(places, moments, strict=True)):
                if found is not None and found.covariance is not None and turn < len(gammas):
                    # The factor overwrites its covariance, and the next γ needs it again.
                    found = replace(found, covariance=found.covariance.copy())
                prepared = self.data.prepare(
                    class_weight, gamma, guess_weight=guess_weight, places=kept, moments=found
                )
                yield number, prepared

    def prepare_all(self, class_weight: Any, gamma: float, guess_weight: float = 1.0) -> Prepared:
        """Return the fit on all rows."""
        moments = self._moments(class_weight, guess_weight, [None])[0]
        return self.data.prepare(class_weight, gamma, guess_weight=guess_weight, moments=moments)

    def _moments(
        self, class_weight: Any, guess_weight: float, places: Sequence[Ints | None]
    ) -> list[MomentResult | None]:
        """Return the moments of each set of rows with the weights of a fit on it; None where each makes a pass."""
        if self._table is None:
            return [None] * len(places)
        base = self.data.weight[self.data.chosen]
        factors = np.zeros((len(places), int(self._part.max()) + 1))
        for number, kept in enumerate(places):
            at = np.arange(len(base)) if kept is None else kept
            # All rows of a part have the same factor: one of them tells it.
            part, first = np.unique(self._part[at], return_index=True)
            factors[number, part] = self.data.weigh(class_weight, at, guess_weight)[first] / base[at[first]]
        return [*self._table.combine(factors)]

    def scores(
        self, number: int, prepared: Prepared, settings: Sequence[Setting], *, refine: bool
    ) -> list[F64 | None]:
        """Return the scores (m, c) of the rows that a split scores, at each setting; None without a solution."""
        rows = self.splits[number].scored
        return settings_scores(
            prepared, settings, lambda mean, basis: self.data.project(rows, mean, basis), refine=refine
        )


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
