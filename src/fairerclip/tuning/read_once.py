"""`ReadOnce`: the training rows of a search, which all its fits share."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sklearn.utils import check_random_state

from fairerclip.errors import FairerClipWarning
from fairerclip.inputs.weights import check_weights
from fairerclip.model.fit_data import FitData
from fairerclip.model.fit_inputs import FitInputs, read_inputs
from fairerclip.solver.rows import FeatureRows

READING = ("normalize", "missing_label", "sensitive_kind", "sensitive_terms", "random_state")
"""Parameters that change how rows, labels and sensitive values are read."""


class ReadOnce:
    """Rows, labels and sensitive values, read and checked once; features of any parameters are made from them.

    Warnings of the reading are kept, to be given once by `repeat_warnings`.

    Parameters
    ----------
    params : mapping
        Parameters of the estimator.
    X, y
        Rows and labels as `FairerCLIP.fit` takes them.
    given : mapping
        Other arguments of `FairerCLIP.fit`.
    """

    def __init__(self, params: Mapping[str, Any], X: Any, y: Any, given: Mapping[str, Any]) -> None:
        self._params, self._X, self._y, self._given = params, X, y, given
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always", FairerClipWarning)
            self.inputs: FitInputs = read_inputs(params, X, y, **given)
        self._found = [w for w in found if issubclass(w.category, FairerClipWarning)]
        for other in found:
            if other not in self._found:
                warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)

    def is_shared(self, params: Mapping[str, Any]) -> bool:
        """Return whether a fit with other parameters reads its rows in the same way."""
        return all(repr(params[name]) == repr(self._params[name]) for name in READING)

    def data(self, params: Mapping[str, Any]) -> FitData:
        """Return the rows with the features of other parameters, without warnings."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FairerClipWarning)
            if not self.is_shared(params):
                return read_inputs(params, self._X, self._y, **self._given).data
            own = self.inputs.data
            weight = check_weights(self._given["sample_weight"], own.X.shape[0])
            drawn = {**params, "random_state": check_random_state(self.inputs.seed)}
            data = FitData.of(own.X, own.target, own.sensitive, drawn, weight, own.how)
        if params["kernel"] != "linear":
            return data
        # These features are the rows, divided by a number: to keep them would only take memory.
        chosen = None if len(data.chosen) == data.X.shape[0] else data.chosen
        rows = FeatureRows(data.rows.features, data.X, rows=chosen, dtype=params["dtype"], budget=0)
        return replace(data, rows=rows)

    def repeat_warnings(self, depth: int) -> None:
        """Give the warnings of the reading, at stack level ``depth`` of the caller."""
        for found in self._found:
            warnings.warn(found.message, stacklevel=depth + 1)
