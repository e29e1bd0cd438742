"""The page in a real browser: quiet, complete, operable by mouse and keyboard, and safe with hostile text."""

import pytest
import sample
from forms import squeezed

from fairerclip._util.numbers import bare, interval, number, percent, setting
from fairerclip.auditing.recommendation import recommend
from fairerclip.auditing.results import check_results

pytestmark = pytest.mark.slow
pytest.importorskip("playwright.sync_api", reason="playwright is not installed")


def small_results():
    """Results whose plane is no curve, so that it has two sliders."""
    results = sample.two_class()
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
    bars = page.locator("#plot-point rect[data-stage=after]").element_handles()
    widths = [float(bar.get_attribute("width")) for bar in bars]
    correct = point["correct"] or [0] * len(plane["groups"])
    values = [k / group["n"] for k, group in zip(correct, plane["groups"], strict=True)]
    full = max(w / v for w, v in zip(widths, values, strict=True) if v) if any(values) else 1
    assert widths == pytest.approx([v * full for v in values], abs=0.1)
    fields = {
        "tau": setting(point["tau"]),
        "tau_z": setting(point["tau_z"]),
        "lambda_eff": number(point["lambda_eff"]),
        **{name: percent(point[name]) for name in ("average", "worst_group")},
        **{name: bare(point[name]) for name in ("eod", "gap")},
    }
    for name, text in fields.items():
        assert opened.text(f"#readout [data-field={name}]") == squeezed(text), name
    command = plane["command"].format(
        tau=f"{point['tau']:.12g}", tau_z=f"{point['tau_z']:.12g}", criterion=point["criterion"]
    )
    assert page.locator("#command").input_value() == command


def index_of(plane, tau, tau_z, criterion=0):
    return (criterion * len(plane["tau_zs"]) + tau_z) * len(plane["taus"]) + tau


@pytest.mark.parametrize("make", [sample.two_class, sample.many_classes, sample.hostile])
def test_opens_from_disk_without_a_word_or_a_request_and_fits_a_phone(open_page, make):
    opened = open_page(make(), 360)
    opened.page.wait_for_timeout(100)
    assert opened.messages == []
    assert opened.requests == [opened.page.url]
    assert opened.page.evaluate("window.denied") == []
    assert opened.page.evaluate("document.documentElement.scrollWidth") == 360


def test_the_explorer_follows_mouse_sliders_and_keyboard(open_page):
    results = small_results()
    opened, plane = open_page(results), results["plane"]
    page = opened.page
    check_point(opened, results, plane["chosen"])
    page.locator("#plot-plane rect.cell[data-tau='2'][data-tau-z='1']").click(force=True)
    check_point(opened, results, index_of(plane, 2, 1))
    page.locator("#slide-tau").fill("1")
    page.locator("#slide-tau-z").fill("2")
    check_point(opened, results, index_of(plane, 1, 2))
    page.locator("input[name=criterion][value='1']").check()
    check_point(opened, results, index_of(plane, 1, 2, 1))
    page.locator("#back").click()
    check_point(opened, results, plane["chosen"])
    page.locator("#plot-plane").focus()
    page.keyboard.press("Home")
    for _ in plane["tau_zs"]:
        page.keyboard.press("ArrowDown")
    check_point(opened, results, index_of(plane, 0, 0))
    for key in ("ArrowRight", "ArrowRight", "ArrowUp", "ArrowLeft"):
        page.keyboard.press(key)
    check_point(opened, results, index_of(plane, 1, 1))
    page.locator("#plot-front").focus()
    for _ in plane["front"]:
        page.keyboard.press("ArrowRight")
    check_point(opened, results, plane["front"][-1])


def test_plots_show_what_the_results_hold(open_page):
    results = small_results()
    opened = open_page(results)
    for stage in ("before", "after"):
        labels = opened.page.locator(f"#plot-groups text.value[data-stage={stage}]").all_text_contents()
        assert [squeezed(t) for t in labels] == [
            squeezed(f"{percent(g['accuracy'])} {interval(g['low'], g['high'])}")
            for g in results["groups"][stage]["groups"]
        ]


def test_hostile_text_does_nothing(open_page):
    calm, opened = open_page(sample.every_section()), open_page(sample.hostile())
    for name in ("all-points", "score-counts", "picture-counts"):
        for one in (calm, opened):
            one.page.locator(f"#{name} > summary").click()
    opened.page.locator("#plot-plane").focus()
    opened.page.keyboard.press("ArrowLeft")
    opened.page.wait_for_timeout(200)
    assert opened.dialogs == opened.messages == []
    assert opened.requests == [opened.page.url]
    assert opened.page.evaluate("[window.pwned === undefined, window.denied.length]") == [True, 0]
    count = (
        "Object.entries([...document.querySelectorAll('script, style, img, iframe, b, link, meta, a')]"
        ".reduce((n, e) => ({...n, [e.tagName]: (n[e.tagName] || 0) + 1}), {})).sort().join()"
    )
    names = "[...new Set([...document.querySelectorAll('*')].flatMap((e) => e.getAttributeNames()))].sort().join()"
    for script in (count, names):
        assert opened.page.evaluate(script) == calm.page.evaluate(script)


def test_axe_finds_nothing(open_page):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    # axe injects itself, which the policy rightly forbids: it is lifted here, and here alone.
    results = sample.two_class()
    opened = open_page(results, 360, color_scheme="dark", bypass_csp=True, reduced_motion="reduce")
    response = axe.run(opened.page, options={"resultTypes": ["violations"]}).response["violations"]
    assert [(v["id"], [node["html"][:160] for node in v["nodes"]][:3]) for v in response] == []


def test_without_scripts_the_words_and_tables_are_there(open_page):
    results = small_results()
    page = open_page(results, java_script_enabled=False).page
    answer = recommend(check_results(results))
    for sentence in (answer.sentence, answer.advice):
        assert page.get_by_text(sentence.replace(" %", "\u00a0%")).first.is_visible()
    assert page.locator("[aria-label='Accuracy by group'] table").is_visible()
    assert page.locator("#command").is_visible()
