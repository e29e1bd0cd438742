"""Images and prompts to embeddings: open_clip, transformers and ONNX behind one protocol.

`load` opens an `Encoder` from files on this machine; `embed_images` and `embed_prompts` write stores; `export_onnx`
writes an encoder as an ONNX folder; `Preprocessing` is what happens to an image before the model sees it;
`ModelChoice` is a model that is not loaded yet. Names are imported when first used.
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

__all__ = [*_HOMES]  # noqa: PLE0604 - kept in one place, in order
__getattr__, __dir__ = lazy(__name__, _HOMES)
