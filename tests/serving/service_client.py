"""A service in a thread of the test, on a Unix socket, and requests to it."""

import http.client
import io
import json
import socket
import threading
import time
from contextlib import contextmanager, suppress

import numpy as np

from fairerclip.data.provenance import Provenance

JSON, NPY = "application/json", "application/x-npy"


class UnixConnection(http.client.HTTPConnection):
    """An HTTP connection over a Unix socket."""

    def __init__(self, path, timeout=30):
        super().__init__("localhost", timeout=timeout)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Answer:
    """Status, headers and body of an answer."""

    def __init__(self, response):
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def array(self):
        assert self.headers["content-type"] == NPY
        return np.load(io.BytesIO(self.body))

    @property
    def code(self):
        return self.json["error"]["code"]


class Asked:
    """Requests to a service."""

    def __init__(self, path, service=None, server=None):
        self.path, self.service, self.server = str(path), service, server

    def ask(self, method, url, body=None, **headers):
        connection = UnixConnection(self.path)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, url, body, names)
        answer = Answer(connection.getresponse())
        connection.close()
        return answer

    def get(self, url, **headers):
        return self.ask("GET", url, **headers)

    def post(self, url, value, **headers):
        """Send an array as .npy, anything else as JSON."""
        if isinstance(value, np.ndarray):
            return self.ask("POST", url, npy(value), **{"content_type": NPY, **headers})
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        return self.ask("POST", url, body, **{"content_type": JSON, **headers})

    def open(self, timeout=30):
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        opened.settimeout(timeout)
        opened.connect(self.path)
        return opened

    def raw(self, *parts):
        """Send bytes, and read until the service closes."""
        with self.open() as opened:
            with suppress(BrokenPipeError):  # it need not read on after it has answered
                for part in parts:
                    opened.sendall(part)
            return read_all(opened)


def read_all(opened):
    found = b""
    while part := opened.recv(1 << 16):
        found += part
    return found


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def head(length, path="/v1/classify", kind=NPY):
    return f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n".encode()


@contextmanager
def running(folder, load, threads=None, **limits):
    """Serve what ``load`` gives, in a thread; the caller waits for it to be ready, if it wants to."""
    from fairerclip.serving.service_process import build_server
    from fairerclip.serving.service_settings import ServiceLimits
    from fairerclip.serving.service_state import Service

    path = folder / "service.sock"
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(path))
    service = Service(load, ServiceLimits(**limits), threads=threads)
    server = build_server(service, lambda: None)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.005)
        yield Asked(path, service, server)
    finally:
        server.should_exit = True
        thread.join(timeout=30)
        assert not thread.is_alive()


def wait_until(condition, seconds=30):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


class SmallEncoder:
    """An encoder that projects pixels and characters; pictures still go through the package's own decoder."""

    def __init__(self, width):
        self.width, self.name = width, "small"
        self.provenance = Provenance("small", None, "resize 8", "none", True, width)
        self.projection = np.random.default_rng(0).normal(size=(192, width)).astype(np.float32)

    def preprocess(self, image):
        pixels = np.asarray(image.resize((8, 8)), dtype=np.float32).transpose(2, 0, 1)
        return np.ascontiguousarray(pixels / 255)

    def encode_images(self, pixels):
        return self._unit(pixels.reshape(len(pixels), -1) @ self.projection)

    def encode_text(self, prompts):
        letters = np.array([[text.count(chr(97 + i % 26)) + 0.1 * i for i in range(192)] for text in prompts])
        return self._unit(letters.astype(np.float32) @ self.projection)

    def _unit(self, rows):
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
