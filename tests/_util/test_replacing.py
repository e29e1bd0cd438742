"""Files and folders that are replaced: old or new, whole, at every moment, for every reader, whoever else writes."""

import errno
import json
import os
import shutil
import signal
import struct
import tempfile
import threading
import time
import tracemalloc
from pathlib import Path

import pytest
from faults import killed_before

from fairerclip import FairerCLIP, load
from fairerclip._util import exchange, files, replace_folder
from fairerclip._util.files import (
    atomic_file,
    atomic_folder,
    check_folder,
    check_free,
    sole_use,
    write_folder,
)
from fairerclip.errors import (
    ModelFileError,
    NotOneStepWarning,
    OutputBusyError,
    OutputError,
    OutputExistsError,
)
from fairerclip.model.contents import MANIFEST, TENSORS
from forged import forge
from sample_rows import Embeddings
from small_models import small

SAVED = Path(__file__).parents[1] / "net" / "saved"
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture(scope="module")
def models():
    """Two that can be told apart."""
    e = Embeddings(n=80, p=6)
    given = {"sensitive_features": e.s, "text": e.text}
    return [
        small(n_features=12).fit(e.X, e.y + first, classes=[first, first + 1], **given) for first in (0, 7)
    ]


def content(folder):
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def names(folder):
    return sorted(file.name for file in folder.iterdir())


# Killed ---------------------------------------------------------------------------------------------


def every_kill(path, before, action, good, *, least):
    """Kill an action before each of its changes; ``good`` are the contents that may then be at the path."""
    number = 0
    while True:
        number += 1
        before()
        killed = killed_before(number, action)
        found = content(path) if path.is_dir() else path.read_bytes() if path.exists() else None
        assert found in (good if killed else good[-1:]), number
        action() if killed else None  # the next one succeeds, and cleans up
        assert (content(path) if path.is_dir() else path.read_bytes()) == good[-1], number
        assert names(path.parent) == [path.name], number
        if not killed:
            assert number > least
            return


@needs_fork
def test_a_model_that_is_replaced_is_old_or_new_whenever_the_process_is_killed(models, tmp_path):
    old, new = (content(model.save(tmp_path / name)) for model, name in zip(models, "ab", strict=True))
    others = {"notes.txt": b"mine", os.path.join("plots", "a.svg"): b"<svg/>"}
    path = tmp_path / "here" / "model"

    def before():
        shutil.rmtree(path.parent, ignore_errors=True)
        models[0].save(path)
        (path / "plots").mkdir()
        for name, text in others.items():
            (path / name).write_bytes(text)

    every_kill(
        path, before, lambda: models[1].save(path, overwrite=True), [old | others, new | others], least=15
    )


@needs_fork
def test_a_folder_of_tables_is_old_or_new_as_a_whole_whenever_the_process_is_killed(tmp_path):
    path = tmp_path / "tables"
    old, new, other = {"a.csv": b"1", "b.csv": b"2"}, {"b.csv": b"3", "c.csv": b"4"}, {"d.csv": b"mine"}

    def before():
        shutil.rmtree(path, ignore_errors=True)
        write_folder(path, old | other, overwrite=False)

    def action():
        write_folder(path, new, overwrite=True, ours=["a.csv", "b.csv", "c.csv"])

    every_kill(path, before, action, [old | other, new | other], least=10)


@needs_fork
def test_what_is_new_appears_whole_or_not_at_all_whenever_the_process_is_killed(tmp_path):
    path = tmp_path / "new"

    def remove():
        shutil.rmtree(path, ignore_errors=True)

    good = [None, {"a": b"1", "b": b"2"}]

    def action():
        # One that was killed after it was put in place has to be told to go on.
        write_folder(path, good[1], overwrite=path.exists())

    every_kill(path, remove, action, good, least=8)


@needs_fork
def test_a_file_is_old_or_new_whenever_the_process_is_killed(tmp_path):
    path = tmp_path / "t.txt"

    def action():
        with atomic_file(path, overwrite=True) as handle:
            handle.write(b"new")

    every_kill(path, lambda: path.write_bytes(b"old"), action, [b"old", b"new"], least=4)


@needs_fork
def test_what_a_killed_writer_left_is_removed_and_what_is_not_ours_stays(tmp_path):
    mine = [".model.tmp", ".model.v2.0123456789abcdef.tmp", ".model.xyz.tmp", "model.0123456789abcdef.tmp"]
    for name in mine:
        (tmp_path / name).write_text("mine")
    path = tmp_path / "model"
    assert killed_before(6, lambda: write_folder(path, {"a": b"1"}, overwrite=False))
    assert len(names(tmp_path)) == len(mine) + 2  # a lock and half a folder
    write_folder(path, {"a": b"1"}, overwrite=False)
    assert names(tmp_path) == sorted([*mine, "model"])


# Others at the same time ----------------------------------------------------------------------------


