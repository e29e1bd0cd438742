"""How commands end when they fail: exit code, one line for people, a document for machines, and nothing written."""

import json
from pathlib import Path

import numpy as np
import pytest
from options_of import commands, options

from fairerclip import FairerCLIP
from fairerclip.cli import app, streams
from fairerclip.cli import options as cli_options
from fairerclip.cli.app import app as typer_app
from fairerclip.experiment import Experiment


@pytest.fixture
def home(birds, task, tmp_path, monkeypatch):
    """A working folder with good inputs and bad ones."""
    X = np.ones((3, 48))
    for name, array in {"line": X[0], "narrow": X[:, :7], "nan": np.where(np.eye(3, 48), np.nan, 1)}.items():
        np.save(tmp_path / f"{name}.npy", array)
    np.savez(tmp_path / "ids.npz", embeddings=X, ids=np.arange(2))
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 not a zip")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "results.json").write_text('{"format": "fairerclip-results", "version": 7}')
    (tmp_path / "t.npz").symlink_to(task)
    (tmp_path / "model").symlink_to(saved_model(birds, task.parent / "model"))
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes.txt").write_text("mine")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def saved_model(birds, path):
    if not path.is_dir():
        Experiment.of(birds).fit(FairerCLIP(n_features=30, random_state=0), "target").save(path)
    return path


FIT, APPLY, AUDIT, COMPARE, REPORT = (
    "fit t.npz -o m",
    "apply model nan.npy -o o.npz",
    "audit t.npz",
    "compare t.npz",
    "report results.json -o r.html",
)
REFUSED = {
    # usage
    "nonsense": "nonsense",
    "fit t.npz": "--output",
    f"{FIT} --bogus": "--bogus",
    f"{FIT} --tau much": "--tau",
    # files
    "fit gone.npz -o m": "gone.npz",
    "path broken.npz": "broken.npz",
    "path file": "file",
    "fit simulated:moon -o m": "moon",
    "apply gone nan.npy -o o.npz": "gone",
    APPLY: "first: 0, 1, 2",
    "apply model line.npy -o o.npz": "(48,)",
    "apply model narrow.npy -o o.npz": "7",
    "apply model ids.npz -o o.npz": "(2,)",
    REPORT: "version",
    "export gone -o m.onnx": "gone",
    # values and names
    f"{FIT} --tau 1.5": "[0, 1)",
    f"{FIT} --labels some": "none, target, all",
    f"{FIT} --set colour=red": "colour=red",
    f"{FIT} --preset imagenet": "imagenet",
    f"{FIT} --classes penguin,landbird": "penguin",
    f"{FIT} --sensitive age": "age",
    f"{FIT} --method zeroshot": "did you mean 'zero-shot'",
    f"{FIT} --objective beauty": "beauty",
    f"{FIT} --set n_features=30 --offsets 1": "2 numbers",
    "path t.npz --split holdout": "holdout",
    "path t.npz --by beauty": "worst_group",
    "path t.npz --taus a:b:c": "--taus",
    f"path t.npz --taus 0:0.9:{10**30}": "10,000",
    "path t.npz --taus 0:0.9:1000 --tau-zs 0:0.9:1000": "100,000",
    f"{AUDIT} --split nowhere": "nowhere",
    f"{AUDIT} --k 100000": "k must",
    f"{AUDIT} --pair land,sea": "pair",
    f"{COMPARE} --methods magic": "magic",
    f"{COMPARE} --plot x.gif": "a plot ends in",
    "reproduce magic": "magic",
    "report t.npz -o r.pdf": ".html, .md or .json",
    "report t.npz --format md -o r.html": "--format md",
    "apply model t.npz -o o.txt": ".npz or .csv",
    "apply model t.npz -o o.csv --top 0": "--top",
    "apply model t.npz -o o.csv --top 2 --prompt goose": "goose",
    # what does not go together
    f"{FIT} --method leace --tau 0.5": "--tau",
    f"{FIT} --method wise --labels none": "target labels",
    f"{FIT} --strength 0.5": "--strength",
    f"{FIT} --method embedding --objective max_skew --strength 0.5": "leave one of them out",
    f"{FIT} --no-tune --objective eod": "--no-tune",
    f"{AUDIT} --labels none": "--mitigate",
    f"{AUDIT} --mitigate --after model": "exclude each other",
    f"{AUDIT} t.npz --labels none": "one task",
    "report results.json --split val -o r.html": "--split",
    f"{COMPARE} --splits 2 --seeds 2": "--splits",
    f"{COMPARE} --rankings --seeds 2": "rankings",
    "apply model t.npz -o o.csv --prompt landbird": "--top K",
    "apply model t.npz -o o.csv --unit": "mitigator",
    # outputs
    "fit t.npz -o file": "file is a file",
    "fit t.npz -o taken": "exists",
    "path gone.npz -o taken": "is a folder",
    "demo -o taken": "not the folder of an earlier demo",
    "demo -o file": "not the folder of an earlier demo",
}


