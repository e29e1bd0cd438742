"""Files and folders that are replaced: old or new, whole, at every moment, for every reader."""

import errno
import os
import shutil
import signal
import tempfile
from pathlib import Path

import numpy as np
import pytest

import fairerclip
from fairerclip import FairerCLIP
from fairerclip._util.files import atomic_file, check_folder, check_free, write_folder
from fairerclip.baselines import ZeroShot
from fairerclip.errors import ModelFileError, OutputError, OutputExistsError
from fairerclip.model.contents import CARD, MANIFEST, TENSOR_FILES, TENSORS
from faults import killed_before
from forged import forge

SAVED = Path(__file__).parents[1] / "net" / "saved"
ROWS = np.eye(4)


@pytest.fixture(scope="module")
def models():
    """Two that can be told apart."""
    return [ZeroShot().fit(ROWS, text=dict(zip("abcd", T, strict=True))) for T in (ROWS, ROWS[::-1])]


def content(folder):
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def names(folder):
    return sorted(file.name for file in folder.iterdir())


def answer(path):
    return "".join(fairerclip.load(path).predict(ROWS))


# Killed ---------------------------------------------------------------------------------------------


def every_kill(before, action, check, *, least):
    """Kill an action before each of its changes, and run it again; ``check`` is told whether it has ended."""
    number, killed = 0, True
    while killed:
        number += 1
        before()
        killed = killed_before(number, action)
        check(not killed)
        if killed:
            action()
            check(True)
    assert number > least


@pytest.mark.slow
@pytest.mark.linux
@pytest.mark.parametrize("saved", [1, 2])
def test_a_model_that_is_replaced_is_old_or_new_whenever_the_process_is_killed(models, tmp_path, saved):
    path = tmp_path / "here" / "model"

    def before():
        shutil.rmtree(path.parent, ignore_errors=True)
        for _ in range(saved):  # the file of tensors has each of its two names
            models[0].save(path, overwrite=True)
        (path / "plots").mkdir()
        (path / "plots" / "a.svg").write_bytes(b"mine")

    def check(ended):
        assert answer(path) in (["dcba"] if ended else ["abcd", "dcba"])
        assert (path / "plots" / "a.svg").read_bytes() == b"mine"
        if ended:
            assert [name for name in names(path) if name not in TENSOR_FILES] == [CARD, MANIFEST, "plots"]
            assert len(names(path)) == 4

    every_kill(before, lambda: models[1].save(path, overwrite=True), check, least=10)


@pytest.mark.slow
@pytest.mark.linux
def test_a_new_model_appears_whole_or_not_at_all_whenever_the_process_is_killed(models, tmp_path):
    path = tmp_path / "here" / "model"

    def check(ended):
        if ended or path.exists():
            assert answer(path) == "dcba"
            assert len(names(path)) == 3
        if ended:
            assert names(path.parent) == ["model"]

    def action():
        # One that was killed after it was put in place has to be told to go on.
        models[1].save(path, overwrite=path.exists())

    def before():
        shutil.rmtree(path.parent, ignore_errors=True)

    every_kill(before, action, check, least=10)


@pytest.mark.linux
def test_a_file_is_old_or_new_whenever_the_process_is_killed(tmp_path):
    path = tmp_path / "t.txt"

    def action():
        with atomic_file(path, overwrite=True) as handle:
            handle.write(b"new")

    def check(ended):
        assert path.read_bytes() in ([b"new"] if ended else [b"old", b"new"])
        assert not ended or names(tmp_path) == ["t.txt"]

    every_kill(lambda: path.write_bytes(b"old"), action, check, least=4)


@pytest.mark.linux
def test_what_a_killed_writer_left_is_removed_and_what_is_not_ours_stays(tmp_path):
    mine = [".model.tmp", ".model.v2.0123456789abcdef.tmp", ".model.xyz.tmp", "model.0123456789abcdef.tmp"]
    for name in mine:
        (tmp_path / name).write_text("mine")
    path = tmp_path / "model"
    assert killed_before(4, lambda: write_folder(path, {"a": b"1"}, overwrite=False))
    assert len(names(tmp_path)) == len(mine) + 1  # half a folder
    write_folder(path, {"a": b"1"}, overwrite=False)
    assert names(tmp_path) == sorted([*mine, "model"])


