"""Numbers as text: one rule of rounding, the same in Python and in the page's script."""

import ast
import itertools
import json
import math
import re
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from fairerclip._util import numbers
from fairerclip._util.numbers import (
    bare,
    change,
    gap,
    interval,
    measured,
    number,
    percent,
    rounded,
    setting,
    significant,
)

SOURCE = Path(numbers.__file__).parents[1]
SCRIPT = SOURCE / "report" / "templates" / "page.js"
MOST = 400


def half_up(ratio, digits):
    """A fraction rounded with whole numbers alone, halves up."""
    scaled = ratio * 10**digits
    whole = (2 * scaled.numerator + scaled.denominator) // (2 * scaled.denominator)
    return f"{whole // 10**digits}.{whole % 10**digits:0{digits}d}"


def test_thirteen_of_sixteen_are_81_3_per_cent_in_every_form():
    assert percent(13 / 16) == "81.3\u00a0%"
    assert bare(13 / 16) == "81.3"
    assert gap(13 / 16) == "81.3\u00a0points"
    assert interval(13 / 16, 15 / 16) == "[81.3, 93.8]"
    assert measured(-13 / 16, "points") == "−81.3\u00a0points"
    assert change(-13 / 16, -15 / 16, 1 / 16) == "−81.3 [−93.8, +6.3]"


def test_a_share_is_rounded_as_the_exact_ratio_of_its_counts():
    for n in range(1, MOST + 1):
        for k in range(n + 1):
            assert bare(k / n) == half_up(Fraction(100 * k, n), 1), (k, n)
            assert number(k / n) == half_up(Fraction(k, n), 3), (k, n)


def test_noise_of_binary_arithmetic_decides_no_rounding():
    assert 0.285 * 100 < 28.5
    assert number(0.285 * 100, 0) == "29"
    assert bare(0.6035 - 0.4) == "20.4"  # 0.20349999999999996
    assert bare(0.1 + 0.2 - 0.2995) == "0.1"  # 0.0005000000000000004 either way
    assert rounded(-0.00004, 3) == "0.000"
    assert [setting(x) for x in (0.0, 0.14250000000000002, 10.0, 0.7)] == ["0", "0.1425", "10", "0.7"]
    assert [significant(x) for x in (0.01, 0.0123456, 1.0, 0.00005, 1 / 3)] == [
        "0.01",
        "0.0123",
        "1",
        "0.00005",
        "0.333",
    ]


def test_what_is_not_a_number_is_said():
    assert [number(math.nan), number(math.inf), number(-math.inf), percent(None)] == ["–", "∞", "−∞", "–"]
    assert number(1.5e300, 1).startswith("1500000000000")


