"""One self-contained HTML page from a results dict: a product owner can read it, an engineer can check it.

The page makes no request, and its content security policy names the one script and the one style it holds by
their hashes. All text in the results is taken to be hostile: it is stripped of control and direction characters
here, escaped by the template, and set as text by the script.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from importlib.resources import files
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

Json = Any
Results = Mapping[str, Any]

NOTHING = "–"
MOST_GROUPS = 4
"""Groups that are listed by name under what was paid."""
_JOINERS = {"\u200c", "\u200d"}  # words of several scripts, and many emoji, need them
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
_IN_SCRIPT = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}
_PLACEHOLDER = re.compile(r"\{(tau|tau_z|criterion)\}")
_HEADLINE = {
    "average": "Average accuracy",
    "worst_group": "Worst-group accuracy",
    "eod": "Equal opportunity difference",
}
_SKEWS = {"max_skew": "MaxSkew, mean over queries", "ndkl": "NDKL, mean over queries"}
_EXPLAINED = {
    "average": "Share of all rows that are classified right.",
    "worst_group": "The same share in the group where it is lowest.",
    "eod": "How far the groups are apart in being recognised; 0 is equal.",
    "max_skew": "How over-represented the most favoured group is among the first hits; 0 is proportional.",
    "ndkl": "How far the order of the hits is from the population; 0 is proportional.",
}


def render_page(results: Results, *, title: str | None = None) -> str:
    """HTML of the report on one results dict (see docs/report.md); O(size of the results).

    Parameters
    ----------
    results : mapping
        What an audit wrote, already validated. Sections that are None are left out.
    title : str, optional
        Heading of the page; made from the task's name unless given.

    Returns
    -------
    str
        A whole document that needs no other file and no network.
    """
    cleaned = _cleaned(results)
    cards = _cards(cleaned)
    style, script = _asset("page.css"), _asset("page.js")
    template = _environment().get_template("page.html.j2")
    page = template.render(
        r=cleaned,
        title=_clean_text(title) if title else f"{cleaned['task']['name']}: how each group fares",
        policy=_policy(style, script),
        style=Markup(style),  # noqa: S704 - our own file
        script=Markup(script),  # noqa: S704 - our own file
        data=Markup(_embedded(cleaned)),  # noqa: S704 - escaped for a script element there
        sections=_sections(cleaned),
        absent=_absent(cleaned),
        cards=cards,
        trade=_trade(cleaned, cards),
        confusion=_confusion(cleaned),
        point=_chosen_point(cleaned),
        command=_command(cleaned),
    )
    return page.lstrip()


def _asset(name: str) -> str:
    # Browsers hash the text with line feeds alone, whatever the checkout made of them.
    return (files(__package__) / "templates" / name).read_text(encoding="utf-8").replace("\r\n", "\n")


def _environment() -> Environment:
    environment = Environment(
        loader=DictLoader({"page.html.j2": _asset("page.html.j2")}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": percent,
        "points": points,
        "number": number,
        "signed": signed,
        "interval": interval,
        "setting": setting,
        "shown": shown,
        "bound": lambda text: text.replace(" %", "\u00a0%"),
        "brief": lambda x: f"{x:.6g}",
        "grouped": lambda n: NOTHING if n is None else f"{n:,}".replace(",", "\u202f"),
    }
    return environment


def _policy(style: str, script: str) -> str:
    """Content security policy that allows these two texts and nothing else."""
    return (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _embedded(results: Json) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(results, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_IN_SCRIPT)


def _clean_text(text: str) -> str:
    r"""Text without control, direction or lone surrogate characters: what is read is what is there.

    Examples
    --------
    >>> _clean_text("a\tb\u202ec")
    'a b�c'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_clean_character, text))


def _clean_character(mark: str) -> str:
    if mark.isspace() and mark not in "\u00a0\u202f":
        return " "
    return "\ufffd" if unicodedata.category(mark) in _HIDDEN and mark not in _JOINERS else mark


def _cleaned(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {_clean_text(str(key)): _cleaned(item) for key, item in value.items()}
    if isinstance(value, str):
        return _clean_text(value)
    return [_cleaned(item) for item in value] if isinstance(value, list | tuple) else value


def _rounded(value: float, digits: int, *, plus: bool = False) -> str:
    """Decimal text, halves away from zero as the script's toFixed does, with a true minus sign."""
    text = str(Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))
    if not text.strip("-0."):
        return text.lstrip("-")
    return "−" + text[1:] if text.startswith("-") else "+" * plus + text


