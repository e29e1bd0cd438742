"""The record of a search: its table of candidates, and the chosen one with its neighbours, ready for JSON."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.numbers import number, setting
from fairerclip._util.types import Floats
from fairerclip.errors import AccuracyFloorWarning
from fairerclip.inputs.prompts import zero_shot
from fairerclip.judging.choose import Choice, lower_gain
from fairerclip.judging.evidence import Evidence
from fairerclip.judging.objectives import Objective
from fairerclip.metrics import group_report
from fairerclip.tuning.found_rows import FoundRows
from fairerclip.tuning.judged_rows import JudgedRows
from fairerclip.tuning.pool import Candidate, Pool, neighbours

if TYPE_CHECKING:
    from fairerclip.model.estimator import FairerCLIP

VARIED = ("kernel", "class_weight", "gamma", "tau", "tau_z", "criterion", "zero_shot", "orthogonal")
"""Parameters that a search varies."""


def with_floor(goal: Objective, pool: Pool, judged: JudgedRows, prompts: list[Floats] | None) -> Objective:
    """Return the objective with an accuracy floor where it needs one.

    A difference between groups is smallest where one class is always predicted. Its default floor is the accuracy of
    zero-shot, or without prompts of the model with the given parameters.
    """
    if not goal.compares_groups or goal.accuracy_floor is not None:
        return goal
    if prompts is not None:
        right = zero_shot(judged.X, prompts)[0] == judged.evidence.y
    else:
        right = pool.candidates[pool.reference].scores.argmax(axis=1) == judged.evidence.y
    return replace(goal, accuracy_floor=float(np.mean(right)))


def search_record(
    pool: Pool, chosen: Choice, found: FoundRows, model: FairerCLIP, *, objective: str, floor: float | None
) -> dict[str, Any]:
    """Return what ``diagnostics_["tuning"]`` keeps: the chosen point and its neighbours, with intervals.

    Figures are of the validation rows, or without these of the training rows, out of fold.
    """
    best, offsets, judged = pool.candidates[chosen.candidate], chosen.offsets, found.judged
    average = float(np.mean((best.scores + offsets).argmax(axis=1) == judged.evidence.y))
    shown = judged.at(np.arange(found.trained_rows if found.validation_rows else 0, len(judged.rows)))
    described = describe(best, offsets, shown, model)
    return {
        "objective": objective,
        "accuracy_floor": floor,
        "floor_met": None if floor is None else bool(average >= floor),
        "rows": len(judged.rows),
        "validation_rows": found.validation_rows,
        "groups": judged.group_source,
        "strategy": chosen.strategy,
        "gain": chosen.gain,
        "doubt": chosen.doubt,
        "fits": pool.fits,
        "fits_planned": pool.planned,
        "candidates": len(pool.candidates),
        "seconds": pool.seconds,
        "failures": pool.failures,
        "folds": len(found.splits) or None,
        "value": chosen.value,
        "average": average,
        "chosen": described,
        "neighbours": [describe(c, offsets, shown, model) for c in neighbours(pool, best)],
    }


def warn_of_floor(record: dict[str, Any], *, given: bool) -> None:
    """Warn if the chosen model does not reach the accuracy floor on the judged rows."""
    floor, average = record["accuracy_floor"], record["average"]
    if record["floor_met"] is False:
        name = "the accuracy_floor" if given else "the floor that zero-shot sets"
        warnings.warn(
            f"no model of the search reaches {name} of {setting(floor)} on the labelled rows: the most accurate one "
            f"was taken, with {number(average)}. Lower the floor, or search more widely",
            AccuracyFloorWarning,
            stacklevel=4,
        )


def describe(
    candidate: Candidate, offsets: NDArray[np.float64], judged: JudgedRows, model: FairerCLIP
) -> dict[str, Any]:
    """Return a candidate's parameters, and its figures with intervals on rows that are the last of its scores."""
    parameters = _varied(candidate, {**model.get_params(deep=False), "zero_shot": model.zero_shot_})
    return {
        "parameters": parameters | {"offsets": offsets.tolist()},
        **judged_figures(candidate.scores, offsets, judged),
    }


def judged_figures(scores: Floats, offsets: NDArray[np.float64], judged: JudgedRows) -> dict[str, Any]:
    """Return figures with intervals of class scores on rows that are the last of the scores."""
    scores = scores[len(scores) - len(judged.rows) :]
    predicted = judged.classes[(scores + offsets).argmax(axis=1)]
    names = judged.classes.tolist()
    report = group_report(
        *(judged.y, predicted, judged.groups),
        class_names={name: str(name) for name in names},  # all of them, although some may have no row
        positive=names[1] if len(names) == 2 else None,
    ).as_dict()
    return {
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
    pool: Pool, evidence: Evidence, objective: Objective | None, params: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return one row per candidate: its fit, its parameters, and its figures on the judged rows without offsets.

    Parameters that a candidate does not change are those of ``params``. ``score`` is the objective as it is counted on
    the rows. ``value`` is the posterior mean that the search compares, which includes the average accuracy, and
    ``lower_gain`` is its gain over the given parameters after doubt is subtracted. All are None for an objective that
    is a function.
    """
    verdicts, counts, there = pool.verdicts(evidence, objective), evidence.counts, evidence.present
    draws, hits = verdicts.draws, verdicts.hits
    figures = None if objective is None else objective.figures(hits, counts)
    lower = None if draws is None else lower_gain(draws, draws[pool.reference])
    varied = dict.fromkeys(
        [*VARIED, *(name for candidate in pool.candidates for name in candidate.parameters)]
    )
    table = []
    for g, candidate in enumerate(pool.candidates):
        table.append(
            {
                "fit": candidate.fit,
                **_varied(candidate, params, varied),
                "score": None if figures is None else float(figures[g]),
                "value": None if draws is None else float(draws[g].mean()),
                "lower_gain": None if lower is None else float(lower[g]),
                "average": float(hits[g].sum() / counts.sum()),
                "worst_group": float((hits[g][there] / counts[there]).min()),
            }
        )
    return table
