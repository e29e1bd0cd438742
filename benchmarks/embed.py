"""Rate of embedding images from disk, as a ratio to the rate of the encoder alone, timed in the same run.

With a random open_clip ViT-B/32 on generated 500×375 JPEGs: images per second of `embed_images`, decoding and writing
included, over those of ``encode_images`` on prepared tensors. Prints JSON, and exits with 1 if the target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from fairerclip.encoders import Encoder, load
from fairerclip.encoders.decode import open_image
from fairerclip.encoders.embed import embed_images

TARGET = 0.85
SIZE = (500, 375)


def shim() -> None:
    """Define operators that torchvision needs to be imported with a CPU-only torch."""
    import torch

    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in [m for m in sys.modules if m.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        shim.library = library  # type: ignore[attr-defined] # it must outlive this call


def random_encoder(folder: Path, architecture: str) -> Encoder:
    """Save an encoder with random weights and load it as a user would."""
    import open_clip
    from safetensors.torch import save_file

    file = folder / "weights.safetensors"
    save_file(open_clip.create_model(architecture).state_dict(), file)
    return load(f"open_clip:{architecture}", weights=file, preprocessing="openai")


def photographs(folder: Path, n: int) -> None:
    """Write smooth random images with some noise, which compress about as well as photographs."""
    rng = np.random.default_rng(0)
    for i in range(n):
        coarse = Image.fromarray(rng.integers(256, size=(12, 16, 3), dtype=np.uint8))
        pixels = np.asarray(coarse.resize(SIZE, Image.Resampling.BICUBIC), np.int16)
        noisy = np.clip(pixels + rng.normal(scale=8, size=pixels.shape), 0, 255).astype(np.uint8)
        Image.fromarray(noisy).save(folder / f"{i:05d}.jpg", quality=90)


def main() -> int:
    """Measure, print, and compare with the target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=384)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--model", default="ViT-B-32-quickgelu")
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    shim()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        encoder = random_encoder(folder, options.model)
        (folder / "images").mkdir()
        photographs(folder / "images", options.images)
        files = sorted((folder / "images").iterdir())
        ready = np.stack([encoder.preprocess(open_image(file)) for file in files[: options.batch_size]])
        encoder.encode_images(ready[:8])
        passes = max(1, options.images // options.batch_size)
        bare, whole = [], []
        for repeat in range(options.repeats):
            start = time.perf_counter()
            for _ in range(passes):
                encoder.encode_images(ready)
            bare.append(passes * len(ready) / (time.perf_counter() - start))
            report = embed_images(
                folder / "images",
                encoder,
                folder / f"store{repeat}",
                batch_size=options.batch_size,
                workers=options.workers,
            )
            whole.append(report.rate)
        start = time.perf_counter()
        for file in files[:64]:
            encoder.preprocess(open_image(file))
        decoding = 64 / (time.perf_counter() - start)
    ratio = max(whole) / max(bare)
    result = {
        "machine": {"cores": os.cpu_count(), "python": platform.python_version()},
        "settings": vars(options),
        "images_per_second": {"encoder": max(bare), "end_to_end": max(whole), "one_decoder": decoding},
        "all_runs": {"encoder": bare, "end_to_end": whole},
        "end_to_end_over_encoder": {"measured": ratio, "at least": TARGET, "met": ratio >= TARGET},
    }
    print(json.dumps(result, indent=2))
    return 0 if ratio >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
