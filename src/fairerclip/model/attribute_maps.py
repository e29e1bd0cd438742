"""Features ψ(s) of sensitive attributes, with the values and maps of the rows that they were made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import CODES, F64, Ints
from fairerclip.errors import LabelError
from fairerclip.features import FeatureMap, make_features
from fairerclip.inputs.encode import occurring
from fairerclip.inputs.sensitive_columns import SensitiveColumn
from fairerclip.solver.terms import Attribute, OneHot

CONTINUOUS_LANDMARKS = 20
"""Nyström landmarks of a continuous attribute: an RBF kernel of one variable has low rank."""


@dataclass(frozen=True, eq=False)
class AttributeMap:
    """How one attribute becomes columns: one-hot or probabilities of its values, RBF features of a quantity."""

    name: str
    values: NDArray[Any] | None
    """(v,) categories, or None for a quantity."""
    features: FeatureMap | None
    """Features of a quantity, or None."""

    @classmethod
    def of(cls, column: SensitiveColumn, weight: F64, random_state: np.random.RandomState) -> AttributeMap:
        """Make the map from the rows of a column; categories keep all their values, with rows or without."""
        if column.values is None:
            return cls(column.name, column.categories, None)
        phi = make_features(
            *("nystroem", column.values[:, None]),
            n_features=CONTINUOUS_LANDMARKS,
            bandwidth="median",
            sample_weight=weight,
            random_state=random_state,
        )
        return cls(column.name, None, phi)

    @property
    def width(self) -> int:
        """Number of columns of ψ."""
        if self.values is not None:
            return len(self.values)
        return 0 if self.features is None else self.features.n_features

    def attribute(self, column: SensitiveColumn) -> Attribute:
        """Return ψ(s) of a column with values among those of the map."""
        if self.features is not None:
            if column.values is None:
                raise LabelError(f"sensitive attribute {self.name!r} was a quantity in the first rows")
            psi = np.asarray(self.features.transform(column.values[:, None]), dtype=np.float64)
            return Attribute(term_name(self.name), psi)
        codes = self.codes(column)
        if column.soft is None:
            return Attribute(term_name(self.name), OneHot(codes, self.width))
        # Values are told by name: their columns may be in another order.
        psi = np.zeros((len(codes), self.width))
        psi[:, self._places(column)] = column.soft
        return Attribute(term_name(self.name), psi)

    def codes(self, column: SensitiveColumn) -> Ints:
        """Return codes (n,) of a column among the values of the map."""
        if column.codes is None:
            raise LabelError(f"sensitive attribute {self.name!r} had categories in the first rows")
        return self._places(column)[column.codes].astype(CODES)

    def _places(self, column: SensitiveColumn) -> Ints:
        known = [] if self.values is None else self.values.tolist()
        place = {value: k for k, value in enumerate(known)}
        found = [] if column.categories is None else column.categories.tolist()
        unknown = [value for value in found if value not in place]
        if unknown:
            raise LabelError(
                f"sensitive attribute {self.name!r} has values {unknown[:5]} that the first rows did not have; they "
                f"had {known[:10]}"
            )
        return np.array([place[value] for value in found], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class AttributeMaps:
    """The maps of all attributes of a fit."""

    maps: tuple[AttributeMap, ...]

    @classmethod
    def of(
        cls, columns: Sequence[SensitiveColumn], weight: F64, random_state: np.random.RandomState
    ) -> AttributeMaps:
        """Make the maps from the rows of all columns."""
        return cls(tuple(AttributeMap.of(column, weight, random_state) for column in columns))

    @property
    def width(self) -> int:
        """Number of columns of all attributes."""
        return sum(one.width for one in self.maps)

    def attributes(self, columns: Sequence[SensitiveColumn]) -> list[Attribute]:
        """Return ψ(s) of each attribute of some rows; raise if they have other attributes than the first rows."""
        given, expected = [column.name for column in columns], [one.name for one in self.maps]
        if given != expected:
            raise LabelError(f"expected the sensitive attributes {expected} of the first rows, got {given}")
        return [one.attribute(column) for one, column in zip(self.maps, columns, strict=True)]

    @property
    def n_groups(self) -> int:
        """Number of combinations of all categorical values."""
        return int(np.prod([one.width for one in self.maps if one.values is not None], dtype=np.int64))

    def groups(self, columns: Sequence[SensitiveColumn]) -> Ints:
        """Return the number (n,) of each row's combination of categorical values."""
        total: Any = 0
        for one, column in zip(self.maps, columns, strict=True):
            if one.values is not None:
                total = total * one.width + one.codes(column).astype(np.int64)
        return np.asarray(total)


def term_name(name: str) -> str:
    """Return the name of an attribute's term; the other terms are called y and z, which an attribute may be, too."""
    return name if name == "s" else f"s:{name}"


def attributes(
    columns: Sequence[SensitiveColumn], weight: F64, random_state: np.random.RandomState
) -> list[Attribute]:
    """Return ψ(s) of each attribute of a fit; values that no row has are left out."""
    out = []
    for column in columns:
        if column.soft is None and column.codes is not None:
            present, codes = occurring(column.codes)
            psi = OneHot(codes, len(present))
            out.append(Attribute(term_name(column.name), psi))
        elif column.soft is not None:
            out.append(Attribute(term_name(column.name), column.soft))
        else:
            out.append(AttributeMap.of(column, weight, random_state).attribute(column))
    return out
