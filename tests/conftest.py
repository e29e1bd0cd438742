"""Shared inputs: small random problems with degenerate weights in the default."""

from __future__ import annotations

import functools
import gc
import signal
import sys
from pathlib import Path

import pytest
import typer.main

from sample_rows import Embeddings

NETWORK = ("socket.connect", "socket.getaddrinfo", "socket.sendto", "socket.sendmsg")


def _no_network(event: str, arguments: tuple[object, ...]) -> None:
    # An address of another kind, such as the path of a Unix socket, leads to a process of this machine.
    if event in NETWORK and (event == "socket.getaddrinfo" or isinstance(arguments[1], tuple)):
        raise AssertionError(f"{event}{arguments[-1:]}: nothing here may open a connection")


sys.addaudithook(_no_network)  # for good: a hook cannot be taken back
REAL_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
TESTS = Path(__file__).parent


def pytest_ignore_collect(collection_path, config):
    # To import what these folders need, torch and the browser, takes longer than all that is left to run.
    whole = (TESTS / "browser", TESTS / "encoders")
    return True if config.option.markexpr == "not slow" and collection_path in whole else None


def pytest_collection_modifyitems(items):
    # Files with slow tests first, so that no worker is left with one of them at the end while the others wait.
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_runtest_setup(item):
    if item.get_closest_marker("linux") and sys.platform != "linux":
        pytest.skip("needs Linux")


def pytest_collection_finish():
    # What was imported to collect the tests stays: the garbage collector need not look at it again during each of them.
    gc.collect()
    gc.freeze()


@pytest.fixture
def real_data() -> Path:
    if not REAL_DATA.is_dir():
        pytest.skip("the real embeddings are not beside the project (../shared/data)")
    return REAL_DATA


@pytest.fixture
def embeddings():
    return Embeddings


built_once = functools.cache(typer.main.get_command)
"""To build the command line takes longer than to refuse an option."""


@pytest.fixture
def run(monkeypatch, capsys):
    """Call the command line in process: (exit code, standard output, standard error)."""
    from fairerclip.cli.main import main

    monkeypatch.setattr(typer.main, "get_command", built_once)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["fairerclip", *map(str, arguments)])
        monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        finally:  # it ends a process, and ignores signals from there on
            for number, handler in handlers.items():
                signal.signal(number, handler)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_the_disk():
    # What a process has written is there for others at once; only a loss of power would tell the difference.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda handle: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def _one_blas_thread():
    # Small matrices on several workers: BLAS threads would only wait for each other.
    import scipy.linalg  # noqa: F401 - its BLAS must be loaded before it can be limited
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):
        yield


@pytest.fixture
def tracemalloc_peak():
    """Call a function: what it gives, and the most bytes that were allocated for it at a time."""
    import tracemalloc

    def call(function):
        tracemalloc.start()
        try:
            return function(), tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    return call


@pytest.fixture
def inline_jobs(monkeypatch):
    """Run the jobs of compare and reproduce in this process: no time is lost to starting others."""
    from fairerclip.study import jobs
    from light import inline

    monkeypatch.setattr(jobs, "run_calls", inline)
