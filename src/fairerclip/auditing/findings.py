"""What an audit found, in plain sentences with intervals: every number is taken from the results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import Literal, NamedTuple, get_args

from fairerclip._util.numbers import change, interval, number, significant, with_interval, worded
from fairerclip.auditing.group_results import (
    FigureChange,
    GroupAccuracyChange,
    GroupsSection,
    Stage,
    StageReport,
)
from fairerclip.auditing.model_facts import UNKNOWN_TASK, ZERO_SHOT, subject, why_kept
from fairerclip.auditing.results import (
    AuditResults,
    Finding,
    Level,
    MeasuredChange,
    ModelSection,
    ProbeRow,
    RankedStage,
    RetrievalSection,
)
from fairerclip.data.task_fields import UNNAMED

WORTH_SAYING = 0.02
"""A gap between average and worst group that is surely above this is called a problem."""
SIGNIFICANT = 0.05

SKEW_WORTH_SAYING = 0.05
"""A MaxSkew that is surely above this (5 % more than its share) is called a problem."""
NAMELESS = "sensitive attribute"
SHOWN = 3
"""How many groups a sentence lists."""
RELATIVE = " Its scores are relative to those of the other prompts: that leaves predictions as they are, not rankings."
"""Why a kept zero-shot classifier ranks otherwise than the cosine with one prompt."""
Topic = Literal[
    "state",
    "opportunity",
    "price",
    "gain",
    "change",
    "opportunity after",
    "retrieval",
    "prompt price",
    "prompt gain",
    "retrieval change",
    "rows seen before",
    "other",
]
"""What a finding is about, as far as a recommendation asks."""


class Topical(NamedTuple):
    """A finding and what it is about."""

    topic: Topic
    finding: Finding

    @property
    def level(self) -> Level:
        """How serious it is."""
        return self.finding.level


def find(results: AuditResults) -> list[Topical]:
    """Return all findings on sections of results, the most serious first, harms before gains."""
    found = [*_groups(results), *_retrieval(results), *_probes(results), *_dependence(results)]
    found += [*_wording(results), *_cautions(results), *_seen_before(results)]
    return sorted(found, key=lambda topical: get_args(Level).index(topical.level))


def _topical(level: Level, topic: Topic, text: str) -> Topical:
    return Topical(topic, Finding(level=level, text=text))


def _share(value: float | None, low: float | None, high: float | None) -> str:
    """A share and its interval, in per cent."""
    return f"{worded(value)} {interval(low, high)}"


def _points(found: GroupAccuracyChange | FigureChange) -> str:
    """A difference of shares and its interval, in percentage points."""
    return f"{worded(found.difference, 'points')} {interval(found.low, found.high, 'points')}"


def _signed(found: MeasuredChange) -> str:
    """A change of MaxSkew with its interval."""
    return change(found.difference, found.low, found.high, "signed")


def _above(value: float | None, limit: float) -> bool:
    return value is not None and value > limit


def _below(value: float | None, limit: float) -> bool:
    return value is not None and value < limit


def _first(text: str) -> str:
    """A text as a sentence begins."""
    return text[:1].upper() + text[1:]


def _listed(shown: Sequence[str]) -> str:
    more = f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    return ", ".join(shown[:SHOWN]) + more


def _are(n: int) -> str:
    return "is" if n == 1 else "are"


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
    level: Level = "problem" if report.intervals["gap"][0] > WORTH_SAYING else "note"
    return _topical(level, "state", text)


def _opportunity(who: str, report: StageReport, topic: Topic) -> Iterator[Topical]:
    own = [d for d in report.differences if report.positive in (None, d.y)]
    if report.eod is None or not own:
        return
    widest = max(own, key=lambda gap: abs(gap.difference or 0.0))
    low, high = report.intervals["eod"]
    way = "less" if _below(widest.difference, 0) else "more"
    message = (
        f"{who} finds {widest.y} {way} often for {widest.s} than for {widest.reference}"
        if low > 0
        else f"{who} shows no clear difference between groups in how often a class is found"
    )
    yield _topical(
        "problem" if low > WORTH_SAYING else "note",
        topic,
        f"{message}: equal opportunity difference {worded(report.eod, 'gap')} {interval(low, high)}.",
    )


def _changed(section: GroupsSection, after: StageReport, model: ModelSection | None) -> Topical:
    """What became of the worst group and the average, and why, where a zero-shot classifier was kept."""
    changes = {found.figure: found for found in section.changes or ()}
    worst, average, kept = changes["worst_group"], changes["average"], why_kept(model)
    if kept and _is_zero_shot(model):  # before and after differ by rounding alone
        moved = [worded(found.difference, "points") for found in (worst, average)]
        text = f"{kept} That is what is shown as after: worst group {moved[0]}, average {moved[1]}."
        return _topical("caution", "change", text)
    level: Level
    if _above(worst.low, 0):
        level, verb = "good", "raises"
    elif _below(worst.high, 0):
        level, verb = "problem", "lowers"
    else:
        level, verb = "caution", "does not clearly change"
    why = "" if kept is None else f"{kept} "
    return _topical(
        level,
        "change",
        f"{why}{_first(subject(model))} {verb} the worst group: from {worded(worst.before)} to {worded(worst.after)} "
        f"({_points(worst)}; now {after.worst.name}, n={after.worst.n}), while the average goes from "
        f"{worded(average.before)} to {worded(average.after)} ({_points(average)}).",
    )


def _by_group(changes: Sequence[GroupAccuracyChange], who: str) -> Iterator[Topical]:
    """Groups that are worse off, and groups that are better off, sure for all of them together."""
    clear = [(c.difference or 0.0, f"{c.name} {_points(c)}") for c in changes if c.clear]
    worse, better = _apart(clear)
    if worse:
        text = f"{_of(worse, len(changes))} worse off with {who} than with zero-shot: {_listed(worse)}."
        yield _topical("problem", "price", text)
    if better:
        text = f"{_of(better, len(changes))} better off with {who} than with zero-shot: {_listed(better)}."
        yield _topical("good", "gain", text)


def _of(found: Sequence[str], total: int) -> str:
    return f"{len(found)} of {total} groups {_are(len(found))}"


def _apart(changes: Sequence[tuple[float, str]]) -> tuple[list[str], list[str]]:
    """Texts of what fell and of what rose, by how much it did."""
    ranked = sorted(changes, key=lambda change: -abs(change[0]))
    return [text for value, text in ranked if value < 0], [text for value, text in ranked if value > 0]


def _retrieval(results: AuditResults) -> Iterator[Topical]:
    section = results.retrieval
    if section is None or section.mean.before is None or section.mean.before.max_skew is None:
        return
    skew = section.mean.before.max_skew
    yield _topical(
        "problem" if _above(skew.low, SKEW_WORTH_SAYING) else "note",
        "retrieval",
        f"Of the top {section.k} zero-shot results, the most over-represented group has MaxSkew "
        f"{with_interval(skew.value, skew.low, skew.high, 'number')} on average over the prompts; {_most(section)}.",
    )
    if section.mean.after is None or section.mean.changes is None:
        return
    yield from _by_prompt(section, subject(results.model))
    found = section.mean.changes.max_skew
    if found is None or None in (found.difference, found.low, found.high):
        return
    level: Level = "good" if _below(found.high, 0) else "problem" if _above(found.low, 0) else "note"
    drifts = [q.drift.spearman_within for q in section.queries if q.drift and q.drift.spearman_within]
    known = [drift.value for drift in drifts if drift.value is not None]
    kept = ""
    if known:
        kept = f"; inside groups the rankings keep a Spearman correlation of {number(min(known))} or more"
    relative = RELATIVE if results.groups is not None and _is_zero_shot(results.model) else ""
    why = why_kept(results.model) if results.groups is None else None  # else it is said of the groups
    yield _topical(
        level,
        "retrieval change",
        ("" if why is None else f"{why} ")
        + f"With {subject(results.model)} MaxSkew goes from {number(found.before)} to {number(found.after)} on average "
        f"over the prompts (change {_signed(found)}){kept}.{relative}",
    )


def _most(section: RetrievalSection) -> str:
    """The prompt with the most skewed top, and the group that it shows most of."""
    ranked = [(query.name, query.before) for query in section.queries if query.before is not None]
    name, stage = max(ranked, key=lambda item: _skew(item[1]))
    shares = [count / section.k for count in stage.counts]
    ratios = [share / of for share, of in zip(shares, section.shares, strict=True)]
    top = max(range(len(ratios)), key=ratios.__getitem__)
    return (
        f"most for “{name}”, where {section.groups[top]} makes up {worded(shares[top])} of the results and "
        f"{worded(section.shares[top])} of all rows"
    )


def _skew(stage: RankedStage) -> float:
    value = None if stage.max_skew is None else stage.max_skew.value
    return -inf if value is None else value


def _by_prompt(section: RetrievalSection, who: str) -> Iterator[Topical]:
    """Prompts whose top is more skewed, and those whose is less, sure for all of them together."""
    moved = [(q.name, q.changes.max_skew) for q in section.queries if q.clear and q.changes]
    clear = [(skew.difference or 0.0, f"“{name}” {_signed(skew)}") for name, skew in moved if skew]
    less, more = _apart(clear)
    of, top = len(section.queries), f"MaxSkew of the top {section.k}"
    if more:
        text = f"{top} rises with {who} for {len(more)} of {of} prompts: {_listed(more)}."
        yield _topical("problem", "prompt price", text)
    if less:
        text = f"{top} falls with {who} for {len(less)} of {of} prompts: {_listed(less)}."
        yield _topical("good", "prompt gain", text)


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
            f"A {before.probe} probe reads {_spoken(name, results)} from the image embeddings with a balanced accuracy "
            f"of {_share(before.value, before.low, before.high)} (chance {worded(before.chance)})"
        )
        level: Level = "note"
        if after is not None:
            text += (
                ", and the better of two probes from the mitigated ones with "
                f"{_share(after.value, after.low, after.high)}"
            )
            level = "caution" if _above(after.low, after.chance + SIGNIFICANT) else "note"
        yield _topical(level, "other", text + ".")


def attribute_name(name: str) -> str:
    """How to speak of a sensitive attribute; the only one of a task may have no name of its own."""
    return NAMELESS if name == UNNAMED else name


def base_name(source: str) -> str:
    """A task as a page may name it: without the folders of somebody's machine."""
    name = source.replace("\\", "/").rsplit("/", 1)[-1]
    return f"./{name}" if name.startswith("-") else name


