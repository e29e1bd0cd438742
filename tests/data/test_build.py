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
from fairerclip.errors import JoinError, StoreError

WIDTH = 8
PROMPTS = {
    "classes": {"cat": ["a photo of a cat."], "dog": ["a photo of a dog.", "a picture of a dog."]},
    "sensitive": {"place": {"indoors": ["indoors."], "outdoors": ["outdoors."]}},
}
A, B = (Provenance(name, name * 64, "resize", "library 1", True, WIDTH) for name in "ab")


def vector(sentence):
    """A unit vector that is the sentence's own."""
    v = np.random.default_rng(sum(sentence.encode())).normal(size=WIDTH)
    return v / np.linalg.norm(v)


def vectors(sentences):
    return np.stack([vector(sentence) for sentence in sentences]).astype(np.float32)


class Files:
    """A store with prompts, a label file and a prompt file, in an order of their own each."""

    def __init__(self, folder, n=60, provenance=None):
        folder.mkdir(exist_ok=True)
        rng = np.random.default_rng(0)
        self.folder, self.n = folder, n
        self.ids = np.array([f"img/{i:03d}.jpg" for i in range(n)])
        self.y = np.array(["dog", "cat"])[rng.integers(2, size=n)]
        self.s = np.array(["outdoors", "indoors"])[rng.integers(2, size=n)]
        self.split = np.array(["train", "val", "test"])[rng.integers(3, size=n)]
        X = vectors(self.y) + 0.3 * vectors(self.s) + 0.1 * rng.normal(size=(n, WIDTH))
        self.X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
        self.store = folder / "emb"
        self.order = rng.permutation(n)
        sentences = ["a photo of a cat.", "a photo of a dog.", "a picture of a dog.", "indoors.", "outdoors."]
        with StoreWriter(self.store, width=WIDTH, provenance=provenance) as writer:
            writer.append(self.ids[self.order].tolist(), self.X[self.order])
            writer.write_text(sentences, vectors(sentences))
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

    def write_prompts(self, **parts):
        """Write prompts with these parts, and a file of the embeddings of all of them; return the file."""
        self.prompts.write_text(json.dumps(PROMPTS | parts))
        np.save(self.folder / "text.npy", vectors(load_prompts(self.prompts).all_prompts()))
        return self.folder / "text.npy"

    def arguments(self, *more, store=None, without=()):
        options = {"--labels": self.labels, "--id": "file", "--target": "animal", "--sensitive": "place"}
        options |= {"--split": "part", "--prompts": self.prompts, "-o": self.folder / "t.npz"}
        given = [word for option in options.items() if option[0] not in without for word in option]
        return ["task", "embeddings", store or self.store, *given, *more]

    def build(self, run, *more, **changes):
        """Run the command, and return the task and what was printed."""
        code, out, err = run(*self.arguments(*more, **changes))
        assert code == 0, err
        return load_task(self.folder / "t.npz"), out

    def check_rows(self, task, atol=1e-6):
        """Assert that every row has the embedding, the labels and the split of its id."""
        assert sum(len(split) for split in task.splits.values()) == self.n
        for name, split in task.splits.items():
            rows = np.searchsorted(self.ids, split.ids)
            np.testing.assert_array_equal(self.ids[rows], split.ids)
            np.testing.assert_allclose(split.X, self.X[rows], atol=atol)
            assert [task.class_names[k] for k in split.y] == self.y[rows].tolist()
            assert [task.sensitive["place"].names[k] for k in split.s["place"]] == self.s[rows].tolist()
            assert set(self.split[rows]) == {name}


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def assert_refused(result, *words):
    code, out, err = result
    assert code == 2, (out, err)
    assert len(err.strip().splitlines()) == 1, err
    for word in words:
        assert word in err, err


@pytest.mark.parametrize("name", ["t.npz", "t.safetensors"])
def test_embeddings_and_labels_are_joined_by_id_and_the_task_fits_and_applies(run, files, name):
    code, _, err = run(*files.arguments("-o", files.folder / name))
    assert code == 0, err
    task = load_task(files.folder / name)
    files.check_rows(task)
    assert task.class_names == ("cat", "dog")
    mean = vector("a photo of a dog.") + vector("a picture of a dog.")
    np.testing.assert_allclose(task.text_target[1], mean / np.linalg.norm(mean), atol=1e-6)
    np.testing.assert_allclose(task.sensitive["place"].text[0], vector("indoors."), atol=1e-6)
    fit = ("fit", files.folder / name, "-o", files.folder / "m", "--set", "n_features=50")
    assert run(*fit)[0] == 0
    apply = ("apply", files.folder / "m", files.folder / name, "-o", files.folder / "p.csv", "--json")
    assert json.loads(run(*apply)[1])["rows"] == (files.split == "test").sum()