@pytest.mark.parametrize("words", REFUSED)
def test_bad_input_is_one_line_a_document_and_changes_nothing(run, home, monkeypatch, words):
    before = sorted(home.iterdir())
    code, out, err = run(*words.split())
    line = err.removeprefix("fairerclip: ").rstrip("\n")
    assert (code, out, line.count("\n")) == (2, "", 0), err
    assert REFUSED[words] in line
    code, out, again = run(*words.split(), "--json")
    assert (code, again) == (2, err)
    error = json.loads(out)["error"]
    assert (set(error), error["message"]) == ({"type", "message", "exit_code"}, line)
    assert sorted(home.iterdir()) == before
    assert (home / "file").read_text() == (home / "taken" / "notes.txt").read_text() == "mine"


# Every option that is a number or an output ---------------------------------------------------------

GIVEN = {
    **dict.fromkeys(("audit", "fit", "path", "compare", "report"), ("t.npz",)),
    "embed": ("gone", "--model", "RN50"),
    "apply": ("model", "t.npz"),
    "export": ("gone",),
    "serve": ("gone",),
    "reproduce": ("all",),
    **{f"task {name}": ("gone",) for name in ("waterbirds", "celeba", "fairface", "cfd", "utkface", "facet")},
    "task metadata": ("gone",),
    "task embeddings": ("gone", "--labels", "gone", "--id", "i", "--sensitive", "s", "--prompts", "gone"),
}
"""What a command needs besides its output, by the name of the command."""
ENDINGS = {"apply": ".csv", "report": ".html", "task": ".npz"}
NUMBERS = [
    (command, option)
    for command, function in commands(typer_app)
    for option, kinds, _ in options(function)
    if kinds & {int, float}
]
OUTPUTS = [
    (command, option)
    for command, function in commands(typer_app)
    for option, kinds, told in options(function)
    if kinds & {Path, list[Path]} and getattr(told, "parser", None) is cli_options.output_path
]
IN_RANGE = {"max_seconds": (str(10**30),)}


@pytest.mark.parametrize(("command", "option"), NUMBERS)
def test_a_number_out_of_range_is_refused_before_the_work(refused, home, command, option):
    before, typed = sorted(home.iterdir()), f"--{option.replace('_', '-')}"
    given = (*command.split(), *GIVEN.get(command, ()))
    if command not in ("audit", "serve"):
        given += ("-o", f"new{ENDINGS.get(command.split()[0], '')}")
    for value in ("-3", str(10**30), "nan"):
        if value not in IN_RANGE.get(option, ()):
            refused((*given, typed, value), option if option in ("k", "top") else typed[2:5])
    assert sorted(home.iterdir()) == before


@pytest.mark.parametrize(("command", "option"), OUTPUTS)
def test_a_name_that_cannot_be_written_is_refused_before_anything_is_read(refused, home, command, option):
    before, typed = sorted(home.iterdir()), f"--{option.replace('_', '-')}"
    given = (*command.split(), *("gone" if word == "t.npz" else word for word in GIVEN.get(command, ())))
    if option != "output" and command != "serve":
        given += ("-o", "new.npz")
    for name, word in {
        "": "''",
        "a\0b": "cannot be written",
        "é" * 120: "230 bytes",
        "file/new": "file is not a folder",
    }.items():
        refused((*given, typed, name), word)
    assert sorted(home.iterdir()) == before


# What is not bad input ------------------------------------------------------------------------------


def test_memory_that_runs_out_is_failed_work(run, monkeypatch):
    def load(*arguments):
        raise MemoryError("Unable to allocate 9 TiB")

    monkeypatch.setattr(cli_options, "load_experiment", load)
    code, out, err = run("audit", "simulated:waterbirds", "--json")
    assert (code, err) == (1, "fairerclip: memory ran out: Unable to allocate 9 TiB\n")
    error = json.loads(out)["error"]
    assert (error["type"], error["exit_code"]) == ("MemoryError", 1)


def test_a_fault_of_ours_keeps_its_traceback_and_is_a_document_too(run, monkeypatch, capsys):
    def load(*arguments):
        raise KeyError("oops")

    monkeypatch.setattr(cli_options, "load_experiment", load)
    with pytest.raises(KeyError, match="oops"):
        run("audit", "simulated:waterbirds", "--json")
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["type"], error["exit_code"]) == ("KeyError", 1)


def test_an_interrupt_is_one_line_and_exit_code_130(run, monkeypatch):
    def interrupted(**options):
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "app", interrupted)
    assert run("audit") == (130, "", "fairerclip: interrupted\n")
    code, out, err = run("audit", "--json")
    assert (code, err) == (130, "fairerclip: interrupted\n")
    assert json.loads(out)["error"]["exit_code"] == 130


def test_a_line_has_an_end(capsys):
    streams.print_error("x" * 10**6)
    assert len(capsys.readouterr().err) < 10_000
