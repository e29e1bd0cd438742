"""From stores, labels and prompts to tasks, in Python and on the command line."""

import csv
import json
import runpy
from pathlib import Path

import numpy as np
import pytest

from fairerclip.data import from_table, load_task, read_labels
from fairerclip.data.build import build_task
from fairerclip.data.datasets import read_dataset
from fairerclip.data.labelled_rows import Labelled
from fairerclip.data.prompts import load_prompts
from fairerclip.data.provenance import Provenance
from fairerclip.data.stores import EmbeddingStore, open_store
from fairerclip.data.writer import StoreWriter
from fairerclip.errors import JoinError, LabelError, StoreError

WIDTH = 8
PROMPTS = {
    "name": "mine",
    "version": 1,
    "source": {"kind": "ours", "citation": "made for this test"},
    "classes": {"cat": ["a photo of a cat."], "dog": ["a photo of a dog.", "a picture of a dog."]},
    "sensitive": {"place": {"indoors": ["indoors."], "outdoors": ["outdoors."]}},
}


def vector(sentence):
    """A unit vector that is the sentence's own."""
    rng = np.random.default_rng(sum(sentence.encode()))
    v = rng.normal(size=WIDTH)
    return v / np.linalg.norm(v)


class Files:
    """A store with prompts, a label file and a prompt file, in an order of their own each."""

    def __init__(self, folder, n=60, provenance=None):
        rng = np.random.default_rng(0)
        self.folder, self.n = folder, n
        self.ids = np.array([f"img/{i:03d}.jpg" for i in range(n)])
        self.y = np.array(["dog", "cat"])[rng.integers(2, size=n)]
        self.s = np.array(["outdoors", "indoors"])[rng.integers(2, size=n)]
        self.split = np.array(["train", "val", "test"])[rng.integers(3, size=n)]
        X = np.stack(
            [
                vector(f"a photo of a {y}.") + 0.3 * vector(f"{s}.")
                for y, s in zip(self.y, self.s, strict=True)
            ]
        )
        X += 0.1 * rng.normal(size=X.shape)
        self.X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
        self.store = folder / "emb"
        self.order = rng.permutation(n)
        sentences = ["a photo of a cat.", "a photo of a dog.", "a picture of a dog.", "indoors.", "outdoors."]
        with StoreWriter(self.store, width=WIDTH, provenance=provenance) as writer:
            writer.append(self.ids[self.order].tolist(), self.X[self.order])
            writer.write_text(sentences, np.stack([vector(s) for s in sentences]).astype(np.float32))
            writer.finish()
        self.labels = folder / "labels.csv"
        self.write_labels()
        self.prompts = folder / "prompts.json"
        self.prompts.write_text(json.dumps(PROMPTS))

    def write_labels(self, rows=None, **changes):
        with self.labels.open("w", newline="") as handle:
            writer = csv.writer(handle)
            writer.writerow(["file", "animal", "place", "part"])
            for i in range(self.n) if rows is None else rows:
                row = {"file": self.ids[i], "animal": self.y[i], "place": self.s[i], "part": self.split[i]}
                writer.writerow([changes.get(k, v) for k, v in row.items()])

    def arguments(self, *more):
        return (
            *(
                "task",
                "embeddings",
                self.store,
                "--labels",
                self.labels,
                "--id",
                "file",
                "--target",
                "animal",
            ),
            *(
                "--sensitive",
                "place",
                "--split",
                "part",
                "--prompts",
                self.prompts,
                "-o",
                self.folder / "t.npz",
            ),
            *more,
        )


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def refused(result, *words):
    code, out, err = result
    assert code == 2, (out, err)
    assert len(err.strip().splitlines()) == 1, err
    for word in words:
        assert word in err, err
    return True


