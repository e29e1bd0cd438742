"""Names of the arrays that pass through the rooms; shapes are said where they are used."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
Floats = NDArray[np.floating]
Ints = NDArray[np.int64]
