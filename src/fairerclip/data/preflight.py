"""Checks of embeddings before anything is computed from them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import F64
from fairerclip.data.hashing import hash_rows, random_keys, text_words
from fairerclip.data.provenance import Provenance, check_same_model
from fairerclip.data.row_pass import BLOCK_ROWS
from fairerclip.data.stores import UNIT_TOLERANCE, EmbeddingStore
from fairerclip.errors import ShapeError

SHOWN = 5


@dataclass(frozen=True)
class Preflight:
    """Result of `preflight`.

    Attributes
    ----------
    rows, width : int
        Shape of the store.
    dtype_on_disk : str
        Types of the numbers in the files.
    norm_min, norm_median, norm_max : float
        Lengths of the finite rows as they are on disk; NaN if there is no finite row.
    unit_rows : bool
        Whether every length is within 1e-3 of one.
    non_finite_rows, zero_rows, duplicate_rows, repeated_ids : int
        Rows with NaN or infinity, rows of zeros, rows that equal an earlier one bit by bit, and ids that equal
        an earlier one.
    first_non_finite, first_zero, first_duplicate : tuple of int
        Row numbers of the first few of these.
    has_ids : bool
        Whether rows have ids.
    text_rows : int or None
        Number of texts.
    modality_gap, modality_cosine : float or None
        Distance and cosine between the mean image and the mean text, of rows scaled to unit length.
    provenance, text_provenance : Provenance or None
        Model that made the embeddings; None if unknown.
    """

    rows: int
    width: int
    dtype_on_disk: str
    norm_min: float
    norm_median: float
    norm_max: float
    unit_rows: bool
    non_finite_rows: int
    first_non_finite: tuple[int, ...]
    zero_rows: int
    first_zero: tuple[int, ...]
    duplicate_rows: int
    first_duplicate: tuple[int, ...]
    has_ids: bool
    repeated_ids: int
    provenance: Provenance | None
    text_rows: int | None = None
    modality_gap: float | None = None
    modality_cosine: float | None = None
    text_provenance: Provenance | None = None

    @property
    def usable(self) -> bool:
        """Whether a model can be fitted on every row: all are finite and none is zero."""
        return self.non_finite_rows == 0 and self.zero_rows == 0

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; NaN becomes None."""
        values = asdict(self)
        return {k: None if isinstance(v, float) and np.isnan(v) else v for k, v in values.items()}

    def lines(self) -> list[str]:
        """Return the result as sentences."""
        out = [
            f"{self.rows:,} rows of width {self.width}, {self.dtype_on_disk} on disk.",
            f"Unit rows: {'yes' if self.unit_rows else 'no'} (lengths {self.norm_min:.4g} to {self.norm_max:.4g}, "
            f"median {self.norm_median:.4g}).",
        ]
        for count, first, fault in (
            (self.non_finite_rows, self.first_non_finite, "hold NaN or infinity"),
            (self.zero_rows, self.first_zero, "are all zero"),
            (self.duplicate_rows, self.first_duplicate, "equal an earlier row"),
        ):
            where = f" (first: {', '.join(map(str, first))})" if count else ""
            out.append(f"{count:,} rows {fault}{where}.")
        out.append(
            f"{self.repeated_ids:,} ids are repeated."
            if self.has_ids
            else "Rows have no ids: labels can be joined to them only by position."
        )
        if self.text_rows is not None:
            out.append(
                f"Modality gap to {self.text_rows:,} texts: distance {self.modality_gap:.3f}, cosine of the means "
                f"{self.modality_cosine:.3f}."
            )
            out.append(f"Texts come from {self.text_provenance or 'an unknown model'}.")
        out.append(f"Images come from {self.provenance or 'an unknown model'}.")
        return out


