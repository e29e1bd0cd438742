"""Every method on the command line: trained, saved, applied, audited and reported."""

import json
from dataclasses import replace

import pytest
from test_cli import refused

import fairerclip
from fairerclip.baselines import LEACE, LinearProbe, ZeroShot
from fairerclip.data import load_task, save_task, simulate
from fairerclip.study.methods import FITTABLE


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    return save_task(
        simulate("waterbirds", seed=1, scale=0.05, width=32), tmp_path_factory.mktemp("task") / "t.npz"
    )


def test_fit_trains_any_method_and_prints_what_it_prints_for_fairerclip(run, task, tmp_path):
    code, out, err = run("fit", task, "-o", tmp_path / "m", "--method", "orth-cali", "--seed", 3)
    assert (code, err) == (0, "")
    for words in (
        "labels used: none",
        "zero-shot",
        "Orth-Cali",
        "40 models",
        "Chosen: ",
        "lam=",
        "written to",
    ):
        assert words in out
    model = fairerclip.load(tmp_path / "m")
    assert type(model).__name__ == "OrthCali"


def test_fit_prints_a_method_for_machines(run, task, tmp_path):
    code, out, _ = run("fit", task, "-o", tmp_path / "m", "--method", "leace", "--json")
    assert code == 0
    result = json.loads(out)
    assert (result["key"], result["labels"], result["parameters"]) == ("leace", "none", {"head": "zero-shot"})
    assert set(result["reports"]) == {"zero-shot", result["method"]}
    model = fairerclip.load(tmp_path / "m")
    assert isinstance(model, LEACE)
    assert result["offsets"] == model.offsets_.tolist()
    right = (
        model.predict(load_task(task).test.X)
        == [load_task(task).class_names[y] for y in load_task(task).test.y]
    ).mean()
    assert result["reports"][result["method"]]["average"] == pytest.approx(right)


def test_an_alias_trains_the_method_it_names(run, task, tmp_path, monkeypatch):
    quick = replace(FITTABLE["probe-group"], candidates=[{"C": 1.0}, {"C": 0.01}])
    monkeypatch.setitem(FITTABLE, "probe-group", quick)
    code, out, _ = run("fit", task, "-o", tmp_path / "m", "--method", "group-balanced-probe", "--json")
    assert (code, json.loads(out)["key"]) == (0, "probe-group")
    model = fairerclip.load(tmp_path / "m")
    assert isinstance(model, LinearProbe)
    assert model.class_weight == "group"


def test_a_gallery_is_ranked_by_methods_without_labels(run, tmp_path):
    file = save_task(simulate("gallery", scale=0.1, width=48), tmp_path / "g.npz")
    code, out, _ = run("fit", file, "-o", tmp_path / "m", "--method", "leace", "--sensitive", "sex")
    assert code == 0
    assert "MaxSkew" in out
    assert "No labelled rows can choose" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("--method", "zeroshot"),
            ["no method 'zeroshot'; did you mean 'zero-shot'?", "there are fairerclip, "],
        ),
        (("--method", "fairerclip-all"), ["use fairerclip with labels all"]),
        (("--method", "leace", "--tau", 0.5), ["--tau: for fairerclip only, but the method is leace"]),
        (
            ("--method", "leace", "--preset", "paper", "--cv", 3, "--offsets", "0,1", "--no-tune"),
            ["--preset, --offsets, --no-tune, --cv: for fairerclip only"],
        ),
        (("--method", "leace", "--objective", "max_skew"), ["--objective: for fairerclip only"]),
        (("--method", "leace", "--set", "tau=0"), ["--set: for fairerclip only"]),
        (("--method", "wise", "--labels", "none"), ["wise learns from target labels", "orth-proj"]),
        (("--method", "wise", "--max-steps", 3), ["wise is not trained by gradient"]),
        (("--max-steps", 3), ["--max-steps", "fairerclip"]),
    ],
)
def test_fit_refuses_what_a_method_does_not_have(run, task, tmp_path, arguments, words):
    assert refused(run("fit", task, "-o", tmp_path / "m", *arguments), *words)
    assert not (tmp_path / "m").exists()


def test_a_model_of_another_kind_is_left_alone(run, task, tmp_path):
    model, birds = ZeroShot(), load_task(task)
    model.fit(birds.train.X, text=birds.text_target).save(tmp_path / "m")
    before = (tmp_path / "m" / "model.json").read_bytes()
    assert refused(run("fit", task, "-o", tmp_path / "m", "--overwrite", "--tau", 0.5), "is left alone")
    assert (tmp_path / "m" / "model.json").read_bytes() == before
