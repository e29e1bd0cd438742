"""The page of a comparison in a real browser: the answer without scrolling, readable labels, and no barrier."""

import sys
from pathlib import Path

import pytest
from opened_page import Opened

from fairerclip.study.comparison_page import page

sys.path.append(str(Path(__file__).resolve().parents[1] / "study"))
from made_comparison import many, small_experiment

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
OVERLAPS = """() => {
  const boxes = [...document.querySelectorAll('.mark-label, .tick, .axis-title')]
    .map((text) => [text.textContent, text.getBoundingClientRect()]).filter(([, box]) => box.width);
  const marks = [...document.querySelectorAll('.mark')].map((mark) => mark.getBoundingClientRect());
  const meet = (a, b) => a.left < b.right && b.left < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom;
  return boxes.filter(([name, box], k) => boxes.slice(0, k).some(([, other]) => meet(box, other)) ||
    marks.some((mark) => meet(box, mark))).map(([name]) => name);
}"""
FIRST = "['.answer', '.use', '.picture'].map((name) => document.querySelector(name).getBoundingClientRect().bottom)"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Pages of comparisons by their number of methods."""
    folder, experiment = tmp_path_factory.mktemp("comparisons"), small_experiment()
    found = {}
    for number in (5, 30):
        found[number] = folder / f"{number}.html"
        found[number].write_text(page(many(experiment, number)).to_html(), encoding="utf-8")
    return found


@pytest.fixture
def open_file(browser, files):
    contexts = []

    def open_(number, width, **options):
        contexts.append(browser.new_context(viewport={"width": width, "height": 800}, **options))
        return Opened(contexts[-1], files[number], unfolded=False)

    yield open_
    for context in contexts:
        context.close()


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (380, "dark")])
def test_the_first_screen_is_the_answer(open_file, width, theme):
    opened = open_file(30, width, color_scheme=theme)
    assert max(opened.page.evaluate(FIRST)) <= 800
    assert opened.page.evaluate("document.documentElement.scrollWidth") == width
    assert opened.page.evaluate("document.body.innerText.split(/\\s+/).length") <= 900
    assert opened.page.evaluate(OVERLAPS) == []
    assert opened.messages == []
    assert opened.requests == [opened.page.url]
    assert opened.page.evaluate("window.denied") == []
    term = opened.page.locator("thead a.term").first
    term.click()
    assert opened.page.locator("dt:target").is_visible()


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (380, "dark")])
def test_axe_finds_nothing_in_a_comparison(open_file, width, theme):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
    ).Axe()
    opened = open_file(5, width, color_scheme=theme, bypass_csp=True)  # axe injects itself
    for summary in opened.page.locator("summary").element_handles():
        summary.click()
    found = axe.run(opened.page, options={"resultTypes": ["violations"]}).response["violations"]
    assert [(v["id"], [node["html"][:160] for node in v["nodes"]][:3]) for v in found] == []
