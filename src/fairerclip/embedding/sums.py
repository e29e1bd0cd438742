"""Sums over the rows of a mitigator's fit: moments of [x, L], which merge and stream."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.arrays import beside
from fairerclip._util.types import F64, Floats, Ints
from fairerclip.data.embedding_rows import RowSummary, unit_view
from fairerclip.data.row_pass import sum_rows
from fairerclip.embedding.attributes import Given, MitigatedAttribute, resolve_attribute, term_sizes
from fairerclip.embedding.collection_drift import CollectionSummary
from fairerclip.embedding.same_space import SameSpace, factor_same_space
from fairerclip.errors import ConstantSensitiveWarning, LabelError, NoSensitiveWarning
from fairerclip.inputs.sensitive_columns import SensitiveColumn
from fairerclip.inputs.weights import check_weights
from fairerclip.solver.moments import Moments
from fairerclip.solver.rows import DEFAULT_PASSES, PassOptions, sum_threads

SAMPLE_ROWS = 20_000
"""Rows from which the distribution of the cosines with the prompts is estimated."""


class Factored(NamedTuple):
    """The factored problem of the rows so far, and their summary."""

    space: SameSpace
    summary: CollectionSummary


@dataclass(eq=False)
class MitigatorSums:
    """Accumulator of the rows of a fit; attributes were fixed by the first rows.

    Attributes
    ----------
    attributes : list of MitigatedAttribute
        Sensitive attributes that vary.
    crossed : bool
        Whether the combinations of the attributes are one term.
    moments : Moments
        Sums of [x, L].
    """

    attributes: list[MitigatedAttribute]
    crossed: bool
    moments: Moments
    rows: list[RowSummary] = field(default_factory=list)

    @property
    def terms(self) -> list[str]:
        """Names of the terms: the attributes, or their combination."""
        names = [attribute.name for attribute in self.attributes]
        return ["×".join(names)] if self.crossed and names else names

    @property
    def sizes(self) -> list[int]:
        """Number of label columns of each term."""
        return term_sizes(self.attributes, crossed=self.crossed)

    def copy(self) -> MitigatorSums:
        """Return a copy, to which rows can be added without adding them here."""
        return replace(self, moments=copy.deepcopy(self.moments), rows=list(self.rows))

    def add(
        self,
        X: Any,
        given: Given,
        sample_weight: Any,
        rows: RowSummary,
        how: PassOptions = DEFAULT_PASSES,
    ) -> None:
        """Add rows X (n, p), and their summary, with what is known about them; O(n·p²) time, in blocks."""
        unknown = [name for name in given.columns if name not in {a.name for a in self.attributes}]
        if unknown and self.rows:
            raise LabelError(f"{unknown} were not among the attributes of the first rows")
        weight = check_weights(sample_weight, int(X.shape[0]))
        known = [a.known(given.columns.get(a.name)) for a in self.attributes]
        width = self.moments.n_features
        there = tuple(column is not None for column in known)
        start = partial(LabelledMoments, self.attributes, self.crossed, width, known=there)
        columns = [weight, *(column for column in known if column is not None)]
        threads = sum_threads(width * width, how.memory_budget)
        found = sum_rows(unit_view(X), start, columns, threads=threads, progress=how.progress)
        self.moments.merge(found.moments)
        self.rows.append(rows)

    def factor(self, gamma: float) -> Factored:
        """Return the factored problem; more rows may be added later. O(p³) time."""
        moments = copy.deepcopy(self.moments).finalise()  # finalise uses up the buffer
        space = factor_same_space(moments, self.sizes, gamma)
        if moments.covariance is None:
            raise AssertionError("the covariance is accumulated")
        p = len(space.mean)
        return Factored(
            space,
            CollectionSummary(
                RowSummary.joined(self.rows), space.mean, moments.covariance[:p, :p], moments.mean[p:]
            ),
        )


class LabelledMoments:
    """Accumulator of a pass: moments of [x, L] of unit rows x.

    Parameters
    ----------
    attributes, crossed
        As in `MitigatorSums`.
    width : int
        Number of columns of [x, L].
    known : tuple of bool
        Whether each attribute has a column of known values.
    """

    def __init__(
        self,
        attributes: Sequence[MitigatedAttribute],
        crossed: bool,
        width: int,
        *,
        known: tuple[bool, ...],
    ) -> None:
        self.moments = Moments(width, 0)
        self._attributes, self._crossed, self._known = attributes, crossed, known

    def add(self, rows: Any, weight: Floats, *known: NDArray[Any]) -> None:
        """Add a block of unit rows (b, p), weights (b,), and the values of the attributes that have some."""
        given = iter(known)
        columns = [
            attribute.columns(next(given) if there else None, rows)
            for attribute, there in zip(self._attributes, self._known, strict=True)
        ]
        parts = [rows, beside(rows, self._labels(columns, len(rows)), rows.dtype)]
        self.moments.update_parts(parts, np.empty((len(rows), 0)), weight)

    def _labels(self, columns: Sequence[F64], b: int) -> F64:
        """Return the label columns (b, K) of a block."""
        if not columns:
            return np.empty((b, 0))
        if not self._crossed:
            return np.hstack(columns)
        joint = np.ones((b, 1))
        for found in columns:
            P = np.column_stack([1 - found.sum(axis=1), found])
            joint = (joint[:, :, None] * P[:, None, :]).reshape(b, -1)
        return np.asarray(joint[:, 1:])

    def merge(self, other: LabelledMoments) -> None:
        """Add the sums of other rows."""
        self.moments.merge(other.moments)


def begin_sums(X: Any, given: Given, *, crossed: bool) -> MitigatorSums:
    """Resolve the attributes from the first rows X (n, p); ``crossed`` if their combinations are one term."""
    rows = unit_view(X)
    n, p = rows.shape
    sample = np.arange(0, n, max(1, -(-n // SAMPLE_ROWS)))
    quantities = [name for name, column in given.columns.items() if column.continuous]
    if quantities and crossed:
        raise LabelError(f"an intersection needs categories; {quantities} are quantities: bin them first")
    attributes = _resolved(given, rows, sample)
    width = p + sum(term_sizes(attributes, crossed=crossed))
    return MitigatorSums(attributes, crossed, Moments(width, 0))


def _resolved(given: Given, rows: Any, sample: Ints) -> list[MitigatedAttribute]:
    """Return the attributes that vary; warn of the others, and if there is none."""
    if not given.names:
        warnings.warn(
            "none of sensitive_features, sensitive_text and labelled is given: nothing is mitigated",
            NoSensitiveWarning,
            stacklevel=5,
        )
    kept = []
    for name in given.names:
        column = given.columns.get(name)
        if column is not None and _is_constant(column):
            warnings.warn(
                f"sensitive attribute {name!r} has one value only, so it is not mitigated. Check its labels",
                ConstantSensitiveWarning,
                stacklevel=5,
            )
            continue
        kept.append(resolve_attribute(name, given, rows, sample))
    return kept


def _is_constant(column: SensitiveColumn) -> bool:
    """Return whether all rows are known to have the same value."""
    if column.soft is not None:
        return bool((column.soft == column.soft[:1]).all())
    values = column.values if column.values is not None else column.codes
    if values is None:
        return True
    return len(np.unique(values)) < 2 and not (column.codes is not None and (column.codes < 0).any())
