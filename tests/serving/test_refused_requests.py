"""Each kind of wrong request has a status and a code of its own, and none of them ends the service."""

import base64
import threading
from copy import copy

import numpy as np
import pytest
from service_client import NPY, head, npy, read_all, wait_until


@pytest.fixture
def good(rows):
    return rows.X[:3]


def changed(rows, value):
    X = rows.copy()
    X[1, 2] = value
    return X


WRONG_ARRAYS = {
    "nan": (lambda X: changed(X, np.nan), 422, "not_finite"),
    "width": (lambda X: X[:, :-1], 422, "wrong_shape"),
    "no rows": (lambda X: X[:0], 422, "no_rows"),
    "zeros": (lambda X: X * 0, 422, "zero_row"),
    "complex": (lambda X: X.astype(complex), 400, "invalid_npy"),
    "many rows": (lambda X: np.tile(X, (40, 1)), 413, "too_many_rows"),
}


def test_arrays(service, good):
    for name, (change, status, code) in WRONG_ARRAYS.items():
        answer = service.post("/v1/classify", change(good))
        assert (answer.status, answer.code) == (status, code), name
    whole = npy(good)
    longer = whole.replace(b"(3, ", b"(9**9, ", 1)
    pickled = npy(np.array([[None]], dtype=object))
    for raw in (b"", whole[:-1], whole + b"0", longer, pickled):
        answer = service.ask("POST", "/v1/classify", raw, content_type=NPY)
        assert (answer.status, answer.code) == (400, "invalid_npy"), raw[:20]


WRONG_JSON = {
    b"[" * 5_000: (400, "invalid_json"),
    b'{"embeddings": [], "embeddings": []}': (400, "invalid_json"),
    b'{"embeddings": "\xff"}': (400, "invalid_utf8"),
    b'{"embeddings": [' + b"[]," * 60_000 + b"[]]}": (400, "invalid_json"),
    b"[]": (422, "invalid_request"),
    b'{"embeddings": [["0.5"' + b",0.5" * 11 + b"]]}": (422, "wrong_dtype"),
}


def test_json_and_options(service, good):
    for raw, told in WRONG_JSON.items():
        answer = service.post("/v1/classify", raw)
        assert (answer.status, answer.code) == told, raw[:25]
        assert len(answer.body) < 500
    for options, code in (("class=bird", "unknown_class"), ("class=cat&k=" + "9" * 5000, "invalid_request")):
        answer = service.post(f"/v1/rank?{options}", good)
        assert (answer.status, answer.code) == (422, code)


def test_types_forms_methods_and_paths(service, good):
    raw = npy(good)
    answer = service.ask("POST", "/v1/classify", raw, content_type="text/plain")
    assert (answer.status, answer.code) == (415, "unsupported_type")
    answer = service.post("/v1/classify", good, content_encoding="gzip")
    assert (answer.status, answer.code) == (415, "unsupported_encoding")
    assert service.post("/v1/classify", good, accept="text/html").code == "not_acceptable"
    answer = service.get("/v1/classify")
    assert (answer.status, answer.code, answer.headers["allow"]) == (405, "method_not_allowed", "POST")
    for path in ("/", "/v2/classify", "/v1/../../../etc/passwd"):
        answer = service.get(path)
        assert (answer.status, answer.code) == (404, "not_found")


def test_images_that_are_refused(seeing):
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 50).decode()
    for code, sent in {
        "image_refused": {"images": [png]},
        "no_rows": {"images": []},
        "too_many_rows": {"images": [png] * 4},
        "invalid_request": {"images": ["@@@"]},
        "text_refused": {"texts": ["a" * 1001]},
    }.items():
        assert seeing.post("/v1/embed", sent).code == code


def test_a_declared_length_is_refused_before_the_body_and_after_a_part_of_it(service):
    found = service.raw(head(10**12))
    assert found.startswith(b"HTTP/1.1 413")
    assert b"body_too_large" in found
    assert b"connection: close" in found
    answer = service.ask("POST", "/v1/classify", b"0" * 250_000, content_type=NPY)
    assert (answer.status, answer.code) == (413, "body_too_large")


