"""The answer of an audit: one sentence on what it shows, and one recommendation, both computed from the results."""

from __future__ import annotations

from collections.abc import Sequence

from fairerclip._util.numbers import significant, worded
from fairerclip.auditing.advice import (
    GIVE_LABELS,
    MITIGATE,
    WANTED,
    Evaluated,
    keep,
    listed_in_words,
    rows_to_collect,
    use,
)
from fairerclip.auditing.finding_results import Recommendation
from fairerclip.auditing.findings import GAP_LIMIT
from fairerclip.auditing.group_results import (
    FigureChange,
    GroupAccuracyChange,
    GroupCell,
    GroupsSection,
    StageReport,
)
from fairerclip.auditing.model_facts import fitted_on, subject
from fairerclip.auditing.query_results import QueriesSection
from fairerclip.auditing.ranking_answer import class_prompts, free_queries, rankings_answer
from fairerclip.auditing.results import AuditResults, RetrievalSection
from fairerclip.auditing.topical import above, below

NO_STATE = "There are no labelled rows to judge by."
GIVE_PROMPTS = "Give class prompts, so that the model can be compared with zero-shot."
NO_CHANGES = "Audit again: these results do not say how the model changes the groups."


def recommend(results: AuditResults) -> Recommendation:
    """Return the answer of an audit, from the sections of its results; ``verdict`` and ``findings`` are not read."""
    settings, model = results.settings, results.model
    given = model is not None and model.source == "given"
    evaluated = Evaluated(model, given, settings.split, settings.chosen_on, fitted_on(model))
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
    if queries is not None and queries.mean is not None and queries_decide(queries, prompts):
        return rankings_answer(evaluated, free_queries(queries, queries.mean))
    if prompts is not None and prompts.mean.before is not None and prompts.mean.before.max_skew is not None:
        return rankings_answer(evaluated, class_prompts(prompts, prompts.mean.before.max_skew))
    return Recommendation(action="label", sentence=NO_STATE, advice=GIVE_LABELS)


def queries_decide(queries: QueriesSection | None, prompts: RetrievalSection | None) -> bool:
    """Return whether the rankings of free queries are the answer: if the model answers them, or nothing else ranks."""
    mean = None if queries is None else queries.mean
    return mean is not None and (mean.change is not None or prompts is None)


def _first(text: str) -> str:
    return text[:1].upper() + text[1:]


def _state(evaluated: Evaluated, report: StageReport, who: str) -> str:
    worst = report.worst
    return (
        f"{who} is right for {worded(report.average)} of the {evaluated.rows}, and for {worded(worst.accuracy)} of the "
        f"worst group, {worst.name} ({worst.n} {'row' if worst.n == 1 else 'rows'})."
    )


def _zero_shot(evaluated: Evaluated, report: StageReport) -> Recommendation:
    """Return the answer of an audit without a model."""
    sentence, worst = _state(evaluated, report, "Zero-shot"), report.worst
    if above(report.estimate("gap").low, GAP_LIMIT):
        return Recommendation(action="mitigate", sentence=sentence, advice=MITIGATE)
    rows = rows_to_collect(worst.n, worst.low, worst.high)
    if rows:
        advice = f"C{_more_rows(evaluated, worst.name, worst.n, rows, 'accuracy')}"
        return Recommendation(action="collect", sentence=sentence, advice=advice, group=worst.name, rows=rows)
    advice = "Keep zero-shot: no group is clearly behind the average."
    return Recommendation(action="keep", sentence=sentence, advice=advice)


def _more_rows(evaluated: Evaluated, group: str, n: int, rows: int, figure: str) -> str:
    """Say how many rows to collect, and for which interval."""
    wanted = significant(100 * WANTED)
    return f"ollect about {rows} more {evaluated.rows} of {group} (now {n}), to know its {figure} to ±{wanted} points."


