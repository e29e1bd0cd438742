"""Parameters that are left to the data (``"auto"``): chosen from the training rows alone, by cross-validation.

How much zero-shot scores, ridge and strength should be depends on how many labels there are in each class × group. Fits
without each fold score the rows of that fold; the scores of all folds, with groups as the fit knows them, choose
(`judging.choose`). Values that were good on many tasks are kept unless the rows show a gain.
docs/explanation/choosing.md#auto.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from fairerclip._util.types import F64, Floats, Ints
from fairerclip.errors import FairerClipError
from fairerclip.judging.choose import Choice, choose
from fairerclip.judging.evidence import Evidence, row_keys
from fairerclip.judging.group_doubt import group_probabilities
from fairerclip.judging.objectives import Objective
from fairerclip.model.cross_validation import FoldedFits, FoldSplit, deal_folds
from fairerclip.model.fit_data import FitData
from fairerclip.model.prepare import Prepared

AUTO = "auto"
AUTOMATIC = ("tau", "zero_shot", "gamma", "criterion", "guess_weight", "class_offsets")
"""Parameters that may be "auto"."""
LABELLED: Mapping[str, Any] = {
    "tau": 0.8,
    "zero_shot": 0.5,
    "gamma": 1e-3,
    "criterion": "marginal",
    "guess_weight": 1.0,
    "class_offsets": None,
}
"""Values to start from where most labels are known; docs/explanation/choosing.md#defaults."""
GUESSED: Mapping[str, Any] = {**LABELLED, "tau": 0.7, "zero_shot": 1.0, "gamma": 3e-4}
"""Values to start from where most labels are guessed from prompts."""
GRID: Mapping[str, Sequence[Any]] = {
    "tau": (0.0, 0.5, 0.7, 0.8, 0.9, 0.98),
    "zero_shot": (0.0, 0.25, 0.5, 0.75),
    "gamma": (1e-4, 3e-4, 1e-3),
    "criterion": ("marginal", "conditional"),
    "guess_weight": (1.0, 0.1, 0.0),
}
"""Values to try."""
SLOW_GRID: Mapping[str, Sequence[Any]] = {
    "tau": (0.5, 0.9),
    "zero_shot": (0.0, 0.5),
    "gamma": (1e-4, 1e-3),
    "guess_weight": (1.0, 0.1),
}
"""Values to try where every point takes Algorithm 1."""
COSTLY = ("gamma", "guess_weight")
"""Parameters that need a new factorisation."""
FOLDS = 4
LEAST_CELL = 5
"""Labelled rows of every class × group below which the choice keeps the values to start from."""
MOST_ROWS = 20_000
"""Rows that are judged, at most."""
MOST_SCORES = 1 << 26
"""Scores of all candidates that are kept, at most: 256 MB."""


@dataclass(frozen=True, eq=False)
class Automatic:
    """Values of all parameters for one fit."""

    parameters: Mapping[str, Any]
    """All parameters, with values in the place of "auto"."""
    offsets: F64 | None = None
    """(c,) learned offsets of the class scores, or None."""
    record: dict[str, Any] | None = None
    """How they were chosen, ready for JSON; None if nothing was left to the data."""
    fits: FoldedFits | None = field(default=None, repr=False)

    def prepare(self, data: FitData) -> Prepared:
        """Return the fit on all rows, from the moments of the cross-validation if there was one."""
        own = self.parameters
        weights = own["class_weight"], own["gamma"]
        if self.fits is not None:
            return self.fits.prepare_all(*weights, guess_weight=own["guess_weight"])
        return data.prepare(*weights, guess_weight=own["guess_weight"], once=True)


def start_values(params: Mapping[str, Any], known_share: float) -> dict[str, Any]:
    """Return the parameters with the values to start from in the place of "auto"."""
    start = LABELLED if known_share >= 0.5 else GUESSED
    values = {name: start[name] if is_auto(params[name]) else params[name] for name in AUTOMATIC}
    if values["zero_shot"] is None:
        values["zero_shot"] = start["zero_shot"]
    return {**params, **values}


def is_auto(value: Any) -> bool:
    """Return whether a parameter is left to the data."""
    return isinstance(value, str) and value == AUTO