def test_embeddings_and_labels_are_joined_by_id_and_never_by_position(run, files):
    code, out, err = run(*files.arguments())
    assert code == 0, err
    assert "written to" in out
    task = load_task(files.folder / "t.npz")
    assert task.class_names == ("cat", "dog")
    seen = 0
    for name, split in task.splits.items():
        for i, key in enumerate(split.ids):
            row = int(np.flatnonzero(files.ids == key)[0])
            np.testing.assert_allclose(split.X[i], files.X[row], atol=1e-6)
            assert task.class_names[split.y[i]] == files.y[row]
            assert task.sensitive["place"].names[split.s["place"][i]] == files.s[row]
            assert files.split[row] == name
            seen += 1
    assert seen == files.n
    mean = vector("a photo of a dog.") + vector("a picture of a dog.")
    np.testing.assert_allclose(task.text_target[1], mean / np.linalg.norm(mean), atol=1e-6)
    np.testing.assert_allclose(task.sensitive["place"].text[0], vector("indoors."), atol=1e-6)


def test_templates_become_wordings_of_the_task_besides_their_average(run, files):
    templates = ["a photo of a {}.", "a picture of a {}."]
    parts = {"templates": templates, "classes": ["dog", "cat"]}
    files.prompts.write_text(json.dumps({**PROMPTS, **parts}))
    sentences = [t.replace("{}", name) for name in ("dog", "cat") for t in templates]
    sentences += ["indoors.", "outdoors."]
    text = files.folder / "text.npz"
    np.savez(text, embeddings=np.stack([vector(s) for s in sentences]), ids=np.array(sentences))
    code, _, err = run(*files.arguments("--text", text))
    assert code == 0, err
    task = load_task(files.folder / "t.npz")
    assert task.class_names == ("dog", "cat")
    assert task.variants.templates == tuple(templates)
    np.testing.assert_allclose(task.variants.text[1, 0], vector("a picture of a dog."), atol=1e-6)
    mean = task.variants.text.mean(axis=0)
    np.testing.assert_allclose(
        task.text_target, mean / np.linalg.norm(mean, axis=1, keepdims=True), atol=1e-6
    )


@pytest.mark.parametrize("about_all", [True, False])
def test_spurious_and_counterfactual_sentences_go_into_the_task(run, files, about_all):
    counterfactual = [
        {"class": name, "sensitive": {"place": place}, "prompt": f"a {name} {place}."}
        for name in ("dog", "cat")
        for place in ("indoors", "outdoors")
    ]
    sensitive = PROMPTS["sensitive"] if about_all else {**PROMPTS["sensitive"], "time": {"day": ["by day."]}}
    parts = {
        "spurious": ["in a room.", "in a forest."],
        "counterfactual": counterfactual,
        "harmful": [["in a room.", "in a field."]],
        "sensitive": sensitive,
    }
    files.prompts.write_text(json.dumps({**PROMPTS, **parts}))
    sentences = load_prompts(files.prompts).all_prompts()
    text = files.folder / "text.npz"
    np.savez(text, embeddings=np.stack([vector(s) for s in sentences]), ids=np.array(sentences))
    code, out, err = run(*files.arguments("--text", text))
    assert code == 0, err
    task = load_task(files.folder / "t.npz")
    if not about_all:  # they may be about the time of the day, which the task knows nothing of
        assert (task.spurious, task.counterfactual, task.harmful) == (None, None, None)
        assert "counterfactual sentences of the prompts are left out" in out
        return
    assert "Sentences for Orth-Proj and Orth-Cali: 2 spurious, 4 counterfactual." in out
    assert "Pairs of sentences for RoboShot: 1 harmful." in out
    np.testing.assert_allclose(task.harmful.text[0, 1], vector("in a field."), atol=1e-6)
    assert task.harmful.prompts == (("in a room.", "in a field."),)
    assert task.helpful is None
    assert task.spurious.prompts == ("in a room.", "in a forest.")
    np.testing.assert_allclose(task.spurious.text[1], vector("in a forest."), atol=1e-6)
    assert [task.class_names[k] for k in task.counterfactual.classes] == ["dog", "dog", "cat", "cat"]
    np.testing.assert_allclose(task.counterfactual.text[2], vector("a cat indoors."), atol=1e-6)


def test_the_task_fits_and_applies(run, files):
    run(*files.arguments())
    task = files.folder / "t.npz"
    fit = ("fit", task, "-o", files.folder / "m", "--set", "n_features=50")
    assert run(*fit)[0] == 0
    code, out, _ = run("apply", files.folder / "m", task, "-o", files.folder / "p.csv", "--json")
    assert code == 0
    assert json.loads(out)["rows"] == (files.split == "test").sum()


