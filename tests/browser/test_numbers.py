"""Every number that the page shows is in results.json, or is a share of counts that are."""

import json
import re

import pytest

from fairerclip import FairerCLIP
from fairerclip._util.numbers import number, percent, points, setting, shown, signed
from fairerclip.auditing.results import write_results
from fairerclip.auditing.run import AuditOptions, audit_task
from fairerclip.data import simulate
from fairerclip.experiment import Experiment

pytestmark = pytest.mark.slow
pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

NUMBER = re.compile(r"(?<![\w.])[+−-]?\d[\d\u202f\u00a0]*(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)")
AXES = re.compile(r"^[+−]?\d+(\.\d+)?( %)?$")  # tick labels are positions, not figures
EXPLAINED = {
    "0",
    "1",
    "2",
    "30",
    "95",
    "100",
    "2024",
    "2403.15593",
}  # in sentences that explain a figure, and the citation


EXPLANATIONS = re.compile("50 % is chance|and −1 are one group alone|from −1 to 1")
"""Levels and ranges of figures, in sentences that explain them; these numbers are none elsewhere."""


def leaves(value, key=""):
    if isinstance(value, dict):
        for name, part in value.items():
            yield from leaves(name, "key")
            yield from leaves(part, name)
    elif isinstance(value, list):
        for part in value:
            yield from leaves(part, key)
    else:
        yield value


def shares(results):
    """Shares of counts that the page shows: confusion rows, groups of the plane, groups of a top k."""
    for stage in ("before", "after"):
        for square in results["groups"][stage]["confusion"]:
            for row in square:
                yield from (k / max(sum(row), 1) for k in row)
    plane = results["plane"]
    for point in [*plane["points"], plane["baseline"]]:
        yield from (k / g["n"] for k, g in zip(point["correct"], plane["groups"], strict=True))
    for query in results["retrieval"]["queries"]:
        for stage in ("before", "after"):
            yield from (k / results["retrieval"]["k"] for k in query[stage]["counts"])


def forms(value):
    """How the page may write a number."""
    texts = [percent(value), points(value), setting(value), shown(value), f"{value:.12g}", str(value)]
    for digits in (1, 2, 3, 4):
        texts += [number(value, digits), signed(value, digits)]
    return {plain(text.replace("%", "")) for text in texts}


def plain(text):
    return re.sub(r"\s", "", text).replace("−", "-").lstrip("+")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    experiment = Experiment.of(simulate("waterbirds", seed=1, scale=0.1, width=48))
    model = FairerCLIP(n_features=200, class_weight="balanced", random_state=0)
    found, _ = audit_task(experiment, AuditOptions(permutations=19, seeds=2), model=model)
    return json.loads(
        write_results(found, tmp_path_factory.mktemp("results") / "results.json").read_text("utf-8")
    )


def test_every_number_on_the_page_is_in_the_results(open_page, results):
    page = open_page(results).page
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    texts = page.evaluate(
        """() => {
            const found = [];
            const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
            for (let node = walk.nextNode(); node; node = walk.nextNode()) {
                const parent = node.parentElement;
                if (!parent.closest('script, style, noscript')) {
                    found.push([node.textContent, Boolean(parent.closest('svg'))]);
                }
            }
            return found;
        }"""
    )
    known = set(EXPLAINED)
    for leaf in leaves(results):
        if isinstance(leaf, str):
            known |= {plain(m.group()) for m in NUMBER.finditer(leaf)}
        elif isinstance(leaf, int | float) and not isinstance(leaf, bool):
            known |= forms(leaf)
    for share in shares(results):
        known |= forms(share)
    known |= {str(len(results["plane"][name])) for name in ("points", "front")}
    known |= {str(len(results["task"][name])) for name in ("classes", "groups")}
    missing, checked = [], 0
    for text, drawn in texts:
        if drawn and AXES.match(" ".join(text.split())):
            continue
        for match in NUMBER.finditer(EXPLANATIONS.sub("", text)):
            checked += 1
            if plain(match.group()) not in known:
                missing.append((match.group(), " ".join(text.split())[:80]))
    assert checked > 1000
    assert missing == []
