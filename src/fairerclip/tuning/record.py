"""The record of a search: its table of candidates, and the chosen one with its neighbours, ready for JSON."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.numbers import number, setting
from fairerclip.errors import AccuracyFloorWarning
from fairerclip.metrics import group_report
from fairerclip.tuning.candidates import Candidate, Pool, neighbours
from fairerclip.tuning.choose import Chosen
from fairerclip.tuning.judge import Judge
from fairerclip.tuning.judged_rows import JudgedRows
from fairerclip.tuning.objectives import Objective, judge_scores

if TYPE_CHECKING:
    from fairerclip.model.estimator import FairerCLIP

VARIED = ("kernel", "class_weight", "gamma", "tau", "tau_z", "criterion", "zero_shot", "orthogonal")
"""Parameters that a search varies."""


def search_record(
    pool: Pool, chosen: Chosen, judged: JudgedRows, model: FairerCLIP, *, objective: str, floor: float | None
) -> dict[str, Any]:
    """Return what ``diagnostics_["tuning"]`` keeps: the chosen point and its neighbours, with intervals."""
    best, offsets = pool.candidates[chosen.choice.candidate], chosen.choice.offsets
    described = describe(best, offsets, judged, pool.classes, model)
    return {
        "objective": objective,
        "accuracy_floor": floor,
        "floor_met": None if floor is None else bool(described["average"] >= floor),
        "rows": len(judged.y),
        "groups": judged.group_source,
        "strategy": chosen.strategy,
        "held_out": chosen.held_out,
        "fits": pool.fits,
        "fits_planned": pool.planned,
        "candidates": len(pool.candidates),
        "seconds": pool.seconds,
        "failures": pool.failures,
        "value": chosen.value,
        "chosen": described,
        "neighbours": [describe(c, offsets, judged, pool.classes, model) for c in neighbours(pool, best)],
    }


def warn_of_floor(record: dict[str, Any], *, given: bool) -> None:
    """Warn if the chosen model does not reach the accuracy floor on the judged rows."""
    floor, average = record["accuracy_floor"], record["chosen"]["average"]
    if record["floor_met"] is False:
        name = "the accuracy_floor" if given else "the floor that zero-shot sets"
        warnings.warn(
            f"no model of the search reaches {name} of {setting(floor)} on the labelled rows: the most accurate one "
            f"was taken, with {number(average)}. Lower the floor, or search more widely",
            AccuracyFloorWarning,
            stacklevel=4,
        )


def describe(
    candidate: Candidate,
    offsets: NDArray[np.float64],
    judged: JudgedRows,
    classes: NDArray[Any],
    model: FairerCLIP,
) -> dict[str, Any]:
    """Return a candidate's parameters, and its figures on the judged rows with intervals."""
    predicted = classes[(candidate.scores + offsets).argmax(axis=1)]
    names = classes.tolist()
    report = group_report(
        *(judged.y, predicted, judged.groups),
        class_names={name: str(name) for name in names},  # all of them, although some may have no row
        positive=names[1] if len(names) == 2 else None,
    ).as_dict()
    return {
        "parameters": _varied(candidate, {**model.get_params(deep=False), "zero_shot": model.zero_shot_})
        | {"offsets": offsets.tolist()},
        "average": report["average"],
        "worst_group": report["worst"]["accuracy"],
        "eod": report["eod"],
        "positive": report["positive"],
        # Without two groups to compare there is no EOD, and no interval of it.
        "intervals": {name: report["intervals"].get(name) for name in ("average", "worst_group", "eod")},
    }


def _varied(candidate: Candidate, others: Mapping[str, Any], names: Iterable[str] = VARIED) -> dict[str, Any]:
    """Return the named parameters of a candidate; those that it leaves alone come from ``others``."""
    point = {name: candidate.parameters.get(name, others[name]) for name in names}
    return {name: v.item() if isinstance(v, np.generic) else v for name, v in point.items()}


def candidate_table(
    pool: Pool, judge: Judge, objective: Objective | None, base: FairerCLIP
) -> list[dict[str, Any]]:
    """Return one row per candidate: its fit, its parameters, and its figures on the judged rows without offsets.

    Parameters that a candidate does not change are those of ``base``; None for ``zero_shot`` is the default share.
    ``score`` is the objective as it is counted on the rows. ``value`` is what the search compares: a posterior mean
    that includes the average accuracy. Both are None for an objective that is a function.
    """
    scores = np.array([candidate.scores for candidate in pool.candidates], dtype=np.float64)  # (g, n, c)
    values = None if objective is None else judge_scores(judge, objective, scores)
    varied = dict.fromkeys(
        [*VARIED, *(name for candidate in pool.candidates for name in candidate.parameters)]
    )
    table = []
    for g, candidate in enumerate(pool.candidates):
        hits = judge.hits(scores[g])
        accuracy = hits[judge.counts > 0] / judge.counts[judge.counts > 0]
        table.append(
            {
                "fit": candidate.fit,
                **_varied(candidate, base.get_params(deep=False), varied),
                "score": None if objective is None else objective.figure(judge, scores[g]),
                "value": None if values is None else float(values[g]),
                "average": float(hits.sum() / judge.counts.sum()),
                "worst_group": float(accuracy.min()),
            }
        )
    return table
