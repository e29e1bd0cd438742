import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

from fairerclip import FairerCLIP
from fairerclip.auditing.group_results import StageReport
from fairerclip.data import save_task, simulate
from fairerclip.errors import KeptRunWarning
from fairerclip.experiment import Experiment
from fairerclip.model.presets import preset
from fairerclip.study import jobs
from fairerclip.study.paper import ablation, accuracy, fits
from fairerclip.study.paper.context import Context, ReproduceOptions, job
from fairerclip.study.paper.entries import ENTRIES, chosen_entries
from fairerclip.study.paper.entry_result import EntryResult
from fairerclip.study.paper.job_answers import FitAnswer
from fairerclip.study.paper.reproduce import reproduce, run_entry
from fairerclip.study.paper.task_source import TaskSource, Unavailable
from fairerclip.study.paper.task_source import small as small_task
from fairerclip.study.workers import Failure

QUICK = ReproduceOptions(quick=True, jobs=1)


def report_of(experiment, predicted):
    return StageReport.model_validate(experiment.report(experiment.task.test, predicted).as_dict())


@pytest.mark.parametrize("name", [entry.name for entry in ENTRIES])
def test_every_entry_runs_on_the_simulation(name, small, tmp_path):
    result = reproduce(chosen_entries([name]), TaskSource("simulated"), tmp_path, QUICK)[0]
    assert not result.failures, result.failures
    written = jobs.read_stored(tmp_path / f"{name}.json", EntryResult)
    assert written.as_dict() == result.as_dict()
    assert next(iter(written.as_dict())) == "source"
    assert "Simulated" in written.source
    assert written.document.to_markdown() == (tmp_path / f"{name}.md").read_text()
    assert written.document.to_html() == (tmp_path / f"{name}.html").read_text()
    assert (tmp_path / f"{name}.md").read_text().startswith("**Simulated tasks")
    page = (tmp_path / f"{name}.html").read_text()
    assert page.index("Simulated tasks") < page.index("<h1>")
    assert "<script" not in page
    assert all(task.digest.startswith("sha256:") for task in written.tasks)
    assert bool(written.tasks) == (name != "implementation")
    assert written.results


def test_what_was_run_is_not_run_again(small, tmp_path, monkeypatch):
    entries = chosen_entries(["ablation-no-labels", "spurious"])
    first = reproduce(entries, TaskSource("simulated"), tmp_path, QUICK)
    files = sorted((tmp_path / "runs").rglob("*.json"))
    assert len(files) > 8

    def refuse(*arguments, **options):
        raise AssertionError("this was run before")

    monkeypatch.setattr("fairerclip.study.compare.run_method", refuse)
    monkeypatch.setattr("fairerclip.model.estimator.FairerCLIP.fit", refuse)
    again = reproduce(entries, TaskSource("simulated"), tmp_path, QUICK, overwrite=True)
    for one, other in zip(first, again, strict=True):
        assert not other.failures
        assert one.document == other.document


def test_one_failing_part_is_told_and_does_not_stop_the_rest(small, tmp_path, monkeypatch):
    def broken(*arguments, **options):
        raise np.linalg.LinAlgError("no luck")

    monkeypatch.setattr(fits, "preset_model", broken)
    result = reproduce(chosen_entries(["intrinsic"]), TaskSource("simulated"), tmp_path, QUICK)[0]
    assert any("no luck" in text for text in result.failures)
    rows = result.document.tables[0].rows
    assert sum("failed: LinAlgError: no luck" in row for row in rows) == 2
    assert any(row[0] == "Zero-shot" and row[2].value is not None for row in rows)


def test_an_entry_that_breaks_is_told(tmp_path):
    def broken(context):
        raise KeyError("gone")

    entry = replace(chosen_entries(["implementation"])[0], run=broken)
    result = run_entry(entry, TaskSource("simulated"), QUICK, tmp_path, "", lambda done, total: None)
    assert result.failures == ("KeyError: 'gone'",)


