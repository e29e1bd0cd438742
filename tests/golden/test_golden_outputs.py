"""What commands say and write about small tasks stays as it was recorded; `outputs` records it.

Numbers, predictions, tensors and exit codes must never change. Texts may, on purpose: record anew with
``python tests/golden/outputs.py`` and say why in ``outputs/CHANGES.md``.
"""

import csv
import io
import json
import math
import re
from itertools import islice

import pytest
from outputs import HOME, KERNEL, PARTS, differences, files_below, record

TOLERANCE = 1e-6  # models are float32, and other systems sum in another order
HASH = re.compile(r"\b[0-9a-f]{64}\b")
"""Hashes of tensors and tasks are compared by ``outputs.py --check`` alone: other machines round otherwise."""
EXACT = ("-answers.json", "predictions.csv")
"""Files in which words are predictions."""


def parsed(file, text):
    """Numbers and words of a file: JSON as it is, a CSV table as rows, of other files nothing but text."""
    if file.endswith(".json"):
        return json.loads(text)
    if file.endswith(".csv"):
        head, *rows = csv.reader(io.StringIO(text))
        return {"head": head, "rows": [[cell_value(cell) for cell in row] for row in rows]}
    return text


def cell_value(cell):
    try:
        return float(cell)
    except ValueError:
        return cell


def numbers_differ(old, new, words, where=""):
    """Places where two parsed files differ in what must never change: in words, too, if so told."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            if (key in old) != (key in new):
                yield f"{where}.{key}: {'gone' if key in old else 'new'}"
            else:
                yield from numbers_differ(old[key], new[key], words, f"{where}.{key}")
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield f"{where}: {len(new)} entries, were {len(old)}"
        for place, (before, after) in enumerate(zip(old, new, strict=False)):
            yield from numbers_differ(before, after, words, f"{where}[{place}]")
    elif not same(old, new, words):
        yield f"{where}: {new!r}, was {old!r}"


def same(old, new, words):
    if isinstance(old, str) and isinstance(new, str):
        return old == new or not words
    if isinstance(old, bool) or isinstance(new, bool) or not isinstance(old, int | float):
        return type(old) is type(new) and old == new
    if not isinstance(new, int | float):
        return False
    return math.isclose(old, new, rel_tol=TOLERANCE, abs_tol=TOLERANCE) or (old != old and new != new)


def values(files):
    """Parsed files that hold values; of a CSV table the rows without their heads."""
    told = {file: parsed(file, text) for file, text in files.items() if file.endswith((".json", ".csv"))}
    return {file: held["rows"] if file.endswith(".csv") else held for file, held in told.items()}


def wording(value):
    """A parsed file without its numbers."""
    if isinstance(value, dict):
        return {key: wording(held) for key, held in value.items()}
    if isinstance(value, list):
        return [wording(held) for held in value]
    return value if isinstance(value, str) else None


def never_to_change(old, new):
    """Where two sides differ in numbers, predictions, tensors or exit codes."""
    old, new = values(old), values(new)
    found = [f"{file}: {'gone' if file in old else 'new'}" for file in sorted({*old} ^ {*new})]
    for file in sorted({*old} & {*new}):
        found += [f"{file}{place}" for place in numbers_differ(old[file], new[file], file.endswith(EXACT))]
    return found


def changed_texts(old, new):
    """Files that differ in words."""
    told = [{file: wording(parsed(file, text)) for file, text in side.items()} for side in (old, new)]
    return sorted(file for file in {*old, *new} if told[0].get(file) != told[1].get(file))


@pytest.fixture(scope="module")
def recorded_kernel():
    import scipy.linalg  # noqa: F401 - its BLAS is listed only once it is loaded
    from threadpoolctl import threadpool_info

    used = {entry["architecture"] for entry in threadpool_info() if entry["user_api"] == "blas"}
    if used != {KERNEL}:
        pytest.skip(
            f"recorded with OPENBLAS_CORETYPE={KERNEL}, but BLAS has kernels of {', '.join(sorted(used))}"
        )


@pytest.mark.usefixtures("inline_jobs", "recorded_kernel")
@pytest.mark.parametrize("name", PARTS)
def test_outputs_are_as_recorded(name, run, tmp_path):
    record(name, tmp_path, run)
    sides = [
        {file: HASH.sub("", text) for file, text in files_below(home / name).items()}
        for home in (HOME, tmp_path)
    ]
    found = never_to_change(*sides)
    assert not found, "\n".join(["must never change:", *found[:20]])
    texts = changed_texts(*sides)
    diff = "\n".join(islice(differences(name, tmp_path), 60))
    assert not texts, f"may change on purpose (see outputs/CHANGES.md): {texts}\n{diff}"


def test_what_is_recorded_is_small():
    assert sum(file.stat().st_size for file in HOME.rglob("*") if file.is_file()) < 2.5e6