def test_json_counts_groups_and_shows_the_preflight(run, files):
    code, out, _ = run(*files.arguments("--json"))
    assert code == 0
    result = json.loads(out)
    assert sum(sum(c.values()) for c in result["groups"].values()) == files.n
    assert result["preflight"]["rows"] == files.n
    assert result["preflight"]["unit_rows"] is True


def test_rows_that_match_nothing_are_counted_and_named(run, files):
    files.write_labels(rows=[i for i in range(files.n) if i not in (3, 4)])
    code, out, _ = run(*files.arguments())
    assert code == 0
    assert "2 embeddings have no label" in out
    assert "img/003.jpg" in out


def test_a_gallery_needs_no_target(run, files):
    arguments = [a for a in files.arguments() if a not in ("--target", "animal")]
    assert run(*arguments)[0] == 0
    task = load_task(files.folder / "t.npz")
    assert task.train.y is None
    assert task.class_names == ("cat", "dog")


def test_splits_are_drawn_by_share_where_there_is_no_column(run, files):
    arguments = [a for a in files.arguments() if a not in ("--split", "part")]
    assert run(*arguments, "--shares", "0.5,0.2,0.3", "--seed", "1")[0] == 0
    task = load_task(files.folder / "t.npz")
    cells = [f"{y} {s}" for y, s in zip(files.y, files.s, strict=True)]
    for cell in set(cells):
        rows = files.ids[[c == cell for c in cells]]
        came = [np.isin(task.split(name).ids, rows).sum() for name in ("train", "val", "test")]
        assert sum(came) == len(rows)
        assert np.abs(came - len(rows) * np.array([0.5, 0.2, 0.3])).max() < 1


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--id", "name"), ["name", "file"]),
        (("--target", "animl"), ["animl", "animal"]),
        (("--sensitive", "plaice"), ["plaice", "place"]),
        (("--sensitive", ","), ["at least one column"]),
        (("--prompts", "waterbrids"), ["waterbirds"]),
        (("--shares", "a,b"), ["three numbers"]),
        (("--output", "t.txt"), [".npz or .safetensors"]),
    ],
)
def test_wrong_options_are_one_line_with_the_nearest_name(run, files, more, words):
    assert refused(run(*files.arguments(*more)), *words)


def test_wrong_label_files_are_one_line(run, files):
    files.write_labels(animal="cat")
    assert refused(run(*files.arguments()), "animal", "only")
    files.write_labels(part="later")
    assert refused(run(*files.arguments()), "part", "later")
    files.write_labels(place="upstairs-and-down")
    assert refused(run(*files.arguments()), "place")
    files.ids = np.array([f"other/{i}.png" for i in range(files.n)])
    files.write_labels()
    assert refused(run(*files.arguments()), "other/")
    assert refused(run(*files.arguments("--labels", files.folder / "none.csv")), "none.csv")


def test_labels_and_prompts_must_share_names(run, files):
    files.y = np.where(files.y == "cat", "lion", files.y)
    files.write_labels()
    assert refused(run(*files.arguments()), "lion", "cat, dog", "same names")


def test_a_store_without_ids_is_refused(run, files):
    np.save(files.folder / "x.npy", files.X)
    arguments = list(files.arguments())
    arguments[2] = files.folder / "x.npy"
    assert refused(run(*arguments), "no ids", "--ids FILE", "--by-position")
    ids = files.folder / "ids.txt"
    ids.write_text("".join(f"{i}\n" for i in range(60)))
    arguments += ["--ids", ids, "--text"]
    assert refused(run(*arguments, files.folder / "x.npy"), "5 distinct prompts", "60 embeddings")
    np.save(files.folder / "t.npy", files.X[:5])
    assert refused(run(*arguments, files.folder / "t.npy"), "'0'", "'img/000.jpg'", "no id of the 60")