def test_failed_jobs_are_not_kept(small, tmp_path):
    experiment = Experiment.of(simulate("waterbirds", scale=0.03, width=32))
    wrong = job(
        experiment,
        fits.fit_tuned,
        FitAnswer,
        "x",
        parameters={"tau": 2.0},
        labels="target",
        seed=0,
        taus=None,
        tau_zs=None,
    )
    assert "tau must be" in jobs.run_jobs([wrong], tmp_path, processes=1)[0].error
    assert not list(tmp_path.iterdir())


def test_a_kept_answer_that_cannot_be_read_is_made_again(small, tmp_path):
    experiment = Experiment.of(simulate("waterbirds", scale=0.03, width=32))
    one = job(
        experiment,
        fits.fit_tuned,
        FitAnswer,
        "x",
        parameters={"n_features": 50},
        labels="target",
        seed=1,
        taus=[0.0, 0.5],
        tau_zs=[0.0],
    )
    answer = jobs.run_jobs([one], tmp_path, processes=1)[0]
    (tmp_path / one.file).write_text('{"key": 1')
    with pytest.warns(KeptRunWarning, match="is run again"):
        again = jobs.run_jobs([one], tmp_path, processes=1)[0]
    assert again.report == answer.report
    assert jobs.read_kept(tmp_path / one.file, one) == again


def test_a_share_is_kept_of_every_cell():
    experiment = Experiment.of(simulate("waterbirds", scale=0.2, width=32))
    fewer = fits.subsample(experiment, 0.25, 3)
    y, s = experiment.labels(experiment.task.train)
    few_y, few_s = fewer.labels(fewer.task.train)
    for cell in {*zip(y, s, strict=True)}:
        before = ((y == cell[0]) & (s == cell[1])).sum()
        after = ((few_y == cell[0]) & (few_s == cell[1])).sum()
        assert after == max(1, round(0.25 * before))
    other = fits.subsample(experiment, 0.25, 4)
    assert not np.array_equal(other.task.train.X, fewer.task.train.X)
    assert fits.subsample(experiment, 1.0, 3) is experiment


def test_the_negative_class_is_the_one_that_is_not_positive():
    task = simulate("cheekbones", scale=0.01, width=32)
    experiment = Experiment.of(task)
    predicted = experiment.zero_shot(task.test)
    y, s = experiment.labels(task.test)
    figures = accuracy.mean_figures([report_of(experiment, predicted)])
    recall = {
        (c, v): (predicted[(y == c) & (s == v)] == c).mean()
        for c in task.class_names
        for v in ("female", "male")
    }
    low, high = task.class_names
    assert figures.eod == pytest.approx(abs(recall[high, "female"] - recall[high, "male"]))
    assert figures.eod_negative == pytest.approx(abs(recall[low, "female"] - recall[low, "male"]))
    assert figures.eod != pytest.approx(figures.eod_negative)


def test_seeds_are_averaged_with_their_spread():
    task = simulate("waterbirds", scale=0.05, width=32)
    experiment = Experiment.of(task)
    y, _ = experiment.labels(task.test)
    perfect = report_of(experiment, y)
    guess = report_of(experiment, experiment.zero_shot(task.test))
    figures = accuracy.mean_figures([perfect, guess])
    assert figures.average == pytest.approx((1 + guess.average) / 2)
    assert figures.average_sd == pytest.approx((1 - guess.average) / np.sqrt(2))
    assert accuracy.mean_figures([guess]).average_sd is None


def test_a_suite_runs_and_says_what_is_missing(small, tmp_path):
    suite = tmp_path / "suite"
    suite.mkdir()
    save_task(simulate("celeba", scale=0.002, width=32), suite / "celeba_blond.npz")
    source = TaskSource("suite", suite)
    result = reproduce(chosen_entries(["spurious", "fairface"]), source, tmp_path / "o", QUICK)
    assert result[0].source.startswith("Task files of suite/")
    assert result[0].failures == ("waterbirds: there is no waterbirds.npz in the suite",)
    assert "cannot run on this source" in result[1].failures[0]
    assert "spurious" in (tmp_path / "o" / "index.md").read_text()
    with pytest.raises(Unavailable, match=r"fairface\.npz"):
        source.tasks("fairface")