@needs_fork
def test_readers_of_a_model_that_is_replaced_all_the_time_see_the_old_or_the_new_one(models, tmp_path):
    path = models[0].save(tmp_path / "model")
    wanted = [model.predict(model.prompts_).tolist() for model in models]
    child = os.fork()
    if child == 0:
        try:
            while True:
                for model in models:
                    model.save(path, overwrite=True)
        finally:
            os._exit(1)
    seen = []
    try:
        for _ in range(250):
            model = FairerCLIP.load(path)
            seen.append(wanted.index(model.predict(model.prompts_).tolist()))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert set(seen) == {0, 1}


@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize("locks", [True, False])
def test_of_many_that_take_a_free_name_exactly_one_succeeds(tmp_path, monkeypatch, kind, locks):
    if not locks:
        monkeypatch.setattr(files, "_lock", lambda path: None)

    def write(path, number):
        if kind == "folder":
            write_folder(path, {"a": b"%d" % number}, overwrite=False)
        else:
            with atomic_file(path, overwrite=False) as handle:
                handle.write(b"%d" % number)

    for turn in range(5):
        path, won, lost = tmp_path / str(turn), [], []
        barrier = threading.Barrier(4)

        def contend(number, path=path, won=won, lost=lost, barrier=barrier):
            barrier.wait()
            try:
                write(path, number)
                won.append(number)
            except (OutputExistsError, OutputBusyError) as error:
                lost.append(str(error))

        threads = [threading.Thread(target=contend, args=[number]) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(won), len(lost)) == (1, 3)
        assert (path / "a" if kind == "folder" else path).read_bytes() == b"%d" % won[0]
    assert names(tmp_path) == [str(turn) for turn in range(5)]


@pytest.mark.parametrize("known", [True, False])
def test_a_name_is_taken_only_if_it_is_free(tmp_path, monkeypatch, known):
    if not known:
        monkeypatch.setattr(exchange, "_rename", lambda *rest: False)
    for kind in ("file", "folder"):
        (tmp_path / kind).write_text("new") if kind == "file" else (tmp_path / kind).mkdir()
        (tmp_path / "empty").mkdir()
        with pytest.raises(FileExistsError):
            exchange.rename_to_free(tmp_path / kind, tmp_path / "empty")
        (tmp_path / "empty").rmdir()
        exchange.rename_to_free(tmp_path / kind, tmp_path / "free")
        assert names(tmp_path) == ["free"]
        (tmp_path / "free").unlink() if kind == "file" else (tmp_path / "free").rmdir()


def test_an_empty_folder_that_comes_up_meanwhile_is_not_replaced(tmp_path):
    path = tmp_path / "model"
    with pytest.raises(OutputExistsError, match="exists"), atomic_folder(path):
        path.mkdir()
    assert names(tmp_path) == ["model"]
    assert names(path) == []


def test_a_second_writer_is_told(tmp_path):
    path = tmp_path / "model"
    with atomic_folder(path, overwrite=True) as fresh:
        (fresh / "a").write_text("first")
        with pytest.raises(OutputBusyError, match="model is being written by another process; wait"):
            write_folder(path, {"a": b"second"}, overwrite=True)
    assert content(path) == {"a": b"first"}
    with (
        sole_use(tmp_path / "runs"),
        pytest.raises(OutputBusyError, match="runs is being"),
        sole_use(tmp_path / "runs"),
    ):
        pass
    assert names(tmp_path) == ["model"]


def test_what_somebody_puts_into_the_folder_meanwhile_survives(tmp_path, monkeypatch):
    path = tmp_path / "model"
    write_folder(path, {"a": b"old", "edited.txt": b"1", "deep.txt": b"d"}, overwrite=False)

    def late(one, other):
        (path / "late.txt").write_bytes(b"late")
        (path / "edited.txt").unlink()  # as an editor saves
        (path / "edited.txt").write_bytes(b"22")
        return exchange.swap(one, other)

    monkeypatch.setattr(replace_folder, "swap", late)
    write_folder(path, {"a": b"new"}, overwrite=True)
    assert content(path) == {"a": b"new", "edited.txt": b"22", "deep.txt": b"d", "late.txt": b"late"}


# Where one step is not possible ---------------------------------------------------------------------


def refuse(*rest):
    return False


def test_without_an_exchange_files_are_replaced_one_by_one_with_a_warning(models, tmp_path, monkeypatch):
    monkeypatch.setattr(replace_folder, "swap", refuse)
    path = models[0].save(tmp_path / "model")
    (path / "notes.txt").write_text("mine")
    placed = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: placed.append(Path(b).name) or replace(a, b))
    with pytest.warns(NotOneStepWarning, match="model cannot be replaced in one step"):
        models[1].save(path, overwrite=True)
    assert sorted(placed[:-1]) == ["README.md", TENSORS]
    assert placed[-1] == MANIFEST
    assert FairerCLIP.load(path).classes_.tolist() == models[1].classes_.tolist()
    assert (path / "notes.txt").read_text() == "mine"
    with pytest.warns(NotOneStepWarning):
        write_folder(path, {"a": b"1"}, overwrite=True, ours=[TENSORS, MANIFEST, "README.md"])
    assert names(path) == ["a", "notes.txt"]
    assert names(tmp_path) == ["model"]


