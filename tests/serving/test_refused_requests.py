"""Each kind of wrong request has a status and a code of its own, and none of them ends the service."""

import base64
import re
import socket
import threading
import time

import numpy as np
import pytest
from service_client import NPY, head, npy, read_all, wait_until

from fairerclip.errors import FairerClipError

CHUNKED = (
    b"POST /v1/classify HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-npy\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


@pytest.fixture
def good(rows):
    return rows.X[:3]


def changed(rows, value):
    X = rows.copy()
    X[1, 2] = value
    return X


WRONG_ARRAYS = {
    "nan": (lambda X: changed(X, np.nan), 422, "not_finite", "row 1"),
    "infinity": (lambda X: changed(X, -np.inf), 422, "not_finite", "row 1"),
    "width": (lambda X: X[:, :-1], 422, "wrong_shape", "rows of"),
    "vector": (lambda X: X[0], 422, "wrong_shape", "shape"),
    "three axes": (lambda X: X[None], 422, "wrong_shape", "shape"),
    "no rows": (lambda X: X[:0], 422, "no_rows", "at least one"),
    "zeros": (lambda X: X * 0, 422, "zero_row", "row 0"),
    "whole numbers": (lambda X: X.astype(np.int64), 422, "wrong_dtype", "int64"),
    "text": (lambda X: X.astype("U8"), 422, "wrong_dtype", "float"),
    "complex": (lambda X: X.astype(complex), 400, "invalid_npy", "complex"),
    "many rows": (lambda X: np.tile(X, (40, 1)), 413, "too_many_rows", "at most 100"),
}


@pytest.mark.parametrize("name", WRONG_ARRAYS)
def test_arrays(service, good, name):
    change, status, code, words = WRONG_ARRAYS[name]
    answer = service.post("/v1/classify", change(good))
    assert (answer.status, answer.code) == (status, code)
    assert words in answer.json["error"]["message"]


def test_bytes_that_are_not_npy(service, good):
    whole = npy(good)
    longer = whole.replace(b"(3, ", b"(9**9, ", 1)
    pickled = npy(np.array([[None]], dtype=object))
    for raw in (
        b"",
        b"\x93NUMPY",
        whole[:60],
        whole[:-1],
        whole + b"0",
        b"PK" + whole,
        longer,
        pickled,
        b"\xff" * 999,
    ):
        answer = service.ask("POST", "/v1/classify", raw, content_type=NPY)
        assert (answer.status, answer.code) == (400, "invalid_npy"), raw[:20]


def in_json(good, text):
    row = "[" + ",".join(["0.5"] * good.shape[1]) + "]"
    return ('{"embeddings": [' + row.replace("0.5", text, 1) + "]}").encode()


WRONG_NUMBERS = {
    "NaN": (400, "invalid_json"),
    "Infinity": (400, "invalid_json"),
    "1e999": (422, "not_finite"),
    "1" + "0" * 400: (422, "not_finite"),
    "1" * 5000: (400, "invalid_json"),
    "null": (422, "wrong_dtype"),
    "true": (422, "wrong_dtype"),
    '"0.5"': (422, "wrong_dtype"),
    "[0.5]": (422, "wrong_dtype"),
    "{}": (422, "wrong_dtype"),
    "0.5,0.5": (422, "wrong_shape"),
    "0x1": (400, "invalid_json"),
}


@pytest.mark.parametrize("text", WRONG_NUMBERS, ids=lambda text: text[:9])
def test_numbers_in_json(service, good, text):
    answer = service.post("/v1/classify", in_json(good, text))
    assert (answer.status, answer.code) == WRONG_NUMBERS[text]


WRONG_JSON = {
    b"": (400, "invalid_json", "Expecting value"),
    b'{"embeddings": [[1,': (400, "invalid_json", "Expecting value"),
    b"[" * 5_000: (400, "invalid_json", "RecursionError"),
    b'{"embeddings": [], "embeddings": []}': (400, "invalid_json", "twice"),
    b'{"%b": 1, "%b": 1}' % (b"a" * 9000, b"a" * 9000): (400, "invalid_json", "got 'aaa"),
    b'{"embeddings": "\xff"}': (400, "invalid_utf8", "byte 16"),
    b'{"embeddings": [' + b"[]," * 60_000 + b"[]]}": (400, "invalid_json", "values"),
    b"[]": (422, "invalid_request", "object"),
    b"{}": (422, "invalid_request", "give embeddings"),
    b'{"embeddings": 7}': (422, "wrong_shape", "list of lists"),
    b'{"embeddings": [1, 2]}': (422, "wrong_shape", "list of lists"),
    b'{"embeddings": []}': (422, "wrong_shape", "shape"),
    b'{"embeddings": [[]]}': (422, "wrong_shape", "row 0 has 0"),
    b'{"rows": [[]]}': (422, "invalid_request", "rows"),
    b'{"images": ["AA=="]}': (422, "invalid_request", "images"),
}


@pytest.mark.parametrize("raw", WRONG_JSON, ids=lambda raw: raw[:12].decode(errors="replace"))
def test_json(service, raw):
    answer = service.post("/v1/classify", raw)
    status, code, words = WRONG_JSON[raw]
    assert (answer.status, answer.code) == (status, code)
    assert words in answer.json["error"]["message"]
    assert len(answer.body) < 500


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("/v1/rank", "unknown_class"),
        ("/v1/rank?class=bird", "unknown_class"),
        ("/v1/rank?class=cat&k=0", "invalid_request"),
        ("/v1/rank?class=cat&k=4", "invalid_request"),
        ("/v1/rank?class=cat&k=1e0", "invalid_request"),
        ("/v1/rank?class=cat&k=" + "9" * 5000, "invalid_request"),
        ("/v1/rank?class=cat&class=dog", "invalid_request"),
        ("/v1/rank?class", "invalid_request"),
        ("/v1/rank?class=%ff", "invalid_request"),
        ("/v1/rank?text=cat", "invalid_request"),
        ("/v1/rank?" + "&".join(f"a{i}=1" for i in range(20)), "invalid_request"),
        ("/v1/classify?k=1", "invalid_request"),
    ],
)
def test_options(service, good, url, code):
    answer = service.post(url, good)
    assert (answer.status, answer.code) == (422, code)