def test_templates_become_wordings_of_the_task_besides_their_average(run, files):
    templates = ["a photo of a {}.", "a picture of a {}."]
    text = files.write_prompts(templates=templates, classes=["dog", "cat"])
    task, _ = files.build(run, "--text", text)
    assert task.class_names == ("dog", "cat")
    assert task.variants.templates == tuple(templates)
    np.testing.assert_allclose(task.variants.text[1, 0], vector("a picture of a dog."), atol=1e-6)
    mean = task.variants.text.mean(axis=0)
    np.testing.assert_allclose(
        task.text_target, mean / np.linalg.norm(mean, axis=1, keepdims=True), atol=1e-6
    )


def sentences_of_methods():
    counterfactual = [
        {"class": name, "sensitive": {"place": place}, "prompt": f"a {name} {place}."}
        for name in ("dog", "cat")
        for place in ("indoors", "outdoors")
    ]
    spurious, harmful = ["in a room.", "in a forest."], [["in a room.", "in a field."]]
    return {"spurious": spurious, "counterfactual": counterfactual, "harmful": harmful}


def test_sentences_and_queries_of_the_prompts_go_into_the_task(run, files):
    queries = ["a sleeping animal", "a photo of a cat."]  # the second is a class prompt, too
    text = files.write_prompts(**sentences_of_methods(), queries=queries)
    assert_refused(run(*files.arguments()), "missing")
    task, _ = files.build(run, "--text", text)
    assert task.harmful.prompts == (("in a room.", "in a field."),)
    np.testing.assert_allclose(task.harmful.text[0, 1], vector("in a field."), atol=1e-6)
    np.testing.assert_allclose(task.spurious.text, vectors(["in a room.", "in a forest."]), atol=1e-6)
    assert [task.class_names[k] for k in task.counterfactual.classes] == ["dog", "dog", "cat", "cat"]
    np.testing.assert_allclose(task.counterfactual.text[2], vector("a cat indoors."), atol=1e-6)
    assert (task.queries.prompts, task.queries.classes) == (tuple(queries), None)
    np.testing.assert_allclose(task.queries.text, vectors(queries), atol=1e-6)


def test_sentences_that_may_be_about_an_attribute_without_labels_are_left_out(run, files):
    sensitive = {**PROMPTS["sensitive"], "time": {"day": ["by day."]}}
    text = files.write_prompts(**sentences_of_methods(), sensitive=sensitive)
    task, out = files.build(run, "--text", text)
    assert (task.spurious, task.counterfactual, task.harmful) == (None, None, None)
    assert "left out" in out


def test_a_gallery_needs_no_target_and_splits_are_drawn_where_there_is_no_column(run, files):
    task, _ = files.build(run, without=["--target"])
    assert task.train.y is None
    assert task.class_names == ("cat", "dog")
    drawn = ("--shares", "0.5,0.2,0.3", "--seed", 1, "--overwrite")
    task, _ = files.build(run, *drawn, without=["--split"])
    cells = np.char.add(files.y, files.s)
    for cell in set(cells):
        rows = files.ids[cells == cell]
        came = [np.isin(task.split(name).ids, rows).sum() for name in ("train", "val", "test")]
        assert sum(came) == len(rows)
        assert np.abs(came - len(rows) * np.array([0.5, 0.2, 0.3])).max() < 1


def test_rows_and_cells_that_are_missing_are_told(run, files):
    files.split = np.where(files.split == "test", "train", files.split)
    files.y = np.where(files.split == "val", "cat", files.y)
    files.write_labels(rows=[i for i in range(files.n) if i not in (3, 4)])
    files.prompts.write_text(json.dumps({"classes": PROMPTS["classes"]}))
    code, out, _ = run(*files.arguments("--json"))
    assert code == 0
    found = json.loads(out)
    assert sum(sum(cells.values()) for cells in found["groups"].values()) == files.n - 2
    assert (found["preflight"]["rows"], found["preflight"]["unit_rows"]) == (files.n, True)
    notes = " ".join(found["notes"])
    for fact in ("2 embeddings", "img/003.jpg", "test split is empty", "class dog", "no prompts for place"):
        assert fact in notes


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--target", "animl"), ["animl", "animal"]),
        (("--sensitive", ","), ["column"]),
        (("--split", "animal"), ["different"]),
        (("--prompts", "waterbrids"), ["waterbirds"]),
        (("--model", "x", "--text", "y"), ["one of them"]),
        (("--output", "t.txt"), [".npz"]),
    ],
)
def test_wrong_options_are_one_line(run, files, more, words):
    assert_refused(run(*files.arguments(*more)), *words)


