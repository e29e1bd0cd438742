"""A valid document changed at random: it is refused with one error, or every format can be made of it.

`make fuzz` tries many more.
"""

from __future__ import annotations

import copy
import json
import os
import random
import warnings

import pytest
import sample

from fairerclip.auditing.results import read_results
from fairerclip.errors import ResultsFileError
from fairerclip.report.card import render_card
from fairerclip.report.csv_tables import write_csv
from fairerclip.report.figures.draw import STYLE
from fairerclip.report.figures.drawings import DRAWINGS
from fairerclip.report.markdown import render_markdown
from fairerclip.report.page import render_page

JUNK = [
    *(None, True, -1, 0, 1, 2, 0.5, -0.5, 1e-300, 1e15, -1e15, 10**400, float("nan"), float("inf"), 2.5),
    *("", "x", "\ud800", "\x00", "$x$", "_y", "=1", "長い", "a" * 5000, "before", "after", "dep"),
    *([], {}, [1], [0, 1], {"a": 1}, [None], [[]], [{}]),
]
DOCUMENTS = int(os.environ.get("DOCUMENTS", "10"))
"""Changed documents for each seed."""
DRAWN_OF = {"plane": ["front", "plane"], "settings": ["front", "groups"], "task": []}


def places(value, path=()):
    yield path
    for key, part in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from places(part, (*path, key))


def mutate(document, rng):
    """Change one place of one section: replace, delete, repeat, shorten, null, or take from elsewhere."""
    section = rng.choice(list(document))
    inside = list(places(document[section]))
    path = (section, *rng.choice(inside))
    *above, last = path
    parent = document
    for key in above:
        parent = parent[key]
    action = rng.choice(["replace", "replace", "null", "delete", "repeat", "shorten", "swap", "nudge"])
    value = parent[last]
    if action == "delete":
        del parent[last]
    elif action == "repeat" and isinstance(value, list) and value:
        parent[last] = [*value, rng.choice(value)]
    elif action == "shorten" and isinstance(value, list) and value:
        parent[last] = value[:-1]
    elif action == "nudge" and isinstance(value, int | float) and not isinstance(value, bool):
        parent[last] = value * rng.choice([0, -1, 0.5, 2, 1e9])
    elif action == "swap":
        other = document[section]
        for key in rng.choice(inside):
            other = other[key]
        parent[last] = copy.deepcopy(other)
    else:
        parent[last] = None if action == "null" else copy.deepcopy(rng.choice(JUNK))
    return section


def make_everything(results, section, folder):
    assert render_markdown(results).encode()
    assert render_card(results).encode()
    assert render_page(results).encode()
    write_csv(results, folder, overwrite=True)
    matplotlib = pytest.importorskip("matplotlib")
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a reader's language, not an error
        for name in DRAWN_OF.get(section, [section] if section in DRAWINGS else []):
            figure = DRAWINGS[name](results)
            if figure is not None:
                figure.draw_without_rendering()


@pytest.mark.parametrize("seed", range(4))
def test_a_changed_document_is_refused_or_renders_in_every_format(seed, tmp_path):
    rng = random.Random(seed + 100)
    valid = [sample.with_queries(), sample.two_class(taus=3, tau_zs=1), sample.before_only()]
    outcomes = {"refused": 0, "accepted": 0}
    for _ in range(DOCUMENTS):
        document = copy.deepcopy(rng.choice(valid))
        section = mutate(document, rng)
        file = tmp_path / "results.json"
        file.write_text(json.dumps(document), encoding="utf-8")
        try:
            results = read_results(file)
        except ResultsFileError:
            outcomes["refused"] += 1
            continue
        outcomes["accepted"] += 1
        make_everything(results, section, tmp_path / "tables")
    assert min(outcomes.values()) >= DOCUMENTS // 10
