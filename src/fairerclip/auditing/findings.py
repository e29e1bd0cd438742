"""What an audit found, in plain sentences with intervals: every number is taken from the results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fairerclip._util import numbers
from fairerclip.auditing.model_facts import UNKNOWN_TASK, subject, why_kept
from fairerclip.auditing.model_format import ZERO_SHOT
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
LEVELS = ("problem", "good", "caution", "note")

Results = Mapping[str, Any]


class Finding(NamedTuple):
    """A sentence, how serious it is, and what it is about."""

    level: str
    topic: str
    text: str


def percent(value: float) -> str:
    """A share as per cent."""
    return numbers.worded(value)


def within(low: float, high: float) -> str:
    """An interval of shares, in per cent."""
    return numbers.interval(low, high)


def points(value: float) -> str:
    """A difference of shares, in percentage points with its sign."""
    return numbers.worded(value, "points")


def signed_within(low: float, high: float) -> str:
    """An interval of differences, in percentage points."""
    return numbers.interval(low, high, "points")


def find(results: Results) -> list[Finding]:
    """All findings, the most serious first, harms before gains."""
    found = [*_groups(results), *_retrieval(results), *_probes(results), *_dependence(results)]
    found += [*_wording(results), *_cautions(results), *_seen_before(results)]
    return sorted(found, key=lambda finding: LEVELS.index(finding.level))


def _groups(results: Results) -> Iterator[Finding]:
    section = results["groups"]
    if section is None:
        return
    split = results["settings"]["split"]
    if section["before"] is not None:
        yield _state("Zero-shot", section["before"], split)
        yield from _opportunity("Zero-shot", section["before"])
    if section["after"] is not None:
        who, kept = subject(results["model"]), why_kept(results["model"])
        method = results["model"]["method"]
        if section["changes"] is not None:
            yield from _by_group(section["group_changes"], who)
            yield _kept(section, kept) if method == ZERO_SHOT and kept else _gained(section, who, kept)
        else:
            yield _state(_first(who), section["after"], split)
        if method != ZERO_SHOT:
            yield from _opportunity(_first(who), section["after"], "opportunity after")


def _state(who: str, report: Results, split: str) -> Finding:
    worst = report["worst"]
    low, high = report["intervals"]["worst_group"]
    text = (
        f"{who} is right for {percent(report['average'])} {within(*report['intervals']['average'])} of the {split} "
        f"rows, and for {percent(worst['accuracy'])} {within(low, high)} of its worst group, {worst['name']} "
        f"(n={worst['n']})."
    )
    return Finding("problem" if report["intervals"]["gap"][0] > WORTH_SAYING else "note", "state", text)


def _first(text: str) -> str:
    """A text as a sentence begins."""
    return text[:1].upper() + text[1:]


def _opportunity(who: str, report: Results, topic: str = "opportunity") -> Iterator[Finding]:
    if report["eod"] is None or not report["differences"]:
        return
    widest = max(report["differences"], key=lambda d: abs(d["difference"]))
    if report["positive"] is not None:
        own = [d for d in report["differences"] if d["y"] == report["positive"]]
        widest = max(own, key=lambda d: abs(d["difference"]))
    low, high = report["intervals"]["eod"]
    way = "less" if widest["difference"] < 0 else "more"
    told = (
        f"{who} finds {widest['y']} {way} often for {widest['s']} than for {widest['reference']}"
        if low > 0
        else f"{who} shows no clear difference between groups in how often a class is found"
    )
    yield Finding(
        "problem" if low > WORTH_SAYING else "note",
        topic,
        f"{told}: equal opportunity difference {numbers.worded(report['eod'], 'gap')} {within(low, high)}.",
    )


def _kept(section: Results, why: str) -> Finding:
    """That zero-shot was kept: what is shown as after differs from before by rounding alone."""
    changes = {change["figure"]: change["difference"] for change in section["changes"]}
    return Finding(
        "caution",
        "change",
        f"{why} That is what is shown as after: worst group {points(changes['worst_group'])}, average "
        f"{points(changes['average'])}.",
    )


def _gained(section: Results, who: str, kept: str | None) -> Finding:
    """What became of the worst group and the average, and why, where a zero-shot classifier was kept."""
    changes = {change["figure"]: change for change in section["changes"]}
    worst, average, after = changes["worst_group"], changes["average"], section["after"]["worst"]
    if worst["low"] > 0:
        level, verb = "good", "raises"
    elif worst["high"] < 0:
        level, verb = "problem", "lowers"
    else:
        level, verb = "caution", "does not clearly change"
    told = "" if kept is None else f"{kept} "
    return Finding(
        level,
        "change",
        f"{told}{_first(who)} {verb} the worst group: from {percent(worst['before'])} to {percent(worst['after'])} "
        f"({points(worst['difference'])} {signed_within(worst['low'], worst['high'])}; now {after['name']}, "
        f"n={after['n']}), while the average goes from {percent(average['before'])} to {percent(average['after'])} "
        f"({points(average['difference'])} {signed_within(average['low'], average['high'])}).",
    )


def _by_group(changes: Sequence[Results], who: str) -> Iterator[Finding]:
    """Groups that are worse off, and groups that are better off, sure for all of them together."""
    clear = sorted((c for c in changes if c["clear"]), key=lambda c: -abs(c["difference"]))
    worse = [c for c in clear if c["difference"] < 0]
    better = [c for c in clear if c["difference"] > 0]
    for level, topic, how, found in (
        ("problem", "price", "worse", worse),
        ("good", "gain", "better", better),
    ):
        if not found:
            continue
        shown = [f"{c['name']} {points(c['difference'])} {signed_within(c['low'], c['high'])}" for c in found]
        yield Finding(
            level,
            topic,
            f"{len(found)} of {len(changes)} groups {_are(len(found))} {how} off with {who} than with zero-shot: "
            f"{_listed(shown)}.",
        )


def _listed(shown: Sequence[str]) -> str:
    more = f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    return ", ".join(shown[:SHOWN]) + more


def _are(n: int) -> str:
    return "is" if n == 1 else "are"


def _retrieval(results: Results) -> Iterator[Finding]:
    section = results["retrieval"]
    if section is None:
        return
    before, after, changes = (section["mean"][key] for key in ("before", "after", "changes"))
    skew = before["max_skew"]
    shown = numbers.with_interval(skew["value"], skew["low"], skew["high"], "number")
    worst = max(section["queries"], key=lambda q: q["before"]["max_skew"]["value"])
    shares = [count / section["k"] for count in worst["before"]["counts"]]
    ratios = [share / of for share, of in zip(shares, section["shares"], strict=True)]
    top = max(range(len(ratios)), key=ratios.__getitem__)
    yield Finding(
        "problem" if skew["low"] > SKEW_WORTH_SAYING else "note",
        "retrieval",
        f"Of the top {section['k']} zero-shot results, the most over-represented group has MaxSkew {shown} "
        f"on average over the prompts; most for “{worst['name']}”, where "
        f"{section['groups'][top]} makes up {percent(shares[top])} of the results and "
        f"{percent(section['shares'][top])} of all rows.",
    )
    if after is None or changes is None:
        return
    yield from _by_prompt(section, subject(results["model"]))
    change = changes["max_skew"]
    if change["difference"] is None or change["low"] is None or change["high"] is None:
        return
    level = "good" if change["high"] < 0 else "problem" if change["low"] > 0 else "note"
    drift = [(q["drift"] or {}).get("spearman_within") or {} for q in section["queries"]]
    known = [d["value"] for d in drift if d.get("value") is not None]
    kept = (
        f"; inside groups the rankings keep a Spearman correlation of {numbers.number(min(known))} or more"
        if known
        else ""
    )
    relative = RELATIVE if results["model"]["method"] == ZERO_SHOT and results["groups"] is not None else ""
    told = why_kept(results["model"]) if results["groups"] is None else None  # else it is said of the groups
    yield Finding(
        level,
        "retrieval change",
        ("" if told is None else f"{told} ")
        + f"With {subject(results['model'])} MaxSkew goes from {numbers.number(change['before'])} to "
        f"{numbers.number(change['after'])} on average over the prompts (change {_signed(change)}){kept}.{relative}",
    )


def _signed(change: Results) -> str:
    """A change of MaxSkew with its interval."""
    return numbers.change(change["difference"], change["low"], change["high"], "signed")


def _by_prompt(section: Results, who: str) -> Iterator[Finding]:
    """Prompts whose top is more skewed, and those whose is less, sure for all of them together."""
    clear = [
        q for q in section["queries"] if q["clear"] and q["changes"]["max_skew"]["difference"] is not None
    ]
    clear.sort(key=lambda q: -abs(q["changes"]["max_skew"]["difference"]))
    for level, topic, how, sign in (
        ("problem", "prompt price", "rises", 1),
        ("good", "prompt gain", "falls", -1),
    ):
        found = [q for q in clear if sign * q["changes"]["max_skew"]["difference"] > 0]
        if not found:
            continue
        shown = [f"“{q['name']}” {_signed(q['changes']['max_skew'])}" for q in found]
        yield Finding(
            level,
            topic,
            f"MaxSkew of the top {section['k']} {how} with {who} for {len(found)} of {len(section['queries'])} "
            f"prompts: {_listed(shown)}.",
        )


def _probes(results: Results) -> Iterator[Finding]:
    for name in dict.fromkeys(probe["attribute"] for probe in results["probes"] or ()):
        here = [p for p in results["probes"] if p["attribute"] == name]
        before = max((p for p in here if p["stage"] == "before"), key=lambda p: p["value"], default=None)
        after = max((p for p in here if p["stage"] == "after"), key=lambda p: p["value"], default=None)
        told = _told(name, results)
        if before is None:
            continue
        text = (
            f"A {before['probe']} probe reads {told} from the image embeddings with a balanced accuracy of "
            f"{percent(before['value'])} {within(before['low'], before['high'])} (chance {percent(before['chance'])})"
        )
        level = "note"
        if after is not None:
            text += (
                f", and the better of two probes from the mitigated ones with {percent(after['value'])} "
                f"{within(after['low'], after['high'])}"
            )
            level = "caution" if after["low"] > after["chance"] + SIGNIFICANT else "note"
        yield Finding(level, "probe", text + ".")


def attribute_name(name: str) -> str:
    """How to speak of a sensitive attribute; the only one of a task may have no name of its own."""
    return NAMELESS if name == UNNAMED else name


def _told(name: str, results: Results) -> str:
    """An attribute in a sentence: one without a name by its values."""
    values = results["task"]["groups"]
    return " / ".join(values) if name == NAMELESS and len(values) <= SHOWN + 1 else name


def _dependence(results: Results) -> Iterator[Finding]:
    for row in results["dependence"] or ():
        if row["of"] != "predictions" or row["given"] is not None or row["measure"] != "hsic":
            continue
        who = "zero-shot" if row["stage"] == "before" else subject(results["model"])
        told = _told(row["attribute"], results)
        clear = row["p_value"] is not None and row["p_value"] <= SIGNIFICANT
        text = "depend on" if clear else "show no clear dependence on"
        yield Finding(
            "note",
            "dependence",
            f"Predictions of {who} {text} {told}: HSIC "
            f"{numbers.with_interval(row['value'], row['low'], row['high'], 'fine')} (permutation p = "
            f"{numbers.significant(row['p_value'])}, n={row['n']}).",
        )


def _wording(results: Results) -> Iterator[Finding]:
    section = results["wording"]
    if section is None or len(section["templates"]) < 2:
        return
    worst = sorted((t["worst_group"] for t in section["templates"]), key=lambda worst: worst["value"])
    lowest, highest = worst[0], worst[-1]
    ends = [f"{percent(w['value'])} {within(w['low'], w['high'])}" for w in (lowest, highest)]
    apart = lowest["high"] < highest["low"]
    yield Finding(
        "caution" if apart else "note",
        "wording",
        f"Over {len(worst)} wordings of the prompts the zero-shot worst group lies between {ends[0]} and {ends[1]}: "
        + ("words alone move it." if apart else "no more apart than the intervals allow."),
    )


def _seen_before(results: Results) -> Iterator[Finding]:
    """What to mind of how the model came about: above all, whether it was fitted or chosen on these rows."""
    settings, model = results["settings"], results["model"]
    if model is None:
        return
    if model["source"] == "given":
        yield Finding("note", "given", UNKNOWN_TASK)
        return
    if model["untuned"] is not None:
        yield Finding(
            "caution",
            "untuned",
            f"The prompts only rank, but the rankings were not tuned: {model['untuned']}. The fit treats the prompts "
            "as classes, and may make the rankings more skewed.",
        )
    who = _first(subject(model))
    if settings["split"] == "train":
        yield Finding(
            "caution",
            "seen",
            f"{who} is reported on the rows it was fitted on: its figures are too good.",
        )
    elif settings["split"] == settings["chosen_on"]:
        yield Finding(
            "caution",
            "seen",
            f"{who} is reported on the rows it was chosen on: its figures are too good.",
        )
    plane = results["plane"]
    if plane is not None and settings["chosen_on"] is not None:
        few = min(plane["groups"], key=lambda group: group["n"])
        if few["small"]:
            yield Finding(
                "caution",
                "chosen on few",
                f"The model was chosen on {settings['chosen_on']} rows of which {few['name']} has {few['n']}: another "
                "draw of rows might choose another one.",
            )


def _cautions(results: Results) -> Iterator[Finding]:
    if results["task"]["simulated"]:
        yield Finding(
            "note",
            "simulated",
            "The embeddings are simulated: these figures say nothing about any real CLIP model.",
        )
    section = results["groups"]
    report = section and (section["after"] or section["before"])
    if not report:
        return
    small = [f"{g['name']} (n={g['n']})" for g in report["groups"] if g["small"]]
    if small:
        listed = ", ".join(small[:SHOWN]) + (f" and {len(small) - SHOWN} more" if len(small) > SHOWN else "")
        yield Finding(
            "caution",
            "small groups",
            f"{len(small)} of {len(report['groups'])} groups {_are(len(small))} of fewer than "
            f"{results['settings']['small']} rows, too few to rank models by: {listed}.",
        )
    if report["empty"]:
        yield Finding(
            "caution",
            "empty groups",
            f"Nothing is known of groups without rows: {', '.join(report['empty'][:6])}.",
        )
