"""The results of an audit as tidy tables: one number per row, with its interval."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from fairerclip._util.files import write_folder
from fairerclip.data.io.csv_table import csv_bytes
from fairerclip.metrics.names import DEPENDENCE, DRIFT, FIGURES, PROBE, REPRESENTATION, RETRIEVAL, figure_of
from fairerclip.report.estimates import estimate_of, stages

Row = dict[str, Any]
Results = Mapping[str, Any]
NO_ESTIMATE = {"value": None, "low": None, "high": None}
ALL_QUERIES = "(mean over queries)"


def tables(results: Results) -> dict[str, list[Row]]:
    """Name → rows, all with the same columns; a section that is null has no table.

    Parameters
    ----------
    results : dict
        As `fairerclip.auditing.results.read_results` gives it. Shares stay fractions; null is None.
    """
    made = {name: make(results) for name, make in TABLES.items()}
    return {name: rows for name, rows in made.items() if rows}


def write_csv(results: Results, folder: str | Path, overwrite: bool = False) -> list[Path]:
    """Write each table as ``NAME.csv`` into a folder, which appears whole; returns the files.

    Tables of an earlier call go, so that old and new are never taken for one; other files there stay.
    Text that a spreadsheet would run as a formula gets an apostrophe in front (`fairerclip.data.io.csv_table.defused`).
    """
    contents = {f"{name}.csv": csv_bytes(rows) for name, rows in tables(results).items()}
    ours = [f"{name}.csv" for name in TABLES]
    return write_folder(Path(folder), contents, overwrite=overwrite, ours=ours)


def _groups(results: Results) -> list[Row]:
    columns = ("y", "s", "name", "n", "correct", "accuracy", "low", "high", "small")
    section = results["groups"]
    return [
        {"stage": stage, **_only(group, columns)}
        for stage in stages(section)
        for group in section[stage]["groups"]
    ]


def _figures(results: Results) -> list[Row]:
    section = results["groups"]
    return [
        {"stage": stage, "figure": name, "label": figure.label, **estimate_of(section[stage], name)}
        for stage in stages(section)
        for name, figure in FIGURES.items()
    ]


def _changes(results: Results) -> list[Row]:
    columns = ("figure", "label", "better", "before", "after", "difference", "low", "high")
    return [_named(row) for row in _listed(_inside(results["groups"], "changes"), columns)]


def _group_changes(results: Results) -> list[Row]:
    columns = ("y", "s", "name", "n", "small", "before", "after", "difference", "low", "high", "clear")
    return _listed(_inside(results["groups"], "group_changes"), columns)


def _recalls(results: Results) -> list[Row]:
    section = results["groups"]
    return [
        {"stage": stage, **_only(row, ("y", "s", "reference", "difference", "low", "high"))}
        for stage in stages(section)
        for row in section[stage]["differences"]
    ]


def _confusion(results: Results) -> list[Row]:
    section = results["groups"]
    return [
        {"stage": stage, "s": value, "y": true, "predicted": predicted, "n": n}
        for stage in stages(section)
        for value, by_class in zip(section[stage]["sensitive"], section[stage]["confusion"], strict=True)
        for true, counts in zip(section[stage]["classes"], by_class, strict=True)
        for predicted, n in zip(section[stage]["classes"], counts, strict=True)
    ]


def _seeds(results: Results) -> list[Row]:
    seeds = _inside(results["groups"], "seeds")
    columns = ("figure", "label", "mean", "sd", "smallest", "largest", "sampling_se")
    return (
        [{"seeds": seeds["n"], **_named(row)} for row in _listed(seeds["figures"], columns)] if seeds else []
    )


def _named(row: Row) -> Row:
    return {**row, "label": figure_of(row["figure"], row["label"]).label}


def _scores(results: Results) -> list[Row]:
    section = results["scores"]
    return [
        {"stage": stage, "y": group["y"], "s": group["s"], "name": group["name"], "from": a, "to": b, "n": n}
        for stage in stages(section)
        for group in section[stage]["groups"]
        for (a, b), n in zip(pairwise(section[stage]["edges"]), group["counts"], strict=True)
    ]


def _picture(results: Results) -> list[Row]:
    section = results["picture"]
    return [
        {
            "stage": stage,
            "name": section["groups"][g]["name"],
            **{"x_from": part["x_edges"][i], "x_to": part["x_edges"][i + 1]},
            **{"y_from": part["y_edges"][j], "y_to": part["y_edges"][j + 1]},
            "n": n,
        }
        for stage in stages(section)
        for part in [section[stage]]
        for i, j, g, n in part["cells"]
    ]


def _plane(results: Results) -> list[Row]:
    plane = results["plane"]
    if plane is None:
        return []
    columns = ("tau", "tau_z", "criterion", "lambda_eff", "failure", *_MEASURED, "shrunken_worst_group")
    front = set(plane["front"])
    rows = [
        {"point": g, **_only(point, columns), "front": g in front, "chosen": g == plane["chosen"]}
        for g, point in enumerate(plane["points"])
    ]
    if plane["baseline"]:
        rows.append({**dict.fromkeys(rows[0]), "point": "zero-shot", **_only(plane["baseline"], _MEASURED)})
    return rows


_MEASURED = ("average", "worst_group", "gap", "eod")


def _plane_groups(results: Results) -> list[Row]:
    plane = results["plane"]
    if plane is None:
        return []
    named: list[tuple[int | str, list[int]]] = [
        (g, p["correct"]) for g, p in enumerate(plane["points"]) if p["correct"] is not None
    ]
    named += [("zero-shot", plane["baseline"]["correct"])] if plane["baseline"] else []
    return [
        {"point": g, **_only(group, ("y", "s", "name", "n")), "correct": k, "low": low, "high": high}
        for g, correct in named
        for group, k, ends in zip(plane["groups"], correct, plane["intervals"], strict=True)
        for low, high in [ends[str(k)]]
    ]


def _retrieval(results: Results) -> list[Row]:
    section = results["retrieval"]
    if section is None:
        return []
    rows: list[Row] = []
    for part in [
        *section["queries"],
        {"name": ALL_QUERIES, "prompt": None, "drift": None, **section["mean"]},
    ]:
        about = {"query": part["name"], "prompt": part["prompt"], "k": section["k"]}
        for stage in stages(part):
            rows += _measures({**about, "stage": stage}, part[stage], "value")
        rows += _measures({**about, "stage": "change"}, part["changes"] or {}, "difference")
        rows += _measures({**about, "stage": "drift"}, part["drift"] or {}, "value")
    return rows


def _measures(about: Row, found: Mapping[str, Any], key: str) -> list[Row]:
    return [
        {
            **about,
            "measure": name,
            "label": figure.label,
            "value": found[name][key],
            "low": found[name]["low"],
            "high": found[name]["high"],
        }
        for name, figure in (RETRIEVAL | DRIFT).items()
        if found.get(name) is not None
    ]


def _retrieval_groups(results: Results) -> list[Row]:
    section = results["retrieval"]
    if section is None:
        return []
    return [
        {
            "query": q["name"],
            "stage": stage,
            "group": group,
            "share": share,
            "k": section["k"],
            "shown": shown,
        }
        for q in section["queries"]
        for stage in stages(q)
        for group, share, shown in zip(section["groups"], section["shares"], q[stage]["counts"], strict=True)
    ]


def _probes(results: Results) -> list[Row]:
    columns = ("attribute", "probe", "stage", "label", "value", "low", "high", "chance", "n", "folds")
    return _listed([{**probe, "label": PROBE.label} for probe in results["probes"] or ()], columns)


def _dependence(results: Results) -> list[Row]:
    columns = ("stage", "of", "attribute", "given", "measure", "label", "value", "low", "high", "p_value")
    rows = [{**row, "label": DEPENDENCE[row["measure"]].label} for row in results["dependence"] or ()]
    return _listed(rows, (*columns, "permutations", "n"))


def _wording(results: Results) -> list[Row]:
    section = results["wording"]
    if section is None:
        return []
    return [
        {
            "template": t["template"],
            "used": i == section["used"],
            "worst_name": t["worst_name"],
            "measure": name,
            "label": FIGURES[name].label,
            **(t[name] or NO_ESTIMATE),
        }
        for i, t in enumerate(section["templates"])
        for name in ("average", "worst_group", "eod")
    ]


def _representation(results: Results) -> list[Row]:
    return [
        {
            "stage": r["stage"],
            "space": r["space"],
            "measure": name[:-2],
            "with": name[-1],
            "label": figure.label,
            **r[name],
        }
        for r in results["representation"] or []
        for name, figure in REPRESENTATION.items()
        if r[name] is not None
    ]


def _inside(section: Mapping[str, Any] | None, name: str) -> Any:
    return None if section is None else section[name]


def _listed(rows: Iterable[Mapping[str, Any]] | None, columns: Iterable[str]) -> list[Row]:
    columns = tuple(columns)
    return [_only(row, columns) for row in rows or ()]


def _only(row: Mapping[str, Any], columns: Iterable[str]) -> Row:
    return {column: row[column] for column in columns}


TABLES: dict[str, Callable[[Results], list[Row]]] = {
    "groups": _groups,
    "figures": _figures,
    "changes": _changes,
    "group_changes": _group_changes,
    "recalls": _recalls,
    "confusion": _confusion,
    "seeds": _seeds,
    "scores": _scores,
    "picture": _picture,
    "plane": _plane,
    "plane_groups": _plane_groups,
    "retrieval": _retrieval,
    "retrieval_groups": _retrieval_groups,
    "probes": _probes,
    "dependence": _dependence,
    "wording": _wording,
    "representation": _representation,
}
"""Every table, in the order of the results."""
