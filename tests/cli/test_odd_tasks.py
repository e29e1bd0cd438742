"""Every command on tasks that are legal and odd: an answer, or one line before the work and nothing left behind."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from odd_tasks import EVERY, ODD, edited, plain

from fairerclip import FairerCLIP
from fairerclip.data import save_task
from fairerclip.errors import FairerClipWarning, LabelError
from fairerclip.experiment import Experiment
from fairerclip.metrics import paired_report
from light import few_settings

pytestmark = pytest.mark.slow
FAST = ("--set", "n_features=30")
FIT = {
    "without labels": ("--labels", "none", "--no-tune", *FAST),
    "with labels": ("--no-tune", *FAST),
}
ROUGH = ("--permutations", "19", "--seeds", "1", *FAST)
AUDITED = ("no known value at all", "huge rows", "two test rows", "no class in common", "equal rows")
MITIGATED = ("no known class in training", "two test rows")


@pytest.fixture
def saved(tmp_path):
    return lambda name: save_task(ODD[name](), tmp_path / "task.npz")


@pytest.fixture
def answer(run, tmp_path):
    """Run a command that writes to a folder of its own: whether it succeeded, if it kept what it promises."""

    def call(*arguments, output):
        folder = tmp_path / "out"
        folder.mkdir(exist_ok=True)
        before = set(folder.iterdir())
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # the command prints those of the package, and no other may come
            code, _, err = run(*arguments, "-o", folder / output)
        told = [line for line in err.strip().splitlines() if not line.startswith(("warning:", "note:"))]
        written = set(folder.iterdir()) - before
        if code == 0:
            assert written == {folder / output}, told
            return folder / output
        assert code == 2, (code, err)
        assert len(told) == 1, told
        assert told[0].startswith("fairerclip: ")
        assert not written
        return None

    return call


@pytest.mark.parametrize("name", ODD)
def test_fit_path_and_apply_answer_or_refuse(name, saved, answer):
    task = saved(name)
    for output, options in FIT.items():
        model = answer("fit", task, *options, output=output)
        if model is not None and "test" in ODD[name]().splits:
            assert answer("apply", model, task, output=f"{output}.npz") is not None
    answer("path", task, "--taus", "0,0.5", "--split", "test", *FAST, output="path.csv")


@pytest.mark.parametrize("name", AUDITED)
def test_audit_and_report_answer_or_refuse(name, saved, answer):
    results = answer("audit", saved(name), "--permutations", "19", output="before.json")
    if results is not None:
        assert answer("report", results, output="page.html") is not None


@pytest.mark.parametrize("name", MITIGATED)
def test_audit_after_mitigation_answers_or_refuses(name, saved, answer):
    answer("audit", saved(name), "--mitigate", *ROUGH, output="after.json")


@pytest.mark.parametrize("name", ["no known class in training", "no known value at all"])
def test_compare_answers_or_refuses(name, saved, answer, monkeypatch):
    few_settings(monkeypatch)
    answer("compare", saved(name), "--methods", "zero-shot", "--seeds", "1", output="compared")


@pytest.mark.parametrize("factor", [1e30, 1e-30])
def test_the_length_of_a_row_changes_no_prediction(factor):
    ordinary = plain()
    scaled = edited(ordinary, EVERY, X=lambda X: X * np.float32(factor))
    one, other = Experiment.of(ordinary), Experiment.of(scaled)
    np.testing.assert_array_equal(one.zero_shot(ordinary.test), other.zero_shot(scaled.test))
    np.testing.assert_allclose(one.cosines(ordinary.test.X), other.cosines(scaled.test.X), atol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairerClipWarning)
        models = [e.fit(FairerCLIP(n_features=30, random_state=0), "none") for e in (one, other)]
    scores = [model.scores(e.task.test.X) for model, e in zip(models, (one, other), strict=True)]
    np.testing.assert_allclose(*scores, atol=1e-4)


def test_many_classes_are_compared_in_memory_of_the_rows(tracemalloc_peak):
    # A table of all combinations would have 2·100³ cells, and its rates 200 times as many: 3 GB.
    rng = np.random.default_rng(0)
    y, before, after = (rng.integers(100, size=200) for _ in range(3))
    report, peak = tracemalloc_peak(lambda: paired_report(y, before, after, np.arange(200) % 2))
    assert report.change("average").low <= report.change("average").difference
    assert peak < 50e6


def test_an_audit_of_more_classes_than_results_hold_is_refused_before_the_work(run, tmp_path):
    task = save_task(plain(classes=400, rows=(400, 0, 400)), tmp_path / "task.npz")
    code, _, err = run("audit", task, "-o", tmp_path / "a.json")
    assert code == 2
    assert "400 classes and 2 sensitive values would hold" in err
    assert "--classes" in err


@pytest.mark.parametrize(("classes", "values"), [(3001, 2), (40, 200)], ids=["classes", "values"])
def test_more_labels_than_a_fit_has_room_for_are_refused_before_the_work(classes, values):
    rng = np.random.default_rng(0)
    n = max(classes, values)
    text = rng.normal(size=(classes, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairerClipWarning)
        with pytest.raises(LabelError, match=r"(at most|more than).*fit on fewer"):
            FairerCLIP().fit(
                rng.normal(size=(n, 4)),
                np.arange(n) % classes,
                sensitive_features=np.arange(n) % values,
                text=text,
            )


def test_names_that_no_model_file_has_room_for_are_refused_before_the_work(run, tmp_path):

    task = plain(classes=60, rows=(120, 0, 60))
    long = tuple(f"{k} {'x' * 5000}" for k in range(60))
    file = save_task(replace(task, class_names=long), tmp_path / "task.npz")
    code, _, err = run("fit", file, "-o", tmp_path / "m")
    assert code == 2
    assert "give shorter names" in err
    assert not (tmp_path / "m").exists()


def test_group_sizes_of_other_groups_leave_no_weighted_average():
    task = ODD["no class in common"]()
    e = Experiment.of(task)
    assert e.report(task.test, e.zero_shot(task.test)).train_weighted_average is None
    with pytest.raises(LabelError, match="expected rows with both"):
        e.labels(ODD["no known value at all"]().test)
