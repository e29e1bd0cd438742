"""`fairerclip compare` from the command line."""

import json
from dataclasses import replace

import pytest

from fairerclip.data import save_task, simulate
from fairerclip.study import compare as study
from fairerclip.study import jobs
from fairerclip.study.methods import METHODS
from fairerclip.study.ranking_run import ranking_methods
from fairerclip.study.workers import Failure, guarded

BY_KEY = {method.key: method for method in METHODS}


@pytest.mark.usefixtures("inline_jobs")
def test_methods_stand_side_by_side_and_leave_files(task, run, tmp_path):
    out = tmp_path / "out"
    code, text, err = run("compare", task, "--methods", "zero-shot,probe", "--seeds", 1, "-o", out)
    assert (code, err) == (0, "")
    assert "Zero-shot" in text
    found = json.loads((out / "comparison.json").read_text())
    words = " ".join(text.split())  # the answer is wrapped
    assert f"{found['answer']} → {found['recommendation']}" in words
    assert text.startswith("Simulated embeddings")
    assert "More figures" not in text
    for form in ("comparison.md", "comparison.html"):
        assert found["recommendation"] in (out / form).read_text()
    assert {file.name for file in out.iterdir()} == {
        "runs",
        "comparison.json",
        "comparison.md",
        "comparison.html",
    }
    found = json.loads((out / "comparison.json").read_text())
    average = found["rows"][0]["figures"]["average"]["mean"]
    assert f"{100 * average:.1f}" in (out / "comparison.md").read_text()
    assert f"{100 * average:.1f}" in (out / "comparison.html").read_text()
    code, text, _ = run("compare", task, "--methods", "zero-shot,probe", "--seeds", 1, "-o", out, "--json")
    assert code == 0
    assert json.loads(text)["rows"][0]["figures"] == found["rows"][0]["figures"]
    assert json.loads(text)["best_for_labels"] == found["best_for_labels"]
    code, text, _ = run("compare", task, "--methods", "zero-shot,probe", "--seeds", 1, "-o", out, "--verbose")
    assert code == 0
    assert "More figures" in text
    assert "How methods were compared" in text


@pytest.mark.usefixtures("inline_jobs")
def test_the_front_is_drawn(task, run, tmp_path):
    pytest.importorskip("matplotlib")
    plot = tmp_path / "front.svg"
    code, _, err = run("compare", task, "--methods", "zero-shot,orth-proj", "--seeds", 1, "--plot", plot)
    assert code == 0, err
    assert plot.read_bytes().startswith(b"<?xml")


def test_methods_are_listed(task, run):
    code, out, _ = run("compare", task, "--methods", "list")
    assert code == 0
    lines = out.splitlines()
    assert "fairerclip-target: FairerCLIP, labels; labels in training: target" in lines
    given = "is given S of all rows, also of those it predicts"
    assert f"tie-true: TIE, true S of test rows; labels in training: none; {given}" in lines
    assert "leace: LEACE, zero-shot head; labels in training: none; ranks by free queries" in lines
    assert lines[-1].startswith("embedding: EmbeddingMitigator; ")
    assert lines[-1].endswith("; ranks by free queries, for --rankings only")


def test_methods_are_listed_for_machines(task, run):
    code, out, err = run("compare", task, "--methods", "list", "--json")
    assert (code, err) == (0, "")
    assert run("compare", "--methods", "list", "--json") == (code, out, err)  # a list needs no task
    code_without, _, err_without = run("compare", "--json")
    assert (code_without, "Missing argument 'TASK'" in err_without) == (2, True)
    listed = {method["key"]: method for method in json.loads(out)["methods"]}
    assert list(listed) == [*(method.key for method in METHODS), "embedding"]
    ranked = [method.key for method in ranking_methods()]
    assert [key for key, method in listed.items() if method["rankings"]] == ranked
    assert [key for key, method in listed.items() if not method["predictions"]] == ["embedding"]
    assert listed["fairerclip-target"] == {
        "key": "fairerclip-target",
        "title": "FairerCLIP, labels",
        "labels": "target",
        "gradient": False,
        "needs": ["target_labels", "sensitive_prompts"],
        "predictions": True,
        "rankings": False,
    }
    assert listed["adapter"]["needs"] == ["target_labels", "class_prompts", "torch"]


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


