"""Results of an audit as typed objects: what is written and read, and what is refused."""

import copy
import importlib
import json
import os
import sys
from pathlib import Path

import pytest

from fairerclip.auditing import results as results_module
from fairerclip.auditing.results import check_results, read_results, write_results
from fairerclip.errors import OutputExistsError, ResultsFileError

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "report"))
sample = importlib.import_module("sample")


@pytest.fixture(scope="module")
def document():
    return sample.every_section()


def as_document(results):
    """Results as JSON has them."""
    return json.loads(json.dumps(results.model_dump(by_alias=True)))


def without_nulls(value):
    """A key that is null and one that is absent are the same."""
    if isinstance(value, dict):
        return {key: without_nulls(part) for key, part in value.items() if part is not None}
    return [without_nulls(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", sample.VARIANTS)
def test_what_is_written_is_read_back(name, tmp_path):
    document = sample.VARIANTS[name]()
    results = check_results(document)
    assert without_nulls(as_document(results)) == without_nulls(document)
    path = write_results(results, tmp_path / "results.json")
    assert read_results(path) == read_results(tmp_path) == results


def test_whole_numbers_keep_their_form(document, tmp_path):
    document = set_at(document, "made seconds", 3)
    document = set_at(document, "scores before threshold", 0.0)
    text = write_results(check_results(document), tmp_path / "r.json").read_text()
    assert '"seconds": 3}' in text
    assert '"threshold": 0.0' in text


def test_a_file_that_is_there_is_kept_unless_asked(document, tmp_path):
    path = write_results(check_results(document), tmp_path / "results.json")
    with pytest.raises(OutputExistsError):
        write_results(check_results(document), path)
    write_results(check_results(sample.minimal()), path, overwrite=True)
    assert read_results(path).plane is None


def set_at(document, path, value):
    """A copy with one value replaced; the path is keys and indices."""
    changed = copy.deepcopy(document)
    *above, last = [int(key) if key.isdigit() else key for key in path.split()]
    part = changed
    for key in above:
        part = part[key]
    part[last] = value
    return changed


REFUSED = [
    ("auc after worst", "x", "auc.after.worst: "),
    ("plane points 1 correct", [1, 2, 3], "plane.points[1].correct: expected 4 integers, got 3"),
    ("plane points 1 correct 0", "1", "plane.points[1].correct[0]: expected a count, got text '1'"),
    ("plane points 1 average", None, "plane.points[1]: "),
    ("plane points 1 tau", 0.33, "plane.points[1]: "),
    ("plane taus", [0.5] * 90_000, "plane.points: expected 540000, "),
    ("plane chosen", 99, "plane.chosen: "),
    ("plane front", [99], "plane.front[0]: "),
    ("plane intervals 2", {}, "plane.intervals[2]: "),
    ("plane groups 0 n", 1, "plane.points[0].correct[0]: expected at most n, 1; "),
    ("plane command", "rm x", "plane.command: "),
    ("groups after average", 1.5, "groups.after.average: expected a number from 0 to 1, got 1.5"),
    ("groups before worst low", 1.5, "groups.before.worst.high: expected at least low, 1.5; "),
    ("scores before edges 3", -99, "scores.before.edges: expected rising edges"),
    ("picture after cells 0", [0, 0, 9, 1], "picture.after.cells[0][2]: expected one of 4 groups, got 9"),
    ("queries queries 0 before counts", [1.0], "queries.queries[0].before.counts: "),
    ("probes 1 stage", "during", "probes[1].stage: expected 'before' or 'after'"),
    ("wording used", 99, "wording.used: "),
    ("task name", "\ud800", "task.name: expected text"),
    ("task simulated", 1, "task.simulated: expected true or false, got int 1"),
    ("task rows", {"k" * 20_001: 1}, "task.rows: expected keys that are text"),
    ("made seconds", float("inf"), "made.seconds: expected a number, got inf"),
    ("made seconds", 10**400, "made.seconds: expected a number, got int 1000"),
]


@pytest.mark.parametrize(("path", "value", "message"), REFUSED)
def test_an_error_names_the_place(document, path, value, message):
    with pytest.raises(ResultsFileError) as caught:
        check_results(set_at(document, path, value))
    assert str(caught.value).startswith(message)
    assert len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)


def test_a_key_that_may_be_null_may_be_absent_and_another_may_not(document):
    without = {key: value for key, value in document.items() if key != "wording"}
    assert check_results(without).wording is None
    with pytest.raises(ResultsFileError, match="verdict: expected it to be there"):
        check_results({key: value for key, value in document.items() if key != "verdict"})


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"[]", "expected results"),
        (b'{"format": "fairerclip-results", "version": 2}', "expected version 1, got 2"),
        (b'{"format": "fairerclip-results", "format": "x"}', "expected each key once, got 'format' twice"),
        (b'{"format": "fairerclip-results", "x": NaN}', "expected finite numbers, got NaN"),
        (b'{"format": "fairerclip-results", "x": ' + b"[" * 100_000, "expected JSON, got RecursionError"),
        (b"\xff\xfe\xfa", "expected JSON"),
    ],
)
def test_what_is_no_results_file_is_refused_in_one_line(raw, message, tmp_path):
    (tmp_path / "results.json").write_bytes(raw)
    with pytest.raises(ResultsFileError, match=message) as caught:
        read_results(tmp_path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "results.json") in str(caught.value)


@pytest.mark.linux
def test_too_large_or_absent_files_are_refused(document, tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "waits.json")
    for path in (tmp_path, tmp_path / "none.json", tmp_path / "waits.json"):
        with pytest.raises(ResultsFileError):
            read_results(path)
    path = write_results(check_results(document), tmp_path / "results.json")
    monkeypatch.setattr(results_module, "MAX_BYTES", 1000)
    with pytest.raises(ResultsFileError, match="at most 1,?000 bytes"):
        read_results(path)
    with pytest.raises(ResultsFileError, match="at most 1000 bytes"):
        write_results(check_results(document), tmp_path / "other.json")
