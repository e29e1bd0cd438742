"""Fitted models, each behind a service."""

import pytest
from service_client import SmallEncoder, running, wait_until

from sample_rows import Embeddings

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")


@pytest.fixture(scope="session")
def rows():
    return Embeddings(n=300)


@pytest.fixture(scope="session")
def classifier(rows):
    from fairerclip import FairerCLIP

    names = {"cat": rows.text[0], "dog": rows.text[1]}
    y = [["cat", "dog"][k] for k in rows.y]
    model = FairerCLIP(n_features=40, random_state=0)
    return model.fit(rows.X, y, text=names, sensitive_features=rows.s)


@pytest.fixture(scope="session")
def mitigator(rows):
    from fairerclip import EmbeddingMitigator

    return EmbeddingMitigator().fit(rows.X, sensitive_text=rows.sensitive_text)


@pytest.fixture(scope="session")
def eraser(rows):
    from fairerclip.baselines import LEACE

    return LEACE().fit(rows.X, rows.y, text=rows.text, sensitive_features=rows.s)


def served(folder, model, encoder=None, **limits):
    from fairerclip.serving.served_model import ServedModel

    return running(folder, lambda: ServedModel(model, encoder, pixels=10_000), **limits)


@pytest.fixture(scope="session")
def service(classifier, tmp_path_factory):
    with served(tmp_path_factory.mktemp("s"), classifier, rows=100, body_bytes=200_000) as asked:
        wait_until(lambda: asked.service.ready)
        yield asked


@pytest.fixture(scope="session")
def mitigating(mitigator, tmp_path_factory):
    with served(tmp_path_factory.mktemp("s"), mitigator) as asked:
        wait_until(lambda: asked.service.ready)
        yield asked


@pytest.fixture(scope="session")
def erasing(eraser, tmp_path_factory):
    with served(tmp_path_factory.mktemp("s"), eraser) as asked:
        wait_until(lambda: asked.service.ready)
        yield asked


@pytest.fixture(scope="session")
def encoder(rows):
    return SmallEncoder(rows.X.shape[1])


@pytest.fixture(scope="session")
def seeing(classifier, encoder, tmp_path_factory):
    with served(tmp_path_factory.mktemp("s"), classifier, encoder, images=3) as asked:
        wait_until(lambda: asked.service.ready)
        yield asked


@pytest.fixture
def serve_model(tmp_path):
    """Serve a model with limits of its own."""
    return lambda model, encoder=None, **limits: served(tmp_path, model, encoder, **limits)
