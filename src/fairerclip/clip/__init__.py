"""Images and prompts to embeddings: open_clip, transformers and ONNX behind one protocol.

`load` opens an `Encoder` from files on this machine; `export_onnx` writes one as an ONNX folder;
`Preprocessing` is what happens to an image before the model sees it; `ModelChoice` is a model that is not loaded yet.
"""

from fairerclip.clip.base import Encoder
from fairerclip.clip.choice import ModelChoice, model_choices
from fairerclip.clip.export import export_onnx
from fairerclip.clip.loading import load
from fairerclip.clip.preprocess import Preprocessing

__all__ = ["Encoder", "ModelChoice", "Preprocessing", "export_onnx", "load", "model_choices"]
