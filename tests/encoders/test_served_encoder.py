"""A real encoder behind the service embeds as it does alone."""

import io

import numpy as np
import pytest

from fairerclip import EmbeddingMitigator
from fairerclip.encoders.choice import ModelChoice
from fairerclip.errors import EncoderError, ParameterError
from fairerclip.serving.service_settings import ServiceSettings

pytest.importorskip("fastapi")
pytest.importorskip("prometheus_client")

pytestmark = pytest.mark.slow


def saved(folder, width):
    rows = np.random.default_rng(0).normal(size=(60, width))
    model = EmbeddingMitigator().fit(rows, sensitive_features=np.arange(60) % 2)
    return model.save(folder / f"model-{width}")


def test_the_service_loads_a_model_and_its_encoder(open_clip_folder, pictures, tmp_path):
    from fairerclip.serving.served_model import load_served

    choice = ModelChoice(f"open_clip:{open_clip_folder}")
    served, alone = load_served(ServiceSettings(saved(tmp_path, 32), choice)), choice.load()
    served.warm_up()
    texts = ["a cat", "a photo of a dog"]
    with pytest.raises(EncoderError):
        served._encoder.tokenizer.ids(["zebra crossing " * 60, None])  # the second is not looked at
    np.testing.assert_allclose(served.reading.call(texts), alone.encode_text(texts), rtol=0, atol=1e-6)
    assert not {"cat", "photo"} & set(served._encoder.tokenizer.tokenizer.cache)  # nothing is kept
    raw = io.BytesIO()
    pictures[0].save(raw, format="PNG")
    pixels = served.decoding.call(raw.getvalue())
    np.testing.assert_array_equal(pixels, alone.preprocess(pictures[0]))
    np.testing.assert_allclose(
        served.seeing.call(pixels[None]), alone.encode_images(pixels[None]), rtol=0, atol=1e-6
    )
    assert served.endpoints == ["rank", "mitigate", "embed"]
    assert str(open_clip_folder.parent) not in str(served.facts())
    with pytest.raises(ParameterError):
        load_served(ServiceSettings(saved(tmp_path, 16), choice))
