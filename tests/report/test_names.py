"""One `AuditResults`, every form of it: a figure has the same name and its numbers the same text everywhere."""

import ast
import copy
import csv
import io
import json
import re
from html import unescape
from pathlib import Path

import pytest
import sample
from forms import DRAWINGS, csv_rows, metadata, render_card, render_markdown, render_page, squeezed, terminal
from rendered import render
from test_page import Reader

from fairerclip._util.markdown_text import WORD_JOINER
from fairerclip._util.numbers import percent, significant, with_interval
from fairerclip.data.io.csv_table import csv_bytes
from fairerclip.metrics import names
from fairerclip.metrics.names import (
    AUC,
    CHANCE,
    DEPENDENCE,
    DRIFT,
    FIGURES,
    PROBE,
    PROBES,
    REPRESENTATION,
    RETRIEVAL,
)
from fairerclip.report.tables import OVERVIEW

DATA = re.compile(r"<script type=\"application/json\".*?</script>", re.DOTALL)


@pytest.fixture(scope="module")
def results():
    found = sample.two_class(taus=3, tau_zs=2)
    # Halves, which two rules of rounding write in two ways.
    for stage, k in (("before", 13), ("after", 15)):
        report = found["groups"][stage]
        report["average"], report["intervals"]["average"] = k / 16, [1 / 16, 15 / 16]
        report["groups"][0] |= {"accuracy": k / 16, "low": 3 / 16, "high": 1.0}
        report["eod"] = 0.6035 - 0.4
    found["retrieval"]["queries"][0]["before"]["max_skew"] |= {"value": 0.0625, "low": 0.0125, "high": 0.3125}
    for row in found["dependence"]:
        row["value"], row["p_value"] = 0.00125, 0.0125
    for label in [*found["groups"]["changes"], *found["groups"]["seeds"]["figures"]]:
        label["label"] = "another name"
    return found


@pytest.fixture(scope="module")
def forms(results):
    """Text of every form, spaces squeezed; the page without its data."""
    page = Reader(DATA.sub("", render_page(results)))
    return {
        "page": squeezed(
            " ".join(page.section(name) for name in ("summary", "groups", "scores", "retrieval", "reading"))
        ),
        "terminal": squeezed(terminal(results)),
        "markdown": squeezed(" ".join(render(render_markdown(results)).text)).replace(
            unescape(WORD_JOINER), ""
        ),
        "card": squeezed(render_card(results)),
        "csv": squeezed("\n".join(csv_bytes(rows).decode() for rows in csv_rows(results).values())),
    }


@pytest.mark.parametrize("form", ["page", "terminal", "markdown", "card", "csv"])
def test_every_group_figure_has_its_name_in_every_form(results, forms, form):
    for name, figure in FIGURES.items():
        value = results["groups"]["before"]["worst"]["accuracy"] if name == "worst_group" else 1
        if value is not None:
            assert figure.label in forms[form], (form, figure.label)
    assert "another name" not in forms[form]


def test_rankings_probes_and_dependence_have_their_names_in_every_form(forms):
    long = {
        figure.label for table in (RETRIEVAL, DRIFT, DEPENDENCE, REPRESENTATION) for figure in table.values()
    }
    for form in ("page", "markdown", "csv"):
        assert {label for label in long if label not in forms[form]} == set(), form
    for form in ("page", "terminal", "markdown"):
        assert all(name in forms[form] for name in (PROBE.label, CHANCE.label, *PROBES.values())), form
        assert all(figure.label in forms[form] for figure in AUC.values()), form
    there = [*(RETRIEVAL[name] for name in OVERVIEW), DRIFT["spearman_within"], *REPRESENTATION.values()]
    assert all(figure.label in forms["terminal"] for figure in there)
    assert all(figure.label in forms["terminal"] for figure in DEPENDENCE.values())


def test_narrow_columns_have_the_short_names_of_the_table(results, forms):
    page = squeezed(Reader(DATA.sub("", render_page(results))).section("explorer"))
    heads = " ".join(FIGURES[name].column for name in ("average", "worst_group", "eod", "gap"))
    assert heads in page
    for form in ("markdown", "terminal", "page"):
        assert FIGURES["eod"].column in forms[form]
        assert re.search(rf"{FIGURES['average'].column}\W+{FIGURES['worst_group'].column}", forms[form]), form


NAMED = ("average", "train_weighted_average", "gap", "eod", "eod_signed", "equalized_odds_difference")


def test_the_numbers_of_a_figure_are_the_same_text_in_every_form(results, forms):
    expected = []
    for stage in ("before", "after"):
        report = results["groups"][stage]
        for name in NAMED:
            ends = report["intervals"][name]
            expected.append(with_interval(report[name], *ends, FIGURES[name].kind))
        expected += [with_interval(g["accuracy"], g["low"], g["high"]) for g in report["groups"]]
        skew = results["retrieval"]["queries"][0][stage]["max_skew"]
        expected.append(with_interval(skew["value"], skew["low"], skew["high"], "number"))
    assert squeezed(expected[0]) == "81.3 % [6.3, 93.8]"
    for form in ("page", "terminal", "markdown", "card"):
        missing = [text for text in map(squeezed, expected) if text not in forms[form]]
        assert missing == [], form


