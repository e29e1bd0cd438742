"""Every answer of the service is the model's own."""

import threading

import jsonschema
import numpy as np
import pytest
from service_client import NPY

from fairerclip import EmbeddingMitigator

CLOSE = {"rtol": 0, "atol": 1e-5}


def test_classify_gives_labels_scores_and_probabilities(service, classifier, rows):
    X = rows.X[:20]
    sent = (X, X.astype(">f8"), np.asfortranarray(X), X.astype(np.float16), {"embeddings": X.tolist()})
    for value in sent:
        told = service.post("/v1/classify", value).json
        exact = X if isinstance(value, dict) else value
        assert told["labels"] == classifier.predict(exact).tolist()
        assert told["classes"] == classifier.classes_.tolist()
        np.testing.assert_allclose(told["scores"], classifier.scores(exact), **CLOSE)
        np.testing.assert_allclose(told["probabilities"], classifier.predict_proba(exact), **CLOSE)


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


def test_answers_and_errors_are_as_the_schema_says(service, mitigating, rows):
    schema, X = service.get("/openapi.json").json, rows.X[:3]
    for answer, path in (
        (service.post("/v1/classify", X), "/v1/classify"),
        (service.post("/v1/rank?class=cat", X), "/v1/rank"),
        (mitigating.post("/v1/mitigate", X), "/v1/mitigate"),
        (service.post("/v1/classify", X[:, :2]), "/v1/classify"),
    ):
        responses = schema["paths"][path]["post"]["responses"]
        found = responses["200" if answer.status == 200 else f"{answer.status // 100}XX"]
        jsonschema.validate(answer.json, found["content"]["application/json"]["schema"])


def test_a_model_is_ready_after_a_first_call(serve_model, rows):

    gate, called = threading.Event(), []

    class Slow(EmbeddingMitigator):
        def transform(self, X):
            called.append(len(X))
            gate.wait(30)
            return super().transform(X)

    model = Slow().fit(rows.X, sensitive_features=rows.s)
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
