"""What the source and the documentation cite exists: anchors, equations, files."""

from __future__ import annotations

import re
import unicodedata
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MATH = ROOT / "docs" / "math.md"
SOURCES = sorted((ROOT / "src").rglob("*.py"))
GENERATED = ("_build", "gallery", "commands", "generated")
PAGES = [
    *(p for p in sorted((ROOT / "docs").rglob("*.md")) if not set(p.parts) & set(GENERATED)),
    *(ROOT / name for name in ("CONTRIBUTING.md", "README.md", "SECURITY.md")),
]

FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1[`~]*\s*$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*\s*$", re.MULTILINE)
EXPLICIT = re.compile(r"<[a-z][^>]*?\b(?:id|name)=[\"']([^\"']+)[\"']")
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+[\"'][^\"']*[\"'])?\s*\)")
REFERENCE = re.compile(r"^\[[^\]]+\]:\s*<?(\S+?)>?\s*$", re.MULTILINE)
CITED_PAGE = re.compile(r"\bdocs/((?:[\w-]+/)*[\w-]+\.md)(?:#([\w-]+))?")
CITED_EQUATION = re.compile(r"\bEqs?\.?\s*((?:\(\d+\)(?:\s*(?:,|and|to|-|–)\s*)?)+)")


def slug(heading: str) -> str:
    """GitHub's anchor of a heading: lower case, punctuation dropped, spaces to hyphens."""
    text = re.sub(r"<[^>]+>", "", heading)  # tags
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)  # links show their text
    text = re.sub(r"[`*]", "", text).strip().lower()
    kept = (c for c in text if c in "-_ " or unicodedata.category(c)[0] in "LNM")
    return "".join(kept).replace(" ", "-")


def anchors(markdown: str) -> set[str]:
    """Every anchor of a page: headings (repeated ones are numbered) and explicit ids."""
    body = FENCE.sub("", markdown)
    found = set(EXPLICIT.findall(body))
    seen: dict[str, int] = {}
    for heading in HEADING.findall(body):
        name = slug(heading)
        count = seen.get(name, 0)
        seen[name] = count + 1
        found.add(f"{name}-{count}" if count else name)
    return found


def equations(text: str) -> set[int]:
    """Numbers cited as Eq. (N), Eqs (N) and (M), Eqs. (N), (M)."""
    return {int(n) for group in CITED_EQUATION.findall(text) for n in re.findall(r"\d+", group)}


def broken_links(page: Path) -> list[str]:
    """Relative links of a page whose file or anchor does not exist."""
    body = FENCE.sub("", page.read_text(encoding="utf-8"))
    targets = LINK.findall(body) + REFERENCE.findall(body)
    broken = []
    for target in targets:
        if re.match(r"[a-z][a-z0-9+.-]*:|//", target, re.IGNORECASE):
            continue
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        missing_anchor = (
            bool(anchor)
            and other.suffix == ".md"
            and other.is_file()
            and anchor not in anchors(other.read_text(encoding="utf-8"))
        )
        if not other.exists() or missing_anchor:
            broken.append(target)
    return broken


def broken_citations(source: str, root: Path) -> list[str]:
    """Citations docs/PAGE.md and docs/PAGE.md#anchor in a source text that lead nowhere."""
    broken = []
    for match in CITED_PAGE.finditer(source):
        page = root / "docs" / match[1]
        if not page.is_file() or (match[2] and match[2] not in anchors(page.read_text(encoding="utf-8"))):
            broken.append(match[0])
    return broken


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT / "src")))
def test_pages_and_anchors_cited_in_the_source_exist(path):
    assert broken_citations(path.read_text(encoding="utf-8"), ROOT) == []


def test_the_source_does_cite_the_mathematics():
    cited = {m[2] for p in SOURCES for m in CITED_PAGE.finditer(p.read_text(encoding="utf-8"))}
    assert {"low-rank", "moments", "terms", "algorithm", "dep"} <= cited


def test_equations_cited_in_the_source_are_in_the_mathematics():
    cited = {n for p in SOURCES for n in equations(p.read_text(encoding="utf-8"))}
    assert {2, 7, 8} <= cited
    assert cited <= equations(MATH.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page):
    assert broken_links(page) == []


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("Moments", "moments"),
        ("When one step is all", "when-one-step-is-all"),
        ("The equations, and where they live", "the-equations-and-where-they-live"),
        ("`tau_z` and *τ*: [a link](x.md)!", "tau_z-and-τ-a-link"),
        ("Low-rank  form", "low-rank--form"),
    ],
)
def test_slug_is_that_of_github(heading, expected):
    assert slug(heading) == expected


def test_anchors_number_repeated_headings_and_skip_code():
    page = '# One\n\n## One\n\n```\n# not a heading\n```\n\n<a id="explicit"></a>\n## Two #\n'
    assert anchors(page) == {"one", "one-1", "explicit", "two"}


def test_equations_are_read_in_every_form():
    assert equations("Eq. (2) of X, Eqs (3) and (4), Eqs. (5), (6). A sum (7).") == {2, 3, 4, 5, 6}


def test_a_broken_citation_or_link_is_found(tmp_path):
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "math.md"
    page.write_text(
        "# Here\n[a](#here) [b](#gone) [c](math.md#here) [d](none.md) [e](https://example.org/#x)\n",
        encoding="utf-8",
    )
    source = "docs/math.md#here docs/math.md#gone. See docs/math.md; docs/none.md"
    assert broken_links(page) == ["#gone", "none.md"]
    assert broken_citations(source, tmp_path) == ["docs/math.md#gone", "docs/none.md"]


ROOMS = "data|inputs|features|solver|metrics|model|embedding|tuning|baselines|auditing|encoders"


def test_code_that_the_derivations_name_is_there():
    names = re.findall(rf"`((?:{ROOMS})(?:\.\w+)+)`", MATH.read_text(encoding="utf-8"))
    assert len(names) > 20
    for name in names:
        found, *rest = import_module("fairerclip"), *name.split(".")
        for part in rest:
            is_module = hasattr(found, "__path__") and find_spec(f"{found.__name__}.{part}") is not None
            found = import_module(f"{found.__name__}.{part}") if is_module else getattr(found, part)


def test_files_that_security_names_are_there():
    named = re.findall(r"`((?:\w+/)+\w+\.py)`", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    assert len(named) > 10
    assert [
        f for f in named if not any((home / f).is_file() for home in (ROOT, ROOT / "src/fairerclip"))
    ] == []
