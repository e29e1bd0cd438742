"""The answer of an audit: one sentence on what it shows, and one recommendation, both computed from the results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from fairerclip._util.numbers import significant, worded
from fairerclip.auditing.finding_results import Recommendation
from fairerclip.auditing.findings import GAP_LIMIT
from fairerclip.auditing.group_results import (
    FigureChange,
    GroupAccuracyChange,
    GroupsSection,
    MeasuredChange,
    StageReport,
)
from fairerclip.auditing.model_facts import ZERO_SHOT, ModelFacts, subject
from fairerclip.auditing.model_results import ModelSection
from fairerclip.auditing.query_results import QueriesMean, QueriesSection
from fairerclip.auditing.results import AuditResults, RetrievalSection, SkewFigures
from fairerclip.auditing.topical import MAX_LISTED, SKEW_LIMIT, above, below, favoured

WANTED = 0.05
"""Half width of the interval that rows are collected for: 5 points of accuracy, or 0.05 of MaxSkew."""
NO_STATE = "There are no labelled rows to judge by."
GIVE_LABELS = "Give the class and the sensitive value of some rows of each group, and audit again."
GIVE_PROMPTS = "Give class prompts, so that the model can be compared with zero-shot."
NO_CHANGES = "Audit again: these results do not say how the model changes the groups."
MITIGATE = "Fit a mitigated model and compare: `--mitigate` does both, `--after MODEL` or `model=` takes a fitted one."
KEEP_RANKING = "Keep the ranking as it is"


class Evaluated(NamedTuple):
    """What was measured and on which rows.

    ``model`` is None for zero-shot alone, ``given`` if the model was not fitted here. ``split`` has the rows, and
    ``chosen_on`` is the split that the model was chosen on.
    """

    model: ModelSection | ModelFacts | None
    given: bool
    split: str | None
    chosen_on: str | None

    @property
    def kept(self) -> bool:
        """Whether the model is zero-shot, because nothing was better."""
        return self.model is not None and self.model.method == ZERO_SHOT

    @property
    def seen(self) -> str | None:
        """How the model used these rows before: "chosen" or "fitted" on them; None if it did not."""
        if self.model is None or self.given or self.split is None:
            return None
        return {self.chosen_on: "chosen", "train": "fitted"}.get(self.split)


def recommend(results: AuditResults) -> Recommendation:
    """Return the answer of an audit, from the sections of its results; ``verdict`` and ``findings`` are not read."""
    settings, model = results.settings, results.model
    given = model is not None and model.source == "given"
    evaluated = Evaluated(model, given, settings.split, settings.chosen_on)
    return answer(evaluated, groups=results.groups, prompts=results.retrieval, queries=results.queries)


def answer(
    evaluated: Evaluated,
    *,
    groups: GroupsSection | None = None,
    prompts: RetrievalSection | None = None,
    queries: QueriesSection | None = None,
) -> Recommendation:
    """Return one sentence and one recommendation from measured sections.

    Groups decide where they are known, then free queries that the model answers, then the rankings of the prompts.
    """
    if groups is not None and groups.before is not None and groups.after is not None:
        return _compared_groups(evaluated, groups, groups.before, groups.after)
    if groups is not None and groups.before is not None:
        return _zero_shot(evaluated, groups.before)
    if groups is not None and groups.after is not None:
        sentence = _state(evaluated, groups.after, _first(subject(evaluated.model)))
        return Recommendation(action="compare", sentence=sentence, advice=GIVE_PROMPTS)
    if queries is not None and queries.mean is not None and (queries.mean.change or prompts is None):
        return rankings_answer(evaluated, _free_queries(queries, queries.mean))
    if prompts is not None and prompts.mean.before is not None:
        return rankings_answer(evaluated, _class_prompts(prompts, prompts.mean.before))
    return Recommendation(action="label", sentence=NO_STATE, advice=GIVE_LABELS)


def rows_to_collect(n: int, low: float | None, high: float | None) -> int:
    """Return about how many rows to add to ``n`` until an interval has the half width `WANTED`; 0 if it has it.

    The width of an interval falls with the square root of the number of rows. The number is rounded up to two digits.

    Examples
    --------
    >>> rows_to_collect(23, -0.042, 0.314), rows_to_collect(400, 0.0, 0.08)
    (270, 0)
    """
    missing = n * (_half_width(low, high) / WANTED) ** 2 - n
    if missing <= 0:
        return 0
    unit = int(10 ** max(0, math.floor(math.log10(missing)) - 1))
    return math.ceil(missing / unit - 1e-9) * unit  # 160.00000000000003 is 160


def _half_width(low: float | None, high: float | None) -> float:
    return 0.0 if low is None or high is None else (high - low) / 2


def _first(text: str) -> str:
    return text[:1].upper() + text[1:]


def _listed(names: Sequence[str]) -> str:
    """Join names as in a sentence; of many, the first and the number of the others."""
    shown = list(names[:MAX_LISTED])
    if len(names) > MAX_LISTED:
        shown.append(f"{len(names) - MAX_LISTED} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _use(evaluated: Evaluated, losses: Sequence[str]) -> Recommendation:
    """Return the advice to use the model, or to measure it on rows that it was neither fitted nor chosen on."""
    who = subject(evaluated.model)
    price = f" Decide first whether the loss of {_listed(losses)} is acceptable." if losses else ""
    if evaluated.seen is not None:
        text = f"Measure {who} on other rows before you use it: it was {evaluated.seen} on these.{price}"
        return Recommendation(action="measure", sentence="", advice=text)
    return Recommendation(action="use", sentence="", advice=f"Use the mitigated model, {who}.{price}")


def _keep(reason: str) -> Recommendation:
    return Recommendation(action="keep", sentence="", advice=f"{reason}.")


# Groups


def _state(evaluated: Evaluated, report: StageReport, who: str) -> str:
    worst = report.worst
    return (
        f"{who} is right for {worded(report.average)} of the {evaluated.split} rows, and for "
        f"{worded(worst.accuracy)} of the worst group, {worst.name} ({worst.n} rows)."
    )


def _zero_shot(evaluated: Evaluated, report: StageReport) -> Recommendation:
    """Return the answer of an audit without a model."""
    sentence, worst = _state(evaluated, report, "Zero-shot"), report.worst
    if report.intervals["gap"][0] > GAP_LIMIT:
        return Recommendation(action="mitigate", sentence=sentence, advice=MITIGATE)
    rows = rows_to_collect(worst.n, worst.low, worst.high)
    if rows:
        advice = f"C{_more_rows(evaluated, worst.name, worst.n, rows, 'accuracy')}"
        return Recommendation(action="collect", sentence=sentence, advice=advice, group=worst.name, rows=rows)
    advice = "Keep zero-shot: no group is clearly behind the average."
    return Recommendation(action="keep", sentence=sentence, advice=advice)


def _more_rows(evaluated: Evaluated, group: str, n: int, rows: int, figure: str) -> str:
    """Say how many rows to collect, and for which interval."""
    split, wanted = evaluated.split, significant(100 * WANTED)
    return f"ollect about {rows} more {split} rows of {group} (now {n}), to know its {figure} to ±{wanted} points."


def _compared_groups(
    evaluated: Evaluated, groups: GroupsSection, before: StageReport, after: StageReport
) -> Recommendation:
    if evaluated.kept:
        sentence = _state(evaluated, before, "Zero-shot is kept, because nothing was clearly better. It")
        return Recommendation(action="keep", sentence=sentence, advice="Keep zero-shot.")
    changes = {delta.figure: delta for delta in groups.changes or ()}
    if "worst_group" not in changes:  # a file of results may lack the changes
        return Recommendation(
            action="compare", sentence=_state(evaluated, before, "Zero-shot"), advice=NO_CHANGES
        )
    ranked = sorted(groups.group_changes or (), key=lambda group: -abs(group.difference or 0.0))
    better = [group for group in ranked if group.clear and above(group.difference, 0)]
    worse = [group for group in ranked if group.clear and below(group.difference, 0)]
    worst = changes["worst_group"]
    sentence = (
        f"{_first(subject(evaluated.model))} is {_for_whom(better, worse)}; {_worst(before, after, worst)}."
    )
    advice = _group_advice(evaluated, before, after, (worst.low, worst.high), ranked)
    average, price = changes.get("average"), ""
    if average is not None and below(average.high, 0) and advice.action in ("use", "measure"):
        price = f" The average falls by {worded(abs(average.difference or 0.0), 'gap')}."
    return advice.model_copy(
        update={
            "sentence": sentence,
            "advice": advice.advice + price,
            "better": tuple(group.name for group in better),
            "worse": tuple(group.name for group in worse),
        }
    )


def _moved(groups: Sequence[GroupAccuracyChange]) -> str:
    """List groups with their changes in points; the first one has the unit."""
    kinds = ["points", *["change"] * (len(groups) - 1)]
    items = zip(groups, kinds, strict=True)
    return _listed([f"{group.name} ({worded(group.difference, kind)})" for group, kind in items])


def _for_whom(better: Sequence[GroupAccuracyChange], worse: Sequence[GroupAccuracyChange]) -> str:
    """Say for which groups it is better and for which it is worse."""
    if not better and not worse:
        return "not clearly better or worse for any group"
    gain = f"clearly better for {_moved(better) if better else 'no group'}"
    return f"{gain}, and worse for {_moved(worse) if worse else 'none'}"


def _worst(before: StageReport, after: StageReport, delta: FigureChange) -> str:
    """Say how the accuracy of the worst group changes, which may be another group afterwards."""
    same = before.worst.name == after.worst.name
    chance = "" if above(delta.low, 0) or below(delta.high, 0) else ", which may be chance"
    name = f", {before.worst.name}," if same else ""
    return f"the worst group{name} goes from {worded(delta.before)} right answers to {worded(delta.after)}{chance}"


def _group_advice(
    evaluated: Evaluated,
    before: StageReport,
    after: StageReport,
    worst: tuple[float | None, float | None],
    ranked: Sequence[GroupAccuracyChange],
) -> Recommendation:
    who, guessing = subject(evaluated.model), 1 / len(before.classes)
    losses = [group.name for group in ranked if group.clear and below(group.difference, 0)]
    if max(report.intervals["worst_group"][1] for report in (before, after)) < guessing:
        text = f"Use neither for {before.worst.name}: both are right less often than guessing ({worded(guessing)})."
        return Recommendation(action="neither", sentence="", advice=text)
    if above(worst[0], 0):
        return _use(evaluated, losses)
    if below(worst[1], 0):
        return _keep(f"Keep zero-shot: {who} is clearly less accurate for its worst group")
    unsure = next((group for group in ranked if group.name == before.worst.name), None)
    rows = 0 if unsure is None else rows_to_collect(unsure.n, unsure.low, unsure.high)
    if unsure is not None and rows:
        text = f"Keep zero-shot for now, and c{_more_rows(evaluated, unsure.name, unsure.n, rows, 'change')}"
        return Recommendation(action="collect", sentence="", advice=text, group=unsure.name, rows=rows)
    gains = any(group.clear and above(group.difference, 0) for group in ranked)
    reason = "the worst group does not clearly gain" if gains else "no group clearly gains"
    lost = f", and {_listed(losses)} clearly {'loses' if len(losses) == 1 else 'lose'}" if losses else ""
    return _keep(f"Keep zero-shot: {reason}{lost}")


# Rankings


class Rankings(NamedTuple):
    """What the answer needs to know of the rankings by prompts or by free queries.

    ``skew`` is the mean MaxSkew before and the lower end of its interval, ``change`` that of the mean, and ``moved``
    are the rankings that changed clearly, if each was tested. ``example`` is on the ranking that is most skewed before.
    """

    noun: str
    total: int
    k: int
    rows: int
    skew: tuple[float | None, float | None]
    change: MeasuredChange | None
    moved: list[tuple[str, MeasuredChange]] | None = None
    example: str | None = None


def _class_prompts(section: RetrievalSection, before: SkewFigures) -> Rankings:
    ranked = [(query.name, query.before, query.after) for query in section.queries if query.before]
    name, first, last = max(ranked, key=lambda item: (item[1].max_skew and item[1].max_skew.value) or 0.0)
    skew, changes = before.max_skew, section.mean.changes
    return Rankings(
        "prompt",
        len(section.queries),
        section.k,
        section.n,
        (None, None) if skew is None else (skew.value, skew.low),
        None if changes is None else changes.max_skew,
        [
            (q.name, q.changes.max_skew)
            for q in section.queries
            if q.clear and q.changes and q.changes.max_skew
        ],
        _example(name, section, first.counts, None if last is None else last.counts),
    )


def _free_queries(section: QueriesSection, mean: QueriesMean) -> Rankings:
    asked = [query for query in section.queries if query.about is None]
    worst = max(asked, key=lambda query: query.before.max_skew.value or 0.0)
    return Rankings(
        "query",
        mean.queries,
        section.k,
        section.n,
        (mean.before.value, mean.before.low),
        mean.change,
        [(query.prompt, query.change) for query in asked if query.clear and query.change],
        _example(
            worst.prompt, section, worst.before.counts, None if worst.after is None else worst.after.counts
        ),
    )


def _example(
    name: str,
    section: RetrievalSection | QueriesSection,
    before: Sequence[float],
    after: Sequence[float] | None,
) -> str:
    """Return the shares of the most favoured group of one ranking: before, after, and of all rows."""
    top, share = favoured(before, section.k, section.shares)
    group, expected = section.groups[top], worded(section.shares[top])
    if after is None or not section.k:
        return f"“{name}” shows {worded(share)} {group}, which is {expected} of all rows"
    shown = worded(after[top] / section.k)
    return f"“{name}” shows {shown} {group} instead of {worded(share)} ({expected} of all rows)"


def _excess(skew: float | None) -> str:
    """Return by how much a group is shown more often than its share: MaxSkew is the logarithm of the ratio."""
    return worded(math.expm1(skew or 0.0))


def rankings_answer(evaluated: Evaluated, rankings: Rankings) -> Recommendation:
    """Return one sentence and one recommendation from rankings."""
    noun, total, k, _, skew, delta, moved, example = rankings
    nouns = {"query": "queries"}.get(noun, f"{noun}s") if total != 1 else noun
    place = f"among the first {k} results (mean of {total} {nouns})"
    end = "." if example is None else f"; {example}."
    if delta is None or delta.difference is None:
        sentence = f"The most favoured group is over-represented by {_excess(skew[0])} {place}{end}"
        if evaluated.model is None and above(skew[1], SKEW_LIMIT):
            return Recommendation(action="mitigate", sentence=sentence, advice=MITIGATE)
        if evaluated.model is None:
            text = f"{KEEP_RANKING}: groups are shown about in proportion to their shares."
            return Recommendation(action="keep", sentence=sentence, advice=text)
        return Recommendation(action="compare", sentence=sentence, advice=GIVE_PROMPTS)
    ranked = sorted(moved or (), key=lambda item: -abs(item[1].difference or 0.0))
    better = tuple(name for name, change in ranked if below(change.difference, 0))
    worse = tuple(name for name, change in ranked if above(change.difference, 0))
    quoted = [f"“{name}”" for name in worse]
    counts = (
        f"clearly more even for {len(better)} {nouns}, less even for {_listed(quoted) if quoted else 'none'}"
    )
    sentence = (
        f"With {subject(evaluated.model)} the most favoured group is over-represented by {_excess(delta.after)} "
        f"instead of {_excess(delta.before)} {place}{'' if moved is None else f': {counts}'}{end}"
    )
    advice = _ranking_advice(evaluated, rankings, delta, quoted)
    return advice.model_copy(update={"sentence": sentence, "better": better, "worse": worse})


def _ranking_advice(
    evaluated: Evaluated, rankings: Rankings, delta: MeasuredChange, worse: Sequence[str]
) -> Recommendation:
    who = subject(evaluated.model)
    if evaluated.kept:
        return _keep(f"{KEEP_RANKING}: nothing was better on the rows used for choosing")
    if below(delta.high, 0):
        return _use(evaluated, worse)
    if above(delta.low, 0):
        return _keep(f"{KEEP_RANKING}: {who} makes it clearly less even")
    rows = rows_to_collect(rankings.rows, delta.low, delta.high)
    if rows:
        text = f"{KEEP_RANKING} for now, and collect about {rows} more rows: the change may be chance."
        return Recommendation(action="collect", sentence="", advice=text, rows=rows)
    return _keep(f"{KEEP_RANKING}: {who} does not clearly change it")
