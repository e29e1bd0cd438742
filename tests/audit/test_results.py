import copy
import importlib
import json
import os
import sys
from pathlib import Path

import pytest

from fairerclip.auditing import results_old as results_module
from fairerclip.auditing.results_old import check_results, read_results, write_results
from fairerclip.errors import OutputExistsError, ResultsFileError

sys.path.append(str(Path(__file__).resolve().parents[1] / "report"))
sample = importlib.import_module("sample")


@pytest.fixture(scope="module")
def document():
    return check_results(sample.two_class(taus=4, tau_zs=2))


@pytest.mark.parametrize("name", ["two_class", "seven_class", "retrieval_only", "minimal", "before_only"])
def test_what_is_written_is_read_back(name, tmp_path):
    document = getattr(sample, name)()
    path = write_results(document, tmp_path / "results.json")
    assert without_nulls(read_results(path)) == without_nulls(document)
    assert read_results(tmp_path) == read_results(path)


def without_nulls(value):
    """A key that is null and one that is absent are the same."""
    if isinstance(value, dict):
        return {key: without_nulls(part) for key, part in value.items() if part is not None}
    return [without_nulls(part) for part in value] if isinstance(value, list) else value


def test_the_file_can_be_compared_line_by_line(document, tmp_path):
    other = copy.deepcopy(document)
    other["plane"]["points"][3]["eod"] = 0.125
    paths = [write_results(d, tmp_path / f"{i}.json") for i, d in enumerate((document, other))]
    one, two = (path.read_text().splitlines() for path in paths)
    assert len(one) == len(two)
    assert sum(a != b for a, b in zip(one, two, strict=True)) == 1
    assert max(map(len, one)) < 300
    assert len(one) < 2500


def test_a_file_that_is_there_is_kept_unless_asked(document, tmp_path):
    path = write_results(document, tmp_path / "results.json")
    with pytest.raises(OutputExistsError):
        write_results(document, path)
    write_results(sample.minimal(), path, overwrite=True)
    assert read_results(path)["plane"] is None


def test_what_the_format_does_not_allow_is_not_written(document, tmp_path):
    for change in ({"limits": None}, {"extra": 1}, {"made": {**document["made"], "seconds": float("nan")}}):
        with pytest.raises(ResultsFileError, match="expected"):
            write_results({**document, **change}, tmp_path / "results.json")
    assert list(tmp_path.iterdir()) == []


def set_at(document, path, value):
    """A copy with one value replaced."""
    changed = copy.deepcopy(document)
    *above, last = path
    part = changed
    for key in above:
        part = part[key]
    part[last] = value
    return changed


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            ("plane", "points", 3, "correct"),
            [1, 2, 3],
            r"plane.points\[3\].correct: expected 4 integers, got 3",
        ),
        (("plane", "points", 1, "correct", 0), "1", r"points\[1\].correct\[0\]: expected a count, got text"),
        (
            ("plane", "points", 0, "average"),
            None,
            r"plane.points\[0\]: expected correct, average and worst_group",
        ),
        (("plane", "points", 0, "tau"), 0.33, r"plane.points\[0\]: expected τ 0.0"),
        (("plane", "points"), [], r"plane.points: expected at least 1 items, got a list of 0"),
        (("plane", "chosen"), 99, r"plane.chosen: expected the index of one of 16 points .* got 99"),
        (("plane", "front"), [-1], r"plane.front\[0\]: expected a count, got int -1"),
        (("plane", "intervals", 2), {}, r"plane.intervals\[2\]: expected an interval for \d+"),
        (("plane", "groups", 0, "n"), 1, r"plane.points\[0\].correct\[0\]: expected at most n, 1; got"),
        (
            ("groups", "after", "average"),
            1.5,
            r"groups.after.average: expected a number from 0 to 1, got 1.5",
        ),
        (
            ("groups", "after", "intervals", "eod"),
            [1, 0],
            r"groups.after.intervals.eod: expected \[low, high\]",
        ),
        (("groups", "before", "confusion", 1, 0), [1], r"confusion\[1\]\[0\]: expected 2 integers, got 1"),
        (("groups", "before", "worst", "low"), 1.0, r"groups.before.worst.low: expected at most high"),
        (
            ("scores", "before", "edges"),
            [0, 1],
            r"scores.before.groups\[0\].counts: expected 1 integers, got 24",
        ),
        (("scores", "before", "edges", 3), -99, "scores.before.edges: expected edges that rise"),
        (("picture", "after", "cells", 0), [0, 0, 9, 1], r"picture.after.cells\[0\]\[2\]: expected one of 4"),
        (("picture", "after", "cells", 0), [99, 0, 0, 1], r"picture.after.cells\[0\]: expected a cell of 18"),
        (("retrieval", "shares"), [1.0], r"retrieval.shares: expected 2 numbers, got 1"),
        (
            ("retrieval", "queries", 0, "after", "counts"),
            [],
            r"retrieval.queries\[0\].after.counts: expected 2",
        ),
        (
            ("probes", 1, "stage"),
            "during",
            r"probes\[1\].stage: expected one of before, after; got|, got text",
        ),
        (("wording", "used"), 4, "wording.used: expected one of 4 templates, got 4"),
        (("task", "name"), "\ud800", "task.name: expected text, got text '.ud800'"),
        (("task", "simulated"), 1, "task.simulated: expected true or false, got int 1"),
        (("task", "target_prompts"), ["one"], "task.target_prompts: expected 2 texts, got 1"),
        (("settings", "confidence"), 1.0, "settings.confidence: expected a number between 0 and 1, got 1.0"),
        (("made", "seconds"), float("inf"), "made.seconds: expected a number, got inf"),
        (("made",), [], "made: expected an object, got a list of 0"),
        (("findings", 0, "level"), {}, r"findings\[0\].level: expected one of"),
        (("verdict",), "fine", "verdict: expected a list, got text 'fine'"),
    ],
)
def test_an_error_names_the_place(document, path, value, message):
    with pytest.raises(ResultsFileError, match=message):
        check_results(set_at(document, path, value))


