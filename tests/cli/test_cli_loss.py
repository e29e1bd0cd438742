"""Outputs of the commands: refused before the work where they could not be written after it, and never lost."""

import json

import pytest

import fairerclip.auditing.run
import fairerclip.study.demo
import fairerclip.study.paper.reproduce
from fairerclip import FairerCLIP
from fairerclip.data import save_task, simulate
from fairerclip.errors import LostWorkerError
from fairerclip.experiment import Experiment
from fairerclip.study import compare as study
from fairerclip.study import jobs
from fairerclip.study.paper.context import ReproduceOptions
from fairerclip.study.paper.entries import chosen_entries
from fairerclip.study.paper.reproduce import run_entry
from fairerclip.study.paper.task_source import TaskSource
from fairerclip.study.workers import Failure, guarded


class Began(Exception):
    """The work was begun."""


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    return save_task(
        simulate("waterbirds", seed=1, scale=0.05, width=32), tmp_path_factory.mktemp("task") / "t.npz"
    )


COMMANDS = {
    "fit": ("fit", "TASK", "-o"),
    "audit": ("audit", "TASK", "-o"),
    "report": ("report", "TASK", "-o"),
    "csv": ("report", "TASK", "--format", "csv", "-o"),
    "figures": ("report", "TASK", "-o", "TMP/r.html", "--figures"),
    "path": ("path", "TASK", "-o"),
    "compare": ("compare", "TASK", "--methods", "zero-shot", "-o"),
    "plot": ("compare", "TASK", "--methods", "zero-shot", "--plot"),
    "apply": ("apply", "TMP/model", "TASK", "-o"),
    "demo": ("demo", "-o"),
    "reproduce": ("reproduce", "heatmaps", "-o"),
    "embed": ("embed", "TMP", "--model", "no-such-model", "-o"),
    "task": ("task", "waterbirds", "TMP/no-birds", "-o"),
}
ENDINGS = {
    "report": ".html",
    "path": ".csv",
    "plot": ".svg",
    "apply": ".csv",
    "audit": ".json",
    "task": ".npz",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_place_that_cannot_be_written_is_refused_before_the_work(run, task, tmp_path, monkeypatch, name):
    def begin(*rest, **options):
        raise Began

    monkeypatch.setattr(FairerCLIP, "fit", begin)
    monkeypatch.setattr(FairerCLIP, "load", begin)
    monkeypatch.setattr(Experiment, "tune", begin)
    monkeypatch.setattr(jobs, "run_calls", begin)
    monkeypatch.setattr(fairerclip.auditing.run, "audit_task", begin)
    monkeypatch.setattr(fairerclip.study.demo, "open_task", begin)
    monkeypatch.setattr(fairerclip.study.paper.reproduce, "run_entry", begin)
    (tmp_path / "file").write_text("x")
    given = [str(word).replace("TASK", str(task)).replace("TMP", str(tmp_path)) for word in COMMANDS[name]]
    code, _, err = run(*given, tmp_path / "file" / f"out{ENDINGS.get(name, '')}")
    assert code == 2
    assert f"cannot be written: {tmp_path / 'file'} is not a folder" in err
    assert err.count("\n") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_csv_tables_are_replaced_as_a_whole_when_asked(run, task, tmp_path):
    results = tmp_path / "results.json"
    assert run("audit", task, "--permutations", "19", "-o", results)[0] == 0
    given = ("report", results, "--format", "csv", "-o", tmp_path / "tables")
    assert run(*given)[0] == 0
    (tmp_path / "tables" / "groups.csv").write_text("old")
    (tmp_path / "tables" / "mine.txt").write_text("mine")
    assert run(*given)[0] == 2
    assert (tmp_path / "tables" / "groups.csv").read_text() == "old"
    code, _, err = run(*given, "--overwrite")
    assert code == 0, err
    assert (tmp_path / "tables" / "groups.csv").read_text().startswith("stage,")
    assert (tmp_path / "tables" / "mine.txt").read_text() == "mine"


def test_a_comparison_of_another_task_is_not_replaced_unasked(run, task, tmp_path, monkeypatch):
    def here(calls, answered, **options):
        for number, call in enumerate(calls):
            answered(number, guarded(call))

    monkeypatch.setattr(jobs, "run_calls", here)
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


def test_a_run_whose_process_died_ends_in_failure_although_no_method_was_named(
    run, task, tmp_path, monkeypatch
):
    def lose(calls, answered, **options):
        for number, call in enumerate(calls):
            lost = call.arguments["method"].key == "probe"
            answered(number, Failure(f"{LostWorkerError.__name__}: gone") if lost else guarded(call))

    some = [method for method in study.chosen_methods(None) if method.key in ("zero-shot", "probe")]
    monkeypatch.setattr(study, "chosen_methods", lambda keys: some)
    monkeypatch.setattr(jobs, "run_calls", lose)
    code, out, err = run("compare", task, "--seeds", "1", "-o", tmp_path / "out")
    assert code == 1
    assert "Zero-shot" in out
    assert "failed: LostWorkerError" in out
    assert err == "fairerclip: 1 of 2 methods failed (probe: LostWorkerError: gone)\n"
    rows = json.loads((tmp_path / "out" / "comparison.json").read_text())["rows"]
    assert [row["errors"] for row in rows] == [[], ["LostWorkerError: gone"]]


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


@pytest.mark.parametrize(
    "damage", [{"failures": 3}, {"made": []}, {"made": "today"}, {"format": "x"}], ids=str
)
def test_a_damaged_page_of_a_reproduction_is_told_of_in_the_index(tmp_path, damage):
    head = {"format": "fairerclip-reproduction", "version": 1, "failures": [], "made": {}, "document": {}}
    (tmp_path / "heatmaps.json").write_text(json.dumps(head | damage))
    page = fairerclip.study.paper.reproduce.index_page(tmp_path, TaskSource("simulated"), [])
    assert "heatmaps.json" in page.to_markdown().replace("\\", "")
