"""Models and mitigated collections in the form of other programs.

`to_onnx` writes a function of a fitted model as an ONNX file, `to_torch` returns it as a torch module, and
`export_model` writes files of either kind. `build_index` writes a folder with an index of the original rows and one of
the mitigated rows, as faiss reads them; `open_index` opens it as a `SearchIndex`. Names are imported when they are
first used.
"""

from fairerclip._util.lazy import lazy

_HOMES = {
    "SearchIndex": "search_index",
    "build_index": "build_search_index",
    "export_model": "model_files",
    "open_index": "search_index",
    "to_onnx": "onnx_file",
    "to_torch": "torch_file",
    "write_sheet": "contact_sheet",
}

__all__ = [*_HOMES]  # noqa: PLE0604 - the names are listed once, in _HOMES
__getattr__, __dir__ = lazy(__name__, _HOMES)
