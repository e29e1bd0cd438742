"""Functions that turn the results of an audit into tidy CSV tables: one number per row, with its interval."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

from fairerclip._util.files import write_folder
from fairerclip.auditing.group_results import (
    FigureChange,
    Measured,
    MeasuredChange,
    SeedFigure,
    present_stages,
)
from fairerclip.auditing.model_facts import subject
from fairerclip.auditing.results import (
    AuditResults,
    DriftFigures,
    RankedStage,
    SkewChanges,
    SkewFigures,
)
from fairerclip.auditing.validation import Part
from fairerclip.data.io.csv_table import csv_bytes
from fairerclip.metrics.names import (
    AUC,
    DEPENDENCE,
    DRIFT,
    FIGURES,
    PROBE,
    REPRESENTATION,
    RETRIEVAL,
    figure_of,
)
from fairerclip.report.query_tables import LOW, PRECISION

Row = dict[str, str | float | None]
ALL_QUERIES = "(mean over queries)"
ESTIMATE = "value low high"
CHANGE = "before after difference low high"
MEASURED = "average worst_group gap eod"


def csv_rows(results: AuditResults) -> dict[str, list[Row]]:
    """Return the rows of each table by its name; sections that are None have no table. Shares are fractions."""
    tables = {name: list(make(results)) for name, make in TABLES.items()}
    return {name: rows for name, rows in tables.items() if rows}


def write_csv(results: AuditResults, folder: str | Path, overwrite: bool = False) -> list[Path]:
    """Write each table as ``NAME.csv`` into a folder, all or none, and return the files.

    Tables of an earlier call are deleted, so that old and new ones are not mixed; other files in the folder stay.
    Text that a spreadsheet would run as a formula gets an apostrophe in front (`fairerclip.data.io.csv_table.defused`).
    """
    contents = {f"{name}.csv": csv_bytes(rows) for name, rows in csv_rows(results).items()}
    ours = [f"{name}.csv" for name in TABLES]
    return write_folder(Path(folder), contents, overwrite=overwrite, ours=ours)


def _of(part: Part, columns: str) -> Row:
    """Return the named fields of a part of the results as columns."""
    return {name: getattr(part, name) for name in columns.split()}


def _groups(results: AuditResults) -> Iterable[Row]:
    for stage, report in present_stages(results.groups).items():
        for group in report.groups:
            yield {"stage": stage, **_of(group, "y s name n correct accuracy low high small")}


def _figures(results: AuditResults) -> Iterable[Row]:
    for stage, report in present_stages(results.groups).items():
        for name, figure in FIGURES.items():
            about: Row = {"stage": stage, "figure": name, "label": figure.label}
            yield {**about, **_of(report.estimate(name), ESTIMATE)}


def _changes(results: AuditResults) -> Iterable[Row]:
    for row in (results.groups and results.groups.changes) or ():
        yield {**_named(row), "better": row.better, **_of(row, CHANGE)}


def _group_changes(results: AuditResults) -> Iterable[Row]:
    for row in (results.groups and results.groups.group_changes) or ():
        yield _of(row, f"y s name n small {CHANGE} clear")


def _recalls(results: AuditResults) -> Iterable[Row]:
    for stage, report in present_stages(results.groups).items():
        for row in report.differences:
            yield {"stage": stage, **_of(row, "y s reference difference low high")}


def _confusion(results: AuditResults) -> Iterable[Row]:
    for stage, report in present_stages(results.groups).items():
        for value, by_class in zip(report.sensitive, report.confusion, strict=True):
            for true, counts in zip(report.classes, by_class, strict=True):
                for predicted, n in zip(report.classes, counts, strict=True):
                    yield {"stage": stage, "s": value, "y": true, "predicted": predicted, "n": n}


def _seeds(results: AuditResults) -> Iterable[Row]:
    seeds = results.groups.seeds if results.groups else None
    if seeds is None:
        return
    for row in seeds.figures:
        yield {"seeds": seeds.n, **_named(row), **_of(row, "mean sd smallest largest sampling_se")}


def _named(row: FigureChange | SeedFigure) -> Row:
    return {"figure": row.figure, "label": figure_of(row.figure, row.label).label}


def _scores(results: AuditResults) -> Iterable[Row]:
    for stage, histogram in present_stages(results.scores).items():
        for group in histogram.groups:
            for (low, high), n in zip(pairwise(histogram.edges), group.counts, strict=True):
                yield {"stage": stage, **_of(group, "y s name"), "from": low, "to": high, "n": n}


def _auc(results: AuditResults) -> Iterable[Row]:
    for stage, report in present_stages(results.auc).items():
        for group in report.groups:
            about: Row = {"stage": stage, "measure": "auc", "label": AUC["overall"].short}
            yield {**about, "s": group.s, "n": group.n, **_of(group.auc, ESTIMATE)}
        for name, figure in AUC.items():
            about = {"stage": stage, "measure": name, "label": figure.label}
            s = report.worst if name == "worst_auc" else None
            yield {**about, "s": s, "n": None, **_of(getattr(report, name) or Measured(), ESTIMATE)}


def _picture(results: AuditResults) -> Iterable[Row]:
    groups = results.picture.groups if results.picture else ()
    for stage, part in present_stages(results.picture).items():
        for i, j, g, n in part.cells:
            across: Row = {"x_from": part.x_edges[i], "x_to": part.x_edges[i + 1]}
            upwards: Row = {"y_from": part.y_edges[j], "y_to": part.y_edges[j + 1]}
            yield {"stage": stage, "name": groups[g].name, **across, **upwards, "n": n}


def _plane(results: AuditResults) -> Iterable[Row]:
    plane = results.plane
    if plane is None:
        return
    columns = f"tau tau_z criterion lambda_eff failure {MEASURED} shrunken_worst_group"
    for g, point in enumerate(plane.points):
        yield {"point": g, **_of(point, columns), "front": g in plane.front, "chosen": g == plane.chosen}
    if plane.baseline:
        empty: Row = dict.fromkeys(["point", *columns.split(), "front", "chosen"])
        yield {**empty, "point": "zero-shot", **_of(plane.baseline, MEASURED)}


def _plane_groups(results: AuditResults) -> Iterable[Row]:
    plane = results.plane
    if plane is None:
        return
    counted: list[tuple[int | str, tuple[int, ...] | None]] = [
        (g, p.correct) for g, p in enumerate(plane.points)
    ]
    counted += [("zero-shot", plane.baseline.correct)] if plane.baseline else []
    for point, correct in counted:
        for group, k, intervals in zip(plane.groups, correct or (), plane.intervals, strict=False):
            low, high = intervals[str(k)]
            yield {"point": point, **_of(group, "y s name n"), "correct": k, "low": low, "high": high}


def _retrieval(results: AuditResults) -> Iterable[Row]:
    section = results.retrieval
    if section is None:
        return
    pair = None if section.pair is None else " against ".join(section.pair)
    for query in section.queries:
        about: Row = {"query": query.name, "prompt": query.prompt, "k": section.k}
        for stage, ranked in present_stages(query).items():
            yield from _measures({**about, "stage": stage}, ranked, pair)
        yield from _measures({**about, "stage": "change"}, query.changes, pair)
        yield from _measures({**about, "stage": "drift"}, query.drift, pair)
    about = {"query": ALL_QUERIES, "prompt": None, "k": section.k}
    for stage, mean in present_stages(section.mean).items():
        yield from _measures({**about, "stage": stage}, mean, pair)
    yield from _measures({**about, "stage": "change"}, section.mean.changes, pair)


def _measures(
    about: Row, part: RankedStage | SkewFigures | SkewChanges | DriftFigures | None, pair: str | None
) -> Iterable[Row]:
    for name, figure in (RETRIEVAL | DRIFT).items():
        measure = getattr(part, name, None)
        if measure is not None:
            value = measure.value if isinstance(measure, Measured) else measure.difference
            row: Row = {**about, "measure": name, "label": figure.label}
            row |= {"value": value, "low": measure.low, "high": measure.high}
            yield {**row, "pair": pair if name == "bias" else None}


def _retrieval_groups(results: AuditResults) -> Iterable[Row]:
    section = results.retrieval
    if section is None:
        return
    for query in section.queries:
        for stage, ranked in present_stages(query).items():
            for group, share, n in zip(section.groups, section.shares, ranked.counts, strict=True):
                about: Row = {"query": query.name, "stage": stage, "group": group}
                yield {**about, "share": share, "k": section.k, "shown": n}


def _queries(results: AuditResults) -> Iterable[Row]:
    section = results.queries
    if section is None:
        return
    skew = RETRIEVAL["max_skew"].label
    for query in section.queries:
        about: Row = {"query": query.prompt, "about": query.about}
        for stage, top in present_stages(query).items():
            yield _query_row(about, stage, "max_skew", skew, top.max_skew)
        yield from _query_changes(about, query.change, query.clear)
        for name, value in (("spearman_within", query.correlation), ("overlap", query.kept)):
            if value is not None:
                yield _query_row(about, "change", name, DRIFT[name].label, Measured(value=value))
    mean, about = section.mean, {"query": ALL_QUERIES, "about": None}
    if mean is None:
        return
    for stage, measured in present_stages(mean).items():
        yield _query_row(about, stage, "max_skew", skew, measured)
    yield from _query_changes(about, mean.change, None)
    for name, measure in (("spearman_within", mean.correlation), ("overlap", mean.kept)):
        if measure is not None:
            yield _query_row(about, "change", name, DRIFT[name].label, measure)
    if mean.low_correlation is not None:
        low = Measured(value=mean.low_correlation)
        yield _query_row(about, "change", "spearman_within_low", LOW, low)
    precision = section.precision
    if precision is not None:
        for stage, figure in (("before", precision.before), ("after", precision.after)):
            if figure is not None:
                yield _query_row(about, stage, "average_precision", PRECISION, Measured(value=figure))
        if precision.difference is not None:
            moved = Measured(value=precision.difference, low=precision.low, high=precision.high)
            yield _query_row(about, "change", "average_precision", PRECISION, moved)


def _query_row(about: Row, stage: str, name: str, label: str, measured: Measured) -> Row:
    return {
        **about,
        "stage": stage,
        "measure": name,
        "label": label,
        **_of(measured, ESTIMATE),
        "clear": None,
    }


def _query_changes(about: Row, change: MeasuredChange | None, clear: bool | None) -> Iterable[Row]:
    if change is not None:
        moved = Measured(value=change.difference, low=change.low, high=change.high)
        yield {**_query_row(about, "change", "max_skew", RETRIEVAL["max_skew"].label, moved), "clear": clear}


def _query_groups(results: AuditResults) -> Iterable[Row]:
    section = results.queries
    if section is None:
        return
    for query in section.queries:
        for stage, top in present_stages(query).items():
            for group, share, n in zip(section.groups, section.shares, top.counts, strict=True):
                about: Row = {"query": query.prompt, "stage": stage, "group": group}
                yield {**about, "share": share, "k": section.k, "shown": n}


def _probes(results: AuditResults) -> Iterable[Row]:
    for row in results.probes or ():
        about, rest = _of(row, "attribute probe stage"), _of(row, f"{ESTIMATE} chance n folds")
        yield {**about, "label": PROBE.label, **rest}


def _dependence(results: AuditResults) -> Iterable[Row]:
    for row in results.dependence or ():
        about, rest = (
            _of(row, "stage of attribute given measure"),
            _of(row, f"{ESTIMATE} p_value permutations n"),
        )
        yield {**about, "label": DEPENDENCE[row.measure].label, **rest}


def _wording(results: AuditResults) -> Iterable[Row]:
    section = results.wording
    if section is None:
        return
    for i, row in enumerate(section.templates):
        about: Row = {
            "template": row.template,
            "used": i == section.used,
            "worst_name": row.worst_name,
        }
        for name, estimate in (("average", row.average), ("worst_group", row.worst_group), ("eod", row.eod)):
            label = FIGURES[name].label
            yield {**about, "measure": name, "label": label, **_of(estimate or Measured(), ESTIMATE)}


def _representation(results: AuditResults) -> Iterable[Row]:
    for row in results.representation or ():
        for name, figure in REPRESENTATION.items():
            tested = getattr(row, name)
            if tested is not None:
                about: Row = {**_of(row, "stage space"), "measure": name[:-2], "with": name[-1]}
                yield {**about, "label": figure.label, **_of(tested, "value p_value low high")}


def _model(results: AuditResults) -> Iterable[Row]:
    model = results.model
    if model is None:
        return
    about = {"method": subject(model), "paper": model.paper, "source": model.source, "labels": model.labels}
    mitigator = model.mitigator
    facts: Row = {} if mitigator is None else {"rows_": mitigator.rows}
    if mitigator is not None:
        facts |= {f"strength_ {name}": value for name, value in mitigator.strengths.items()}
        facts |= {f"remaining_ {name}": value for name, value in mitigator.remaining.items()}
    for name, value in {**about, **model.parameters, **facts}.items():
        yield {"stage": "after", "name": name, "value": value}


TABLES: dict[str, Callable[[AuditResults], Iterable[Row]]] = {
    "model": _model,
    "groups": _groups,
    "figures": _figures,
    "changes": _changes,
    "group_changes": _group_changes,
    "recalls": _recalls,
    "confusion": _confusion,
    "seeds": _seeds,
    "scores": _scores,
    "auc": _auc,
    "picture": _picture,
    "plane": _plane,
    "plane_groups": _plane_groups,
    "retrieval": _retrieval,
    "retrieval_groups": _retrieval_groups,
    "queries": _queries,
    "query_groups": _query_groups,
    "probes": _probes,
    "dependence": _dependence,
    "wording": _wording,
    "representation": _representation,
}
"""Function that makes the rows of each table, in the order of the results."""
