"""The results of an audit as a model card in the form of the Hugging Face Hub."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from fairerclip._util.numbers import interval, number, setting
from fairerclip.auditing.model_facts import subject, why_kept
from fairerclip.auditing.model_format import ZERO_SHOT
from fairerclip.auditing.model_words import about_model
from fairerclip.metrics.names import FIGURES, RETRIEVAL, Figure
from fairerclip.report.estimates import estimate_of, stage_names, stages
from fairerclip.report.markdown import (
    SIMULATED,
    accuracy_by_group,
    confidence,
    how_made,
    presentable,
    summary_figures,
    trade_off,
)
from fairerclip.report.markdown_sections import probes, retrieval
from fairerclip.report.markdown_text import block, clean, escape, table
from fairerclip.report.page_parts import is_given

Results = Mapping[str, Any]
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
METRIC_TYPES = {"average": "accuracy", "train_weighted_average": "accuracy", "worst_group": "accuracy"}
LATEST_FIRST = ("after", "before")
"""Who takes the first value of a kind for that of the model shall have the right one."""
_BARE_EXPONENT = re.compile(r"(?<![\d.])(\d+)(?=e[-+]\d+,?$)", re.MULTILINE)
"""A number such as 1e-07 at the end of a line; a text ends with a quote."""


def render_card(results: Results, *, license_id: str | None = None) -> str:
    """A model card: metadata with the figures before and after, then the card's sections as Markdown.

    Parameters
    ----------
    results : dict
        As `fairerclip.auditing.results.read_results` gives it. Sections that are null are left out. Without a
        model the card is that of the zero-shot classifier.
    license_id : str, optional
        The license of the model, as the Hub names it (``apache-2.0``). Left out unless given, as only you
        know it.
    """
    front = front_matter(metadata(results, license_id=license_id))
    results = presentable(results)
    parts = [f"# {escape(_name(results))}", ""]
    for title, body in _sections(results):
        parts += [f"## {title}", "", *body] if body else []
    return "\n".join(["---", front, "---", "", *parts]).rstrip("\n") + "\n"


def front_matter(data: Mapping[str, Any]) -> str:
    """Write plain data as JSON that a reader of YAML 1.1, as the Hub's, takes for the same data.

    YAML 1.1 takes 1e-07 for a text, breaks lines at U+0085 and U+2028 and refuses controls: such numbers get a point,
    and such characters are escaped. ASCII alone would not do, as YAML does not join the two halves of an emoji.
    """
    text = json.dumps(data, ensure_ascii=False, indent=2, allow_nan=False)
    escaped = (c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return _BARE_EXPONENT.sub(r"\1.0", "".join(escaped))


def metadata(results: Results, *, license_id: str | None = None) -> dict[str, Any]:
    """What stands between the dashes at the top of the card, as plain data."""
    tags = ["fairness", "bias-mitigation", "spurious-correlation", "clip", "fairerclip"]
    known: dict[str, Any] = {"language": "en"}
    if license_id is not None:
        known["license"] = clean(license_id)
    known |= {"library_name": "fairerclip", "pipeline_tag": "zero-shot-image-classification", "tags": tags}
    found = [part for part in (_classification(results), _search(results)) if part["metrics"]]
    if found:
        known |= {"metrics": ["accuracy"]} if results["groups"] else {}
        known["model-index"] = [{"name": clean(_name(results)), "results": found}]
    return known


def _name(results: Results) -> str:
    what = "FairerCLIP" if _learned(results) else "zero-shot CLIP"
    method = subject(results["model"])
    if results["model"] is not None and method.startswith(ZERO_SHOT):
        what += method.removeprefix(ZERO_SHOT)
    return f"{what} on {results['task']['name']}"


def _learned(results: Results) -> bool:
    """Whether the model is more than a zero-shot classifier."""
    return results["model"] is not None and why_kept(results["model"]) is None


def _dataset(results: Results, split: str | None) -> dict[str, Any]:
    name = clean(results["task"]["name"]) or "unnamed"
    return {"type": name, "name": name, **({} if split is None else {"split": clean(split)})}


def _classification(results: Results) -> dict[str, Any]:
    section, names = results["groups"], stage_names(results)
    metrics = []
    for name, figure in FIGURES.items():
        for stage in LATEST_FIRST if figure.better else ():  # of a signed one neither more nor less is better
            found = estimate_of(section[stage], name) if stage in stages(section) else None
            told = f"{figure.label}, {names[stage]}"
            metrics += _metric(results, METRIC_TYPES.get(name, name), figure, told, found)
    task = {"type": "zero-shot-image-classification", "name": "Zero-Shot Image Classification"}
    return {"task": task, "dataset": _dataset(results, results["settings"]["split"]), "metrics": metrics}


def _search(results: Results) -> dict[str, Any]:
    section = results["retrieval"]
    there = stages(section["mean"] if section else None)
    metrics = []
    for name in ("max_skew", "ndkl"):
        figure = RETRIEVAL[name]
        for stage in LATEST_FIRST if section else ():
            found = section["mean"][stage][name] if stage in there else None
            told = f"{figure.label}@{section['k']}, mean over prompts, {stage_names(results)[stage]}"
            metrics += _metric(results, name, figure, told, found)
    task = {"type": "image-feature-extraction", "name": "Text-to-Image Retrieval"}
    split = section["split"] if section else None
    return {"task": task, "dataset": _dataset(results, split), "metrics": metrics}


def _metric(
    results: Results, kind: str, figure: Figure, name: str, found: Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    """One entry of the metadata; its value is the number of the results, its name holds the interval as text."""
    if found is None or found["value"] is None:
        return []
    if found["low"] is not None and found["high"] is not None:
        unit = {"percent": " %", "gap": " points"}.get(figure.kind, "")
        name += f", {confidence(results)} interval {interval(found['low'], found['high'], figure.kind)}{unit}"
    return [{"type": kind, "name": name, "value": found["value"]}]


def _sections(results: Results) -> list[tuple[str, list[str]]]:
    fitted = results["model"] is not None
    return [
        ("Model details", _details(results)),
        ("Intended use", _intended()),
        ("Out-of-scope use", _out_of_scope(results)),
        ("How to use", block(USE, "python") if fitted else []),
        ("Training data", _training(results)),
        ("Evaluation", _evaluation(results)),
        ("Bias, risks and limitations", _limitations(results)),
        ("Trade-off", trade_off(results)),
        ("Environmental impact", _compute(results)),
        ("How it was made", how_made(results)),
        ("Citation", block(CITATION, "bibtex")),
    ]


def _details(results: Results) -> list[str]:
    task, model = results["task"], results["model"]
    lines = [f"**{SIMULATED}**", ""] if task["simulated"] else []
    if model is None:
        lines += [
            "Zero-shot classification by the cosine of image and prompt embeddings; nothing was fitted.",
            "",
        ]
    elif _learned(results):
        lines += [
            "A pair of encoders over the embeddings of a CLIP model, fitted in closed form to depend on the target and "
            "less on the sensitive attribute. How far they do, and for which groups, is told under Evaluation.",
            "",
            f"- Method: [FairerCLIP (Dehdashtian, Wang and Boddeti, ICLR 2024)]({PAPER})",
            f"- Strength: τ {setting(model['tau'])}, τ_z {setting(model['tau_z'])}, {escape(model['criterion'])}",
        ]
    else:
        lines += [f"- Method: {escape(subject(model))}; no encoder was learned"]
    lines += [f"- {escape(sentence)}" for sentence in about_model(model)] if model else []
    lines += [
        f"- Classes: {_listed(task['classes'])}",
        f"- Sensitive attributes: {_listed(task['sensitive'])}, with the values {_listed(task['groups'])}",
        f"- Input: image embeddings, {task['width']} wide, of the CLIP model that embedded the task",
    ]
    if task["target_prompts"]:
        lines.append(f"- Prompts: {_listed(task['target_prompts'])}")
    return [*lines, ""]


def _listed(names: list[str]) -> str:
    return "; ".join(map(escape, names)) if names else "none"


def _intended() -> list[str]:
    return [
        "To tell its classes apart, or to search by its prompts, on images like those it was evaluated on, by people "
        "who have looked at the figures of every group below.",
        "",
    ]


def _out_of_scope(results: Results) -> list[str]:
    lines = [
        "- Inferring a sensitive attribute of anyone.",
        "- Decisions about people without a person who can overrule them.",
        "- Groups, images and prompts that were not evaluated.",
    ]
    if results["model"] is not None:
        lines.append("- Free text queries: the learned space holds the target alone.")
    return [*lines, ""]


def _training(results: Results) -> list[str]:
    task = results["task"]
    train = task["counts"].get("train")
    lines = [f"The training split of {escape(task['name'])}: {task['rows'].get('train', 0)} rows.", ""]
    if results["model"] is None or is_given(results) or "train" not in task["rows"]:
        return []
    if train:
        rows = [[escape(cell["y"]), escape(cell["s"]), str(cell["n"])] for cell in train]
        lines += table(["class", "value", "rows"], rows, left=2)
    return lines


def _evaluation(results: Results) -> list[str]:
    split = results["settings"]["split"]
    lines = [escape(sentence) for sentence in results["verdict"]]
    lines = [line for sentence in lines for line in (sentence, "")]
    if results["groups"]:
        of = "" if split is None else f" of the {escape(split)} split"
        lines += [f"By group, on the rows{of}; brackets hold {confidence(results)} intervals.", ""]
        lines += [*accuracy_by_group(results), *summary_figures(results)]
    if results["retrieval"]:
        lines += retrieval(results)
    return lines


def _limitations(results: Results) -> list[str]:
    lines = [
        f"- **{f['level'].capitalize()}:** {escape(f['text'])}"
        for f in results["findings"]
        if f["level"] in ("problem", "caution")
    ]
    lines += [f"- {escape(limit)}" for limit in results["limits"]]
    lines += [
        "- Measure on your own groups before you use it; look at the groups with few rows.",
        "",
    ]
    return [*lines, *probes(results)]


def _compute(results: Results) -> list[str]:
    model, seconds = results["model"], results["made"]["seconds"]
    if model is None:
        return []
    took = "not measured" if model["seconds"] is None else f"{number(model['seconds'], 1)} s"
    audit = "" if seconds is None else f" The audit took {number(seconds, 1)} s."
    return [f"Fitting: {took}; closed form, without a GPU, beside the embedding of the images.{audit}", ""]
