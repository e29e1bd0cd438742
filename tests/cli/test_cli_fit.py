"""`fairerclip fit`: the models and figures of Python, with and without a search."""

import json

import numpy as np
import pytest

import fairerclip
from fairerclip import FairerCLIP
from fairerclip.baselines import LEACE, LinearProbe, ZeroShot
from fairerclip.cli import show
from fairerclip.experiment import Experiment
from light import fewer_fits

few_fits = pytest.fixture(scope="module", autouse=True)(fewer_fits)
FAST = ("--set", "n_features=150")


def without(task, folder, *endings, **changed):
    """The task file without some of its arrays, and with others in their place."""
    with np.load(task) as arrays:
        kept = {name: array for name, array in arrays.items() if not name.endswith(endings)}
    np.savez(folder / "less.npz", **kept | changed)
    return folder / "less.npz"


def accuracies(birds, predicted):
    """Average and worst-group accuracy on the test rows, by the letter."""
    names, s = np.array(birds.class_names)[birds.test.y], birds.test.sensitive()
    right = predicted == names
    cells = [right[(names == a) & (s == b)].mean() for a in np.unique(names) for b in np.unique(s)]
    return right.mean(), min(cells)


def test_a_fit_is_that_of_python_and_its_figures_are_counted(run, document, birds, task, tmp_path):
    set_by_hand = ("--tau", 0.4, "--tau-z", 0.2, "--criterion", "conditional", *FAST)
    found = document("fit", task, "-o", tmp_path / "m", *set_by_hand)
    expected = Experiment.of(birds).fit(
        FairerCLIP(tau=0.4, tau_z=0.2, criterion="conditional", n_features=150, random_state=0), "target"
    )
    model = FairerCLIP.load(tmp_path / "m")
    np.testing.assert_array_equal(model.scores(birds.test.X), expected.scores(birds.test.X))
    assert (found["labels"], found["simulated"], found["tuning"]) == ("target", True, None)
    average, worst = accuracies(birds, model.predict(birds.test.X))
    report = found["reports"]["FairerCLIP"]
    assert (report["average"], report["worst"]["accuracy"]) == pytest.approx((average, worst))
    zero_shot = found["reports"]["zero-shot"]
    average, worst = accuracies(birds, Experiment.of(birds).zero_shot(birds.test))
    assert (zero_shot["average"], zero_shot["worst"]["accuracy"]) == pytest.approx((average, worst))
    code, out, err = run("fit", task, "-o", tmp_path / "m", *set_by_hand, "--overwrite")
    assert (code, err) == (0, "")
    assert f"{100 * report['worst']['accuracy']:.1f}" in out


@pytest.mark.slow
def test_a_preset_is_that_of_python_with_its_seed(run, task, tmp_path):
    for name, more in (("a", ()), ("b", ("--seed", 5)), ("c", ("--tau", 0.3))):
        assert (
            run("fit", task, "-o", tmp_path / name, "--preset", "waterbirds/released", *FAST, *more)[0] == 0
        )
    preset = FairerCLIP.preset("waterbirds", source="released").set_params(n_features=150)
    for name, change in {"a": {}, "b": {"random_state": 5}, "c": {"tau": 0.3}}.items():
        assert FairerCLIP.load(tmp_path / name).get_params() == preset.get_params() | change
    assert preset.random_state == 2


@pytest.mark.slow
def test_a_task_with_labelled_validation_rows_is_tuned_unasked(document, birds, task, tmp_path):
    tuning = document("fit", task, "-o", tmp_path / "m")["tuning"]
    expected = Experiment.of(birds).tune(FairerCLIP(random_state=0), "target")
    assert tuning["chosen"] == expected.diagnostics_["tuning"]["chosen"]
    assert tuning["fits"] == tuning["fits_planned"]
    model = FairerCLIP.load(tmp_path / "m")
    assert model.get_params() == expected.get_params()
    np.testing.assert_array_equal(model.predict(birds.test.X), expected.predict(birds.test.X))


def test_without_labelled_validation_rows_it_fits_and_a_search_is_refused(document, refused, task, tmp_path):
    less = without(task, tmp_path, "s_val")
    assert document("fit", less, "-o", tmp_path / "m")["tuning"] is None
    refused(("fit", less, "-o", tmp_path / "n", "--tune"), "val")
    assert not (tmp_path / "n").exists()


@pytest.mark.slow
def test_a_search_cross_validates_on_the_training_split(document, birds, task, tmp_path):
    less = without(task, tmp_path, "_val")
    tuning = document("fit", less, "-o", tmp_path / "m", *FAST, "--cv", 2)["tuning"]
    assert (tuning["folds"], tuning["rows"]) == (2, len(birds.train.y))


