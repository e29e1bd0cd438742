"""`fairerclip compare`: figures of methods side by side, failures, rankings and the winner."""

import json
from dataclasses import replace

import numpy as np
import pytest

import fairerclip
import fairerclip.study.paper.reproduce
from fairerclip.baselines import LEACE, ZeroShot
from fairerclip.experiment import Experiment
from fairerclip.study import compare as study
from fairerclip.study.methods import METHODS
from fairerclip.study.paper.context import ReproduceOptions
from fairerclip.study.paper.entries import chosen_entries
from fairerclip.study.paper.reproduce import run_entry
from fairerclip.study.paper.task_source import TaskSource
from fairerclip.study.ranking_run import ranking_methods

pytestmark = pytest.mark.slow
BY_KEY = {method.key: method for method in METHODS}


@pytest.mark.usefixtures("inline_jobs")
def test_methods_stand_side_by_side_and_leave_files(task, birds, run, document, tmp_path):
    out = tmp_path / "out"
    call = ("compare", task, "--methods", "zero-shot,probe", "--seeds", 1, "-o", out)
    code, text, err = run(*call)
    assert (code, err) == (0, "")
    found = json.loads((out / "comparison.json").read_text())
    words = " ".join(text.split())  # the answer is wrapped
    assert f"{found['answer']} → {found['recommendation']}" in words
    assert {file.name for file in out.iterdir()} == {
        "runs",
        "comparison.json",
        "comparison.md",
        "comparison.html",
    }
    e = Experiment.of(birds)
    average = (e.zero_shot(birds.test) == e.target(birds.test)).mean()
    assert found["rows"][0]["figures"]["average"]["mean"] == pytest.approx(average)
    for form in ("comparison.md", "comparison.html"):
        assert f"{100 * average:.1f}" in (out / form).read_text()
    assert document(*call)["rows"] == found["rows"]


def test_methods_are_listed_without_a_task(run, document):
    listed = {method["key"]: method for method in document("compare", "--methods", "list")["methods"]}
    assert list(listed) == [*(method.key for method in METHODS), "embedding"]
    ranked = [method.key for method in ranking_methods()]
    assert [key for key, method in listed.items() if method["rankings"]] == ranked
    assert listed["adapter"]["needs"] == ["target_labels", "class_prompts", "torch"]
    assert all(key in run("compare", "--methods", "list")[1] for key in listed)


@pytest.fixture
def methods_of(monkeypatch):
    """Let the task allow these methods; "bad" and "worse" always fail."""
    broken = {
        "bad": replace(BY_KEY["probe"], key="bad", candidates=[{"C": -1.0}]),
        "worse": replace(BY_KEY["probe"], key="worse", candidates=[{"C": -2.0}]),
    }

    def allow(*keys):
        monkeypatch.setattr(
            study, "chosen_methods", lambda named: [{**BY_KEY, **broken}[key] for key in keys]
        )

    return allow


@pytest.mark.usefixtures("inline_jobs")
def test_a_comparison_without_any_figure_has_failed(task, run, methods_of, tmp_path):
    methods_of("bad", "worse")
    code, out, err = run("compare", task, "--seeds", 1, "-o", tmp_path / "o")
    assert code == 1
    assert "failed: ParameterError" in out  # before the table
    assert err.count("\n") == 1
    assert err.startswith(
        "fairerclip: 2 of 2 methods failed (bad: ParameterError: C must be a positive number"
    )
    assert "worse: ParameterError" in err
    assert (tmp_path / "o" / "comparison.json").is_file()
    code, out, err = run("compare", task, "--seeds", 1, "--json")
    assert code == 1
    found = json.loads(out)
    assert found["error"] == {
        "type": "WorkFailedError",
        "message": err.removeprefix("fairerclip: ").rstrip("\n"),
        "exit_code": 1,
    }
    assert [row["method"] for row in found["rows"]] == ["bad", "worse"]


@pytest.mark.usefixtures("inline_jobs")
def test_a_method_that_fails_ends_in_failure_only_if_it_was_named(task, run, methods_of):
    methods_of("zero-shot", "bad")
    code, out, err = run("compare", task, "--seeds", 1, "--json")
    assert code == 0
    assert "error" not in json.loads(out)
    assert err.startswith("warning: 1 of 2 methods failed (bad: ParameterError")
    assert err.count("\n") == 1
    code, out, err = run("compare", task, "--seeds", 1, "--json", "--methods", "zero-shot,bad")
    assert code == 1
    assert json.loads(out)["error"]["exit_code"] == 1
    assert json.loads(out)["rows"][0]["figures"] is not None
    assert err.startswith("fairerclip: 1 of 2 methods failed (bad: ParameterError")


