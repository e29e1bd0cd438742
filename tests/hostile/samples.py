"""Good inputs that other tests keep, for scripts that run without pytest."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS), str(TESTS / "report"), str(TESTS / "encoders")]

import clip_settings  # noqa: E402
from sample import two_class  # noqa: E402

__all__ = ["clip_settings", "two_class"]