def percent(value: float | None) -> str:
    r"""Share as per cent with one decimal; the space before the sign does not break.

    Examples
    --------
    >>> percent(0.8449), percent(0.0625), percent(None)
    ('84.5\xa0%', '6.3\xa0%', '–')
    """
    return NOTHING if value is None else _rounded(value * 100, 1) + "\u00a0%"


def points(value: float | None) -> str:
    """Difference of two shares in percentage points, with its sign.

    Examples
    --------
    >>> points(0.1234), points(-0.02), points(0.0)
    ('+12.3', '−2.0', '0.0')
    """
    return NOTHING if value is None else _rounded(value * 100, 1, plus=True)


def number(value: float | None, digits: int = 3) -> str:
    """Plain number with a fixed count of decimals."""
    return NOTHING if value is None else _rounded(value, digits)


def signed(value: float | None, digits: int = 3) -> str:
    """Plain number with its sign."""
    return NOTHING if value is None else _rounded(value, digits, plus=True)


def interval(low: float | None, high: float | None, kind: str = "percent") -> str:
    """Interval in brackets; nothing where there is none.

    Examples
    --------
    >>> interval(0.1, 0.25), interval(-0.1, 0.25, "points"), interval(None, None)
    ('[10.0, 25.0]', '[−10.0, +25.0]', '')
    """
    if low is None and high is None:
        return ""
    form: dict[str, Callable[[float | None], str]] = {
        "percent": lambda x: percent(x).removesuffix("\u00a0%"),
        "points": points,
        "number": number,
        "fine": lambda x: number(x, 4),
        "signed": signed,
    }
    return f"[{form[kind](low)}, {form[kind](high)}]"


def setting(value: float) -> str:
    """A value of τ or τ_z as one types it: at most four decimals, no trailing zeros."""
    text = _rounded(value, 4)
    return text.rstrip("0").rstrip(".") if "." in text else text


