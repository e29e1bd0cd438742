"""Arguments of a fit: checked, completed, and brought together as `FitData`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from sklearn.utils import check_random_state

from fairerclip._util.checks import as_bytes
from fairerclip.data.embedding_rows import RowSummary
from fairerclip.data.row_pass import Progress
from fairerclip.inputs.sensitive import resolve_sensitive
from fairerclip.inputs.target import resolve_target
from fairerclip.inputs.weights import check_weights
from fairerclip.model.fit_data import FitData
from fairerclip.model.prepare import draw_seed, training_rows
from fairerclip.solver.rows import PassOptions


class FitInputs(NamedTuple):
    """Arguments of a fit, checked and completed."""

    data: FitData
    seen: RowSummary
    """Summary of the rows as they were given."""
    missing_label: Any
    seed: int


def read_inputs(
    params: Mapping[str, Any],
    X: Any,
    y: Any,
    *,
    sensitive_features: Any = None,
    text: Any = None,
    sensitive_text: Any = None,
    sample_weight: Any = None,
    classes: Iterable[Any] | None = None,
    missing_label: Any = None,
    learns: bool = True,
    progress: Progress | None = None,
) -> FitInputs:
    """Check and complete the arguments of `FairerCLIP.fit` for a model with parameters ``params``.

    Rows of one class only are an error if a model ``learns`` from them. ``progress`` is called with the numbers of rows
    done and of all rows in a pass.
    """
    prompted = text is not None or sensitive_text is not None
    X, seen = training_rows(X, normalize=params["normalize"], prompted=prompted)
    weight = check_weights(sample_weight, X.shape[0])
    missing = params["missing_label"] if missing_label is None else missing_label
    target = resolve_target(*(X, y, text, weight), classes=classes, missing_label=missing, learns=learns)
    sensitive = resolve_sensitive(
        *(X, sensitive_features, sensitive_text, target),
        kind=params["sensitive_kind"],
        terms=params["sensitive_terms"],
        missing_label=missing,
    )
    seed = draw_seed(params["random_state"])
    drawn = {**params, "random_state": check_random_state(seed)}
    how = PassOptions(as_bytes(params["memory_budget"]), progress)
    return FitInputs(FitData.of(X, target, sensitive, drawn, weight, how), seen, missing, seed)
