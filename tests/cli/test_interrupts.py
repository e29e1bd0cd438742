"""Ctrl-C and SIGTERM: one line, the right exit code, no process left, nothing half-written, and work goes on later."""

import signal
import sys
import time

import pytest

from fairerclip.cli.signals import LATER, Stopped, Stops
from interrupts import Command, half_written, times_of

pytestmark = pytest.mark.linux
SECONDS = 5.0
"""In which workers are to be gone: the two seconds of an idle machine, and some for one that runs other tests."""


def ended_well(end, code=130):
    assert end.faults(code) == []
    assert end.workers < SECONDS


def compare(task, output):
    return Command("compare", task, "--methods", "zero-shot,orth-proj,leace", "--jobs", "2", "-o", output)


def test_a_comparison_that_is_interrupted_leaves_nothing_behind_and_goes_on_later(task, tmp_path):
    runs = tmp_path / "runs"
    command = compare(task, tmp_path)
    command.until(lambda: times_of(runs) and command.workers())
    kept = times_of(runs)
    ended_well(end := command.stop())
    assert (
        end.err
        == f"fairerclip: interrupted; finished runs are kept in {runs}: run the same command to continue\n"
    )
    assert not half_written(tmp_path)
    assert not (tmp_path / "comparison.json").exists()
    again = compare(task, tmp_path).finish()
    assert (again.code, again.err) == (0, "")
    now = times_of(runs)
    assert len(now) == 3
    assert {file: now[file] for file in kept} == kept


def test_an_interrupt_while_workers_start_is_one_line(task, tmp_path):
    command = compare(task, tmp_path)
    command.until(command.workers)
    ended_well(command.stop(group=True))


def test_sigterm_ends_the_workers_too(task, tmp_path):
    command = compare(task, tmp_path)
    command.until(lambda: command.workers() == 2)
    ended_well(end := command.stop(signal.SIGTERM), 143)
    assert end.err.startswith("fairerclip: terminated")


@pytest.mark.parametrize(("jobs", "group"), [(2, True), (1, False)])
def test_a_reproduction_that_is_interrupted_leaves_nothing_behind(tmp_path, jobs, group):
    arguments = ("reproduce", "ablation-no-labels", "--quick", "--jobs", jobs, "-o", tmp_path)
    command = Command(*arguments)
    command.until((lambda: times_of(tmp_path / "runs")) if jobs == 1 else command.workers)
    ended_well(end := command.stop(group=group))
    assert ("run the same command to continue" in end.err) is bool(times_of(tmp_path / "runs"))
    assert not half_written(tmp_path)


@pytest.mark.parametrize("name", ["fit", "audit", "embed"])
def test_an_interrupt_during_imports_is_one_line(name, tmp_path):
    rest = {"embed": (tmp_path, "--model", "RN50")}.get(name, ("simulated:waterbirds",))
    command = Command(name, *rest, *(() if name == "audit" else ("-o", tmp_path / "out")), "--json")
    command.until(command.heeds)
    ended_well(end := command.stop(group=True))
    assert '"exit_code": 130' in end.out


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
        stops.ignore()
        signal.raise_signal(signal.SIGINT)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert stops.arrived == [signal.SIGINT, signal.SIGINT]
