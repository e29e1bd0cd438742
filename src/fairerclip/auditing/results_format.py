"""The format of ``results.json``, version 1, as data."""

from __future__ import annotations

from itertools import pairwise, product
from math import isclose
from typing import Any

from fairerclip.auditing.model_format import COMMAND, MODEL, NULLABLE
from fairerclip.auditing.structure import (
    BOOLEAN,
    COUNT,
    INTEGER,
    NUMBER,
    PAIR,
    SHARE,
    TEXT,
    Fields,
    Keyed,
    Many,
    Maybe,
    Problems,
    Spec,
    Value,
    one_of,
    ordered,
)

FORMAT, VERSION = "fairerclip-results", 1
FIGURES = (
    "average",
    "train_weighted_average",
    "worst_group",
    "gap",
    "eod",
    "eod_signed",
    "eod_mean",
    "eod_mean_signed",
    "equalized_odds_difference",
    "demographic_parity_difference",
)
SKEWS = ("max_skew", "min_skew", "ndkl", "precision", "recall")


def _low_to_high(part: dict[str, Any]) -> Problems:
    low, high = part["low"], part["high"]
    if low is not None and high is not None and not ordered(low, high):
        yield "low", f"expected at most high, {high}; got {low}"


def _with_interval(**others: Spec) -> Fields:
    return Fields({**others, "low": Maybe(NUMBER), "high": Maybe(NUMBER)}, also=_low_to_high)


def _rising(edges: list[float], name: str) -> Problems:
    if any(b <= a for a, b in pairwise(edges)):
        yield name, "expected edges that rise, got others"


STAGE = one_of("before", "after")
ESTIMATE = _with_interval(value=NULLABLE)
TESTED = _with_interval(value=NULLABLE, p_value=Maybe(SHARE))
CHANGE = _with_interval(before=NULLABLE, after=NULLABLE, difference=NULLABLE)
CELL = {"name": TEXT, "y": TEXT, "s": TEXT, "n": COUNT}


def _at_most_n(group: dict[str, Any]) -> Problems:
    yield from _low_to_high(group)
    if group["correct"] > group["n"]:
        yield "correct", f"expected at most n, {group['n']}; got {group['correct']}"


ACCURACY = Fields(
    {**CELL, "correct": COUNT, "accuracy": SHARE, "low": NUMBER, "high": NUMBER, "small": BOOLEAN},
    also=_at_most_n,
)
BY_CLASS = Many(Many(COUNT, "report classes"), "report classes")
REPORT = Fields(
    {
        "n": COUNT,
        "dropped": COUNT,
        "average": SHARE,
        "train_weighted_average": Maybe(SHARE),
        "groups": Many(ACCURACY, least=1),
        "worst": ACCURACY,
        "gap": NUMBER,
        **dict.fromkeys(FIGURES[4:], NULLABLE),
        "intervals": Keyed(PAIR),
        "differences": Many(_with_interval(y=TEXT, s=TEXT, reference=TEXT, difference=NULLABLE)),
        "classes": Many(TEXT, "report classes", least=1),
        "sensitive": Many(TEXT, "report values", least=1),
        "confusion": Many(BY_CLASS, "report values"),
        "empty": Many(TEXT),
        "positive": Maybe(TEXT),
        "confidence": SHARE,
    },
)
SEED_FIGURE: dict[str, Spec] = {
    "figure": TEXT,
    "label": TEXT,
    **dict.fromkeys(("mean", "sd", "smallest", "largest", "sampling_se"), NULLABLE),
}
GROUPS = Fields(
    {
        "before": Maybe(REPORT),
        "after": Maybe(REPORT),
        "changes": Maybe(
            Many(
                _with_interval(
                    figure=TEXT,
                    label=TEXT,
                    better=Maybe(one_of("higher", "lower")),
                    before=NULLABLE,
                    after=NULLABLE,
                    difference=NULLABLE,
                )
            )
        ),
        "group_changes": Maybe(
            Many(
                _with_interval(
                    **CELL, small=BOOLEAN, before=NULLABLE, after=NULLABLE, difference=NULLABLE, clear=BOOLEAN
                )
            )
        ),
        "seeds": Maybe(Fields({"n": COUNT, "figures": Many(Fields(SEED_FIGURE))})),
    }
)
HISTOGRAM = Fields(
    {
        "edges": Many(NUMBER, "bins", extra=1, least=2),
        "threshold": NULLABLE,
        "groups": Many(Fields({**CELL, "counts": Many(COUNT, "bins")})),
    },
    also=lambda part: _rising(part["edges"], "edges"),
)


