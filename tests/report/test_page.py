"""The page as text: what it says, what it leaves out, and that data stays data."""

import base64
import hashlib
import itertools
import json
import re
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import pytest
import sample
from forms import render_page, squeezed

from fairerclip._util.numbers import gap, interval, measured, number, percent, points, setting, shown, signed
from fairerclip.auditing.results import check_results
from fairerclip.auditing.sections.mitigation import CHOSEN_BY
from fairerclip.errors import ResultsFileError
from fairerclip.metrics.names import FIGURES
from fairerclip.report.answer_picture import answer_picture
from fairerclip.report.glossary import GLOSSARY
from fairerclip.report.page import _coded

TEMPLATES = Path(__file__).resolve().parents[2] / "src" / "fairerclip" / "report" / "templates"
VOID = {"meta", "link", "input", "br", "img", "hr"}
VARIANTS = ["two_class", "seven_class", "retrieval_only", "minimal", "before_only", "with_queries", "hostile"]


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


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_is_a_well_formed_document_with_headings_in_order(variant):
    page = Reader(render_page(getattr(sample, variant)()))
    levels = [int(tag[1]) for tag, _, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    ids = [a["id"] for _, a, _ in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    targets = [a["href"][1:] for a, _ in page.all("a")]
    assert set(targets) <= set(ids)


@pytest.mark.parametrize("variant", sorted(set(VARIANTS) - {"hostile"}))
def test_the_samples_keep_the_contract(variant):
    results = getattr(sample, variant)()
    assert json.loads(check_results(results, exact=True).model_dump_json(by_alias=True)) == results


def test_the_sections_come_in_order_and_the_contents_name_them(results):
    page = Reader(render_page(results))
    order = [a["id"] for a, _ in page.all("section")]
    names = "summary groups explorer confusion scores picture retrieval reading method limits glossary"
    assert order == names.split()
    nav = page.one("nav")[1]
    assert all(label in nav for label in ("Trade-off explorer", "What this does not show"))


def test_sections_without_results_are_left_out_and_named():
    page = Reader(render_page(sample.retrieval_only()))
    assert [a["id"] for a, _ in page.all("section")] == [
        "summary",
        "retrieval",
        "method",
        "limits",
        "glossary",
    ]
    summary = page.section("summary")
    assert "Not in these results: before and after, by group; trade-off explorer" in summary
    assert "Shown too often, mean of prompts" in summary


def test_the_smallest_results_still_make_a_page():
    page = Reader(render_page(sample.minimal()))
    assert "There are no labelled rows to judge by." in page.section("summary")
    assert not page.all("figure")
    assert "No model was fitted or given" in page.section("method")


def test_an_audit_without_a_model_speaks_of_zero_shot_alone():
    page = Reader(render_page(sample.before_only()))
    assert not page.all("p", class_="after")
    assert "Right answers in the worst group" in page.section("summary")


def test_the_picture_shows_the_group_that_the_answer_names_and_says_what_it_leaves_out():
    results = check_results(sample.retrieval_only())
    query = results.retrieval.queries[0]
    k, groups = results.retrieval.k, tuple(f"group {i}" for i in range(10))
    # The smallest group is the most over-represented one; the others are in proportion.
    shares = (0.19, *[0.1] * 8, 0.01)
    counts = (0.17 * k, *[0.1 * k] * 8, 0.03 * k)
    top = query.before.model_copy(update={"counts": counts})
    query = query.model_copy(update={"before": top, "after": top})
    update = {"groups": groups, "shares": shares, "queries": (query,)}
    section = results.retrieval.model_copy(update=update)
    picture = answer_picture(results.model_copy(update={"retrieval": section}))
    shown = {row.name: row.extra for row in picture.rows}
    assert (len(shown), picture.total, sum(not extra for extra in shown.values())) == (8, 10, 6)
    assert shown["group 9"] is shown["group 0"] is False  # not left out on a phone either


def test_a_picture_of_all_groups_does_not_say_that_some_are_left_out():
    for make, said in ((sample.two_class, False), (sample.seven_class, True)):
        page = Reader(render_page(make()))
        caption = (
            page.one("figcaption")[1] if len(page.all("figcaption")) == 1 else page.all("figcaption")[0][1]
        )
        assert ("the lowest, and clear changes" in caption) is said


def test_commands_of_the_advice_are_code_and_names_in_it_stay_text():
    page = Reader(render_page(sample.before_only()))
    assert any(text == "--mitigate" for _, text in page.all("code"))
    assert str(_coded("`<b>` <i>")) == "<code>&lt;b&gt;</code> &lt;i&gt;"


def test_the_interval_is_explained_for_every_level():
    results = sample.two_class()
    results["settings"]["confidence"] = 0.9
    summary = Reader(render_page(results)).section("summary")
    assert "Brackets hold 90 % intervals" in summary
    assert "One of 95 % would hold" in GLOSSARY["Interval"]


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


def test_groups_that_are_worse_off_are_named_among_the_price(results):
    groups = results["groups"]["group_changes"]
    for row in groups:
        row |= {"difference": 0.0, "low": -0.01, "high": 0.01}
    groups[1] |= {"difference": -0.067, "low": -0.078, "high": -0.056, "clear": True}
    groups[2] |= {"difference": -0.02, "low": -0.03, "high": -0.01, "clear": False}
    summary = Reader(render_page(results)).section("summary")
    assert f"{groups[1]['name']} −6.7 [−7.8, −5.6] points." in summary
    assert f"{groups[0]['name']} 0.0" not in summary
    assert f"{groups[2]['name']} −2.0" not in summary


def test_every_group_that_is_worse_off_is_named_however_many(results):
    results = sample.seven_class()
    groups = results["groups"]["group_changes"]
    for row in groups:
        row |= {"difference": -0.1, "low": -0.2, "high": -0.05, "clear": True}
    assert len(groups) > 20
    summary = Reader(render_page(results)).section("summary")
    assert all(f"{row['name']} −10.0 [−20.0, −5.0] points" in summary for row in groups)


def test_problems_are_never_folded_and_all_else_is(results):
    results["findings"] = [{"level": level, "text": f"A {level}."} for level in ("problem", "good", "note")]
    page = render_page(results)
    opening = page[: page.index('<details class="data"><summary>2 other findings')]
    assert "A problem." in opening
    assert "A good." not in opening
    folds = Reader(page).all("details", class_="part")
    assert len(folds) == len(Reader(page).all("section")) - 1
    assert not any("open" in attributes for attributes, _ in folds)


def test_every_term_that_can_be_tapped_has_its_definition(results):
    page = Reader(render_page(results))
    taps = {a["popovertarget"] for a, _ in page.all("button") if "popovertarget" in a}
    assert len(taps) >= 4
    for tap in taps:
        assert len(page.one("div", id=tap)[1]) > 20


def unchanged(results):
    for row in [*results["groups"]["changes"], *results["groups"]["group_changes"]]:
        row |= {"difference": 0.0, "low": -0.01, "high": 0.01}
    for query in results["retrieval"]["queries"]:
        query["clear"] = False
    return results


def test_nothing_gained_is_said(results):
    summary = Reader(render_page(unchanged(results))).section("summary")
    assert summary.count("nothing clear on these rows.") == 2


def test_a_group_that_gains_is_not_nothing_gained(results):
    group = unchanged(results)["groups"]["group_changes"][1]
    group |= {"difference": 0.042, "low": 0.029, "high": 0.055, "clear": True}
    summary = Reader(render_page(results)).section("summary")
    assert f"Better {group['name']} +4.2 [+2.9, +5.5] points." in summary
    assert "Worse nothing clear on these rows." in summary


def test_a_prompt_that_is_more_skewed_is_among_the_price(results):
    query = unchanged(results)["retrieval"]["queries"][0]
    query["clear"] = True
    query["changes"]["max_skew"] |= {"difference": 0.294, "low": 0.2, "high": 0.4}
    summary = Reader(render_page(results)).section("summary")
    assert f"Worse MaxSkew of the results for “{query['name']}” +0.294 [+0.200, +0.400]." in summary
    assert "Better nothing clear on these rows." in summary


def test_every_group_is_in_the_table_with_its_interval_and_change(results):
    text = Reader(render_page(results)).section("groups")
    changes = results["groups"]["group_changes"]
    for one, two, change in zip(
        results["groups"]["before"]["groups"], results["groups"]["after"]["groups"], changes, strict=True
    ):
        row = (
            f"{percent(one['accuracy'])} {interval(one['low'], one['high'])} "
            f"{percent(two['accuracy'])} {interval(two['low'], two['high'])} "
            f"{points(change['difference'])} {interval(change['low'], change['high'], 'points')}"
        )
        assert squeezed(row) in text


def test_small_groups_are_flagged():
    results = sample.seven_class(taus=2, tau_zs=1)
    small = sum(g["small"] for g in results["groups"]["before"]["groups"])
    text = Reader(render_page(results)).section("groups")
    assert text.count("fewer than 30 rows") == small > 0


def test_confusion_tables_hold_counts_and_row_shares(results):
    counts = results["groups"]["after"]["confusion"]
    counts[0][0] = [30, 10]
    text = Reader(render_page(results)).section("confusion")
    assert "30 75.0 %" in text
    assert "10 25.0 %" in text


def test_an_empty_row_of_a_confusion_table_has_no_shares(results):
    results["groups"]["after"]["confusion"][0][0] = [0, 0]
    assert "0 – 0 –" in Reader(render_page(results)).section("confusion")


def test_the_explorer_says_on_which_rows_and_what_would_be_cheating(results):
    text = Reader(render_page(results)).section("explorer")
    assert "Measured on the val rows." in text
    assert "choosing it on the test rows would be cheating" in text
    assert "the plane is really one curve" in text
    results["plane"] |= {"split": "test", "one_curve": False}
    text = Reader(render_page(results)).section("explorer")
    assert "do not choose a point here" in text
    assert "one curve" not in text


def test_the_command_of_the_chosen_point_is_there_without_a_script(results):
    point = results["plane"]["points"][results["plane"]["chosen"]]
    command = Reader(render_page(results)).one("textarea", id="command")[1]
    assert f"--tau {point['tau']:.12g} --tau-z {point['tau_z']:.12g}" in command
    assert f"--criterion {point['criterion']} " in command
    assert "{" not in command


@pytest.mark.parametrize(
    "command",
    [
        "fairerclip fit x; rm -rf ~",
        "fairerclip fit $(id) -o MODEL",
        "fairerclip fit x\nrm -rf ~",
        "fairerclip fit x\u202ey",
        "fairerclip fit 'x",
        "fairerclip fit x # {tau}",
    ],
)
def test_a_command_that_is_none_of_ours_is_not_offered(results, command):
    results["plane"]["command"] = results["model"]["command"] = command
    page = Reader(render_page(results))
    assert not page.all("textarea") + page.all("button", id="copy")
    for section in ("explorer", "method"):
        assert "The command is not shown" in page.section(section)
        assert "fairerclip fit" not in page.section(section)


def test_only_whole_words_are_filled_in(results):
    results["plane"]["command"] = "fairerclip fit {tau} --tau {tau} --set 'a {tau} b' --set 'x={tau}'"
    results["plane"]["command"] = results["plane"]["command"].replace("fit {tau} ", "fit t.npz ")
    command = Reader(render_page(results)).one("textarea", id="command")[1]
    tau = results["plane"]["points"][results["plane"]["chosen"]]["tau"]
    assert command == f"fairerclip fit t.npz --tau {tau:.12g} --set 'a {{tau}} b' --set 'x={{tau}}'"


def test_a_criterion_from_the_file_is_one_word_of_the_command(results):
    results["plane"]["criteria"] = ["marginal; id"] * 2
    for point in results["plane"]["points"]:
        point["criterion"] = "marginal; id"
    assert "--criterion 'marginal; id' " in Reader(render_page(results)).one("textarea", id="command")[1]


def test_nobody_chose_parameters_that_were_given(results):
    results["plane"]["chosen_by"] = "given"
    text = Reader(render_page(results)).section("explorer")
    assert "Not chosen on validation rows: these are the parameters as given." in text
    assert not re.search("by hand|chosen point|Chosen", text)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            CHOSEN_BY,
            "Chosen by the expected worst group on the val rows: groups are compared by a posterior over their",
        ),
        (
            "shrunken_worst_group",
            "Chosen by the shrunken worst group on the val rows: a few rows with the average accuracy are added",
        ),
        ("<i>luck</i>", "Chosen by the <i>luck</i> on the val rows."),
    ],
)
def test_how_the_point_was_chosen_is_said(results, name, told):
    results["plane"]["chosen_by"] = name
    assert told in Reader(render_page(results)).section("explorer")


