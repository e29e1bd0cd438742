"""Methods on the same rows, tuned alike: what they may see, what is chosen, files, failures and resuming."""

import json
from dataclasses import replace

import numpy as np
import pytest
from made_comparison import compared, run_of, wrong

from fairerclip.data import Split, simulate
from fairerclip.errors import KeptRunWarning, ParameterError, ResultsFileError
from fairerclip.experiment import Experiment
from fairerclip.study import compare as study
from fairerclip.study import jobs
from fairerclip.study.choose_model import choose_model
from fairerclip.study.compare import CompareOptions, compare
from fairerclip.study.comparison import (
    ComparedData,
    Comparison,
    write_comparison,
)
from fairerclip.study.comparison_page import page
from fairerclip.study.method_settings import SEARCH
from fairerclip.study.methods import METHODS
from light import inline

BY_KEY = {method.key: method for method in METHODS}
FAST = ("zero-shot", "orth-proj", "probe")


@pytest.fixture(scope="module")
def experiment():
    return Experiment.of(simulate("waterbirds", seed=1, scale=0.1, width=48))


@pytest.fixture(scope="module")
def results(experiment):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "run_calls", inline)
        return compare(experiment, CompareOptions(methods=FAST, seeds=2))


def test_rows_hold_what_the_models_do(results, experiment):
    rows = {row.method: row for row in results.rows}
    assert list(rows) == list(FAST)
    test = experiment.task.test
    chosen = choose_model(BY_KEY["zero-shot"], experiment, 0)
    codes = (experiment.cosines(test.X) + chosen.offsets).argmax(axis=1)
    report = experiment.report(test, np.array(experiment.classes)[codes])
    zero_shot = rows["zero-shot"].figures
    assert zero_shot.average.mean == pytest.approx(report.average)
    worst = zero_shot.worst_group
    assert worst.mean == pytest.approx(report.worst.accuracy)
    assert (worst.low, worst.high) == pytest.approx(report.intervals["worst_group"])
    assert len(rows["zero-shot"].runs) == 1  # no seed changes it
    assert rows["probe"].parameters == 2 * 48 + 2
    assert rows["probe"].seconds > 0
    plain = experiment.report(test, experiment.zero_shot(test))
    published = rows["zero-shot"].as_published
    assert published.average.mean == pytest.approx(plain.average)
    assert published.worst_group.mean == pytest.approx(plain.worst.accuracy)


def test_a_comparison_is_read_as_it_was_written(results, tmp_path):
    write_comparison(results, page(results), tmp_path)
    read = jobs.read_stored(tmp_path / "comparison.json", Comparison)
    assert read.as_dict() == results.as_dict()
    assert page(read) == page(results)
    raw = json.loads((tmp_path / "comparison.json").read_text())
    (tmp_path / "comparison.json").write_text(json.dumps({**raw, "rows": [{"method": "zero-shot"}]}))
    with pytest.raises(ResultsFileError, match="title"):
        jobs.read_stored(tmp_path / "comparison.json", Comparison)


def test_the_verdict_is_against_the_best_row_that_sees_no_more_labels(experiment):
    shares = {
        **{"zero-shot": 0.4, "probe": 0.35, "probe-group": 0.1, "probe-group-true": 0.0},
        **{"dfr-validation": 0.3, "fairerclip-none": 0.02, "fairerclip-target": 0.3},
    }
    runs = {key: [run_of(experiment, wrong(experiment, share))] for key, share in shares.items()}
    found = compared(experiment, runs)
    no_labels, with_labels = found.verdicts
    assert (with_labels.against, with_labels.others) == ("probe-group", 4)  # true S is more than it sees
    worst = [runs[key][0].report.worst.accuracy for key in ("fairerclip-target", "probe-group")]
    assert with_labels.worst_group.difference == pytest.approx(worst[0] - worst[1])
    assert with_labels.worst_group.high < 0
    assert (no_labels.against, no_labels.others) == ("dfr-validation", 2)
    assert no_labels.worst_group.low > 0


@pytest.mark.usefixtures("inline_jobs")
def test_methods_that_the_task_does_not_allow_are_left_out(experiment):
    task = experiment.task
    attribute = next(iter(task.sensitive.values()))
    silent = Experiment.of(replace(task, sensitive={attribute.name: replace(attribute, text=None)}))
    found = compare(silent, CompareOptions(methods=("zero-shot", "orth-proj"), seeds=1, jobs=1))
    assert [row.method for row in found.rows] == ["zero-shot"]
    assert set(found.left_out) == {"orth-proj"}
    train = Split(task.train.X, None, task.train.s)
    with pytest.raises(ParameterError):
        compare(
            Experiment.of(replace(task, splits={**task.splits, "train": train})),
            CompareOptions(methods=("probe",), seeds=1),
        )


@pytest.mark.usefixtures("inline_jobs")
def test_one_failing_method_does_not_stop_the_rest(experiment, monkeypatch):
    broken = replace(BY_KEY["probe"], candidates=[{"C": -1.0}])
    monkeypatch.setattr(study, "chosen_methods", lambda keys: [broken, BY_KEY["zero-shot"]])
    found = compare(experiment, CompareOptions(seeds=1, jobs=1))
    assert found.rows[0].figures is None
    assert found.rows[0].errors[0].startswith("ParameterError: C ")
    assert found.rows[1].figures is not None


@pytest.mark.slow
@pytest.mark.usefixtures("inline_jobs")
def test_a_comparison_is_taken_up_again(experiment, tmp_path, monkeypatch):
    options = CompareOptions(methods=("zero-shot", "orth-proj"), seeds=1, jobs=1)
    first = compare(experiment, options, work=tmp_path)
    file = tmp_path / "orth-proj-0.json"
    kept = json.loads(file.read_text())
    file.write_text(json.dumps({**kept, "answer": {"seed": 0}}))  # of the right key, but no run
    seen, run_calls = [], jobs.run_calls

    def run(calls, *rest, **options):
        seen.extend(call.arguments["method"].key for call in calls)
        run_calls(calls, *rest, **options)

    monkeypatch.setattr(jobs, "run_calls", run)
    with pytest.warns(KeptRunWarning):
        again = compare(experiment, options, work=tmp_path)
    assert seen == ["orth-proj"]
    for old, new in zip(first.rows, again.rows, strict=True):
        assert old.figures == new.figures
    other = Experiment.of(simulate("waterbirds", seed=2, scale=0.1, width=48))
    for changed in (other, Experiment.of(other.task, classes=other.classes[::-1])):
        seen.clear()
        compare(
            changed, options, work=tmp_path
        )  # of other data, and of another look at them, nothing is kept
        assert seen == ["zero-shot", "orth-proj"]


def test_a_kept_run_depends_on_what_was_searched_and_on_the_training_code(monkeypatch):
    methods = [BY_KEY[key] for key in ("fairerclip-target", "adapter", "probe")]
    data = ComparedData(digest="d", classes=("a", "b"), sensitive=("s",))
    before = [study._key(method, 0, data, CompareOptions()) for method in methods]
    assert json.loads(json.dumps(before)) == before  # as it is compared with a file
    monkeypatch.setattr(study, "SEARCH", {**SEARCH, "taus": [0.5]})
    monkeypatch.setattr(study, "TRAINING", study.TRAINING + 1)
    after = [study._key(method, 0, data, CompareOptions()) for method in methods]
    assert [a == b for a, b in zip(before, after, strict=True)] == [False, False, True]