def _cells_inside(part: dict[str, Any]) -> Problems:
    yield from _rising(part["x_edges"], "x_edges")
    yield from _rising(part["y_edges"], "y_edges")
    shape = len(part["x_edges"]) - 1, len(part["y_edges"]) - 1
    for c, cell in enumerate(part["cells"]):
        if len(cell) != 4:
            yield f"cells[{c}]", f"expected 4 integers, got {len(cell)}"
        elif cell[0] >= shape[0] or cell[1] >= shape[1]:
            yield f"cells[{c}]", f"expected a cell of {shape[0]} × {shape[1]}, got {cell[0]}, {cell[1]}"


PICTURE_STAGE = Fields(
    {
        "x_label": TEXT,
        "y_label": TEXT,
        "x_edges": Many(NUMBER, least=2),
        "y_edges": Many(NUMBER, least=2),
        "cells": Many(Many(COUNT)),
        "note": Maybe(TEXT),
    },
    also=_cells_inside,
)


def _groups_of_cells(part: dict[str, Any]) -> Problems:
    for stage in ("before", "after"):
        for c, cell in enumerate(part[stage]["cells"] if part[stage] else ()):
            if cell[2] >= len(part["groups"]):
                yield f"{stage}.cells[{c}][2]", f"expected one of {len(part['groups'])} groups, got {cell[2]}"


PICTURE = Fields(
    {"groups": Many(Fields(CELL)), "before": Maybe(PICTURE_STAGE), "after": Maybe(PICTURE_STAGE)},
    also=_groups_of_cells,
)
CORRECT = Many(COUNT, "plane groups")
POINT = Fields(
    {
        "tau": SHARE,
        "tau_z": SHARE,
        "criterion": TEXT,
        "lambda_eff": NULLABLE,
        "failure": Maybe(TEXT),
        "correct": Maybe(CORRECT),
        "average": Maybe(SHARE),
        "worst_group": Maybe(SHARE),
        "shrunken_worst_group": Maybe(SHARE),
        "gap": NULLABLE,
        "eod": NULLABLE,
    }
)
BASELINE = Fields(
    {"average": SHARE, "worst_group": SHARE, "gap": NULLABLE, "eod": NULLABLE, "correct": CORRECT}
)


def _plane_agrees(plane: dict[str, Any]) -> Problems:
    points = plane["points"]
    yield from _is_grid(plane)
    for g, point in enumerate(points):
        if point["failure"] is None and None in (point["correct"], point["average"], point["worst_group"]):
            yield f"points[{g}]", "expected correct, average and worst_group where there is no failure"
    for name, index in [
        ("chosen", plane["chosen"]),
        *((f"front[{i}]", g) for i, g in enumerate(plane["front"])),
    ]:
        if index >= len(points) or points[index]["failure"] is not None:
            yield name, f"expected the index of one of {len(points)} points that has no failure, got {index}"
    counted = [(f"points[{g}]", p["correct"]) for g, p in enumerate(points) if p["correct"] is not None]
    if plane["baseline"]:
        counted.append(("baseline", plane["baseline"]["correct"]))
    for name, correct in counted:
        yield from _counts_known(plane, f"{name}.correct", correct)


def _is_grid(plane: dict[str, Any]) -> Problems:
    grid = list(product(plane["criteria"], plane["tau_zs"], plane["taus"]))
    points = plane["points"]
    if len(points) != len(grid):
        yield "points", f"expected {len(grid)}, one for each criterion, τ_z and τ; got {len(points)}"
    for g, (point, (criterion, tau_z, tau)) in enumerate(zip(points, grid, strict=False)):
        same = isclose(point["tau"], tau, abs_tol=1e-9) and isclose(point["tau_z"], tau_z, abs_tol=1e-9)
        if not same or point["criterion"] != criterion:
            yield f"points[{g}]", f"expected τ {tau}, τ_z {tau_z}, {criterion[:40]!a}; got another point"


def _counts_known(plane: dict[str, Any], name: str, correct: list[int]) -> Problems:
    for i, count in enumerate(correct):
        n = plane["groups"][i]["n"]
        if count > n:
            yield f"{name}[{i}]", f"expected at most n, {n}; got {count}"
        if str(count) not in plane["intervals"][i]:
            yield f"intervals[{i}]", f"expected an interval for {count}, which {name}[{i}] has; got none"


