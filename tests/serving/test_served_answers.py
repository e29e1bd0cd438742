"""Every answer of the service is the model's own."""

import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import numpy as np
import pytest
from service_client import NPY, running, wait_until

from fairerclip import EmbeddingMitigator
from fairerclip.serving import service_state
from fairerclip.serving.micro_batches import Operation
from fairerclip.serving.served_model import ServedModel, load_served
from fairerclip.serving.service_settings import ServiceSettings

CLOSE = {"rtol": 0, "atol": 1e-5}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_classify_gives_labels_scores_and_probabilities(service, classifier, rows, dtype):
    X = rows.X[:20].astype(dtype)
    told = service.post("/v1/classify", X).json
    assert told["labels"] == classifier.predict(X).tolist()
    assert told["classes"] == classifier.classes_.tolist()
    np.testing.assert_allclose(told["scores"], classifier.scores(X), **CLOSE)
    np.testing.assert_allclose(told["probabilities"], classifier.predict_proba(X), **CLOSE)


def test_json_rows_are_the_numbers_that_were_written(service, classifier, rows):
    told = service.post("/v1/classify", {"embeddings": rows.X[:5].tolist()})
    np.testing.assert_allclose(told.json["scores"], classifier.scores(rows.X[:5]), rtol=0, atol=1e-9)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f8"])
def test_npy_in_any_order_and_byte_order(service, classifier, rows, order, dtype):
    X = np.array(rows.X[:7], dtype=dtype, order=order)
    answer = service.post("/v1/classify", X, accept=NPY)
    np.testing.assert_allclose(answer.array, classifier.scores(rows.X[:7]), **CLOSE)


def test_rank_is_that_of_the_model(service, classifier, rows):
    expected = classifier.rank("dog", rows.X[:50], 7)
    told = service.post("/v1/rank", {"embeddings": rows.X[:50].tolist(), "class": "dog", "k": 7}).json
    assert told["order"] == expected.indices.tolist()
    np.testing.assert_allclose(told["scores"], expected.scores, **CLOSE)
    pairs = service.post("/v1/rank?class=dog&k=7", rows.X[:50], accept=NPY).array
    np.testing.assert_allclose(pairs, np.column_stack(expected), **CLOSE)
    assert len(service.post("/v1/rank?class=cat", rows.X[:50]).json["order"]) == 50


def test_a_mitigator_ranks_by_any_query_and_says_what_it_is_about(mitigating, mitigator, rows):
    for query, about in ((rows.text[0], None), (rows.sensitive_text[0], "sensitive")):
        told = mitigating.post(
            "/v1/rank", {"embeddings": rows.X[:30].tolist(), "query": query.tolist(), "k": 5}
        ).json
        name = mitigator.query_meaning(query[None]).about(0)
        assert (name is None) == (about is None)
        assert told["about"] == name
        scores = (
            rows.X[:30] / np.linalg.norm(rows.X[:30], axis=1, keepdims=True) @ (query / np.linalg.norm(query))
        )
        if about is None:
            scores = mitigator.scores(rows.X[:30], query[None])[:, 0]
        assert told["order"] == np.argsort(-scores, kind="stable")[:5].tolist()
        np.testing.assert_allclose(told["scores"], np.sort(scores)[::-1][:5], **CLOSE)
    first = mitigating.post("/v1/rank?k=5", np.vstack([rows.text[:1], rows.X[:30]])).json
    assert first["order"] == mitigator.rank(rows.text[0], rows.X[:30], 5).indices.tolist()


def test_mitigate_is_transform(mitigating, mitigator, erasing, eraser, rows):
    X = rows.X[:9].astype(np.float32)
    answer = mitigating.post("/v1/mitigate", X, accept=NPY).array
    assert answer.dtype == np.float32
    np.testing.assert_allclose(answer, mitigator.transform(X), **CLOSE)
    np.testing.assert_allclose(mitigating.post("/v1/mitigate", X).json["embeddings"], answer, **CLOSE)
    np.testing.assert_allclose(
        erasing.post("/v1/mitigate", X, accept=NPY).array, eraser.transform(X), **CLOSE
    )


def test_a_baseline_has_labels_of_its_own_type_and_no_probabilities(erasing, eraser, rows):
    told = erasing.post("/v1/classify", rows.X[:9]).json
    assert told["labels"] == eraser.predict(rows.X[:9]).tolist()
    assert told["probabilities"] is None
    by_number = erasing.post("/v1/rank", {"embeddings": rows.X[:9].tolist(), "class": 1}).json
    by_text = erasing.post("/v1/rank?class=1", rows.X[:9]).json
    assert by_number == by_text
    expected = np.argsort(-eraser.scores(rows.X[:9])[:, 1], kind="stable")
    assert by_number["order"] == expected.tolist()
    assert erasing.post("/v1/rank", {"embeddings": rows.X[:9].tolist(), "class": "1"}).code == "unknown_class"


