"""What the page is made of: its sections, cards, rows and tables, matched by class and sensitive value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairerclip.metrics.names import FIGURES, RETRIEVAL, figure_of
from fairerclip.report.estimates import estimate_of

Json = Any
Results = Mapping[str, Any]
Key = tuple[Any, Any]

STAGES = ("before", "after")
MOST_NAMED = 6
"""Groups and prompts that are listed by name under what was paid and what was gained."""
HOW_CHOSEN = {
    "expected worst group": "groups are judged by a posterior over their accuracies and not by raw shares, and "
    "held-out halves of the rows decide how far the search is trusted. It went over more than this plane (weights, "
    "kernel, ridge, zero-shot share, class offsets), so that another point of the plane may look better here",
    "shrunken_worst_group": "a few rows of the average are added to each group before groups are compared, so that one "
    "row does not decide",
}
"""How a point was chosen, by the name that the results give it; names that nobody knows are left as they are."""
_HEADLINE = ("average", "worst_group", "eod")
_SKEWS = ("max_skew", "ndkl")
_EXPLAINED = {
    "average": "Share of all rows that are classified right.",
    "worst_group": "The same share in the group where it is lowest.",
    "eod": "How far the groups are apart in being recognised; 0 is equal.",
    "max_skew": "How over-represented the most favoured group is among the first hits; 0 is proportional.",
    "ndkl": "How far the order of the hits is from the population; 0 is proportional.",
}


def has_reports(results: Results) -> bool:
    """Whether there is accuracy by group."""
    groups = results["groups"]
    return bool(groups and (groups["before"] or groups["after"]))


def _present(results: Results) -> list[tuple[str, str, bool]]:
    reading = ("probes", "dependence", "representation", "wording")
    compared = results["model"] is not None
    return [
        ("groups", "Before and after, by group" if compared else "Accuracy by group", has_reports(results)),
        ("explorer", "Trade-off explorer", results["plane"] is not None),
        ("confusion", "Which mistakes, in which group", has_reports(results)),
        ("scores", "Scores by group", results["scores"] is not None),
        ("picture", "The embedding in two dimensions", results["picture"] is not None),
        ("retrieval", "Who is found first", results["retrieval"] is not None),
        (
            "reading",
            "What can still be read of S" if compared else "What can be read of S",
            any(results[name] for name in reading),
        ),
    ]


def sections(results: Results) -> list[tuple[str, str]]:
    """Id and heading of each section of this page, in order."""
    found = [(key, label) for key, label, there in _present(results) if there]
    ends = [("method", "Method, data and versions"), ("limits", "What this does not show")]
    return [("summary", "Summary"), *found, *ends]


def how_chosen(results: Results) -> str | None:
    """By what the point of the plane was chosen, and what that means; None where it was given."""
    plane = results["plane"]
    if plane is None or plane["chosen_by"] == "given":
        return None
    name = plane["chosen_by"]
    told = f": {HOW_CHOSEN[name]}" if name in HOW_CHOSEN else ""
    return f"by the {name.replace('_', ' ')} on the {plane['split']} rows{told}"


def absent(results: Results) -> list[str]:
    """Headings of the sections that these results do not have."""
    return [label for _, label, there in _present(results) if not there]


def _tone(better: str | None, change: Results | None) -> str | None:
    """Whether a change is for the better, beyond its interval."""
    if change is None or change["difference"] is None or better is None:
        return None
    low, high = change["low"], change["high"]
    if low is None or high is None or low <= 0 <= high:
        return "unclear"
    return "better" if (change["difference"] > 0) == (better == "higher") else "worse"


def cards(results: Results) -> list[dict[str, Json]]:
    """The headline: average, worst group and EOD, or what retrieval has instead."""
    return _group_cards(results["groups"]) if has_reports(results) else _retrieval_cards(results["retrieval"])


def trade(results: Results, cards: Sequence[dict[str, Json]]) -> list[tuple[str, list[dict[str, Json]], int]]:
    """What was paid and what was gained: (word, items, items left out); empty where nothing was compared.

    More than headline figures: the average as training weighs it, and every group and every prompt that is worse or
    better off beyond doubt, all groups and all prompts taken together.
    """
    compared = [card for card in cards if card["tone"]]
    if not compared:
        return []
    groups, retrieval = results["groups"] or {}, results["retrieval"] or {}
    weighted = [
        _item(FIGURES[item["figure"]].label, item, "higher")
        for item in groups.get("changes") or ()
        if item["figure"] == "train_weighted_average"
    ]
    clear = [
        _item(item["name"], item, "higher") for item in groups.get("group_changes") or () if item["clear"]
    ]
    clear += [
        _item(f"{RETRIEVAL['max_skew'].label} for “{query['name']}”", query["changes"]["max_skew"], "lower")
        for query in retrieval.get("queries") or ()
        if query["clear"] and query["changes"] and query["changes"]["max_skew"]
    ]
    found = []
    for word, tone in (("Paid", "worse"), ("Gained", "better")):
        items = [item for item in [*compared, *weighted] if item["tone"] == tone]
        named = [item for item in clear if item["tone"] == tone]
        named.sort(key=lambda item: -abs(item["change"]["difference"]))
        found.append((word, [*items, *named[:MOST_NAMED]], max(0, len(named) - MOST_NAMED)))
    return found


def _item(label: str, change: Results, better: str) -> dict[str, Json]:
    kind = "change" if better == "higher" else "signed"
    return {"label": label, "change": change, "change_kind": kind, "tone": _tone(better, change)}


def _group_cards(groups: Results) -> list[dict[str, Json]]:
    changes = {row["figure"]: row for row in groups["changes"] or ()}
    cards = []
    for name in _HEADLINE:
        stages = {stage: _figure(groups[stage], name) for stage in STAGES}
        if not any(stages.values()):
            continue
        figure, moved = FIGURES[name], changes.get(name)
        tone = _tone(figure.better, moved)
        kinds = {"kind": figure.kind, "change_kind": figure.change_kind, "help": _explained(name, groups)}
        cards.append(
            {"figure": name, "label": figure.label, **stages, "change": moved, "tone": tone, **kinds}
        )
    return cards


def _explained(figure: str, groups: Results) -> str:
    """What a figure is, with the class that EOD is about where there is one."""
    positive = (groups["before"] or groups["after"])["positive"]
    if figure == "eod" and positive is not None:
        return f"How far the groups are apart in “{positive}” being recognised; 0 is equal."
    return _EXPLAINED[figure]


def group_rows(results: Results) -> list[dict[str, Json]]:
    """Each group, by class and sensitive value, with its report before and after and its change."""
    if not has_reports(results):
        return []
    groups = results["groups"]
    found = {stage: _by_group(groups[stage]["groups"] if groups[stage] else ()) for stage in STAGES}
    changes = _by_group(groups["group_changes"] or ())
    every = found["before"] | {key: row for key, row in found["after"].items() if key not in found["before"]}
    return [
        {
            **{name: row[name] for name in ("name", "n", "small")},
            **{stage: _with_value(found[stage].get(key)) for stage in STAGES},
            "change": changes.get(key),
        }
        for key, row in every.items()
    ]


def _by_group(rows: Sequence[Results]) -> dict[Key, Results]:
    return {(row["y"], row["s"]): row for row in rows}


def _with_value(row: Results | None) -> dict[str, Json] | None:
    return None if row is None else {"value": row["accuracy"], "low": row["low"], "high": row["high"]}


def figure_rows(results: Results) -> list[dict[str, Json]]:
    """Every figure that there is before or after, with its change where that was measured."""
    if not has_reports(results):
        return []
    groups = results["groups"]
    changes = {row["figure"]: row for row in groups["changes"] or ()}
    rows = []
    for name, figure in FIGURES.items():
        stages = {stage: _figure(groups[stage], name) for stage in STAGES}
        change = changes.get(name)
        if not any(stages.values()) and change is None:
            continue
        row = {"label": figure.label, "better": figure.better or "nearer to 0", "kind": figure.kind}
        rows.append({**row, **stages, "change": change})
    return rows


def seed_rows(results: Results) -> list[dict[str, Json]]:
    """The spread of each figure over seeds, with the unit of the figure."""
    seeds = results["groups"] and results["groups"]["seeds"]
    if not seeds:
        return []
    figures = [figure_of(row["figure"], row["label"]) for row in seeds["figures"]]
    return [
        {**row, "label": figure.label, "kind": figure.kind}
        for row, figure in zip(seeds["figures"], figures, strict=True)
    ]


def count_rows(results: Results) -> list[dict[str, Json]]:
    """Rows of each class in each split, counted by sensitive value."""
    task, rows = results["task"], []
    for split, cells in task["counts"].items():
        found = {(cell["y"], cell["s"]): cell["n"] for cell in cells}
        rows += [
            {"split": split, "y": y, "counts": [found.get((y, s)) for s in task["groups"]]}
            for y in task["classes"]
        ]
    return rows


def plane_order(results: Results) -> list[int]:
    """Groups of the plane in the order in which the table of groups has them."""
    if results["plane"] is None:
        return []
    cells = [(group["y"], group["s"]) for group in results["plane"]["groups"]]
    report = (results["groups"] or {}).get("before") or (results["groups"] or {}).get("after")
    places = {(group["y"], group["s"]): i for i, group in enumerate(report["groups"] if report else ())}
    return sorted(range(len(cells)), key=lambda g: (places.get(cells[g], len(places)), g))


def fewest_rows(results: Results) -> int | None:
    """Rows of the smallest group that points of the plane are judged by, where these are few."""
    sizes = [group["n"] for group in results["plane"]["groups"]] if results["plane"] else []
    few = [n for n in sizes if n < results["settings"]["small"]]
    return min(few, default=None)


def is_given(results: Results) -> bool:
    """Whether the model was given, so that only its file tells how it was fitted."""
    model = results["model"]
    return model is not None and (model["source"] == "given" or model["labels"] is None)


def _figure(report: Results | None, figure: str) -> dict[str, Json] | None:
    """Value and interval of one figure of a group report."""
    if report is None:
        return None
    found = estimate_of(report, figure)
    if found["value"] is None:
        return None
    return {**found, "name": report["worst"]["name"] if figure == "worst_group" else None}


def _retrieval_cards(retrieval: Results | None) -> list[dict[str, Json]]:
    if retrieval is None:
        return []
    mean, cards = retrieval["mean"], []
    for name in _SKEWS:
        figure = RETRIEVAL[name]
        stages = {stage: _estimate(mean[stage], name) for stage in STAGES}
        change = (mean["changes"] or {}).get(name)
        kinds = {"kind": figure.kind, "change_kind": figure.change_kind, "help": _EXPLAINED[name]}
        card = {"figure": name, "label": f"{figure.label}, mean over prompts", **stages, "change": change}
        cards.append({**card, "tone": _tone(figure.better, change), **kinds})
    return [card for card in cards if card["before"] or card["after"]]


def _estimate(stage: Results | None, figure: str) -> dict[str, Json] | None:
    found = stage[figure] if stage else None
    return {**found, "name": None} if found else None


def _names(labels: Sequence[Json], names: Sequence[str]) -> list[str]:
    """Names of labels that may be numbers into them."""
    return [names[x] if isinstance(x, int) and 0 <= x < len(names) else str(x) for x in labels]


def confusion(results: Results) -> list[dict[str, Json]]:
    """Per sensitive value, the table before and the table after."""
    if not has_reports(results):
        return []
    groups, task = results["groups"], results["task"]
    known = groups["before"] or groups["after"]
    classes = _names(known["classes"], task["classes"])
    tables = []
    for index, name in enumerate(_names(known["sensitive"], task["groups"])):
        stages = {
            stage: _confusion_rows(groups[stage]["confusion"][index], classes) if groups[stage] else None
            for stage in STAGES
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