@pytest.mark.slow
def test_an_accuracy_floor_is_kept_on_the_validation_split_or_the_miss_is_said(
    document, birds, task, tmp_path
):
    call = ("fit", task, "-o", tmp_path / "m", *FAST, "--objective", "eod", "--overwrite", "--accuracy-floor")
    for floor, met in ((0.6, True), (1, False)):
        found = document(*call, floor)
        right = FairerCLIP.load(tmp_path / "m").predict(birds.val.X) == Experiment.of(birds).target(birds.val)
        assert found["tuning"]["floor_met"] is met is bool(right.mean() >= floor)
        assert any(line.startswith("AccuracyFloorWarning") for line in found["warnings"]) is not met


def test_offsets_of_an_earlier_search_are_added_to_the_scores(document, birds, task, tmp_path):
    for name, arguments in {"plain": (), "moved": ("--offsets", "-0.1,0.25")}.items():
        document("fit", task, "-o", tmp_path / name, *FAST, "--tau", 0.5, *arguments)
    plain, moved = (FairerCLIP.load(tmp_path / name).scores(birds.test.X) for name in ("plain", "moved"))
    np.testing.assert_allclose(moved, plain + np.array([-0.1, 0.25]), atol=1e-6)


def test_unknown_sensitive_labels_are_read_from_the_prompts(document, task, tmp_path):
    with np.load(task) as arrays:
        s = np.where(np.arange(len(arrays["s_train"])) % 3 == 0, -1, arrays["s_train"])
    partly = without(task, tmp_path, "none", s_train=s)
    found = document("fit", partly, "-o", tmp_path / "m", *FAST, "--labels", "all", "--no-tune")
    guessed = found["diagnostics"]["pseudo_sensitive"]["s"]
    assert (guessed["rows"], sum(guessed["counts"].values())) == ((s < 0).sum(), (s < 0).sum())


def test_what_is_there_is_replaced_only_by_its_like_and_only_when_asked(run, refused, birds, task, tmp_path):
    fit = ("fit", task, "-o", tmp_path / "m", *FAST, "--tau")
    assert run(*fit, 0.5)[0] == 0
    refused((*fit, 0.2), "exists", "--overwrite")
    assert FairerCLIP.load(tmp_path / "m").tau == 0.5
    assert run(*fit, 0.2, "--overwrite")[0] == 0
    assert FairerCLIP.load(tmp_path / "m").tau == 0.2
    ZeroShot().fit(birds.train.X, text=birds.text_target).save(tmp_path / "other")
    refused(("fit", task, "-o", tmp_path / "other", "--overwrite", "--tau", 0.5), "is left alone")
    assert isinstance(fairerclip.load(tmp_path / "other"), ZeroShot)


def test_another_method_has_its_figures_and_its_card(document, birds, task, tmp_path):
    found = document("fit", task, "-o", tmp_path / "m", "--method", "leace", "--precision", "float16")
    model = fairerclip.load(tmp_path / "m")
    assert isinstance(model, LEACE)
    assert found["parameters"] == {"head": "zero-shot", "shrinkage": model.shrinkage}
    assert found["offsets"] == model.offsets_.tolist()
    average, worst = accuracies(birds, model.predict(birds.test.X))
    report = found["reports"][found["method"]]
    assert (report["average"], report["worst"]["accuracy"]) == pytest.approx((average, worst), abs=0.005)
    metrics = {(m.name, m.stage): m for m in model.details_.metrics}
    assert metrics["worst_group", "after"].value == report["worst"]["accuracy"]
    assert (model.details_.task, sum(g.n for g in model.details_.groups)) == (birds.name, len(birds.train))
    assert "Worst-group accuracy, this model" in (tmp_path / "m" / "README.md").read_text(encoding="utf-8")
    entries = json.loads((tmp_path / "m" / "fairerclip.json").read_bytes())["tensors"].values()
    assert "F16" in {entry["dtype"] for entry in entries}


@pytest.mark.slow
def test_an_alias_trains_the_method_it_names(document, task, tmp_path):
    found = document("fit", task, "-o", tmp_path / "m", "--method", "group-balanced-probe")
    assert found["key"] == "probe-group"
    model = fairerclip.load(tmp_path / "m")
    assert (type(model), model.class_weight) == (LinearProbe, "group")


def test_warnings_are_lines_on_standard_error_and_in_the_document(run, task, tmp_path):
    fit = (
        "fit",
        task,
        "-o",
        tmp_path / "m",
        "--set",
        "n_features=50",
        "--set",
        "n_components=3",
        "--tau",
        0.5,
    )
    code, out, err = run(*fit, "--json")
    assert code == 0
    assert "warning: RankWarning" in err
    assert any("RankWarning" in line for line in json.loads(out)["warnings"])


def test_tables_fit_a_narrow_terminal(run, task, tmp_path, monkeypatch):
    monkeypatch.setattr(show.out, "_width", 80)
    for arguments in (("fit", task, "-o", tmp_path / "m", "--no-tune"), ("path", task, "--taus", "0.2,0.7")):
        code, out, _ = run(*arguments, *FAST)
        assert code == 0
        assert max(len(line) for line in out.splitlines() if "written to" not in line) <= 80
        assert "…" not in out
