"""Functions that draw the results of an audit as figures for a paper, one file each, a column or a page wide."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairerclip._util.extras import require
from fairerclip._util.files import check_folder, write_folder
from fairerclip.auditing.results import AuditResults
from fairerclip.errors import ParameterError
from fairerclip.report.figures.drawings import DRAWINGS

FORMATS = ("pdf", "png", "svg")
STYLE: dict[str, Any] = {
    "text.parse_math": False,  # text comes from files: `$` in it is a dollar sign
    "text.usetex": False,
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same file everywhere
    "font.size": 7.5,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "axes.grid": False,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.0,
    "figure.dpi": 100,
    "savefig.dpi": 300,
    "savefig.bbox": None,
    "savefig.transparent": False,
    "pdf.fonttype": 42,  # fonts as fonts, which publishers ask for
    "svg.fonttype": "none",
    "svg.hashsalt": "fairerclip",
}
NO_DATE = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {"Software": None}}


def check_figures(folder: Path, *, formats: Sequence[str] = ("pdf", "png"), overwrite: bool = False) -> None:
    """Raise before any work if `draw_figures` would fail: unknown format, folder in use, no matplotlib."""
    unknown = sorted(set(formats) - set(FORMATS))
    if unknown or not formats:
        raise ParameterError(
            f"figures are drawn as {', '.join(FORMATS)}; got {', '.join(unknown) or 'no format'}"
        )
    check_folder(folder, overwrite)
    require("matplotlib", "plots", "drawing figures")


def draw_figures(
    results: AuditResults,
    folder: str | Path,
    *,
    formats: Sequence[str] = ("pdf", "png"),
    overwrite: bool = False,
) -> list[Path]:
    """Draw a figure of each section of the results into a folder, all or none, and return the files.

    The same results give the same bytes with the same version of matplotlib. Needs the extra ``plots``.

    Parameters
    ----------
    results : AuditResults
        Results of an audit; sections that are None get no figure.
    folder : path
        Folder to write to.
    formats : sequence of {'pdf', 'png', 'svg'}
        Each figure is written in each of them.
    overwrite : bool
        Replace the files of an earlier call; other files in the folder stay.
    """
    folder = Path(folder)
    check_figures(folder, formats=formats, overwrite=overwrite)
    matplotlib = require("matplotlib", "plots", "drawing figures")
    contents: dict[str, bytes] = {}
    with matplotlib.rc_context(STYLE):
        for name, draw in DRAWINGS.items():
            figure = draw(results)
            for kind in formats if figure is not None else ():
                contents[f"{name}.{kind}"] = _saved(figure, kind)
    ours = [f"{name}.{kind}" for name in DRAWINGS for kind in FORMATS]
    return write_folder(folder, contents, overwrite=overwrite, ours=ours)


def _saved(figure: Any, kind: str) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, metadata=NO_DATE[kind])
    return buffer.getvalue()
