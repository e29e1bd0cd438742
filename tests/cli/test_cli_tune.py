"""`fairerclip fit` with and without a search: when it tunes, by what, and what it says."""

import json

import numpy as np
import pytest

from fairerclip import FairerCLIP
from fairerclip.data import save_task, simulate
from fairerclip.experiment import Experiment
from fairerclip.tuning import candidates

SMALL = ("--set", "n_features=150")


@pytest.fixture(autouse=True)
def few_fits(monkeypatch):
    monkeypatch.setattr(candidates, "FITS", candidates.FITS[:2])


@pytest.fixture(scope="module")
def birds():
    return simulate("waterbirds", seed=3, scale=0.1, width=48)


@pytest.fixture(scope="module")
def task(birds, tmp_path_factory):
    return save_task(birds, tmp_path_factory.mktemp("task") / "birds.npz")


def without(task, folder, *endings):
    """The task file without some of its arrays."""
    with np.load(task) as arrays:
        kept = {name: array for name, array in arrays.items() if not name.endswith(endings)}
    np.savez(folder / "less.npz", **kept)
    return folder / "less.npz"


def one_line(result, *words):
    code, out, err = result
    assert (code, out) == (2, ""), (out, err)
    assert len(err.strip().splitlines()) == 1, err
    for word in words:
        assert word in err


def fitted(run, *arguments):
    code, out, err = run("fit", *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def test_a_task_with_labelled_validation_rows_is_tuned_unasked(run, birds, task, tmp_path):
    result = fitted(run, task, "-o", tmp_path / "m")
    expected = Experiment.of(birds).tune(FairerCLIP(random_state=0), "target")
    tuning = result["tuning"]
    assert tuning["objective"] == "worst_group"
    assert tuning["fits"] == tuning["fits_planned"]
    assert {"tau", "criterion", "zero_shot", "class_weight", "offsets"} <= set(tuning["chosen"]["parameters"])
    assert tuning["chosen"] == expected.diagnostics_["tuning"]["chosen"]
    model = FairerCLIP.load(tmp_path / "m")
    assert model.get_params() == expected.get_params()
    assert (result["tau"], result["criterion"]) == (model.tau, model.criterion)
    np.testing.assert_array_equal(model.predict(birds.test.X), expected.predict(birds.test.X))
    worst = {name: report["worst"]["accuracy"] for name, report in result["reports"].items()}
    assert worst["FairerCLIP"] > worst["zero-shot"]


@pytest.mark.parametrize(
    "by_hand", [("--no-tune",), ("--tau", "0.4"), ("--set", "gamma=0.01"), ("--preset", "cfd/paper")]
)
def test_what_is_set_by_hand_stays_unless_a_search_is_asked_for(run, task, tmp_path, by_hand):
    assert fitted(run, task, "-o", tmp_path / "m", *by_hand)["tuning"] is None
    model = FairerCLIP.load(tmp_path / "m")
    if by_hand == ("--no-tune",):
        assert model.get_params() == FairerCLIP(random_state=0).get_params()
        return
    found = fitted(run, task, "-o", tmp_path / "m", *by_hand, "--overwrite", "--tune", "--max-seconds", 0.001)
    # All but the last: what is there from the start, and one fit of the search, however short the time.
    assert found["tuning"]["fits"] == found["tuning"]["fits_planned"] - 1


def test_a_search_cross_validates_on_the_training_split(run, birds, task, tmp_path):
    tuning = fitted(run, without(task, tmp_path, "_val"), "-o", tmp_path / "m", *SMALL, "--cv", 2)["tuning"]
    assert (tuning["folds"], tuning["rows"], tuning["groups"]) == (2, len(birds.train.y), "read from prompts")
    code, out, _ = run("fit", task, "-o", tmp_path / "p", *SMALL, "--cv", 2, "--verbose")
    assert code == 0
    assert "training rows in 2 folds" in " ".join(out.split())
    one_line(
        run("fit", task, "-o", tmp_path / "n", "--cv", 2, "--labels", "none"),
        "--labels target or --labels all",
    )


def test_offsets_of_an_earlier_search_are_added_to_the_scores(run, birds, task, tmp_path):
    for name, arguments in {"plain": (), "moved": ("--offsets", "-0.1,0.25")}.items():
        assert fitted(run, task, "-o", tmp_path / name, *SMALL, *arguments)["tuning"] is None
    plain, moved = (FairerCLIP.load(tmp_path / name) for name in ("plain", "moved"))
    assert moved.offsets_.tolist() == [-0.1, 0.25]
    X = birds.test.X
    np.testing.assert_allclose(moved.scores(X), plain.scores(X) + np.array([-0.1, 0.25]), atol=1e-6)
    for offsets, words in {
        "a,b": "numbers such as",
        "1": "offsets must be 2 numbers",
        "1,nan": "2 numbers",
    }.items():
        one_line(run("fit", task, "-o", tmp_path / "n", "--offsets", offsets), words)
    one_line(run("fit", task, "-o", tmp_path / "n", "--offsets", "0,1", "--tune"), "leave out --offsets")


def test_a_search_may_be_cut_short(run, task, tmp_path):
    tuning = fitted(run, task, "-o", tmp_path / "m", "--max-seconds", 0.001)["tuning"]
    assert tuning["fits"] == tuning["fits_planned"] - 1


def test_a_small_difference_is_searched_for_above_an_accuracy_floor(run, birds, task, tmp_path):
    free = fitted(run, task, "-o", tmp_path / "free", *SMALL, "--objective", "eod")["tuning"]
    assert free["objective"] == "eod"
    assert 0 < free["accuracy_floor"] < 1  # zero-shot's average, as none was given
    low = fitted(run, task, "-o", tmp_path / "low", *SMALL, "--objective", "eod", "--accuracy-floor", 0.4)[
        "tuning"
    ]
    floor = max(0.8, low["chosen"]["average"] + 0.05)
    arguments = (task, "-o", tmp_path / "held", *SMALL, "--objective", "eod", "--accuracy-floor", floor)
    held = fitted(run, *arguments)["tuning"]
    assert held["accuracy_floor"] == floor
    assert held["chosen"]["average"] > low["chosen"]["average"]  # which misses the higher floor
    model = FairerCLIP(n_features=150, random_state=0)
    expected = Experiment.of(birds).tune(model, "target", "eod", accuracy_floor=floor)
    assert held["chosen"] == expected.diagnostics_["tuning"]["chosen"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--objective", "beauty"), ["objective must be one of", "worst_group", "'beauty'"]),
        (("--accuracy-floor", 1.5), ["accuracy_floor", "[0, 1]", "1.5"]),
        (("--max-seconds", -1), ["max_seconds", "above 0", "-1"]),
        (("--no-tune", "--objective", "eod"), ["--no-tune", "--objective"]),
        (("--no-tune", "--max-seconds", 3, "--accuracy-floor", 0.5), ["--accuracy-floor, --max-seconds"]),
    ],
)
def test_bad_search_options_are_one_line(run, task, tmp_path, monkeypatch, options, words):
    monkeypatch.setattr(FairerCLIP, "fit", lambda *a, **k: pytest.fail("the work was begun"))
    one_line(run("fit", task, "-o", tmp_path / "m", *options), *words)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("gone", [("_val",), ("s_val",), ("y_val",)], ids=["split", "sensitive", "target"])
