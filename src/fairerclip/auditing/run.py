"""One task looked at from every side: the results that pages, tables and cards are made from."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fairerclip._util.checks import check_confidence, check_range
from fairerclip.auditing.findings import attribute_name, base_name, find
from fairerclip.auditing.group_results import Stage
from fairerclip.auditing.recommendation import recommend
from fairerclip.auditing.results import (
    FORMAT,
    VERSION,
    AuditResults,
    DependenceRow,
    Finding,
    GroupSize,
    Labels,
    MadeWith,
    ProbeRow,
    RepresentationRow,
    SettingsSection,
    TaskSection,
    WordingSection,
    made,
)
from fairerclip.auditing.sections.dependence import audit_dependence, audit_representation
from fairerclip.auditing.sections.groups import groups_section
from fairerclip.auditing.sections.mitigation import (
    Mitigation,
    mitigate,
    model_section,
    plane_section,
)
from fairerclip.auditing.sections.pictures import picture_section, scores_section
from fairerclip.auditing.sections.probes import audit_probes
from fairerclip.auditing.sections.retrieval import retrieval_section
from fairerclip.auditing.sections.wording import audit_wording
from fairerclip.auditing.validation import refusing
from fairerclip.data import Split, Task
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.errors import LabelError, ParameterError
from fairerclip.experiment import UNKNOWN, Experiment
from fairerclip.metrics.groups.group_report import SMALL_GROUP
from fairerclip.model.estimator import FairerCLIP

LIMITS = (
    "It shows this data set, these labels and these prompts. Other images, other words and other groups may fare "
    "otherwise; groups that nobody labelled are not seen at all.",
    "An interval is about the rows that happened to be drawn. It knows nothing of wrong labels, of how the rows were "
    "collected, or of a world that changes.",
    "Equal figures for groups are not fairness: which errors matter, to whom, and whether the task should be done at "
    "all are questions that no figure answers.",
    "Mitigation lowers the dependence that was measured here. It does not remove bias, and what a probe cannot read "
    "another one may.",
)
MAX_VALUES = 200_000
"""Counts and differences between groups that results may hold; their file has room for half as many other values."""
DIFFERENCE_VALUES = 6
"""Values that results hold of one pair of groups."""
STEPS = ("model", "groups", "pictures", "retrieval", "probes", "dependence", "representation", "wording")


@dataclass(frozen=True)
class AuditOptions:
    """What an audit may be told.

    Attributes
    ----------
    split : rows to report on; None for test, else val, else train.
    labels : labels that a model fitted here may use, as in `Experiment.fit`.
    k : how many results a search shows; None for 1000, or a quarter of the rows.
    permutations : for p-values.
    seeds : how many seeds to fit the chosen model with, for the spread over seeds.
    confidence : of every interval.
    seed : of everything random.
    source : how the command line names the task.
    wordings : prompt embeddings (m, c, p) and names (m,) of wordings; None for those that the task holds.
    tune : whether a model fitted here is tuned on the validation split, where that has labels: by its worst group,
        or by the skew of its rankings where no row of the task has a target label.
    """

    split: str | None = None
    labels: Labels = "target"
    k: int | None = None
    permutations: int = 199
    seeds: int = 3
    tune: bool = True
    confidence: float = 0.95
    seed: int = 0
    source: str = "TASK.npz"
    wordings: tuple[Any, tuple[str, ...]] | None = None


@refusing()
def audit_task(
    experiment: Experiment,
    options: AuditOptions | None = None,
    *,
    model: FairerCLIP | None = None,
    fitted: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[AuditResults, FairerCLIP | None]:
    """Audit one task, before and after mitigation.

    Parameters
    ----------
    experiment : Experiment
        The task, its classes and sensitive attributes.
    options : AuditOptions, optional
    model : FairerCLIP, optional
        What to show as "after": a model to fit on the training split, or, if ``fitted``, one to take as it
        is. None shows the task before mitigation only.
    progress : called with (steps done, steps in all).

    Returns
    -------
    results : AuditResults
        `fairerclip.auditing.results.write_results` writes them.
    model : FairerCLIP or None
        What is shown as "after", fitted.
    """
    options = options or AuditOptions()
    started = time.perf_counter()
    split_name = options.split or experiment.evaluation_split() or experiment.ranked_split()
    if split_name is None:
        raise LabelError(
            f"{experiment.task.name}: no split has sensitive labels, so there are no groups to look at"
        )
    split = experiment.task.split(split_name)
    if not experiment.has_groups(split):
        raise LabelError(f"{experiment.task.name}: the {split_name} split has no sensitive labels")
    if model is not None and not fitted and "train" not in experiment.task.splits:
        raise LabelError(
            f"{experiment.task.name} has no training split, which a mitigation is fitted on: audit it without one "
            "(leave out --mitigate), or give a fitted model (--after)"
        )
    _check(options, len(split))
    _check_size(experiment, stages=1 if model is None else 2)
    step = _counter(progress)
    labelled = experiment.is_labelled(split_name)
    mitigation = _mitigation(experiment, model, fitted, options, split_name if labelled else None)
    after = None if mitigation is None else mitigation.model
    step()
    chosen_on = (
        None if mitigation is None or mitigation.chosen_by in (None, "given") else mitigation.chosen_on
    )
    settings = SettingsSection(
        split=split_name,
        chosen_on=chosen_on,
        confidence=options.confidence,
        seed=options.seed,
        permutations=options.permutations,
        small=SMALL_GROUP,
    )
    groups = None
    if labelled:
        labels = None if mitigation is None else mitigation.labels
        groups = groups_section(
            experiment, split, after, labels=labels, seeds=options.seeds, confidence=options.confidence
        )
    step()
    scores = scores_section(experiment, split, after) if labelled else None
    picture = picture_section(experiment, split, after, options.seed) if labelled else None
    plane = None
    if mitigation is not None:
        plane = plane_section(experiment, options.source, mitigation, options.confidence)
    step()
    retrieval = retrieval_section(
        experiment, split_name, after, options.k, seed=options.seed, confidence=options.confidence
    )
    step()
    readable = _readable(experiment, split, after, options, step)
    wording = _wording(experiment, split_name, options) if labelled else None
    sections = AuditResults(
        format=FORMAT,
        version=VERSION,
        made=MadeWith.model_validate({**made(), "seconds": round(time.perf_counter() - started, 3)}),
        task=_task_section(experiment, options.source),
        settings=settings,
        model=None if mitigation is None else model_section(experiment, options.source, mitigation),
        verdict=(),
        findings=(),
        groups=groups,
        scores=scores,
        picture=picture,
        plane=plane,
        retrieval=retrieval,
        probes=readable.probes,
        dependence=readable.dependence,
        wording=wording,
        representation=readable.representation,
        limits=LIMITS,
    )
    notes = [Finding(level="note", text=note) for note in readable.notes]
    told = {
        "verdict": recommend(sections).sentences,
        "findings": (*(found.finding for found in find(sections)), *notes),
    }
    step()
    return sections.model_copy(update=told), after


def _check(options: AuditOptions, n: int) -> None:
    """Say before the work what would fail after it."""
    for name in ("seed", "seeds", "permutations"):
        check_range(name, getattr(options, name))
    if options.k is not None and not 1 <= options.k <= n:
        raise ParameterError(f"k must lie between 1 and the number of rows, {n}; got {options.k}")
    check_confidence(options.confidence)


def _check_size(experiment: Experiment, stages: int) -> None:
    """Refuse more classes and groups than results have room for: |S| tables c × c, and each pair of groups."""
    c = len(experiment.classes)
    S = len({value for split in experiment.task.splits.values() for value in _values(experiment, split)})
    values = stages * (S * c * c + DIFFERENCE_VALUES * c * S * (S - 1) // 2)
    if values > MAX_VALUES:
        raise LabelError(
            f"{experiment.task.name}: an audit of {c} classes and {S} sensitive values would hold {values:,} counts "
            f"and differences between groups, more than {MAX_VALUES:,}: choose classes (--classes), or join values"
        )


def _counter(progress: Callable[[int, int], None]) -> Callable[[], None]:
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        progress(done, len(STEPS))

    return step


def _mitigation(
    experiment: Experiment, model: FairerCLIP | None, fitted: bool, options: AuditOptions, split: str | None
) -> Mitigation | None:
    if model is None:
        return None
    if not fitted:
        return mitigate(experiment, model, options.labels, split, by_hand=not options.tune)
    strangers = sorted(set(experiment.classes) - set(map(str, model.classes_.tolist())))
    if strangers:
        raise LabelError(
            f"the model was fitted on {', '.join(map(str, model.classes_.tolist()))} and does not know "
            f"{', '.join(strangers)}: give a model of this task's classes"
        )
    return Mitigation(model, None, "given")


class _Readable(NamedTuple):
    """What can be read of S from embeddings and predictions, and sentences on what could not be tried."""

    probes: tuple[ProbeRow, ...] | None
    dependence: tuple[DependenceRow, ...] | None
    representation: tuple[RepresentationRow, ...] | None
    notes: list[str]


def _readable(
    experiment: Experiment,
    split: Split,
    model: FairerCLIP | None,
    options: AuditOptions,
    step: Callable[[], None],
) -> _Readable:
    embeddings: dict[Stage, Any] = {"before": unit_rows(split.X)}  # what cosines and a model see of them
    predictions: dict[Stage, Any] = {} if experiment.text is None else {"before": experiment.zero_shot(split)}
    if model is not None:
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
    return _Readable(probes, dependence, representation, notes)


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
        counts={name: found for name, found in counts.items() if found},
    )


def _values(experiment: Experiment, split: Split) -> set[str]:
    groups = experiment.groups(split)
    return set() if groups is None else set(groups[groups != UNKNOWN].tolist())


def _counts(experiment: Experiment, split: Split) -> tuple[GroupSize, ...]:
    y, groups = experiment.target(split), experiment.groups(split)
    if y is None or groups is None:
        return ()
    known = (y != UNKNOWN) & (groups != UNKNOWN)
    cells, counts = np.unique(np.column_stack([y[known], groups[known]]), axis=0, return_counts=True)
    return tuple(GroupSize(y=str(a), s=str(b), n=int(n)) for (a, b), n in zip(cells, counts, strict=True))


def digest(task: Task) -> str:
    """SHA-256 over all embeddings and labels of a task: the same data have the same digest, whatever the file."""
    total = hashlib.sha256()

    def add(name: str, array: Any) -> None:
        if array is not None:
            flat = np.ascontiguousarray(array)
            total.update(f"{name} {flat.dtype.str} {flat.shape}\n".encode())
            total.update(flat.tobytes())

    for name, split in sorted(task.splits.items()):
        add(f"image_{name}", split.X)
        add(f"y_{name}", split.y)
        for attribute, codes in sorted(split.s.items()):
            add(f"s_{attribute}_{name}", codes)
    add("text_target", task.text_target)
    add("text_target_variants", None if task.variants is None else task.variants.text)
    for name, values in sorted(task.sensitive.items()):
        add(f"text_sensitive_{name}", values.text)
    for kind, sentences in (("spurious", task.spurious), ("counterfactual", task.counterfactual)):
        if sentences is not None:
            add(f"text_{kind}", sentences.text)
            add(f"{kind}_classes", sentences.classes)
    return f"sha256:{total.hexdigest()}"
