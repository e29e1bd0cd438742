"""`export_model`: the functions of a fitted model as ONNX files, for the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairerclip._util.checks import check_choice
from fairerclip._util.files import check_folder, check_free, output_folder
from fairerclip.errors import ExportError, OutputExistsError
from fairerclip.export.model_computation import PARTS, parts_of
from fairerclip.export.onnx_file import to_onnx

ENDING, ALL = ".onnx", "all"


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
    part: str | None = None,
    overwrite: bool = False,
) -> list[ExportedFile]:
    """Write a fitted model as ONNX: one function of it, or all.

    Parameters
    ----------
    model : FairerCLIP, EmbeddingMitigator, Baseline, or path
        A fitted model, or the folder of one.
    output : str or Path
        File to write, ``.onnx``; with ``part="all"`` a folder, with a file for each part.
    part : {"classifier", "image", "text", "all"}, optional
        Function of the model. Default: the classifier, or the map of a mitigator.
    overwrite : bool
        Replace the output.

    Returns
    -------
    list of ExportedFile
        The files that were written.
    """
    if part is not None:
        check_choice("part", part, (*PARTS, ALL))
    path = Path(output)
    _check_output(path, part, overwrite)
    if isinstance(model, str | Path):
        from fairerclip.model.archive import load

        model = load(model)
    if part != ALL:
        to_onnx(model, path, part=part, overwrite=overwrite)
        return [_described(part or parts_of(model)[0], path, path)]
    parts = parts_of(model)
    names = {name: f"{name}{ENDING}" for name in PARTS}
    with output_folder(path, overwrite=overwrite) as folder:
        for name in parts:
            to_onnx(model, folder / names[name], part=name, overwrite=overwrite)
        for name in {*PARTS} - {*parts}:
            (folder / names[name]).unlink(missing_ok=True)
        return [_described(name, folder / names[name], path / names[name]) for name in parts]


def _check_output(path: Path, part: str | None, overwrite: bool) -> None:
    """Raise before the work if the output cannot be written."""
    if part == ALL:
        check_folder(path, overwrite)
        if path.is_dir() and any(file.suffix != ENDING for file in path.iterdir()):
            raise OutputExistsError(f"{path} exists and holds other files than {ENDING}; it is left alone")
        return
    if path.suffix.lower() != ENDING:
        raise ExportError(f"the file must end in {ENDING}; got {path.name!r} (part all writes a folder)")
    check_free(path, overwrite)


def _described(part: str, written: Path, path: Path) -> ExportedFile:
    return ExportedFile(part, str(path), written.stat().st_size)
