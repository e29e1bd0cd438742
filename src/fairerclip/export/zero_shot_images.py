"""`ImageClassifier`: a fitted classifier and an encoder, called as transformers' zero-shot image classification is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fairerclip._util.checks import check_count
from fairerclip._util.extras import require
from fairerclip._util.types import F64, Floats
from fairerclip.encoders.decode import open_image
from fairerclip.errors import ExportError, ImageError, LabelError, ShapeError
from fairerclip.solver.decision import softmax

ImageRows = Callable[[Sequence[Any]], Floats]
"""Function of some Pillow images: their embeddings (b, p)."""


class ImageClassifier:
    """Classifier of images with the interface of ``pipeline("zero-shot-image-classification")``.

    Parameters
    ----------
    model : FairerCLIP or Baseline
        A fitted classifier.
    embed : callable
        Function of Pillow images that returns their embeddings (b, p).

    Attributes
    ----------
    labels : list
        Classes of the model.
    """

    def __init__(self, model: Any, embed: ImageRows) -> None:
        self.model, self._embed = model, embed
        self.labels: list[Any] = model.classes_.tolist()

    def __call__(
        self, images: Any, candidate_labels: Sequence[Any] | None = None, *, batch_size: int = 32
    ) -> list[Any]:
        """Return ``[{"score": …, "label": …}, …]`` of an image, the most likely class first; a list of them for a list.

        Parameters
        ----------
        images : image or list of images
            Pillow images, or paths of files. Nothing is downloaded.
        candidate_labels : list, optional
            The classes of the model, in any order: it was fitted on their prompts, and knows no others.
        batch_size : int
            Images that are encoded together.
        """
        check_count("batch_size", batch_size)
        self._check_labels(candidate_labels)
        single = isinstance(images, str | Path) or not isinstance(images, Sequence)
        listed = [images] if single else list(images)
        found: list[list[dict[str, Any]]] = []
        for start in range(0, len(listed), batch_size):
            rows = self._embed([as_image(image) for image in listed[start : start + batch_size]])
            found += self._answers(rows)
        return found[0] if single else found

    def _answers(self, rows: Floats) -> list[list[dict[str, Any]]]:
        if rows.shape[1] != self.model.n_features_in_:
            raise ShapeError(
                f"this CLIP gives embeddings of width {rows.shape[1]}, and the model was fitted on rows of width "
                f"{self.model.n_features_in_}: use the CLIP that gave those rows"
            )
        return [
            [{"score": float(row[k]), "label": self.labels[k]} for k in np.argsort(-row, kind="stable")]
            for row in class_shares(self.model, rows)
        ]

    def _check_labels(self, given: Sequence[Any] | None) -> None:
        if given is None:
            return
        if isinstance(given, str) or sorted(map(str, given)) != sorted(map(str, self.labels)):
            raise LabelError(
                f"candidate_labels must be the classes that the model was fitted on, {self.labels[:10]}; got "
                f"{given!r:.200}"
            )


def class_shares(model: Any, rows: Any) -> F64:
    """Return the probabilities (n, c) of a model, or, if it has none, the softmax of its scores."""
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(rows))
    return softmax(model.scores(rows))


def as_image(image: Any) -> Any:
    """Return a Pillow image in RGB, from one or from the path of a file."""
    if isinstance(image, str | Path):
        return open_image(image)
    pillow = require("PIL.Image", "images", "classifying images")
    if not isinstance(image, pillow.Image):
        raise ImageError(f"expected a Pillow image or the path of a file; got {type(image).__name__}")
    return image if image.mode == "RGB" else image.convert("RGB")


def image_rows(clip: Any, preprocess: Any) -> ImageRows:
    """Return the function of images that a CLIP and its preprocessing give.

    Parameters
    ----------
    clip : Encoder or torch.nn.Module
        An encoder of this package, which needs no preprocessing, or a model of open_clip or transformers.
    preprocess : callable or None
        For open_clip the transform of one image, for transformers the processor.
    """
    if hasattr(clip, "encode_images"):
        if preprocess is not None:
            raise ExportError("an encoder of fairerclip has its own preprocessing: leave preprocess out")
        return lambda images: np.asarray(clip.encode_images(np.stack([clip.preprocess(i) for i in images])))
    features: Any = getattr(clip, "get_image_features", None)
    encode: Any = getattr(clip, "encode_image", None)
    if features is None and encode is None:
        raise ExportError(
            "expected an encoder (fairerclip.encoders.load), a CLIP of open_clip or a CLIPModel or SiglipModel of "
            f"transformers; got {type(clip).__name__}"
        )
    if preprocess is None:
        what = "the processor of the model" if features is not None else "the transform of open_clip"
        raise ExportError(f"images need their preprocessing: give {what} as preprocess=")
    torch = require("torch", "torch", "encoding images")

    def rows(images: Sequence[Any]) -> Floats:
        if features is not None:
            pixels = preprocess(images=list(images), return_tensors="pt")["pixel_values"]
        else:
            pixels = torch.stack([preprocess(image) for image in images])
        weight = next(clip.parameters())
        with torch.inference_mode():
            pixels = pixels.to(device=weight.device, dtype=weight.dtype)
            found = features(pixel_values=pixels) if features is not None else encode(pixels)
        # transformers 5 returns an object, earlier versions the rows
        return np.asarray(getattr(found, "pooler_output", found).float().cpu().numpy())

    return rows