def test_without_labelled_validation_rows_it_fits_and_a_search_is_refused(run, task, tmp_path, gone):
    less = without(task, tmp_path, *gone)
    assert fitted(run, less, "-o", tmp_path / "m")["tuning"] is None
    assert FairerCLIP.load(tmp_path / "m").get_params() == FairerCLIP(random_state=0).get_params()
    for asked in (("--tune",), ("--objective", "eod")):
        one_line(run("fit", less, "-o", tmp_path / "n", *asked), "val")
    assert not (tmp_path / "n").exists()


def test_the_search_is_told_on_a_narrow_terminal(run, task, tmp_path, monkeypatch):
    from fairerclip.cli import show

    monkeypatch.setattr(show.out, "_width", 80)
    code, out, err = run("fit", task, "-o", tmp_path / "m", "--verbose")
    assert (code, err) == (0, "")
    assert "Searched by worst_group on 120 validation rows" in out
    assert "Chosen: the " in out
    assert max(len(line) for line in out.splitlines() if "written to" not in line) <= 80
    assert "…" not in out


def test_a_choice_of_the_model_as_given_can_be_shown():
    from fairerclip.report.fit_tables import tuning_table
    from fairerclip.report.result_table import text_of

    parameters = {"class_weight": {"a": 0.5}, "tau": 0.8, "criterion": "marginal", "zero_shot": None}
    figures = {"average": 0.9, "worst_group": None, "eod": None, "intervals": {"average": [0.8, 0.95]}}
    counts = {"rows": 9, "fits": 3, "fits_planned": 8, "candidates": 60, "strategy": "given"}
    shown = {"objective": "eod", "chosen": {"parameters": parameters, **figures}, "neighbours": [], **counts}
    (row,) = tuning_table(shown).rows
    assert [text_of(cell) for cell in row][3:] == ["default", "90.0 [80.0, 95.0]", "–", "–"]


@pytest.mark.parametrize("objective", ["eod", "worst_group"])
def test_an_accuracy_floor_is_kept_on_the_validation_split_or_the_miss_is_said(
    run, birds, task, tmp_path, objective
):
    for floor in (0.7, 0.8):
        options = (*SMALL, "--objective", objective, "--accuracy-floor", floor, "--overwrite")
        result = fitted(run, task, "-o", tmp_path / "m", *options)
        model = FairerCLIP.load(tmp_path / "m")
        names = Experiment.of(birds).target(birds.val)
        assert np.mean(model.predict(birds.val.X) == names) >= floor
        assert result["tuning"]["floor_met"] is True
        assert result["warnings"] == []
    options = (*SMALL, "--objective", objective, "--accuracy-floor", 1, "--overwrite")
    result = fitted(run, task, "-o", tmp_path / "m", *options)
    assert result["tuning"]["floor_met"] is False
    assert any(line.startswith("AccuracyFloorWarning: no model of the search") for line in result["warnings"])
