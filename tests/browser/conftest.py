"""A browser for pages opened from disk; tests skip, with the reason, where there is none."""

import shutil
import sys
from pathlib import Path

import pytest
from opened_page import Opened

sys.path.append(str(Path(__file__).resolve().parents[1] / "report"))

QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")  # its event loop must not run on in the tests of other modules
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium on this machine")
    with api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=program, args=QUIET)
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser, tmp_path):
    """Open the page of some results, all sections unfolded: `open_page(results, width=…, context options…)`."""
    from forms import render_page

    contexts = []

    def open_(results, width=1280, *, height=900, unfolded=True, **options):
        file = tmp_path / f"page-{len(contexts)}.html"
        file.write_text(render_page(results), encoding="utf-8")
        contexts.append(browser.new_context(viewport={"width": width, "height": height}, **options))
        return Opened(contexts[-1], file, unfolded)

    yield open_
    for context in contexts:
        context.close()