def test_a_choice_on_few_rows_is_called_uncertain(results):
    sizes = [group["n"] for group in results["plane"]["groups"]]
    assert "uncertain" not in Reader(render_page(results)).section("explorer")
    results["settings"]["small"] = min(sizes) + 1
    text = Reader(render_page(results)).section("explorer")
    assert (
        f"The smallest group here has {min(sizes)} rows: a point chosen on so few rows is uncertain." in text
    )


def test_a_given_model_is_said_to_be_one(results):
    results["model"] |= {"labels": None, "command": None, "source": "given"}
    text = Reader(render_page(results)).section("method")
    assert (
        "The model was given, not fitted here. It was fitted on 3000 rows: the class labels were known"
        in text
    )
    assert "It is not known whether a search chose it." in text
    assert "It saw" not in text
    assert "Fitted by" not in text


def test_differences_are_in_points_and_shares_in_per_cent(results):
    page = Reader(render_page(results))
    text = page.section("groups")
    for row in results["groups"]["changes"]:
        value = squeezed(measured(row["before"], FIGURES[row["figure"]].kind))
        assert f"{row['label']} {value}" in text
        assert value.endswith("%") == (row["figure"] in ("average", "train_weighted_average", "worst_group"))
    for row in results["groups"]["seeds"]["figures"]:
        mean, sd = (squeezed(f) for f in (measured(row["mean"], FIGURES[row["figure"]].kind), gap(row["sd"])))
        assert f"{row['label']} {mean} {sd}" in text
    point = results["plane"]["points"][results["plane"]["chosen"]]
    assert squeezed(page.one("dd", data_field="eod")[1]) == squeezed(measured(point["eod"], "bare"))