def resolve_automatic(data: FitData) -> Automatic:
    """Choose the parameters that are left to the data, from the labelled rows of a fit.

    Without labels, or where a class × group has too few rows to speak for it, the values to start from are kept.
    """
    params = data.params
    free = [name for name in AUTOMATIC if is_auto(params[name])]
    known = data.known
    start = start_values(params, data.known_share)
    if not data.target.has_text:
        start["zero_shot"] = 0.0
    varied = _varied(free, start, data)
    # Weights by class say how likely each class is to be predicted: offsets would undo them.
    learns_offsets = "class_offsets" in free and not isinstance(params["class_weight"], Mapping)
    if not varied and not learns_offsets:
        return Automatic(start)
    if not known.any():
        return Automatic(start, record={"kept": "no labels"})
    evidence, places = evidence_of(
        data, np.flatnonzero(known), 1 + int(np.prod([len(v) for v in varied.values()]))
    )
    counts = evidence.counts
    smallest = float(counts.min())
    record: dict[str, Any] = {"rows": len(places), "smallest_cell": smallest}
    if not (counts.sum(axis=1) > 0).all():  # no row would show what a choice does to that class
        return Automatic(start, record={**record, "kept": "a class has no labelled row"})
    if smallest < LEAST_CELL:
        return Automatic(
            start, record={**record, "kept": f"a class × group has fewer than {LEAST_CELL} rows"}
        )
    folds = deal_folds(evidence.keys, cells_of(evidence), FOLDS)
    splits = splits_of(folds, data.chosen[places], data.chosen)
    if not _keep_classes(splits, data):
        return Automatic(start, record={**record, "kept": "the rows of a class are all alike"})
    fits = FoldedFits(data, splits, by_group=_by_group(params["class_weight"]))
    try:
        candidates, scores = _candidates(fits, start, varied, np.argsort(folds, kind="stable"))
    except FairerClipError:  # some rows may fail where all do not; if all do, the fit says why
        candidates = []
    if not candidates:
        return Automatic(start, record={**record, "kept": "no solution in every fold"}, fits=fits)
    choice = choose(scores, evidence, Objective("worst_group"), 0, learns_offsets=learns_offsets)
    chosen = {**start, **candidates[choice.candidate]}
    return Automatic(
        chosen,
        offsets=choice.offsets if np.any(choice.offsets) else None,
        record={**record, **_record(choice, chosen, free, len(candidates))},
        fits=fits,
    )


def _record(
    choice: Choice, chosen: Mapping[str, Any], free: Sequence[str], candidates: int
) -> dict[str, Any]:
    return {
        "folds": FOLDS,
        "candidates": candidates,
        "chosen": {name: chosen[name] for name in free if name != "class_offsets"}
        | {"offsets": choice.offsets.tolist()},
        "gain": choice.gain,
        "doubt": choice.doubt,
    }


def _keep_classes(splits: Sequence[FoldSplit], data: FitData) -> bool:
    """Return whether every class with labelled rows has some in each fit; duplicates are all in one fold."""
    known = data.target.known
    classes = np.unique(data.y[data.known])
    return all(np.isin(classes, known[split.fitted_on]).all() for split in splits)


def _is_fast(start: Mapping[str, Any], data: FitData) -> bool:
    """Return whether all points of a grid can be solved together (`solver.grid`), and not one by one."""
    c = len(np.unique(data.y))
    return (
        start["alignment"] == "linear"
        and start["decision"] == "target"
        and start["n_components"] in (None, c - 1)
        and not isinstance(start["class_weight"], Mapping)
        and not (start["refine"] and data.guessed is not None)
    )


def _by_group(class_weight: Any) -> bool:
    return isinstance(class_weight, str) and class_weight == "group"


def _varied(free: Sequence[str], start: Mapping[str, Any], data: FitData) -> dict[str, list[Any]]:
    """Return the values to try for each parameter that has any effect, the value to start from first."""
    idle = set() if data.target.has_text else {"zero_shot"}
    if not data.attributes:
        idle |= {"tau", "criterion"}
    if data.guessed is None or data.guessed.all():
        idle.add("guess_weight")
    grid = GRID if _is_fast(start, data) else SLOW_GRID
    return {
        name: [start[name], *(value for value in grid[name] if value != start[name])]
        for name in free
        if name in grid and name not in idle
    }


