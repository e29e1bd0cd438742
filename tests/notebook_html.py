"""What a notebook shows of an object: its HTML is parsed and checked."""

from xml.etree import ElementTree

TAGS = {"div", "p", "strong", "table", "thead", "tbody", "tr", "th", "td", "svg", "path", "text"}
ATTRIBUTES = {
    "style": {"text-align: left", "text-align: right"},
    "scope": {"col", "row"},
    "stroke": {"currentColor", "#3b8fd4", "#d9730d"},
    "fill": {"currentColor", "none"},
}
FREE = {"viewBox", "width", "height", "role", "aria-label", "font-size", "d", "x", "y", "transform"}
FREE |= {"stroke-width", "stroke-linecap", "stroke-opacity", "text-anchor"}
HOSTILE = '<script>alert("x")</script> & \u202ebad' + "y" * 5000
"""A name with markup, a direction mark and too many characters."""


def shown(value):
    """The element that a notebook shows, if it has known tags and attributes only; colours are inherited."""
    text = value._repr_html_()
    assert len(text) < 100_000
    root = ElementTree.fromstring(text)  # noqa: S314 - our own output
    for element in root.iter():
        assert element.tag.removeprefix("{http://www.w3.org/2000/svg}") in TAGS
        for name, given in element.attrib.items():
            assert name in FREE or given in ATTRIBUTES[name], (name, given)
    return root


def tables(root):
    """Cells of each table as text, its head first."""
    return [[["".join(c.itertext()) for c in row] for row in t.iter("tr")] for t in root.iter("table")]


def paragraphs(root):
    return ["".join(p.itertext()) for p in root.iter("p")]