def test_figures_without_a_change_are_shown_all_the_same(results):
    changes = results["groups"]["changes"]
    results["groups"]["changes"] = [row for row in changes if row["figure"] != "eod_signed"]
    text = Reader(render_page(results)).section("groups")
    before, after = (
        squeezed(f"{points(r['eod_signed'])} points {interval(*r['intervals']['eod_signed'], 'points')}")
        for r in (results["groups"][stage] for stage in ("before", "after"))
    )
    assert f"EOD with its sign {before} {after} nearer to 0" in text
    alone = Reader(render_page(sample.before_only())).section("groups")
    for label in ("Worst-group accuracy", "EOD with its sign", "EOD with its sign, mean over classes"):
        assert label in alone


def test_groups_are_matched_by_class_and_value_not_by_name(results):
    for part in ("before", "after"):
        for group in results["groups"][part]["groups"]:
            group["name"] = f"{part} name"
    for row in results["groups"]["group_changes"]:
        row["name"] = "changed name"
    results["groups"]["after"]["groups"].reverse()
    results["groups"]["group_changes"].reverse()
    text = Reader(render_page(results)).section("groups")
    afters = {(g["y"], g["s"]): g for g in results["groups"]["after"]["groups"]}
    changes = {(c["y"], c["s"]): c for c in results["groups"]["group_changes"]}
    for group in results["groups"]["before"]["groups"]:
        after, change = afters[group["y"], group["s"]], changes[group["y"], group["s"]]
        assert (
            squeezed(
                f"{percent(group['accuracy'])} {interval(group['low'], group['high'])} "
                f"{percent(after['accuracy'])} {interval(after['low'], after['high'])} "
                f"{points(change['difference'])}"
            )
            in text
        )