def test_prompts_without_embeddings_are_refused(run, files):
    other = {**PROMPTS, "classes": {"cat": ["one cat."], "dog": ["one dog."]}}
    files.prompts.write_text(json.dumps(other))
    assert refused(run(*files.arguments()), "one cat.", "--model")
    np.savez(files.folder / "plain.npz", embeddings=files.X, ids=files.ids)
    arguments = list(files.arguments())
    arguments[2] = files.folder / "plain.npz"
    assert refused(run(*arguments), "no prompt embeddings", "--model")


def test_prompts_of_another_model_are_refused(run, tmp_path, monkeypatch):
    here = Provenance("A", "1" * 64, "resize", "library 1", True, WIDTH)
    files = Files(tmp_path, provenance=here)

    class Other:
        name, width = "B", WIDTH
        provenance = Provenance("B", "2" * 64, "resize", "library 1", True, WIDTH)

        def encode_text(self, prompts):
            return np.stack([vector(p) for p in prompts])

    import fairerclip.encoders.loading

    monkeypatch.setattr(fairerclip.encoders.loading, "load", lambda *a, **k: Other())
    assert refused(run(*files.arguments("--model", "B")), "A", "B")


def test_an_existing_task_is_kept(run, files):
    run(*files.arguments())
    before = (files.folder / "t.npz").read_bytes()
    assert refused(run(*files.arguments()), "exists", "--overwrite")
    assert (files.folder / "t.npz").read_bytes() == before
    assert run(*files.arguments("--overwrite"))[0] == 0


def test_build_task_says_what_is_missing():
    X = np.eye(4, dtype=np.float32)
    labelled = Labelled("t", np.array(["a", "b"]), np.array(["train", "val"]), None, (), {})
    with pytest.raises(StoreError, match="no ids"):
        build_task(labelled, EmbeddingStore.from_array(X), None)
    with pytest.raises(JoinError):
        build_task(labelled, EmbeddingStore.from_array(X, ids=np.array(["w", "x", "y", "z"])), None)
    task, notes = build_task(labelled, EmbeddingStore.from_array(X, ids=np.array(["a", "x", "y", "z"])), None)
    assert len(task.train) == 1
    assert any("val split" in note for note in notes)


@pytest.mark.parametrize("in_memory", [True, False])
def test_rows_on_disk_and_their_labels_are_those_in_memory(files, monkeypatch, in_memory):
    monkeypatch.setattr("fairerclip.data.build.VALIDATION_ROWS", 3)
    files.write_labels(rows=range(7, files.n))
    table = read_labels(files.labels, id_column="file", columns=["animal", "place", "part"])
    labelled = from_table(table, name="a", target="animal", sensitive=["place"], split_column="part")
    task, notes = build_task(labelled, open_store(files.store), None, in_memory=in_memory)
    assert any("7 embeddings have no label" in note for note in notes)
    assert any("drawn at random" in note for note in notes) is not in_memory
    for name, split in task.splits.items():
        on_disk = not in_memory and name != "val"
        assert isinstance(split.X, EmbeddingStore) is on_disk
        assert (split.y.dtype == np.int8) is on_disk
        numbers = [k for k in files.order if k >= 7 and files.split[k] == name]
        if name == "val" and not in_memory:
            assert len(split) == 3 < len(numbers)
            continue
        np.testing.assert_array_equal(np.asarray(split.X), files.X[numbers])
        assert [task.class_names[k] for k in split.y] == files.y[numbers].tolist()
        assert [task.sensitive["place"].names[k] for k in split.s["place"]] == files.s[numbers].tolist()


def test_without_a_split_rows_on_disk_are_all_training_rows(files):
    table = read_labels(files.labels, id_column="file", columns=["animal", "place"])
    labelled = from_table(table, name="a", target="animal", sensitive=["place"], shares=None)
    store = open_store(files.store)
    task, notes = build_task(labelled, store, None, in_memory=False)
    assert task.train.X is store
    assert [*task.splits] == ["train"]
    assert any("Nothing was held out" in note for note in notes)


def test_a_split_column_must_be_whole():
    from fairerclip.data.label_table import Column
    from fairerclip.data.labelled_rows import _named_split

    with pytest.raises(LabelError, match="no split for 1 rows"):
        _named_split(Column("part", np.array([0, -1]), ("train",)))
    assert _named_split(Column("part", np.array([0, 1, 2]), ("0", "1", "2"))).tolist() == [
        "train",
        "val",
        "test",
    ]


