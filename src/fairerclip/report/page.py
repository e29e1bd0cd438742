"""One self-contained HTML page from a results dict: a product owner can read it, an engineer can check it.

The page makes no request, and its content security policy names the one script and the one style it holds by
their hashes. All text in the results is taken to be hostile: it is stripped of control and direction characters
here, escaped by the template, and set as text by the script.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from fairerclip._util import numbers
from fairerclip.auditing.model_words import about_model
from fairerclip.metrics import names
from fairerclip.report import page_parts
from fairerclip.report.clean_text import clean, cleaned, shorten, with_short_names
from fairerclip.report.command import MISSING, filled, known_command
from fairerclip.report.estimates import stage_names

Json = Any
Results = Mapping[str, Any]

_IN_SCRIPT = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}


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
    whole = cleaned(results)
    brief = with_short_names(whole)
    style, script = _asset("page.css"), _asset("page.js")
    template = _environment().get_template("page.html.j2")
    page = template.render(
        r=brief,
        title=clean(title) if title else f"{brief['task']['name']}: how each group fares",
        policy=_policy(style, script),
        style=Markup(style),  # noqa: S704 - our own file
        script=Markup(script),  # noqa: S704 - our own file
        data=Markup(_embedded(whole)),  # noqa: S704 - escaped for a script element there
        shown_figures=SCRIPTED,
        names=Markup(_embedded(_script_names())),  # noqa: S704 - likewise
        **_parts(brief),
        **_commands(results, brief),
    )
    return page.lstrip()


def _parts(results: Results) -> dict[str, Json]:
    cards = page_parts.cards(results)
    plane = results["plane"]
    return {
        "sections": page_parts.sections(results),
        "absent": page_parts.absent(results),
        "cards": cards,
        "trade": page_parts.trade(results, cards),
        "group_rows": page_parts.group_rows(results),
        "figure_rows": page_parts.figure_rows(results),
        "seed_rows": page_parts.seed_rows(results),
        "count_rows": page_parts.count_rows(results),
        "confusion": page_parts.confusion(results),
        "point": plane["points"][plane["chosen"]] if plane else None,
        "how_chosen": page_parts.how_chosen(results),
        "plane_order": page_parts.plane_order(results),
        "fewest": page_parts.fewest_rows(results),
        "given": page_parts.is_given(results),
        "after_name": stage_names(results)["after"],
        "about_model": about_model(results["model"]) if results["model"] else [],
    }


def _commands(results: Results, brief: Results) -> dict[str, str | None]:
    """What fits the chosen point and the model; None for what may not be copied.

    Commands are judged as they came: what was hidden in them is no longer seen once they are clean.
    """
    plane, model = results["plane"], results["model"]
    template = known_command(plane["command"]) if plane else None
    return {
        "command": template and filled(template, brief["plane"]["points"][plane["chosen"]]),
        "model_command": known_command(model["command"]) if model else None,
        "missing": MISSING,
    }


def _asset(name: str) -> str:
    # Browsers hash the text with line feeds alone, whatever the checkout made of them.
    return (files(__package__) / "templates" / name).read_text(encoding="utf-8").replace("\r\n", "\n")


FILTERS = ("percent", "measured", "number", "significant", "interval", "setting", "count", "shown")
NAMES = ("FIGURES", "RETRIEVAL", "DRIFT", "DEPENDENCE", "REPRESENTATION", "PROBE", "CHANCE", "PROBES")
SCRIPTED = ("average", "worst_group", "eod", "gap")
"""Figures that the script shows."""


def _environment() -> Environment:
    environment = Environment(
        loader=DictLoader({"page.html.j2": _asset("page.html.j2")}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        **{name: getattr(numbers, name) for name in FILTERS},
        "short": shorten,
        "bound": lambda text: text.replace(" %", "\u00a0%"),
        "grouped": lambda n: numbers.NOTHING if n is None else f"{n:,}".replace(",", "\u202f"),
    }
    environment.globals |= {name: getattr(names, name) for name in NAMES}
    return environment


def _policy(style: str, script: str) -> str:
    """Content security policy that allows these two texts and nothing else."""
    return (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _script_names() -> Json:
    """What the script calls figures and probes."""
    figures = {name: names.FIGURES[name] for name in SCRIPTED}
    return {
        "figures": {
            name: {**figure._asdict(), "column": figure.column, "column_kind": figure.column_kind}
            for name, figure in figures.items()
        },
        "probes": names.PROBES,
        "probe": names.PROBE.label,
        "chance": names.CHANCE.label,
    }


def _embedded(results: Json) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(results, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_IN_SCRIPT)
