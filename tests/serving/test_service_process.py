"""`fairerclip serve` as a process: its start line, its log, its workers, and its end."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from service_client import NPY, Asked, head, npy, read_all, wait_until

from fairerclip import EmbeddingMitigator
from fairerclip.errors import ModelFileError, ParameterError
from fairerclip.serving.listening_socket import open_socket
from fairerclip.serving.served_model import REPLACED, load_served
from fairerclip.serving.service_settings import ServiceSettings

pytestmark = pytest.mark.linux

SCRIPT = "from fairerclip.cli.main import main; main()"


@pytest.fixture(scope="session")
def saved(classifier, tmp_path_factory):
    return classifier.save(tmp_path_factory.mktemp("model") / "model")


@contextmanager
def process(*words):
    """Start the command, and give it with its start line."""
    command = [sys.executable, "-c", SCRIPT, "serve", *map(str, words), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        try:
            yield started, json.loads(started.stdout.readline())
        finally:
            started.kill()


@pytest.mark.slow
def test_one_process_logs_lines_of_json_and_finishes_what_runs(saved, rows, tmp_path, run):
    path = tmp_path / "s"
    with process(saved, "--uds", path) as (started, line):
        assert line == {"url": None, "uds": str(path), "pid": started.pid, "workers": 1}
        asked = Asked(path)
        assert asked.get("/readyz").status == 200
        code, _, err = run("serve", saved, "--uds", path)
        assert code == 2
        assert "is the socket of a service that runs" in err
        asked.post("/v1/classify", rows.X[:3], x_request_id="first")
        asked.post("/v1/classify", rows.X[:0], x_request_id="second")
        raw = npy(rows.X[:2])
        with asked.open() as opened:
            opened.sendall(head(len(raw)) + raw[:-1])
            wait_until(lambda: b"in_progress 2" in asked.get("/metrics").body)  # it, and the one that asks
            started.send_signal(signal.SIGTERM)
            wait_until(lambda: refused(asked))
            opened.sendall(raw[-1:])
            assert read_all(opened).startswith(b"HTTP/1.1 200")
        out, err = started.communicate(timeout=60)
    assert started.returncode == 0
    assert out == ""
    lines = [json.loads(text) for text in err.splitlines()]
    by_id = {entry.get("request_id"): entry for entry in lines if entry["event"] == "request"}
    assert (by_id["first"]["status"], by_id["first"]["rows"], by_id["first"]["endpoint"]) == (
        200,
        3,
        "classify",
    )
    assert (by_id["second"]["status"], by_id["second"]["code"]) == (422, "no_rows")
    assert lines[-1]["event"] == "stopped"
    assert not path.exists()


def refused(asked):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as opened:
        return opened.connect_ex(asked.path) != 0


READY = "fairerclip_workers_ready 2.0"


def check_two_processes(started, line, asked, classifier, rows):
    """Two processes answer many clients as the model does; returns their numbers."""
    assert line["workers"] == 2
    assert READY in asked.get("/metrics").body.decode()
    expected, found = classifier.scores(rows.X[:40]), []

    def client():
        for _ in range(10):
            found.append(asked.post("/v1/classify", rows.X[:40], accept=NPY).array)

    threads = [threading.Thread(target=client) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.abs(np.stack(found) - expected).max() < 1e-5
    text = asked.get("/metrics").body.decode()
    assert 'fairerclip_requests_total{endpoint="classify",status="200"} 40.0' in text  # of both processes
    children = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
    workers = [pid for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(workers) == 2
    return [int(pid) for pid in workers]


@pytest.mark.slow
def test_several_processes_share_the_socket_and_one_that_dies_is_replaced(saved, classifier, rows, tmp_path):
    path = tmp_path / "s"
    with process(saved, "--uds", path, "--workers", 2) as (started, line):
        asked = Asked(path)
        workers = check_two_processes(started, line, asked, classifier, rows)
        os.kill(workers[0], signal.SIGKILL)
        wait_until(lambda: "fairerclip_workers_ready 1.0" in asked.get("/metrics").body.decode())
        wait_until(lambda: READY in asked.get("/metrics").body.decode(), seconds=60)
        started.send_signal(signal.SIGTERM)
        _, err = started.communicate(timeout=60)
    assert started.returncode == 0
    assert "a process died" in err
    assert "Traceback" not in err


def test_a_folder_without_a_model_and_wrong_options_are_one_line(run, tmp_path, saved):
    for words in ((tmp_path, "--uds", tmp_path / "s"), (saved, "--max-body", "1"), (saved, "--uds", saved)):
        code, _, err = run("serve", *words)
        assert code == 2
        assert len(err.splitlines()) == 1


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
