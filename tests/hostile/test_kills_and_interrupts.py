"""Commands that are killed or interrupted: what they write is old or new as a whole, and Ctrl-C is one line."""

import io
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from fairerclip import FairerCLIP
from fairerclip.cli.main import main
from fairerclip.cli.signals import LATER, Stopped, Stops
from fairerclip.data import save_task, simulate
from faults import killed_before

pytestmark = [pytest.mark.slow, pytest.mark.linux]
FEW = ("--no-tune", "--set", "n_features=30")


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    task = simulate("waterbirds", seed=1, scale=0.03, width=32)
    return save_task(task, tmp_path_factory.mktemp("task") / "t.npz")


def fit(task, output, tau):
    return ("fit", task, "-o", output, "--tau", tau, *FEW, "--overwrite")


def temporaries(folder):
    return [file for file in folder.rglob("*") if file.name.startswith(".") or file.suffix == ".tmp"]


def every_kill(action, before, look, old, new):
    """Kill an action before each of its changes to files: it leaves the old or the new, and some are run again."""
    number, seen, killed = 0, [], True
    while killed:
        folder = Path(shutil.copytree(before, before.with_name(f"{number}")))
        number += 1
        killed = killed_before(number, lambda folder=folder: action(folder))
        seen.append(look(folder))
        assert seen[-1] in (old, new)
        if number % 4 == 1 or not killed:
            action(folder)
            assert look(folder) == new
            assert temporaries(folder) == []
    assert number > 4
    assert (seen[0], seen[-1]) == (old, new)


def test_a_model_is_old_or_new_whenever_fit_is_killed(run, task, tmp_path):
    def action(folder, tau=0.7):
        assert run(*fit(task, folder / "m", tau))[0] == 0

    action(tmp_path / "before", 0.2)
    every_kill(action, tmp_path / "before", lambda folder: FairerCLIP.load(folder / "m").tau, 0.2, 0.7)


def test_answers_are_old_or_new_whenever_apply_is_killed(run, task, tmp_path):
    def action(folder, model="new"):
        assert run("apply", tmp_path / model, task, "-o", folder / "a.npz", "--overwrite")[0] == 0

    def look(folder):
        with np.load(folder / "a.npz") as arrays:
            return arrays["score"].tobytes()

    for model, tau in (("new", 0.9), ("old", 0.2)):
        assert run(*fit(task, tmp_path / model, tau))[0] == 0
        (tmp_path / f"{model}-answers").mkdir()
        action(tmp_path / f"{model}-answers", model)
    old, new = (look(tmp_path / f"{model}-answers") for model in ("old", "new"))
    assert old != new
    every_kill(action, tmp_path / "old-answers", look, old, new)


def heeds(process):
    """Whether the command runs and handles SIGTERM; Python alone does not."""
    status = Path(f"/proc/{process}/status").read_text().splitlines()
    caught = next((int(line.split()[1], 16) for line in status if line.startswith("SigCgt")), -1)
    return bool(caught & 1 << (signal.SIGTERM - 1))


def interrupted(arguments, seconds):
    """Interrupt a command in a fork after so many seconds: its exit code and what it said."""
    with tempfile.TemporaryFile("w+") as said, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork of a process with threads
        child = os.fork()
        if not child:
            code = 1
            try:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                sys.stdout, sys.stderr = io.StringIO(), said
                sys.argv = ["fairerclip", *map(str, arguments)]
                main()
                code = 0
            except SystemExit as end:
                code = end.code or 0
            finally:
                said.flush()
                os._exit(code)
        ended = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while not heeds(child) and os.waitid(os.P_PID, child, ended) is None:
            time.sleep(0.001)
        time.sleep(seconds)
        os.kill(child, signal.SIGINT)
        _, status = os.waitpid(child, 0)
        said.seek(0)
        return os.waitstatus_to_exitcode(status), said.read()


def test_an_interrupt_of_fit_is_one_line_and_leaves_nothing_half_written(run, task, tmp_path):
    began = time.monotonic()
    assert run(*fit(task, tmp_path / "m", 0.2))[0] == 0
    usual, rng, codes = time.monotonic() - began, random.Random(0), []
    for number in range(12):
        code, said = interrupted(fit(task, tmp_path / f"{number}", 0.2), rng.uniform(0, usual))
        codes.append(code)
        if code == 0:
            FairerCLIP.load(tmp_path / f"{number}")
            continue
        assert (code, said) == (130, "fairerclip: interrupted\n")
        if (tmp_path / f"{number}").exists():  # it came after the last file was in place
            FairerCLIP.load(tmp_path / f"{number}")
    assert 130 in codes
    assert temporaries(tmp_path) == []


def group(number):
    """Processes of a group that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue  # it is gone
        if int(its_group) == number and state != "Z":
            found.append(stat.parent.name)
    return found


def test_an_interrupt_of_compare_ends_its_workers_and_keeps_finished_runs(task, tmp_path):
    command = [sys.executable, "-c", "from fairerclip.cli.main import main; main()", "compare", str(task)]
    command += ["--methods", "zero-shot,orth-proj,leace", "--jobs", "2", "-o", str(tmp_path)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        while process.poll() is None and not list(tmp_path.glob("runs/*.json")):
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
        runs = tmp_path / "runs"
        told = f"finished runs are kept in {runs}: run the same command to continue"
        assert (process.returncode, said) == (130, f"fairerclip: interrupted; {told}\n")
        deadline = time.monotonic() + 20
        while group(process.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert group(process.pid) == []
    finally:
        if group(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
    assert not (tmp_path / "comparison.json").exists()
    assert temporaries(tmp_path) == []


def test_an_interrupt_that_comes_in_a_finalizer_is_raised_later(monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    class Finalized:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    def lose_it():
        thing = Finalized()
        del thing
        time.sleep(40 * LATER)

    stops = Stops()
    try:
        stops.handle()
        with pytest.raises(Stopped):
            lose_it()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
