"""Use a fitted FairerCLIP as transformers' pipeline("zero-shot-image-classification") is used.

A small CLIP with random weights stands in for a trained one, which is loaded like this:

    clip = CLIPModel.from_pretrained("openai/clip-vit-base-patch32")
    processor = CLIPImageProcessorPil.from_pretrained("openai/clip-vit-base-patch32")
"""

import numpy as np
import torch
from PIL import Image
from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel

import fairerclip


def small_clip():
    """Return a CLIP with random weights, and its processor."""
    torch.manual_seed(0)
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = {**shape, "vocab_size": 128, "bos_token_id": 126, "eos_token_id": 127, "pad_token_id": 0}
    vision = {**shape, "image_size": 32, "patch_size": 16}
    processor = CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=32)
    return CLIPModel(config).eval(), processor


def pictures(rng, n):
    """Images of two classes, red and blue, and a sensitive value, dark or bright, that goes with the class."""
    y = rng.integers(2, size=n)
    s = np.where(rng.random(n) < 0.8, y, 1 - y)
    values = rng.integers(150, size=(n, 40, 30, 3)) + 50 * s[:, None, None, None]
    values[np.arange(n), :, :, 2 * y] += rng.integers(50, size=(n, 1, 1))
    return [Image.fromarray(v.astype(np.uint8)) for v in values], y, s


def main():
    """Fit, classify new images, and return the classifier, the images and what it found."""
    (clip, processor), rng = small_clip(), np.random.default_rng(0)
    images, y, s = pictures(rng, 200)
    with torch.no_grad():
        pixels = processor(images=images, return_tensors="pt")["pixel_values"]
        rows = clip.get_image_features(pixel_values=pixels).pooler_output.numpy()
    names = np.array(["red", "blue"])[y]
    model = fairerclip.FairerCLIP(n_features=200, random_state=0).fit(rows, names, sensitive_features=s)

    classifier = fairerclip.wrap(model, clip, processor)
    new, y, _ = pictures(rng, 20)
    print(classifier(new[0]))  # one image: [{'score': …, 'label': …}, …], the most likely class first
    found = classifier(new, candidate_labels=["blue", "red"])  # a list of images: a list of these
    right = np.mean([best["label"] for best, *_ in found] == np.array(["red", "blue"])[y])
    print(f"{right:.0%} of the labels are right")
    return classifier, new, found


if __name__ == "__main__":
    main()
