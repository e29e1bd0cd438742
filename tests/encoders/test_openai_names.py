"""The paper's names: OpenAI's weights from the local cache, with OpenAI's activation and preprocessing."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from fairerclip.encoders import Preprocessing, load
from fairerclip.errors import EncoderError

torch = pytest.importorskip("torch")
open_clip = pytest.importorskip("open_clip")
pytest.importorskip("PIL")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cached(tmp_path_factory):
    """Random weights under the name of OpenAI's RN50 in a Hugging Face cache.

    RN50 has one block per stage and one layer of text: the same code and names in a fraction of the time.
    """
    from huggingface_hub import constants
    from open_clip import factory
    from safetensors.torch import save_file

    root = tmp_path_factory.mktemp("hub")
    folder = root / "models--timm--resnet50_clip.openai"
    file = folder / "snapshots" / ("0" * 40) / "open_clip_model.safetensors"
    for part in (file.parent, folder / "refs"):
        part.mkdir(parents=True)
    (folder / "refs" / "main").write_text("0" * 40)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_CACHE", str(root))
        for name in ("RN50", "RN50-quickgelu"):
            config = copy.deepcopy(factory._MODEL_CONFIGS[name])
            config["vision_cfg"]["layers"] = [1, 1, 1, 1]
            config["text_cfg"]["layers"] = 1
            patch.setitem(factory._MODEL_CONFIGS, name, config)
        torch.manual_seed(0)
        save_file(open_clip.CLIP(**open_clip.get_model_config("RN50")).state_dict(), file)
        yield file


def test_paper_names_have_quickgelu_and_openai_preprocessing(cached, pictures):
    encoder = load("RN50")
    assert encoder.width == 1024
    assert encoder.provenance.model == "RN50-quickgelu"
    assert encoder.provenance.preprocessing == str(Preprocessing.openai(224))
    reference = open_clip.create_model("RN50-quickgelu", pretrained=str(cached)).eval()
    batch = np.stack([encoder.preprocess(picture) for picture in pictures[:2]])
    with torch.no_grad():
        images = reference.encode_image(torch.from_numpy(batch), normalize=True).numpy()
        texts = reference.encode_text(open_clip.tokenize(["a bird"]), normalize=True).numpy()
    np.testing.assert_allclose(encoder.encode_images(batch), images, atol=1e-6)
    np.testing.assert_allclose(encoder.encode_text(["a bird"]), texts, atol=1e-6)


def test_a_bare_file_does_not_get_default_preprocessing(cached):
    with pytest.raises(EncoderError):
        load("open_clip:RN50", weights=cached)
    with pytest.raises(EncoderError):
        load("open_clip:RN50", weights=cached, preprocessing="laion")
