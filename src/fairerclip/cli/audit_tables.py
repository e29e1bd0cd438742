"""The results of an audit as tables on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from fairerclip.cli.show import percent

Results = Mapping[str, Any]
STAGES = {"before": "zero-shot", "after": "FairerCLIP"}


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


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """The first column is text, the others are figures; nothing in it is markup."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _percent(value: float | None, low: float | None = None, high: float | None = None) -> str:
    if value is None or low is None or high is None:
        return percent(value)
    return f"{percent(value)} [{percent(low)}, {percent(high)}]"


def _number(value: float | None, low: float | None = None, high: float | None = None, digits: int = 3) -> str:
    if value is None:
        return "–"
    text = f"{value:.{digits}f}"
    return text if low is None or high is None else f"{text} [{low:.{digits}f}, {high:.{digits}f}]"


def _points(value: float, low: float, high: float) -> str:
    return f"{100 * value:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def _groups(section: Results) -> Iterator[Table]:
    stages = [stage for stage in STAGES if section[stage] is not None]
    reports = {stage: section[stage] for stage in stages}
    changes = {change["name"]: change for change in section["group_changes"] or ()}
    rows = []
    for place, group in enumerate(reports[stages[0]]["groups"]):
        cells = [reports[stage]["groups"][place] for stage in stages]
        row = [f"{group['name']}, n={group['n']}{' (small)' if group['small'] else ''}"]
        row += [_percent(cell["accuracy"], cell["low"], cell["high"]) for cell in cells]
        change = changes.get(group["name"])
        row += [_points(change["difference"], change["low"], change["high"])] if change else []
        rows.append(row)
    columns = ["group", *(STAGES[stage] for stage in stages), *(["change"] if changes else [])]
    yield _table("Accuracy by group, per cent [interval]", columns, rows)
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
        change = changes.get(name)
        row += (
            [_points(change["difference"], change["low"], change["high"]) if change else ""]
            if changes
            else []
        )
        rows.append(row)
    columns = ["figure", *(STAGES[stage] for stage in reports), *(["change"] if changes else [])]
    return _table("Figures, per cent [interval]; changes are paired", columns, rows)


def _retrieval(section: Results) -> Iterator[Table]:
    after = section["mean"]["after"] is not None
    rows = []
    for query in [*section["queries"], {"name": "mean", "drift": None, **section["mean"]}]:
        row = [query["name"]]
        for stage in ("before", "after") if after else ("before",):
            for figure in ("max_skew", "ndkl"):
                found = query[stage][figure]
                row.append(_number(found["value"], found["low"], found["high"]))
        drift = query["drift"]
        row += [_number(drift["spearman_within"]["value"], digits=2) if drift else ""] if after else []
        rows.append(row)
    columns = ["prompt", "MaxSkew, zero-shot", "NDKL, zero-shot"]
    columns += ["MaxSkew, FairerCLIP", "NDKL, FairerCLIP", "Spearman\ninside groups"] if after else []
    title = (
        f"Top {section['k']} of {section['n']} rows, reference {section['reference']}, ties {section['ties']}"
    )
    yield _table(title, columns, rows)


def _probes(section: Sequence[Results]) -> Iterator[Table]:
    rows = [
        [
            f"{row['attribute']}, {row['probe']}, {'image embeddings' if row['stage'] == 'before' else 'mitigated'}",
            _percent(row["value"], row["low"], row["high"]),
            percent(row["chance"]),
            str(row["n"]),
        ]
        for row in section
    ]
    title = "How well the sensitive attribute can be read: balanced accuracy out of fold, per cent"
    yield _table(title, ["probe", "accuracy", "chance", "n"], rows)


def _dependence(section: Sequence[Results]) -> Iterator[Table]:
    rows = [
        [
            f"{row['measure']}, {STAGES[row['stage']]} {row['of']}, {row['attribute']}"
            + (f", given {row['given']}" if row["given"] else ""),
            _number(row["value"], row["low"], row["high"], 4),
            "–" if row["p_value"] is None else f"{row['p_value']:.3g}",
        ]
        for row in section
    ]
    yield _table("Dependence on the sensitive attribute", ["measure", "value [interval]", "p"], rows)


def _representation(section: Sequence[Results]) -> Iterator[Table]:
    nothing = {"value": None, "low": None, "high": None}
    rows = []
    for row in section:
        found = [row[name] or nothing for name in ("hsic_y", "hsic_s", "kcc_y", "kcc_s")]
        rows.append([row["space"], *(_number(f["value"], f["low"], f["high"], 4) for f in found)])
    columns = ["embeddings", "HSIC with Y", "HSIC with S", "KCC with Y", "KCC with S"]
    yield _table("Representation quality", columns, rows)


def _wording(section: Results) -> Iterator[Table]:
    rows = []
    for place, row in enumerate(section["templates"]):
        mark = " (used)" if place == section["used"] else ""
        figures = [row[name] for name in ("average", "worst_group", "eod")]
        rows.append(
            [
                f"{row['template']}{mark}",
                *(_percent(f["value"], f["low"], f["high"]) for f in figures),
                row["worst_name"],
            ]
        )
    columns = ["wording", "average", "worst group", "EOD", "worst group's name"]
    yield _table("Zero-shot over wordings of the prompts, per cent [interval]", columns, rows)
