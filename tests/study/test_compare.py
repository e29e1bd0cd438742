"""Methods on the same rows, tuned alike: what they may see, what is chosen, files, failures and resuming."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fairerclip.auditing.group_results import StageReport
from fairerclip.data import Split, simulate
from fairerclip.errors import KeptRunWarning, LabelError, ParameterError, ResultsFileError
from fairerclip.experiment import Experiment
from fairerclip.study import compare as study
from fairerclip.study import jobs
from fairerclip.study.choose_model import choose_model
from fairerclip.study.compare import CompareOptions, compare
from fairerclip.study.comparison import (
    ComparedData,
    Comparison,
    FailedRun,
    MethodRun,
    write_comparison,
)
from fairerclip.study.comparison_page import page, verdict_sentence
from fairerclip.study.method_settings import SEARCH
from fairerclip.study.methods import METHODS, chosen_methods
from fairerclip.study.paired_methods import PairedMethods
from fairerclip.study.run_method import run_method
from fairerclip.study.workers import Failure
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


def test_processes_find_what_this_process_finds(results, experiment):
    found = compare(experiment, CompareOptions(methods=FAST[1:2], seeds=1, jobs=2))
    assert [row.figures for row in found.rows] == [results.rows[1].figures]


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
    assert not any("predicted" in run for row in read.as_dict()["rows"] for run in row["runs"])
    raw = json.loads((tmp_path / "comparison.json").read_text())
    (tmp_path / "comparison.json").write_text(json.dumps({**raw, "rows": [{"method": "zero-shot"}]}))
    with pytest.raises(
        ResultsFileError, match=r"comparison\.json: rows\[0\]\.title: expected it to be there"
    ):
        jobs.read_stored(tmp_path / "comparison.json", Comparison)


def report_of(experiment, predicted):
    return StageReport.model_validate(experiment.report(experiment.task.test, predicted).as_dict())


def test_a_kept_run_depends_on_what_was_searched(monkeypatch):
    methods = [BY_KEY[key] for key in ("fairerclip-target", "probe")]
    data = ComparedData(digest="d", classes=("a", "b"), sensitive=("s",))
    before = [study._key(method, 0, data, CompareOptions()) for method in methods]
    assert json.loads(json.dumps(before)) == before  # as it is compared with a file
    monkeypatch.setattr(study, "SEARCH", {**SEARCH, "taus": [0.5]})
    after = [study._key(method, 0, data, CompareOptions()) for method in methods]
    assert [a == b for a, b in zip(before, after, strict=True)] == [False, True]


def test_a_kept_run_by_gradient_depends_on_the_training_code(monkeypatch):
    methods = [BY_KEY[key] for key in ("adapter", "probe")]
    data = ComparedData(digest="d", classes=("a", "b"), sensitive=("s",))
    before = [study._key(method, 0, data, CompareOptions()) for method in methods]
    monkeypatch.setattr(study, "TRAINING", study.TRAINING + 1)
    after = [study._key(method, 0, data, CompareOptions()) for method in methods]
    assert [a == b for a, b in zip(before, after, strict=True)] == [False, True]


def test_the_verdict_is_against_the_best_row_that_sees_no_more_labels(experiment):
    test, rng = experiment.task.test, np.random.default_rng(0)
    truth = test.y

    def runs(share):
        wrong = rng.random(len(truth)) < share
        codes = np.where(wrong, 1 - truth, truth)
        report = report_of(experiment, np.array(experiment.classes)[codes])
        return [
            MethodRun.model_construct(
                **{
                    "report": report,
                    "predicted": tuple(codes),
                    "split": "test",
                    "candidates": 1,
                    "notes": (),
                },
                **dict.fromkeys(
                    ("strategy", "as_published", "seconds", "seconds_in_all", "parameters", "peak_mb")
                ),
            )
        ]

    shares = {
        **{"zero-shot": 0.4, "probe": 0.35, "probe-group": 0.1, "probe-group-true": 0.0},
        **{"dfr-validation": 0.3, "fairerclip-none": 0.02, "fairerclip-target": 0.2},
    }
    found = {key: runs(share) for key, share in shares.items()}
    methods = [BY_KEY[key] for key in shares]

    def paired():
        figures = {key: study._row(BY_KEY[key], known).figures for key, known in found.items()}
        return PairedMethods.of(experiment, methods, found, figures)

    with_labels = paired().verdict(BY_KEY["fairerclip-target"])
    assert (with_labels.against, with_labels.others) == (
        "probe-group",
        4,
    )  # true S is more than it sees
    worst = [found[key][0].report.worst.accuracy for key in ("fairerclip-target", "probe-group")]
    assert with_labels.worst_group.difference == pytest.approx(worst[0] - worst[1])
    assert with_labels.worst_group.high < 0
    assert "Group-balanced probe, Ŝ: worse; worst group −" in verdict_sentence(with_labels)
    no_labels = paired().verdict(BY_KEY["fairerclip-none"])
    assert (no_labels.against, no_labels.others) == ("dfr-validation", 2)
    assert ": better; worst group +" in verdict_sentence(no_labels)
    found["zero-shot"] = found["dfr-validation"] = [FailedRun(seed=0, error="x")]
    assert paired().verdict(BY_KEY["fairerclip-none"]) is None


@pytest.mark.usefixtures("inline_jobs")
def test_methods_that_the_task_does_not_allow_are_left_out(experiment):
    task = experiment.task
    attribute = next(iter(task.sensitive.values()))
    silent = Experiment.of(replace(task, sensitive={attribute.name: replace(attribute, text=None)}))
    found = compare(silent, CompareOptions(methods=("zero-shot", "orth-proj"), seeds=1, jobs=1))
    assert [row.method for row in found.rows] == ["zero-shot"]
    assert "no prompts to predict" in found.left_out["orth-proj"]
    unlabelled = Experiment.of(
        replace(task, splits={**task.splits, "train": Split(task.train.X, None, task.train.s)})
    )
    with pytest.raises(ParameterError, match="allows none of these methods"):
        compare(unlabelled, CompareOptions(methods=("probe",), seeds=1))
    with pytest.raises(LabelError, match="no target labels"):
        run_method(BY_KEY["probe"], unlabelled, 0)


@pytest.mark.usefixtures("inline_jobs")
def test_one_failing_method_does_not_stop_the_rest(experiment, monkeypatch):
    broken = replace(BY_KEY["probe"], candidates=[{"C": -1.0}])
    monkeypatch.setattr(study, "chosen_methods", lambda keys: [broken, BY_KEY["zero-shot"]])
    found = compare(experiment, CompareOptions(seeds=1, jobs=1))
    assert found.rows[0].figures is None
    assert found.rows[0].errors[0].startswith("ParameterError: C must be a positive number")
    assert found.rows[1].figures is not None


@pytest.mark.usefixtures("inline_jobs")
def test_a_comparison_is_taken_up_again(experiment, tmp_path, monkeypatch):
    options = CompareOptions(methods=("zero-shot", "orth-proj"), seeds=1, jobs=1)
    first = compare(experiment, options, work=tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"zero-shot-0.json", "orth-proj-0.json"}
    file = tmp_path / "orth-proj-0.json"
    kept = json.loads(file.read_text())
    file.write_text(json.dumps({**kept, "answer": {"seed": 0}}))  # of the right key, but no run
    seen = []
    run_calls = jobs.run_calls
    monkeypatch.setattr(
        jobs,
        "run_calls",
        lambda calls, *rest, **options: (
            seen.extend(call.arguments["method"].key for call in calls) or run_calls(calls, *rest, **options)
        ),
    )
    with pytest.warns(KeptRunWarning, match=r"is run again: .*orth-proj-0\.json"):
        again = compare(experiment, options, work=tmp_path)
    assert seen == ["orth-proj"]
    for old, new in zip(first.rows, again.rows, strict=True):
        assert old.figures == new.figures
    other = Experiment.of(simulate("waterbirds", seed=2, scale=0.1, width=48))
    compare(other, options, work=tmp_path)  # other data: nothing of it is taken over
    assert seen == ["orth-proj", "zero-shot", "orth-proj"]
    swapped = Experiment.of(other.task, classes=other.classes[::-1])
    asked = []
    monkeypatch.setattr(jobs, "run_calls", lambda calls, keep, **options: lose(calls, keep, asked))
    compare(swapped, options, work=tmp_path)  # nor of another look at the same data
    assert asked == ["zero-shot", "orth-proj"]


def lose(calls, keep, asked):
    for number, call in enumerate(calls):
        asked.append(call.arguments["method"].key)
        keep(number, Failure("lost"))


def test_all_methods_run_on_a_split_before_the_next_one(monkeypatch):
    draws = {"many": (0, 1, 2), "few": (1,), "last": (0, 2)}
    pairs = [(key, seed) for key, seeds in draws.items() for seed in seeds]
    ran = []

    def run(jobs, *_, **__):
        ran.extend(jobs)
        return [Failure("stopped") if key == "few" else f"{key} {seed}" for key, seed in jobs]

    monkeypatch.setattr(study, "run_jobs", run)
    runs = study.runs_by_method(pairs, draws, CompareOptions(splits=3), None, lambda *_: None)
    assert ran == [("many", 0), ("last", 0), ("many", 1), ("few", 1), ("many", 2), ("last", 2)]
    assert runs["many"] == ["many 0", "many 1", "many 2"]
    assert [(run.seed, run.error) for run in runs["few"]] == [(1, "stopped")]
    assert runs["last"] == ["last 0", "last 2"]


def test_bad_options_are_refused(experiment):
    with pytest.raises(ParameterError, match="no method 'magic'"):
        chosen_methods(["magic"])
    with pytest.raises(ParameterError, match="no method is named; there are zero-shot"):
        chosen_methods([])
    with pytest.raises(ParameterError, match="seeds"):
        compare(experiment, CompareOptions(seeds=0))
    with pytest.raises(ParameterError, match="max_steps"):
        compare(experiment, CompareOptions(max_steps=0))
