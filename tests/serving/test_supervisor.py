"""Processes that end: what is replaced, when the service gives up, and who owns the socket."""

import json
import os
import signal
import socket
import time
from multiprocessing import Pipe
from pathlib import Path

import pytest

from fairerclip import EmbeddingMitigator
from fairerclip.errors import ModelFileError, ParameterError, WorkFailedError
from fairerclip.serving import supervisor
from fairerclip.serving.listening_socket import open_socket
from fairerclip.serving.served_model import REPLACED, load_served
from fairerclip.serving.service_log import log_to_standard_error
from fairerclip.serving.service_settings import ServiceSettings


class Process:
    """Stands for a process: it has told something, and runs or has ended."""

    def __init__(self, told, *, ends):
        self.ours, theirs = Pipe()
        for message in told:
            theirs.send(message)
        self.sentinel, self.end = os.pipe()
        self.theirs, self.pid, self.exitcode = theirs, 1, None
        if ends:
            self.stop()

    def stop(self):
        if self.end is not None:
            self.exitcode = 1
            os.close(self.end)
            self.theirs.close()
            self.end = None

    terminate = stop

    def join(self, timeout=None):
        assert self.end is None

    def is_alive(self):
        return self.end is not None


def supervised(monkeypatch, first, *later, until=None):
    """Run a supervisor whose processes tell these lists of messages; those of ``later`` end at once."""
    started = []
    settings = ServiceSettings(Path("model"), workers=len(first))
    found = supervisor._Supervisor(settings, socket.socket())
    scripts = [(told, index == 0) for index, told in enumerate(first)] + [(told, True) for told in later]

    def start(self):
        told, ends = scripts[len(started)] if len(started) < len(scripts) else (scripts[0][0], False)
        started.append((time.monotonic(), told))
        if until == len(started):
            self._note(signal.SIGTERM, None)
        process = Process(told, ends=ends)
        return supervisor._ServingProcess(process, process.ours)

    monkeypatch.setattr(supervisor._Supervisor, "_start", start)
    with log_to_standard_error(), supervisor._own_metrics(shared=True):
        try:
            return found.run(lambda: None), started
        except WorkFailedError as error:
            return error, started


READY, FAILED = (True, "a"), (False, "OSError: no memory")


def logged(capsys):
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_process_that_died_is_replaced_and_the_cause_is_logged(monkeypatch, capsys):
    number, started = supervised(monkeypatch, [[READY, FAILED], [READY]], until=3)
    assert (number, len(started)) == (signal.SIGTERM, 3)
    (entry,) = logged(capsys)
    assert (entry["event"], entry["cause"], entry["exit_code"]) == ("a process died", "OSError: no memory", 1)


def test_processes_that_never_become_ready_are_tried_after_growing_pauses_and_end_the_service(
    monkeypatch, capsys
):
    monkeypatch.setattr(supervisor, "FIRST_PAUSE", 0.01)
    error, started = supervised(monkeypatch, [[READY], [READY]], *[[FAILED]] * 9)
    assert "5 new processes in a row ended before they were ready: OSError: no memory" in str(error)
    assert len(started) == 2 + 5
    times = [moment for moment, _ in started[2:]]
    assert times[4] - times[3] >= 0.01 * 2**4
    lines = logged(capsys)
    assert [line["event"] for line in lines] == ["a process died"] * 6 + ["the service ends"]
    assert lines[-1]["cause"] == str(error)


def test_another_model_in_the_same_folder_is_told_by_its_digest(mitigator, rows, tmp_path):
    settings = ServiceSettings(mitigator.save(tmp_path / "model"))
    identity = load_served(settings).identity
    assert load_served(settings, identity).identity == identity
    other = EmbeddingMitigator().fit(rows.X[:200], sensitive_text=rows.sensitive_text)
    other.save(tmp_path / "model", overwrite=True)
    with pytest.raises(ModelFileError) as raised:
        load_served(settings, identity)
    assert raised.value.reason == REPLACED


def test_a_unix_socket_belongs_to_one_service_and_only_a_stale_one_is_removed(tmp_path):
    path = tmp_path / "s"
    settings = ServiceSettings(Path("model"), uds=path)
    with open_socket(settings) as (_, address):
        assert address.uds == str(path)
        with pytest.raises(ParameterError), open_socket(settings):
            pass
        assert path.is_socket()  # the second start has left it alone
    assert not path.exists()
    stale = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stale.bind(str(path))
    stale.close()
    with open_socket(settings):
        assert path.is_socket()
