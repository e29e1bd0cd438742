"""Encoders of images and prompts: open_clip, transformers and ONNX models with one interface.

`load` opens an `Encoder` from local files; `embed_images` and `embed_prompts` write embeddings to stores;
`export_onnx` writes an encoder as an ONNX folder; `Preprocessing` prepares an image for a model; `ModelChoice`
describes a model that is not loaded yet. Names are imported when they are first used.
"""

from fairerclip._util.lazy import lazy

_HOMES = {
    "Encoder": "encoder",
    "ModelChoice": "choice",
    "Preprocessing": "preprocess",
    "embed_images": "embed",
    "embed_prompts": "embed",
    "export_onnx": "onnx_export",
    "load": "loading",
    "model_choices": "choice",
}

__all__ = [*_HOMES]  # noqa: PLE0604 - the names are listed once, in _HOMES
__getattr__, __dir__ = lazy(__name__, _HOMES)