def test_labels_that_cannot_be_used_are_one_line(run, files):
    for changes, word in (
        ({"animal": "cat"}, "animal"),
        ({"part": "later"}, "later"),
        ({"place": "x"}, "place"),
    ):
        files.write_labels(**changes)
        assert_refused(run(*files.arguments()), word)
    files.y = np.where(files.y == "cat", "lion", files.y)
    files.write_labels()
    assert_refused(run(*files.arguments()), "lion")
    files.ids = np.array([f"other/{i}.png" for i in range(files.n)])
    files.write_labels()
    assert_refused(run(*files.arguments()), "other/")


def test_prompts_without_embeddings_or_of_another_model_are_refused(run, tmp_path, monkeypatch):
    files, other = Files(tmp_path / "a", provenance=A), Files(tmp_path / "b", provenance=B)
    assert_refused(run(*files.arguments("--text", other.store)), "a", "b")
    files.build(run, "--text", files.store)

    class Other:
        name, width, provenance, encode_text = "b", WIDTH, B, staticmethod(vectors)

    monkeypatch.setattr("fairerclip.encoders.loading.load", lambda *a, **k: Other())
    assert_refused(run(*files.arguments("--model", "b", "--overwrite")), "a", "b")
    files.prompts.write_text(json.dumps(PROMPTS | {"classes": {"cat": ["one cat."], "dog": ["one dog."]}}))
    assert_refused(run(*files.arguments("--overwrite")), "one cat.", "--model")
    np.save(tmp_path / "x.npy", files.X)
    assert_refused(run(*files.arguments("--text", tmp_path / "x.npy", "--overwrite")), "60")


def test_rows_that_cannot_be_used_are_named_by_store_and_id(run, files):
    X = files.X.copy()
    X[7] = np.nan
    np.savez(files.folder / "bad.npz", embeddings=X, ids=files.ids)
    result = run(*files.arguments("--text", files.write_prompts(), store=files.folder / "bad.npz"))
    assert_refused(result, "bad.npz", "row 7", "img/007.jpg")


def test_an_existing_task_is_kept(run, files):
    files.build(run)
    before = (files.folder / "t.npz").read_bytes()
    assert_refused(run(*files.arguments()), "--overwrite")
    assert (files.folder / "t.npz").read_bytes() == before
    files.build(run, "--overwrite")


def test_build_task_refuses_what_it_cannot_join_and_says_what_is_missing():
    X = np.eye(4, dtype=np.float32)
    labelled = Labelled("t", np.array(["a", "b"]), np.array(["train", "val"]), None, (), {})
    for ids, error in ((None, StoreError), (np.array(list("wxyz")), JoinError)):
        with pytest.raises(error):
            build_task(labelled, EmbeddingStore.from_array(X, ids=ids), None)
    task, notes = build_task(labelled, EmbeddingStore.from_array(X, ids=np.array(list("axyz"))), None)
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
    task, _ = build_task(labelled, store, None, in_memory=False)
    assert task.train.X is store
    assert [*task.splits] == ["train"]


def test_a_clip_retrieval_folder_becomes_a_task(run, files):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    root = files.folder / "laion"
    for folder in ("img_emb", "metadata"):
        (root / folder).mkdir(parents=True)
    for p, rows in enumerate(np.array_split(files.order, 11)):  # a tenth comes before a second by name
        np.save(root / "img_emb" / f"img_emb_{p:02d}.npy", files.X[rows].astype(np.float16))
        table = pyarrow.table({"image_path": files.ids[rows].tolist(), "caption": ["x"] * len(rows)})
        parquet.write_table(table, root / "metadata" / f"metadata_{p:02d}.parquet")
    task, _ = files.build(run, "--text", files.write_prompts(), store=root)
    files.check_rows(task, atol=1e-3)


# Public data sets -------------------------------------------------------------------------------------


def tree_of(name, make, root):
    """Build the small official-layout tree that the dataset's own tests build."""
    root.mkdir()
    runpy.run_path(str(Path(__file__).parent / f"test_datasets_{name}.py"))[make](root)
    return root


def embedded(folder, ids, prompt_set):
    sentences = load_prompts(prompt_set).all_prompts()
    with StoreWriter(folder, width=WIDTH, provenance=None) as writer:
        writer.append(list(ids), vectors(ids))
        writer.write_text(sentences, vectors(sentences))
        writer.finish()
    return folder


BIRDS = {
    "sensitive": {"background": "a"},
    "class_names": ["landbird", "waterbird"],
    "value_names": {"background": ["land background", "water background"]},
}
BIRD_NAMES = ("--classes", "landbird,waterbird", "--values", "background=land background,water background")


