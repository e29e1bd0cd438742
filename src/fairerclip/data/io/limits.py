"""Limits of the readers: what a file may declare before anything is allocated for it.

Each constant is the default of one field of `Limits`; a reader takes ``Limits(npz_bytes=...)`` instead.
"""

from dataclasses import dataclass

MAX_NPZ_BYTES = 8 * 1024**3  # all arrays of one file together, uncompressed
MAX_RATIO = 100.0  # uncompressed : compressed
RATIO_FREE_BYTES = 64 * 1024**2  # labels compress 1000:1 quite honestly, but they are small
MAX_MEMBERS = 256  # arrays in one .npz
MAX_DIRECTORY_BYTES = 1024**2  # zip directory; zipfile builds an object per entry before we can count
MAX_HEADER_BYTES = 10_000  # one .npy header, as numpy's own max_header_size
MAX_AXES = 8


@dataclass(frozen=True)
class Limits:
    """What a file may declare.

    Examples
    --------
    >>> Limits(npz_bytes=10**6).members
    256
    """

    npz_bytes: int = MAX_NPZ_BYTES
    ratio: float = MAX_RATIO
    ratio_free_bytes: int = RATIO_FREE_BYTES
    members: int = MAX_MEMBERS
    directory_bytes: int = MAX_DIRECTORY_BYTES
    header_bytes: int = MAX_HEADER_BYTES
    axes: int = MAX_AXES


DEFAULT_LIMITS = Limits()