@pytest.fixture
def hurried(serve_model, classifier):
    with serve_model(classifier, body_seconds=0.3, head_seconds=0.3, connections=5) as asked:
        wait_until(lambda: asked.service.ready)
        yield asked


def test_slow_senders_are_cut_off_and_others_are_answered(hurried, good):
    raw = npy(good)
    with hurried.open() as slow_head, hurried.open() as slow_body:
        slow_head.sendall(b"POST /v1/classify HTTP/1.1\r\nhost: x\r\n")
        slow_body.sendall(head(len(raw)) + raw[:20])
        assert hurried.post("/v1/classify", good).status == 200
        for opened, code in ((slow_head, b"slow_head"), (slow_body, b"slow_body")):
            found = read_all(opened)
            assert found.startswith(b"HTTP/1.1 408")
            assert code in found


def test_an_error_inside_the_model_shows_no_traceback_and_does_not_end_the_service(
    serve_model, classifier, good
):
    broken = copy(classifier)

    def scores(X):
        if len(X) > 1:
            raise RuntimeError("a secret of the machine")
        return classifier.scores(X)

    broken.scores = scores
    with serve_model(broken) as asked:
        wait_until(lambda: asked.service.ready)
        answer = asked.post("/v1/classify", good)
        assert (answer.status, answer.code) == (500, "internal")
        assert b"secret" not in answer.body
        assert asked.post("/v1/classify", good[:1]).status == 200


def test_a_request_that_takes_too_long_and_a_full_queue_are_503(serve_model, classifier, good):

    gate, inside, slow = threading.Event(), threading.Event(), copy(classifier)

    def scores(X):
        if len(X) > 1:
            inside.set()
            gate.wait(30)
        return classifier.scores(X)

    slow.scores = scores
    with serve_model(slow, queue=1, seconds=0.8, batch_rows=1) as asked:
        try:
            wait_until(lambda: asked.service.ready)
            found, called = [], asked.service._calls
            threads = [
                threading.Thread(target=lambda: found.append(asked.post("/v1/classify", good)))
                for _ in range(2)
            ]
            threads[0].start()
            wait_until(inside.is_set)
            threads[1].start()
            wait_until(lambda: called.waiting == 1)
            found += [asked.post("/v1/classify", good) for _ in range(2)]
            assert asked.get("/healthz").status == 200  # while the model works
            for thread in threads:
                thread.join()
            assert sorted(answer.code for answer in found) == ["busy", "busy", "timed_out", "timed_out"]
            assert {answer.status for answer in found} == {503}
            assert all(answer.headers["retry-after"] == "1" for answer in found)
        finally:
            gate.set()
        assert asked.post("/v1/classify", good).status == 200


def test_bodies_that_are_held_together_have_a_limit(serve_model, classifier, good):
    raw = npy(np.tile(good, (30, 1)))
    with serve_model(classifier, held_bytes=len(raw) + 100) as asked:
        wait_until(lambda: asked.service.ready)
        with asked.open() as first:
            first.sendall(head(len(raw)) + raw[:-1])
            wait_until(lambda: asked.service.held_bytes > 1000)
            assert asked.ask("POST", "/v1/classify", raw, content_type=NPY).code == "busy"
            first.sendall(raw[-1:])
            assert first.recv(100).startswith(b"HTTP/1.1 200")
        assert asked.ask("POST", "/v1/classify", raw, content_type=NPY).status == 200
        wait_until(lambda: asked.service.held_bytes == 0)


def test_what_a_model_cannot_do_is_not_offered(service, mitigating, good):
    for asked, name in ((service, "mitigate"), (service, "embed"), (mitigating, "classify")):
        answer = asked.post(f"/v1/{name}", good)
        assert (answer.status, answer.code) == (404, "not_offered")