@pytest.mark.parametrize(
    ("name", "make", "reader", "options", "prompts"),
    [
        ("waterbirds", "tree", {}, (), "waterbirds"),
        ("celeba", "mmlab", {}, (), "celeba-blond"),
        ("fairface", "tree", {}, (), "fairface"),
        ("cfd", "tree", {}, (), "cfd"),
        (
            *("utkface", "tree", {"sensitive": ("sex", "age"), "seed": 3}),
            *(("--sensitive", "sex,age", "--seed", 3, "--prompts", "fairface-ours"), "fairface-ours"),
        ),
        (
            *("facet", "tree", {"sensitive": ("gender", "skin_tone")}),
            *(("--sensitive", "gender,skin_tone"), "facet"),
        ),
        (
            *("metadata", "tree", BIRDS),
            *(("--sensitive", "background=a", *BIRD_NAMES, "--prompts", "waterbirds"), "waterbirds"),
        ),
    ],
)
def test_a_dataset_in_its_official_layout_becomes_a_task_with_the_right_groups(
    run, tmp_path, name, make, reader, options, prompts
):
    if name == "cfd":
        pytest.importorskip("openpyxl")
    root = tree_of(name, make, tmp_path / "root")
    index = read_dataset(name, root, **reader)
    store = embedded(tmp_path / "emb", index.ids.tolist(), prompts)
    code, out, err = run("task", name, root, "--store", store, "-o", tmp_path / "t.npz", *options, "--json")
    assert code == 0, err
    assert set(index.notes) <= set(json.loads(out)["notes"])
    task = load_task(tmp_path / "t.npz")
    assert list(task.sensitive) == list(index.sensitive)
    assert (() if task.harmful is None else task.harmful.prompts) == load_prompts(prompts).harmful
    assert sum(len(split) for split in task.splits.values()) == len(index)
    row_of = {key: k for k, key in enumerate(index.ids.tolist())}
    for part, split in task.splits.items():
        rows = [row_of[key] for key in split.ids.tolist()]
        assert set(index.split[rows]) == {part}
        np.testing.assert_allclose(split.X, vectors(split.ids.tolist()), atol=1e-6)
        if index.y is not None:
            names = [index.class_names[code] for code in index.y[rows]]
            assert [task.class_names[code] for code in split.y] == names
        for attribute, (codes, names) in index.sensitive.items():
            found = [task.sensitive[attribute].names[code] for code in split.s[attribute]]
            assert found == [names[code] for code in codes[rows]]


@pytest.mark.parametrize(
    ("name", "options", "fact"),
    [
        ("utkface", (), "--prompts"),
        ("facet", ("--sensitive", "sex"), "sex"),
        ("metadata", ("--prompts", "waterbirds", "--values", "a"), "--values"),
        ("metadata", ("--prompts", "waterbirds"), "same names"),
        ("waterbirds", (), "--model"),
    ],
)
def test_options_of_public_data_are_refused_in_one_line(run, tmp_path, name, options, fact):
    root = tree_of(name, "tree", tmp_path / "root")
    assert_refused(run("task", name, root, "-o", tmp_path / "t.npz", *options), fact)
    assert not (tmp_path / "t.npz").exists()


def test_a_dataset_that_is_not_there_says_what_is_expected(run, tmp_path):
    result = run("task", "celeba", tmp_path / "nowhere", "-o", tmp_path / "t.npz")
    assert_refused(result, "nowhere", "Expected")


def test_a_dataset_can_be_embedded_on_the_way(run, tmp_path, monkeypatch):
    image = pytest.importorskip("PIL.Image")
    root = tree_of("waterbirds", "tree", tmp_path / "birds")
    pictures = sorted(root.rglob("*.jpg"))
    for i, file in enumerate(pictures[:-1]):
        image.new("RGB", (10, 10), (i * 10, 0, 0)).save(file)
    pictures[-1].write_bytes(b"not an image")

    class Tiny:
        name, width, provenance, encode_text = "tiny", WIDTH, A, staticmethod(vectors)

        def preprocess(self, picture):
            return np.asarray(picture, dtype=np.float32).transpose(2, 0, 1)

        def encode_images(self, pixels):
            return vectors([str(p[0, 0, 0]) for p in pixels])

    monkeypatch.setattr("fairerclip.encoders.loading.load", lambda *a, **k: Tiny())
    code, out, err = run("task", "waterbirds", root, "--model", "tiny", "-o", tmp_path / "t.npz")
    assert code == 0, err
    assert "1 labels have no embedding" in out
    assert sum(len(s) for s in load_task(tmp_path / "t.npz").splits.values()) == len(pictures) - 1
    assert len(open_store(tmp_path / "t.npz.store")) == len(pictures) - 1