def evidence_of(data: FitData, places: Ints, candidates: int) -> tuple[Evidence, Ints]:
    """Return the labelled rows to judge on, and their places among the rows of the fit, in rising order.

    If there are more than can be judged, each cell gives the same number.
    """
    c = len(data.target.classes)
    rows = data.chosen[places]
    evidence = Evidence(
        data.y[places],
        group_probabilities(data.X, rows, data.sensitive),
        c,
        row_keys(data.X, rows),
    )
    most = max(1, min(MOST_ROWS, MOST_SCORES // (max(1, candidates) * c)))
    kept = limit_rows(evidence, most)
    return evidence.at(kept), places[kept]


def limit_rows(evidence: Evidence, most: int) -> Ints:
    """Return the numbers of at most about ``most`` rows, the same number from every cell; small cells stay whole."""
    cell = cells_of(evidence)
    if len(cell) <= most:
        return np.arange(len(cell))
    each = max(1, most // len(np.unique(cell)))
    order = np.lexsort((evidence.keys, cell))
    first = np.searchsorted(cell[order], cell[order])  # where the cell of each row begins
    size = np.bincount(cell)[cell[order]]
    # Evenly spaced along the keys, so that the sample does not depend on the order of the rows.
    rank = np.arange(len(cell)) - first
    kept = (rank * each) // size != ((rank - 1) * each) // size
    return np.sort(order[kept | (size <= each)])


def cells_of(evidence: Evidence) -> Ints:
    """Return the number (n,) of each row's cell: its class and its most likely group."""
    return np.asarray(evidence.y * evidence.groups.shape[1] + evidence.groups.argmax(axis=1))


def splits_of(folds: Ints, judged: Ints, rows: Ints) -> list[FoldSplit]:
    """Return a split per fold (m,) of the ``judged`` rows; the other ``rows`` are fitted on in every split."""
    held = [judged[folds == fold] for fold in np.unique(folds)]
    return [FoldSplit(np.setdiff1d(rows, scored), scored) for scored in held]


def _candidates(
    fits: FoldedFits, start: Mapping[str, Any], varied: Mapping[str, Sequence[Any]], order: Ints
) -> tuple[list[dict[str, Any]], Floats]:
    """Return the values of each candidate, the start first, and out-of-fold scores (g, n, c) of those with a solution.

    ``order`` are the numbers of the judged rows, split after split.
    """
    costly = {name: varied.get(name, [start[name]]) for name in COSTLY}
    free = {name: values for name, values in varied.items() if name not in COSTLY}
    points = [dict(zip(free, values, strict=True)) for values in product(*free.values())]
    # Without an S term the criterion has no effect: one is enough.
    points = [
        p for p in points if p.get("tau", start["tau"]) != 0 or p.get("criterion") in (None, "marginal")
    ]
    candidates: list[dict[str, Any]] = []
    scores: list[Floats] = []
    for guess_weight in costly["guess_weight"]:
        found: dict[float, list[list[F64 | None]]] = {float(gamma): [] for gamma in costly["gamma"]}
        for number, prepared in fits.prepare(start["class_weight"], costly["gamma"], guess_weight):
            settings = [prepared.setting({**start, **point}) for point in points]
            own = fits.scores(number, prepared, settings, refine=start["refine"])
            found[prepared.gamma].append(own)
        for gamma, by_split in found.items():
            for point, parts in zip(points, zip(*by_split, strict=True), strict=True):
                if all(part is not None for part in parts):
                    candidates.append({**point, "gamma": gamma, "guess_weight": guess_weight})
                    joined = np.concatenate([part for part in parts if part is not None])
                    out = np.empty(joined.shape, dtype=np.float32)
                    out[order] = joined
                    scores.append(out)
    first = {name: start[name] for name in (*free, *COSTLY)}
    if first not in candidates:
        return [], np.zeros((0, 0, 0), dtype=np.float32)
    place = candidates.index(first)
    candidates.insert(0, candidates.pop(place))
    scores.insert(0, scores.pop(place))
    return candidates, np.array(scores)
