"""The page in a real browser: quiet, complete, operable by mouse and keyboard, and safe with hostile text."""

import json
from functools import partial

import pytest
import sample
from forms import squeezed

from fairerclip._util.numbers import bare, interval, number, percent, setting
from fairerclip.auditing.recommendation import recommend
from fairerclip.auditing.results import check_results
from fairerclip.report.command import filled

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect


AXE = "axe_playwright_python.sync_playwright"


def small_results():
    """Results whose plane is no curve, so that it has two sliders."""
    results = sample.two_class(taus=6, tau_zs=3)
    results["plane"]["one_curve"] = False
    return results


def expected_labels(plane, index):
    """What each group's bar should say at one point."""
    point, labels = plane["points"][index], []
    for g, group in enumerate(plane["groups"]):
        if point["correct"] is None:
            labels.append("–")
            continue
        correct = point["correct"][g]
        ends = plane["intervals"][g][str(correct)]
        labels.append(squeezed(f"{percent(correct / group['n'])} {interval(*ends)}"))
    return labels


def check_point(opened, results, index):
    """Every bar, the readout and the command belong to this point, and to no other."""
    plane, page = results["plane"], opened.page
    point = plane["points"][index]
    labels = page.locator("#plot-point text.value[data-stage=after]").all_text_contents()
    assert [squeezed(text) for text in labels] == expected_labels(plane, index)
    widths = [
        float(bar.get_attribute("width"))
        for bar in page.locator("#plot-point rect[data-stage=after]").element_handles()
    ]
    correct = point["correct"] or [0] * len(plane["groups"])
    values = [k / group["n"] for k, group in zip(correct, plane["groups"], strict=True)]
    full = max(w / v for w, v in zip(widths, values, strict=True) if v) if any(values) else 1
    assert widths == pytest.approx([v * full for v in values], abs=0.1)
    fields = {
        "tau": setting(point["tau"]),
        "tau_z": setting(point["tau_z"]),
        "criterion": point["criterion"],
        "lambda_eff": number(point["lambda_eff"]),
        **{name: percent(point[name]) for name in ("average", "worst_group")},
        **{name: bare(point[name]) for name in ("eod", "gap")},
    }
    for name, text in fields.items():
        assert opened.text(f"#readout [data-field={name}]") == squeezed(text), name
    command = page.locator("#command").input_value()
    assert command == plane["command"].format(
        tau=f"{point['tau']:.12g}", tau_z=f"{point['tau_z']:.12g}", criterion=point["criterion"]
    )
    assert ("the chosen point" in opened.text("#is-chosen")) == (index == plane["chosen"])


def index_of(plane, tau, tau_z, criterion=0):
    return (criterion * len(plane["tau_zs"]) + tau_z) * len(plane["taus"]) + tau


@pytest.mark.parametrize(
    "make", [sample.with_queries, sample.seven_class, sample.retrieval_only, sample.minimal]
)
def test_opens_from_disk_without_a_word_or_a_request(open_page, make):
    opened = open_page(make())
    opened.page.wait_for_timeout(100)
    assert opened.messages == []
    assert opened.requests == [opened.page.url]
    assert opened.page.evaluate("window.denied") == []
    for svg in opened.page.locator("svg[role=img]").element_handles():
        assert svg.query_selector("title").text_content()
        assert svg.query_selector("desc").text_content()


def test_the_explorer_follows_a_click_on_the_plane(open_page):
    results = small_results()
    opened = open_page(results)
    check_point(opened, results, results["plane"]["chosen"])
    for tau, tau_z in ((2, 1), (5, 0)):
        opened.page.locator(f"#plot-plane rect.cell[data-tau='{tau}'][data-tau-z='{tau_z}']").click(
            force=True
        )
        check_point(opened, results, index_of(results["plane"], tau, tau_z))
    assert opened.page.locator("#failure").is_visible()
    assert "NoSolutionError" in opened.text("#failure")
    opened.page.locator("#back").click()
    check_point(opened, results, results["plane"]["chosen"])