# The paper's datasets ---------------------------------------------------------------------------------


def waterbirds_tree(root):
    rows = [(i, f"bird/{i}.jpg", i % 2, i % 3, (i // 2) % 2) for i in range(24)]
    root.mkdir()
    with (root / "metadata.csv").open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["img_id", "img_filename", "y", "split", "place", "place_filename"])
        writer.writerows([[*row, "p.jpg"] for row in rows])
    return rows


def embedded(folder, ids, prompt_set):
    sentences = load_prompts(prompt_set).all_prompts()
    with StoreWriter(folder, width=WIDTH, provenance=None) as writer:
        writer.append(list(ids), np.stack([vector(i) for i in ids]).astype(np.float32))
        writer.write_text(sentences, np.stack([vector(s) for s in sentences]).astype(np.float32))
        writer.finish()
    return folder


def test_waterbirds_in_its_official_layout_becomes_a_task(run, tmp_path):
    rows = waterbirds_tree(tmp_path / "birds")
    store = embedded(tmp_path / "emb", [row[1] for row in rows], "waterbirds")
    code, out, err = run("task", "waterbirds", tmp_path / "birds", "--store", store, "-o", tmp_path / "t.npz")
    assert code == 0, err
    assert "3498 / 184 / 56 / 1057 were published" in out
    task = load_task(tmp_path / "t.npz")
    for i, name, y, split, place in rows:
        part = task.split(("train", "val", "test")[split])
        at = part.ids.tolist().index(name)
        assert part.y[at] == y, i
        assert next(iter(part.s.values()))[at] == place
    assert task.text_target.shape == (2, WIDTH)
    shipped = load_prompts("waterbirds")
    assert (task.harmful.prompts, task.helpful.prompts) == (shipped.harmful, shipped.helpful)


def test_a_dataset_that_is_not_there_says_where_to_get_it(run, tmp_path):
    for name in ("waterbirds", "celeba", "fairface", "cfd"):
        result = run("task", name, tmp_path / "nowhere", "-o", tmp_path / "t.npz")
        assert refused(result, "nowhere", "Expected")


def test_a_dataset_that_is_not_embedded_yet_asks_for_a_model(run, tmp_path):
    waterbirds_tree(tmp_path / "birds")
    assert refused(
        run("task", "waterbirds", tmp_path / "birds", "-o", tmp_path / "t.npz"), "--model", "--store"
    )


def test_a_dataset_can_be_embedded_on_the_way(run, tmp_path, monkeypatch):
    image = pytest.importorskip("PIL.Image")
    rows = waterbirds_tree(tmp_path / "birds")
    (tmp_path / "birds" / "bird").mkdir()
    for i, name, *_ in rows[:-1]:
        image.new("RGB", (10, 10), (i * 10, 0, 0)).save(tmp_path / "birds" / name)
    (tmp_path / "birds" / rows[-1][1]).write_bytes(b"not an image")

    class Tiny:
        name, width = "tiny", WIDTH
        provenance = Provenance("tiny", None, "none", "test", True, WIDTH)

        def preprocess(self, picture):
            return np.asarray(picture, dtype=np.float32).transpose(2, 0, 1)

        def encode_images(self, pixels):
            return np.stack([vector(str(p[0, 0, 0])) for p in pixels]).astype(np.float32)

        def encode_text(self, prompts):
            return np.stack([vector(p) for p in prompts]).astype(np.float32)

    import fairerclip.encoders.loading

    monkeypatch.setattr(fairerclip.encoders.loading, "load", lambda *a, **k: Tiny())
    code, out, err = run(
        "task", "waterbirds", tmp_path / "birds", "--model", "tiny", "-o", tmp_path / "t.npz"
    )
    assert code == 0, err
    assert "1 labels have no embedding" in out
    assert sum(len(s) for s in load_task(tmp_path / "t.npz").splits.values()) == 23
    assert len(open_store(tmp_path / "t.npz.store")) == 23


def test_prompt_files_with_other_names_are_refused_for_a_dataset(run, tmp_path):
    rows = waterbirds_tree(tmp_path / "birds")
    store = embedded(tmp_path / "emb", [row[1] for row in rows], "celeba-blond")
    result = run(
        "task",
        "waterbirds",
        tmp_path / "birds",
        "--store",
        store,
        "--prompts",
        "celeba-blond",
        "-o",
        tmp_path / "t.npz",
    )
    assert refused(result, "landbird", "same names")


def tree_of(name):
    """The small official-layout tree that the dataset's own tests build."""
    return runpy.run_path(str(Path(__file__).parent / f"test_datasets_{name}.py"))


@pytest.mark.parametrize(
    ("name", "make", "attributes"),
    [
        ("celeba", lambda t, root: t["mmlab"](root), {"sex"}),
        ("celeba", lambda t, root: t["kaggle"](root), {"sex"}),
        ("fairface", lambda t, root: t["tree"](root), {"sex", "race", "age"}),
        ("cfd", lambda t, root: t["tree"](root), {"sex"}),
    ],
    ids=["celeba-mmlab", "celeba-kaggle", "fairface", "cfd"],
)
def test_a_dataset_in_its_official_layout_becomes_a_task_with_the_right_groups(
    run, tmp_path, name, make, attributes
):
    if name == "cfd":
        pytest.importorskip("openpyxl")
    root = tmp_path / "root"
    root.mkdir()
    make(tree_of(name), root)
    index = read_dataset(name, root)
    store = embedded(tmp_path / "emb", index.ids.tolist(), index.prompts)
    code, out, err = run("task", name, root, "--store", store, "-o", tmp_path / "t.npz", "--json")
    assert code == 0, err
    assert json.loads(out)["notes"]
    task = load_task(tmp_path / "t.npz")
    assert set(task.sensitive) == attributes
    assert (() if task.harmful is None else task.harmful.prompts) == load_prompts(index.prompts).harmful
    row_of = {key: k for k, key in enumerate(index.ids.tolist())}
    for part, split in task.splits.items():
        for i, key in enumerate(split.ids.tolist()):
            k = row_of[key]
            assert index.split[k] == part
            if index.y is not None:
                assert task.class_names[split.y[i]] == index.class_names[index.y[k]]
            for attribute, (codes, names) in index.sensitive.items():
                assert task.sensitive[attribute].names[split.s[attribute][i]] == names[codes[k]]
    assert sum(len(s) for s in task.splits.values()) == len(index)


BIRD_NAMES = ("--classes", "landbird,waterbird", "--values", "background=land background,water background")


@pytest.mark.parametrize(
    ("name", "options", "prompts"),
    [
        ("utkface", ("--sensitive", "sex,age", "--seed", 3, "--prompts", "fairface-ours"), "fairface-ours"),
        ("facet", ("--sensitive", "gender,skin_tone"), "facet"),
        (
            "metadata",
            ("--sensitive", "background=a", *BIRD_NAMES, "--prompts", "waterbirds"),
            "waterbirds",
        ),
    ],
    ids=["utkface", "facet", "metadata"],
)
def test_other_public_data_become_tasks_with_the_options_of_their_readers(
    run, tmp_path, name, options, prompts
):
    root = tree_of(name)["tree"](tmp_path / "root")
    readers = {
        "utkface": {"sensitive": ("sex", "age"), "seed": 3},
        "facet": {"sensitive": ("gender", "skin_tone")},
        "metadata": {
            "sensitive": {"background": "a"},
            "class_names": ["landbird", "waterbird"],
            "value_names": {"background": ["land background", "water background"]},
        },
    }
    index = read_dataset(name, root, **readers[name])
    store = embedded(tmp_path / "emb", index.ids.tolist(), prompts)
    code, out, err = run("task", name, root, "--store", store, "-o", tmp_path / "t.npz", *options, "--json")
    assert code == 0, err
    assert [note for note in index.notes if note not in json.loads(out)["notes"]] == []
    task = load_task(tmp_path / "t.npz")
    assert list(task.sensitive) == list(index.sensitive)
    row_of = {key: k for k, key in enumerate(index.ids.tolist())}
    for part, split in task.splits.items():
        rows = [row_of[key] for key in split.ids.tolist()]
        assert set(index.split[rows]) == {part}
        if index.y is not None:
            assert [task.class_names[code] for code in split.y] == [
                index.class_names[c] for c in index.y[rows]
            ]
        for attribute, (codes, names) in index.sensitive.items():
            assert task.sensitive[attribute].names == names
            assert split.s[attribute].tolist() == codes[rows].tolist()
    assert sum(len(s) for s in task.splits.values()) == len(index)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("utkface", "--sensitive", "hair", "--prompts", "sex"), "among sex, race, age, got hair"),
        (("utkface",), "no prompts are shipped for utkface; give --prompts"),
        (
            ("metadata", "--prompts", "waterbirds", "--sensitive", "=a"),
            "--sensitive expects different COLUMN",
        ),
        (("metadata", "--prompts", "waterbirds", "--values", "a"), "--values expects ATTRIBUTE=NAME,NAME"),
        (("metadata", "--prompts", "waterbirds", "--target", "none", "--classes", "x,y"), "without a target"),
        (("metadata", "--prompts", "waterbirds"), "use the same names in the prompt file and in the labels"),
        (("metadata", "--prompts", "waterbirds", "--file", "gone.csv"), "there is no gone.csv"),
        (("facet", "--sensitive", "sex"), "among gender, age, skin_tone, got sex"),
    ],
)
def test_options_of_other_public_data_are_refused_in_one_line(run, tmp_path, arguments, message):
    name, *options = arguments
    root = tree_of(name)["tree"](tmp_path / "root")
    result = run("task", name, root, "-o", tmp_path / "t.npz", *options)
    assert refused(result, message)
    assert not (tmp_path / "t.npz").exists()


