"""`fit` and `audit` of a store of embeddings with a table of labels: the answers of a task file of the same rows."""

import csv
import json
from functools import partial

import numpy as np
import pytest
from test_cli import refused

import fairerclip
from fairerclip.data import simulate, stores
from fairerclip.data.store_rows import rows_in_memory

COLUMNS = ("--id", "image", "--target", "bird", "--sensitive", "place")
QUICK = ("--set", "n_features=100")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A store of two shards, its labels in another order, prompts and their embeddings."""
    folder = tmp_path_factory.mktemp("store")
    task = simulate("waterbirds", seed=1, scale=0.1, width=48)
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
        ("--labels", "none", "--tau", "0.7"),
        ("--cv", "2"),
    ],
    ids=["auto", "all", "none", "search"],
)
def test_the_model_and_its_figures_are_those_of_a_task_file(run, options, task_file, home, tmp_path, given):
    given = (*given, *QUICK, "--json")
    code, out, err = run("fit", *options, "--split", "part", "-o", tmp_path / "a", *given)
    assert code == 0, err
    other = run("fit", task_file, "-o", tmp_path / "b", *given)
    found, expected = json.loads(out), json.loads(other[1])
    assert found["notes"] == []
    assert found["split"] == "test"
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
    assert "train split (the rows it was fitted on)" in out


def test_a_mitigator_is_fitted_on_a_store_too(run, options, task_file, tmp_path):
    given = ("--method", "embedding", "--labels", "all", "--json")
    code, out, err = run("fit", *options, "--split", "part", "-o", tmp_path / "a", *given)
    assert code == 0, err
    expected = json.loads(run("fit", task_file, "-o", tmp_path / "b", *given)[1])
    found = json.loads(out)
    assert found["rankings"] == expected["rankings"]
    assert found["reports"] == expected["reports"]


def test_validation_rows_beyond_a_number_are_a_sample_that_is_told_of(run, options, tmp_path, monkeypatch):
    monkeypatch.setattr("fairerclip.data.build.VALIDATION_ROWS", 30)
    code, out, err = run(
        "fit", *options, "--split", "part", "-o", tmp_path / "m", "--max-seconds", "0.1", "--verbose", *QUICK
    )
    assert code == 0, err
    assert "30 of 120 validation rows are used" in out
    assert "on 30 validation rows" in out


def test_rows_that_the_table_lacks_are_told_of(run, options, home, tmp_path):
    lines = (home / "labels.csv").read_text().splitlines()
    (tmp_path / "fewer.csv").write_text("\n".join(lines[:-3]) + "\n")
    given = [tmp_path / "fewer.csv" if path == home / "labels.csv" else path for path in options]
    code, out, err = run("fit", *given, "-o", tmp_path / "m", "--tau", "0.7", *QUICK)
    assert (code, err) == (0, "")
    assert "3 embeddings have no label: " in out


@pytest.mark.parametrize(
    ("command", "changes", "fact"),
    [
        ("fit", {"--labels-from": None}, "--labels-from"),
        ("fit", {"--sensitive": None}, "--sensitive"),
        ("fit", {"--id": None}, "--id"),
        ("fit", {"--target": "place"}, "--target"),
        ("fit", {"--target": "brid"}, "'bird'"),
        ("fit", {"--method": "leace"}, "leace"),
        ("fit", {"--model": "RN50"}, "--text"),
        ("fit", {"--prompts": "gone.json"}, "gone.json"),
        ("audit", {"--labels-from": None}, "--labels-from"),
        ("audit", {"--target": "brid"}, "'bird'"),
        ("audit", {"--plot": "plot.png"}, "--plot"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(run, options, tmp_path, command, changes, fact):
    store, *rest = options
    given = {**dict(zip(rest[::2], rest[1::2], strict=True)), **changes}
    flags = [part for name, value in given.items() if value is not None for part in (name, value)]
    output = tmp_path / "m.json"
    refused(run(command, store, "-o", output, *flags), fact)
    assert not output.exists()


@pytest.mark.parametrize("command", ["fit", "audit"])
def test_a_store_in_the_place_of_a_task_is_recognised(run, home, tmp_path, command):
    refused(run(command, home / "store", "-o", tmp_path / "m.json"), "is a store of embeddings")


def test_the_rankings_of_a_store_are_measured_on_a_sample(run, options, tmp_path, monkeypatch):
    """A store may not fit in memory."""
    sample = partial(rows_in_memory, most=50)
    monkeypatch.setattr("fairerclip.auditing.sections.retrieval.rows_in_memory", sample)
    place = options.index("--target")
    given = (*options[:place], *options[place + 2 :], "--split", "part", *QUICK, "--json")
    code, out, err = run(
        "fit", *given, "-o", tmp_path / "a", "--method", "fairerclip", "--no-tune", "--labels", "none"
    )
    assert code == 0, err
    found = json.loads(out)
    assert found["split"] == "test"
    assert "(first 12 results, mean of 2 prompts)" in found["recommendation"]["sentence"]
    assert len(found["skews"]) == 2


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
    [(), pytest.param(("--mitigate", "--seeds", "1", *QUICK), marks=pytest.mark.slow)],
    ids=["zero-shot", "mitigated"],
)
def test_a_store_with_labels_has_the_audit_of_its_task(run, options, home, tmp_path, given):
    store, _, table, *rest = (*options, "--split", "part")
    made = run("task", "embeddings", store, "--labels", table, *rest, "-o", tmp_path / "labels.npz")
    assert made[0] == 0, made[2]
    given = (*given, "--permutations", "19", "--json")
    code, out, err = run("audit", *options, "--split", "part", *given)
    assert code == 0, err
    found, expected = json.loads(out), json.loads(run("audit", tmp_path / "labels.npz", *given)[1])
    assert found["notes"] == []
    assert figures(found) == figures(expected)


def test_without_targets_and_splits_the_rankings_of_all_rows_are_audited(run, options):
    place = options.index("--target")
    code, out, err = run("audit", *options[:place], *options[place + 2 :], "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["settings"]["split"], found["task"]["rows"]) == ("train", {"train": 1180})
    assert found["retrieval"] is not None


def test_an_audited_row_that_is_not_finite_is_named(run, home, tmp_path):
    X = np.random.default_rng(0).normal(size=(4, 48))
    X[2, 1] = np.nan
    np.save(tmp_path / "rows.npy", X)
    (tmp_path / "labels.csv").write_text("place\n" + "land background\nwater background\n" * 2)
    texts = ("--prompts", home / "prompts.json", "--text", home / "text.npy", "--sensitive", "place")
    code, _, err = run(
        "audit", tmp_path / "rows.npy", "--labels-from", tmp_path / "labels.csv", "--by-position", *texts
    )
    assert code == 2
    assert "row 2 of 4" in err
