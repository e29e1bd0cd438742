"""Memory of this machine and of this process, as the system reports it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PROC = Path("/proc")
"""Where Linux reports on itself."""
GROUPS = Path("/sys/fs/cgroup")
"""Where Linux keeps the limits of groups of processes."""


def available_memory() -> int | None:
    """Return the bytes that the system can give now; None if it does not say.

    On Linux, the file cache of the system counts, which it gives up when memory is asked for, and so does the limit of
    the container or service that the process runs in.
    """
    known = _reported(PROC / "meminfo", "MemAvailable")
    if known is not None:
        allowed = _allowed_by_group()
        return known if allowed is None else min(known, allowed)
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _allowed_by_group() -> int | None:
    """Return the bytes that are left to the control group of this process; None without a limit."""
    try:
        groups = (PROC / "self" / "cgroup").read_text(encoding="utf-8").splitlines()
        own = next(line.removeprefix("0::/") for line in groups if line.startswith("0::/"))
    except (OSError, StopIteration):
        return None
    left = []
    folder = GROUPS / own
    for group in (folder, *folder.parents):  # the limit of a group holds for those inside it
        try:
            limit = int((group / "memory.max").read_text())
            used = int((group / "memory.current").read_text())
            cached = _entry(group / "memory.stat", "inactive_file")
        except (OSError, ValueError):  # no limit, which is written as "max", or not a group
            cached = None
        else:
            left.append(limit - used + (cached or 0))
        if group == GROUPS:
            break
    return max(0, min(left)) if left else None


def _entry(file: Path, name: str) -> int | None:
    """Return the number in the line "name 123" of a file; None without the line."""
    lines = (line.split() for line in file.read_text(encoding="utf-8").splitlines())
    return next((int(words[1]) for words in lines if words[:1] == [name]), None)


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
