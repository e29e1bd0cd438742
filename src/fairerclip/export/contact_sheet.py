"""`write_sheet`: the images of search results on one sheet, the original ones above the mitigated ones."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairerclip._util.extras import require
from fairerclip._util.files import atomic_file, check_free
from fairerclip.encoders.decode import open_image
from fairerclip.errors import ImageError, MissingImageWarning, ParameterError
from fairerclip.export.search_index import Hit, SearchResult

TILE, GAP, LINE = 128, 4, 16
"""Size of an image on the sheet, space between images, and height of a line of text, in pixels."""
MAX_TILES = 2_000
LONGEST = 100
"""Characters of a query that are drawn."""


def check_sheet(path: Path, overwrite: bool) -> None:
    """Raise before the work if no sheet can be written there, or Pillow is not installed."""
    require("PIL.Image", "images", "a sheet of images")
    if path.suffix.lower() != ".png":
        raise ParameterError(f"a sheet must end in .png; got {path.name!r}")
    check_free(path, overwrite)


def write_sheet(
    results: Sequence[SearchResult], images: str | Path, path: str | Path, *, overwrite: bool = False
) -> int:
    """Write a PNG with two rows of images for each query, and return the number of images that were not found.

    Parameters
    ----------
    results : sequence of SearchResult
        Results of `SearchIndex.search`.
    images : str or Path
        Folder of the images; the ids of the rows are their paths in it. Nothing outside of it is read.
    path : str or Path
        File to write.
    overwrite : bool
        Replace the file.
    """
    target, root = Path(path), Path(images)
    check_sheet(target, overwrite)
    if not root.is_dir():
        raise ParameterError(f"{root}: expected the folder of the images")
    pillow, draw = require("PIL.Image", "images", "a sheet"), require("PIL.ImageDraw", "images", "a sheet")
    columns = max((len(hits) for r in results for hits in (r.original, r.mitigated)), default=0)
    if not 0 < 2 * columns * len(results) <= MAX_TILES:
        raise ParameterError(
            f"a sheet holds 1 to {MAX_TILES:,} images; got {2 * columns * len(results):,}: ask for fewer results"
        )
    block = 3 * LINE + 2 * (TILE + GAP)
    sheet = pillow.new("RGB", (GAP + columns * (TILE + GAP), block * len(results)), "white")
    pen, missing = draw.Draw(sheet), []
    for place, result in enumerate(results):
        top = place * block
        pen.text((GAP, top), _drawn(result.query), fill="black")
        rows = (("original", result.original), ("mitigated", result.mitigated))
        for k, (title, hits) in enumerate(rows):
            left_alone = k == 1 and result.about is not None
            label = f"{title}: about {result.about}, so the original results" if left_alone else title
            y = top + LINE + k * (LINE + TILE + GAP)
            pen.text((GAP, y), _drawn(label), fill="black")
            missing += _paste(pillow, sheet, root, hits, y + LINE)
    with atomic_file(target, overwrite=overwrite) as handle:
        sheet.save(handle, format="PNG")
    lost = [*dict.fromkeys(missing)]
    if lost:
        warnings.warn(
            f"{len(lost)} images are grey on the sheet, the first {lost[0]}",
            MissingImageWarning,
            stacklevel=2,
        )
    return len(lost)


def _paste(pillow: Any, sheet: Any, root: Path, hits: Sequence[Hit], y: int) -> list[str]:
    """Paste a row of images; return those that are not there, with the reason."""
    missing = []
    for column, hit in enumerate(hits):
        place = (GAP + column * (TILE + GAP), y)
        try:
            image = open_image(image_file(root, hit.id))
            image.thumbnail((TILE, TILE))
            offset = ((TILE - image.width) // 2, (TILE - image.height) // 2)
            sheet.paste(image, (place[0] + offset[0], place[1] + offset[1]))
        except ImageError as error:
            missing.append(f"{hit.id!r}: {error}")
            sheet.paste(pillow.new("RGB", (TILE, TILE), "lightgrey"), place)
    return missing


def image_file(root: Path, name: str) -> Path:
    """Return the file of an image by its id; raise `ImageError` if it would lie outside of the folder."""
    try:
        file = (root / name).resolve()
        inside = file.is_relative_to(root.resolve())
    except (OSError, ValueError, RuntimeError) as error:  # a NUL in the name, or a circle of links
        raise ImageError(f"its id is no path: {error}") from None
    if not inside:
        raise ImageError("its path leads out of the folder of images")
    return file


def _drawn(text: str) -> str:
    """Return text that the built-in font of Pillow has, on one line."""
    plain = "".join(c if c.isprintable() else " " for c in text[:LONGEST])
    return plain.encode("latin-1", "replace").decode("latin-1")
