"""The page as text: what it says, what it leaves out, and that data stays data."""

import base64
import hashlib
import itertools
import json
import re
from html.parser import HTMLParser

import pytest
import sample
from forms import render_markdown, render_page, squeezed, terminal

from fairerclip._util.numbers import interval, measured, number, percent, points, setting, shown, signed
from fairerclip.errors import ResultsFileError
from fairerclip.metrics.names import FIGURES

VOID = {"meta", "link", "input", "br", "img", "hr"}
MADE = {**sample.VARIANTS, "hostile": sample.hostile}


class Reader(HTMLParser):
    """Elements, attributes and text of a document; fails on tags that do not close."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.elements, self.texts, self.open = [], [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), self.getpos()))
        self.texts.append("")
        if tag not in VOID:
            self.open.append((tag, len(self.elements) - 1))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop()[0] == tag
        if tag in ("td", "th"):
            self.handle_data(" ")

    def handle_data(self, data):
        for _, index in self.open:
            self.texts[index] += data

    def all(self, tag, **attributes):
        wanted = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
        found = zip(self.elements, self.texts, strict=True)
        return [
            (a, text)
            for (t, a, _), text in found
            if t == tag and all(a.get(k) == v for k, v in wanted.items())
        ]

    def one(self, tag, **attributes):
        (found,) = self.all(tag, **attributes)
        return found

    def section(self, name):
        return squeezed(self.one("section", id=name)[1])


@pytest.mark.parametrize("variant", MADE)
def test_every_variant_is_a_well_formed_document_without_handlers_styles_or_addresses_outside(variant):
    page = Reader(render_page(MADE[variant]()))
    levels = [int(tag[1]) for tag, _, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert (levels[0], levels.count(1)) == (1, 1)
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    ids = [a["id"] for _, a, _ in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    assert {a["href"][1:] for a, _ in page.all("a")} <= set(ids)
    for tag, attributes, _ in page.elements:
        assert tag not in {"img", "iframe", "object", "embed", "base", "form"}
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag
        for name in ("src", "href", "action"):
            assert re.match(r"#|data:,$", attributes.get(name) or "#")


def test_headline_cards_hold_the_figures_and_their_intervals(results):
    summary = Reader(render_page(results)).section("summary")
    for row in results["groups"]["changes"]:
        if row["figure"] in ("average", "worst_group", "eod"):
            assert (
                f"{points(row['difference'])} {interval(row['low'], row['high'], 'points')} points" in summary
            )
            for stage in ("before", "after"):
                ends = results["groups"][stage]["intervals"][row["figure"]]
                shown_value = measured(row[stage], FIGURES[row["figure"]].kind)
                assert squeezed(f"{shown_value} {interval(*ends)}") in summary


def test_gains_and_costs_are_told_apart_by_their_intervals(results):
    changes = {row["figure"]: row for row in results["groups"]["changes"]}
    changes["average"] |= {"difference": -0.02, "low": -0.03, "high": -0.01}
    changes["worst_group"] |= {"difference": 0.2, "low": 0.1, "high": 0.3}
    changes["eod"] |= {"difference": -0.01, "low": -0.05, "high": 0.02}
    summary = Reader(render_page(results)).section("summary")
    paid, gained = summary.split("Worse Average accuracy −2.0")[1].split("Better Worst-group accuracy")
    assert "points" in paid
    assert gained.startswith(" +20.0 [+10.0, +30.0] points")
    assert "No clear change −1.0 [−5.0, +2.0] points" in summary


def test_groups_and_prompts_that_clearly_change_are_named_as_gain_or_price(results):
    groups, queries = results["groups"]["group_changes"], results["retrieval"]["queries"]
    for row in [*results["groups"]["changes"], *groups]:
        row |= {"difference": 0.0, "low": -0.01, "high": 0.01}
    groups[0] |= {"difference": 0.042, "low": 0.029, "high": 0.055, "clear": True}
    groups[1] |= {"difference": -0.067, "low": -0.078, "high": -0.056, "clear": True}
    groups[2] |= {"difference": -0.02, "low": -0.03, "high": -0.01, "clear": False}
    for query in queries:
        query["clear"] = False
    queries[0]["clear"] = True
    queries[0]["changes"]["max_skew"] |= {"difference": 0.294, "low": 0.2, "high": 0.4}
    summary = Reader(render_page(results)).section("summary")
    assert f"Better {groups[0]['name']} +4.2 [+2.9, +5.5] points." in summary
    assert f"{groups[1]['name']} −6.7 [−7.8, −5.6] points." in summary
    assert f"{groups[2]['name']} −2.0" not in summary
    assert f"MaxSkew of the results for “{queries[0]['name']}” +0.294 [+0.200, +0.400]" in summary


def test_confusion_tables_hold_counts_and_row_shares(results):
    counts = results["groups"]["after"]["confusion"]
    counts[0][0] = [30, 10]
    text = Reader(render_page(results)).section("confusion")
    assert "30 75.0 %" in text
    assert "10 25.0 %" in text


def test_the_command_of_the_chosen_point_is_there_without_a_script(results):
    point = results["plane"]["points"][results["plane"]["chosen"]]
    command = Reader(render_page(results)).one("textarea", id="command")[1]
    assert f"--tau {point['tau']:.12g} --tau-z {point['tau_z']:.12g}" in command
    assert f"--criterion {point['criterion']} " in command
    assert "{" not in command


@pytest.mark.parametrize(
    "command", ["fairerclip fit x; rm -rf ~", "fairerclip fit x\u202ey", "fairerclip fit 'x"]
)
def test_a_command_that_is_none_of_ours_is_not_offered(results, command):
    results["plane"]["command"] = results["model"]["command"] = command
    page = Reader(render_page(results))
    assert not page.all("textarea") + page.all("button", id="copy")
    assert all("fairerclip fit" not in page.section(section) for section in ("explorer", "method"))


def test_a_criterion_from_the_file_is_one_word_of_the_command(results):
    results["plane"]["criteria"] = ["marginal; id"] * 2
    for point in results["plane"]["points"]:
        point["criterion"] = "marginal; id"
    assert "--criterion 'marginal; id' " in Reader(render_page(results)).one("textarea", id="command")[1]


def test_groups_are_matched_by_class_and_value_not_by_name(results):
    text = Reader(render_page(results)).section("groups")
    for part in (results["groups"]["after"]["groups"], results["groups"]["group_changes"]):
        for row in part:
            row["name"] = "another name"
        part.reverse()
    assert Reader(render_page(results)).section("groups") == text


def test_long_names_are_short_but_whole_in_the_json_and_stay_apart(results):
    long = "a" * 1500
    text = json.dumps(results).replace("landbird", f"{long}X{long}").replace("waterbird", f"{long}Y{long}")
    results = json.loads(text)
    page = Reader(render_page(results))
    body = page.one("main")[1]
    assert "a" * 121 not in body
    assert "…" in body
    assert f"{'a' * 40} (2)" in body
    assert json.loads(page.one("script", id="results")[1]) == results


def test_missing_values_are_a_dash(results):
    results["retrieval"]["queries"][0]["before"]["min_skew"] = {"value": None, "low": None, "high": None}
    results["retrieval"]["queries"][0]["changes"]["min_skew"] = dict.fromkeys(
        ("before", "after", "difference", "low", "high")
    )
    rows = Reader(render_page(results)).section("retrieval")
    assert re.search(r"MinSkew – −?\d\.\d{3}", rows)


NULLABLE = """
groups groups.before groups.after groups.changes groups.group_changes groups.seeds groups.before.eod
scores.after scores.before.threshold picture.after plane plane.baseline plane.points.0.lambda_eff plane.points.0.eod
retrieval retrieval.queries.0.before retrieval.queries.0.drift retrieval.queries.0.changes.precision
retrieval.mean.changes retrieval.queries.0.before.kl probes probes.0.value dependence wording.used
wording.templates.0.eod representation model model.command task.file settings.chosen_on auc.before.auc_gap
"""


@pytest.mark.parametrize("path", NULLABLE.split())
def test_whatever_may_be_null_may_be_null_on_the_page_and_a_terminal(results, path):
    *parents, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    part = results
    for key in parents:
        part = part[key]
    assert last in part if isinstance(part, dict) else part
    part[last] = None
    for text in (Reader(render_page(results)).one("main")[1], terminal(results), render_markdown(results)):
        assert "None" not in re.sub("=None|`None`", "", text)  # parameters of the model


def test_the_policy_names_the_one_script_and_the_one_style(results):
    text = render_page(results)
    page = Reader(text)
    policy = page.one("meta", http_equiv="Content-Security-Policy")[0]["content"]
    parts = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert parts["default-src"] == parts["base-uri"] == parts["form-action"] == "'none'"
    assert parts["img-src"] == "data:"
    assert "unsafe" not in policy
    for tag, directive in (("style", "style-src"), ("script", "script-src")):
        (body,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert parts[directive] == f"'sha256-{digest}'"


def test_hostile_text_makes_no_element_and_comes_back_whole_from_the_json():
    calm, hostile = sample.every_section(), sample.hostile()
    pages = [Reader(render_page(results)) for results in (calm, hostile)]
    kinds = [[tag for tag, _, _ in page.elements if tag in ("script", "style", "b", "svg")] for page in pages]
    assert kinds[0] == kinds[1]
    body = pages[1].one("script", id="results")[1]
    assert not set("<>&\u2028\u2029") & set(body)
    data = json.loads(body)
    assert data["task"]["classes"][0] == hostile["task"]["classes"][0].replace("\u2028\u2029", "  ")
    names = [set().union(*(set(a) for _, a, _ in page.elements)) for page in pages]
    assert names[0] == names[1]


def test_a_number_that_is_not_finite_is_refused(results):
    results["plane"]["points"][0]["average"] = float("nan")
    with pytest.raises(ResultsFileError, match=r"plane\.points\[0\]\.average"):
        render_page(results)


def test_halves_round_as_the_script_rounds_them():
    shares = [percent(x).replace("\u00a0%", "") for x in (1 / 16, 3 / 16, 0.00049, 1.0)]
    assert shares == ["6.3", "18.8", "0.0", "100.0"]
    assert [points(x) for x in (-1 / 16, -0.00049, 0.5)] == ["−6.3", "0.0", "+50.0"]
    assert [number(-0.0004), signed(0.0004), signed(1.5, 1), number(None)] == ["0.000", "0.000", "+1.5", "–"]
    assert [setting(x) for x in (0.0, 0.14250000000000002, 10.0)] == ["0", "0.1425", "10"]
    assert [shown(x) for x in (None, "a", True, 0.1 + 0.2, [1])] == ["–", "a", "true", "0.3", "[1]"]
    assert interval(None, 0.5) == "[–, 50.0]"
