"""`TauPath`: all models on a (τ, τ_z) grid from one factorisation, their trade-off table, and the choice of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import F64
from fairerclip.data.row_pass import BLOCK_ROWS
from fairerclip.errors import (
    LabelError,
    NoSolutionError,
    ParameterError,
    ShapeError,
    StateError,
    TextCollapseError,
)
from fairerclip.inputs.encode import encode
from fairerclip.inputs.sensitive_columns import encode_groups
from fairerclip.metrics import shrunken_worst_group
from fairerclip.model.parameters import CRITERIA, check_strength
from fairerclip.model.path_display import path_html, path_title
from fairerclip.model.path_scores import (
    CellHits,
    CheckedOnRead,
    PathScores,
    ScoredBlock,
    SharedPoints,
    code_type,
    predicted_codes,
)
from fairerclip.solver.alternation import Encoders, Round, Setting
from fairerclip.solver.grid import solve_grid
from fairerclip.solver.sides import term_weight

if TYPE_CHECKING:
    from fairerclip.model.estimator import FairerCLIP
    from fairerclip.model.prepare import Prepared


DEFAULT_TAUS = tuple(np.round(np.linspace(0.0, 0.95, 20), 4).tolist())
"""Default values of τ; close to 1 the penalty dominates."""
MOST_POINTS = 100_000
"""Largest number of points of a grid."""
PRIOR = 8.0
"""Weight, in rows, of the average accuracy towards which ``shrunken_worst_group`` shrinks each group."""
CHOOSE = {"worst_group": 1, "shrunken_worst_group": 1, "average": 1, "gap": -1, "eod": -1}
"""Criteria of `TauPath.best`: 1 if larger is better, -1 if smaller is."""


@dataclass(frozen=True, eq=False)
class PathPoint:
    """One point of the grid: a solution, or the reason why there is none."""

    setting: Setting
    n_iter: int
    """Rounds of Algorithm 1; 0 without a solution."""
    failure: str | None
    _solve: Callable[[Setting], Round] | None = field(repr=False)

    @cached_property
    def encoders(self) -> Encoders | None:
        """Encoders of the point, computed when they are asked for; None without a solution."""
        return None if self._solve is None else self._solve(self.setting).encoders()

    def __getstate__(self) -> dict[str, Any]:
        # A pickled path holds its encoders, and not the training rows that they would be solved from.
        return {**self.__dict__, "encoders": self.encoders, "_solve": None}


@dataclass(frozen=True, eq=False)
class PathCells:
    """Correct rows at every point (g, c, |S|) and all rows (c, |S|) of the latest evaluation, with their labels."""

    hits: NDArray[np.int64]
    counts: NDArray[np.int64]
    classes: NDArray[Any]
    groups: NDArray[Any]


def _values(name: str, given: Any, default: Sequence[float]) -> list[float]:
    if given is None:
        return list(default)
    try:
        values = np.atleast_1d(np.asarray(given, dtype=np.float64))
    except (TypeError, ValueError):
        values = np.zeros(0)
    if values.ndim != 1 or not len(values):
        raise ParameterError(f"{name} must be a number or a list of numbers, one at least; got {given!r}")
    return [float(v) for v in values]


def path_grid(
    setting: Setting, taus: Any, tau_zs: Any, criterion: Any, zero_shots: Any = None, *, has_text: bool = True
) -> list[Setting]:
    """Return the checked settings of every point: for each criterion, share, τ_z and τ, in this order of nesting.

    Without prompts there are no zero-shot scores, and ``zero_shots`` is ignored.
    """
    criteria = [setting.criterion] if criterion is None else _as_list(criterion)
    for name in criteria:
        if name not in CRITERIA:
            raise ParameterError(f"criterion must be one of {CRITERIA} or a list; got {name!r}")
    tau_list, tau_z_list = _values("taus", taus, DEFAULT_TAUS), _values("tau_zs", tau_zs, [setting.tau_z])
    check_plane(tau_list, tau_z_list, setting.scaling)
    shares = _values("zero_shots", zero_shots if has_text else None, [setting.zero_shot])
    if not all(0 <= share <= 1 for share in shares):
        raise ParameterError(f"zero_shots must be numbers in [0, 1]; got {zero_shots!r}")
    return [
        replace(setting, tau=tau, tau_z=tau_z, criterion=name, zero_shot=share)
        for name in criteria
        for share in shares
        for tau_z in tau_z_list
        for tau in tau_list
    ]


def check_plane(taus: Sequence[float], tau_zs: Sequence[float], scaling: str) -> None:
    """Raise for strengths out of range, or for more points than `MOST_POINTS`."""
    for name, values in (("tau", taus), ("tau_z", tau_zs)):
        for value in values:
            check_strength(name, value, scaling)
    if len(taus) * len(tau_zs) > MOST_POINTS:
        raise ParameterError(
            f"a grid has at most {MOST_POINTS:,} points (values of tau × values of tau_z); "
            f"got {len(taus):,} × {len(tau_zs):,}"
        )


def check_by(by: str) -> None:
    """Raise for a criterion that `TauPath.best` does not have."""
    if by not in CHOOSE:
        raise ParameterError(f"by must be one of {', '.join(CHOOSE)}; got {by!r}")


def _as_list(value: str | Iterable[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def solve_path(
    prepared: Prepared,
    grid: Sequence[Setting],
    *,
    refine: bool,
    offsets: F64,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[list[PathPoint], PathScores]:
    """Solve every point of a grid on one factorisation, and return the points and their scores; docs/math.md#path.

    Every point starts from the labels that the fit started from, known and guessed, so that its parameters fit it
    again, and gets the same ``offsets`` (c,) of its class scores. With labels fixed a point is a few k×k eigenproblems
    and no pass over the data; where one round is the fixed point, all points are solved at once. A point where the text
    side collapses or the penalty outweighs the target everywhere is kept with its reason.
    """
    sides = prepared.problem.sides(prepared.y)
    fixed = not (refine and prepared.free.any())

    def solve(setting: Setting) -> Round:
        return prepared.solve(setting, refine=refine).last.with_offsets(offsets)

    points: dict[int, PathPoint] = {}
    maps: dict[int, tuple[F64, F64]] = {}
    alone: list[tuple[int, Encoders]] = []
    # Weights of single classes move the scores by an offset that depends on the training rows of each point.
    if fixed and prepared.class_factors is None:
        together = solve_grid(sides, grid)
        constants = together.constants + offsets
        for place, weights, constant in zip(
            together.places.tolist(), together.weights, constants, strict=True
        ):
            points[place], maps[place] = PathPoint(grid[place], 1, None, solve), (weights, constant)
    for place, setting in enumerate(grid):
        if place not in points:
            # Points without a solution, too, to say why.
            points[place], last = _solve_point(prepared, setting, refine, offsets)
            if last is not None and last.sides is sides:
                maps[place] = last.score_map()
            elif last is not None:
                alone.append((place, last.encoders()))
        if progress is not None:
            progress(place + 1, len(grid))
    return [points[place] for place in range(len(grid))], PathScores(SharedPoints.of(sides, maps), alone)


def _solve_point(
    prepared: Prepared, setting: Setting, refine: bool, offsets: F64
) -> tuple[PathPoint, Round | None]:
    """Solve one point by Algorithm 1, and return it with its last round; None without a solution."""
    try:
        result = prepared.solve(setting, refine=refine)
    except (NoSolutionError, TextCollapseError) as error:
        return PathPoint(setting, 0, str(error), None), None
    last = result.last.with_offsets(offsets)
    return PathPoint(setting, len(result.history), None, lambda _: last), last


class TauPath:
    """Every model on a (τ, τ_z) grid.

    Examples
    --------
    >>> from fairerclip import FairerCLIP
    >>> from fairerclip.data import simulate
    >>> task = simulate("multiclass", seed=0)
    >>> attribute = task.sensitive_attribute()
    >>> model = FairerCLIP(n_features=300, random_state=0).fit(
    ...     task.train.X, task.train.y, text=task.text_target, sensitive_text=attribute.text)
    >>> path = model.path([0.0, 0.5, 0.8])
    >>> table = path.evaluate(task.val.X, task.val.y, task.val.sensitive())
    >>> [row["tau"] for row in table]
    [0.0, 0.5, 0.8]
    >>> path.best(by="worst_group").tau in (0.0, 0.5, 0.8)
    True
    """

    def __init__(
        self, model: FairerCLIP, points: Sequence[PathPoint], scores: PathScores, refine: bool
    ) -> None:
        self._model, self._path_scores = model, scores
        self.points = tuple(points)
        self.refine = refine
        self.table: list[dict[str, Any]] | None = None
        self.cells: PathCells | None = None

    def __len__(self) -> int:
        return len(self.points)

    def __iter__(self) -> Iterator[PathPoint]:
        return iter(self.points)

    def __repr__(self) -> str:
        return f"<{path_title(self)}>"

    _repr_html_ = path_html

    def model(self, index: int) -> FairerCLIP:
        """Return the fitted model at one point."""
        at = self.points[index].setting
        return self._model.at(
            tau=at.tau, tau_z=at.tau_z, criterion=at.criterion, zero_shot=at.zero_shot, refine=self.refine
        )

    def scores(self, X: Any) -> Iterator[tuple[slice, dict[int, F64]]]:
        """Yield for each block of rows the class scores (b, c) of every solved point, by its number. O(n·D·p)."""
        found: dict[int, F64] = {}
        rows = slice(0, 0)
        for block in self._blocks(self._model._validated(X)):
            if block.rows != rows and found:
                yield rows, found
                found = {}
            rows = block.rows
            found.update(zip(block.points.tolist(), block.scores, strict=True))
        if found:
            yield rows, found

    def _blocks(self, X: Any, kept: NDArray[np.bool_] | None = None) -> Iterator[ScoredBlock]:
        """Yield scores of rows X, which are read and checked once; ``kept`` leaves rows out."""
        rows = CheckedOnRead(X, normalize=self._model.fitted_.normalize)
        return self._path_scores.blocks(self._model.features_, rows, BLOCK_ROWS, kept)

    def predict_codes(self, X: Any) -> NDArray[np.integer]:
        """Predict class codes at every point (g, n); -1 where a point has no solution.

        The codes of all points are of the smallest integer type that holds them.
        """
        X = self._model._validated(X)
        codes = np.full((len(self.points), X.shape[0]), -1, dtype=code_type(len(self._model.classes_)))
        for block in self._blocks(X):
            codes[block.points, block.rows] = predicted_codes(block.scores)
        return codes

    def evaluate(self, X: Any, y: Any, sensitive_features: Any) -> list[dict[str, Any]]:
        """Compute average, worst group, gap and EOD of every point on labelled rows: the trade-off table.

        ``sensitive_features`` as `FairerCLIP.fit` takes it; several attributes are crossed, a quantity must
        be binned first. Rows whose label is missing are left out. Rows are read once, in blocks, and their scores are
        counted at once: the memory does not grow with the number of rows.
        """
        missing = self._model.missing_label_
        encoded = encode(y, missing_label=missing, classes=self._model.classes_)
        groups = encode_groups(sensitive_features, missing)
        X = self._model._validated(X)
        sizes = [X.shape[0], len(encoded.codes), len(groups.codes)]
        if len(set(sizes)) > 1:
            raise ShapeError(f"X, y and sensitive_features must have as many rows each; got {sizes}")
        known = ~encoded.missing & ~groups.missing
        if not known.any():
            raise LabelError("no row has both a target and a sensitive label: nothing to evaluate on")
        hits = CellHits(len(self.points), len(encoded.classes), len(groups.classes))
        hits.count_rows(encoded.codes[known], groups.codes[known])
        for block in self._blocks(X, known):
            own = np.flatnonzero(known[block.rows]) + block.rows.start
            hits.add(block, encoded.codes[own], groups.codes[own])
        self.cells = PathCells(hits.hits, hits.counts, encoded.classes, groups.classes)
        self.table = _table(self.points, self.cells)
        return self.table

    def front(self, x: str = "average", y: str = "worst_group") -> list[int]:
        """Return the points of the latest `evaluate` that no other point beats in both figures, by rising ``x``."""
        return front(self._evaluated(), x, y)

    def best(self, by: str = "worst_group") -> FairerCLIP:
        """Return the fitted model at the best point of the latest `evaluate`; ties go to the better average.

        ``by``: "worst_group", "shrunken_worst_group" (small groups shrunk towards the average, which
        is steadier where a group has a handful of rows), "average", "gap" or "eod".
        """
        return self.model(self.best_index(by))

    def best_index(self, by: str = "worst_group") -> int:
        """Return the index of the point that `best` takes."""
        check_by(by)
        table = self._evaluated()
        if all(row["failure"] is not None for row in table):
            raise NoSolutionError(f"no point of the path has a solution: {self.points[0].failure}")
        solved = [g for g, row in enumerate(table) if row[by] is not None]
        if not solved:
            raise LabelError(f"{by} is not defined on these rows: no class has two groups to compare")
        return max(solved, key=lambda g: (CHOOSE[by] * table[g][by], table[g]["average"], -table[g]["tau"]))

    def _evaluated(self) -> list[dict[str, Any]]:
        if self.table is None:
            raise StateError("nothing to choose by yet: call evaluate(X_val, y_val, s_val) first")
        return self.table


def _table(points: Sequence[PathPoint], cells: PathCells) -> list[dict[str, Any]]:
    """Return one row per point: its setting and its figures, None where it has no solution."""
    hits, counts = cells.hits, cells.counts
    accuracy = np.full(hits.shape, np.nan)
    np.divide(hits, counts, out=accuracy, where=counts > 0)
    flat = accuracy.reshape(len(hits), -1)
    average = hits.sum(axis=(1, 2)) / counts.sum()
    place = np.nanargmin(flat, axis=1)  # of the first worst group, in the order of classes and groups
    worst = flat[np.arange(len(flat)), place]
    # As `group_report` has it: of two classes the second is the positive one; None where no two groups
    # of it can be compared.
    compared = accuracy[:, -1:] if len(cells.classes) == 2 else accuracy
    compared = compared[:, ((counts > 0)[-compared.shape[1] :]).sum(axis=1) > 1]
    eod: list[float | None] = [None] * len(hits)
    if compared.shape[1]:
        eod = (np.nanmax(compared, axis=2) - np.nanmin(compared, axis=2)).max(axis=1).tolist()
    names = [f"{y}, {s}" for y in cells.classes for s in cells.groups]
    figures = {
        "average": average.tolist(),
        "worst_group": worst.tolist(),
        "worst_group_name": [names[k] for k in place.tolist()],
        "worst_group_n": counts.ravel()[place].tolist(),
        "gap": (average - worst).tolist(),
        "eod": eod,
        "shrunken_worst_group": shrunken_worst_group(hits, counts, prior=PRIOR).tolist(),
    }
    return [
        {
            "tau": point.setting.tau,
            "tau_z": point.setting.tau_z,
            "criterion": point.setting.criterion,
            "zero_shot": point.setting.zero_shot,
            "failure": point.failure,
            **{name: None if point.failure else values[g] for name, values in figures.items()},
        }
        for g, point in enumerate(points)
    ]


def front(table: Sequence[Mapping[str, Any]], x: str = "average", y: str = "worst_group") -> list[int]:
    """Return the rows of a path's table that no other row beats in both figures, by rising ``x``."""
    solved = [g for g, row in enumerate(table) if row["failure"] is None]
    best: list[int] = []
    for g in sorted(solved, key=lambda g: (-table[g][x], -table[g][y], g)):
        if not best or table[g][y] > table[best[-1]][y]:
            best.append(g)
    return best[::-1]


def effective_strength(n_classes: int, scaling: str, tau: float, tau_z: float) -> float | None:
    """Return λ_eff = λ_s / (1 + λ_z) where the models of the (τ, τ_z) plane depend on it alone, else None.

    That is the case for two classes with one prompt each, as in tasks, and spectral scaling; docs/math.md#one-step.
    """
    if n_classes != 2 or scaling != "spectral":
        return None
    return term_weight(tau, scaling) / (1 + term_weight(tau_z, scaling))