def test_a_mitigator_needs_a_query_and_has_no_classes(mitigating, good):
    sent = {"embeddings": good.tolist()}
    assert mitigating.post("/v1/rank", sent).code == "invalid_request"
    assert mitigating.post("/v1/rank", {**sent, "class": "cat"}).code == "invalid_request"
    assert mitigating.post("/v1/rank", {**sent, "query": [1.0]}).code == "wrong_shape"
    assert mitigating.post("/v1/rank", {**sent, "query": 7}).code == "wrong_shape"
    assert mitigating.post("/v1/rank", good[:1]).code == "no_rows"


def test_what_a_model_cannot_do_says_what_it_can(service, mitigating, good):
    for asked, name, words in (
        (service, "mitigate", "fit an EmbeddingMitigator; offered are classify, rank"),
        (service, "embed", "--encoder"),
        (mitigating, "classify", "no classes; offered are rank, mitigate"),
    ):
        answer = asked.post(f"/v1/{name}", good)
        assert (answer.status, answer.code) == (404, "not_offered")
        assert words in answer.json["error"]["message"]


def test_types_forms_methods_and_paths(service, good):
    raw = npy(good)
    for kind in (
        "text/plain",
        "application/octet-stream",
        "image/png",
        "multipart/form-data; boundary=x",
        "",
    ):
        answer = service.ask("POST", "/v1/classify", raw, content_type=kind)
        assert (answer.status, answer.code) == (415, "unsupported_type")
    answer = service.post("/v1/classify", good, content_encoding="gzip")
    assert (answer.status, answer.code) == (415, "unsupported_encoding")
    for accept in ("text/html", "application/json;q=0", "image/*"):
        assert service.post("/v1/classify", good, accept=accept).code == "not_acceptable"
    assert service.post("/v1/classify", good, accept="text/html, */*;q=0.1").status == 200
    accepts = b"accept: text/html\r\naccept: application/x-npy\r\nconnection: close\r\n\r\n"
    assert b"NUMPY" in service.raw(head(len(raw))[:-2] + accepts + raw)
    answer = service.get("/v1/classify")
    assert (answer.status, answer.code, answer.headers["allow"]) == (405, "method_not_allowed", "POST")
    assert service.ask("POST", "/healthz").code == "method_not_allowed"
    for path in ("/", "/v1", "/v1/classify/", "/v2/classify", "/redoc", "/v1/../../../etc/passwd", "/%00"):
        answer = service.get(path)
        assert (answer.status, answer.code) == (404, "not_found")


