"""The card of a saved model: ``README.md`` with the metadata of the Hugging Face Hub, written from its `Contents`.

It is never read. Labels, prompts and names are foreign text, which is escaped for Markdown and YAML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairerclip._util.clean_text import shorten
from fairerclip._util.markdown_text import block, clean, escape, front_matter, table
from fairerclip._util.numbers import interval, measured, number, significant
from fairerclip.metrics.names import FIGURES, RETRIEVAL, Figure
from fairerclip.model.contents import Contents
from fairerclip.model.details import ModelDetails, ModelMetric

TAGS = ("fairness", "bias-mitigation", "spurious-correlation", "clip", "fairerclip")
CLASSIFIES = {"type": "zero-shot-image-classification", "name": "Zero-Shot Image Classification"}
EMBEDS = {"type": "image-feature-extraction", "name": "Text-to-Image Retrieval"}
METRIC_TYPES = {"average": "accuracy", "train_weighted_average": "accuracy", "worst_group": "accuracy"}
SHOWN = 50
"""Entries of a list that a card shows."""
PREDICTS = """import fairerclip

model = fairerclip.load("FOLDER")  # this folder; no code from it is run, and nothing is fetched
labels = model.predict(X)  # X: image embeddings of the same CLIP model, one row each"""
MAPS = """import fairerclip

mitigator = fairerclip.load("FOLDER")  # this folder; no code from it is run, and nothing is fetched
embeddings = mitigator.transform(X)  # X: image embeddings of the same CLIP model; of the same space and width"""
ABOUT = {
    "FairerCLIP": "A pair of encoders over the embeddings of a CLIP model, fitted in closed form to depend on the "
    "target and less on the sensitive attribute ([FairerCLIP, ICLR 2024](https://arxiv.org/abs/2403.15593)). It "
    "mitigates this dependence as far as the figures below show.",
    "EmbeddingMitigator": "A map of the embeddings of a CLIP model into their own space, after which any query ranks "
    "with less dependence on the sensitive attributes. It mitigates this dependence as far as the figures below show.",
}
OTHER = "A classifier over the embeddings of a CLIP model, one of the methods that fairerclip compares with."
LIMITS = (
    "It mitigates a dependence that was measured on the rows of its task; on other images, groups and prompts the "
    "dependence may be larger. Measure it on your own groups before you use it: `fairerclip audit`.",
    "It takes embeddings of the CLIP model that it was fitted on. Those of another model, even of the same width, give "
    "answers without meaning.",
    "It is not for inferring a sensitive attribute of anyone, nor for decisions about people without a person who can "
    "overrule them.",
    "Groups with few rows have wide intervals, and groups that were not measured are unknown.",
    "The digests in fairerclip.json detect damage; they do not prove who wrote the model.",
)


def card(contents: Contents, versions: Mapping[str, str], size: int) -> str:
    """Return the text of the card; ``size`` is that of the weights in bytes."""
    sections = [
        ("Intended use", _use(contents)),
        ("Classes, groups and prompts", _inputs(contents)),
        ("Figures", _figures(contents.details)),
        ("Limits", [*(f"- {line}" for line in _limits(contents)), ""]),
        ("How it was made", _made(contents, versions, size)),
    ]
    about = ABOUT.get(contents.kind, OTHER)
    simulated = (
        ["**The embeddings are simulated: the figures say nothing about any real model.**", ""]
        if contents.details.simulated
        else []
    )
    lines = ["---", front_matter(metadata(contents)), "---", "", f"# {escape(_name(contents))}", ""]
    lines += [*simulated, about, ""]
    for title, body in sections:
        lines += [f"## {title}", "", *body]
    return "\n".join(lines).rstrip("\n") + "\n"


def metadata(contents: Contents) -> dict[str, Any]:
    """Return the metadata at the top of the card; it names no license, which only the owner of a model can give."""
    embeds = contents.kind == "EmbeddingMitigator"
    task = EMBEDS if embeds else CLASSIFIES
    data: dict[str, Any] = {"library_name": "fairerclip", "pipeline_tag": task["type"], "tags": [*TAGS]}
    details, made = contents.details, contents.details.provenance
    if made is not None:
        data["tags"].append(clean(f"encoder:{made.model}"))
    measures: dict[str, list[dict[str, Any]]] = {}
    for m in sorted(details.metrics, key=lambda m: m.stage):  # "after" first: it is taken for the model's
        if _figure(m).better is not None:  # signed figures have no better direction
            kind = METRIC_TYPES.get(m.name, clean(m.name))
            measures.setdefault(clean(m.split), []).append(
                {"type": kind, "name": clean(_label(m)), "value": m.value}
            )
    if measures:
        name = clean(details.task or "") or "unnamed"
        results = [
            {"task": task, "dataset": {"type": name, "name": name, "split": split}, "metrics": figures}
            for split, figures in measures.items()
        ]
        data["model-index"] = [{"name": clean(_name(contents)), "results": results}]
    return data