def test_the_explorer_has_the_order_of_the_table(results):
    for stage in ("before", "after"):
        results["groups"][stage]["groups"].reverse()
    assert Reader(render_page(results)).one("div", id="plot-point")[0]["data-order"] == "3 2 1 0"


def test_probes_read_embeddings_not_predictions(results):
    text = Reader(render_page(results)).section("reading")
    probes = text[: text.index("Dependence on S")]
    assert "image embeddings" in probes
    assert "mitigated embeddings" in probes
    assert "Zero-shot" not in probes


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
    counts = [g["n"] for g in results["groups"]["before"]["groups"]]
    assert len(set(counts)) == 4
    assert all(f"{n:,}".replace(",", "\u202f") in body for n in counts)


def test_missing_values_are_a_dash(results):
    results["retrieval"]["queries"][0]["before"]["min_skew"] = {"value": None, "low": None, "high": None}
    results["retrieval"]["queries"][0]["changes"]["min_skew"] = dict.fromkeys(
        ("before", "after", "difference", "low", "high")
    )
    rows = Reader(render_page(results)).section("retrieval")
    assert re.search(r"MinSkew – −?\d\.\d{3}", rows)


NULLABLE = """
groups groups.before groups.after groups.changes groups.group_changes groups.seeds groups.before.eod
groups.after.train_weighted_average scores scores.before scores.after scores.before.threshold
picture picture.before picture.after plane plane.baseline plane.points.0.lambda_eff plane.points.0.eod
retrieval retrieval.queries.0.before retrieval.queries.0.after retrieval.queries.0.changes retrieval.queries.0.drift
retrieval.queries.0.changes.precision retrieval.mean.before retrieval.mean.after retrieval.mean.changes
probes probes.0.value dependence wording wording.used wording.templates.0.eod representation
model model.seconds model.labels model.command task.file settings.chosen_on
retrieval.pair retrieval.queries.0.before.kl auc auc.before auc.before.auc_gap
"""