def test_the_explorer_follows_sliders_and_criterion(open_page):
    results = small_results()
    opened = open_page(results)
    page = opened.page
    page.locator("#slide-tau").fill("1")
    page.locator("#slide-tau-z").fill("2")
    check_point(opened, results, index_of(results["plane"], 1, 2))
    assert page.locator("#slide-tau").get_attribute("aria-valuetext") == setting(results["plane"]["taus"][1])
    page.locator("input[name=criterion][value='1']").check()
    check_point(opened, results, index_of(results["plane"], 1, 2, 1))
    page.locator("input[name=figure][value=eod]").check()
    assert "EOD, lower is better" in opened.text("#plot-plane")


def test_the_explorer_is_operable_by_keyboard_alone(open_page):
    results = small_results()
    opened = open_page(results)
    page, plane = opened.page, results["plane"]
    page.locator("#plot-plane").focus()
    page.keyboard.press("Home")
    for _ in plane["tau_zs"]:
        page.keyboard.press("ArrowDown")
    check_point(opened, results, index_of(plane, 0, 0))
    for key in ("ArrowRight", "ArrowRight", "ArrowUp", "ArrowLeft"):
        page.keyboard.press(key)
    check_point(opened, results, index_of(plane, 1, 1))
    expect(page.locator("#live")).to_contain_text("τ 0.19, τ_z 0.475")
    assert squeezed(percent(plane["points"][index_of(plane, 1, 1)]["average"])) in opened.text("#live")
    page.locator("#plot-front").focus()
    for _ in plane["front"]:
        page.keyboard.press("ArrowRight")
    check_point(opened, results, plane["front"][-1])
    page.locator("#slide-tau").focus()
    page.keyboard.press("Home")
    assert opened.text("#readout [data-field=tau]") == setting(plane["taus"][0])


def test_the_front_picks_the_nearest_point(open_page):
    results = small_results()
    opened = open_page(results)
    index = results["plane"]["front"][0]
    opened.page.locator("#plot-front path.front-point").first.click(force=True)
    point = results["plane"]["points"][index]
    assert opened.text("#readout [data-field=average]") == squeezed(percent(point["average"]))


def test_every_interactive_thing_is_reached_by_tab_and_shows_its_focus(open_page):
    opened = open_page(small_results())
    page, seen = opened.page, set()
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.add(
            page.evaluate(
                """() => {
                  const here = document.activeElement;
                  const shown = here.matches('.choice input') ? here.nextElementSibling : here;
                  const ring = getComputedStyle(shown).outlineStyle !== 'none' || here.matches('.skip');
                  return (here.id || here.name || here.className || here.tagName) + (ring ? '' : ' without ring');
                }"""
            )
        )
    assert {
        "theme",
        "plot-plane",
        "plot-front",
        "slide-tau",
        "slide-tau-z",
        "back",
        "command",
        "copy",
    } <= seen
    assert {"skip", "figure", "criterion", "axis", "colour"} <= seen
    assert not [name for name in seen if "without" in name and not name.startswith("BODY")]


