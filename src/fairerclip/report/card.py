"""Functions that write the results of an audit as a model card of the Hugging Face Hub."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairerclip._util.markdown_text import block, clean, escape, front_matter
from fairerclip._util.numbers import interval, number
from fairerclip.auditing.group_results import Measured, Stage, present_stages
from fairerclip.auditing.model_facts import subject
from fairerclip.auditing.recommendation import recommend
from fairerclip.auditing.results import AuditResults, RetrievalSection
from fairerclip.metrics.names import FIGURES, RETRIEVAL, Figure
from fairerclip.report.markdown import (
    bullets,
    findings,
    how_made,
    retrieval,
    strengths,
    tables_with_notes,
    trade_off,
)
from fairerclip.report.phrases import (
    SIMULATED,
    ZERO_SHOT,
    about_model,
    confidence,
    is_baseline,
    is_given,
    is_learned,
    people,
    presentable,
    stage_names,
)
from fairerclip.report.query_tables import SHOWN, query_tables
from fairerclip.report.result_table import Content, ResultTable, to_markdown
from fairerclip.report.tables import SKEWS, accuracy_tables, probe_tables

PAPER = "https://arxiv.org/abs/2403.15593"
CITATION = """@inproceedings{dehdashtian2024fairerclip,
  title     = {{FairerCLIP}: Debiasing {CLIP}'s Zero-Shot Predictions using Functions in {RKHSs}},
  author    = {Dehdashtian, Sepehr and Wang, Lan and Boddeti, Vishnu Naresh},
  booktitle = {International Conference on Learning Representations},
  year      = {2024},
  url       = {https://arxiv.org/abs/2403.15593}
}"""
USE = """from fairerclip import FairerCLIP

model = FairerCLIP.load("MODEL")  # the folder that `fairerclip fit` wrote
labels = model.predict(X)  # X: image embeddings of the same CLIP model, one row each
embeddings = model.transform(X)"""
USE_ANY = """import fairerclip

model = fairerclip.load("MODEL")  # the folder that `fairerclip fit` wrote
labels = model.predict(X)  # X: image embeddings of the same CLIP model, one row each"""
USE_MITIGATOR = """import fairerclip

mitigator = fairerclip.load("MODEL")  # the folder that `fairerclip fit` wrote
embeddings = mitigator.transform(X)  # X: image embeddings of the same CLIP model; of the same space and width
ranking = mitigator.rank(query, X, k=20)  # query: the embedding of any text"""
INTENDED = (
    "To predict its classes, or to search by its prompts, on images like those it was evaluated on, by people who have "
    "read the figures of every group below."
)
METRIC_TYPES = {"average": "accuracy", "train_weighted_average": "accuracy", "worst_group": "accuracy"}
LATEST_FIRST: tuple[Stage, ...] = ("after", "before")
"""Readers that take the first value of a metric for the value of the model then take the right one."""


def render_card(results: AuditResults, *, license_id: str | None = None) -> str:
    """Render a model card: metadata with the figures before and after, then the card's sections as Markdown.

    Parameters
    ----------
    results : AuditResults
        Sections that are None are left out. Without a model the card describes the zero-shot classifier.
    license_id : str, optional
        License of the model, as the Hub names it (``apache-2.0``). By default the card names none.
    """
    front = front_matter(metadata(results, license_id=license_id))
    results = presentable(results)
    parts = [f"# {escape(_name(results))}", ""]
    for title, body in _sections(results):
        parts += [f"## {title}", "", *body] if body else []
    return "\n".join(["---", front, "---", "", *parts]).rstrip("\n") + "\n"


def metadata(results: AuditResults, *, license_id: str | None = None) -> dict[str, Any]:
    """Return the metadata at the top of the card as plain data."""
    tags = ["fairness", "bias-mitigation", "spurious-correlation", "clip", "fairerclip"]
    data: dict[str, Any] = {"language": "en"}
    if license_id is not None:
        data["license"] = clean(license_id)
    data |= {"library_name": "fairerclip", "pipeline_tag": "zero-shot-image-classification", "tags": tags}
    parts = [_classification(results)]
    parts += [_search(results, results.retrieval)] if results.retrieval else []
    measured = [part for part in parts if part["metrics"]]
    if measured:
        data |= {"metrics": ["accuracy"]} if results.groups else {}
        data["model-index"] = [{"name": clean(_name(results)), "results": measured}]
    return data


def _name(results: AuditResults) -> str:
    """Return the name of the model: method and task."""
    name, method = "FairerCLIP" if is_learned(results) else "zero-shot CLIP", subject(results.model)
    if is_baseline(results):
        return f"{method} on {results.task.name}"
    if results.model is not None and method.startswith(ZERO_SHOT):
        name += method.removeprefix(ZERO_SHOT)
    return f"{name} on {results.task.name}"


def _classification(results: AuditResults) -> dict[str, Any]:
    reports, names = present_stages(results.groups), stage_names(results)
    metrics = []
    for name, figure in FIGURES.items():
        for stage in LATEST_FIRST if figure.better else ():  # signed figures have no better direction
            if stage in reports:
                label = f"{figure.label}, {names[stage]}"
                estimate = reports[stage].estimate(name)
                metrics += _metric(results, METRIC_TYPES.get(name, name), figure, label, estimate)
    task = {"type": "zero-shot-image-classification", "name": "Zero-Shot Image Classification"}
    return {"task": task, "dataset": _dataset(results, results.settings.split), "metrics": metrics}


def _search(results: AuditResults, section: RetrievalSection) -> dict[str, Any]:
    means = present_stages(section.mean)
    metrics = []
    for name in SKEWS:
        figure = RETRIEVAL[name]
        for stage in LATEST_FIRST:
            label = f"{figure.label}@{section.k}, mean over prompts, {stage_names(results)[stage]}"
            metrics += _metric(results, name, figure, label, getattr(means.get(stage), name, None))
    task = {"type": "image-feature-extraction", "name": "Text-to-Image Retrieval"}
    return {"task": task, "dataset": _dataset(results, section.split), "metrics": metrics}


def _dataset(results: AuditResults, split: str | None) -> dict[str, str]:
    name = clean(results.task.name) or "unnamed"
    return {"type": name, "name": name, **({} if split is None else {"split": clean(split)})}


def _metric(
    results: AuditResults, metric_type: str, figure: Figure, name: str, estimate: Measured | None
) -> list[dict[str, Any]]:
    """Return an entry of the metadata, with the interval as text in its name; none without a value."""
    if estimate is None or estimate.value is None:
        return []
    if estimate.low is not None and estimate.high is not None:
        unit = {"percent": " %", "gap": " points"}.get(figure.kind, "")
        name += f", {confidence(results)} interval {interval(estimate.low, estimate.high, figure.kind)}{unit}"
    return [{"type": metric_type, "name": name, "value": estimate.value}]


def _sections(results: AuditResults) -> list[tuple[str, list[str]]]:
    fitted = results.model is not None
    return [
        ("Model details", _details(results)),
        ("Intended use", [INTENDED, ""]),
        ("Out-of-scope use", _out_of_scope(results)),
        ("How to use", block(_use(results), "python") if fitted else []),
        ("Training data", _training(results)),
        ("Evaluation", _evaluation(results)),
        ("Bias, risks and limitations", _limitations(results)),
        ("Trade-off", trade_off(results)),
        ("Environmental impact", _compute(results)),
        ("How it was made", how_made(results)),
        ("Citation", block(CITATION, "bibtex")),
    ]


def _use(results: AuditResults) -> str:
    if results.model is not None and results.model.mitigator is not None:
        return USE_MITIGATOR
    return USE_ANY if is_baseline(results) else USE


def _details(results: AuditResults) -> list[str]:
    task, model = results.task, results.model
    lines = [f"**{SIMULATED}**", ""] if task.simulated else []
    if model is None:
        lines += [
            "Zero-shot classification by the cosine of image and prompt embeddings; nothing was fitted.",
            "",
        ]
    elif is_learned(results):
        lines += [
            "A pair of encoders over the embeddings of a CLIP model, fitted in closed form to depend on the target and "
            "less on the sensitive attribute. The section Evaluation shows how far they do, by group.",
            "",
            f"- Method: [FairerCLIP (Dehdashtian, Wang and Boddeti, ICLR 2024)]({PAPER})",
            f"- Strength: {strengths(model) or 'not known'}",
        ]
    elif is_baseline(results):
        paper = "" if model.paper is None else f" ({escape(model.paper)})"
        lines += [f"- Method: {escape(subject(model))}{paper}"]
    else:
        lines += [f"- Method: {escape(subject(results.model))}; no encoder was learned"]
    facts = [
        *about_model(results),
        f"Classes: {_listed(task.classes)}",
        f"Sensitive attributes: {_listed(task.sensitive)}, with the values {_listed(task.groups)}",
        f"Input: image embeddings, {task.width} wide, of the CLIP model that embedded the task",
        *([f"Prompts: {_listed(task.target_prompts)}"] if task.target_prompts else []),
    ]
    return [*lines, *bullets(facts)]


def _listed(names: Sequence[str]) -> str:
    return "; ".join(names) if names else "none"


def _out_of_scope(results: AuditResults) -> list[str]:
    lines = [
        "- Inferring a sensitive attribute of anyone.",
        "- Decisions about people without a person who can overrule them.",
        "- Groups, images and prompts that were not evaluated.",
    ]
    if results.model is not None and not is_baseline(results):
        lines.append("- Free text queries: the learned space represents the target only.")
    return [*lines, ""]


def _training(results: AuditResults) -> list[str]:
    task = results.task
    if results.model is None or is_given(results) or "train" not in task.rows:
        return []
    lines = [f"The training split of {escape(task.name)}: {task.rows['train']} rows.", ""]
    rows: list[list[Content]] = [[cell.y, cell.s, cell.n] for cell in task.counts.get("train", ())]
    counts = ResultTable("Rows for training", ["class", "value", "rows"], rows, left=2)
    return [*lines, *(to_markdown(counts) if rows else [])]


def _evaluation(results: AuditResults) -> list[str]:
    split = results.settings.split
    answer = recommend(results)
    lines = [escape(answer.sentence), "", escape(answer.advice), ""]
    if results.groups:
        of = "" if split is None else f" of the {escape(split)} split"
        lines += [f"By group, on the rows{of}; brackets hold {confidence(results)} intervals.", ""]
    queries = tables_with_notes(query_tables(results, SHOWN))
    return [*lines, *tables_with_notes(accuracy_tables(results)), *retrieval(results), *queries]


def _limitations(results: AuditResults) -> list[str]:
    advice = "Measure it on your own groups before you use it, and check the groups with few rows."
    lines = [
        *findings(results, "problem", "caution"),
        *bullets([*results.limits, *people(results), advice]),
    ]
    return [*lines, *tables_with_notes(probe_tables(results))]


def _compute(results: AuditResults) -> list[str]:
    model, seconds = results.model, results.made.seconds
    if model is None:
        return []
    took = "not measured" if model.seconds is None else f"{number(model.seconds, 1)} s"
    audit = "" if seconds is None else f" The audit took {number(seconds, 1)} s."
    how = "" if is_baseline(results) else ", in closed form and without a GPU"
    return [
        f"Fitting: {took}{how}; embedding the images is not included.{audit}",
        "",
    ]
