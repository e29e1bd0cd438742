"""The self-contained HTML page that shows the results of an audit.

The page makes no request; its content security policy allows only its own script and style, by their hashes. All text
in the results is treated as hostile: control and direction characters are replaced here, the template escapes it, and
the script sets it as text.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

from jinja2 import Environment
from markupsafe import Markup, escape

from fairerclip._util import numbers
from fairerclip._util.clean_text import clean, cleaned, shorten
from fairerclip.auditing.display_names import NAMELESS
from fairerclip.auditing.model_facts import subject
from fairerclip.auditing.recommendation import recommend
from fairerclip.auditing.results import AuditResults
from fairerclip.metrics import names
from fairerclip.report import page_parts, phrases
from fairerclip.report.answer_picture import answer_picture
from fairerclip.report.assets import asset, asset_hash, template_environment
from fairerclip.report.command import MISSING, filled, known_command
from fairerclip.report.glossary import GLOSSARY
from fairerclip.report.stage_rows import auc_rows, figure_rows, group_rows

_BACKTICKS = re.compile("`([^`]+)`")
_IN_SCRIPT = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}


def render_page(results: AuditResults, *, title: str | None = None) -> str:
    """Render the results of an audit as one HTML page (see docs/explanation/report.md); O(size of the results).

    Parameters
    ----------
    results : AuditResults
        Results of an audit. Sections that are None are left out.
    title : str, optional
        Heading of the page; by default made from the task's name.

    Returns
    -------
    str
        A complete document that needs no other file and no network.
    """
    all_results = cleaned(results.model_dump(by_alias=True))
    display = phrases.presentable(results)
    style, script = asset("page.css"), asset("page.js")
    template = _environment().get_template("page.html.j2")
    page = template.render(
        r=display,
        title=clean(title) if title else f"{display.task.name}: audit by group",
        policy=_policy(style, script),
        style=Markup(style),  # noqa: S704 - our own file
        script=Markup(script),  # noqa: S704 - our own file
        data=Markup(_embedded(all_results)),  # noqa: S704 - escaped for a script element by _embedded
        shown_figures=SCRIPTED,
        names=Markup(_embedded(_script_names())),  # noqa: S704 - escaped for a script element by _embedded
        **_parts(display),
    )
    return page.lstrip()


def _parts(results: AuditResults) -> dict[str, Any]:
    """Return the variables of the template besides the results; commands that are not safe to copy are None."""
    cards, plane, model = page_parts.cards(results), results.plane, results.model
    point = plane.points[plane.chosen] if plane else None
    command = known_command(plane.command) if plane else None
    return {
        "answer": recommend(results),
        "picture": answer_picture(results),
        "sections": page_parts.sections(results),
        "gists": page_parts.GISTS,
        "findings": page_parts.findings(results),
        "curve": page_parts.curve(results),
        "loses": page_parts.loses(results),
        "glossary": GLOSSARY,
        "terms": {term: index for index, term in enumerate(GLOSSARY)},
        "absent": page_parts.absent(results),
        "cards": cards,
        "trade": page_parts.trade(results, cards),
        "group_rows": group_rows(results.groups),
        "figure_rows": figure_rows(results.groups),
        "auc_rows": auc_rows(results.auc),
        "about_auc": phrases.about_auc(results),
        "about_bias": phrases.about_bias(results.retrieval) if results.retrieval else None,
        "seed_rows": page_parts.seed_rows(results),
        "count_rows": page_parts.count_rows(results),
        "confusion": page_parts.confusion(results),
        "free_queries": page_parts.free_queries(results),
        "people": phrases.people(results),
        "point": point,
        "how_chosen": phrases.how_chosen(results),
        "plane_order": page_parts.plane_order(results),
        "fewest": phrases.fewest_rows(results),
        "given": phrases.is_given(results),
        "nameless": NAMELESS in results.task.sensitive,
        "baseline": phrases.is_baseline(results),
        "after_name": "Mitigated" if model and model.mitigator else phrases.stage_names(results)["after"],
        "method_name": subject(model),
        "about_model": phrases.about_model(results),
        "versions": phrases.versions(results),
        "command": command and point and filled(command, point),
        "model_command": known_command(model.command) if model else None,
        "missing": MISSING,
    }


FILTERS = ("percent", "measured", "number", "significant", "interval", "setting", "count", "shown")
NAMES = ("FIGURES", "RETRIEVAL", "DRIFT", "DEPENDENCE", "REPRESENTATION", "PROBE", "CHANCE", "PROBES")
SCRIPTED = ("average", "worst_group", "eod", "gap")
"""Figures that the script shows."""


@cache
def _environment() -> Environment:
    """Return the template environment with our number filters and names of figures.

    It is made once, because to compile the template takes longer than to fill it.
    """
    environment = template_environment("page.html.j2")
    environment.filters |= {
        **{name: getattr(numbers, name) for name in FILTERS},
        "short": shorten,
        "coded": _coded,
        "bound": lambda text: text.replace(" %", "\u00a0%"),
        "grouped": lambda n: numbers.NOTHING if n is None else f"{n:,}".replace(",", "\u202f"),
    }
    environment.globals |= {name: getattr(names, name) for name in NAMES}
    return environment


def _coded(text: str) -> Markup:
    """Return a text with its words in backticks as code; the text is escaped first, because names in it are foreign."""
    return Markup(_BACKTICKS.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped


def _policy(style: str, script: str) -> str:
    """Return a content security policy that allows these two texts and nothing else."""
    return (
        f"default-src 'none'; script-src '{asset_hash(script)}'; style-src '{asset_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _script_names() -> dict[str, Any]:
    """Return the names of figures and probes that the script needs."""
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


def _embedded(value: dict[str, Any]) -> str:
    """Return JSON that cannot close the script element around it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_IN_SCRIPT)
