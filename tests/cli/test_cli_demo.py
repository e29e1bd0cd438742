"""`fairerclip demo --task`: the demo on tasks of the user, with labels and without."""

import json
import re
from dataclasses import replace

import pytest
from odd_tasks import edited, plain, unknown

import fairerclip
from fairerclip.cli import show
from fairerclip.data import save_task, simulate
from fairerclip.experiment import Experiment
from fairerclip.study.demo import usable_labels
from light import fewer_fits

few_fits = pytest.fixture(scope="module", autouse=True)(fewer_fits)

NAMES = (
    "zero-shot",
    *(f"{labels}, as it comes" for labels in ("no labels", "labels", "all labels")),
    *(f"{labels}, tuned on validation rows" for labels in ("no labels", "labels", "all labels")),
)


def as_real(task):
    """The same task without the mark of a simulation, as a file of the user is."""
    return replace(task, name="mine", simulated=False, variants=None)


@pytest.fixture
def demo(run, tmp_path, monkeypatch):
    """Run the demo on a task, and return its output, its JSON of the results, and its folder."""
    monkeypatch.setattr(show.out, "_width", 110)

    def on(task, *words):
        file = save_task(as_real(task), tmp_path / "mine.npz", overwrite=True)
        code, out, err = run("demo", "--task", file, "-o", tmp_path / "d", *words)
        assert code == 0, err
        return out, json.loads((tmp_path / "d" / "results.json").read_text()), tmp_path / "d"

    return on


def models(out):
    """Return the names of the models in the table before and after."""
    table = out.partition("Before and after")[2].partition("The trade-off")[0]
    return tuple(name for name in NAMES if f"  {name} " in table)


def test_a_task_of_the_user_is_not_called_simulated(demo):
    out, results, folder = demo(simulate("waterbirds", seed=1, scale=0.1, width=32))
    assert out.startswith("mine: rows 480 train, 120 val, 580 test.\n")
    assert results["task"]["simulated"] is False
    for text in (out, (folder / "report.html").read_text(), (folder / "model" / "README.md").read_text()):
        shown = re.sub(r"<(style|script)\b.*?</\1>", "", text, flags=re.DOTALL)
        assert "simulated" not in shown.lower()
    assert "Before and after, test split, per cent" in out
    assert f"The trade-off, {results['plane']['split']} split" in out
    assert f"Results, the table of the path and the model are in {folder}" in out.replace("\n", " ")
    assert fairerclip.load(folder / "model").classes_.tolist() == ["landbird", "waterbird"]
    assert models(out) == (*NAMES[:3], "labels, tuned on validation rows")


def test_a_gallery_without_classes_shows_its_rankings(demo, tmp_path):
    path = tmp_path / "d" / "path.csv"
    path.parent.mkdir()
    for file in (path, path.with_name("results.json")):  # of an earlier demo
        file.write_text("old")
    out, results, folder = demo(simulate("gallery", scale=0.05, width=48), "--sensitive", "sex")
    assert "Before and after" not in out
    assert "The trade-off" not in out
    assert results["groups"] is None
    for query in results["retrieval"]["queries"]:
        (line,) = [line for line in out.splitlines() if line.strip().startswith(query["name"] + " ")]
        before, after = (query[stage]["max_skew"]["value"] for stage in ("before", "after"))
        assert f"{before:.3f}" in line
        assert f"{after:.3f}" in line
    assert f"Results and the model are in {folder}" in out.replace("\n", " ")
    assert not path.exists()


@pytest.mark.parametrize(
    ("task", "where", "names"),
    [
        (lambda: plain(classes=4, values=3, rows=(90, 0, 60)), "test split", NAMES[:3]),
        (
            lambda: plain(rows=(90, 0, 0), prompted=False),
            "train split, which the models were fitted on",
            ("zero-shot", "all labels, as it comes"),
        ),
        (
            lambda: edited(plain(rows=(90, 60, 0)), "train", y=unknown),
            "val split, which the model was chosen on",
            ("zero-shot", "no labels, as it comes", "no labels, tuned on validation rows"),
        ),
    ],
    ids=["no validation rows", "training rows alone", "no test rows"],
)
def test_the_table_has_the_models_that_the_labels_allow(demo, task, where, names):
    out, results, _ = demo(task())
    assert f"Before and after, {where}, per cent" in out
    assert models(out) == names
    assert results["settings"]["chosen_on"] == ("val" if "tuned" in names[-1] else None)


@pytest.mark.parametrize(
    ("task", "labels"),
    [
        (plain(), ["none", "target"]),
        (edited(plain(), "train", y=unknown), ["none"]),
        (plain(prompted=False), ["all"]),
        (replace(plain(), text_target=None), ["target"]),
        (edited(plain(prompted=False), "train val test", y=unknown), ["none"]),
    ],
)
def test_a_fit_uses_the_labels_that_the_task_has(task, labels):
    assert usable_labels(Experiment.of(task)) == labels


def two_attributes():
    task = plain()
    splits = {
        name: replace(rows, s={"s": rows.s["s"], "t": rows.s["s"]}) for name, rows in task.splits.items()
    }
    return replace(
        task, splits=splits, sensitive={"s": task.sensitive["s"], "t": replace(task.sensitive["s"], name="t")}
    )


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (
            lambda: plain(rows=(0, 0, 40)),
            "mine has no training split to fit a mitigation on: `fairerclip audit`",
        ),
        (lambda: edited(plain(), "train val test", s=unknown), "mine: no split has sensitive labels"),
        (two_attributes, "(for commands --sensitive NAME), task 'mine' has: 's', 't'"),
    ],
)
def test_a_task_that_cannot_be_shown_is_one_line(run, tmp_path, task, message):
    file = save_task(as_real(task()), tmp_path / "mine.npz", overwrite=True)
    code, out, err = run("demo", "--task", file, "-o", tmp_path / "d")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert message in err
    assert not (tmp_path / "d").exists()


def test_a_wrong_file_is_one_line(run, tmp_path):
    (tmp_path / "note.txt").write_text("no task")
    for file in (tmp_path / "note.txt", tmp_path / "absent.npz"):
        code, out, err = run("demo", "--task", file, "-o", tmp_path / "d")
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert file.name in err
        assert not (tmp_path / "d").exists()


def test_one_of_two_attributes_can_be_chosen(demo):
    _, results, _ = demo(two_attributes(), "--sensitive", "t", "--classes", "class 1,class 0")
    assert results["task"]["classes"] == ["class 1", "class 0"]
    assert results["task"]["sensitive"] == ["t"]
