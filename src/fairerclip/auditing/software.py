"""What a result was made with."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from fairerclip import __version__


def made(**more: Any) -> dict[str, Any]:
    """Versions and date, and what else is worth keeping."""
    return {
        "fairerclip": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "scipy", "scikit-learn")},
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        **more,
    }
