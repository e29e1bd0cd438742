"""Rate of embedding images from disk, over the rate of the encoder alone.

With a random open_clip ViT-B/32 on generated 500×375 JPEGs: images per second of `embed_images`, decoding and writing
included, over those of ``encode_images`` on prepared tensors.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from harness import Benchmark, options
from PIL import Image

from fairerclip.encoders import Encoder, load
from fairerclip.encoders.decode import open_image
from fairerclip.encoders.embed import embed_images

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure."""
    parser = options(repeats=2)
    parser.add_argument("--images", type=int, default=384)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--model", default="ViT-B-32-quickgelu")
    bench = Benchmark(parser, arguments)
    asked = bench.settings
    shim()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        encoder = random_encoder(folder, asked.model)
        (folder / "images").mkdir()
        photographs(folder / "images", asked.images)
        files = sorted((folder / "images").iterdir())
        ready = np.stack([encoder.preprocess(open_image(file)) for file in files[: asked.batch_size]])
        encoder.encode_images(ready[:8])
        passes = max(1, asked.images // asked.batch_size)
        whole = []
        for repeat in range(asked.repeats):
            bench.time("encoder", lambda: [encoder.encode_images(ready) for _ in range(passes)])
            report = bench.time(
                "whole",
                lambda repeat=repeat: embed_images(
                    folder / "images",
                    encoder,
                    folder / f"store{repeat}",
                    batch_size=asked.batch_size,
                    workers=asked.workers,
                ),
            )
            whole.append(report.rate)
        bench.time("one decoder", lambda: [encoder.preprocess(open_image(file)) for file in files[:64]])
    bare = passes * len(ready) / bench.best("encoder")
    bench.figure("rate of embedding from disk / rate of the encoder", max(whole) / bare, at_least=0.85)
    decoded = len(files[:64]) / bench.best("one decoder")
    for what, rate in (("encoder", bare), ("from disk", max(whole)), ("one decoder", decoded)):
        bench.figure(f"images, {what}", rate, "per second", better="higher")
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
