"""`TauPath`: all models on a (τ, τ_z) grid from one factorisation, their trade-off table, and the choice of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import F64, Ints
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
from fairerclip.metrics import cell_accuracies, shrunken_worst_group
from fairerclip.model.parameters import CRITERIA, check_strength
from fairerclip.solver.alternation import Encoders, Setting
from fairerclip.solver.decision import Adjustment
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


@dataclass(frozen=True)
class PathPoint:
    """One point of the grid: a solution, or the reason why there is none."""

    setting: Setting
    encoders: Encoders | None
    n_iter: int
    failure: str | None


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
    adjustment: Adjustment,
    progress: Callable[[int, int], None] | None = None,
) -> list[PathPoint]:
    """Solve every point of a grid on one factorisation; docs/math.md#path.

    Every point starts from the labels that the fit started from, known and guessed, so that its parameters fit it
    again, and gets the same ``adjustment`` of its class scores. With labels fixed a point is a few k×k eigenproblems
    and no pass over the data. A point where the text side collapses or the penalty outweighs the target everywhere is
    kept with its reason.
    """
    points = []
    for done, setting in enumerate(grid, 1):
        try:
            result = prepared.solve(setting, refine=refine)
            points.append(
                PathPoint(setting, result.last.adjusted(adjustment).encoders(), len(result.history), None)
            )
        except (NoSolutionError, TextCollapseError) as error:
            points.append(PathPoint(setting, None, 0, str(error)))
        if progress is not None:
            progress(done, len(grid))
    return points


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

    def __init__(self, model: FairerCLIP, points: Sequence[PathPoint], refine: bool) -> None:
        self._model = model
        self.points = tuple(points)
        self.refine = refine
        self.table: list[dict[str, Any]] | None = None
        self.cells: PathCells | None = None

    def __len__(self) -> int:
        return len(self.points)

    def __iter__(self) -> Iterator[PathPoint]:
        return iter(self.points)

    def model(self, index: int) -> FairerCLIP:
        """Return the fitted model at one point."""
        at = self.points[index].setting
        return self._model.at(
            tau=at.tau, tau_z=at.tau_z, criterion=at.criterion, zero_shot=at.zero_shot, refine=self.refine
        )

    def scores(self, X: Any) -> Iterator[tuple[slice, dict[int, F64]]]:
        """Yield for each block of rows the class scores (b, c) of every solved point, by its number. O(n·D·g·r)."""
        return self._scores(self._model.embeddings(X))

    def _scores(self, X: Any) -> Iterator[tuple[slice, dict[int, F64]]]:
        solved = [(g, p.encoders) for g, p in enumerate(self.points) if p.encoders is not None]
        if not solved:
            return
        U = np.concatenate([e.components for _, e in solved], axis=1)  # (D, Σr)
        offset = np.concatenate([e.offset for _, e in solved])
        stops = np.cumsum([e.components.shape[1] for _, e in solved])[:-1]
        for start in range(0, X.shape[0], BLOCK_ROWS):
            Phi = self._model.features_.transform(np.asarray(X[start : start + BLOCK_ROWS]))
            parts = np.split(Phi @ U.astype(Phi.dtype) - offset, stops, axis=1)
            found = {g: e.decision.scores(Z) for (g, e), Z in zip(solved, parts, strict=True)}
            yield slice(start, start + len(Phi)), found

    def predict_codes(self, X: Any) -> Ints:
        """Predict class codes at every point (g, n); -1 where a point has no solution."""
        X = self._model.embeddings(X)
        codes = np.full((len(self.points), X.shape[0]), -1, dtype=np.int64)
        for block, found in self._scores(X):
            for g, scores in found.items():
                codes[g, block] = scores.argmax(axis=1)
        return codes

    def evaluate(self, X: Any, y: Any, sensitive_features: Any) -> list[dict[str, Any]]:
        """Compute average, worst group, gap and EOD of every point on labelled rows: the trade-off table.

        ``sensitive_features`` as `FairerCLIP.fit` takes it; several attributes are crossed, a quantity must
        be binned first. Rows whose label is missing are left out.
        """
        missing = self._model.missing_label_
        encoded = encode(y, missing_label=missing, classes=self._model.classes_)
        groups = encode_groups(sensitive_features, missing)
        predicted = self.predict_codes(X)
        sizes = [predicted.shape[1], len(encoded.codes), len(groups.codes)]
        if len(set(sizes)) > 1:
            raise ShapeError(f"X, y and sensitive_features must have as many rows each; got {sizes}")
        known = ~encoded.missing & ~groups.missing
        if not known.any():
            raise LabelError("no row has both a target and a sensitive label: nothing to evaluate on")
        predicted = predicted[:, known]
        hits, counts = cell_accuracies(
            encoded.codes[known],
            np.maximum(predicted, 0),  # a point without solution gets no figures below
            groups.codes[known],
            n_classes=len(encoded.classes),
            n_sensitive=len(groups.classes),
        )
        self.cells = PathCells(hits, counts, encoded.classes, groups.classes)
        self.table = [
            _row(point, hits[g], counts, encoded.classes, groups.classes)
            for g, point in enumerate(self.points)
        ]
        return self.table

    def best(self, by: str = "worst_group") -> FairerCLIP:
        """Return the fitted model at the best point of the latest `evaluate`; ties go to the better average.

        ``by``: "worst_group", "shrunken_worst_group" (small groups shrunk towards the average, which
        is steadier where a group has a handful of rows), "average", "gap" or "eod".
        """
        return self.model(self.best_index(by))

    def best_index(self, by: str = "worst_group") -> int:
        """Return the index of the point that `best` takes."""
        check_by(by)
        if self.table is None:
            raise StateError("nothing to choose by yet: call evaluate(X_val, y_val, s_val) first")
        table = self.table
        if all(row["failure"] is not None for row in table):
            raise NoSolutionError(f"no point of the path has a solution: {self.points[0].failure}")
        solved = [g for g, row in enumerate(table) if row[by] is not None]
        if not solved:
            raise LabelError(f"{by} is not defined on these rows: no class has two groups to compare")
        return max(solved, key=lambda g: (CHOOSE[by] * table[g][by], table[g]["average"], -table[g]["tau"]))


def _row(
    point: PathPoint,
    hits: NDArray[Any],
    counts: NDArray[Any],
    classes: NDArray[Any],
    groups: NDArray[Any],
) -> dict[str, Any]:
    setting = point.setting
    row: dict[str, Any] = {
        "tau": setting.tau,
        "tau_z": setting.tau_z,
        "criterion": setting.criterion,
        "zero_shot": setting.zero_shot,
        "failure": point.failure,
    }
    names = (
        "average",
        "worst_group",
        "worst_group_name",
        "worst_group_n",
        "gap",
        "eod",
        "shrunken_worst_group",
    )
    if point.encoders is None:
        return {**row, **dict.fromkeys(names)}
    seen = counts > 0
    accuracy = np.divide(hits, counts, out=np.full(counts.shape, np.nan), where=seen)
    average = float(hits.sum() / counts.sum())
    k, s = np.unravel_index(int(np.nanargmin(accuracy)), accuracy.shape)
    worst = float(accuracy[k, s])
    # As `group_report` has it: of two classes the second is the positive one; None where no two groups
    # of it can be compared.
    compared = accuracy[-1:] if len(classes) == 2 else accuracy
    compared = compared[np.isfinite(compared).sum(axis=1) > 1]
    spread = np.nanmax(compared, axis=1) - np.nanmin(compared, axis=1)
    values = (
        average,
        worst,
        f"{classes[k]}, {groups[s]}",
        int(counts[k, s]),
        average - worst,
        float(spread.max()) if len(spread) else None,
        float(shrunken_worst_group(hits, counts, prior=PRIOR)),
    )
    return {**row, **dict(zip(names, values, strict=True))}


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