def _name(contents: Contents) -> str:
    task = contents.details.task
    return contents.kind if task is None else f"{contents.kind} on {shorten(task)}"


def _use(contents: Contents) -> list[str]:
    embeds = contents.kind == "EmbeddingMitigator"
    purpose = "to search a collection by free queries" if embeds else "to predict its classes"
    people = "by people who read the figures of every group"
    sentence = f"It is meant {purpose}, on images like those it was fitted on, {people}."
    return [sentence, "", *block(MAPS if embeds else PREDICTS, "python")]


def _inputs(contents: Contents) -> list[str]:
    details, made = contents.details, contents.details.provenance
    lines = [f"- Input: image embeddings, {contents.n_features_in} wide"]
    if made is not None:
        lines.append(f"- Encoder: {escape(str(made))}; {escape(made.preprocessing)}; {escape(made.library)}")
    if contents.classes:
        lines.append(f"- Classes: {_listed([str(label) for label in contents.classes])}")
    names = details.sensitive or {name: [] for name in _attributes(contents)}
    for name, values in names.items():
        said = f": {_listed(values)}" if values else ""
        lines.append(f"- Sensitive attribute {escape(shorten(name))}{said}")
    for title, prompts in (
        ("Prompts of", details.prompts),
        ("Prompts of the values of", details.sensitive_prompts),
    ):
        for name, texts in [*prompts.items()][:SHOWN]:
            lines.append(f"- {title} {escape(shorten(name))}: {_listed(texts)}")
    lines.append("")
    if details.groups:
        rows = [[escape(shorten(g.y)), escape(shorten(g.s)), str(g.n)] for g in details.groups[:SHOWN]]
        lines += ["Training rows by group:", "", *table(["class", "sensitive value", "rows"], rows, left=2)]
    return lines


def _attributes(contents: Contents) -> list[str]:
    """Return the names of the attributes that a mitigator was fitted for."""
    return [str(entry["name"]) for entry in contents.state.get("attributes", [])]


def _listed(texts: Sequence[str]) -> str:
    more = f"; and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return "; ".join(escape(shorten(text)) for text in texts[:SHOWN]) + more


def _figures(details: ModelDetails) -> list[str]:
    if not details.metrics:
        return [
            "None were measured when it was saved. `fairerclip audit TASK --after FOLDER` measures it.",
            "",
        ]
    rows = [[escape(_label(m, interval=False)), escape(m.split), _value(m)] for m in details.metrics]
    note = "Brackets hold intervals, where there are some; they are about these rows, not about other images."
    if any(metric.split == "train" for metric in details.metrics):
        note += " The split train has the rows of the fit, so its figures are too optimistic."
    return [*table(["figure", "split", "value"], rows, left=2), note, ""]


def _figure(metric: ModelMetric) -> Figure:
    name = metric.name.partition("@")[0]
    return FIGURES.get(name) or RETRIEVAL.get(name) or Figure(metric.name, metric.name, "number", None)


def _label(metric: ModelMetric, *, interval: bool = True) -> str:
    figure, cut = _figure(metric), metric.name.partition("@")[2]
    of = "this model" if metric.stage == "after" else "zero-shot"
    about = "" if metric.attribute is None else f", {shorten(metric.attribute)}"
    label = f"{shorten(figure.label)}{'@' + cut if cut else ''}{about}, {of}"
    return f"{label}{_interval(metric)}" if interval else label


def _interval(metric: ModelMetric) -> str:
    if metric.low is None or metric.high is None or metric.confidence is None:
        return ""
    low_high = interval(metric.low, metric.high, _figure(metric).kind)
    return f", {significant(100 * metric.confidence)} % interval {low_high}"


def _value(metric: ModelMetric) -> str:
    kind = _figure(metric).kind
    shown = measured(metric.value, kind)
    if metric.low is None or metric.high is None:
        return shown
    return f"{shown} {interval(metric.low, metric.high, kind)}"


def _limits(contents: Contents) -> list[str]:
    return [*LIMITS, *([held_rows_words(contents.held_rows)] if contents.held_rows else [])]


def held_rows_words(number_of_rows: int) -> str:
    """Return the sentence on a model that holds embeddings of training images."""
    return (
        f"It holds embeddings of {number_of_rows:,} training images: give it only to those who may have these "
        "embeddings."
    )


def _made(contents: Contents, versions: Mapping[str, str], size: int) -> list[str]:
    details = contents.details
    labels = "" if details.labels is None else f", with labels: {details.labels}"
    task = "" if details.task is None else f"- Task: {escape(shorten(details.task))}{labels}"
    lines = [*([task] if task else []), f"- Kind: {contents.kind}; {number(size / 1e6, 2)} MB of weights"]
    lines.append("- Versions: " + ", ".join(f"{escape(name)} {escape(v)}" for name, v in versions.items()))
    return [
        *lines,
        "- Format: docs/reference/format.md of fairerclip; parameters are in fairerclip.json.",
        "",
    ]