def test_few_rows_are_those_that_the_task_names():
    task = simulate("cheekbones", scale=0.01, width=32)
    rows = np.arange(5, 305)
    named = replace(task, extra={"small_train": rows})
    assert np.array_equal(small_task(named).train.X, task.train.X[rows])
    assert len(small_task(task).train) == 298


def test_hostile_names_stay_text(small, tmp_path):
    suite = tmp_path / "suite"
    suite.mkdir()
    task = simulate("celeba", scale=0.002, width=32)
    bad = "<img src=x onerror=alert(1)>|`x`"
    task = replace(
        task, name=bad, target_prompts=(bad, "[a](javascript:b)"), class_names=("<b>", "|c|\u202e")
    )
    save_task(task, suite / "celeba_blond.npz")
    reproduce(
        chosen_entries(["models", "ablation-no-labels"]), TaskSource("suite", suite), tmp_path / "o", QUICK
    )
    for name in ("models", "ablation-no-labels"):
        page, text = ((tmp_path / "o" / f"{name}.{form}").read_text() for form in ("html", "md"))
        assert "<img" not in page
        assert "<img" not in text
        assert "\u202e" not in page + text
        assert "[a](javascript" not in text
    json.loads((tmp_path / "o" / "models.json").read_text())


def test_context_caps_and_seeds_follow_the_source(tmp_path):
    simulated = Context(TaskSource("simulated"), ReproduceOptions(), tmp_path)
    assert (simulated.seeds, simulated.max_steps) == (2, 500)
    told = Context(TaskSource("simulated"), ReproduceOptions(seeds=5, max_steps=7), tmp_path)
    assert (told.seeds, told.gradient_seeds, told.max_steps) == (5, 5, 7)
    assert simulated.gradient_seeds == 1
    assert Context(TaskSource("simulated"), QUICK, tmp_path).seeds == 1


def asked(monkeypatch, name, source):
    """Parameters of every job that an entry asks for, by title, without running any."""
    found = {}

    def refuse(self, jobs):
        found.update({one.title: one.arguments for one in jobs})
        return [Failure("not run") for _ in jobs]

    monkeypatch.setattr(Context, "run", refuse)
    monkeypatch.setattr(Context, "compare", lambda *arguments: {})
    chosen_entries([name])[0].run(Context(source, ReproduceOptions(seeds=1), None))
    return found


@pytest.mark.parametrize(
    "name",
    ["ablation-labels", "ablation-no-labels", "data-size", "heatmaps", "information", "cfd", "training-time"],
)
def test_what_is_about_the_papers_method_is_its_preset(small, monkeypatch, name):
    found = asked(monkeypatch, name, TaskSource("simulated"))
    changed = {title: change for _, title, change, _, _ in (*ablation.TERMS, ablation.UPDATE, *ablation.OURS)}
    many = name.startswith(("ablation", "data-size"))
    checked = 0
    for title, arguments in found.items():
        dataset = title.partition(",")[0]
        if "parameters" not in arguments or "our defaults" in title:
            continue
        paper = FairerCLIP.preset({"blond": "celeba", "front": "cfd"}.get(dataset, dataset)).get_params()
        expected = {**paper, **changed.get(title.partition(", ")[2], {})}
        expected["n_features"] = min(3000, paper["n_features"]) if many else paper["n_features"]
        if name == "cfd":
            expected["criterion"] = title.rpartition(", ")[2]
        assert FairerCLIP(**arguments["parameters"]).get_params() == expected, title
        assert (expected["scaling"], expected["tau_text"]) == ("paper", None)
        checked += 1
    sizes = {"ablation-labels": 12, "ablation-no-labels": 7, "data-size": 10, "information": 3}
    assert checked == sizes.get(name, 2)


