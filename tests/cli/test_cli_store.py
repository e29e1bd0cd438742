"""`fit` and `audit` of a store of embeddings with a table of labels: the answers of a task file of the same rows."""

import csv
import json

import numpy as np
import pytest

import fairerclip
from fairerclip.data import simulate, stores

pytestmark = pytest.mark.slow
COLUMNS = ("--id", "image", "--target", "bird", "--sensitive", "place")
QUICK = ("--set", "n_features=100")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A store of two shards, its labels in another order, prompts and their embeddings."""
    folder = tmp_path_factory.mktemp("store")
    task = simulate("waterbirds", seed=1, scale=0.1, width=32)
    (place,) = task.sensitive.values()
    rows, X = [], np.concatenate([split.X for split in task.splits.values()])
    for name, split in task.splits.items():
        for y, s in zip(split.y, split.s[place.name], strict=True):
            rows.append((f"{len(rows)}.jpg", task.class_names[y], place.names[s], name))
    ids, half = np.array([row[0] for row in rows]), len(rows) // 2
    (folder / "store").mkdir()
    np.savez(folder / "store" / "0.npz", embeddings=X[:half], ids=ids[:half])
    np.savez(folder / "store" / "1.npz", embeddings=X[half:], ids=ids[half:])
    with (folder / "labels.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["image", "bird", "place", "part"])
        table.writerows(rows[k] for k in np.random.default_rng(0).permutation(len(rows)))
    prompts = {
        "classes": {name: f"a {name}" for name in task.class_names},
        "sensitive": {"place": {name: f"on {name}" for name in place.names}},
    }
    (folder / "prompts.json").write_text(json.dumps(prompts))
    np.save(folder / "text.npy", np.concatenate([task.text_target, place.text]))
    return folder


@pytest.fixture(scope="module")
def options(home):
    files = (
        "--labels-from",
        home / "labels.csv",
        "--prompts",
        home / "prompts.json",
        "--text",
        home / "text.npy",
    )
    return (home / "store", *files, *COLUMNS)


@pytest.fixture(scope="module")
def task_file(home):
    """The same rows as a task file."""
    from fairerclip.data import build_task, encode_prompts, from_table, load_prompts, open_store, read_labels
    from fairerclip.data import save_task as save
    from fairerclip.data.build import text_encoder

    table = read_labels(home / "labels.csv", id_column="image", columns=["bird", "place", "part"])
    labelled = from_table(table, name="labels", target="bird", sensitive=["place"], split_column="part")
    store, prompts = open_store(home / "store"), load_prompts(home / "prompts.json")
    encode = text_encoder(prompts, store, None, open_store(home / "text.npy", modality="text"))
    task, _ = build_task(labelled, store, encode_prompts(prompts, encode, average=True))
    return save(task, home / "task.npz")


@pytest.mark.parametrize(
    "given",
    [
        ("--no-tune",),
        ("--tau", "0.7", "--labels", "all"),
        ("--cv", "2"),
    ],
    ids=["auto", "all", "search"],
)
def test_the_model_and_its_figures_are_those_of_a_task_file(document, options, task_file, tmp_path, given):
    given = (*given, *QUICK)
    found = document("fit", *options, "--split", "part", "-o", tmp_path / "a", *given)
    expected = document("fit", task_file, "-o", tmp_path / "b", *given)
    assert found["reports"] == expected["reports"]
    model, same = (fairerclip.load(tmp_path / name) for name in "ab")
    np.testing.assert_array_equal(model.components_, same.components_)
    assert model.classes_.tolist() == same.classes_.tolist()


@pytest.mark.parametrize(
    "given", [("--tau", "0.7", *QUICK), ("--method", "embedding")], ids=["own", "embedding"]
)
def test_a_store_is_read_by_numbered_rows_and_never_made_an_array(run, options, tmp_path, monkeypatch, given):
    real, read = stores.EmbeddingStore._rows, []

    def watched(self, rows, convert):
        if self.path == str(options[0]):
            assert not (isinstance(rows, slice) and rows == slice(None))  # which __array__ asks for, too
            read.append(rows)
        return real(self, rows, convert)

    monkeypatch.setattr("fairerclip.model.fit_data.FEATURE_FIT_ROWS", 200)  # a sample, as of many rows
    monkeypatch.setattr(stores.EmbeddingStore, "_rows", watched)
    code, _, err = run("fit", *options, "--split", "part", "--labels", "all", "-o", tmp_path / "m", *given)
    assert code == 0, err
    assert read


def test_without_a_split_nothing_is_held_out_and_that_is_said(run, options, tmp_path):
    code, out, err = run("fit", *options, "-o", tmp_path / "m", "--tau", "0.7", *QUICK)
    assert (code, err) == (0, "")
    assert "Nothing was held out" in out


def test_a_mitigator_is_fitted_on_a_store_too(document, options, task_file, tmp_path):
    given = ("--method", "embedding", "--labels", "all")
    found = document("fit", *options, "--split", "part", "-o", tmp_path / "a", *given)
    expected = document("fit", task_file, "-o", tmp_path / "b", *given)
    assert (found["rankings"], found["reports"]) == (expected["rankings"], expected["reports"])


@pytest.mark.parametrize(
    ("command", "changes", "word"),
    [
        ("fit", {"--labels-from": None}, "--labels-from"),
        ("fit", {"--sensitive": None}, "--sensitive"),
        ("fit", {"--target": "brid"}, "'bird'"),
        ("fit", {"--method": "leace"}, "leace"),
        ("audit", {"--labels-from": None}, "--labels-from"),
        ("audit", {"--plot": "plot.png"}, "--plot"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(refused, options, tmp_path, command, changes, word):
    store, *rest = options
    given = {**dict(zip(rest[::2], rest[1::2], strict=True)), **changes}
    flags = [part for name, value in given.items() if value is not None for part in (name, value)]
    refused((command, store, "-o", tmp_path / "m.json", *flags), word)
    assert not (tmp_path / "m.json").exists()


OF_THE_RUN = {"made", "file", "seconds", "command", "notes"}


def figures(value):
    """Results without what differs from run to run and from file to file."""
    if isinstance(value, list):
        return [figures(entry) for entry in value]
    if isinstance(value, dict):
        return {name: figures(entry) for name, entry in value.items() if name not in OF_THE_RUN}
    return value


@pytest.mark.parametrize(
    "given",
    [(), ("--mitigate", "--seeds", "1", *QUICK)],
    ids=["zero-shot", "mitigated"],
)
def test_a_store_with_labels_has_the_audit_of_its_task(run, document, options, tmp_path, given):
    store, _, table, *rest = (*options, "--split", "part")
    made = run("task", "embeddings", store, "--labels", table, *rest, "-o", tmp_path / "labels.npz")
    assert made[0] == 0, made[2]
    found = document("audit", *options, "--split", "part", *given, "--permutations", "19")
    expected = document("audit", tmp_path / "labels.npz", *given, "--permutations", "19")
    assert figures(found) == figures(expected)


def test_without_targets_and_splits_the_rankings_of_all_rows_are_audited(document, options):
    place = options.index("--target")
    found = document("audit", *options[:place], *options[place + 2 :], "--permutations", "19")
    assert (found["settings"]["split"], found["task"]["rows"]) == ("train", {"train": 1180})
    assert found["retrieval"] is not None


def test_an_audited_row_that_is_not_finite_is_named(run, home, tmp_path):
    X = np.random.default_rng(0).normal(size=(4, 48))
    X[2, 1] = np.nan
    np.save(tmp_path / "rows.npy", X)
    (tmp_path / "labels.csv").write_text("place\n" + "land background\nwater background\n" * 2)
    texts = ("--prompts", home / "prompts.json", "--text", home / "text.npy", "--sensitive", "place")
    labels = ("--labels-from", tmp_path / "labels.csv", "--by-position")
    code, _, err = run("audit", tmp_path / "rows.npy", *labels, *texts)
    assert code == 2
    assert "row 2 of 4" in err
