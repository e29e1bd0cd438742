"""Numbers as text: one rule of rounding, the same in Python and in the page's script."""

import itertools
import json
import math
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


@pytest.mark.slow
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
