"""Numbers on the command line: each works, or is refused in one line before any work."""

import re
from pathlib import Path

import pytest
from options_of import commands, options

from fairerclip import FairerCLIP
from fairerclip._util.checks import RANGES, check_range
from fairerclip.cli.app import app
from fairerclip.data import save_task, simulate
from fairerclip.errors import ParameterError
from fairerclip.experiment import Experiment
from fairerclip.model.path import check_plane
from light import few_settings

HUGE = str(10**30)
VALUES = ("-3", "0", HUGE, "nan", "inf", "1e-300")
WORKS = {
    **{("seed", "0"): "the default", ("tau", "0"): "", ("tau", "1e-300"): ""},
    **{
        ("tau_z", "0"): "",
        ("tau_z", "1e-300"): "",
        ("accuracy_floor", "0"): "",
        ("accuracy_floor", "1e-300"): "",
    },
    **{("max_seconds", "1e-300"): "", ("max_seconds", "inf"): "", ("max_seconds", HUGE): ""},
}
"""Values that are in range."""
ARGUMENTS = {
    "demo": ("-o", "new"),
    "embed": ("gone", "--model", "RN50", "-o", "new"),
    "audit": ("TASK",),
    "fit": ("TASK", "-o", "new", "--set", "n_features=30"),
    "path": ("TASK", "-o", "new"),
    "apply": ("MODEL", "TASK", "-o", "new.csv"),
    "compare": ("TASK", "-o", "new"),
    "report": ("TASK", "-o", "new.html"),
    "serve": ("gone",),
    "reproduce": ("all", "-o", "new"),
    "task waterbirds": ("gone", "-o", "new.npz"),
    "task celeba": ("gone", "-o", "new.npz"),
    "task fairface": ("gone", "-o", "new.npz"),
    "task cfd": ("gone", "-o", "new.npz"),
    "task utkface": ("gone", "-o", "new.npz"),
    "task facet": ("gone", "-o", "new.npz"),
    "task metadata": ("gone", "-o", "new.npz"),
    "task embeddings": (
        *("gone", "--labels", "gone", "--id", "i", "--sensitive", "s", "--prompts", "gone", "-o", "new.npz"),
    ),
}


OPTIONS = [
    (command, option)
    for command, function in commands(app)
    for option, kinds, _ in options(function)
    if kinds & {int, float}
]


IN_RANGE = {("port", "0"), ("batch_wait", "0"), ("batch_wait", "1e-300")}
"""Options of a service and values that are in range: the model that it cannot find is refused then."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    task = simulate("waterbirds", scale=0.03, width=48)
    save_task(task, folder / "birds.npz")
    model = Experiment.of(task, None, None).fit(FairerCLIP(n_features=30, random_state=0), "target")
    model.save(folder / "model")
    names = {"MODEL": "model"}
    return {"TASK": folder / "birds.npz", **{key: folder / name for key, name in names.items()}}


def called(run, made, command, *more):
    return run(*command.split(), *(made.get(a, a) for a in ARGUMENTS[command]), *more)


def refused(result, folder, *words):
    code, out, err = result
    assert code == 2, (out, err)
    assert err.startswith("fairerclip: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err
    assert list(folder.iterdir()) == []


def test_every_command_with_numbers_is_tried():
    assert len(OPTIONS) >= 29
    assert {command for command, _ in OPTIONS} == set(ARGUMENTS)


@pytest.mark.parametrize(("command", "option"), OPTIONS)
def test_a_number_works_or_is_refused_before_the_work(run, made, tmp_path, monkeypatch, command, option):
    few_settings(monkeypatch)
    monkeypatch.chdir(tmp_path)
    typed = "--" + option.replace("_", "-")
    for value in VALUES:
        if command == "serve" and (option, value) in IN_RANGE:
            refused(called(run, made, command, typed, value), tmp_path, "gone is not a model folder")
        elif (option, value) not in WORKS:
            refused(
                called(run, made, command, typed, value),
                tmp_path,
                option if option in "k top" else typed[2:5],
            )
        elif option != "seed":
            code, _, err = called(run, made, command, typed, value, "--overwrite")
            assert code == 0, err
            for file in (tmp_path / "new").iterdir():
                file.unlink()
            (tmp_path / "new").rmdir()


@pytest.mark.parametrize("name", RANGES)
def test_a_range_is_named_and_its_ends_are_in_it(name):
    least, most = RANGES[name]
    check_range(name, least)
    check_range(name, most)
    for value in (least - 1, most + 1, least + 0.5, True, "1", None, float("nan")):
        with pytest.raises(
            ParameterError, match=f"^{name} must be a whole number from {least:,} to {most:,}; got "
        ):
            check_range(name, value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--taus", f"0:0.9:{HUGE}"), ("--taus expects at most 10,000 values",)),
        (("--taus", "0:0.9:" + "9" * 5000), ("--taus expects",)),
        (("--taus", "nan"), ("tau must be a number in [0, 1)",)),
        (("--taus", "inf,0"), ("tau must be",)),
        (("--taus", "-3"), ("tau must be",)),
        (("--tau-zs", "0,1e30"), ("tau_z must be",)),
        (("--taus", "0:0.9:1000", "--tau-zs", "0:0.9:1000"), ("at most 100,000 points", "1,000 × 1,000")),
    ],
)
def test_a_grid_is_refused_before_the_fit(run, made, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Experiment, "fit", None)
    refused(called(run, made, "path", *arguments), tmp_path, *words)


def test_the_page_on_the_command_line_names_every_range():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    for name, (least, most) in RANGES.items():
        assert re.search(rf"`--{name.replace('_', '-')}` {least} to\s{most:,}", page), name


def test_a_plane_of_points_is_bounded():
    check_plane([0.1] * 1000, [0.2] * 100, "spectral")
    with pytest.raises(ParameterError, match="at most 100,000 points"):
        check_plane([0.1] * 1001, [0.2] * 100, "spectral")


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(
    "name", ["n_features", "max_iter", "n_components", "gamma", "random_state", "zero_shot"]
)
def test_a_parameter_works_or_is_refused_in_one_line(run, made, tmp_path, monkeypatch, name, value):
    monkeypatch.chdir(tmp_path)
    few = () if name == "n_features" else ("--set", "n_features=30")
    code, _, err = run("fit", made["TASK"], "-o", "new", "--no-tune", *few, "--set", f"{name}={value}")
    assert code in (0, 2)
    if code == 2:
        refused((code, "", err), tmp_path)


@pytest.mark.parametrize("seed", ["-3", HUGE, "1" * 5000, "1.5", "nan"])
def test_the_seed_of_a_simulated_task_is_in_range(run, tmp_path, monkeypatch, seed):
    monkeypatch.chdir(tmp_path)
    refused(run("fit", f"simulated:waterbirds@{seed}", "-o", "new"), tmp_path)


@pytest.mark.parametrize("shares", ["nan,0.5,0.5", "inf,0,0", "1e30,0,0", "-3,2,2", "1e-300,0,0"])
def test_shares_sum_to_one(run, tmp_path, monkeypatch, shares):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "l.csv").write_text("i,s\na,x\nb,y\n")
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    result = run(
        *("task", "embeddings", "gone", "--labels", "../in/l.csv", "--id", "i", "--sensitive", "s"),
        *("--prompts", "waterbirds", "-o", "new.npz", "--shares", shares),
    )
    refused(result, tmp_path / "out", "sum to 1")