def test_images_that_are_refused(seeing):
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 50).decode()
    wrong = {
        "image_refused": {"images": [png]},
        "no_rows": {"images": []},
        "too_many_rows": {"images": [png] * 4},
        "invalid_request": {"images": ["@@@"]},
    }
    for code, sent in wrong.items():
        assert seeing.post("/v1/classify", sent).code == code
    assert seeing.post("/v1/embed", {"images": "data"}).code == "invalid_request"
    assert seeing.post("/v1/embed", {"texts": "a cat"}).code == "invalid_request"
    assert seeing.post("/v1/embed", {"texts": [7]}).code == "invalid_request"
    assert seeing.post("/v1/embed", {"texts": ["a"], "images": [png]}).code == "invalid_request"
    assert seeing.post("/v1/classify", {"images": ["http://192.0.2.1/a.png"]}).code == "invalid_request"
    answer = seeing.ask("POST", "/v1/embed", b"GIF89a" + b"\0" * 99, content_type="image/png")
    assert (answer.status, answer.code) == (422, "image_refused")
    assert "it is none of JPEG, PNG, WEBP, BMP, or damaged" in answer.json["error"]["message"]
    assert b"0x" not in answer.body


def test_a_large_picture_is_refused_by_its_header(seeing):
    image = pytest.importorskip("PIL.Image")
    import io

    out = io.BytesIO()
    image.new("RGB", (101, 100)).save(out, format="PNG")
    answer = seeing.ask("POST", "/v1/embed", out.getvalue(), content_type="image/png")
    assert answer.code == "image_refused"
    assert "at most 10000" in answer.json["error"]["message"]


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
    raw, found = npy(good), {}

    def slowly(name, *parts):
        with hurried.open() as opened:
            try:
                for part in parts:
                    opened.sendall(part)
                    time.sleep(0.02)
            except OSError:
                pass
            found[name] = read_all(opened)

    senders = {
        "head": [b"POST /v1/classify HTTP/1.1\r\nhost: x\r\n", *[b"a: b\r\n"] * 30],
        "nothing": [],
        "body": [head(len(raw)), *[raw[i : i + 1] for i in range(30)]],
        "body that stops": [head(len(raw)), raw[:20]],
    }
    threads = [threading.Thread(target=slowly, args=(name, *parts)) for name, parts in senders.items()]
    for thread in threads:
        thread.start()
    assert hurried.post("/v1/classify", good).status == 200
    for thread in threads:
        thread.join()
    for name, code in {
        "head": "slow_head",
        "nothing": "slow_head",
        "body": "slow_body",
        "body that stops": "slow_body",
    }.items():
        assert found[name].startswith(b"HTTP/1.1 408"), name
        assert f'"{code}"'.encode() in found[name]


def test_a_connection_too_many_is_told_to_come_back(hurried, good):
    opened = [hurried.open() for _ in range(5)]
    time.sleep(0.05)
    answer = hurried.raw(b"")
    assert answer.startswith(b"HTTP/1.1 503")
    assert b'"busy"' in answer
    assert b"retry-after: 1" in answer
    for one in opened:
        one.close()
    wait_until(lambda: hurried.post("/v1/classify", good).status == 200)


def test_a_peer_that_closes_its_sending_side_is_answered(service, good):
    raw = npy(good)
    with service.open() as opened:
        opened.sendall(head(len(raw)) + raw)
        opened.shutdown(socket.SHUT_WR)
        assert read_all(opened).startswith(b"HTTP/1.1 200")
    for count in (2, 5):
        with service.open() as opened:
            opened.sendall((head(len(raw)) + raw) * count)
            opened.shutdown(socket.SHUT_WR)
            assert read_all(opened).count(b"HTTP/1.1 200") == count
    for sent, code in ((head(len(raw)) + raw[:50], b"incomplete_body"), (b"POST /v1/cl", b"invalid_http")):
        with service.open() as opened:
            opened.sendall(sent)
            opened.shutdown(socket.SHUT_WR)
            found = read_all(opened)
            assert found.startswith(b"HTTP/1.1 400")
            assert code in found
    with service.open() as opened:  # gone without a word
        opened.sendall(head(len(raw)) + raw[:50])
    assert service.get("/healthz").status == 200


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: " + b"b" * 100_000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=["nonsense", "long head", "negative", "two lengths", "TLS"],
)
def test_what_is_not_http_is_refused_as_json(service, raw):
    found = service.raw(raw, b"\r\n\r\n")
    assert re.match(rb"HTTP/1.1 400 ", found)
    assert b'"code":"invalid_http"' in found
    assert b"Traceback" not in found