def test_a_clip_retrieval_folder_becomes_a_task(run, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    files = Files(tmp_path)
    root = tmp_path / "laion"
    for folder in ("img_emb", "metadata"):
        (root / folder).mkdir(parents=True)
    for p, rows in enumerate(
        np.array_split(files.order, 11)
    ):  # two digits, and a tenth before a second by name
        np.save(root / "img_emb" / f"img_emb_{p:02d}.npy", files.X[rows].astype(np.float16))
        table = pyarrow.table({"image_path": files.ids[rows].tolist(), "caption": ["x"] * len(rows)})
        parquet.write_table(table, root / "metadata" / f"metadata_{p:02d}.parquet")
    sentences = load_prompts(files.prompts).all_prompts()
    np.save(tmp_path / "text.npy", np.stack([vector(s) for s in sentences]).astype(np.float32))
    arguments = list(files.arguments("--text", tmp_path / "text.npy"))
    arguments[2] = root
    code, _, err = run(*arguments)
    assert code == 0, err
    task = load_task(files.folder / "t.npz")
    for split in task.splits.values():
        for i, key in enumerate(split.ids):
            row = int(np.flatnonzero(files.ids == key)[0])
            np.testing.assert_allclose(split.X[i], files.X[row], atol=1e-3)
            assert task.class_names[split.y[i]] == files.y[row]


def test_prompt_embeddings_of_another_model_are_refused_and_looked_up_by_sentence(run, tmp_path):
    here = Provenance("A", "1" * 64, "resize", "library 1", True, WIDTH)
    there = Provenance("B", "2" * 64, "resize", "library 1", True, WIDTH)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    files, other = Files(tmp_path / "a", provenance=here), Files(tmp_path / "b", provenance=there)
    assert refused(run(*files.arguments("--text", other.store)), "A", "B")
    code, out, err = run(*files.arguments("--text", files.store))  # by sentence, whatever their order
    assert code == 0, err
    assert "unknown" not in out
    task = load_task(files.folder / "t.npz")
    np.testing.assert_allclose(task.text_target[0], vector("a photo of a cat."), atol=1e-6)


def test_options_that_contradict_each_other_are_refused(run, files):
    assert refused(run(*files.arguments("--model", "x", "--text", files.store)), "one of them")
    assert refused(run(*files.arguments("--sensitive", "animal")), "different columns")
    assert refused(run(*files.arguments("--sensitive", "part")), "different columns")
    assert refused(run(*files.arguments("--split", "animal")), "different columns")
    arguments = [a for a in files.arguments() if a not in ("--split", "part")]
    assert refused(run(*arguments, "--shares", "nan,0.1,0.5"), "sum to 1")


def test_empty_splits_and_classes_are_said(run, files):
    files.split = np.where(files.split == "test", "train", files.split)
    files.y = np.where(files.split == "val", "cat", files.y)
    files.write_labels()
    code, out, _ = run(*files.arguments())
    assert code == 0
    assert "The test split is empty." in out
    assert "The val split has no row of class dog." in out


def test_an_attribute_without_prompts_is_said(run, files):
    prompts = {k: v for k, v in PROMPTS.items() if k != "sensitive"}
    files.prompts.write_text(json.dumps(prompts))
    code, out, _ = run(*files.arguments())
    assert code == 0
    assert "no prompts for place" in out


def test_rows_that_cannot_be_used_are_named_by_store_and_id(run, files):
    X = files.X.copy()
    X[7] = np.nan
    np.savez(files.folder / "bad.npz", embeddings=X, ids=files.ids)
    sentences = load_prompts(files.prompts).all_prompts()
    np.save(files.folder / "text.npy", np.stack([vector(s) for s in sentences]).astype(np.float32))
    arguments = list(files.arguments("--text", files.folder / "text.npy"))
    arguments[2] = files.folder / "bad.npz"
    assert refused(run(*arguments), "bad.npz", "row 7", "img/007.jpg")


@pytest.mark.parametrize("ending", [".npz", ".safetensors"])
def test_a_task_is_written_in_every_form_and_read_back_the_same(run, files, ending):
    output = files.folder / f"made{ending}"
    code, _, err = run(*files.arguments("--output", output))
    assert code == 0, err
    task = load_task(output)
    run(*files.arguments())
    same = load_task(files.folder / "t.npz")
    assert task.class_names == same.class_names
    assert task.target_prompts == same.target_prompts
    np.testing.assert_array_equal(task.text_target, same.text_target)
    assert task.sensitive["place"].names == same.sensitive["place"].names
    for name, split in same.splits.items():
        np.testing.assert_array_equal(task.split(name).X, split.X)
        np.testing.assert_array_equal(task.split(name).y, split.y)
        np.testing.assert_array_equal(task.split(name).s["place"], split.s["place"])
        assert task.split(name).ids.tolist() == split.ids.tolist()
    assert run("audit", output, "--json")[0] == 0


QUERIES = ["a sleeping animal", "a photo of a cat."]


def test_free_queries_of_the_prompts_are_kept_in_the_task(run, files):
    # The second query is a class prompt too: it is encoded once and kept in both places.
    files.prompts.write_text(json.dumps(PROMPTS | {"queries": QUERIES}))
    prompts = load_prompts(files.prompts)
    assert prompts.queries == tuple(QUERIES)
    assert prompts.all_prompts()[-1] == QUERIES[0]
    assert refused(run(*files.arguments()), "'a sleeping animal'", "(1 are missing)")
    text = files.folder / "text.npy"
    np.save(text, np.stack([vector(sentence) for sentence in prompts.all_prompts()]).astype(np.float32))
    code, out, err = run(*files.arguments("--text", text))
    assert code == 0, err
    assert "Free queries: 2." in out
    queries = load_task(files.folder / "t.npz").queries
    assert queries.prompts == tuple(QUERIES)
    assert queries.classes is None
    np.testing.assert_allclose(queries.text, [vector(q) for q in QUERIES], atol=1e-6)


@pytest.mark.parametrize(
    ("queries", "words"),
    [
        ({"a": "nest"}, "queries: expected a known key"),
        (["a nest", "a nest"], "'a nest' twice"),
        ([], "queries: expected at least one"),
        (["a {} nest"], "expected sentences, got the template"),
    ],
)
def test_bad_queries_of_a_prompt_file_are_refused(run, files, queries, words):
    files.prompts.write_text(json.dumps(PROMPTS | {"queries": queries}))
    assert refused(run(*files.arguments()), "prompts.json", words)
