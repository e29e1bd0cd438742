"""Draw the picture of the README, accuracy by group before and after: ``python docs/pictures/before_after.py``.

The figures are of the model of the README on the simulated Waterbirds. The picture holds them as JSON, too, and has a
background of its own, so that it reads the same on light and dark pages.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from fairerclip import FairerCLIP
from fairerclip.data import simulate
from fairerclip.experiment import Experiment

PICTURE = Path(__file__).resolve().parents[1] / "images" / "before-after.svg"
COLOURS = {"zero-shot": "#8a94a3", "FairerCLIP": "#1f6fb2"}
LEFT, SCALE, BAR, BLOCK, TOP = 236, 4.4, 17, 58, 74
"""Left edge of the bars, width of one point, height of a bar and of a group, and upper edge of the first group."""


def measure() -> dict[str, Any]:
    """Return rows, correct answers and 95 % intervals by group and model, on the test rows."""
    task = simulate("waterbirds")
    experiment = Experiment.of(task)
    model = experiment.fit(FairerCLIP(random_state=0), "target")
    predictions = {"zero-shot": experiment.zero_shot(task.test), "FairerCLIP": model.predict(task.test.X)}
    reports = {name: experiment.report(task.test, predicted) for name, predicted in predictions.items()}
    return {
        "averages": {name: round(100 * report.average, 1) for name, report in reports.items()},
        "groups": {
            group.name: {
                "n": group.n,
                "models": {name: _percents(reports[name].groups[g]) for name in reports},
            }
            for g, group in enumerate(reports["zero-shot"].groups)
        },
    }


def _percents(group: Any) -> list[float]:
    """Return accuracy and interval of a group in per cent, with one decimal as drawn."""
    return [round(100 * value, 1) for value in (group.accuracy, group.low, group.high)]


def draw(figures: dict[str, Any]) -> str:
    """Return the picture as SVG."""
    groups = figures["groups"]
    foot = TOP + BLOCK * len(groups)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {foot + 62}" width="760" '
        f'height="{foot + 62}" role="img" font-family="system-ui, sans-serif" font-size="14" fill="#1c2430">',
        "<title>Accuracy by group before and after, simulated embeddings</title>",
        f"<metadata>{escape(json.dumps(figures))}</metadata>",
        f'<rect x="1" y="1" width="758" height="{foot + 60}" rx="10" fill="#ffffff" stroke="#8a94a3"/>',
        _text(20, 32, "Accuracy by group, per cent, before and after", size=17, weight=600),
    ]
    for k, (name, colour) in enumerate(COLOURS.items()):
        x = LEFT + 215 * k
        parts.append(f'<rect x="{x}" y="46" width="12" height="12" fill="{colour}"/>')
        parts.append(_text(x + 18, 57, f"{name} (average {figures['averages'][name]})"))
    for g, (name, group) in enumerate(groups.items()):
        y = TOP + BLOCK * g
        parts.append(_text(LEFT - 12, y + 20, name, anchor="end"))
        parts.append(_text(LEFT - 12, y + 37, f"n = {group['n']}", anchor="end", size=12, colour="#5a6472"))
        for k, (model, values) in enumerate(group["models"].items()):
            parts.append(_bar(y + 6 + (BAR + 2) * k, values, COLOURS[model]))
    notes = (
        "Simulated embeddings of two kinds of birds on two backgrounds, test rows; lines are 95 % intervals.",
        "The figures say nothing about any real CLIP model.",
    )
    parts += [_text(20, foot + 22 + 19 * k, note, size=13, colour="#5a6472") for k, note in enumerate(notes)]
    return "\n".join([*parts, "</svg>", ""])


def _bar(y: int, values: list[float], colour: str) -> str:
    value, low, high = values
    middle = y + BAR / 2
    a, b = (f"{LEFT + SCALE * end:.1f}" for end in (low, high))
    return (
        f'<rect x="{LEFT}" y="{y}" width="{SCALE * value:.1f}" height="{BAR}" fill="{colour}"/>'
        f'<path d="M{a} {middle}H{b}M{a} {y + 4}v{BAR - 8}M{b} {y + 4}v{BAR - 8}" stroke="#1c2430" fill="none"/>'
        + _text(LEFT + SCALE * high + 8, y + 13, f"{value:.1f}", size=13)
    )


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    size: int = 14,
    weight: int = 400,
    colour: str = "#1c2430",
) -> str:
    style = f'text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" fill="{colour}"'
    return f'<text x="{x:.1f}" y="{y}" {style}>{escape(text)}</text>'


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(measure()), encoding="utf-8")
    print(f"written to {PICTURE}")
