"""The results of an audit as tables on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from fairerclip.cli.show import plain_table
from fairerclip.report.text import shorten

Results = Mapping[str, Any]
STAGES = {"before": "zero-shot", "after": "FairerCLIP"}
SPACES = {"before": "image embeddings", "after": "mitigated embeddings"}
NO_ESTIMATE: dict[str, float | None] = {"value": None, "low": None, "high": None}
NOTHING, MINUS = "–", "−"


def tables(results: Results) -> Iterator[Table]:
    """One table per section that the results have."""
    sections: dict[str, Callable[[Any], Iterator[Table]]] = {
        "groups": _groups,
        "retrieval": _retrieval,
        "probes": _probes,
        "dependence": _dependence,
        "representation": _representation,
        "wording": _wording,
    }
    for name, make in sections.items():
        if results[name] is not None:
            yield from make(results[name])


def _fixed(value: float | None, digits: int = 1, sign: str = "") -> str:
    return NOTHING if value is None else f"{value:{sign}.{digits}f}".replace("-", MINUS)


def _hundred(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _with_interval(value: float | None, low: float | None, high: float | None, *form: Any) -> str:
    if value is None or low is None or high is None:
        return _fixed(value, *form)
    return f"{_fixed(value, *form)} [{_fixed(low, *form)}, {_fixed(high, *form)}]"


def _percent(value: float | None, low: float | None = None, high: float | None = None) -> str:
    return _with_interval(_hundred(value), _hundred(low), _hundred(high))


def _number(value: float | None, low: float | None = None, high: float | None = None, digits: int = 3) -> str:
    return _with_interval(value, low, high, digits)


def _points(change: Results | None) -> str:
    if change is None:
        return ""
    return _with_interval(*(_hundred(change[end]) for end in ("difference", "low", "high")), 1, "+")


def _estimate(found: Results | None, show: Callable[..., str] = _percent) -> str:
    known = NO_ESTIMATE if found is None else found
    return show(known["value"], known["low"], known["high"])


def _groups(section: Results) -> Iterator[Table]:
    reports = {stage: section[stage] for stage in STAGES if section[stage] is not None}
    if not reports:
        return
    cells = {stage: {(g["y"], g["s"]): g for g in report["groups"]} for stage, report in reports.items()}
    changes = {(change["y"], change["s"]): change for change in section["group_changes"] or ()}
    every = {key: group for stage in reversed(cells) for key, group in cells[stage].items()}
    order = dict.fromkeys(key for stage in cells for key in cells[stage])
    rows = []
    for key in order:
        group = every[key]
        row = [f"{shorten(group['name'])}, n={group['n']}{' (small)' if group['small'] else ''}"]
        for found in (stage.get(key) for stage in cells.values()):
            row.append(_percent(found["accuracy"], found["low"], found["high"]) if found else NOTHING)
        rows.append([*row, *([_points(changes.get(key))] if changes else [])])
    columns = ["group", *(STAGES[stage] for stage in reports), *(["change, points"] if changes else [])]
    yield plain_table("Accuracy by group, per cent [interval]", columns, rows)
    yield _figures(section, reports)


def _figures(section: Results, reports: Mapping[str, Results]) -> Table:
    from fairerclip.metrics.figures import FIGURES

    changes = {change["figure"]: change for change in section["changes"] or ()}
    rows = []
    for name, figure in FIGURES.items():
        values = [
            report["worst"]["accuracy"] if name == "worst_group" else report[name]
            for report in reports.values()
        ]
        if all(value is None for value in values):
            continue
        row = [figure.label]
        for value, report in zip(values, reports.values(), strict=True):
            row.append(_percent(value, *report["intervals"].get(name, (None, None))))
        rows.append([*row, *([_points(changes.get(name))] if changes else [])])
    columns = ["figure", *(STAGES[stage] for stage in reports), *(["change, points"] if changes else [])]
    return plain_table(
        "Figures, per cent, differences in points [interval]; changes are paired", columns, rows
    )


def _retrieval(section: Results) -> Iterator[Table]:
    there = [stage for stage in STAGES if section["mean"][stage] is not None]
    drifts = any(query["drift"] for query in section["queries"])
    rows = []
    for query in [*section["queries"], {"name": "mean", "drift": None, **section["mean"]}]:
        row = [query["name"]]
        for stage in there:
            found = query[stage] or {}
            row += [_estimate(found.get(figure), _number) for figure in ("max_skew", "ndkl")]
        within = query["drift"]["spearman_within"] if query["drift"] else None
        rows.append([*row, *([_number(within["value"], digits=2) if within else ""] if drifts else [])])
    columns = [
        "prompt",
        *(f"{measure}, {STAGES[stage]}" for stage in there for measure in ("MaxSkew", "NDKL")),
    ]
    columns += ["Spearman\ninside groups"] if drifts else []
    title = (
        f"Top {section['k']} of {section['n']} rows, reference {section['reference']}, ties {section['ties']}"
    )
    yield plain_table(title, columns, rows)


def _probes(section: Sequence[Results]) -> Iterator[Table]:
    rows = [
        [
            f"{row['attribute']}, {row['probe']}, {SPACES[row['stage']]}",
            _percent(row["value"], row["low"], row["high"]),
            _percent(row["chance"]),
            str(row["n"]),
        ]
        for row in section
    ]
    title = "How well the sensitive attribute can be read: balanced accuracy out of fold, per cent"
    yield plain_table(title, ["probe", "accuracy", "chance", "n"], rows)


def _dependence(section: Sequence[Results]) -> Iterator[Table]:
    rows = [
        [
            f"{row['measure']}, {_whose(row)}, {row['attribute']}"
            + (f", given {row['given']}" if row["given"] else ""),
            _number(row["value"], row["low"], row["high"], 4),
            "–" if row["p_value"] is None else f"{row['p_value']:.3g}",
        ]
        for row in section
    ]
    yield plain_table("Dependence on the sensitive attribute", ["measure", "value [interval]", "p"], rows)


def _whose(row: Results) -> str:
    return f"{STAGES[row['stage']]} predictions" if row["of"] == "predictions" else SPACES[row["stage"]]


def _representation(section: Sequence[Results]) -> Iterator[Table]:
    rows = []
    for row in section:
        found = [row[name] or NO_ESTIMATE for name in ("hsic_y", "hsic_s", "kcc_y", "kcc_s")]
        rows.append([row["space"], *(_number(f["value"], f["low"], f["high"], 4) for f in found)])
    columns = ["embeddings", "HSIC with Y", "HSIC with S", "KCC with Y", "KCC with S"]
    yield plain_table("Representation quality", columns, rows)


def _wording(section: Results) -> Iterator[Table]:
    rows = []
    for place, row in enumerate(section["templates"]):
        mark = " (used)" if place == section["used"] else ""
        figures = [_estimate(row[name]) for name in ("average", "worst_group", "eod")]
        rows.append([f"{shorten(row['template'])}{mark}", *figures, row["worst_name"]])
    columns = ["wording", "average", "worst group", "EOD, points", "worst group's name"]
    yield plain_table("Zero-shot over wordings of the prompts, per cent [interval]", columns, rows)
