"""One `AuditResults`, every form of it: a figure has the same name and its numbers the same text everywhere."""

import csv
import io
import re
from html import unescape

import pytest
import sample
from forms import csv_rows, metadata, render_card, render_markdown, render_page, squeezed, terminal
from rendered import render
from test_page import Reader

from fairerclip._util.markdown_text import WORD_JOINER
from fairerclip._util.numbers import interval, percent, points, significant, with_interval
from fairerclip.auditing.results import check_results
from fairerclip.data.io.csv_table import csv_bytes
from fairerclip.metrics.names import (
    FIGURES,
    REPRESENTATION,
)
from notebook_html import shown, tables

DATA = re.compile(r"<script type=\"application/json\".*?</script>", re.DOTALL)


@pytest.fixture(scope="module")
def results():
    found = sample.two_class()
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
    for row in results["groups"]["group_changes"]:
        text = f"{points(row['difference'])} {interval(row['low'], row['high'], 'points')}"
        assert [form for form in ("page", "terminal", "markdown") if squeezed(text) not in forms[form]] == []


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


def test_a_notebook_shows_the_groups_before_and_after(results):
    (table,) = tables(shown(check_results(results)))
    groups = results["groups"]
    for row, one, two in zip(table[1:], groups["before"]["groups"], groups["after"]["groups"], strict=True):
        assert row[:2] == [one["name"], str(one["n"])]
        assert row[2].startswith(percent(one["accuracy"]))
        assert row[3].startswith(percent(two["accuracy"]))