OF_QUERIES = """
queries queries.mean queries.mean.after queries.mean.correlation queries.precision queries.queries.0.after
queries.queries.0.change queries.queries.0.correlation queries.queries.0.kept model.mitigator
"""


@pytest.mark.parametrize("path", OF_QUERIES.split())
def test_whatever_may_be_null_of_free_queries_may_be_null(path):
    test_whatever_may_be_null_may_be_null(sample.with_queries(), path)


@pytest.mark.parametrize("path", NULLABLE.split())
def test_whatever_may_be_null_may_be_null(results, path):
    *parents, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    part = results
    for key in parents:
        part = part[key]
    assert last in part if isinstance(part, dict) else part
    part[last] = None
    page = Reader(render_page(results))
    assert "None" not in page.one("main")[1]


def test_simulated_results_say_so(results):
    assert "Simulated embeddings" in squeezed(Reader(render_page(results)).one("header")[1])
    results["task"]["simulated"] = False
    assert "Simulated embeddings" not in squeezed(Reader(render_page(results)).one("header")[1])


def test_the_title_is_the_tasks_name_unless_given(results):
    assert Reader(render_page(results)).one("title")[1] == "simulated birds: audit by group"
    assert Reader(render_page(results, title="<b>Ours</b>")).one("title")[1] == "<b>Ours</b>"


def test_the_page_never_claims_to_have_removed_bias(results):
    text = render_page(results).lower()
    assert not re.search(r"bias(es)? (was |is |has been )?removed|remov\w+ (the )?bias|debias|unbiased", text)
    assert "mitigat" in text


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


