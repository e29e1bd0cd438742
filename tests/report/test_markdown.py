import copy
import json

import pytest
import sample
from forms import render_card, render_markdown
from rendered import foreign, numbers, render, table_with

from fairerclip._util.markdown_text import block, escape
from fairerclip._util.numbers import bare
from fairerclip.auditing.recommendation import recommend
from fairerclip.auditing.results import check_results


@pytest.fixture
def page(results):
    return render(render_markdown(results))


def percents(*shares):
    return [float(bare(share).replace("−", "-")) for share in shares]


def test_verdict_and_findings_come_first(results):
    text = render_markdown(results)
    assert text.startswith("# Audit of simulated birds\n")
    answer = recommend(check_results(results))
    words = (answer.sentence, answer.advice, results["findings"][0]["text"])
    places = [text.index(escape(sentence)) for sentence in words]
    assert places == sorted(places)
    assert places[-1] < text.index("## Groups")


def test_every_group_has_its_numbers(results, page):
    (rows,) = table_with(page, "group", "n", "zero-shot")
    groups = results["groups"]
    assert len(rows) == len(groups["before"]["groups"]) == 4
    for row, before, after, change in zip(
        rows, groups["before"]["groups"], groups["after"]["groups"], groups["group_changes"], strict=True
    ):
        assert row[0] == before["name"]
        assert numbers(row[1]) == [before["n"]]
        assert numbers(row[2]) == percents(before["accuracy"], before["low"], before["high"])
        assert numbers(row[3]) == percents(after["accuracy"], after["low"], after["high"])
        assert numbers(row[4]) == percents(change["difference"], change["low"], change["high"])


def test_every_figure_has_its_numbers(results, page):
    (rows,) = table_with(page, "figure", "zero-shot")
    by_label = {row[0]: row for row in rows}
    for change in results["groups"]["changes"]:
        row = by_label[change["label"]]
        before = results["groups"]["before"]["intervals"][change["figure"]]
        assert numbers(row[1]) == percents(change["before"], *before)
        assert numbers(row[3]) == percents(change["difference"], change["low"], change["high"])


def test_the_front_is_shown_with_the_chosen_point_and_zero_shot(results, page):
    (rows,) = table_with(page, "", "τ", "τ_z")
    plane = results["plane"]
    assert len(rows) == 1 + len({*plane["front"], plane["chosen"]})
    assert numbers(rows[0][4]) == percents(plane["baseline"]["average"])
    (chosen,) = [row for row in rows if row[0] == "→"]
    point = plane["points"][plane["chosen"]]
    assert float(chosen[1]) == pytest.approx(point["tau"], rel=1e-2)
    assert numbers(chosen[5])[0] == percents(point["worst_group"])[0]
    command = plane["command"].format(**{k: point[k] for k in ("tau", "tau_z", "criterion")})
    assert command in "".join(page.text)


def test_retrieval_probes_and_the_rest_have_their_numbers(results, page):
    (skews,) = table_with(page, "prompt", "figure")
    first = results["retrieval"]["queries"][0]
    skew = first["before"]["max_skew"]
    assert skews[0][:2] == [first["name"], "MaxSkew"]
    assert numbers(skews[0][2]) == pytest.approx([skew["value"], skew["low"], skew["high"]], abs=6e-4)
    (probes,) = table_with(page, "attribute", "probe")
    assert [numbers(row[3]) for row in probes] == [
        percents(p["value"], p["low"], p["high"]) for p in results["probes"]
    ]
    (composition,) = table_with(page, "prompt", "group", "of all rows")
    assert [numbers(row[4]) for row in composition[:2]] == [[n] for n in first["after"]["counts"]]
    (dependence,) = table_with(page, "of", "on")
    for row, part in zip(dependence, results["dependence"], strict=True):
        found = [part["value"], part["low"], part["high"], part["p_value"]]
        assert numbers(row[4]) + numbers(row[5]) == pytest.approx(found, abs=6e-4)
    (wording,) = table_with(page, "template", "Average")
    assert [row[0].endswith(" (used)") for row in wording] == [True, False, False, False]
    (spaces,) = table_with(page, "embeddings", "space")
    assert [row[1] for row in spaces[::4]] == [row["space"] for row in results["representation"]]


def test_sections_that_are_null_are_left_out():
    text = render_markdown(sample.minimal())
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings == ["## What this does not show", "## How it was made"]
    only = render_markdown(sample.retrieval_only())
    assert "## Retrieval" in only
    assert "\n## Groups\n" not in only


@pytest.mark.parametrize(
    "section",
    [
        "groups",
        "scores",
        "picture",
        "plane",
        "retrieval",
        "probes",
        "dependence",
        "wording",
        "representation",
    ],
)
def test_any_one_section_may_be_null(results, section):
    rest = {**results, section: None}
    assert len(render_markdown(rest)) < len(render_markdown(results))


def test_an_audit_without_a_model_shows_zero_shot_alone():
    page = render(render_markdown(sample.before_only()))
    (rows,) = table_with(page, "group", "n", "zero-shot")
    assert {len(row) for row in rows} == {3}


def test_more_classes_and_groups_than_two_have_their_rows():
    results = sample.seven_class()
    (rows,) = table_with(render(render_markdown(results)), "group", "n", "zero-shot")
    assert len(rows) == 28
    small = [row[1].endswith("(small)") for row in rows]
    assert small == [group["small"] for group in results["groups"]["after"]["groups"]]


