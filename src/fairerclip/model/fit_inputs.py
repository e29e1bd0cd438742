"""Arguments of a fit: checked, completed, and brought together as `FitData`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from fairerclip._util.checks import as_bytes
from fairerclip._util.types import F64
from fairerclip.data.embedding_rows import RowSummary
from fairerclip.data.row_checkpoint import RowCheckpoint, digest, digest_rows
from fairerclip.data.row_pass import Progress, is_remote
from fairerclip.errors import ParameterError
from fairerclip.inputs.sensitive import ResolvedSensitive, resolve_sensitive
from fairerclip.inputs.target import ResolvedTarget, resolve_target
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
    checkpoint: Any = None,
) -> FitInputs:
    """Check and complete the arguments of `FairerCLIP.fit` for a model with parameters ``params``.

    Rows of one class only are an error if a model ``learns`` from them. ``progress`` is called with the numbers of rows
    done and of all rows in a pass, and ``checkpoint`` is the file of the sums in between.
    """
    if checkpoint is not None and is_remote(X) and params["solver"] != "cg":
        raise ParameterError(
            "on a cluster, checkpoint= goes with solver='cg' alone: sums in one pass are not saved there, because a "
            "cluster repeats what a lost worker had"
        )
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
    saved = None
    if checkpoint is not None:
        saved = RowCheckpoint(checkpoint, _identity(params, seed, X, target, sensitive, weight))
    how = PassOptions(as_bytes(params["memory_budget"]), progress, saved)
    return FitInputs(FitData.of(X, target, sensitive, drawn, weight, how), seen, missing, seed)


def _identity(
    params: Mapping[str, Any],
    seed: int,
    X: Any,
    target: ResolvedTarget,
    sensitive: ResolvedSensitive,
    weight: F64,
) -> str:
    """Return a digest of what the sums of a fit depend on: parameters, some rows, labels and prompts.

    What is predicted from prompts follows from these.
    """
    own = {name: v for name, v in sorted(params.items()) if name not in ("memory_budget", "random_state")}
    values: list[Any] = [a for c in sensitive.attributes for a in (c.values, c.soft) if a is not None]
    for column in sensitive.attributes:
        if column.codes is not None:
            guess = sensitive.guesses.get(column.name)
            values.append(column.codes if guess is None else np.where(guess.rows, -1, column.codes))
    texts = [*(target.prompts if target.has_text else ()), *sensitive.all_prompts]
    return digest(repr(own), seed, digest_rows(X), target.known, weight, *values, *texts)