def _spoken(name: str, results: AuditResults) -> str:
    """An attribute in a sentence: one without a name by its values."""
    values = results.task.groups
    return " / ".join(values) if name == NAMELESS and len(values) <= SHOWN + 1 else name


def _dependence(results: AuditResults) -> Iterator[Topical]:
    for row in results.dependence or ():
        if row.of != "predictions" or row.given is not None or row.measure != "hsic":
            continue
        who = "zero-shot" if row.stage == "before" else subject(results.model)
        clear = row.p_value is not None and row.p_value <= SIGNIFICANT
        text = "depend on" if clear else "show no clear dependence on"
        yield _topical(
            "note",
            "other",
            f"Predictions of {who} {text} {_spoken(row.attribute, results)}: HSIC "
            f"{with_interval(row.value, row.low, row.high, 'fine')} (permutation p = {significant(row.p_value)}, "
            f"n={row.n}).",
        )


def _wording(results: AuditResults) -> Iterator[Topical]:
    section = results.wording
    if section is None or len(section.templates) < 2:
        return
    worst = sorted((t.worst_group for t in section.templates), key=lambda found: found.value or 0.0)
    lowest, highest = worst[0], worst[-1]
    ends = [_share(found.value, found.low, found.high) for found in (lowest, highest)]
    apart = lowest.high is not None and _above(highest.low, lowest.high)
    yield _topical(
        "caution" if apart else "note",
        "other",
        f"Over {len(worst)} wordings of the prompts the zero-shot worst group lies between {ends[0]} and {ends[1]}: "
        + ("words alone move it." if apart else "no more apart than the intervals allow."),
    )


