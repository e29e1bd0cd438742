"""Apply a fitted model to new rows: predictions or ranks, scores and embeddings, and their files."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.files import check_free
from fairerclip.data.io.csv_table import write_table
from fairerclip.data.io.npz import write_npz
from fairerclip.errors import ParameterError
from fairerclip.model.estimator import FairerCLIP


def check_predictions_path(path: Path, overwrite: bool) -> None:
    """Raise for a file ending that `write_predictions` does not write, or a path that exists."""
    if path.suffix not in (".npz", ".csv"):
        raise ParameterError(f"the output must end in .npz or .csv; got {path.name!r}")
    check_free(path, overwrite)


def write_predictions(result: Mapping[str, NDArray[Any]], path: Path, *, overwrite: bool = False) -> None:
    """Write the result of `apply_model`: everything as ``.npz``, or one row per image as ``.csv``.

    Columns of scores and ranks are named after the prompts.
    """
    check_predictions_path(path, overwrite)
    if path.suffix == ".npz":
        plain = {k: v.astype(str) if v.dtype.kind == "O" else v for k, v in result.items()}
        write_npz(path, plain, overwrite=overwrite)
        return
    columns: dict[str, list[Any]] = {"row": list(range(len(result["score"])))}
    if "id" in result:
        columns["id"] = [str(i) for i in result["id"]]
    if "prediction" in result:
        columns["prediction"] = [_plain(label) for label in result["prediction"]]
    for kind in ("rank", "score"):
        if kind in result:
            names = [f"{kind}: {name}" for name in result["names"]]
            columns |= zip(names, result[kind].T.tolist(), strict=True)
    rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    write_table(rows, path, overwrite=overwrite)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def is_ranking(model: FairerCLIP) -> bool:
    """Return whether a model ranks by prompt: its scores are shifted per prompt, so their argmax is not a class."""
    tuning = model.diagnostics_.get("tuning")
    objective = tuning.get("objective") if isinstance(tuning, Mapping) else None
    return objective == "max_skew" or model.sensitive_shifts_ is not None


def prompt_names(model: FairerCLIP) -> list[str]:
    """Return the name of each column of scores: the class, or prompt, as text; different classes stay different."""
    names = [str(name) for name in model.classes_.tolist()]
    return names if len(set(names)) == len(names) else [repr(name) for name in model.classes_.tolist()]


def apply_model(
    model: FairerCLIP,
    X: Any,
    ids: NDArray[Any] | None = None,
    *,
    rank: bool | None = None,
    prompts: Sequence[str] | None = None,
) -> dict[str, NDArray[Any]]:
    """Compute predictions or ranks, scores and mitigated embeddings of new rows.

    A named warning is given for rows that differ from the training rows in length or mean direction.

    Parameters
    ----------
    model : FairerCLIP
        A fitted model.
    X : array of shape (n, p)
        Image embeddings.
    ids : array of shape (n,), optional
        Names of the rows.
    rank : bool, optional
        Rank the rows by each prompt instead of predicting a class. Default: whether the model ranks by prompt.
    prompts : list of str, optional
        Names of the prompts to rank by. Default: all.

    Returns
    -------
    dict
        ``names`` (c,), ``score`` (n, c), ``embedding`` (n, r), ``id`` (n,) where given, and either ``prediction``
        (n,) or ``rank`` (n, c): 1 is the best match, and the earlier row comes first where scores tie.
    """
    names, rank = prompt_names(model), is_ranking(model) if rank is None else rank
    unknown = [name for name in prompts or () if name not in names]
    if unknown:
        raise ParameterError(f"{unknown[0]!r} is not a prompt of this model; it has {', '.join(names)}")
    if prompts is not None and not rank:
        raise ParameterError("prompts choose what to rank by; this model predicts classes unless rank=True")
    warn_of_drift(model, X)
    Z = model.transform(X)  # once, because computing the features takes nearly all the time
    kept = range(len(names)) if prompts is None else [names.index(name) for name in dict.fromkeys(prompts)]
    every_score = model.fitted_.scores(Z)
    scores = every_score[:, kept]
    decided = {"rank": _ranks(scores)} if rank else {"prediction": model.fitted_.labels(every_score)}
    found = {**decided, "score": scores, "names": np.array([names[k] for k in kept]), "embedding": Z}
    return found if ids is None else {"id": ids, **found}


def _ranks(scores: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return the rank (n, c) of each row in each column; 1 is the best."""
    order = np.argsort(-scores, axis=0, kind="stable")
    places = np.empty(scores.shape, dtype=np.int64)
    np.put_along_axis(places, order, np.arange(1, len(scores) + 1)[:, None], axis=0)
    return places


def warn_of_drift(model: FairerCLIP, X: Any) -> None:
    """Warn of rows that differ from the training rows; models of older files do not know these."""
    if model.rows_ is not None:
        for kind, message in model.drift(X).warnings:
            warnings.warn(message, kind, stacklevel=3)