@pytest.mark.parametrize("variant", VARIANTS)
def test_markup_has_no_inline_style_no_handler_and_no_address_outside(variant):
    page = Reader(render_page(getattr(sample, variant)()))
    for tag, attributes, _ in page.elements:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag
        for name in ("src", "href", "action"):
            assert re.match(r"#|data:,$", attributes.get(name) or "#")
    assert {tag for tag, _, _ in page.elements} & {
        "img",
        "iframe",
        "object",
        "embed",
        "base",
        "form",
    } == set()


def test_hostile_text_makes_no_element_and_comes_back_whole_from_the_json():
    calm, hostile = sample.two_class(taus=6, tau_zs=3), sample.hostile()
    pages = [Reader(render_page(results)) for results in (calm, hostile)]
    kinds = [[tag for tag, _, _ in page.elements if tag in ("script", "style", "b", "svg")] for page in pages]
    assert kinds[0] == kinds[1]
    data = json.loads(pages[1].one("script", id="results")[1])
    assert data["task"]["classes"][0] == hostile["task"]["classes"][0].replace("\u2028\u2029", "  ")
    names = [set().union(*(set(a) for _, a, _ in page.elements)) for page in pages]
    assert names[0] == names[1]


def test_embedded_json_cannot_end_its_element():
    text = render_page(sample.hostile())
    (body,) = re.findall(r'<script type="application/json" id="results">(.*?)</script>', text, re.DOTALL)
    assert not set("<>&\u2028\u2029") & set(body)
    json.loads(body)


def test_direction_and_control_characters_are_shown_as_replaced():
    text = render_page(sample.hostile(), title="a\u202eb\x00c\ud800d\u2066e\u200fz")
    assert Reader(text).one("title")[1] == "a\ufffdb\ufffdc\ufffdd\ufffde\ufffdz"
    assert not re.search(
        "[\u202a-\u202e\u2066-\u2069\u200e\u200f\ud800-\udfff\x00-\x09\x0b-\x1f\x7f-\x9f]", text
    )
    text.encode()


def test_words_of_other_scripts_and_joined_emoji_are_kept():
    title = "می‌خواهم नमस्ते 👩‍🔬 שלום"
    assert Reader(render_page(sample.minimal(), title=title)).one("title")[1] == title


def test_a_number_that_is_not_finite_is_refused(results):
    results["plane"]["points"][0]["average"] = float("nan")
    with pytest.raises(ResultsFileError, match=r"plane\.points\[0\]\.average"):
        render_page(results)


def test_the_whole_page_stays_below_a_megabyte():
    page = render_page(sample.two_class(21, 21, ("marginal", "conditional")))
    assert len(page.encode()) < 1_000_000
    assert sum(len((TEMPLATES / name).read_bytes()) for name in ("page.css", "page.js")) < 80_000


def test_rendering_leaves_the_results_alone_and_is_repeatable(results):
    kept = json.dumps(results)
    assert render_page(results) == render_page(results)
    assert json.dumps(results) == kept


def test_halves_round_as_the_script_rounds_them():
    shares = [percent(x).replace("\u00a0%", "") for x in (1 / 16, 3 / 16, 0.00049, 1.0)]
    assert shares == ["6.3", "18.8", "0.0", "100.0"]
    assert [points(x) for x in (-1 / 16, -0.00049, 0.5)] == ["−6.3", "0.0", "+50.0"]
    assert [number(-0.0004), signed(0.0004), signed(1.5, 1), number(None)] == ["0.000", "0.000", "+1.5", "–"]
    assert [setting(x) for x in (0.0, 0.14250000000000002, 10.0)] == ["0", "0.1425", "10"]
    assert [shown(x) for x in (None, "a", True, 0.1 + 0.2, [1])] == ["–", "a", "true", "0.3", "[1]"]
    assert interval(None, 0.5) == "[–, 50.0]"


def test_the_templates_are_in_the_wheel(tmp_path):
    build = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed here")
    (wheel,) = build.WheelBuilder(str(TEMPLATES.parents[3])).build(
        directory=str(tmp_path), versions=["standard"]
    )
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"fairerclip/report/templates/{f}" for f in ("page.html.j2", "page.css", "page.js")} <= names