def test_copy_copies_or_selects(open_page):
    results = small_results()
    opened = open_page(results, permissions=["clipboard-read", "clipboard-write"])
    page = opened.page
    page.locator("#copy").click()
    expect(page.locator("#copied")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == page.locator("#command").input_value()
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')); }")
    page.locator("#copy").click()
    expect(page.locator("#copied")).to_contain_text("is selected")
    selected = page.evaluate(
        "(({selectionStart: a, selectionEnd: b, value}) => value.slice(a, b))(document.activeElement)"
    )
    assert selected == page.locator("#command").input_value()


def test_hostile_text_does_nothing(open_page):
    results = sample.hostile()
    calm, opened = open_page(sample.two_class(taus=6, tau_zs=3)), open_page(results)
    for name in ("all-points", "score-counts", "picture-counts"):
        for one in (calm, opened):
            one.page.locator(f"#{name} > summary").click()
    opened.page.locator("#plot-plane").focus()
    opened.page.keyboard.press("ArrowLeft")
    opened.page.locator("#copy").click()
    opened.page.wait_for_timeout(400)
    assert opened.dialogs == []
    assert opened.messages == []
    assert opened.requests == [opened.page.url]
    assert opened.page.evaluate("[window.pwned === undefined, window.denied.length]") == [True, 0]
    assert opened.page.title().startswith("simulated birds</script><script>window.pwned=1")
    count = (
        "Object.entries([...document.querySelectorAll('script, style, img, iframe, b, link, meta, a')]"
        ".reduce((n, e) => ({...n, [e.tagName]: (n[e.tagName] || 0) + 1}), {})).sort().join()"
    )
    assert opened.page.evaluate(count) == calm.page.evaluate(count)
    names = "[...new Set([...document.querySelectorAll('*')].flatMap((e) => e.getAttributeNames()))].sort().join()"
    assert opened.page.evaluate(names) == calm.page.evaluate(names)


def violations(opened):
    axe = pytest.importorskip(AXE, reason="axe-playwright-python is not installed").Axe()
    # Tables made when opened are all made by one function: the shortest stands for the long ones.
    short = "details.data:not([open], #score-counts, #picture-counts) > summary"
    for summary in opened.page.locator(short).element_handles():
        summary.click()
    # To list what passes, too, would take longer than to look.
    response = axe.run(opened.page, options={"resultTypes": ["violations"]}).response["violations"]
    return [(v["id"], [node["html"][:160] for node in v["nodes"]][:3]) for v in response]


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 360)])
def test_axe_finds_nothing(open_page, theme, width):
    # axe injects itself, which the policy rightly forbids: it is lifted here, and here alone.
    results = sample.two_class(taus=3, tau_zs=2)
    opened = open_page(results, width, color_scheme=theme, bypass_csp=True, reduced_motion="reduce")
    assert violations(opened) == []


MOST_WORDS = 900


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (380, 800)])
@pytest.mark.parametrize(
    "make",
    [small_results, partial(sample.seven_class, 3, 2), sample.retrieval_only, sample.before_only],
    ids=["two classes", "seven classes", "retrieval only", "before only"],
)
def test_the_first_screen_holds_sentence_advice_and_picture(open_page, make, width, height):
    opened = open_page(make(), width, height=height, unfolded=False)
    for part in (".answer", ".advice", ".answer-picture"):
        box = opened.page.locator(part).bounding_box()
        assert box["height"] > 10, part
        assert box["y"] + box["height"] <= height, part
    assert len(opened.page.locator("body").inner_text().split()) <= MOST_WORDS
    assert opened.page.locator(".card").count() <= 3
    assert not opened.page.locator("details.part[open]").count()
    assert opened.page.evaluate("document.documentElement.scrollWidth") == width


def test_one_slider_runs_over_a_plane_that_is_one_curve(open_page):
    results = sample.two_class(taus=6, tau_zs=3)
    plane = results["plane"]
    opened = open_page(results)
    page = opened.page
    assert page.locator("#slide-tau, #slide-tau-z").count() == 0
    strengths = sorted({round(p["lambda_eff"], 9) for p in plane["points"] if p["criterion"] == "marginal"})
    slider = page.locator("#slide-strength")
    assert slider.get_attribute("max") == str(len(strengths) - 1)
    for place in (0, len(strengths) - 1, 2):
        slider.fill(str(place))
        assert opened.text("#readout [data-field=lambda_eff]") == number(strengths[place])
        assert slider.input_value() == str(place)
    page.locator("#back").click()
    check_point(opened, results, plane["chosen"])


def test_the_slider_and_the_bars_that_it_moves_are_on_one_screen(open_page):
    for results in (sample.two_class(taus=6, tau_zs=3), sample.seven_class()):
        for width in (1280, 380):
            page = open_page(results, width, height=800, reduced_motion="reduce").page
            page.locator("#plot-point").evaluate("bars => bars.scrollIntoView({block: 'end'})")
            slider = page.locator(".sliders input").first.bounding_box()
            assert 0 <= slider["y"] < 800


