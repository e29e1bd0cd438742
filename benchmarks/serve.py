"""Requests per second of `fairerclip serve` with 64 rows each, over the rate of the bare call of the model.

The service and the bare call have the same single core, in turns; the client has another one, so that its own work
is not counted. Both answer the same rows: requests are .npy with keep-alive over several connections, which join.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness import Benchmark, options
from simulated_rows import FIXED, SimulatedRows

from fairerclip import FairerCLIP

TRAIN_ROWS = 4000
PINNED = "import os, sys; os.sched_setaffinity(0, {int(sys.argv.pop(1))}); from fairerclip.cli.main import main; main()"
"""Program that runs the command line on one core."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure."""
    if arguments is None and sys.argv[1:2] == ["client"]:
        return client(sys.argv[2:])
    parser = options(repeats=7)
    parser.add_argument("--rows", type=int, default=64, help="rows of a request")
    parser.add_argument("--requests", type=int, default=400, help="requests that are timed at once")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--features", type=int, default=1000)
    bench = Benchmark(parser, arguments)
    asked = bench.settings
    source = SimulatedRows(asked.width)
    train = source.draw(TRAIN_ROWS)
    model = FairerCLIP(n_features=asked.features, random_state=0, **FIXED)
    model.fit(train.X, train.y, **source.prompts)
    X = source.draw(asked.rows, first=10_000).X
    before = os.sched_getaffinity(0)
    ours, theirs = sorted(before)[0], sorted(before)[-1]
    bench.note(
        f"requests of {asked.rows} rows, p={asked.width}, D={asked.features}, float32 .npy, "
        f"{asked.connections} connections; "
        f"service and bare call on one core, client on {'another' if ours != theirs else 'the same'} one"
    )
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        np.save(Path(folder) / "rows.npy", X)
        np.save(Path(folder) / "scores.npy", model.scores(X))
        with (
            running(Path(folder) / "model", ours) as server,
            Client(server, folder, asked, theirs) as requests,
        ):
            os.sched_setaffinity(0, {ours})
            try:
                bench.in_turns(
                    {
                        "bare": lambda: [model.predict(X) for _ in range(asked.requests)],
                        "served": requests.send,
                    }
                )
            finally:
                os.sched_setaffinity(0, before)
    bench.ratio("rate of requests / rate of bare calls", "bare", "served", at_least=0.6)
    bench.figure("requests", asked.requests / bench.best("served"), "per second", better="higher")
    bench.figure("rows", asked.rows * asked.requests / bench.best("served"), "per second", better="higher")
    return bench.finish()


class running:
    """`fairerclip serve` on one core, over a Unix socket or TCP; gives its address."""

    def __init__(self, model: Path, core: int) -> None:
        words = [sys.executable, "-c", PINNED, str(core), "serve", str(model), "--port", "0", "--json"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def __enter__(self) -> dict[str, Any]:
        return json.loads(self.process.stdout.readline())

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.communicate(timeout=60)
        if self.process.returncode:
            raise RuntimeError(f"the service ended with exit code {self.process.returncode}")


class Client:
    """A process on a core of its own that sends requests when told to."""

    def __init__(self, server: dict[str, Any], folder: str, asked: argparse.Namespace, core: int) -> None:
        words = ["client", server["url"], folder, str(asked.requests), str(asked.connections), str(core)]
        self.process = subprocess.Popen(
            [sys.executable, __file__, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def send(self) -> None:
        """Send all requests once, and wait for the answers."""
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if answer != "done\n":
            raise RuntimeError(f"the client said {answer!r}")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate(timeout=60)


def client(words: Sequence[str]) -> int:
    """Send requests over several connections, one at a time on each, and compare every answer."""
    url, folder, requests, connections, core = words
    os.sched_setaffinity(0, {int(core)})
    host, port = url.removeprefix("http://").split(":")
    body = (Path(folder) / "rows.npy").read_bytes()
    expected = np.load(Path(folder) / "scores.npy")
    head = (
        f"POST /v1/classify HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/x-npy\r\n"
        f"accept: application/x-npy\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    request = memoryview(head.encode() + body)
    for line in sys.stdin:
        if line != "go\n":
            break
        exchange((host, int(port)), request, int(requests), int(connections), expected)
        print("done", flush=True)
    return 0


def exchange(
    address: tuple[str, int], request: memoryview, requests: int, connections: int, expected: Any
) -> None:
    """Send one request after another on each connection until all are answered."""
    selector = selectors.DefaultSelector()
    left = requests
    for _ in range(min(connections, requests)):
        opened = socket.create_connection(address)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.setblocking(False)
        selector.register(opened, selectors.EVENT_READ | selectors.EVENT_WRITE, [request, bytearray()])
        left -= 1
    done = 0
    while done < requests:
        for key, events in selector.select():
            opened, state = key.fileobj, key.data
            if events & selectors.EVENT_WRITE and len(state[0]):
                state[0] = state[0][opened.send(state[0]) :]
                if not len(state[0]):
                    selector.modify(opened, selectors.EVENT_READ, state)
            if events & selectors.EVENT_READ:
                part = opened.recv(1 << 16)
                state[1] += part
                if not part or not complete(state[1], expected):
                    if not part:
                        raise RuntimeError("the service closed a connection")
                    continue
                done += 1
                if left:
                    left -= 1
                    state[0], state[1] = request, bytearray()
                    selector.modify(opened, selectors.EVENT_READ | selectors.EVENT_WRITE, state)
                else:
                    selector.unregister(opened)
                    opened.close()


def complete(answer: bytearray, expected: Any) -> bool:
    """Return whether an answer is complete; raise if it is wrong."""
    head, blank, body = answer.partition(b"\r\n\r\n")
    if not blank:
        return False
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(bytes(answer[:500]))
    length = int(
        next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))[15:]
    )
    if len(body) < length:
        return False
    scores = np.load(io.BytesIO(bytes(body)))
    if np.abs(scores - expected).max() > 1e-5:
        raise RuntimeError("an answer differs from that of the model")
    return True


if __name__ == "__main__":
    sys.exit(main())