def preflight(store: Any, text: Any = None) -> Preflight:
    r"""Check embeddings before they are used: lengths, damaged rows, duplicates, and the modality gap.

    Parameters
    ----------
    store : EmbeddingStore, or array of shape (n, p)
        Read once, by blocks; rows that may be duplicates are read again.
    text : EmbeddingStore, array of shape (m, p), or None
        Prompt embeddings to which the modality gap is measured.

    Returns
    -------
    Preflight
        O(n·p) time; memory for one block, 28 bytes per row, and the ids if there are any.

    Raises
    ------
    ShapeError
        Texts and images have different widths.
    ProvenanceError
        Texts come from another model.

    Examples
    --------
    >>> print(*preflight(np.eye(3, dtype=np.float32)).lines()[:2], sep="\n")
    3 rows of width 3, float32 on disk.
    Unit rows: yes (lengths 1 to 1, median 1).
    """
    images = store if isinstance(store, EmbeddingStore) else EmbeddingStore.from_array(store)
    texts = _texts(text, images)
    norms, sums, hashes = _pass(images)
    bad, zero = np.flatnonzero(~np.isfinite(norms)), np.flatnonzero(norms == 0)
    finite = norms[np.isfinite(norms)]
    low, middle, high = _range(finite)
    repeated = _duplicates(images, hashes)
    gap, cosine = (None, None) if texts is None else _gap(sums, _pass(texts)[1])
    ids = images.ids
    return Preflight(
        rows=images.shape[0],
        width=images.shape[1],
        dtype_on_disk=images.dtype_on_disk,
        norm_min=low,
        norm_median=middle,
        norm_max=high,
        unit_rows=bool(finite.size == len(norms) and np.all(np.abs(finite - 1.0) <= UNIT_TOLERANCE)),
        non_finite_rows=len(bad),
        first_non_finite=tuple(bad[:SHOWN].tolist()),
        zero_rows=len(zero),
        first_zero=tuple(zero[:SHOWN].tolist()),
        duplicate_rows=len(repeated),
        first_duplicate=tuple(repeated[:SHOWN].tolist()),
        has_ids=ids is not None,
        repeated_ids=0 if ids is None else _repeated(ids),
        provenance=images.provenance,
        text_rows=None if texts is None else texts.shape[0],
        modality_gap=gap,
        modality_cosine=cosine,
        text_provenance=None if texts is None else texts.provenance,
    )


def _range(norms: F64) -> tuple[float, float, float]:
    """Return the smallest, the median and the largest length; NaN if there is none."""
    if not norms.size:
        return np.nan, np.nan, np.nan
    return float(norms.min()), float(np.median(norms)), float(norms.max())


def _texts(text: Any, images: EmbeddingStore) -> EmbeddingStore | None:
    if text is None:
        return None
    if not isinstance(text, EmbeddingStore) and np.ndim(text) != 2:
        raise ShapeError(f"text must have shape (m, {images.shape[1]}), got {np.shape(text)}")
    texts = text if isinstance(text, EmbeddingStore) else EmbeddingStore.from_array(text, path="text")
    check_same_model(images.provenance, texts.provenance)
    if texts.shape[1] != images.shape[1]:
        raise ShapeError(
            f"texts have width {texts.shape[1]}, images {images.shape[1]}; embed both with the same model"
        )
    return texts


def _pass(store: EmbeddingStore) -> tuple[F64, tuple[F64, int], NDArray[np.uint64]]:
    """Return lengths (n,), the sum of the rows scaled to unit length with their number, and a hash of each row."""
    n, p = store.shape
    norms, hashes = np.empty(n), np.empty(n, dtype=np.uint64)
    total, counted = np.zeros(p), 0
    keys = random_keys(p, np.random.default_rng())
    for start in range(0, n, BLOCK_ROWS):
        block = slice(start, min(start + BLOCK_ROWS, n))
        with np.errstate(over="ignore", invalid="ignore"):
            rows = np.array(store.raw(block), dtype=np.float32)
            norms[block] = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
        hashes[block] = hash_rows(rows.view(np.uint32), keys)
        has_direction = np.isfinite(norms[block]) & (norms[block] > 0)
        total += (1.0 / norms[block][has_direction]) @ rows[has_direction]
        counted += int(has_direction.sum())
    return norms, (total, counted), hashes


def _duplicates(store: EmbeddingStore, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the numbers of rows that equal an earlier row, first by hash and then bit by bit."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    same = np.flatnonzero(ordered[1:] == ordered[:-1])
    duplicates = []
    for start in range(0, len(same), BLOCK_ROWS):
        earlier, later = (order[same[start : start + BLOCK_ROWS] + shift] for shift in (0, 1))
        a, b = (np.ascontiguousarray(store[rows]).view(np.uint32) for rows in (earlier, later))
        duplicates.append(later[(a == b).all(axis=1)])
    return np.sort(np.concatenate(duplicates)) if duplicates else np.empty(0, dtype=np.int64)


def _repeated(ids: NDArray[Any]) -> int:
    words = text_words(ids)
    hashes = hash_rows(words, random_keys(words.shape[1], np.random.default_rng()))
    order = np.argsort(hashes, kind="stable")
    same = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
    return int(np.sum(ids[order[same]] == ids[order[same + 1]]))


def _gap(images: tuple[F64, int], texts: tuple[F64, int]) -> tuple[float, float]:
    a, b = (total / max(count, 1) for total, count in (images, texts))
    length = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.linalg.norm(a - b)), float(a @ b) / length if length > 0 else float("nan")