def test_the_folder_that_we_are_in_is_not_taken_away(tmp_path, monkeypatch):
    path = tmp_path / "out"
    write_folder(path, {"a": b"1"}, overwrite=False)
    monkeypatch.chdir(path)
    with pytest.warns(NotOneStepWarning):
        write_folder(path, {"a": b"2"}, overwrite=True)
    assert Path("a").read_bytes() == b"2"


def test_where_files_cannot_be_linked_they_are_copied(tmp_path, monkeypatch):
    def no_links(*rest, **options):
        raise OSError(errno.EPERM, "Operation not permitted")

    path = tmp_path / "model"
    write_folder(path, {"a": b"1", "notes.txt": b"mine"}, overwrite=False)
    (path / "link").symlink_to("notes.txt")
    monkeypatch.setattr(os, "link", no_links)
    write_folder(path, {"a": b"2"}, overwrite=True)
    assert content(path) == {"a": b"2", "notes.txt": b"mine", "link": b"mine"}
    assert (path / "link").is_symlink()


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


@pytest.mark.parametrize("kind", ["fairerclip", "mitigator", "baseline"])
def test_a_sparse_file_of_many_gigabytes_is_refused_at_once(tmp_path, kind):
    folder = shutil.copytree(SAVED / kind, tmp_path / "model")
    os.truncate(folder / TENSORS, 7 << 30)
    tracemalloc.start()
    started = time.perf_counter()
    try:
        with pytest.raises(ModelFileError, match=r"7516192768"):
            load(folder)
        assert time.perf_counter() - started < 1
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()


def test_a_header_of_more_than_a_megabyte_is_refused(tmp_path):
    folder = shutil.copytree(SAVED / "fairerclip", tmp_path / "model")
    raw = json.dumps({f"features.{i:07d}": {} for i in range(60_000)}).encode()
    forge(folder, blob=struct.pack("<Q", len(raw)) + raw, entries={})
    with pytest.raises(ModelFileError, match=f"a header of {len(raw)} bytes, more than 1048576"):
        load(folder)


# What is the user's ---------------------------------------------------------------------------------


def replace_some(folder):
    with atomic_folder(folder, overwrite=True, ours=["old.csv"]) as fresh:
        (fresh / "a.csv").write_text("new")
        (fresh / "sub").mkdir()
        (fresh / "sub" / "b").write_text("new")


@pytest.mark.parametrize("working", [False, True])
def test_a_folder_or_link_in_the_place_of_a_file_is_not_lost(tmp_path, monkeypatch, working):
    for name, make in {
        "a.csv": lambda p: (p.mkdir(), (p / "mine.txt").write_text("mine")),
        "old.csv": lambda p: (p.mkdir(), (p / "mine.txt").write_text("mine")),
        "sub": lambda p: p.symlink_to(tmp_path / "elsewhere", target_is_directory=True),
    }.items():
        folder = tmp_path / f"{name}-{working}"
        folder.mkdir()
        (tmp_path / "elsewhere").mkdir(exist_ok=True)
        make(folder / name)
        if working:
            monkeypatch.chdir(folder)
        with pytest.raises(OutputExistsError, match="is not a plain .*; remove it"):
            replace_some(folder)
        assert names(folder) == [name]
        assert names(tmp_path / "elsewhere") == []
        if name != "sub":
            assert (folder / name / "mine.txt").read_text() == "mine"


def test_having_a_folder_alone_removes_nothing_but_what_a_writer_left(tmp_path):
    runs = tmp_path / "runs"
    (runs / ".data.lock").mkdir(parents=True)
    for name in (".poetry.lock", ".run.json.0123456789abcdef.tmp", ".run.json.lock", "run.json"):
        (runs / name).write_text("" if name == ".run.json.lock" else "x")
    with sole_use(runs):
        pass
    assert names(runs) == [".data.lock", ".poetry.lock", "run.json"]


def test_a_lock_that_is_none_of_ours_is_told_before_the_work(tmp_path):
    for name, make in {
        "pipe": os.mkfifo,
        "folder": os.mkdir,
        "link": lambda p: os.symlink("nowhere", p),
    }.items():
        make(tmp_path / f".{name}.lock")
        with pytest.raises(OutputError, match="is not a lock file of fairerclip; remove or rename it"):
            check_free(tmp_path / name, overwrite=False)


def test_the_folder_that_we_are_in_may_be_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.txt").write_text("mine")
    check_folder(Path("."), overwrite=True)
    with pytest.warns(NotOneStepWarning):
        write_folder(Path("."), {"a": b"1"}, overwrite=True)
    assert content(tmp_path) == {"a": b"1", "mine.txt": b"mine"}


def test_names_too_long_for_a_temporary_are_told_before_the_work(tmp_path):
    check_free(tmp_path / ("x" * 230), overwrite=False)
    with pytest.raises(OutputError, match="names may have 230 bytes, got one of 231"):
        check_free(tmp_path / ("x" * 231), overwrite=False)