def test_hostile_text_makes_no_tags_links_or_comments():
    page = render(render_markdown(sample.hostile()))
    assert foreign(page) == (set(), 0)
    assert not {"a", "em"} & set(page.tags)
    shown = "".join(page.text)
    assert "<script>window.pwned=1;alert(1)</script>" in shown  # as text
    assert "\u202e" not in shown


@pytest.mark.parametrize(
    "words",
    [
        "<img src=x onerror=alert(1)>",
        "a | b",
        "`code` ``",
        "[x](javascript:alert(1)) ![y](z) [z]: w",
        "*bold* _it_ ~~no~~ **b**",
        "# heading",
        "- item",
        "+ item",
        "1. item",
        "2) item",
        "> quote",
        "===",
        "&lt; &amp; &#60;b&#62;",
        "a\\",
        "\\| x",
        "https://example.org <https://example.org>",
        "$x$",
        "<!-- x -->",
        "---",
    ],
)
def test_escaped_text_is_shown_as_it_is(words):
    for document in (f"{escape(words)}\n", f"- {escape(words)}\n"):
        page = render(document)
        assert set(page.tags) <= {"p", "ul", "li"}
        assert "".join(page.text).strip() == words
    page = render(f"| {escape(words)} | n |\n| :-- | --: |\n| {escape(words)} | 1 |\n")
    assert set(page.tags) <= {"table", "thead", "tbody", "tr", "th", "td"}
    assert page.tables[0][1] == [words, "1"]


def test_line_breaks_do_not_end_a_cell_and_names_call_nobody():
    assert escape("a\n\n# b\r\nc") == "a # b c"
    assert "@" not in escape("@someone a@b.example")
    assert "www." not in escape("www.example.org")
    assert "https:" not in escape("https://example.org")


def test_a_command_that_is_none_of_ours_is_not_shown(results):
    bad = copy.deepcopy(results)
    bad["model"]["command"] = "fairerclip fit x\n```\n<script>alert(1)</script>\n````\n# x"
    bad["plane"]["command"] += " && curl example.org"
    text = render_markdown(bad)
    assert foreign(render(text)) == (set(), 0)
    assert text.count("The command is not shown") == 2
    assert "curl" not in text


def test_a_block_is_fenced_longer_than_its_text():
    page = render("\n".join(block("fit\n```\n<script>alert(1)</script>\n````\n# x")))
    assert foreign(page) == (set(), 0)


def test_differences_are_in_points_and_shares_in_per_cent(results, page):
    (rows,) = table_with(page, "figure", "zero-shot")
    units = {row[0]: row[1].split(" [")[0].split()[1] for row in rows}
    assert {name: units[name] for name in ("Average accuracy", "Worst-group accuracy")} == {
        "Average accuracy": "%",
        "Worst-group accuracy": "%",
    }
    assert {unit for name, unit in units.items() if "Gap" in name or "difference" in name} == {"points"}
    (seeds,) = table_with(page, "figure", "mean", "standard deviation")
    assert [cell.split()[1] for cell in seeds[0][1:]] == ["%", "points", "%", "%", "points"]


def test_a_figure_without_a_paired_change_still_has_its_row(results):
    some = copy.deepcopy(results)
    some["groups"]["changes"] = [c for c in some["groups"]["changes"] if c["figure"] != "eod_signed"]
    (rows,) = table_with(render(render_markdown(some)), "figure", "zero-shot")
    (row,) = [r for r in rows if r[0] == "EOD with its sign"]
    assert numbers(row[2])[0] == percents(some["groups"]["after"]["eod_signed"])[0]
    assert row[3] == "–"


@pytest.mark.parametrize("render_text", [render_markdown, render_card])
def test_a_given_model_is_said_to_be_one(results, render_text):
    given = copy.deepcopy(results)
    given["model"] |= {"labels": None, "command": None, "source": "given"}
    text = render_text(given)
    assert "The model was given, not fitted here" in text
    assert "class labels were known" in text
    assert "labels used" not in text
    assert "Fitted with" not in text.split("## Groups")[0].replace("Fitted with 5 seeds", "")


def test_how_the_point_was_chosen_is_said(results):
    text = render_markdown(results)
    assert (
        "The point with → was chosen by the expected worst group on the val rows: groups are compared by"
        in text
    )
    assert "the search is taken only where it is best on held-out halves of the rows" in text
    other = copy.deepcopy(results)
    other["plane"]["chosen_by"] = "shrunken_worst_group"
    text = render_markdown(other)
    assert (
        "chosen by the shrunken worst group on the val rows: a few rows with the average accuracy are added"
        in text
    )


def test_nobody_chose_parameters_that_were_given(results):
    given = copy.deepcopy(results)
    given["plane"]["chosen_by"] = "given"
    text = render_markdown(given)
    assert "not chosen on validation rows" in text
    assert "uncertain" not in text
    given["plane"]["groups"][0]["n"] = given["settings"]["small"] - 1
    for section in ("points",):
        for point in given["plane"][section]:
            if point["correct"]:
                point["correct"][0] = 0
    given["plane"]["baseline"]["correct"][0] = 0
    given["plane"]["intervals"][0]["0"] = [0.0, 0.2]
    assert "The smallest group has 29 rows: a point chosen on so few rows is uncertain." in render_markdown(
        given
    )


def test_long_names_are_short_in_markdown(results):
    text = json.dumps(results).replace("landbird", "land" + "x" * 3000 + "bird")
    assert len(render_markdown(json.loads(text))) < 2 * len(render_markdown(results))