def shown(value: Json) -> str:
    """Any JSON value on one line."""
    if value is None or isinstance(value, str):
        return NOTHING if value is None else value
    return _typed(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def _has_reports(results: Results) -> bool:
    groups = results["groups"]
    return bool(groups and (groups["before"] or groups["after"]))


def _present(results: Results) -> list[tuple[str, str, bool]]:
    reading = ("probes", "dependence", "representation", "wording")
    return [
        ("groups", "Before and after, by group", _has_reports(results)),
        ("explorer", "Trade-off explorer", results["plane"] is not None),
        ("confusion", "Which mistakes, in which group", _has_reports(results)),
        ("scores", "Scores by group", results["scores"] is not None),
        ("picture", "The embedding in two dimensions", results["picture"] is not None),
        ("retrieval", "Who is found first", results["retrieval"] is not None),
        ("reading", "What can still be read of S", any(results[name] for name in reading)),
    ]


def _sections(results: Results) -> list[tuple[str, str]]:
    """Id and heading of each section of this page, in order."""
    found = [(key, label) for key, label, there in _present(results) if there]
    ends = [("method", "Method, data and versions"), ("limits", "What this does not show")]
    return [("summary", "Summary"), *found, *ends]


def _absent(results: Results) -> list[str]:
    return [label for _, label, there in _present(results) if not there]


def _tone(better: str | None, change: Results | None) -> str | None:
    """Whether a change is for the better, beyond its interval."""
    if change is None or change["difference"] is None or better is None:
        return None
    low, high = change["low"], change["high"]
    if low is None or high is None or low <= 0 <= high:
        return "unclear"
    return "better" if (change["difference"] > 0) == (better == "higher") else "worse"


def _cards(results: Results) -> list[dict[str, Json]]:
    """The headline: average, worst group and EOD, or what retrieval has instead."""
    return (
        _group_cards(results["groups"]) if _has_reports(results) else _retrieval_cards(results["retrieval"])
    )


def _trade(
    results: Results, cards: Sequence[dict[str, Json]]
) -> list[tuple[str, list[dict[str, Json]], int]]:
    """What was gained and what was paid: (word, items, items left out); empty where nothing was compared.

    The price is more than headline figures: the average as training weighs it, and every group that is worse off.
    """
    compared = [card for card in cards if card["tone"]]
    if not compared:
        return []
    paid = [card for card in compared if card["tone"] == "worse"]
    groups = results["groups"] or {}
    for item in groups.get("changes") or ():
        if item["figure"] == "train_weighted_average" and _tone("higher", item) == "worse":
            paid.append({"label": item["label"], "change": item, "change_kind": "points"})
    worse = [item for item in groups.get("group_changes") or () if _tone("higher", item) == "worse"]
    worse.sort(key=lambda item: item["difference"])
    paid += [{"label": item["name"], "change": item, "change_kind": "points"} for item in worse[:MOST_GROUPS]]
    gained = [card for card in compared if card["tone"] == "better"]
    return [("Gained", gained, 0), ("Paid", paid, max(0, len(worse) - MOST_GROUPS))]


def _group_cards(groups: Results) -> list[dict[str, Json]]:
    changes = {row["figure"]: row for row in groups["changes"] or ()}
    cards = []
    for figure, label in _HEADLINE.items():
        stages = {stage: _figure(groups[stage], figure) for stage in ("before", "after")}
        if not any(stages.values()):
            continue
        change = changes.get(figure)
        better = change["better"] if change else "lower" if figure == "eod" else "higher"
        tone = _tone(better, change)
        kinds = {"kind": "percent", "change_kind": "points", "help": _explained(figure, groups)}
        cards.append({"figure": figure, "label": label, **stages, "change": change, "tone": tone, **kinds})
    return cards


def _explained(figure: str, groups: Results) -> str:
    """What a figure is, with the class that EOD is about where there is one."""
    positive = (groups["before"] or groups["after"])["positive"]
    if figure == "eod" and positive is not None:
        return f"How far the groups are apart in “{positive}” being recognised; 0 is equal."
    return _EXPLAINED[figure]


def _figure(report: Results | None, figure: str) -> dict[str, Json] | None:
    """Value and interval of one figure of a group report."""
    if report is None:
        return None
    worst = report["worst"] if figure == "worst_group" else None
    value = worst["accuracy"] if worst else report[figure]
    if value is None:
        return None
    ends = report["intervals"].get(figure) or ([worst["low"], worst["high"]] if worst else [None, None])
    return {"value": value, "low": ends[0], "high": ends[1], "name": worst["name"] if worst else None}


def _retrieval_cards(retrieval: Results | None) -> list[dict[str, Json]]:
    if retrieval is None:
        return []
    mean, cards = retrieval["mean"], []
    for figure, label in _SKEWS.items():
        stages = {stage: _estimate(mean[stage], figure) for stage in ("before", "after")}
        change = (mean["changes"] or {}).get(figure)
        kinds = {"kind": "number", "change_kind": "signed", "help": _EXPLAINED[figure]}
        card = {"figure": figure, "label": label, **stages, "change": change, "tone": _tone("lower", change)}
        cards.append({**card, **kinds})
    return [card for card in cards if card["before"] or card["after"]]


def _estimate(stage: Results | None, figure: str) -> dict[str, Json] | None:
    found = stage[figure] if stage else None
    return {**found, "name": None} if found else None


def _names(labels: Sequence[Json], names: Sequence[str]) -> list[str]:
    """Names of labels that may be numbers into them."""
    return [names[x] if isinstance(x, int) and 0 <= x < len(names) else str(x) for x in labels]


def _confusion(results: Results) -> list[dict[str, Json]]:
    """Per sensitive value, the table before and the table after."""
    if not _has_reports(results):
        return []
    groups, task = results["groups"], results["task"]
    known = groups["before"] or groups["after"]
    classes = _names(known["classes"], task["classes"])
    tables = []
    for index, name in enumerate(_names(known["sensitive"], task["groups"])):
        stages = {
            stage: _confusion_rows(groups[stage]["confusion"][index], classes) if groups[stage] else None
            for stage in ("before", "after")
        }
        tables.append({"name": name, "classes": classes, **stages})
    return tables


def _confusion_rows(counts: Sequence[Sequence[int]], classes: Sequence[str]) -> list[dict[str, Json]]:
    rows = []
    for i, row in enumerate(counts):
        total = sum(row)
        shares = [n / total if total else None for n in row]
        cells = [
            {"n": n, "share": share, "shade": round(10 * (share or 0)), "right": i == j}
            for j, (n, share) in enumerate(zip(row, shares, strict=True))
        ]
        rows.append({"name": classes[i], "n": total, "cells": cells})
    return rows


def _chosen_point(results: Results) -> Json:
    plane = results["plane"]
    return plane["points"][plane["chosen"]] if plane else None


def _command(results: Results) -> str | None:
    """The command that fits the chosen point."""
    point = _chosen_point(results)
    if point is None:
        return results["model"]["command"] if results["model"] else None
    values = {"tau": _typed(point["tau"]), "tau_z": _typed(point["tau_z"]), "criterion": point["criterion"]}
    return _PLACEHOLDER.sub(lambda found: values[found[1]], results["plane"]["command"])


def _typed(value: float) -> str:
    """A number as the script writes it: twelve digits, without the noise of the last ones of 0.1 + 0.2."""
    return f"{value:.12g}"
