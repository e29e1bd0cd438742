"""Rows of embeddings: scaling to unit length, checks of their values, and a summary of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.arrays import (
    SINGLE,
    beside,
    cast,
    column_sums,
    copied,
    is_tensor,
    namespace,
    row_squares,
    to_numpy,
    type_name,
)
from fairerclip._util.types import F64, Floats
from fairerclip.data.row_pass import Progress, cache_sized, fill_rows, is_remote, sum_rows
from fairerclip.errors import (
    NonFiniteError,
    ShapeError,
    ZeroRowError,
    ZeroRowWarning,
)

READ_ROWS = 16384
"""Rows per block where blocks are summed or multiplied with prompts. Another size would change the last digits of the
sums."""
SMALLEST, LARGEST = 1e-15, 1e15
"""Magnitudes of X between which squares and their sums stay within float32."""

TAILS = (0.01, 0.5, 0.99)
"""Quantiles of the row lengths that a model keeps."""


def _listed(rows: Sequence[int]) -> str:
    first = ", ".join(str(r) for r in rows[:5])
    return f"{len(rows)} rows (first: {first})" if len(rows) > 1 else f"row {first}"


def unit_rows(rows: Any) -> NDArray[Any]:
    """Return the rows scaled to unit length; a zero row stays zero.

    The result is float32 for float16 and float32 input, and float64 otherwise; of a tensor it is a tensor. Lengths are
    computed in float64, or in float32 on a device that has no float64.
    """
    rows, lengths, _ = _with_lengths(rows)
    unit: NDArray[Any] = _divided(rows, lengths)
    return unit


def _divided(rows: Any, lengths: Any) -> Any:
    """Return rows divided by their lengths (n,); a zero row stays zero."""
    divisors = cast(lengths, rows.dtype)[:, None]
    positive = divisors > 0
    if bool(positive.all()):
        return rows / divisors  # the same numbers, twice as fast
    xp = namespace(rows)
    return xp.where(positive, rows / xp.where(positive, divisors, 1), 0)


def _unit_sum(rows: Any, lengths: Any) -> F64:
    """Return the sum (p,) of rows divided by their lengths (n,), in float64; a zero row adds nothing."""
    if is_tensor(rows):
        return column_sums(_divided(rows, lengths))
    inverse = np.divide(1.0, lengths, out=np.zeros(len(rows)), where=lengths > 0)
    total = np.zeros(rows.shape[1])
    for part in cache_sized(rows):
        total += inverse[part] @ rows[part].astype(np.float64, copy=False)
    return total


def row_lengths(rows: Any) -> Any:
    """Return the Euclidean lengths (n,) of rows, in float64; a tensor of them for a tensor, as `unit_rows` has it."""
    _, lengths, scale = _with_lengths(rows)
    return _scaled_back(lengths, scale)


def _scaled_back(lengths: Any, scale: Any) -> Any:
    """Return lengths·scale (n,); a length that overflows float64 becomes the largest number that it has."""
    xp = namespace(lengths)
    with np.errstate(over="ignore"):
        return xp.clip(lengths * scale, None, xp.finfo(lengths.dtype).max)


def _with_lengths(rows: Any, squares: Any = None) -> tuple[Any, Any, Any]:
    """Return rows in working precision, their lengths (n,), and the divisors (n,) of very large and small rows."""
    rows = working_rows(rows)
    xp = namespace(rows)
    lengths = xp.sqrt(row_squares(rows) if squares is None else squares)
    scale = xp.ones_like(lengths)
    extreme = np.flatnonzero(to_numpy(~((lengths > SMALLEST) & (lengths < LARGEST))))
    if len(extreme):  # few rows, if any, so that they are divided on the CPU
        few = to_numpy(rows[extreme])
        largest = np.abs(few).max(axis=1, initial=0.0)
        divisors = np.where(largest > 0, largest, 1.0).astype(np.float64)
        few = few / divisors[:, None].astype(few.dtype)
        scale[extreme] = beside(scale, divisors)
        rows = copied(rows)
        rows[extreme] = beside(rows, few)
        lengths[extreme] = beside(lengths, np.sqrt(np.sum(np.square(few, dtype=np.float64), axis=1)))
    return rows, lengths, scale


def working_rows(rows: Any) -> Any:
    """Return rows as an array or a tensor in the precision in which they are processed."""
    rows = rows if is_tensor(rows) else np.asarray(rows)
    return cast(rows, working_dtype(rows.dtype))


def working_dtype(dtype: Any) -> type[np.floating]:
    """Return the precision in which rows of a dtype are processed."""
    return np.float32 if type_name(dtype) in SINGLE else np.float64


def unit_view(X: Any, lengths: Floats | None = None) -> Any:
    """Return rows that are scaled to unit length when they are read, wherever they are.

    ``lengths`` (n,) are those of the rows, if they are known: they need not be computed in every pass then.
    """
    return X.wrapped(UnitRows) if is_remote(X) else UnitRows(X, lengths)


class UnitRows:
    """View of X whose rows are scaled to unit length when they are read; X is neither copied nor changed.

    Parameters
    ----------
    X : array, memory map or store of shape (n, p)
        Embeddings.
    lengths : array of shape (n,) or None
        Lengths of the rows, if they are known.
    """

    def __init__(self, X: Any, lengths: Floats | None = None) -> None:
        self._X = X
        self.shape = (int(X.shape[0]), int(X.shape[1]))
        self.ndim = 2
        self.dtype = np.dtype(working_dtype(X.dtype))
        self.device = getattr(X, "device", None)
        # Very long and very short rows are divided twice, so that float32 can hold them: `unit_rows` does it.
        usable = lengths is not None and bool(((lengths > SMALLEST) & (lengths < LARGEST)).all())
        self._lengths = lengths.astype(self.dtype, copy=False) if lengths is not None and usable else None

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Any:
        if self._lengths is None:
            return unit_rows(self._X[rows])
        read = working_rows(self._X[rows])
        return read / beside(read, self._lengths[rows])[:, None]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        return to_numpy(unit_rows(self._X[:])).astype(dtype or self.dtype, copy=False)


class CheckedRows:
    """Accumulator of a pass that finds rows which are zero or not finite and, if wanted, summarises the others."""

    per_row = True  # the summary needs the lengths of all rows

    def __init__(self, *, summary: bool) -> None:
        self.rows = 0
        self.bad: list[int] = []
        self.zero: list[int] = []
        self._summary, self._lengths = summary, []  # type: bool, list[Floats]
        self._total: Any = 0.0

    def add(self, rows: Any) -> None:
        """Add a block of rows (b, p)."""
        rows, squares = self._checked(rows)
        if self._summary and not self.bad:
            working, lengths, scale = _with_lengths(rows, squares)
            found, dtype = to_numpy(_scaled_back(lengths, scale)), working_dtype(working.dtype)
            # The length of a row whose entries fit into float32 may not.
            fits = float(found.max(initial=0.0)) <= float(np.finfo(dtype).max)
            self._lengths.append(found.astype(dtype, copy=False) if fits else found)
            self._total = self._total + _unit_sum(working, lengths)

    def _checked(self, rows: Any) -> tuple[Any, Any]:
        """Check a block, and return it in working precision with the squared lengths of its rows."""
        rows = working_rows(rows)
        squares = row_squares(rows)
        # The square of a row that is finite and not zero can overflow or vanish: only these rows are looked at again.
        sound = namespace(rows).isfinite(squares) & (squares > 0)
        doubtful = np.flatnonzero(to_numpy(~sound))
        few = to_numpy(rows[doubtful])
        finite = np.isfinite(few).all(axis=1)
        zero = finite & ~few.any(axis=1)
        self.bad += (self.rows + doubtful[~finite]).tolist()
        self.zero += (self.rows + doubtful[zero]).tolist()
        self.rows += len(rows)
        return rows, squares

    def merge(self, other: CheckedRows) -> None:
        """Add the rows after these."""
        self.bad += [self.rows + row for row in other.bad]
        self.zero += [self.rows + row for row in other.zero]
        self.rows += other.rows
        self._lengths += other._lengths
        self._total = self._total + other._total

    def report(self, name: str, *, zero_is_error: bool, depth: int) -> None:
        """Raise if rows are not finite; raise or warn, at stack level ``depth``, if rows are zero."""
        if self.bad:
            raise NonFiniteError(
                f"Input {name} contains NaN or infinity in {_listed(self.bad)} of {self.rows}; "
                "remove these rows or embed their images again"
            )
        if not self.zero:
            return
        message = f"{name} is zero in {_listed(self.zero)} of {self.rows}"
        if zero_is_error:
            raise ZeroRowError(
                f"{message}: their cosine with a prompt is undefined; remove these rows or embed their "
                "images again"
            )
        warnings.warn(message, ZeroRowWarning, stacklevel=depth)

    @property
    def lengths(self) -> Floats:
        """(n,) lengths of all rows, if they were summarised, in the precision in which the rows are processed."""
        self._lengths = [np.concatenate(self._lengths)]
        return self._lengths[0]

    def summary(self) -> RowSummary:
        """Return the summary of all rows."""
        quantiles = np.quantile(self.lengths, TAILS).astype(np.float64)
        return RowSummary(self.rows, quantiles, self._total / self.rows)


class _CheckedFill(CheckedRows):
    """Accumulator that checks rows and writes a function of them, at unit length if wanted, into their places."""

    def __init__(self, function: Callable[[Floats], Floats], *, unit: bool) -> None:
        super().__init__(summary=False)
        self._function, self._unit = function, unit

    def add(self, rows: Any, out: Floats, *columns: Any) -> None:  # type: ignore[override]
        rows, squares = self._checked(rows)
        if self.bad:
            return  # the pass ends with an error, and the function need not see such rows
        if self._unit:
            rows, lengths, _ = _with_lengths(rows, squares)
            rows = _divided(rows, lengths)
        found = self._function(rows, *columns)
        out[...] = found if is_tensor(out) else to_numpy(found)


def fill_checked(
    X: Any,
    name: str,
    function: Callable[..., Floats],
    out: Floats,
    columns: Sequence[Any] = (),
    *,
    unit: bool,
    depth: int = 4,
) -> Floats:
    """Write a function of blocks of rows, scaled to ``unit`` length or not, into ``out`` (n, …), and return it.

    The function also gets the same rows of each of the ``columns`` (n, …).

    Rows are checked in the same pass, as `check_rows` does: it raises if one is not finite, and warns if one is zero.
    """
    if is_remote(X):
        check_rows(X, name, zero_is_error=False, depth=depth + 1)
        return fill_rows(unit_view(X) if unit else X, function, out, columns)
    found = sum_rows(X, partial(_CheckedFill, function, unit=unit), [out, *columns])
    found.report(name, zero_is_error=False, depth=depth + 1)
    return out


def check_rows(X: Any, name: str, *, zero_is_error: bool, depth: int = 4) -> None:
    """Raise if rows are not finite; raise or warn, at stack level ``depth``, if rows are zero. O(n·p), by blocks."""
    found = sum_rows(X, partial(CheckedRows, summary=False))
    found.report(name, zero_is_error=zero_is_error, depth=depth + 1)


def measured_rows(
    X: Any, name: str, *, zero_is_error: bool, depth: int = 4, progress: Progress | None = None
) -> CheckedRows:
    """Do as `check_rows` does, and return what is needed for a summary of the rows, in the same pass."""
    found = sum_rows(X, partial(CheckedRows, summary=True), progress=progress)
    found.report(name, zero_is_error=zero_is_error, depth=depth + 1)
    return found


def summarise_rows(
    X: Any, name: str, *, zero_is_error: bool, depth: int = 4, progress: Progress | None = None
) -> RowSummary:
    """Do as `check_rows` does, and return a summary of the rows, in the same pass."""
    return measured_rows(X, name, zero_is_error=zero_is_error, depth=depth + 1, progress=progress).summary()


def check_directions(X: Any) -> None:
    """Raise if X has one column only: scaled to unit length, its rows are all 1 or −1."""
    if X.shape[1] < 2:
        raise ShapeError(
            f"X has {X.shape[1]} feature(s), and rows of one column have no direction: give embeddings of 2 columns or "
            "more, or set normalize=False"
        )


class _Largest:
    """Accumulator of the largest magnitude."""

    magnitude = 0.0

    def add(self, rows: Any) -> None:
        self.magnitude = max(self.magnitude, float(namespace(rows).abs(rows).max()))

    def merge(self, other: _Largest) -> None:
        self.magnitude = max(self.magnitude, other.magnitude)


def check_scale(X: Any) -> None:
    """Raise if float32 cannot hold the squares of X, which would turn into NaN. O(n·p)."""
    largest = sum_rows(X, _Largest).magnitude
    if largest > 0 and not SMALLEST <= largest <= LARGEST:
        raise NonFiniteError(
            f"the largest magnitude in X is {largest:.3g}; embeddings must lie between {SMALLEST:g} and {LARGEST:g}: "
            "rescale X"
        )


@dataclass(frozen=True, eq=False)
class RowSummary:
    """Summary of rows, to compare new rows with those of a fit; single rows cannot be recovered from it.

    Parameters
    ----------
    rows : int
        Number of rows.
    lengths : array of shape (3,)
        The 1 %, 50 % and 99 % quantiles of the row lengths, before any scaling.
    mean : array of shape (p,)
        Mean of the rows scaled to unit length.
    """

    rows: int
    lengths: F64
    mean: F64

    @classmethod
    def of(cls, X: Any) -> RowSummary:
        """Summarise X (n, p) in one pass, by blocks. O(n·p)."""
        return sum_rows(X, partial(CheckedRows, summary=True)).summary()

    @classmethod
    def joined(cls, parts: Sequence[RowSummary]) -> RowSummary:
        """Return the summary of several groups of rows; quantiles of lengths are averaged by their numbers of rows."""
        sizes = np.array([part.rows for part in parts], dtype=np.float64)
        shares = sizes / sizes.sum()
        lengths = sum(share * part.lengths for share, part in zip(shares, parts, strict=True))
        mean = sum(share * part.mean for share, part in zip(shares, parts, strict=True))
        return cls(int(sizes.sum()), np.asarray(lengths), np.asarray(mean))