def _compared_groups(
    evaluated: Evaluated, groups: GroupsSection, before: StageReport, after: StageReport
) -> Recommendation:
    if evaluated.kept and not any(group.clear for group in groups.group_changes or ()):
        sentence = _state(evaluated, before, f"{evaluated.why_kept}. It")
        return Recommendation(action="keep", sentence=sentence, advice="Keep zero-shot.")
    changes = {delta.figure: delta for delta in groups.changes or ()}
    if "worst_group" not in changes or groups.group_changes is None:  # a file of results may lack the changes
        return Recommendation(
            action="compare", sentence=_state(evaluated, before, "Zero-shot"), advice=NO_CHANGES
        )
    ranked = sorted(groups.group_changes, key=lambda group: -abs(group.difference or 0.0))
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
    return listed_in_words([f"{group.name} ({worded(group.difference, kind)})" for group, kind in items])


def _for_whom(better: Sequence[GroupAccuracyChange], worse: Sequence[GroupAccuracyChange]) -> str:
    """Say for which groups it is better and for which it is worse."""
    if not better and not worse:
        return "not clearly better or worse for any group"
    gain = f"clearly better for {_moved(better) if better else 'no group'}"
    return f"{gain}, and worse for {_moved(worse) if worse else 'none'}"


def _worst(before: StageReport, after: StageReport, delta: FigureChange) -> str:
    """Say how the accuracy of the worst group changes, which may be another group afterwards."""
    name = f", {before.worst.name}," if _cell(before.worst) == _cell(after.worst) else ""
    if delta.before == delta.after:
        return f"the worst group{name} has {worded(delta.after)} right answers with both"
    chance = "" if above(delta.low, 0) or below(delta.high, 0) else ", which may be chance"
    return f"the worst group{name} goes from {worded(delta.before)} right answers to {worded(delta.after)}{chance}"


def _cell(group: GroupCell) -> tuple[str, str]:
    """Return what identifies a group; the names of two groups may be equal ("a × b" × "c", "a" × "b × c")."""
    return group.y, group.s


def _neither(evaluated: Evaluated, before: StageReport, after: StageReport) -> Recommendation | None:
    """Return the advice against both, if the worst groups of both are clearly below guessing."""
    guessing = 1 / len(before.classes)
    if not all(below(report.estimate("worst_group").high, guessing) for report in (before, after)):
        return None
    who = f"for {before.worst.name} both are"
    if _cell(before.worst) != _cell(after.worst):
        who = f"zero-shot for {before.worst.name} and {subject(evaluated.model)} for {after.worst.name} are"
    text = f"Use neither: {who} right less often than guessing ({worded(guessing)}). Check prompts, labels and images."
    return Recommendation(action="neither", sentence="", advice=text)


def _group_advice(
    evaluated: Evaluated,
    before: StageReport,
    after: StageReport,
    worst: tuple[float | None, float | None],
    ranked: Sequence[GroupAccuracyChange],
) -> Recommendation:
    losses = [group.name for group in ranked if group.clear and below(group.difference, 0)]
    neither = _neither(evaluated, before, after)
    if neither is not None:
        return neither
    if above(worst[0], 0):
        return use(evaluated, losses, "lower accuracy")
    if below(worst[1], 0):
        return keep(
            f"Keep zero-shot: {subject(evaluated.model)} is clearly less accurate for its worst group"
        )
    # The group that is lowest afterwards may be the one that is not known well enough.
    lowest = {_cell(before.worst), _cell(after.worst)}
    missing = [(rows_to_collect(g.n, g.low, g.high), g) for g in ranked if _cell(g) in lowest]
    rows, unsure = max(missing, key=lambda item: item[0], default=(0, None))
    if unsure is not None and rows:
        more = _more_rows(evaluated, unsure.name, unsure.n, rows, "change")
        text = f"Keep zero-shot for now, and c{more}"
        return Recommendation(action="collect", sentence="", advice=text, group=unsure.name, rows=rows)
    gains = any(group.clear and above(group.difference, 0) for group in ranked)
    reason = "the worst group does not clearly gain" if gains else "no group clearly gains"
    lost = (
        f", and {listed_in_words(losses)} clearly {'loses' if len(losses) == 1 else 'lose'}" if losses else ""
    )
    return keep(f"Keep zero-shot: {reason}{lost}")
