"""Many requests from a second process, wrong ones among them: every answer is checked, and memory is measured.

Run by ``make serve-load``; needs Linux. Most requests are right and are compared with the model's own answer. The
others are malformed, oversized or slow, do not read or hang up, and each has a status that it must get.
"""

import argparse
import collections
import contextlib
import io
import json
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

SCRIPT = "from fairerclip.cli.main import main; main()"
WIDTH, ROWS, CLOSE = 64, 2000, 1e-5
LIMITS = [
    "--max-body",
    "100KB",
    "--max-rows",
    "100",
    "--body-timeout",
    "1",
    "--timeout",
    "2",
    "--no-access-log",
]
SLOW, UNREAD = 0.002, 0.0002
"""Shares of slow senders and of peers that do not read; each takes one or two seconds until it is cut off."""


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def request(body, path="/v1/classify", kind="application/x-npy", accept="application/x-npy", length=None):
    return (
        f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: {kind}\r\naccept: {accept}\r\n"
        f"content-length: {len(body) if length is None else length}\r\n\r\n"
    ).encode() + body


class Peer:
    """One connection that is opened again when the service closes it."""

    def __init__(self, path, X, scores, seed):
        self.path, self.X, self.scores = path, X, scores
        self.draw = random.Random(seed)
        self.opened = None
        self.counts = collections.Counter()

    def connect(self):
        if self.opened is None:
            self.opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.opened.settimeout(300)
            self.opened.connect(self.path)
        return self.opened

    def close(self):
        if self.opened is not None:
            self.opened.close()
            self.opened = None

    def answer(self):
        """Read one answer: status, whether the connection is closed after it, and body."""
        raw = b""
        while b"\r\n\r\n" not in raw:
            part = self.opened.recv(1 << 16)
            if not part:
                raise ConnectionError(f"no answer, but {raw!r:.80}")
            raw += part
        head, _, body = raw.partition(b"\r\n\r\n")
        lines = [line.lower() for line in head.split(b"\r\n")]
        length = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
        while len(body) < length:
            body += self.opened.recv(1 << 16)
        if b"connection: close" in lines:
            self.close()
        return int(lines[0].split()[1]), body

    def run(self, count):
        for _ in range(count):
            name = self.draw.choices(list(KINDS), [weight for weight, _ in KINDS.values()])[0]
            KINDS[name][1](self)
            self.counts[name] += 1
        self.close()

    def expect(self, sent, status, code=None):
        opened = self.connect()
        # It may be refused before it is sent as a whole; the answer is there.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            opened.sendall(sent)
        found, body = self.answer()
        if found != status or (code and json.loads(body)["error"]["code"] != code):
            raise AssertionError(f"expected {status} {code}, got {found} {body[:200]!r}")
        return body

    def some(self):
        start, count = self.draw.randrange(ROWS - 100), self.draw.randint(1, 64)
        return slice(start, start + count)


def right(peer):
    part = peer.some()
    scores = np.load(io.BytesIO(peer.expect(request(npy(peer.X[part])), 200)))
    assert np.abs(scores - peer.scores[part]).max() < CLOSE


def right_json(peer):
    start = peer.draw.randrange(ROWS - 4)
    body = json.dumps({"embeddings": peer.X[start : start + 3].tolist()}).encode()
    kind = "application/json"
    told = json.loads(peer.expect(request(body, kind=kind, accept=kind), 200))
    assert np.abs(np.array(told["scores"]) - peer.scores[start : start + 3]).max() < CLOSE
    assert told["labels"] == [told["classes"][k] for k in peer.scores[start : start + 3].argmax(axis=1)]


def ranked(peer):
    part = peer.some()
    scores = peer.scores[part, 1]
    pairs = np.load(io.BytesIO(peer.expect(request(npy(peer.X[part]), path="/v1/rank?class=1"), 200)))
    assert sorted(pairs[:, 0].astype(int)) == list(range(len(scores)))
    assert np.abs(scores[pairs[:, 0].astype(int)] - pairs[:, 1]).max() < CLOSE
    assert (np.diff(pairs[:, 1]) <= 0).all()


def malformed(peer):
    whole = npy(peer.X[:3])
    bad = peer.X[:3].copy()
    bad[1, 1] = np.nan
    sent, status, code = peer.draw.choice(
        [
            (request(whole[:-5]), 400, "invalid_npy"),
            (request(peer.draw.randbytes(200)), 400, "invalid_npy"),
            (request(npy(bad)), 422, "not_finite"),
            (request(npy(peer.X[:3, :-1])), 422, "wrong_shape"),
            (request(npy(peer.X[:0])), 422, "no_rows"),
            (request(npy(peer.X[:3].astype(int))), 422, "wrong_dtype"),
            (request(b"[" * 500, kind="application/json"), 400, "invalid_json"),
            (request(b'{"a":1,"a":2}', kind="application/json"), 400, "invalid_json"),
            (request(b'{"\xff":1}', kind="application/json"), 400, "invalid_utf8"),
            (request(whole, kind="text/plain"), 415, "unsupported_type"),
            (request(whole, accept="text/html"), 406, "not_acceptable"),
            (request(whole, path="/v1/nothing"), 404, "not_found"),
            (request(whole, path="/v1/mitigate"), 404, "not_offered"),
            (request(whole, path="/v1/rank?class=9"), 422, "unknown_class"),
            (b"GET /v1/classify HTTP/1.1\r\nhost: x\r\n\r\n", 405, "method_not_allowed"),
        ]
    )
    peer.expect(sent, status, code)


