"""What `fairerclip fit` shows of a model, as tables: skews before and after, and the search that chose it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairerclip._util.numbers import setting
from fairerclip.experiment import PromptSkew
from fairerclip.metrics.names import FIGURES, RETRIEVAL
from fairerclip.report.result_table import Cell, Content, ResultTable


def skew_table(title: str, rows: Sequence[PromptSkew], after: str) -> ResultTable:
    """MaxSkew of each prompt before, and after by what has a name."""
    title = f"{title}: {RETRIEVAL['max_skew'].label}@{rows[0].k}"
    cells: list[list[Content]] = [
        [row.prompt, Cell(row.before, "number"), Cell(row.after, "number")] for row in rows
    ]
    return ResultTable(title, ["prompt", "zero-shot", after], cells)


def tuning_table(tuning: Mapping[str, Any]) -> ResultTable:
    """The chosen point of a search and its neighbours, from what ``diagnostics_["tuning"]`` keeps of it."""
    points = [tuning["chosen"], *tuning["neighbours"]]
    if tuning["objective"] == "max_skew":
        title = (
            f"Rankings tuned on {tuning['rows']} validation rows, the figures of which flatter; chosen first"
        )
        shown = [(setting(p["strength"]), p["max_skew"], p["rank_correlation"]) for p in points]
        rows: list[list[Content]] = [
            [s, Cell(skew, "number"), Cell(kept, "number")] for s, skew, kept in shown
        ]
        return ResultTable(title, ["strength", RETRIEVAL["max_skew"].label, "order kept inside groups"], rows)
    fits = f"{tuning['fits']} of {tuning['fits_planned']} fits, {tuning['candidates']} models"
    title = f"Searched by {tuning['objective']} on {tuning['rows']} validation rows ({fits}), whose figures flatter"
    names = ["average", "worst_group", *(["eod"] if tuning["objective"] in ("eod", "equalized_odds") else [])]
    columns = ["weights", "τ", "criterion", "zero-shot share", *(FIGURES[name].short for name in names)]
    rows = []
    for point in points:
        p = point["parameters"]
        share = "default" if p["zero_shot"] is None else setting(p["zero_shot"])
        figures = [Cell(point[name], "bare", *(point["intervals"].get(name) or ())) for name in names]
        rows.append([str(p["class_weight"]), setting(p["tau"]), p["criterion"], share, *figures])
    return ResultTable(title, columns, rows)