def test_a_method_that_lost_some_runs_is_told_of(task, run, monkeypatch):
    def lose(calls, answered, **options):
        for number, call in enumerate(calls):
            answered(number, Failure("LostWorkerError: gone") if call.arguments["seed"] else guarded(call))

    monkeypatch.setattr(jobs, "run_calls", lose)
    code, out, err = run("compare", task, "--seeds", 2, "--methods", "dfr-validation", "--json")
    assert code == 1
    found = json.loads(out)
    assert found["rows"][0]["errors"] == ["LostWorkerError: gone"]
    assert found["rows"][0]["figures"] is not None  # what there is stands in the table
    told = "1 of 1 methods lack some of their runs (dfr-validation: LostWorkerError: gone)\n"
    assert err == f"fairerclip: {told}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--methods", "magic"], "no method 'magic'"),
        (["--seeds", "0"], "--seeds must be a whole number from 1 to 1,000; got 0"),
        (["--max-steps", "0"], "--max-steps must be a whole number from 1 to 1,000,000,000; got 0"),
        (["--plot", "x.gif"], "a plot ends in"),
        (["--sensitive", "age"], "age"),
    ],
)
def test_bad_options_are_one_line(task, run, options, message):
    code, out, err = run("compare", task, *options)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.usefixtures("inline_jobs")
def test_methods_are_compared_over_resampled_splits(task, run, tmp_path):
    call = ("compare", task, "--methods", "zero-shot,orth-proj", "-o", tmp_path / "out")
    code, text, err = run(*call, "--splits", 2, "--gradient-splits", 2)
    assert (code, err) == (0, "")
    assert "2 resampled splits" in text
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 4
    code, text, _ = run(*call, "--splits", 2, "--json")
    assert json.loads(text)["settings"]["splits"] == 2
    for wrong, words in (
        (("--splits", 1), "--splits must be a whole number from 2"),
        (("--gradient-splits", 1), "--gradient-splits must be a whole number from 2"),
        (("--splits", 2, "--save-best", tmp_path / "m"), "--save-best is for the splits of the task"),
    ):
        code, _, err = run(*call, *wrong)
        assert code == 2
        assert words in err


@pytest.mark.usefixtures("inline_jobs")
def test_rankings_of_a_gallery_are_compared(run, tmp_path):
    file, other, out = tmp_path / "gallery.npz", tmp_path / "other.npz", tmp_path / "out"
    save_task(simulate("gallery", scale=0.1, width=48, seed=0), file)
    save_task(simulate("waterbirds", scale=0.05, width=48, seed=0), other)
    call = ("compare", file, "--sensitive", "sex", "--methods", "zero-shot,leace,embedding")
    code, text, err = run(*call, "--unrelated", other, "-o", out)
    assert (code, err) == (0, "")
    assert "EmbeddingMitigator" in text
    found = json.loads((out / "rankings.json").read_text())
    assert found["answer"] in " ".join(text.split())
    assert [row["method"] for row in found["rows"]] == ["zero-shot", "leace", "embedding"]
    assert found["rows"][0]["unrelated"]["mean"] == 0
    code, text, _ = run(*call, "--unrelated", other, "-o", out, "--json")
    assert json.loads(text)["rows"] == found["rows"]
    code, text, _ = run(
        "compare", file, "--sensitive", "sex", "--methods", "zero-shot", "--queries", file, "--verbose"
    )
    assert code == 0
    assert "How methods were compared" in text
    # A task with target labels has rankings if they are asked for.
    code, text, _ = run("compare", other, "--rankings", "--methods", "zero-shot")
    assert code == 0
    assert "MaxSkew" in text
    for wrong, words in (
        (("--plot", tmp_path / "a.svg"), "--plot and --save-best are not for rankings"),
        (
            ("--methods", "probe"),
            "probe does not rank by free queries; these methods do: zero-shot, orth-proj",
        ),
        (("--methods", "leese"), "no method 'leese'; did you mean 'leace'?"),
    ):
        code, _, err = run("compare", file, "--sensitive", "sex", *wrong)
        assert code == 2
        assert words in err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--splits", 2, "--seeds", 2), "--splits takes the place of --seeds"),
        (("--gradient-splits", 3), "--gradient-splits is for --splits"),
        (("--rankings", "--seeds", 2), "are not for rankings"),
        (("--rankings", "--max-steps", 5), "are not for rankings"),
        (("--methods", "zero-shot,embedding"), "embedding ranks by free queries and predicts no class"),
    ],
)
def test_options_without_effect_are_refused(task, run, given, message):
    code, out, err = run("compare", task, *given)
    assert (code, out) == (2, "")
    assert message in err