def test_probes_and_dependence_are_the_same_text_in_every_form(results, forms):
    expected = [with_interval(p["value"], p["low"], p["high"]) for p in results["probes"]]
    expected += [percent(p["chance"]) for p in results["probes"]]
    expected += [with_interval(d["value"], d["low"], d["high"], "fine") for d in results["dependence"]]
    expected += [significant(0.0125)]
    for row in results["representation"]:
        found = [row[name] for name in REPRESENTATION if row[name] is not None]
        expected += [with_interval(f["value"], f["low"], f["high"], "fine") for f in found]
    for form in ("page", "terminal", "markdown"):
        missing = [text for text in map(squeezed, expected) if text not in forms[form]]
        assert missing == [], form


def test_tables_for_machines_keep_the_numbers_and_add_the_name(results):
    rows = csv_rows(results)["figures"]
    assert {row["figure"]: row["label"] for row in rows} == {n: f.label for n, f in FIGURES.items()}
    text = csv_bytes(rows).decode()
    first = next(csv.DictReader(io.StringIO(text)))
    assert float(first["value"]) == 13 / 16
    (index,) = metadata(results)["model-index"]
    (average,) = [
        m for m in index["results"][0]["metrics"] if m["name"].startswith("Average accuracy, zero-shot")
    ]
    assert average["value"] == 13 / 16
    assert average["name"] == "Average accuracy, zero-shot, 95 % interval [6.3, 93.8] %"


def test_the_script_is_given_the_names_of_the_table(results):
    text = render_page(results)
    (body,) = re.findall(r'<script type="application/json" id="names">(.*?)</script>', text, re.DOTALL)
    given = json.loads(body)
    for name, shown in given["figures"].items():
        assert {key: shown[key] for key in FIGURES[name]._fields} == FIGURES[name]._asdict()
    assert given["probes"] == PROBES


def test_names_of_figures_that_nobody_knows_are_those_of_the_file(results):
    other = copy.deepcopy(results)
    other["groups"]["seeds"]["figures"][0] |= {"figure": "of_a_later_version", "label": "A later figure"}
    for text in (render_page(other), render_markdown(other)):
        assert "A later figure" in text


def test_comparisons_and_drawings_have_the_names_of_the_table(results):
    from fairerclip.study.comparison_page import COLUMNS, MORE
    from fairerclip.study.paper import accuracy

    shown = [FIGURES[name].short for name in ("average", "worst_group", "gap", "eod")]
    assert [COLUMNS[3], COLUMNS[2], *MORE[1:3]] == shown
    assert list(accuracy.NAMES.values()) == shown
    heads = [head.removesuffix(" [95 %]") for head in accuracy.COLUMNS]
    assert heads == [f.short for f in list(FIGURES.values())[:5]]
    pytest.importorskip("matplotlib")
    (axes,) = DRAWINGS["front"](results).axes
    assert axes.get_xlabel().startswith(FIGURES["average"].axis)
    assert axes.get_ylabel().startswith(FIGURES["worst_group"].axis)
    (axes,) = DRAWINGS["probes"](results).axes
    assert axes.get_xlabel().startswith(PROBE.axis)
    drawn = [axes.get_xlabel().split(" [")[0] for axes in DRAWINGS["dependence"](results).axes]
    assert set(drawn) <= {figure.label for figure in DEPENDENCE.values()}


def literal_texts(file):
    """Texts that a module writes out, without its docstrings and the names that results have."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.value


def test_nobody_else_names_a_figure():
    every = [*FIGURES.values(), *RETRIEVAL.values(), *DRIFT.values(), *DEPENDENCE.values(), PROBE]
    every += REPRESENTATION.values()
    texts = {text for figure in every for text in (figure.label, figure.short)}
    own = {text.casefold() for text in texts if not text.isalpha() or text[1:] != text[1:].lower()}
    assert {"eod", "worst group", "maxskew", "worst-group accuracy", "hsic with s"} <= own
    keys = {
        *FIGURES,
        *RETRIEVAL,
        *DRIFT,
        *DEPENDENCE,
        "train-weighted",
    }  # the last: a kind of published average
    package = Path(names.__file__).parents[1]
    found = [
        (file.name, text)
        for file in sorted(package.rglob("*.py"))
        if file != Path(names.__file__)
        for text in literal_texts(file)
        if text.casefold() in own and text not in keys
    ]
    assert found == []
    page = (package / "report" / "templates" / "page.html.j2").read_text(encoding="utf-8")
    assert [text for text in re.findall(r">([^<>{}]+)<", page) if text.strip().casefold() in own] == []
    script = (package / "report" / "templates" / "page.js").read_text(encoding="utf-8")
    assert [text for text in re.findall(r"[\"'`]([^\"'`]+)[\"'`]", script) if text in texts] == []