@pytest.mark.parametrize("expect", [b"", b"expect: 100-continue\r\n"], ids=["", "expect"])
def test_a_body_in_chunks_is_refused_before_its_chunks_are_read(service, expect):
    for chunks in (b"1\r\n0\r\n" * 20_000, b"zz\r\n", b""):
        started = time.monotonic()
        found = service.raw(CHUNKED[:-2] + expect + b"\r\n" + chunks, b"\r\n")
        assert found.startswith(b"HTTP/1.1 411")
        assert b'"length_required"' in found
        assert time.monotonic() - started < 5


@pytest.mark.parametrize("pieces", [1, 2])
def test_heads_up_to_64_kb_and_100_lines_are_read(service, pieces):
    def answer(size, lines):
        one = b"a: " + b"b" * (size // lines - 5) + b"\r\n"
        raw = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n" + one * lines + b"\r\n"
        parts = [raw] if pieces == 1 else [raw[: len(raw) - 100], raw[len(raw) - 100 :]]
        with service.open() as opened:
            for part in parts:
                opened.sendall(part)
                time.sleep(0.05 * (pieces - 1))
            return read_all(opened)[9:12]

    assert answer(20_000, 10) == b"200"
    assert answer(65_000, 90) == b"200"
    assert answer(70_000, 10) == b"400"
    assert answer(20_000, 110) == b"400"
    assert answer(200_000, 10_000) == b"400"


def test_a_peer_that_does_not_read_its_answer_is_cut_off(serve_model, mitigator, rows):
    with serve_model(mitigator, seconds=0.5, rows=5000) as asked:
        wait_until(lambda: asked.service.ready)
        raw = npy(np.tile(rows.X, (12, 1)))
        with asked.open() as opened:
            opened.sendall(head(len(raw), "/v1/mitigate") + raw)
            wait_until(lambda: b'{endpoint="mitigate",status="200"} 1.0' in asked.get("/metrics").body)
            wait_until(lambda: len(asked.server.server_state.connections) == 1)
            wait_until(lambda: not asked.server.server_state.connections, seconds=10)
            found = read_all(opened)  # what the system had taken
            assert found.startswith(b"HTTP/1.1 200")
            assert len(found) < int(re.search(rb"content-length: (\d+)", found)[1])


def test_a_long_answer_in_json_lets_other_requests_through(mitigating, mitigator, rows):
    import asyncio
    import json

    from fairerclip.serving.answer_forms import as_json, as_json_blocks

    X = np.tile(rows.X, (30, 1))

    async def main():
        turns = 0

        async def count():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.ensure_future(count())
        reply = await as_json_blocks({"a": X, "b": X[:1], "c": None, "d": [1, "x"], "e": X[:0]})
        other.cancel()
        return reply, turns

    reply, turns = asyncio.run(main())
    assert reply == as_json({"a": X.tolist(), "b": X[:1].tolist(), "c": None, "d": [1, "x"], "e": []})
    assert turns >= X.size // 8192
    told = mitigating.post("/v1/mitigate", rows.X).json
    np.testing.assert_allclose(told["embeddings"], mitigator.transform(rows.X), rtol=0, atol=1e-9)
    assert json.loads(reply.body)["b"] == X[:1].tolist()


def test_long_texts_are_refused_before_the_encoder_reads_them(seeing, serve_model, mitigator, encoder, rows):
    assert seeing.post("/v1/embed", {"texts": ["a", "a" * 1000]}).status == 200
    answer = seeing.post("/v1/embed", {"texts": ["a", "a" * 1001]})
    assert (answer.status, answer.code) == (422, "text_refused")
    assert "at most 1000 characters; got 1001" in answer.json["error"]["message"]
    with serve_model(mitigator, encoder) as asked:
        wait_until(lambda: asked.service.ready)
        assert (
            asked.post("/v1/rank", {"embeddings": rows.X[:3].tolist(), "text": "a" * 1001}).code
            == "text_refused"
        )
        assert asked.post("/v1/rank?text=" + "a" * 1001, rows.X[:3]).code == "text_refused"


def test_after_an_unread_body_the_connection_is_closed_and_else_kept(service, good):
    raw = npy(good)
    request = head(len(raw)) + raw
    with service.open() as opened:
        opened.sendall(request + request)  # the second does not wait for the first
        found = b""
        while found.count(b'"probabilities"') < 2:
            found += opened.recv(1 << 16)
        assert found.count(b"HTTP/1.1 200") == 2
        opened.sendall(head(len(raw), kind="text/plain") + raw)
        found = read_all(opened)
        assert found.startswith(b"HTTP/1.1 415")
        assert b"connection: close" in found


@pytest.mark.parametrize("scale", [1e30, 1e-30, 1e300, 1e-320])
def test_very_large_and_small_numbers_are_answered_as_the_model_does_or_refused(
    service, classifier, good, scale
):
    answer = service.post("/v1/classify", good * scale)
    try:
        expected = classifier.scores(good * scale)
    except FairerClipError:
        expected = None
    if expected is not None and np.isfinite(expected).all():
        assert answer.status == 200
        np.testing.assert_allclose(answer.json["scores"], expected, rtol=0, atol=1e-9)
    else:
        assert (answer.status, answer.code) in ((422, "out_of_range"), (422, "refused_by_model"))


def test_an_error_inside_the_model_shows_no_traceback_and_does_not_end_the_service(
    serve_model, classifier, good
):
    from copy import copy

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
        asked.service.metrics.page = None  # a fault in an endpoint of FastAPI
        answer = asked.get("/metrics")
        assert (answer.status, answer.code) == (500, "internal")
        assert asked.post("/v1/classify", good[:1]).status == 200


def test_a_request_that_takes_too_long_and_a_full_queue_are_503(serve_model, classifier, good):
    from copy import copy

    gate, inside, slow = threading.Event(), threading.Event(), copy(classifier)

    def scores(X):
        if len(X) > 1:
            inside.set()
            gate.wait(30)
        return classifier.scores(X)

    slow.scores = scores
    with serve_model(slow, queue=1, seconds=2.0, batch_rows=1) as asked:
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


def test_a_call_that_outlasts_the_grace_time_is_answered_and_does_not_keep_the_service(
    serve_model, classifier, good
):
    from copy import copy

    gate, slow, found = threading.Event(), copy(classifier), []

    def scores(X):
        if len(X) > 1:
            gate.wait(60)
        return classifier.scores(X)

    slow.scores = scores
    with serve_model(slow, grace_seconds=0.2) as asked:
        wait_until(lambda: asked.service.ready)
        thread = threading.Thread(target=lambda: found.append(asked.post("/v1/classify", good)))
        thread.start()
        wait_until(lambda: asked.service.held_bytes)
    thread.join()
    gate.set()
    assert (found[0].status, found[0].code) == (503, "stopping")


def test_what_peers_that_hung_up_have_asked_for_is_not_computed(serve_model, classifier, good):
    from copy import copy

    gate, calls, slow = threading.Event(), [], copy(classifier)

    def scores(X):
        calls.append(len(X))
        if len(X) == 2:
            gate.wait(30)
        return classifier.scores(X)

    slow.scores = scores
    raw = npy(good)
    with serve_model(slow, queue=3, batch_rows=1) as asked:
        wait_until(lambda: asked.service.ready)
        first = threading.Thread(target=lambda: asked.post("/v1/classify", good[:2]))
        first.start()
        try:
            wait_until(lambda: 2 in calls)
            for _ in range(4):  # more than the queue takes
                with asked.open() as opened:
                    opened.sendall(head(len(raw)) + raw)
                    wait_until(lambda: asked.service._calls.waiting == 1)
                wait_until(lambda: asked.service._calls.waiting == 0)
        finally:
            gate.set()
        first.join()
        assert asked.post("/v1/classify", good[:1]).status == 200
        assert calls == [1, 2, 1]  # the first warms up
        text = asked.get("/metrics").body.decode()
        assert 'fairerclip_requests_total{endpoint="classify",status="499"} 4.0' in text


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
