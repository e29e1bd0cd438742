"""On real embeddings, where they are beside the project."""

import numpy as np
import pytest

from fairerclip import FairerCLIP
from fairerclip.data import load_task
from fairerclip.experiment import Experiment
from paper import PAPER

pytestmark = pytest.mark.real


@pytest.mark.parametrize("name", ["celeba_blond", "celeba_cheekbones", "celeba_attractive", "pacs"])
@pytest.mark.parametrize("labels", ["target", "none"])
def test_every_classification_task_fits_with_and_without_labels(real_data, name, labels):
    task = load_task(real_data / f"{name}.npz")
    experiment = Experiment.of(task)
    model = FairerCLIP(n_features=500, class_weight="balanced", max_iter=1, random_state=0)
    experiment.fit(model, labels)
    report = experiment.report(task.test, model.predict(task.test.X))
    assert report.average > 0.65
    assert model.diagnostics_["residual"] < 1e-9


@pytest.mark.parametrize(
    ("name", "average", "worst"),
    [
        ("celeba_blond", 88.3, 73.9),
        ("celeba_cheekbones", 78.8, 68.6),
        ("celeba_attractive", 74.3, 58.8),
        ("pacs", 88.3, 65.3),
    ],
)
def test_zero_shot_figures_are_the_known_ones(real_data, name, average, worst):
    task = load_task(real_data / f"{name}.npz")
    experiment = Experiment.of(task)
    report = experiment.report(task.test, experiment.zero_shot(task.test))
    assert 100 * report.average == pytest.approx(average, abs=0.06)
    assert 100 * report.worst.accuracy == pytest.approx(worst, abs=0.06)


def test_mitigation_mitigates_on_real_faces(real_data):
    task = load_task(real_data / "celeba_attractive.npz")
    experiment = Experiment.of(task)
    model = FairerCLIP(n_features=1000, random_state=0)
    path = experiment.fit(model, "target").path([0.0, 0.7, 0.9])
    rows = experiment.evaluate_path(path, "test")
    assert rows[1]["worst_group"] > rows[0]["worst_group"] + 0.03
    assert rows[1]["eod"] < rows[0]["eod"] - 0.05


def test_true_clip_embeddings_with_a_handful_of_rows(real_data):
    task = load_task(real_data / "waterbirds_clip_rn50_256.npz")
    experiment = Experiment.of(task)
    model = experiment.fit(FairerCLIP(**PAPER, n_features=400, random_state=0), "all")
    assert np.mean(model.predict(task.train.X) == experiment.target(task.train)) > 0.9


def test_a_gallery_without_target_ranks_by_prompt(real_data):
    task = load_task(real_data / "fairface.npz")
    experiment = Experiment.of(task, ["sex"], ["good", "evil"])
    model = experiment.fit(FairerCLIP(n_features=500, max_iter=1, random_state=0), "none")
    rows = experiment.skews(model, "test")
    assert rows[0].k == 1000
    assert np.mean([r.after for r in rows]) < np.mean([r.before for r in rows])
    ranking = model.rank("good", task.test.X, k=10)
    assert len(ranking.indices) == 10
    assert np.all(np.diff(ranking.scores) <= 0)
