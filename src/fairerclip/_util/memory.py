"""Memory of this machine and of this process, as the system reports it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PROC = Path("/proc")
"""Where Linux reports on itself."""


def available_memory() -> int | None:
    """Return the bytes that the system can give now; None if it does not say.

    On Linux, the file cache of the system counts, which it gives up when memory is asked for.
    """
    known = _reported(PROC / "meminfo", "MemAvailable")
    if known is not None:
        return known
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def peak_memory() -> float | None:
    """Return the most memory that this process has had so far, in MB (2^20 bytes); None if the system does not say.

    On Linux it is not the ``ru_maxrss`` of the process, which begins with the memory of the process that started it.
    """
    known = _reported(PROC / "self" / "status", "VmHWM")
    if known is not None:
        return known / (1 << 20)
    try:
        import resource
    except ImportError:  # not a Unix
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20) if sys.platform == "darwin" else peak / 1024


def _reported(file: Path, name: str) -> int | None:
    """Return the bytes that a line "name: 123 kB" of a file reports; None without the file or the line."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None
