"""Short names for array types; docstrings and comments give the shapes where the arrays are used."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
Floats = NDArray[np.floating]
Ints = NDArray[np.integer]
CODES = np.int32
"""Type of the codes of classes and groups: collections have many rows, and half the memory is enough."""