def test_a_point_that_loses_to_zero_shot_says_so(open_page):
    results = small_results()
    plane = results["plane"]
    plane["baseline"]["worst_group"] = 0.5
    plane["points"][plane["chosen"]]["worst_group"] = 0.4
    opened = open_page(results)
    assert opened.text("#loses") == "On these rows zero-shot has the better worst group: 50.0 %, here 40.0 %."
    plane["points"][plane["chosen"]]["worst_group"] = 0.6
    assert not open_page(results).page.locator("#loses").is_visible()


def test_nothing_covers_the_mark_of_zero_shot(open_page):
    results = small_results()
    chosen = results["plane"]["points"][results["plane"]["chosen"]]
    results["plane"]["baseline"] |= {name: chosen[name] for name in ("average", "worst_group")}
    marks = (
        open_page(results)
        .page.locator("#plot-front svg > path")
        .evaluate_all("paths => paths.map((path) => path.getAttribute('class'))")
    )
    assert marks[-1] == "zero"


def test_a_term_is_explained_by_a_tap_and_the_contents_unfold_their_section(open_page):
    opened = open_page(small_results(), 380, unfolded=False)
    page = opened.page
    tap = page.locator(".card .tap").last
    definition = page.locator(f"#{tap.get_attribute('popovertarget')}")
    assert not definition.is_visible()
    tap.click()
    assert definition.is_visible()
    assert "Equal opportunity difference" in definition.inner_text()
    page.keyboard.press("Escape")
    assert not page.locator("nav").is_visible()
    page.locator(".contents > summary").click()
    page.locator("nav a", has_text="Mistakes by group").click()
    assert page.locator("#confusion").is_visible()
    page.locator("#unfold").click()
    assert not page.locator("details.part:not([open])").count()


def test_a_table_that_goes_on_says_so(open_page):
    opened = open_page(sample.seven_class(), 380)
    page = opened.page
    wide = page.locator("#confusion .table-box").first
    expect(wide.locator(".scroll-hint")).to_be_visible()
    narrow = open_page(sample.two_class(taus=3, tau_zs=2), 1280).page.locator("#groups .table-box").first
    assert not narrow.locator(".scroll-hint").is_visible()


@pytest.mark.parametrize("make", [sample.two_class, sample.seven_class, sample.hostile])
def test_a_phone_never_scrolls_sideways(open_page, make):
    opened = open_page(make(), 360)
    for summary in opened.page.locator("details.data > summary").element_handles()[:4]:
        summary.click()
    assert opened.page.evaluate("document.documentElement.scrollWidth") == 360


def test_without_scripts_the_words_and_tables_are_there(open_page):
    results = small_results()
    opened = open_page(results, java_script_enabled=False)
    page = opened.page
    answer = recommend(check_results(results))
    for sentence in (answer.sentence, answer.advice):
        assert page.get_by_text(sentence.replace(" %", "\u00a0%")).first.is_visible()
    assert page.locator(".answer-picture .row").count() == 5  # four groups and the axis
    assert page.locator("noscript .banner").is_visible()
    for label in ("Accuracy by group", "Figures before and after", "Skew before and after", "Probes"):
        assert page.locator(f"[aria-label='{label}'] table").is_visible()
    assert page.locator("#command").is_visible()
    assert not page.locator(".js-only:visible").count()


def test_paper_is_light_shows_the_chosen_point_and_cuts_nothing_off(open_page):
    results = small_results()
    opened = open_page(results, color_scheme="dark")
    page = opened.page
    page.locator("#plot-plane").focus()
    page.keyboard.press("Home")
    assert "picked" in opened.text("#is-chosen")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    check_point(opened, results, results["plane"]["chosen"])
    assert (
        page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--page').trim()")
        == "#ffffff"
    )
    assert not page.locator(".contents").is_visible()
    assert page.locator(".answer-picture").is_visible()
    assert not page.locator("#slide-tau").is_visible()
    assert page.evaluate(
        "[...document.querySelectorAll('.table-box')].every((b) => getComputedStyle(b).overflowX === 'visible')"
    )
    page.emulate_media(media="screen")
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert opened.text("#readout [data-field=tau]") == setting(results["plane"]["taus"][0])
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_the_theme_button_switches_and_the_choice_is_kept(open_page):
    opened = open_page(small_results(), color_scheme="light")
    page = opened.page
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)
    assert opened.text("#theme") == "Dark theme"
    page.locator("#theme").click()
    assert page.evaluate(colour) != light
    assert opened.text("#theme") == "Light theme"
    # The browser writes its storage in the background: on a busy machine, a reload at once can come before the write.
    for _ in range(20):
        page.reload()
        if page.evaluate(colour) != light:
            break
        page.wait_for_timeout(250)
    assert page.evaluate(colour) != light
    assert opened.text("#theme") == "Light theme"


