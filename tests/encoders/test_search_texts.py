"""Texts are searched with the encoder that embedded the images, and with no other."""

import json

import numpy as np
import pytest

from fairerclip import EmbeddingMitigator
from fairerclip.data.stores import EmbeddingStore
from fairerclip.encoders import load
from fairerclip.export import build_index

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"
)


def test_search_embeds_texts_with_the_encoder_of_the_images(run, open_clip_folder, tmp_path):
    name = f"open_clip:{open_clip_folder}"
    encoder = load(name)
    rng = np.random.default_rng(0)
    s = np.arange(200) % 2
    X = rng.normal(size=(200, encoder.width)).astype(np.float32)
    X[:, 0] += 2 * s
    prompts = dict(zip("xy", encoder.encode_text(["a dark picture.", "a light picture."]), strict=True))
    model = EmbeddingMitigator(features="linear").fit(
        X, sensitive_features=np.array(["x", "y"])[s], sensitive_text=prompts
    )
    model.save(tmp_path / "model")
    build_index(model, EmbeddingStore.from_array(X, provenance=encoder.provenance), tmp_path / "i")
    text = "a red picture."
    code, out, err = run("search", tmp_path / "i", text, text, "--encoder", name, "--k", 4, "--json")
    assert code == 0, err
    (found,) = json.loads(out)["queries"]
    assert found["query"] == text
    query = encoder.encode_text([text])[0]
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    assert [hit["row"] for hit in found["original"]] == np.argsort(-(unit @ query))[:4].tolist()
    assert [hit["row"] for hit in found["mitigated"]] == model.rank(query, X, 4).indices.tolist()

    other = encoder.provenance.to_dict() | {"model": "another"}
    manifest = tmp_path / "i" / "index.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"provenance": other}))
    code, _, err = run("search", tmp_path / "i", text, "--encoder", name)
    assert code == 2
    assert "different models (model differ)" in err
