"""Decoding of untrusted images with limits on their size.

EXIF orientation is not applied: CLIP's own preprocessing does not rotate images either.
"""

from __future__ import annotations

import io
import os
import re
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fairerclip._util.extras import require
from fairerclip.errors import ImageError

FORMATS = ("JPEG", "PNG", "WEBP", "BMP")
MAX_PIXELS = 50_000_000
"""Most pixels of an image; the header is checked before anything is allocated."""
MAX_FILE_BYTES = 256 * 1024**2
MAX_SCANS, MAX_MARKERS = 50, 10_000
"""Most scans and most segments of a JPEG. Progressive JPEGs have some ten scans; a scan may have a few bytes in the
file, but takes 50 ms to decode at 50 megapixels."""
_JPEG = b"\xff\xd8"
_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
"""Marker at the beginning of a JPEG segment; excludes bytes of the data and restart markers inside it."""
_SCAN, _END = 0xDA, 0xD9
_EIGHT_BITS = frozenset({"1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr"})


@contextmanager
def _quiet_bombs(pillow: Any) -> Iterator[None]:
    # Pillow warns of large images; those above our limit raise an error, and the others are accepted on purpose.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pillow.DecompressionBombWarning)
        yield


def _check_parts(raw: bytes) -> None:
    """Raise, before decoding, if a JPEG has too many scans or segments, which would take the decoder too long."""
    scans, at = 0, len(_JPEG)
    for _ in range(MAX_MARKERS):
        marker = _MARKER.search(raw, at)
        if marker is None or raw[marker.end() - 1] == _END:
            return
        at = marker.end() + int.from_bytes(raw[marker.end() : marker.end() + 2], "big")
        scans += raw[marker.end() - 1] == _SCAN
        if scans > MAX_SCANS:
            raise ImageError(f"it is a JPEG of more than {MAX_SCANS} scans; save it again")
    raise ImageError(f"it is a JPEG of more than {MAX_MARKERS:,} segments; save it again")


def _checked_source(content: Path | str | bytes) -> Path | str | io.BytesIO:
    """Return a source for Pillow after checks of the file size and, for a JPEG, of its segments."""
    if not isinstance(content, bytes):
        status = os.stat(content)
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait until somebody writes to it
            raise ImageError("it is a folder, a pipe or a device, not a file")
        if status.st_size > MAX_FILE_BYTES:
            raise ImageError(f"it is larger than {MAX_FILE_BYTES} bytes")
        with open(content, "rb") as handle:
            if handle.read(len(_JPEG)) == _JPEG:
                handle.seek(0)
                content = handle.read(status.st_size)
    if isinstance(content, bytes) and content.startswith(_JPEG):
        _check_parts(content)
    return io.BytesIO(content) if isinstance(content, bytes) else content


def open_image(content: Path | str | bytes, *, max_pixels: int = MAX_PIXELS) -> Any:
    """Decode an image to RGB.

    Memory: 8 to 10 bytes per pixel (16 for WEBP), for the image as stored and in RGB, and the file of a JPEG. The
    largest image, in WEBP, takes 800 MB.

    Parameters
    ----------
    content : path or bytes
        JPEG, PNG, WEBP or BMP, recognised by content, not by name; of an animation, the first frame.
    max_pixels : int
        Most pixels, checked in the header before decoding.

    Returns
    -------
    PIL.Image.Image
        Mode RGB. Transparency is dropped and the EXIF orientation is not applied, as in CLIP's own code.

    Raises
    ------
    ImageError
        Not an image of these formats, damaged, truncated, too large, of more than 8 bits per channel, or a JPEG of
        too many scans.
    """
    pillow = require("PIL.Image", "images", "reading images")
    try:
        with _quiet_bombs(pillow), pillow.open(_checked_source(content), formats=FORMATS) as image:
            width, height = image.size
            if width * height > max_pixels:
                raise ImageError(f"it has {width}×{height} pixels; at most {max_pixels} are decoded")
            if any(";16" in str(tile) for tile in image.tile):  # Pillow would silently drop half of the bits
                raise ImageError("it has 16 bits per channel; save it with 8 bits per channel")
            image.load()
            if image.mode not in _EIGHT_BITS:
                raise ImageError(f"it has mode {image.mode}; save it with 8 bits per channel")
            if image.mode == "P" and "transparency" in image.info:
                return image.convert("RGBA").convert("RGB")
            return image.convert("RGB")
    except ImageError:
        raise
    except pillow.DecompressionBombError as error:
        raise ImageError(f"it is a decompression bomb: {error}") from None
    except FileNotFoundError:
        raise ImageError("there is no such file") from None
    except pillow.UnidentifiedImageError:  # its message has the name of the file, or a memory address
        raise ImageError(f"it cannot be decoded: it is none of {', '.join(FORMATS)}, or damaged") from None
    except Exception as error:  # noqa: BLE001 - decoders may raise any exception on damaged bytes
        raise ImageError(f"it cannot be decoded: {type(error).__name__}: {str(error)[:200]}") from None
