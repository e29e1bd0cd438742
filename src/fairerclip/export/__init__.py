"""Models in the form of other programs.

`to_onnx` writes a function of a fitted model as an ONNX file, `to_torch` returns it as a torch module, and
`export_model` writes ONNX files of one or all functions. Names are imported when they are first used.
"""

from fairerclip._util.lazy import lazy

_HOMES = {
    "export_model": "model_files",
    "to_onnx": "onnx_file",
    "to_torch": "torch_file",
}

__all__ = [*_HOMES]  # noqa: PLE0604 - the names are listed once, in _HOMES
__getattr__, __dir__ = lazy(__name__, _HOMES)
