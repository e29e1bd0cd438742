"""`KeptFit`: an estimator that keeps its factored problem in memory, to solve it again with other parameters."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Self

from sklearn.utils.validation import check_is_fitted

from fairerclip._util.types import F64
from fairerclip.data.embedding_rows import RowSummary
from fairerclip.errors import StateError
from fairerclip.model.details import forget_details
from fairerclip.model.fitted import USED, FittedModel
from fairerclip.model.prepare import FitState, Prepared, diagnostics, solve


class KeptFit:
    """Solution of a fit and the data that it came from, for an estimator with a `FittedModel` as ``fitted_``."""

    fitted_: FittedModel
    refine: bool
    _state: FitState | None = None

    @property
    def state(self) -> FitState:
        """Data that a fit keeps in memory; a model that was loaded or unpickled has none."""
        check_is_fitted(self)
        if self._state is None:
            raise StateError(
                "this model no longer holds its training data (it was loaded or unpickled): call fit first"
            )
        return self._state

    def used_parameters(self) -> dict[str, Any]:
        """Return the values that were used for the parameters that may be "auto"; with them a fit chooses nothing."""
        check_is_fitted(self)
        used = {name: getattr(self, f"{name}_") for name in USED}
        return {**used, "class_offsets": None}

    def _solve(
        self,
        prepared: Prepared,
        seen: RowSummary,
        offsets: F64,
        params: Mapping[str, Any],
        depth: int = 3,
    ) -> Self:
        """Solve a problem with parameters of which none is "auto", and take over the solution.

        ``depth`` is the stack level of warnings.
        """
        state, result = solve(prepared, params, offsets)
        fitted, notes = state.model(seen, normalize=params["normalize"])
        # Only now that there is a solution: a fit that fails leaves the model as it was.
        self._state, self.fitted_ = state, fitted
        forget_details(self)
        self.n_iter_ = len(result.history)
        self.diagnostics_: dict[str, Any] = diagnostics(prepared, result)
        self.pseudo_labels_ = state.pseudo_labels(result.labels if self.refine else None)
        values = prepared.sensitive.values
        self.pseudo_sensitive_ = next(iter(values.values())) if len(values) == 1 else values or None
        for kind, message in (*result.notes, *notes):
            warnings.warn(message, kind, stacklevel=depth)
        return self

    def _set_offsets(self, offsets: F64) -> Self:
        """Replace the offsets of the class scores; the solution stays."""
        state = self.state.with_offsets(offsets)
        fitted, notes = state.model(self.fitted_.rows, normalize=self.fitted_.normalize)
        self._state, self.fitted_ = state, fitted
        forget_details(self)
        # The record of a search describes the model that it chose, with the offsets that it learned.
        self.diagnostics_ = {name: value for name, value in self.diagnostics_.items() if name != "tuning"}
        for kind, message in notes:
            warnings.warn(message, kind, stacklevel=3)
        return self
