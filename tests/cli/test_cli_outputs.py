"""Options that name what is written: a name that cannot be written is refused before anything is read."""

from pathlib import Path

import options_of
import pytest
from options_of import commands

from fairerclip.cli import options
from fairerclip.cli.app import app

READ = {
    *("tasks", "task", "model", "embeddings", "images", "result", "root", "labels", "text", "suite", "data"),
    *(
        "after",
        "templates",
        "stores",
        "about",
        "ids",
        "collection",
        "queries",
        "query_embedding",
        "unrelated",
    ),
    "labels_from",
}
"""Options and arguments that name what is read."""
ALSO_READ = {
    *(("task embeddings", "store"), ("task metadata", "file")),
    ("check", "path"),
}
GONE = {
    "demo": (),
    "embed": ("gone", "--model", "RN50"),
    "audit": ("gone.npz",),
    "fit": ("gone.npz",),
    "path": ("gone.npz",),
    "apply": ("gone", "gone.npy"),
    "export": ("gone",),
    "compare": ("gone.npz",),
    "report": ("gone.json",),
    "serve": ("gone",),
    "reproduce": ("all", "--suite", "gone"),
    "task waterbirds": ("gone",),
    "task celeba": ("gone",),
    "task fairface": ("gone",),
    "task cfd": ("gone",),
    "task utkface": ("gone",),
    "task facet": ("gone",),
    "task metadata": ("gone",),
    "task embeddings": ("gone", "--labels", "gone", "--id", "i", "--sensitive", "s", "--prompts", "gone"),
}
BAD = {
    "": "expected the name of a file or folder; got ''",
    "/": "'/' cannot be written: give the name of a file or folder",
    "a\0b": "'a\\x00b' cannot be written: give the name of a file or folder",
    "x" * 300: "names may have 230 bytes, got one of 300",
    "é" * 120: "names may have 230 bytes, got one of 240",
    "file/new": "file/new cannot be written: file is not a folder",
    "file/new/deeper.npz": "cannot be written: file is not a folder",
}


def paths(function):
    """Names of a command's options and arguments that are paths, with what typer was told of each."""
    return [(name, told) for name, kinds, told in options_of.options(function) if kinds & {Path, list[Path]}]


OUTPUTS = [
    (command, name)
    for command, function in commands(app)
    for name, _ in paths(function)
    if name not in READ and (command, name) not in ALSO_READ
]


def refused(result, word):
    code, out, err = result
    assert (code, out) == (2, ""), (out, err)
    assert err.startswith("fairerclip: ")
    assert err.count("\n") == 1
    assert word in err


@pytest.mark.parametrize(("command", "option"), OUTPUTS)
def test_a_name_that_cannot_be_written_is_refused_before_anything_is_read(
    run, tmp_path, monkeypatch, command, option
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("as it was")
    needed = ("-o", "new.npz") if option != "output" and command != "serve" else ()
    for name, word in BAD.items():
        flag = f"--{option.replace('_', '-')}"
        refused(run(*command.split(), *GONE[command], *needed, flag, name), word)
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "as it was"


def test_every_path_is_read_or_checked_as_an_output():
    assert len(OUTPUTS) >= 20
    for command, function in commands(app):
        for name, told in paths(function):
            parser = getattr(told, "parser", None)
            assert (parser is options.output_path) == ((command, name) in OUTPUTS), (command, name)


@pytest.mark.parametrize(
    ("command", "word"),
    [
        ("fit gone.npz -o .", ". exists"),
        ("fit gone.npz -o file", "file is a file; give the name of a folder"),
        ("path gone.npz -o .", ". is a folder; give the name of a file"),
        # The kind of the model decides what may be written, so it is read first.
        ("apply gone gone.npy -o .", "gone is not a model folder"),
        ("audit simulated:multiclass -o .", ". is a folder; give the name of a file"),
        ("report gone.json -o .", "does not say which report to make"),
        ("report gone.json --format html -o .", ". is a folder"),
        ("compare gone.npz -o file", "file is a file; give the name of a folder"),
        ("compare gone.npz --plot .", "a plot ends in"),
        ("reproduce intrinsic -o file", "file is a file; give the name of a folder"),
        ("task waterbirds gone -o .", "a task ends in"),
        ("demo -o .", "not the folder of an earlier demo"),
        ("demo -o file", "not the folder of an earlier demo"),
    ],
)
def test_a_folder_here_and_a_file_there_are_left_alone(run, tmp_path, monkeypatch, command, word):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("as it was")
    code, _, err = run(*command.split())  # it may have said where its data comes from
    refused((code, "", err), word)
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "as it was"
