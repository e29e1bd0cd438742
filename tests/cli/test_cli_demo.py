"""`fairerclip demo`: the whole story on a simulated task, and on tasks of the user with labels and without."""

import csv
import json
import re
from dataclasses import replace

import pytest
from odd_tasks import edited, plain, unknown

import fairerclip
from fairerclip import FairerCLIP
from fairerclip.data import save_task, simulate
from fairerclip.experiment import Experiment
from fairerclip.study.demo import usable_labels
from light import fewer_fits

few_fits = pytest.fixture(scope="module", autouse=True)(fewer_fits)


@pytest.fixture
def demo(run, tmp_path):
    """Run the demo on a task without the mark of a simulation: its output, its results and its folder."""

    def on(task, *words):
        mine = replace(task, name="mine", simulated=False, variants=None)
        file = save_task(mine, tmp_path / "mine.npz", overwrite=True)
        code, out, err = run("demo", "--task", file, "-o", tmp_path / "d", *words)
        assert code == 0, err
        return out, json.loads((tmp_path / "d" / "results.json").read_text()), tmp_path / "d"

    return on


@pytest.mark.slow
def test_the_demo_leaves_results_a_page_a_path_and_a_model(run, birds, tmp_path, monkeypatch):
    monkeypatch.setattr("fairerclip.study.demo.open_task", lambda source: birds)
    code, out, err = run("demo", "-o", tmp_path / "d")
    assert (code, err) == (0, "")
    assert (tmp_path / "d" / "report.html").as_uri() in out.replace("\n", "")
    result = json.loads((tmp_path / "d" / "results.json").read_text())
    assert result["task"]["simulated"] is True
    worst = [result["groups"][stage]["worst"]["accuracy"] for stage in ("before", "after")]
    assert worst[1] > worst[0] + 0.1
    model, e = FairerCLIP.load(tmp_path / "d" / "model"), Experiment.of(birds)
    assert (model.tau, model.criterion) == (result["model"]["tau"], result["model"]["criterion"])
    report = e.report(birds.test, model.predict(birds.test.X))
    assert report.worst.accuracy == pytest.approx(worst[1])
    table = list(csv.DictReader((tmp_path / "d" / "path.csv").read_text().splitlines()))
    assert len(table) == len(result["plane"]["points"])


@pytest.mark.slow
def test_a_task_of_the_user_is_not_called_simulated(demo):
    out, results, folder = demo(plain(rows=(90, 60, 60)))
    assert results["task"]["simulated"] is False
    for text in (out, (folder / "report.html").read_text(), (folder / "model" / "README.md").read_text()):
        shown = re.sub(r"<(style|script)\b.*?</\1>", "", text, flags=re.DOTALL)
        assert "simulated" not in shown.lower()
    assert fairerclip.load(folder / "model").classes_.tolist() == ["class 0", "class 1"]


@pytest.mark.slow
def test_a_gallery_without_classes_shows_its_rankings(demo):
    out, results, _ = demo(simulate("gallery", scale=0.05, width=48), "--sensitive", "sex")
    assert results["groups"] is None
    for query in results["retrieval"]["queries"]:
        (line,) = [line for line in out.splitlines() if line.strip().startswith(query["name"] + " ")]
        for stage in ("before", "after"):
            assert f"{query[stage]['max_skew']['value']:.3f}" in line


@pytest.mark.parametrize(
    ("task", "labels"),
    [
        (plain(), ["none", "target"]),
        (edited(plain(), "train", y=unknown), ["none"]),
        (plain(prompted=False), ["all"]),
        (replace(plain(), text_target=None), ["target"]),
    ],
)
def test_a_fit_uses_the_labels_that_the_task_has(task, labels):
    assert usable_labels(Experiment.of(task)) == labels


@pytest.mark.parametrize(
    ("task", "word"),
    [
        (plain(rows=(0, 0, 40)), "no training split"),
        (edited(plain(), "train val test", s=unknown), "no split has sensitive labels"),
    ],
)
def test_a_task_that_cannot_be_shown_is_one_line(refused, tmp_path, task, word):
    file = save_task(task, tmp_path / "mine.npz")
    refused(("demo", "--task", file, "-o", tmp_path / "d"), word)
    assert not (tmp_path / "d").exists()
