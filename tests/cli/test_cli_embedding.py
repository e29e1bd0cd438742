"""`fit --method embedding` and what is done with a mitigator on the command line."""

import json

import pytest
from test_cli import refused

import fairerclip
from fairerclip.data import save_task, simulate


@pytest.fixture(scope="module")
def portraits(tmp_path_factory):
    task = simulate("gallery", seed=1, scale=0.05, width=48)
    return save_task(task, tmp_path_factory.mktemp("gallery") / "gallery.npz")


def test_fit_method_embedding_chooses_a_strength_and_saves_a_mitigator(run, portraits, tmp_path):
    options = ("--method", "embedding", "--sensitive", "sex", "--objective", "max_skew", "--floor", "0.9")
    code, out, err = run("fit", portraits, "-o", tmp_path / "m", *options, "--verbose")
    assert (code, err) == (0, "")
    for words in (
        "MaxSkew@k before and after",
        "5th percentile",
        "→",
        "was chosen on",
        "values are read by a reader",
    ):
        assert words in out
    mitigator = fairerclip.load(tmp_path / "m")
    assert mitigator.diagnostics_["tuning"]["strength"] == mitigator.strength
    code, out, _ = run("fit", portraits, "-o", tmp_path / "n", *options, "--json")
    result = json.loads(out)
    assert (code, result["key"], result["method"]) == (0, "embedding", "EmbeddingMitigator")
    assert result["strength"] == {"sex": mitigator.strength}
    assert len(result["path"]) == 10
    assert result["rankings"][0]["attribute"] == "sex"


def test_fit_method_embedding_takes_parameters_and_several_attributes(run, portraits, tmp_path):
    options = ("--method", "embedding", "--sensitive", "sex,race", "--labels", "all", "--set", "unit=True")
    code, _, err = run("fit", portraits, "-o", tmp_path / "m", *options, "--strength", "0.25")
    assert (code, err) == (0, "")
    mitigator = fairerclip.load(tmp_path / "m")
    assert (mitigator.unit, mitigator.strength) == (True, 0.25)
    assert [attribute.name for attribute in mitigator.fitted_.attributes] == ["sex", "race"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--tau", "0.5", "--tune"], "--tau, --tune: for fairerclip only"),
        (["--max-steps", "5"], "--max-steps limits"),
        (["--objective", "eod"], "--objective of embedding is max_skew"),
        (["--floor", "0.5"], "--floor limits the choice"),
        (["--objective", "max_skew", "--strength", "0.5"], "leave one of them out"),
        (["--objective", "max_skew", "--set", "strength=0.5"], "leave one of them out"),
        (["--strength", "1.5"], "strength must be a number in [0, 1]"),
        (["--set", "tau=1"], "--set expects NAME=VALUE"),
        (["--labels", "target"], "none, all; got 'target'"),
    ],
)
def test_fit_method_embedding_refuses_options_that_it_does_not_have(run, portraits, tmp_path, options, words):
    given = ["fit", portraits, "-o", tmp_path / "m", "--method", "embedding", "--sensitive", "sex", *options]
    refused(run(*given), words)
    assert not (tmp_path / "m").exists()


def test_options_of_embedding_are_refused_for_other_methods(run, task, tmp_path):
    for method in ("fairerclip", "leace"):
        given = ["fit", task, "-o", tmp_path / "m", "--method", method, "--strength", "0.5"]
        refused(run(*given), "--strength: for embedding only")