def _seen_before(results: AuditResults) -> Iterator[Topical]:
    """What to mind of how the model came about: above all, whether it was fitted or chosen on these rows."""
    settings, model, plane = results.settings, results.model, results.plane
    if model is None:
        return
    if model.source == "given":
        yield _topical("note", "other", UNKNOWN_TASK)
        return
    if model.untuned is not None:
        yield _topical(
            "caution",
            "other",
            f"The prompts only rank, but the rankings were not tuned: {model.untuned}. The fit treats the prompts as "
            "classes, and may make the rankings more skewed.",
        )
    use = {settings.chosen_on: "chosen", "train": "fitted"}.get(settings.split)
    if settings.split is not None and use is not None:
        text = f"{_first(subject(model))} is reported on the rows it was {use} on: its figures are too good."
        yield _topical("caution", "rows seen before", text)
    if plane is not None and settings.chosen_on is not None:
        few = min(plane.groups, key=lambda group: group.n)
        if few.small:
            yield _topical(
                "caution",
                "other",
                f"The model was chosen on {settings.chosen_on} rows of which {few.name} has {few.n}: another draw of "
                "rows might choose another one.",
            )


def _cautions(results: AuditResults) -> Iterator[Topical]:
    if results.task.simulated:
        text = "The embeddings are simulated: these figures say nothing about any real CLIP model."
        yield _topical("note", "other", text)
    report = None if results.groups is None else results.groups.after or results.groups.before
    if report is None:
        return
    small = [f"{group.name} (n={group.n})" for group in report.groups if group.small]
    if small:
        yield _topical(
            "caution",
            "other",
            f"{len(small)} of {len(report.groups)} groups {_are(len(small))} of fewer than {results.settings.small} "
            f"rows, too few to rank models by: {_listed(small)}.",
        )
    if report.empty:
        text = f"Nothing is known of groups without rows: {', '.join(report.empty[:6])}."
        yield _topical("caution", "other", text)
