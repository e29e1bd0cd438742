"""Put a fitted EmbeddingMitigator into a CLIP of open_clip: existing retrieval code then depends less on S.

A small CLIP with random weights stands in for a trained one, which is loaded like this:

    clip, _, preprocess = open_clip.create_model_and_transforms("ViT-B-32", pretrained="laion2b_s34b_b79k")
"""

import numpy as np
import open_clip
import torch

import fairerclip


def best_images(clip, pixels, tokens, k):
    """Existing code: the k best images of each text, by cosine. It knows nothing of fairerclip."""
    with torch.no_grad():
        images = clip.encode_image(pixels, normalize=True)
        texts = clip.encode_text(tokens, normalize=True)
    return (texts @ images.T).topk(k, dim=1).indices


def small_clip():
    """Return a CLIP with random weights."""
    torch.manual_seed(0)
    vision = {"image_size": 32, "layers": 2, "width": 64, "patch_size": 16, "head_width": 32}
    text = {"context_length": 77, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 2}
    return open_clip.CLIP(embed_dim=32, vision_cfg=vision, text_cfg=text).eval()


def main():
    """Rank before and after, and return both models with the images."""
    clip, rng = small_clip(), np.random.default_rng(0)
    s = rng.integers(2, size=200)  # a sensitive value that shows in the images: half of them are brighter
    pixels = torch.tensor(rng.normal(size=(200, 3, 32, 32)) + 2 * s[:, None, None, None], dtype=torch.float32)
    tokens = open_clip.tokenize(["a photo of a nurse", "a photo of a cook"])

    with torch.no_grad():
        rows = clip.encode_image(pixels).numpy()
    mitigator = fairerclip.EmbeddingMitigator().fit(rows, sensitive_features=s)
    fairer = fairerclip.wrap(mitigator, clip)  # a CLIP of the same class; clip itself is not changed

    for name, model in (("before", clip), ("after", fairer)):
        shares = s[best_images(model, pixels, tokens, k=50).numpy()].mean(axis=1)
        print(f"{name}: share of bright images among the best 50, by text: {shares.round(2).tolist()}")
    return clip, fairer, pixels


if __name__ == "__main__":
    main()