def script_texts(values):
    """What the page's script makes of each value, by the name of its function."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on this machine")
    text = SCRIPT.read_text(encoding="utf-8")
    part = text[text.index("// ---- Numbers as text") : text.index("// ---- Elements")]
    program = (
        f'"use strict";\n{part}\nconst values = JSON.parse(require("fs").readFileSync(0, "utf8"));\n'
        "const forms = { percent, gap, bare, number, setting, typed };\n"
        "const found = Object.fromEntries(Object.entries(forms).map(([name, f]) => [name, values.map(f)]));\n"
        "found.interval = values.map((x) => interval(x, 1 - x));\n"
        "process.stdout.write(JSON.stringify(found));"
    )
    done = subprocess.run(
        [node, "-e", program],
        input=json.dumps(values),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return json.loads(done.stdout)


def test_the_script_writes_every_share_as_python_does():
    shares = {k / n for n in range(1, MOST + 1) for k in range(n + 1)}
    # Differences of shares and numbers of other sizes: both signs, halves, very small and large ones.
    rng = np.random.default_rng(0)
    coarse = [k / 2000 for k in range(-2000, 2001)]
    differences = [a / 16 - b / 25 for a, b in itertools.product(range(17), range(26))]
    other = (rng.standard_normal(2000) * 10.0 ** rng.integers(-9, 9, 2000)).tolist()
    values = sorted(shares) + coarse + differences + other + [0.0, 0.00005, 999999.95, 0.285 * 100]
    found = script_texts(values)
    for name in ("percent", "gap", "bare", "number", "setting"):
        ours = [getattr(numbers, name)(x) for x in values]
        wrong = [(x, a, b) for x, a, b in zip(values, ours, found[name], strict=True) if a != b]
        assert wrong == [], name
    assert found["interval"] == [interval(x, 1 - x) for x in values]


FLOAT_FORMAT = re.compile(r"[eEfFgG%]$")
NOT_FIGURES = {
    "_util/checks.py": "ranges in error messages",
    "features/bandwidth.py": "a range in an error message",
    "model/parameters.py": "ranges in error messages",
    "_util/numbers.py": "the formatter itself",
    "report/document_charts.py": "coordinates of a drawing",
    "report/front_chart.py": "coordinates of a drawing",
    "auditing/sections/pictures.py": "edges of bins as data",
    "auditing/run.py": "seconds as data",
    "auditing/rewording.py": "a cosine in an error message",
    "baselines/afr.py": "parameters in a warning",
    "baselines/dfr.py": "a parameter in a warning",
    "baselines/linear_probe.py": "a grid of parameters",
    "baselines/logistic.py": "parameters in error messages",
    "encoders/preprocess.py": "constants of a preprocessing",
    "data/datasets/common.py": "shares of a split that were asked for",
    "data/datasets/fairface.py": "the share of a split that was asked for",
    "data/io/npz.py": "a limit in an error message",
    "data/preflight.py": "magnitudes of embeddings, no figure of a model",
    "data/embedding_rows.py": "magnitudes of embeddings in an error message",
    "data/row_drift.py": "lengths of embeddings and a cosine of means, no figure of a model",
    "study/paper/fits.py": "a grid of parameters",
    "study/paper/heatmaps.py": "a grid of parameters",
    "solver/alternation.py": "parameters in error messages",
    "solver/iterative.py": "residuals in an error message",
    "solver/lowrank.py": "a parameter in an error message",
    "embedding/same_space.py": "a parameter in an error message",
}
"""Modules that may format or round floats by themselves, and what these are."""


def own_formats(file):
    """Places where a module formats or rounds a float without the formatter."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
            parts = [part.value for part in node.format_spec.values if isinstance(part, ast.Constant)]
            if parts and FLOAT_FORMAT.search(str(parts[-1])):
                yield node.lineno
        elif isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else ""
            method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            texts = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            formats = called == "format" or method in ("format", "__format__")
            # round(x) makes a whole number, a count or a place; with digits it makes a number to be shown.
            if (called == "round" and len(node.args) > 1) or (
                formats and any(FLOAT_FORMAT.search(t) for t in texts)
            ):
                yield node.lineno
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            text = node.left.value if isinstance(node.left, ast.Constant) else ""
            if re.search(r"%[-+ 0#]*\d*\.?\d*[eEfFgG]", str(text)):
                yield node.lineno


def test_no_module_formats_figures_by_itself():
    found = {}
    for file in sorted(SOURCE.rglob("*.py")):
        lines = list(own_formats(file))
        if lines:
            found[file.relative_to(SOURCE).as_posix()] = lines
    assert {name: lines for name, lines in found.items() if name not in NOT_FIGURES} == {}
    assert sorted(set(NOT_FIGURES) - set(found)) == [], "these need no exception any more"


def test_templates_format_figures_with_the_formatter_alone():
    for template in sorted((SOURCE / "report" / "templates").glob("*.j2")):
        assert not re.search(r"\|\s*(round|format)\b|%\.\d", template.read_text(encoding="utf-8")), (
            template.name
        )
    script = SCRIPT.read_text(encoding="utf-8")
    assert "toFixed" not in script