def test_the_facts_of_a_model_are_its_kind_classes_and_widths(service, mitigating, rows):
    facts = service.get("/v1/model").json
    assert (facts["kind"], facts["classes"], facts["width"]) == (
        "FairerCLIP",
        ["cat", "dog"],
        rows.X.shape[1],
    )
    assert facts["endpoints"] == ["classify", "rank"]
    assert facts["encoder"] is None
    assert mitigating.get("/v1/model").json["endpoints"] == ["rank", "mitigate"]


def pictures(count):
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(1)
    found = [image.fromarray(rng.integers(256, size=(20, 30, 3), dtype=np.uint8)) for _ in range(count)]
    return [(picture, as_png(picture)) for picture in found]


def as_png(picture):
    import io

    out = io.BytesIO()
    picture.save(out, format="PNG")
    return out.getvalue()


def test_with_an_encoder_texts_and_images_are_embedded_and_classified(seeing, classifier, encoder):
    import base64

    found = pictures(3)
    expected = encoder.encode_images(np.stack([encoder.preprocess(picture) for picture, _ in found]))
    sent = {"images": [base64.b64encode(raw).decode() for _, raw in found]}
    np.testing.assert_allclose(seeing.post("/v1/embed", sent).json["embeddings"], expected, **CLOSE)
    assert seeing.post("/v1/classify", sent).json["labels"] == classifier.predict(expected).tolist()
    one = seeing.ask("POST", "/v1/embed", found[1][1], content_type="image/png", accept=NPY)
    np.testing.assert_allclose(one.array, expected[1:2], **CLOSE)
    texts = ["a cat", "a dog"]
    answer = seeing.post("/v1/embed", {"texts": texts}, accept=NPY)
    np.testing.assert_allclose(answer.array, encoder.encode_text(texts), **CLOSE)
    assert seeing.get("/v1/model").json["encoder"]["model"] == "small"


def test_with_an_encoder_a_mitigator_ranks_by_a_text(serve_model, mitigator, encoder, rows):
    with serve_model(mitigator, encoder) as asked:
        while asked.get("/readyz").status != 200:
            pass
        told = asked.post("/v1/rank", {"embeddings": rows.X[:9].tolist(), "text": "a cat"}).json
        assert told["order"] == mitigator.rank(encoder.encode_text(["a cat"])[0], rows.X[:9]).indices.tolist()
        assert asked.post("/v1/rank?text=a%20cat", rows.X[:9]).json["order"] == told["order"]


def test_answers_and_errors_are_as_the_schema_says(service, mitigating, rows):
    schema = service.get("/openapi.json").json

    def check(answer, path, method="post"):
        responses = schema["paths"][path][method]["responses"]
        found = responses["200" if answer.status == 200 else f"{answer.status // 100}XX"]
        jsonschema.validate(answer.json, found["content"]["application/json"]["schema"])

    X = rows.X[:3]
    check(service.post("/v1/classify", X), "/v1/classify")
    check(service.post("/v1/rank?class=cat", X), "/v1/rank")
    check(mitigating.post("/v1/rank", X), "/v1/rank")
    check(mitigating.post("/v1/mitigate", X), "/v1/mitigate")
    check(service.get("/v1/model"), "/v1/model", "get")
    check(service.post("/v1/classify", X[:, :2]), "/v1/classify")
    check(service.post("/v1/embed", {"texts": ["a"]}), "/v1/embed")
    for path, entry in schema["paths"].items():
        if path.startswith("/v1/") and "post" in entry:
            body = entry["post"]["requestBody"]["content"]["application/json"]["schema"]
            jsonschema.Draft202012Validator.check_schema(body)


def test_the_page_of_the_endpoints_needs_nothing_from_elsewhere(service):
    page = service.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    text = page.body.decode()
    assert "/v1/classify" in text
    assert "too_many_rows" in text
    assert not [word for word in ("http:", "https:", "//", "<script") if word in text]
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_a_request_id_is_taken_if_it_is_sane_and_else_made(service, rows):
    assert service.get("/healthz", x_request_id="my-id.7").headers["x-request-id"] == "my-id.7"
    made = [
        service.get("/healthz", x_request_id=bad).headers["x-request-id"] for bad in ("a b", "x" * 65, "")
    ]
    assert len(set(made)) == 3
    assert all(len(name) == 32 for name in made)
    refused = service.post("/v1/classify", rows.X[:0], x_request_id="mine")
    assert refused.json["error"]["request_id"] == refused.headers["x-request-id"] == "mine"