@pytest.mark.slow
@pytest.mark.linux
def test_readers_of_a_model_that_is_replaced_all_the_time_see_the_old_or_the_new_one(models, tmp_path):
    path = models[0].save(tmp_path / "model")
    child = os.fork()
    if child == 0:
        try:
            while True:
                for model in models:
                    model.save(path, overwrite=True)
        finally:
            os._exit(1)
    try:
        seen = {answer(path) for _ in range(250)}
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert seen == {"abcd", "dcba"}


# What is the user's ---------------------------------------------------------------------------------


def test_tables_of_an_earlier_call_are_removed_and_other_files_stay(tmp_path):
    path = tmp_path / "tables"
    write_folder(path, {"a.csv": b"1", "b.csv": b"2"}, overwrite=False)
    (path / "mine.csv").write_bytes(b"mine")
    write_folder(path, {"b.csv": b"3", "c.csv": b"4"}, overwrite=True, ours=["a.csv", "b.csv", "c.csv"])
    assert content(path) == {"b.csv": b"3", "c.csv": b"4", "mine.csv": b"mine"}


def test_a_folder_in_the_place_of_a_file_is_not_lost_and_nothing_is_replaced(tmp_path):
    path = tmp_path / "tables"
    write_folder(path, {"a.csv": b"1"}, overwrite=False)
    (path / "b.csv").mkdir()
    with pytest.raises(OutputExistsError, match="b.csv"):
        write_folder(path, {"a.csv": b"2", "b.csv": b"2"}, overwrite=True)
    assert content(path) == {"a.csv": b"1"}


def test_a_manifest_names_one_of_two_files_and_no_path(models, tmp_path):
    path = models[0].save(tmp_path / "model")
    shutil.copy(path / TENSORS, tmp_path / "elsewhere.safetensors")
    forge(path, tensor_file="../elsewhere.safetensors")
    with pytest.raises(ModelFileError, match="tensor_file"):
        fairerclip.load(path)


# Refused --------------------------------------------------------------------------------------------


def test_links_are_refused(models, tmp_path):
    path = models[0].save(tmp_path / "model")
    before = content(path)
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(OutputExistsError, match="left alone"):
        models[1].save(tmp_path / "link", overwrite=True)
    with pytest.raises(OutputExistsError, match="is a link"):
        write_folder(tmp_path / "link", {"a": b"1"}, overwrite=True)
    (tmp_path / "file").symlink_to(path / MANIFEST)
    with (
        pytest.raises(OutputExistsError, match="is a link or a device"),
        atomic_file(tmp_path / "file", overwrite=True),
    ):
        pass
    assert content(path) == before
    (path / TENSORS).rename(tmp_path / "elsewhere")
    (path / TENSORS).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputExistsError, match="left alone"):
        models[1].save(path, overwrite=True)


@pytest.mark.parametrize("check", [check_free, check_folder])
def test_what_could_not_be_written_is_refused_before_the_work(tmp_path, monkeypatch, check):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="cannot be written: .*file is not a folder"):
        check(tmp_path / "file" / "deep" / "out", False)
    for path in (Path("/"), tmp_path / "a\0b"):
        with pytest.raises(OutputError, match="give the name of a"):
            check(path, True)
    check(tmp_path / "new" / "out", False)
    assert names(tmp_path) == ["file"]

    def full(**options):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(OutputError, match="out cannot be written: Read-only file system; check permissions"):
        check(tmp_path / "out", False)


def test_what_the_system_says_against_writing_is_our_error(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="cannot be written"):
        write_folder(tmp_path / "file" / "out", {}, overwrite=False)
    with (
        pytest.raises(OutputError, match="cannot be written"),
        atomic_file(tmp_path / "file" / "out", overwrite=False),
    ):
        pass

    def full(path):
        with atomic_file(path, overwrite=False):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OutputError, match="out cannot be written: No space left on device") as caught:
        full(tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert names(tmp_path) == ["file"]


def test_a_folder_that_may_not_be_looked_into_is_our_error(tmp_path, monkeypatch):
    def forbid(path):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "is_dir", forbid)
    with pytest.raises(ModelFileError, match="model cannot be read: Permission denied"):
        FairerCLIP.load(tmp_path / "model")
    with pytest.raises(OutputError, match="out cannot be written: Permission denied"):
        check_free(tmp_path / "out", False)
    monkeypatch.undo()
    monkeypatch.setattr(Path, "exists", forbid)
    with pytest.raises(OutputError, match="out cannot be written: Permission denied"):
        check_folder(tmp_path / "out", False)


# Sizes ----------------------------------------------------------------------------------------------
