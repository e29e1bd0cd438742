"""Tables that `fairerclip fit` prints: skews before and after, and the points of a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairerclip._util.numbers import setting, significant
from fairerclip.auditing.model_facts import judged_rows
from fairerclip.embedding.strength_path import StrengthPath
from fairerclip.experiment import PromptSkew
from fairerclip.metrics.names import DRIFT, FIGURES, RETRIEVAL
from fairerclip.report.result_table import Cell, Content, ResultTable


def skew_table(title: str, rows: Sequence[PromptSkew], after: str) -> ResultTable:
    """Return a table of the MaxSkew of each prompt before and after; ``after`` is the name of the model."""
    title = f"{title}: {RETRIEVAL['max_skew'].label}@{rows[0].k}"
    cells: list[list[Content]] = [
        [row.prompt, Cell(row.before, "number"), Cell(row.after, "number")] for row in rows
    ]
    return ResultTable(title, ["prompt", "zero-shot", after], cells)


def rankings_table(title: str, rows: Sequence[Any]) -> ResultTable:
    """Return a table of the rankings before and after, one row per attribute (`AttributeRankings`)."""
    first = rows[0]
    title = (
        f"{title}: {RETRIEVAL['max_skew'].label}@k before and after, and rank correlation inside groups; means over "
        f"{first.queries} queries [interval over queries]"
    )
    columns = ["S", "k", "before", "after", "change", DRIFT["spearman"].short, "5th percentile"]
    body: list[list[Content]] = [
        [
            *(row.attribute, row.k, Cell(row.before[0], "number", *row.before[1:])),
            *(Cell(row.after[0], "number", *row.after[1:]), Cell(row.change[0], "signed", *row.change[1:])),
            Cell(row.rank_correlation[0], "number", *row.rank_correlation[1:]),
            Cell(row.low_correlation, "number"),
        ]
        for row in rows
    ]
    return ResultTable(title, columns, body)


def strength_table(path: StrengthPath, chosen: float) -> ResultTable:
    """Return a table of the figures at every strength; the chosen one is marked."""
    title = f"Strengths on {path.rows} validation rows, where figures are optimistic [interval over queries]"
    skew = f"{RETRIEVAL['max_skew'].label}@{path.k}"
    rows: list[list[Content]] = [
        [
            "→" if point.strength == chosen else "",
            setting(point.strength),
            Cell(point.max_skew[0], "number", *point.max_skew[1:]),
            Cell(point.rank_correlation[0], "number", *point.rank_correlation[1:]),
            Cell(point.low_correlation, "number"),
        ]
        for point in path.points
    ]
    return ResultTable(
        title, ["", "strength", skew, "rank correlation inside groups", "5th percentile"], rows
    )


def settings_text(parameters: Mapping[str, Any]) -> str:
    """Return parameters as text, such as "C=0.01, class_weight=group"."""
    return ", ".join(
        f"{name}={significant(value) if isinstance(value, float) else value}"
        for name, value in parameters.items()
    )


def choice_table(tuning: Mapping[str, Any]) -> ResultTable:
    """Return a table of the setting that was chosen for a baseline, from ``diagnostics_["tuning"]``."""
    rows_of = judged_rows(tuning["rows"], tuning["validation_rows"], tuning["folds"])
    counted = "1 model" if tuning["candidates"] == 1 else f"{tuning['candidates']} models"
    title = f"Chosen by {tuning['objective']} on {rows_of} ({counted}); figures are optimistic"
    chosen, names = tuning["chosen"], ("average", "worst_group")
    parameters = {name: value for name, value in chosen["parameters"].items() if name != "offsets"}
    offsets = ", ".join(significant(value) for value in chosen["parameters"]["offsets"])
    cells: list[Content] = [
        Cell(chosen[name], "bare", *(chosen["intervals"].get(name) or ())) for name in names
    ]
    columns = ["setting", "class offsets", *(FIGURES[name].short for name in names)]
    return ResultTable(title, columns, [[settings_text(parameters) or "–", offsets, *cells]])


def tuning_table(tuning: Mapping[str, Any]) -> ResultTable:
    """Return a table of the chosen point of a search and its neighbours, from ``diagnostics_["tuning"]``."""
    points = [tuning["chosen"], *tuning["neighbours"]]
    fits = f"{tuning['fits']} of {tuning['fits_planned']} fits, {tuning['candidates']} models"
    rows_of = judged_rows(tuning["rows"], tuning.get("validation_rows"), tuning.get("folds"))
    title = f"Searched by {tuning['objective']} on {rows_of} ({fits}); figures are optimistic"
    names = ["average", "worst_group", *(["eod"] if tuning["objective"] in ("eod", "equalized_odds") else [])]
    columns = ["weights", "τ", "criterion", "zero-shot share", *(FIGURES[name].short for name in names)]
    rows: list[list[Content]] = []
    for point in points:
        p = point["parameters"]
        share = "default" if p["zero_shot"] is None else setting(p["zero_shot"])
        figures = [Cell(point[name], "bare", *(point["intervals"].get(name) or ())) for name in names]
        rows.append([str(p["class_weight"]), setting(p["tau"]), p["criterion"], share, *figures])
    return ResultTable(title, columns, rows)
