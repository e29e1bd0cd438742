"""A browser for pages opened from disk; tests skip, with the reason, where there is none."""

import shutil
import sys
from pathlib import Path

import pytest

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


class Opened:
    """A page from disk and everything it said, asked for or was denied."""

    def __init__(self, context, file, unfolded):
        self.messages, self.requests, self.dialogs = [], [], []
        context.add_init_script(
            "window.denied = []; document.addEventListener('securitypolicyviolation', "
            "(event) => window.denied.push(event.violatedDirective + ' ' + event.blockedURI));"
        )
        self.page = context.new_page()
        self.page.on("console", lambda message: self.messages.append((message.type, message.text)))
        self.page.on("pageerror", lambda error: self.messages.append(("error", str(error))))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("dialog", self._dismiss)
        self.page.goto(file.as_uri())
        if unfolded:
            self.page.evaluate(
                "for (const part of document.querySelectorAll('details.part')) part.open = true;"
            )

    def _dismiss(self, dialog):
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def text(self, selector):
        return " ".join(self.page.locator(selector).text_content().split())


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