PLANE = Fields(
    {
        "split": TEXT,
        "taus": Many(SHARE, least=1),
        "tau_zs": Many(SHARE, least=1),
        "criteria": Many(TEXT, least=1),
        "groups": Many(Fields({**CELL, "small": BOOLEAN}), "plane groups", least=1),
        "intervals": Many(Keyed(PAIR), "plane groups"),
        "points": Many(POINT, least=1),
        "chosen": COUNT,
        "chosen_by": TEXT,
        "front": Many(COUNT),
        "one_curve": BOOLEAN,
        "baseline": Maybe(BASELINE),
        "command": COMMAND,
    },
    also=_plane_agrees,
)
ESTIMATES = {name: Maybe(ESTIMATE) for name in SKEWS}
CHANGES = Fields({name: Maybe(CHANGE) for name in SKEWS})
RANKING = Fields({"counts": Many(NUMBER, "ranked groups"), **ESTIMATES})
DRIFT = Fields({name: Maybe(ESTIMATE) for name in ("spearman", "spearman_within", "overlap")})
QUERY = Fields(
    {
        "name": TEXT,
        "prompt": TEXT,
        "before": Maybe(RANKING),
        "after": Maybe(RANKING),
        "changes": Maybe(CHANGES),
        "drift": Maybe(DRIFT),
        "clear": Maybe(BOOLEAN),
    }
)
RETRIEVAL = Fields(
    {
        "split": TEXT,
        "k": COUNT,
        "n": COUNT,
        "reference": TEXT,
        "ties": TEXT,
        "groups": Many(TEXT, "ranked groups"),
        "shares": Many(SHARE, "ranked groups"),
        "queries": Many(QUERY),
        "mean": Fields(
            {"before": Maybe(Fields(ESTIMATES)), "after": Maybe(Fields(ESTIMATES)), "changes": Maybe(CHANGES)}
        ),
    }
)
PROBE = _with_interval(
    attribute=TEXT,
    probe=one_of("linear", "kernel"),
    stage=STAGE,
    value=NULLABLE,
    chance=SHARE,
    n=COUNT,
    folds=COUNT,
)
DEPENDENCE = _with_interval(
    stage=STAGE,
    of=one_of("predictions", "embeddings"),
    attribute=TEXT,
    given=Maybe(TEXT),
    measure=one_of("dep", "hsic", "kcc"),
    value=NULLABLE,
    p_value=Maybe(SHARE),
    permutations=Maybe(COUNT),
    n=COUNT,
)


def _used_exists(wording: dict[str, Any]) -> Problems:
    if wording["used"] is not None and wording["used"] >= len(wording["templates"]):
        yield "used", f"expected one of {len(wording['templates'])} templates, got {wording['used']}"


WORDING = Fields(
    {
        "split": TEXT,
        "templates": Many(
            Fields(
                {
                    "template": TEXT,
                    "average": ESTIMATE,
                    "worst_group": ESTIMATE,
                    "worst_name": TEXT,
                    "eod": Maybe(ESTIMATE),
                }
            )
        ),
        "used": Maybe(COUNT),
    },
    also=_used_exists,
)
REPRESENTATION = Fields(
    {
        "stage": STAGE,
        "space": TEXT,
        **{name: Maybe(TESTED) for name in ("hsic_y", "hsic_s", "kcc_y", "kcc_s")},
    }
)
TASK = Fields(
    {
        "name": TEXT,
        "file": Maybe(TEXT),
        "simulated": BOOLEAN,
        "digest": TEXT,
        "width": COUNT,
        "rows": Keyed(COUNT),
        "classes": Many(TEXT, "classes"),
        "sensitive": Many(TEXT),
        "groups": Many(TEXT),
        "target_prompts": Maybe(Many(TEXT, "classes", may_be_empty=True)),
        "sensitive_prompts": Maybe(Keyed(Maybe(Many(TEXT)))),
        "counts": Keyed(Many(Fields({"y": TEXT, "s": TEXT, "n": COUNT}))),
    }
)
SETTINGS = Fields(
    {
        "split": Maybe(TEXT),
        "chosen_on": Maybe(TEXT),
        "confidence": Value(
            "a number between 0 and 1", "numbers", lambda v: isinstance(v, float) and 0 < v < 1
        ),
        "seed": Maybe(INTEGER),
        "permutations": Maybe(COUNT),
        "small": COUNT,
    }
)
RESULTS = Fields(
    {
        "format": TEXT,
        "version": INTEGER,
        "made": Fields(
            {
                **dict.fromkeys(("fairerclip", "python", "numpy", "scipy", "scikit-learn", "date"), TEXT),
                "seconds": NULLABLE,
            }
        ),
        "task": TASK,
        "settings": SETTINGS,
        "model": Maybe(MODEL),
        "verdict": Many(TEXT),
        "findings": Many(Fields({"level": one_of("problem", "good", "caution", "note"), "text": TEXT})),
        "groups": Maybe(GROUPS),
        "scores": Maybe(Fields({"label": TEXT, "before": Maybe(HISTOGRAM), "after": Maybe(HISTOGRAM)})),
        "picture": Maybe(PICTURE),
        "plane": Maybe(PLANE),
        "retrieval": Maybe(RETRIEVAL),
        "probes": Maybe(Many(PROBE)),
        "dependence": Maybe(Many(DEPENDENCE)),
        "wording": Maybe(WORDING),
        "representation": Maybe(Many(REPRESENTATION)),
        "limits": Many(TEXT),
    }
)
"""Every part of a document, in the order of the document."""
