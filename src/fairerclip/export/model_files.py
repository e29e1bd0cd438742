"""`export_model`: the functions of a fitted model as files of ONNX or torch, for the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairerclip._util.checks import check_choice
from fairerclip._util.files import atomic_folder, check_folder, check_free
from fairerclip.errors import ExportError, OutputExistsError
from fairerclip.export.model_computation import PARTS, parts_of
from fairerclip.export.onnx_file import to_onnx
from fairerclip.export.torch_file import write_pt2

FORMATS: dict[str, tuple[str, Callable[..., Path]]] = {
    "onnx": (".onnx", to_onnx),
    "torch": (".pt2", write_pt2),
}
"""Format → ending of its files, and what writes one."""
ALL = "all"


@dataclass(frozen=True)
class ExportedFile:
    """A file that was written: which part of the model it is, and its size."""

    part: str
    path: str
    bytes: int


def export_model(
    model: Any,
    output: str | Path,
    *,
    format: str = "onnx",  # noqa: A002 - as the option of the command
    part: str | None = None,
    overwrite: bool = False,
) -> list[ExportedFile]:
    """Write a fitted model in the format of another program.

    Parameters
    ----------
    model : FairerCLIP, EmbeddingMitigator, Baseline, or path
        A fitted model, or the folder of one.
    output : str or Path
        File to write, ``.onnx`` or ``.pt2``; with ``part="all"`` a folder, with a file for each part.
    format : {"onnx", "torch"}
        An ONNX file (`to_onnx`), or an archive of torch (`write_pt2`).
    part : {"classifier", "image", "text", "all"}, optional
        Function of the model. Default: the classifier, or the map of a mitigator.
    overwrite : bool
        Replace the output.

    Returns
    -------
    list of ExportedFile
        The files that were written.
    """
    check_choice("format", format, tuple(FORMATS))
    if part is not None:
        check_choice("part", part, (*PARTS, ALL))
    ending, write = FORMATS[format]
    path = Path(output)
    _check_output(path, ending, part, overwrite)
    if isinstance(model, str | Path):
        from fairerclip.model.archive import load

        model = load(model)
    if part != ALL:
        write(model, path, part=part, overwrite=overwrite)
        return [_described(part or parts_of(model)[0], path, path)]
    parts = parts_of(model)
    names = {name: f"{name}{ending}" for name in PARTS}
    with atomic_folder(path, overwrite=overwrite, ours=[*names.values()]) as fresh:
        for name in parts:
            write(model, fresh / names[name], part=name)
        return [_described(name, fresh / names[name], path / names[name]) for name in parts]


def _check_output(path: Path, ending: str, part: str | None, overwrite: bool) -> None:
    """Raise before the work if the output cannot be written."""
    if part == ALL:
        check_folder(path, overwrite)
        if path.is_dir() and any(file.suffix != ending for file in path.iterdir()):
            raise OutputExistsError(f"{path} exists and holds other files than {ending}; it is left alone")
        return
    if path.suffix.lower() != ending:
        raise ExportError(f"the file must end in {ending}; got {path.name!r} (part all writes a folder)")
    check_free(path, overwrite)


def _described(part: str, written: Path, path: Path) -> ExportedFile:
    return ExportedFile(part, str(path), written.stat().st_size)