def test_one_value_of_tau_z_makes_a_strip(open_page):
    results = sample.two_class(taus=6, tau_zs=1, criteria=("marginal",))
    results["plane"]["one_curve"] = False
    opened = open_page(results)
    assert opened.page.locator("#plot-plane rect.cell").count() == 6
    assert opened.page.locator("#slide-tau-z, #choose-criterion").count() == 0
    opened.page.locator("#slide-tau").fill("2")
    check_point(opened, results, 2)


def test_plots_show_what_the_results_hold(open_page):
    results = small_results()
    opened = open_page(results)
    for stage in ("before", "after"):
        labels = opened.page.locator(f"#plot-groups text.value[data-stage={stage}]").all_text_contents()
        groups = results["groups"][stage]["groups"]
        assert [squeezed(t) for t in labels] == [
            squeezed(f"{percent(g['accuracy'])} {interval(g['low'], g['high'])}") for g in groups
        ]
    query = results["retrieval"]["queries"][0]
    described = opened.text("#plot-retrieval figure:first-child desc")
    for stage, word in (("before", "zero-shot"), ("after", "FairerCLIP")):
        share = query[stage]["counts"][0] / results["retrieval"]["k"]
        assert squeezed(f"{word}: {results['retrieval']['groups'][0]} {percent(share)}") in described
    marks = opened.page.locator("#plot-picture-before path.bubble").count()
    opened.page.locator("input[name=colour][value=s]").check()
    assert marks != opened.page.locator("#plot-picture-before path.bubble").count()
    assert results["task"]["groups"][0] in opened.text("#picture-key")


def test_the_explorer_has_the_order_of_the_table_and_its_units(open_page):
    results = small_results()
    for stage in ("before", "after"):
        results["groups"][stage]["groups"].reverse()
    opened = open_page(results)
    names = [group["name"] for group in results["groups"]["before"]["groups"]]
    for plot in ("#plot-groups", "#plot-point"):
        shown = opened.page.locator(f"{plot} text.strong > title").all_text_contents()
        assert shown == names
    opened.page.locator("input[name=axis][value=eod]").check()
    opened.page.locator("input[name=figure][value=gap]").check()
    assert "EOD, points (lower is better)" in opened.text("#plot-front")
    assert "points" in opened.text("#plot-plane")


def test_without_a_command_the_explorer_still_works(open_page):
    results = small_results()
    results["plane"]["command"] = "fairerclip fit x; rm -rf ~"
    opened = open_page(results)
    opened.page.locator("#slide-tau").fill("1")
    assert opened.text("#readout [data-field=tau]") == setting(results["plane"]["taus"][1])
    assert opened.messages == []
    assert opened.page.locator("#command, #copy").count() == 0


def test_the_script_fills_the_words_that_the_page_fills(open_page):
    results = small_results()
    results["plane"]["command"] = """fairerclip fit 'it'"'"'s {tau} b' --tau {tau} --criterion {criterion}"""
    results["plane"]["criteria"] = ["o'ne {tau} two"] * 2
    for point in results["plane"]["points"]:
        point["criterion"] = "o'ne {tau} two"
    opened, plane = open_page(results), check_results(results).plane
    assert opened.page.locator("#command").input_value() == filled(plane.command, plane.points[plane.chosen])


def test_long_names_are_short_in_plots(open_page):
    text = json.dumps(small_results()).replace("landbird", "land" + "x" * 3000 + "bird")
    opened = open_page(json.loads(text))
    assert opened.messages == []
    assert "x" * 121 not in opened.text("main")
    assert opened.page.evaluate("document.documentElement.scrollWidth") == 1280
