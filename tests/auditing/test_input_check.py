"""`check` says what is in a store or a task, what is wrong with it, and which commands can use it."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

import fairerclip
from fairerclip.data import Sentences, Split, StoreWriter, save_task, simulate
from fairerclip.data.io.npz import write_npz
from fairerclip.data.provenance import Provenance
from fairerclip.errors import StoreError, TaskFileError
from fairerclip.experiment import Experiment
from small_models import small

ROWS = np.random.default_rng(0).normal(size=(12, 6)).astype(np.float32)
IDS = [f"{i}.jpg" for i in range(12)]


@pytest.fixture(scope="module")
def birds():
    return simulate("waterbirds", seed=1, scale=0.05, width=32)


def arrays(**changes):
    y, s = np.arange(12) % 2, np.arange(12) // 6
    made = {"image_train": ROWS, "y_train": y, "s_train": s, "image_test": ROWS, "y_test": y, "s_test": s}
    made |= {"text_target": ROWS[:2], "class_names": np.array(["cat", "dog"])}
    return {key: value for key, value in (made | changes).items() if value is not None}


def checked(run, path, *, code):
    """The JSON document of a check, and the lines of one without --json, which agree on the exit code."""
    came, out, err = run("check", path, "--json")
    assert came == code, (out, err)
    plain, lines, _ = run("check", path)
    assert plain == code
    return json.loads(out), lines


def test_a_good_task_is_described_from_its_arrays(run, tmp_path, birds):
    queries = Sentences(birds.text_target, ("a nest", "a bird that dives"))
    file = save_task(replace(birds, queries=queries), tmp_path / "t.npz")
    found, lines = checked(run, file, code=0)
    assert (found["kind"], found["usable"], found["problems"]) == ("task", True, [])
    told = found["task"]
    assert {name: split["rows"] for name, split in told["splits"].items()} == {
        name: len(split) for name, split in birds.splits.items()
    }
    assert told["classes"] == {"names": ["landbird", "waterbird"], "prompts": True}
    assert told["sentences"] == {"queries": 2}
    y, s = birds.test.y, birds.test.sensitive()
    for c, class_name in enumerate(birds.class_names):
        for v, value in enumerate(birds.sensitive["s"].names):
            n = int(((y == c) & (s == v)).sum())
            assert told["cells"]["s"]["test"][f"{class_name} × {value}"] == n
    predicted = (birds.test.X @ birds.text_target.T).argmax(axis=1)  # rows of unit length
    share = next(a for a in told["agreement"] if (a["of"], a["split"]) == ("class", "test"))
    assert share["accuracy"] == pytest.approx(np.mean(predicted == y))
    assert f"class {100 * share['accuracy']:.1f} %" in lines
    assert found["rows"]["rows"] == sum(map(len, birds.splits.values()))


LACKS = [(), ("text",), ("sensitive text",), ("y",), ("y", "sensitive text"), ("s",)]


@pytest.mark.parametrize("gone", LACKS, ids=lambda gone: " and ".join(gone) or "nothing")
def test_commands_that_are_told_to_run_are_those_that_do(tmp_path, birds, gone):
    task = birds
    if "text" in gone:
        task = replace(task, text_target=None, variants=None)
    if "sensitive text" in gone:
        task = replace(task, sensitive={"s": replace(task.sensitive["s"], text=None)})
    splits = {
        name: replace(split, y=None if "y" in gone else split.y, s={} if "s" in gone else split.s)
        for name, split in task.splits.items()
    }
    task = replace(task, splits=splits)
    found = fairerclip.check(save_task(task, tmp_path / "t.npz"))
    told = {
        c.command.split("--labels ")[1].split()[0]: c.reason for c in found.commands if " fit " in c.command
    }
    for labels, reason in told.items():
        experiment = Experiment.of(task)
        try:
            if experiment.is_gallery():
                X, given = experiment.mitigator_arguments(labels)
                fairerclip.EmbeddingMitigator().fit(X, **given)
            else:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    experiment.fit(small(n_features=16, refine=False), labels)
            came = None
        except fairerclip.errors.FairerClipError as error:
            came = str(error)
        assert came == reason, labels
    audit = next(c for c in found.commands if " audit " in c.command)
    assert (audit.reason is None) == ("s" not in gone)


def test_damaged_rows_of_a_task_are_reasons_and_all_are_named(run, tmp_path):
    bad, zero = ROWS.copy(), ROWS.copy()
    bad[[3, 5]] = np.nan
    zero[7] = 0
    file = write_npz(tmp_path / "t.npz", arrays(image_train=bad, image_test=zero))
    found, _ = checked(run, file, code=1)
    assert (found["usable"], found["task"]) == (False, None)
    assert found["error"]["exit_code"] == 1
    nan, none = sorted(found["problems"], reverse=True)
    assert "image_train" in nan
    assert "2 rows: 3, 5" in nan
    assert "image_test" in none
    assert "1 rows: 7" in none


def test_unknown_arrays_small_cells_and_contradicting_prompts_are_notes(tmp_path, birds):
    turned = replace(birds, text_target=birds.text_target[::-1].copy(), variants=None)
    few = replace(turned, splits={**turned.splits, "val": turned.val.take(slice(4))})
    found = fairerclip.check(save_task(replace(few, extra={"notes": np.arange(3)}), tmp_path / "t.npz"))
    assert found.usable
    for words in ("'notes'", "of test in another order", "Fewer than 5 validation rows"):
        assert any(words in note for note in found.notes), words
    noise = replace(turned, text_target=np.random.default_rng(3).normal(size=(2, 32)).astype(np.float32))
    noise = replace(noise, splits={"test": Split(birds.test.X, np.arange(len(birds.test)) % 2, birds.test.s)})
    chance = fairerclip.check(save_task(noise, tmp_path / "n.npz"))
    assert any("no better than chance" in note for note in chance.notes)


def test_a_store_is_described(run, tmp_path):
    made = Provenance("ViT-X", "abc", "resize", "library 1", False, 6)
    with StoreWriter(tmp_path / "emb", width=6, provenance=made) as writer:
        writer.append(IDS, ROWS)
        writer.skip("bad.jpg", "no image")
        writer.finish()
    found, lines = checked(run, tmp_path / "emb", code=0)
    assert (found["kind"], found["task"], found["problems"]) == ("store", None, [])
    assert (found["rows"]["rows"], found["rows"]["provenance"]["model"]) == (12, "ViT-X")
    assert any("bad.jpg" in note for note in found["notes"])
    assert "12 rows of width 6" in lines


@pytest.mark.parametrize("name", ["gone.npz", "text.txt", "cut.npz", "folder"])
def test_what_cannot_be_read_is_one_line(run, tmp_path, name):
    (tmp_path / "folder").mkdir()
    for file in ("text.txt", "cut.npz"):
        (tmp_path / file).write_bytes(b"PK\x03\x04")
    code, out, err = run("check", tmp_path / name)
    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1
    code, out, _ = run("check", tmp_path / name, "--json")
    assert (code, json.loads(out)["error"]["exit_code"]) == (2, 2)
    with pytest.raises((StoreError, TaskFileError)):
        fairerclip.check(tmp_path / name)
