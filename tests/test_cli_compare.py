"""`fairerclip compare` from the command line."""

import json

import pytest

from fairerclip.data import save_task, simulate


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    return save_task(
        simulate("waterbirds", seed=1, scale=0.1, width=48), tmp_path_factory.mktemp("task") / "t.npz"
    )


def test_methods_stand_side_by_side_and_leave_files(task, run, tmp_path):
    out = tmp_path / "out"
    code, text, err = run("compare", task, "--methods", "zero-shot,probe", "--seeds", 1, "-o", out)
    assert (code, err) == (0, "")
    assert "Zero-shot" in text
    assert "With target labels in training" in text
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


def test_the_front_is_drawn(task, run, tmp_path):
    pytest.importorskip("matplotlib")
    plot = tmp_path / "front.svg"
    code, _, err = run("compare", task, "--methods", "zero-shot,orth-proj", "--seeds", 1, "--plot", plot)
    assert code == 0, err
    assert plot.read_bytes().startswith(b"<?xml")


def test_methods_are_listed(task, run):
    code, out, _ = run("compare", task, "--methods", "list")
    assert code == 0
    assert "fairerclip-target: FairerCLIP, labels; labels in training: target" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--methods", "magic"], "no method 'magic'"),
        (["--seeds", "0"], "seeds must be at least 1"),
        (["--max-seconds", "0"], "max_seconds must be above 0"),
        (["--plot", "x.gif"], "a plot ends in"),
        (["--sensitive", "age"], "age"),
    ],
)
def test_bad_options_are_one_line(task, run, options, message):
    code, out, err = run("compare", task, *options)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