def test_a_model_is_ready_after_a_first_call(serve_model, rows):
    import threading

    gate, called = threading.Event(), []

    class Slow(EmbeddingMitigator):
        def transform(self, X):
            called.append(len(X))
            gate.wait(30)
            return super().transform(X)

    model = Slow(features="linear").fit(rows.X, sensitive_features=rows.s)
    with serve_model(model) as asked:
        try:
            assert asked.get("/healthz").status == 200
            waiting = asked.get("/readyz")
            assert (waiting.status, waiting.code, waiting.headers["retry-after"]) == (503, "not_ready", "1")
            assert asked.post("/v1/mitigate", rows.X[:2]).code == "not_ready"
            assert asked.get("/v1/model").code == "not_ready"
        finally:
            gate.set()
        while asked.get("/readyz").status != 200:
            pass
        assert called[0] == 1  # the call that warms up
        assert asked.post("/v1/mitigate", rows.X[:2]).status == 200


def test_metrics_count_requests_rows_and_calls(serve_model, classifier, rows):
    with serve_model(classifier) as asked:
        while asked.get("/readyz").status != 200:
            pass
        for _ in range(3):
            asked.post("/v1/classify", rows.X[:4])
        asked.post("/v1/classify", rows.X[:0])
        asked.get("/v1/unknown/../../etc/passwd")
        page = asked.get("/metrics")
        assert page.headers["content-type"].startswith("text/plain")
        values = dict(line.rsplit(" ", 1) for line in page.body.decode().splitlines() if line[:1] != "#")
    assert float(values['fairerclip_requests_total{endpoint="classify",status="200"}']) == 3
    assert float(values['fairerclip_requests_total{endpoint="classify",status="422"}']) == 1
    assert float(values['fairerclip_requests_total{endpoint="other",status="404"}']) == 1
    assert float(values['fairerclip_rows_total{endpoint="classify"}']) == 12
    assert float(values['fairerclip_batch_rows_sum{operation="scores"}']) == 12
    assert float(values['fairerclip_request_seconds_count{endpoint="classify"}']) == 4
    assert float(values["fairerclip_workers_ready"]) == 1


def test_a_query_in_the_first_row_is_not_counted(serve_model, mitigator, rows):
    with serve_model(mitigator) as asked:
        while asked.get("/readyz").status != 200:
            pass
        asked.post("/v1/rank", rows.X[:4])
        asked.post("/v1/rank", {"embeddings": rows.X[:4].tolist(), "query": rows.text[0].tolist()})
        assert 'fairerclip_rows_total{endpoint="rank"} 7.0' in asked.get("/metrics").body.decode()


def test_every_operation_is_called_before_the_service_is_ready(mitigator, classifier, encoder, monkeypatch):
    for model, names in (
        (mitigator, {"mitigate", "rank", "encode_text", "encode_images", "decode"}),
        (classifier, {"scores", "encode_text", "encode_images", "decode"}),
    ):
        served, called = ServedModel(model, encoder, pixels=10_000), set()
        for name, operation in list(vars(served).items()):
            if isinstance(operation, Operation):

                def noted(rows, operation=operation, called=called):
                    called.add(operation.name)
                    return operation.call(rows)

                setattr(served, name, replace(operation, call=noted))
        served.warm_up()
        assert called == names
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ImportError, match=r"fairerclip\[images\]"):
        ServedModel(classifier, encoder, pixels=10_000).warm_up()


def test_threads_are_limited_in_the_thread_that_calls_the_model(classifier, tmp_path, monkeypatch):
    noted = []

    def limit(count):
        noted.append((threading.current_thread().name, count))

    with monkeypatch.context() as patched:
        patched.setattr(service_state, "limit_threads", limit)
        with running(tmp_path, lambda: ServedModel(classifier, pixels=1), threads=3) as asked:
            wait_until(lambda: asked.service.ready)
    assert noted == [("model", 3)]
    monkeypatch.setattr(service_state, "threadpool_limits", lambda limits: noted.append(("BLAS", limits)))
    torch = SimpleNamespace(set_num_threads=lambda count: noted.append(("torch", count)))
    monkeypatch.setitem(sys.modules, "torch", torch)
    service_state.limit_threads(2)
    assert noted[1:] == [("BLAS", 2), ("torch", 2)]


def test_the_weights_are_mapped_so_that_processes_share_them(classifier, rows, tmp_path):
    classifier.save(tmp_path / "model")
    served = load_served(ServiceSettings(tmp_path / "model"))
    np.testing.assert_array_equal(served.scoring.call(rows.X[:9]), classifier.scores(rows.X[:9]))
    if Path("/proc/self/maps").is_file():
        assert str(tmp_path / "model" / "model.safetensors") in Path("/proc/self/maps").read_text()