@pytest.mark.usefixtures("inline_jobs")
def test_methods_are_compared_over_resampled_splits(task, document, tmp_path):
    call = ("compare", task, "--methods", "zero-shot,orth-proj", "-o", tmp_path / "out")
    assert document(*call, "--splits", 2, "--gradient-splits", 2)["settings"]["splits"] == 2
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 4


@pytest.mark.usefixtures("inline_jobs")
def test_rankings_of_a_gallery_are_compared(task, gallery, run, document, refused, tmp_path):
    out, some = tmp_path / "out", ("compare", gallery, "--sensitive", "sex")
    call = (*some, "--methods", "zero-shot,leace,embedding", "--unrelated", task, "-o", out)
    code, text, err = run(*call)
    assert (code, err) == (0, "")
    found = json.loads((out / "rankings.json").read_text())
    assert found["answer"] in " ".join(text.split())
    assert [row["method"] for row in found["rows"]] == ["zero-shot", "leace", "embedding"]
    assert found["rows"][0]["unrelated"]["mean"] == 0
    assert document(*call)["rows"] == found["rows"]
    refused((*some, "--methods", "probe"), "probe does not rank by free queries")


@pytest.mark.usefixtures("inline_jobs")
def test_compare_saves_the_winner_and_says_which_it_is(run, refused, task, birds, tmp_path):
    call = ("compare", task, "--methods", "zero-shot,leace", "--seeds", 1, "-o", tmp_path / "out")
    code, out, _ = run(*call, "--save-best", tmp_path / "m")
    assert code == 0
    assert "Best worst group: " in out
    model = fairerclip.load(tmp_path / "m")
    code, out, _ = run(*call, "--save-best", tmp_path / "again", "--json")
    saved = json.loads(out)["saved"]
    assert {"zero-shot": ZeroShot, "leace": LEACE}[saved["method"]] is type(model)
    assert (saved["seed"], saved["offsets"]) == (0, model.offsets_.tolist())
    again = fairerclip.load(saved["model"])
    np.testing.assert_array_equal(again.scores(birds.test.X), model.scores(birds.test.X))
    refused((*call, "--save-best", tmp_path / "m", "--overwrite"), "--save-best does not replace")


@pytest.mark.usefixtures("inline_jobs")
def test_a_comparison_of_another_task_is_not_replaced_unasked(run, task, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "comparison.json").write_text('{"mine": 1}')
    given = ("compare", task, "--methods", "zero-shot", "-o", out)
    code, _, err = run(*given)
    assert code == 2
    assert err.startswith(f"fairerclip: {out / 'comparison.json'} is not of this task; choose another folder")
    assert (out / "comparison.json").read_text() == '{"mine": 1}'
    assert run(*given, "--overwrite")[0] == 0
    assert run(*given)[0] == 0  # one of the same task is taken up again
    (out / "runs" / "zero-shot-0.json").write_text('{"damaged')
    code, _, err = run(*given)
    assert code == 0
    assert err.startswith("warning: KeptRunWarning: a kept run cannot be used and is run again: ")
    assert err.count("\n") == 1


def test_a_lost_part_of_a_reproduction_ends_in_failure(run, tmp_path, monkeypatch):
    error = "fit: LostWorkerError: its process ended without an answer"
    heatmaps = chosen_entries(["heatmaps"])[0]
    found = run_entry(heatmaps, TaskSource("suite", tmp_path), ReproduceOptions(), tmp_path, "", print)
    results = [found.model_copy(update={"failed": False, "failures": (error,)})]
    monkeypatch.setattr(fairerclip.study.paper.reproduce, "reproduce", lambda *rest, **options: results)
    code, _, err = run("reproduce", "heatmaps", "-o", tmp_path / "out")
    assert code == 1
    assert err.startswith("fairerclip: 1 parts were lost (first: heatmaps: fit: LostWorkerError")
    results[0] = found.model_copy(update={"failed": False, "failures": ("fit: ArithmeticError: no luck",)})
    code, _, err = run("reproduce", "heatmaps", "-o", tmp_path / "out")
    assert (code, err) == (
        0,
        "warning: 1 parts missing or failed (first: heatmaps: fit: ArithmeticError: no luck)\n",
    )