@pytest.mark.parametrize("labels", ["target", "none"])
def test_a_chosen_point_is_the_model_that_its_parameters_fit(labels):
    experiment = Experiment.of(simulate("celeba", scale=0.004, width=32, seed=2))
    parameters = {**FairerCLIP.preset("celeba").get_params(), "n_features": 60}
    grid = {"taus": [0.0, 0.8, 3.0], "tau_zs": [0.2, 0.7]}
    answer = fits.fit_tuned(experiment, parameters, labels, 3, **grid)
    chosen = answer.chosen.model_dump()
    assert chosen != {"tau": parameters["tau"], "tau_z": parameters["tau_z"]}
    both = {"tau_text": chosen["tau"], "tau_z_text": chosen["tau_z"]}
    fresh = experiment.fit(FairerCLIP(**{**parameters, **chosen, **both, "random_state": 3}), labels)
    test = experiment.task.test
    assert answer.report == report_of(experiment, fresh.predict(test.X))
    if labels == "none":
        kept = experiment.fit(FairerCLIP(**{**fresh.get_params(), "refine": False}), labels)
        assert (kept.pseudo_labels_ != fresh.pseudo_labels_).any()


def test_the_plane_of_the_papers_method_is_one_curve():
    experiment = Experiment.of(simulate("waterbirds", scale=0.1, width=32))
    changed = {"n_features": 60, "gamma_text": 1e-2, "dtype": "float64"}
    model = FairerCLIP.preset("waterbirds").set_params(**changed)
    answer = fits.plane(experiment, model.get_params(), "target", 0, [0.4, 2.0], [0.0, 0.5])
    scale = 1 + 0.5 * answer.rescale
    assert len(answer.points) == 4
    rows = experiment.task.test.X
    for tau in (0.4, 2.0):
        one = experiment.fit(clone(model).set_params(tau=tau, tau_z=0.5), "target")
        other = experiment.fit(clone(model).set_params(tau=tau / scale, tau_z=0.0), "target")
        np.testing.assert_allclose(one.scores(rows), other.scores(rows), rtol=1e-6, atol=1e-9)
    assert fits.rescale(experiment, clone(model).set_params(scaling="spectral")) is None


def test_training_is_timed_at_the_published_size_and_at_ours(small, tmp_path):
    result = reproduce(chosen_entries(["training-time"]), TaskSource("simulated"), tmp_path, QUICK)[0]
    table = result.as_dict()["document"]["tables"][0]
    assert table["columns"][:3] == ["method", "D", "seconds, one fit"]
    rows = {row[0]: row for row in table["rows"]}
    assert rows["FairerCLIP as in the paper (fixed)"][1] == "300"
    assert rows["FairerCLIP as in the paper (fixed)"][-1] is not None
    assert rows["FairerCLIP, our defaults (fixed)"][1] == "300"
    for title in ("FairerCLIP as in the paper (fixed)", "FairerCLIP, our defaults (fixed)"):
        assert float(rows[title][2]) >= 0
        assert int(rows[title][4]) == 303


def test_the_information_page_says_which_published_hsic_is_out_of_reach(small, tmp_path):
    result = reproduce(chosen_entries(["information"]), TaskSource("simulated"), tmp_path, QUICK)[0].as_dict()
    (one,) = TaskSource("simulated").tasks("waterbirds")
    p = np.mean(one.task.test.y)
    bound = 4 * p**2 * (1 - p) ** 2
    assert result["results"][f"waterbirds {one.encoder}"]["bounds"]["hsic_y"] == pytest.approx(bound)
    rows = [
        row for row in result["document"]["tables"][0]["rows"] if row[1] == "no representation can exceed"
    ]
    assert len(rows) == 3
    assert float(rows[0][2]) == pytest.approx(bound, abs=1e-4)
    assert rows[0][3] is None
    notes = " ".join(result["document"]["notes"])
    assert "at most 0.25" in notes
    assert "0.3823" in notes
    assert ("0.1849 (CLIP ViT-L/14)" in notes) == (bound < 0.1849)


@pytest.mark.parametrize("dataset", ["blond", "cheekbones"])
def test_every_variant_of_an_ablation_that_changes_parameters_changes_those_of_the_preset(dataset):
    paper = preset(accuracy.PRESETS[dataset][0], "paper", None)
    for _, title, changed, _, _ in (*ablation.OURS, ablation.UPDATE):
        assert {**paper, **changed} != paper, title
