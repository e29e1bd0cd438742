"""Findings of an audit: sentences with intervals, in which every number is taken from the results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import get_args

from fairerclip._util.numbers import interval, number, significant, with_interval, worded
from fairerclip.auditing.display_names import NAMELESS
from fairerclip.auditing.finding_results import Level
from fairerclip.auditing.group_results import (
    FigureChange,
    GroupAccuracyChange,
    GroupsSection,
    Stage,
    StageReport,
)
from fairerclip.auditing.model_facts import UNKNOWN_TASK, ZERO_SHOT, fitted_on, subject, why_kept
from fairerclip.auditing.model_results import ModelSection
from fairerclip.auditing.query_findings import drift_findings, query_findings
from fairerclip.auditing.results import AuditResults, ProbeRow, RetrievalSection
from fairerclip.auditing.topical import (
    MAX_LISTED,
    SKEW_LIMIT,
    Topic,
    Topical,
    above,
    below,
    fallen_and_risen,
    favoured,
    listed,
    most_skewed,
    signed_change,
    topical,
)

GAP_LIMIT = 0.02
"""A gap between average and worst group is called a problem if its whole interval lies above this."""
SIGNIFICANT = 0.05
RELATIVE = " A prompt's score is relative to the scores of the other prompts, which changes rankings, not predictions."
"""Why a kept zero-shot classifier ranks differently than the cosine with one prompt."""


def find(results: AuditResults) -> list[Topical]:
    """Return all findings on the sections of results, most serious first and harms before gains."""
    findings = [*_groups(results), *_retrieval(results), *_probes(results), *_dependence(results)]
    findings += [*_wording(results), *_cautions(results), *_seen_before(results)]
    findings += [*query_findings(results), *drift_findings(results)]
    return sorted(findings, key=lambda found: get_args(Level).index(found.level))


def _share(value: float | None, low: float | None, high: float | None) -> str:
    """Format a share and its interval in per cent."""
    return f"{worded(value)} {interval(low, high)}"


def _points(delta: GroupAccuracyChange | FigureChange) -> str:
    """Format a difference of shares and its interval in percentage points."""
    return f"{worded(delta.difference, 'points')} {interval(delta.low, delta.high, 'points')}"


def _first(text: str) -> str:
    """Return a text with a capital first letter."""
    return text[:1].upper() + text[1:]


def _is_zero_shot(model: ModelSection | None) -> bool:
    return model is not None and model.method == ZERO_SHOT


def _groups(results: AuditResults) -> Iterator[Topical]:
    section, model = results.groups, results.model
    if section is None:
        return
    split = results.settings.split or ""
    if section.before is not None:
        yield _state("Zero-shot", section.before, split)
        yield from _opportunity("Zero-shot", section.before, "opportunity")
    if section.after is not None:
        who = subject(model)
        if section.changes is not None:
            yield from _by_group(section.group_changes or (), who)
            yield _changed(section, section.after, model)
        else:
            yield _state(_first(who), section.after, split)
        if not _is_zero_shot(model):
            yield from _opportunity(_first(who), section.after, "opportunity after")


def _state(who: str, report: StageReport, split: str) -> Topical:
    worst = report.worst
    text = (
        f"{who} is right for {_share(report.average, *report.intervals['average'])} of the {split} rows, and for "
        f"{_share(worst.accuracy, *report.intervals['worst_group'])} of its worst group, {worst.name} (n={worst.n})."
    )
    level: Level = "problem" if report.intervals["gap"][0] > GAP_LIMIT else "note"
    return topical(level, "state", text)


def _opportunity(who: str, report: StageReport, topic: Topic) -> Iterator[Topical]:
    gaps = [gap for gap in report.differences if report.positive in (None, gap.y)]
    if report.eod is None or not gaps:
        return
    widest = max(gaps, key=lambda gap: abs(gap.difference or 0.0))
    low, high = report.intervals["eod"]
    more_or_less = "less" if below(widest.difference, 0) else "more"
    message = (
        f"{who} recognises {widest.y} {more_or_less} often for {widest.s} than for {widest.reference}"
        if low > 0
        else f"{who} shows no clear difference between groups in how often a class is recognised"
    )
    yield topical(
        "problem" if low > GAP_LIMIT else "note",
        topic,
        f"{message}: equal opportunity difference {worded(report.eod, 'gap')} {interval(low, high)}.",
    )


def _changed(section: GroupsSection, after: StageReport, model: ModelSection | None) -> Topical:
    """State the change of the worst group and of the average, and why a zero-shot classifier was kept if it was."""
    changes = {delta.figure: delta for delta in section.changes or ()}
    worst, average, kept = changes["worst_group"], changes["average"], why_kept(model)
    if kept and _is_zero_shot(model):  # before and after differ by rounding alone
        moved = [worded(delta.difference, "points") for delta in (worst, average)]
        text = f"{kept} Figures after mitigation are those of zero-shot: worst group {moved[0]}, average {moved[1]}."
        return topical("caution", "change", text)
    level: Level
    if above(worst.low, 0):
        level, verb = "good", "raises"
    elif below(worst.high, 0):
        level, verb = "problem", "lowers"
    else:
        level, verb = "caution", "does not clearly change"
    why = "" if kept is None else f"{kept} "
    return topical(
        level,
        "change",
        f"{why}{_first(subject(model))} {verb} the accuracy of the worst group: from {worded(worst.before)} to "
        f"{worded(worst.after)} ({_points(worst)}; now {after.worst.name}, n={after.worst.n}). The average goes from "
        f"{worded(average.before)} to {worded(average.after)} ({_points(average)}).",
    )


def _by_group(changes: Sequence[GroupAccuracyChange], who: str) -> Iterator[Topical]:
    """List groups that are clearly less accurate than with zero-shot, and groups that are clearly more accurate."""
    clear = [(c.difference or 0.0, f"{c.name} {_points(c)}") for c in changes if c.clear]
    worse, better = fallen_and_risen(clear)
    if worse:
        text = f"{_share_of(worse, len(changes))} worse off with {who} than with zero-shot: {listed(worse)}."
        yield topical("problem", "harm", text)
    if better:
        text = (
            f"{_share_of(better, len(changes))} better off with {who} than with zero-shot: {listed(better)}."
        )
        yield topical("good", "gain", text)


def _share_of(names: Sequence[str], total: int) -> str:
    return f"{len(names)} of {total} groups {'is' if len(names) == 1 else 'are'}"


def _retrieval(results: AuditResults) -> Iterator[Topical]:
    section = results.retrieval
    if section is None or section.mean.before is None or section.mean.before.max_skew is None:
        return
    skew = section.mean.before.max_skew
    yield topical(
        "problem" if above(skew.low, SKEW_LIMIT) else "note",
        "retrieval",
        f"In the top {section.k} zero-shot results, the most over-represented group has MaxSkew "
        f"{with_interval(skew.value, skew.low, skew.high, 'number')} on average over the prompts (0 is proportional)."
        f"{_most_skewed(section)}",
    )
    if section.mean.after is None or section.mean.changes is None:
        return
    yield from _by_prompt(section, subject(results.model))
    delta = section.mean.changes.max_skew
    if delta is None or None in (delta.difference, delta.low, delta.high):
        return
    level: Level = "good" if below(delta.high, 0) else "problem" if above(delta.low, 0) else "note"
    drifts = [q.drift.spearman_within for q in section.queries if q.drift and q.drift.spearman_within]
    known = [drift.value for drift in drifts if drift.value is not None]
    kept = ""
    if known:
        kept = f"; inside groups the rank correlation with zero-shot is at least {number(min(known))}"
    relative = RELATIVE if results.groups is not None and _is_zero_shot(results.model) else ""
    why = (
        why_kept(results.model) if results.groups is None else None
    )  # otherwise the finding on groups says it
    yield topical(
        level,
        "retrieval change",
        ("" if why is None else f"{why} ")
        + f"With {subject(results.model)}, MaxSkew goes from {number(delta.before)} to {number(delta.after)} on "
        f"average over the prompts (change {signed_change(delta)}){kept}.{relative}",
    )


def _most_skewed(section: RetrievalSection) -> str:
    """Name the prompt with the largest MaxSkew, and the group that is most over-represented for it."""
    query = most_skewed(section.queries)
    if query is None or query.before is None:
        return ""
    top, share = favoured(query.before.counts, section.k, section.shares)
    return (
        f" It is largest for “{query.name}”, where {section.groups[top]} makes up {worded(share)} of the results and "
        f"{worded(section.shares[top])} of all rows."
    )


def _by_prompt(section: RetrievalSection, who: str) -> Iterator[Topical]:
    """List prompts whose top results are clearly more skewed than with zero-shot, and those clearly less skewed."""
    moved = [(q.name, q.changes.max_skew) for q in section.queries if q.clear and q.changes]
    clear = [(skew.difference or 0.0, f"“{name}” {signed_change(skew)}") for name, skew in moved if skew]
    less, more = fallen_and_risen(clear)
    total, figure = len(section.queries), f"MaxSkew of the top {section.k}"
    if more:
        text = f"{figure} rises with {who} for {len(more)} of {total} prompts: {listed(more)}."
        yield topical("problem", "prompt harm", text)
    if less:
        text = f"{figure} falls with {who} for {len(less)} of {total} prompts: {listed(less)}."
        yield topical("good", "prompt gain", text)


def _probes(results: AuditResults) -> Iterator[Topical]:
    probes = results.probes or ()
    for name in dict.fromkeys(probe.attribute for probe in probes):
        best: dict[Stage, ProbeRow] = {}
        for probe in sorted(probes, key=lambda probe: -(probe.value or 0.0)):
            if probe.attribute == name:
                best.setdefault(probe.stage, probe)
        before, after = best.get("before"), best.get("after")
        if before is None:
            continue
        text = (
            f"A {before.probe} probe predicts {_attribute(name, results)} from the image embeddings with a balanced "
            f"accuracy of {_share(before.value, before.low, before.high)} (chance {worded(before.chance)})"
        )
        level: Level = "note"
        if after is not None:
            text += (
                ", and the better of two probes predicts it from the mitigated embeddings with "
                f"{_share(after.value, after.low, after.high)}"
            )
            level = "caution" if above(after.low, after.chance + SIGNIFICANT) else "note"
        yield topical(level, "other", text + ".")


def _attribute(name: str, results: AuditResults) -> str:
    """Return the name of an attribute for a sentence; an attribute without a name is called by its values."""
    values = results.task.groups
    return " / ".join(values) if name == NAMELESS and len(values) <= MAX_LISTED + 1 else name


def _dependence(results: AuditResults) -> Iterator[Topical]:
    for row in results.dependence or ():
        if row.of != "predictions" or row.given is not None or row.measure != "hsic":
            continue
        who = "zero-shot" if row.stage == "before" else subject(results.model)
        clear = row.p_value is not None and row.p_value <= SIGNIFICANT
        text = "depend on" if clear else "show no clear dependence on"
        yield topical(
            "note",
            "other",
            f"Predictions of {who} {text} {_attribute(row.attribute, results)}: HSIC "
            f"{with_interval(row.value, row.low, row.high, 'fine')} (permutation p = {significant(row.p_value)}, "
            f"n={row.n}).",
        )


def _wording(results: AuditResults) -> Iterator[Topical]:
    section = results.wording
    if section is None or len(section.templates) < 2:
        return
    worst = sorted((t.worst_group for t in section.templates), key=lambda accuracy: accuracy.value or 0.0)
    lowest, highest = worst[0], worst[-1]
    ends = [_share(accuracy.value, accuracy.low, accuracy.high) for accuracy in (lowest, highest)]
    differ = lowest.high is not None and above(highest.low, lowest.high)
    yield topical(
        "caution" if differ else "note",
        "other",
        f"With {len(worst)} wordings of the prompts, the zero-shot accuracy of the worst group ranges from {ends[0]} "
        f"to {ends[1]}: " + ("the wording alone changes it." if differ else "the intervals overlap."),
    )


def _seen_before(results: AuditResults) -> Iterator[Topical]:
    """List limits that follow from how the model was made, such as evaluation on rows it was fitted or chosen on."""
    settings, model, plane = results.settings, results.model, results.plane
    if model is None:
        return
    if model.source == "given":
        yield topical("note", "other", UNKNOWN_TASK)
        return
    split = settings.split
    use = "fitted" if split in fitted_on(model) else "chosen" if split == settings.chosen_on else None
    if split is not None and use is not None:
        text = f"{_first(subject(model))} is evaluated on the rows it was {use} on: its figures are too optimistic."
        yield topical("caution", "rows seen before", text)
    if plane is not None and settings.chosen_on is not None:
        smallest = min(plane.groups, key=lambda group: group.n)
        if smallest.small:
            yield topical(
                "caution",
                "other",
                f"The model was chosen on {settings.chosen_on} rows, and the smallest group there, {smallest.name}, "
                f"has n={smallest.n}: other rows might have led to another choice.",
            )


def _cautions(results: AuditResults) -> Iterator[Topical]:
    if results.task.simulated:
        text = "The embeddings are simulated: these figures say nothing about any real CLIP model."
        yield topical("note", "other", text)
    report = None if results.groups is None else results.groups.after or results.groups.before
    if report is None:
        return
    small = [f"{group.name} (n={group.n})" for group in report.groups if group.small]
    if small:
        yield topical(
            "caution",
            "other",
            f"{len(small)} of {len(report.groups)} groups {'has' if len(small) == 1 else 'have'} fewer than "
            f"{results.settings.small} rows, too few to compare models by: {listed(small)}.",
        )
    if report.empty:
        text = f"Groups without rows, about which nothing is known: {listed(report.empty)}."
        yield topical("caution", "other", text)
