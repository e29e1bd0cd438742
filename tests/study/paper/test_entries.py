import numpy as np
import pytest
from sklearn.base import clone

from fairerclip import FairerCLIP
from fairerclip.auditing.group_results import StageReport
from fairerclip.data import simulate
from fairerclip.experiment import Experiment
from fairerclip.study import jobs
from fairerclip.study.paper import ablation, accuracy, fits
from fairerclip.study.paper.context import Context, ReproduceOptions
from fairerclip.study.paper.entries import chosen_entries
from fairerclip.study.paper.entry_result import EntryResult
from fairerclip.study.paper.reproduce import reproduce
from fairerclip.study.paper.task_source import TaskSource
from fairerclip.study.workers import Failure

QUICK = ReproduceOptions(quick=True, jobs=1)


def report_of(experiment, predicted):
    return StageReport.model_validate(experiment.report(experiment.task.test, predicted).as_dict())


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


@pytest.mark.parametrize("name", ["ablation-labels", "heatmaps", "cfd"])
def test_what_is_about_the_papers_method_is_its_preset(small, monkeypatch, name):
    found = asked(monkeypatch, name, TaskSource("simulated"))
    changed = {title: change for _, title, change, _, _ in (*ablation.TERMS, ablation.UPDATE, *ablation.OURS)}
    checked = 0
    for title, arguments in found.items():
        dataset = title.partition(",")[0]
        if "parameters" not in arguments or "our defaults" in title:
            continue
        paper = FairerCLIP.preset({"blond": "celeba", "front": "cfd"}.get(dataset, dataset)).get_params()
        expected = {**paper, **changed.get(title.partition(", ")[2], {})}
        if name == "ablation-labels":
            expected["n_features"] = min(3000, paper["n_features"])
        if name == "cfd":
            expected["criterion"] = title.rpartition(", ")[2]
        assert FairerCLIP(**arguments["parameters"]).get_params() == expected, title
        checked += 1
    assert checked == (12 if name == "ablation-labels" else 2)


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


@pytest.mark.slow
def test_an_entry_runs_on_the_simulation_and_is_not_run_again(small, tmp_path, monkeypatch):
    name = "ablation-no-labels"
    entries, source = chosen_entries([name]), TaskSource("simulated")
    (result,) = reproduce(entries, source, tmp_path, QUICK)
    assert not result.failures, result.failures
    written = jobs.read_stored(tmp_path / f"{name}.json", EntryResult)
    assert written.as_dict() == result.as_dict()
    assert written.document.to_markdown() == (tmp_path / f"{name}.md").read_text()

    def refuse(*arguments, **options):
        raise AssertionError("this was run before")

    monkeypatch.setattr("fairerclip.study.compare.run_method", refuse)
    monkeypatch.setattr("fairerclip.model.estimator.FairerCLIP.fit", refuse)
    (again,) = reproduce(entries, source, tmp_path, QUICK, overwrite=True)
    assert not again.failures
    assert again.document == result.document
