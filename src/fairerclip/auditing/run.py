"""The audit of one task: all sections of the results that pages, tables and cards are made from."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fairerclip.applying.apply import AnyModel
from fairerclip.auditing.audit_options import AuditOptions, check_options
from fairerclip.auditing.display_names import attribute_name, base_name
from fairerclip.auditing.finding_results import Finding
from fairerclip.auditing.findings import find
from fairerclip.auditing.group_results import Stage
from fairerclip.auditing.recommendation import recommend
from fairerclip.auditing.results import (
    FORMAT,
    VERSION,
    AuditResults,
    GroupSize,
    MadeWith,
    SettingsSection,
    TaskSection,
    WordingSection,
    made,
)
from fairerclip.auditing.sections.auc_section import auc_section
from fairerclip.auditing.sections.dependence import audit_dependence, audit_representation
from fairerclip.auditing.sections.groups import groups_section
from fairerclip.auditing.sections.mitigation import (
    Mitigation,
    check_prompts,
    mitigate,
    mitigate_embeddings,
    mitigated_classifier,
    model_section,
    plane_section,
)
from fairerclip.auditing.sections.pictures import picture_section, scores_section
from fairerclip.auditing.sections.probes import audit_probes
from fairerclip.auditing.sections.query_section import queries_section
from fairerclip.auditing.sections.retrieval import retrieval_section
from fairerclip.auditing.sections.wording import audit_wording
from fairerclip.auditing.validation import refusing
from fairerclip.baselines.baseline import Baseline
from fairerclip.data import EmbeddingStore, Split, Task
from fairerclip.data.coded_labels import CodedLabels, count_pairs
from fairerclip.data.embedding_rows import check_rows, unit_rows
from fairerclip.embedding.mitigator import EmbeddingMitigator
from fairerclip.errors import LabelError
from fairerclip.experiment import UNKNOWN, Experiment
from fairerclip.metrics.groups.group_report import SMALL_GROUP
from fairerclip.model.estimator import FairerCLIP

LIMITS = (
    "The figures hold for this data set, these labels and these prompts. Other images, other wordings and other groups "
    "may give other figures; groups without labels are not seen at all.",
    "An interval accounts only for chance in the sampling of rows. It does not account for wrong labels, for the way "
    "in which the rows were collected, or for changes over time.",
    "Equal figures for groups are not fairness: which errors matter, to whom, and whether the task should be done at "
    "all are questions that no figure answers.",
    "Mitigation lowers the dependence that was measured here. It does not remove bias, and another probe may find what "
    "these probes did not.",
)
MAX_VALUES = 200_000
"""Limit of counts and differences between groups in results; their file has room for half as many other values."""
DIFFERENCE_VALUES = 6
"""Number of values in results for one pair of groups."""
STEPS = ("model", "groups", "pictures", "retrieval", "probes", "dependence", "representation", "wording")
Step = Callable[[], None]
"""Called when a step is done."""


@refusing()
def audit_task(
    experiment: Experiment,
    options: AuditOptions | None = None,
    *,
    model: AnyModel | EmbeddingMitigator | None = None,
    fitted: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[AuditResults, AnyModel | None]:
    """Audit one task, before and after mitigation.

    Parameters
    ----------
    experiment : Experiment
        The task, its classes and sensitive attributes. Rows on disk are read into memory for the audited split only.
    options : AuditOptions, optional
        The defaults of `AuditOptions` if None.
    model : FairerCLIP, Baseline or EmbeddingMitigator, optional
        Model to audit as "after". FairerCLIP and EmbeddingMitigator are fitted on the training split, unless
        ``fitted``; a baseline must be fitted. A mitigator is audited as the zero-shot classifier of its embeddings
        (`MitigatedZeroShot`). None audits the task before mitigation only.
    fitted : bool, default=False
        Whether the model is fitted already.
    progress : callable
        Called with (steps done, number of steps).

    Returns
    -------
    results : AuditResults
        `fairerclip.auditing.results.write_results` writes them.
    model : FairerCLIP, Baseline or None
        The fitted model audited as "after".
    """
    options = options or AuditOptions()
    started = time.perf_counter()
    if isinstance(model, EmbeddingMitigator):
        check_prompts(experiment)
    split_name = audited_split(experiment, options, needs_training=model is not None and not fitted)
    experiment = _with_rows(experiment, split_name)
    check_options(options, experiment, split_name)
    _check_size(experiment, stages=1 if model is None else 2)
    step = _counter(progress)
    mitigation = _mitigation(experiment, model, fitted, options, split_name)
    step()
    sections, notes = _sections(experiment, split_name, mitigation, options, step)
    results = AuditResults(
        format=FORMAT,
        version=VERSION,
        made=MadeWith.model_validate({**made(), "seconds": round(time.perf_counter() - started, 3)}),
        task=_task_section(experiment, options.source),
        settings=_settings(split_name, mitigation, options),
        model=None if mitigation is None else model_section(experiment, options.source, mitigation),
        verdict=(),
        findings=(),
        **sections,
        limits=LIMITS,
    )
    findings = (*(found.finding for found in find(results)), *notes)
    answer = recommend(results)
    texts = {"verdict": (answer.sentence, answer.advice), "recommendation": answer, "findings": findings}
    step()
    return results.model_copy(update=texts), None if mitigation is None else mitigation.model


def audited_split(experiment: Experiment, options: AuditOptions, *, needs_training: bool) -> str:
    """Return the name of the split to report on, or raise if the task lacks labels or rows for the audit."""
    name = experiment.task.name
    split_name = options.split or experiment.evaluation_split() or experiment.ranked_split()
    if split_name is None and "train" in experiment.task.splits:
        split_name = "train" if experiment.has_groups(experiment.task.train) else None
    if split_name is None:
        raise LabelError(f"{name}: no split has sensitive labels, so there are no groups to compare")
    if not experiment.has_groups(experiment.task.split(split_name)):
        raise LabelError(f"{name}: the {split_name} split has no sensitive labels")
    if needs_training and "train" not in experiment.task.splits:
        raise LabelError(
            f"{name} has no training split to fit a mitigation on: audit it without one (leave out --mitigate), or "
            "give a fitted model (--after)"
        )
    return split_name


def _with_rows(experiment: Experiment, split_name: str) -> Experiment:
    """Return the experiment with the rows of a split in memory; raise if one of them is zero or not finite."""
    task = experiment.task
    split = task.split(split_name)
    if isinstance(split.X, EmbeddingStore):
        split = split.take(slice(None))
    check_rows(split.X, f"X of the {split_name} split", zero_is_error=True)
    return replace(experiment, task=replace(task, splits={**task.splits, split_name: split}))


def _settings(split_name: str, mitigation: Mitigation | None, options: AuditOptions) -> SettingsSection:
    is_chosen = mitigation is not None and mitigation.chosen_by not in (None, "given")
    return SettingsSection(
        split=split_name,
        chosen_on=mitigation.chosen_on if mitigation is not None and is_chosen else None,
        confidence=options.confidence,
        seed=options.seed,
        permutations=options.permutations,
        small=SMALL_GROUP,
    )


def _sections(
    experiment: Experiment,
    split_name: str,
    mitigation: Mitigation | None,
    options: AuditOptions,
    step: Step,
) -> tuple[dict[str, Any], list[Finding]]:
    """Return the measured sections by name, and notes on probes that could not be trained."""
    split, model = experiment.task.split(split_name), None if mitigation is None else mitigation.model
    labelled = experiment.is_labelled(split_name)
    sections: dict[str, Any] = {}
    if labelled:
        labels = None if mitigation is None else mitigation.labels
        sections["groups"] = groups_section(
            experiment, split, model, labels=labels, seeds=options.seeds, confidence=options.confidence
        )
    step()
    if labelled:
        sections["scores"] = scores_section(experiment, split, model)
        sections["auc"] = auc_section(experiment, split, model, confidence=options.confidence)
        sections["picture"] = picture_section(experiment, split, model, options.seed)
    if mitigation is not None:
        sections["plane"] = plane_section(experiment, options.source, mitigation, options.confidence)
    step()
    ranked: dict[str, Any] = {"seed": options.seed, "confidence": options.confidence}
    sections["retrieval"] = retrieval_section(
        experiment, split_name, model, options.k, pair=options.pair, **ranked
    )
    sections["queries"] = queries_section(experiment, split_name, model, options.k, **ranked)
    step()
    dependence, notes = _dependence_sections(experiment, split, model, options, step)
    sections |= dependence
    if labelled:
        sections["wording"] = _wording(experiment, split_name, options)
    if isinstance(model, Baseline):
        notes.append(_left_out(model))
    return sections, [Finding(level="note", text=note) for note in notes]


def _left_out(model: Baseline) -> str:
    """Return a sentence on the sections that are not there because the model is a baseline."""
    name = model.title
    sentence = (
        f"There is no trade-off of τ and τ_z: these are parameters of FairerCLIP, and the model is {name}."
    )
    if model.changes_embeddings:
        return sentence
    return f"{sentence} It changes no image embeddings, so that these are measured and drawn once."


def _check_size(experiment: Experiment, stages: int) -> None:
    """Raise if results would be too large: they hold |S| tables c × c, and values of each pair of groups."""
    c = len(experiment.classes)
    S = len({value for split in experiment.task.splits.values() for value in _values(experiment, split)})
    values = stages * (S * c * c + DIFFERENCE_VALUES * c * S * (S - 1) // 2)
    if values > MAX_VALUES:
        raise LabelError(
            f"{experiment.task.name}: an audit of {c} classes and {S} sensitive values would hold {values:,} counts "
            f"and differences between groups, more than {MAX_VALUES:,}: choose classes (--classes), or merge values"
        )


def _counter(progress: Callable[[int, int], None]) -> Step:
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        progress(done, len(STEPS))

    return step


def _mitigation(
    experiment: Experiment,
    model: AnyModel | EmbeddingMitigator | None,
    fitted: bool,
    options: AuditOptions,
    split_name: str,
) -> Mitigation | None:
    if model is None:
        return None
    if isinstance(model, EmbeddingMitigator):
        if not fitted:
            return mitigate_embeddings(experiment, model, options.labels or "none", split_name)
        model = mitigated_classifier(experiment, model)
    if isinstance(model, FairerCLIP) and not fitted:
        split = split_name if experiment.is_labelled(split_name) else None
        return mitigate(experiment, model, options.labels or "target", split, by_hand=not options.tune)
    unknown = sorted(set(experiment.classes) - set(map(str, model.classes_.tolist())))
    if unknown:
        raise LabelError(
            f"the model was fitted on {', '.join(map(str, model.classes_.tolist()))} and does not know "
            f"{', '.join(unknown)}: give a model of this task's classes"
        )
    return Mitigation(model, None, "given", rows=experiment.task.split(split_name).X)


def _dependence_sections(
    experiment: Experiment, split: Split, model: AnyModel | None, options: AuditOptions, step: Step
) -> tuple[dict[str, Any], list[str]]:
    """Return the sections on what embeddings and predictions reveal of S, and notes on attributes left out."""
    embeddings: dict[Stage, Any] = {"before": unit_rows(split.X)}  # as cosines and models use them
    predictions: dict[Stage, Any] = {} if experiment.text is None else {"before": experiment.zero_shot(split)}
    if model is not None:
        if model.changes_embeddings:
            embeddings["after"] = model.transform(split.X)
        predictions["after"] = model.predict(split.X)
    draws: dict[str, Any] = {"random_state": options.seed, "confidence": options.confidence}
    probes, notes = audit_probes(experiment, split, embeddings, **draws)
    step()
    draws["permutations"] = options.permutations
    dependence = audit_dependence(experiment, split, predictions, **draws)
    step()
    representation = audit_representation(experiment, split, embeddings, **draws)
    step()
    return {"probes": probes, "dependence": dependence, "representation": representation}, notes


def _wording(experiment: Experiment, name: str, options: AuditOptions) -> WordingSection | None:
    if options.wordings is not None:
        texts, names = options.wordings
    elif experiment.task.variants is not None:
        texts, names = experiment.task.variants.text, experiment.task.variants.templates
    else:
        return None
    return audit_wording(experiment, name, texts, names, confidence=options.confidence)


def _task_section(experiment: Experiment, source: str) -> TaskSection:
    task = experiment.task
    prompts = dict(zip(task.class_names, task.target_prompts, strict=True))
    groups = sorted({value for split in task.splits.values() for value in _values(experiment, split)})
    counts = {name: _counts(experiment, split) for name, split in task.splits.items()}
    return TaskSection(
        name=task.name,
        file=base_name(source),
        simulated=task.simulated,
        digest=digest(task),
        width=task.width,
        rows={name: len(split) for name, split in task.splits.items()},
        classes=tuple(experiment.classes),
        sensitive=tuple(attribute_name(name) for name in experiment.sensitive),
        groups=tuple(groups),
        target_prompts=tuple(prompts[name] for name in experiment.classes),
        sensitive_prompts={
            attribute_name(name): tuple(task.sensitive[name].prompts) for name in experiment.sensitive
        },
        counts={name: sizes for name, sizes in counts.items() if sizes},
    )


def _values(experiment: Experiment, split: Split) -> set[str]:
    groups = experiment.groups(split)
    if isinstance(groups, CodedLabels):
        return set(groups.present())
    return set() if groups is None else set(groups[groups != UNKNOWN].tolist())


def _counts(experiment: Experiment, split: Split) -> tuple[GroupSize, ...]:
    y, groups = experiment.target(split), experiment.groups(split)
    if y is None or groups is None:
        return ()
    return tuple(GroupSize(y=a, s=b, n=n) for (a, b), n in sorted(count_pairs(y, groups).items()))


def digest(task: Task) -> str:
    """Return a SHA-256 over all embeddings and labels of a task, which does not depend on the format of its file."""
    total = hashlib.sha256()

    def add(name: str, array: Any, kind: Any = None) -> None:
        if array is None:
            return
        stored = isinstance(array, EmbeddingStore)
        blocks = (X for _, X in array.blocks()) if stored else [np.ascontiguousarray(array, dtype=kind)]
        for number, block in enumerate(blocks):
            if number == 0:
                total.update(f"{name} {block.dtype.str} {array.shape}\n".encode())
            total.update(block.tobytes())

    for name, split in sorted(task.splits.items()):
        add(f"image_{name}", split.X)
        add(f"y_{name}", split.y, np.int64)  # those of rows on disk take fewer bytes
        for attribute, codes in sorted(split.s.items()):
            add(f"s_{attribute}_{name}", codes, np.int64)
    add("text_target", task.text_target)
    add("text_target_variants", None if task.variants is None else task.variants.text)
    for name, values in sorted(task.sensitive.items()):
        add(f"text_sensitive_{name}", values.text)
    for kind, sentences in task.sentences.items():
        add(f"text_{kind}", sentences.text)
        add(f"{kind}_classes", sentences.classes)
    for kind, pairs in task.sentence_pairs.items():
        add(f"text_{kind}", pairs.text)
    return f"sha256:{total.hexdigest()}"