def not_http(peer):
    peer.close()
    peer.expect(b"\x16\x03\x01" + peer.draw.randbytes(30) + b"\r\n\r\n", 400, "invalid_http")
    peer.close()


def oversized(peer):
    large = b"0" * 150_000
    if peer.draw.random() < 0.5:
        peer.expect(request(large), 413, "body_too_large")
    else:
        peer.expect(request(npy(np.ones((101, WIDTH), np.float32))), 413, "too_many_rows")
    peer.close()


def hangs_up(peer):
    opened, whole = peer.connect(), request(npy(peer.X[:20]))
    opened.sendall(whole[: peer.draw.randrange(len(whole) + 1)])
    peer.close()


def half_closed(peer):
    peer.close()
    opened, whole = peer.connect(), request(npy(peer.X[:20]))
    complete = peer.draw.random() < 0.5
    opened.sendall(whole if complete else whole[:-1])
    opened.shutdown(socket.SHUT_WR)
    status, _ = peer.answer()
    assert status == (200 if complete else 400), status
    peer.close()


def slow(peer):
    peer.close()
    whole = request(npy(peer.X[:20]))
    at = peer.draw.choice([40, len(whole) - 3])  # inside the head, or inside the body
    opened = peer.connect()
    opened.sendall(whole[:at])
    status, body = peer.answer()
    assert (status, json.loads(body)["error"]["code"]) == (408, "slow_head" if at == 40 else "slow_body")
    peer.close()


def does_not_read(peer):
    peer.close()
    opened, body = peer.connect(), npy(peer.X[:100])
    opened.settimeout(60)
    sent = request(body)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while True:  # answers wait until the service takes no further request, and then cuts the peer off
            opened.sendall(sent)
    peer.close()


KINDS = {
    "right, .npy": (70, right),
    "right, JSON": (5, right_json),
    "right, ranked": (5, ranked),
    "malformed": (12, malformed),
    "not HTTP": (1, not_http),
    "oversized": (2, oversized),
    "hangs up": (2, hangs_up),
    "half-closed": (3 - 100 * SLOW, half_closed),
    "slow": (100 * SLOW, slow),
    "does not read": (100 * UNREAD, does_not_read),
}


def memory(pid):
    """Resident megabytes of a process and of those that it started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    text = Path(f"/proc/{pid}/status").read_text()
    own = int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024
    return own + sum(memory(child) for child in children)


def fitted(folder):
    from fairerclip import FairerCLIP

    rng = np.random.default_rng(0)
    y, s = rng.integers(2, size=ROWS), rng.integers(2, size=ROWS)
    text, values = rng.normal(size=(2, WIDTH)), rng.normal(size=(2, WIDTH))
    X = (rng.normal(size=(ROWS, WIDTH)) + text[y] + values[s]).astype(np.float32)
    model = FairerCLIP(n_features=200, random_state=0).fit(X, y, text=text, sensitive_text=values)
    model.save(folder / "model")
    return X, model.scores(X)


def round_of_requests(path, X, scores, count, peers, seed):
    found = [Peer(path, X, scores, seed + k) for k in range(peers)]
    failures = []

    def work(peer):
        try:
            peer.run(count // peers)
        except BaseException as error:  # noqa: BLE001 - it is reported below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(peer,)) for peer in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return sum((peer.counts for peer in found), collections.Counter())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--peers", type=int, default=16)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10, help="memory is measured after each")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        X, scores = fitted(folder)
        words = [
            "serve",
            folder / "model",
            "--uds",
            folder / "s",
            "--workers",
            asked.workers,
            "--json",
            *LIMITS,
        ]
        command = [sys.executable, "-c", SCRIPT, *map(str, words)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
            json.loads(service.stdout.readline())
            counts, sizes, start = collections.Counter(), [], time.monotonic()
            for number in range(asked.rounds):
                share = asked.requests // asked.rounds
                seed = 1000 * number
                counts += round_of_requests(str(folder / "s"), X, scores, share, asked.peers, seed)
                sizes.append(memory(service.pid))
                seconds = time.monotonic() - start
                print(f"{sum(counts.values())} requests, {seconds:.0f} s, {sizes[-1]:.1f} MB", flush=True)  # noqa: T201
            service.terminate()
            code = service.wait(timeout=60)
    for kind, count in counts.items():
        print(f"{kind}: {count}")  # noqa: T201
    growth = sizes[-1] - sizes[0]
    print(f"memory after the first round {sizes[0]:.1f} MB, at the end {sizes[-1]:.1f} MB; exit code {code}")  # noqa: T201
    assert code == 0
    assert growth < max(20.0, 0.1 * sizes[0]), "memory grew"


if __name__ == "__main__":
    main()