def test_a_key_that_may_be_null_may_be_absent_and_another_may_not(document):
    without = {key: value for key, value in document.items() if key != "wording"}
    assert check_results(without) == {**document, "wording": None}
    with pytest.raises(ResultsFileError, match="verdict: expected it to be there"):
        check_results({key: value for key, value in document.items() if key != "verdict"})


def test_a_key_that_is_not_known_is_left_out_on_reading_and_refused_on_writing(document, tmp_path):
    more = {**document, "task": {**document["task"], "later": {"x": 1}}}
    (tmp_path / "results.json").write_text(json.dumps(more))
    assert read_results(tmp_path) == document
    with pytest.raises(ResultsFileError, match=r"task.later: expected name, file"):
        write_results(more, tmp_path / "other.json")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "expected JSON"),
        (b"[]", "expected results that `fairerclip audit` wrote"),
        (b'{"format": "other"}', "expected results that"),
        (b'{"format": "fairerclip-results", "version": 2}', "made by a newer fairerclip; update yours"),
        (b'{"format": "fairerclip-results", "version": "1"}', "version: expected an integer, got text '1'"),
        (b'{"format": "fairerclip-results", "format": "x"}', "expected each key once, got 'format' twice"),
        (b'{"format": "fairerclip-results", "x": NaN}', "expected finite numbers, got NaN"),
        (b'{"format": "fairerclip-results", "x": ' + b"[" * 100_000, "expected JSON, got RecursionError"),
        (b"\xff\xfe\xfa", "expected JSON"),
        (b"9" * 5000, "expected JSON"),
    ],
)
def test_what_is_no_results_file_is_refused_in_one_line(raw, message, tmp_path):
    (tmp_path / "results.json").write_bytes(raw)
    with pytest.raises(ResultsFileError, match=message) as caught:
        read_results(tmp_path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "results.json") in str(caught.value)


def test_a_number_beyond_floating_point_is_refused(document, tmp_path):
    text = json.dumps(document).replace('"seconds": 3.2', '"seconds": 1e999')
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(ResultsFileError, match=r"made.seconds: expected a number, got inf"):
        read_results(tmp_path)


def test_a_file_too_large_is_refused_without_reading_all_of_it(tmp_path, monkeypatch):
    with (tmp_path / "results.json").open("wb") as handle:
        handle.truncate(results_module.MAX_BYTES + (1 << 30))  # sparse: takes no room
    with pytest.raises(ResultsFileError, match="at most 16,777,216 bytes"):
        read_results(tmp_path)


def test_results_too_large_to_be_read_are_not_written(document, tmp_path, monkeypatch):
    monkeypatch.setattr(results_module, "MAX_BYTES", 1000)
    with pytest.raises(ResultsFileError, match="at most 1000 bytes"):
        write_results(document, tmp_path / "results.json")


def test_what_is_not_there_or_would_be_waited_for_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "none.json"):
        with pytest.raises(ResultsFileError, match="a folder with results.json"):
            read_results(path)
    os.mkfifo(tmp_path / "results.json")
    with pytest.raises(ResultsFileError, match="got neither|regular file"):
        read_results(tmp_path)
