"""`wrap`: a fitted model and a CLIP together, in the place of the CLIP or of a zero-shot classifier."""

from __future__ import annotations

from typing import Any

from fairerclip._util.extras import require
from fairerclip.embedding.mitigator import EmbeddingMitigator
from fairerclip.errors import ExportError
from fairerclip.export.model_computation import parts_of
from fairerclip.export.torch_file import to_torch
from fairerclip.export.zero_shot_images import ImageClassifier, image_rows


def wrap(model: Any, clip: Any, preprocess: Any = None) -> Any:
    """Put a fitted model into a CLIP, so that code that uses the CLIP works unchanged.

    With an `EmbeddingMitigator` the result is a CLIP of the same class whose image embeddings are mitigated:
    ``wrap(mitigator, clip).encode_image(x)`` is ``mitigator.transform(clip.encode_image(x))``. Logits, which models
    compute from these embeddings, are mitigated, too; texts stay as they are. The given CLIP is not changed. Weights
    are shared with it, so that training one of them trains the other; move the wrapped model to another device.

    With a classifier the result is called as ``pipeline("zero-shot-image-classification")`` is, with an image or a list
    of images, and answers with the classes of the fit. See docs/how-to/export.md.

    Parameters
    ----------
    model : EmbeddingMitigator, FairerCLIP or Baseline
        A fitted model.
    clip : torch.nn.Module or Encoder
        Model of open_clip, or a CLIPModel or SiglipModel of transformers; for a classifier also an encoder of
        `fairerclip.encoders.load`. It must be the model whose embeddings were fitted.
    preprocess : callable, optional
        For a classifier: the transform of open_clip, or the processor of transformers. An encoder has its own.

    Returns
    -------
    torch.nn.Module or ImageClassifier
        The mitigated CLIP, or the classifier.
    """
    parts_of(model)  # raises for anything but a fitted model
    if not isinstance(model, EmbeddingMitigator):
        return ImageClassifier(model, image_rows(clip, preprocess))
    require("torch", "torch", "wrapping a CLIP")
    from fairerclip.export.mitigated_clip import mitigated_clip

    if preprocess is not None:
        raise ExportError("a mitigated CLIP takes the same inputs as before: leave preprocess out")
    return mitigated_clip(to_torch(model, dtype="float64"), clip)
