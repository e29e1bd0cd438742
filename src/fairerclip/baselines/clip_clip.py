"""CLIP-clip: the dimensions of embeddings that depend most on S are dropped, from images and prompts alike."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fairerclip._util.checks import check_interval
from fairerclip._util.types import F64, Ints
from fairerclip.baselines.heads import CosineHead, class_prompts, sensitive_codes, varies
from fairerclip.baselines.shared_solutions import once
from fairerclip.baselines.training_data import Needs, Training, unit_prompts

KEPT = 400 / 512
"""Published share of dimensions that are kept."""
MOST_BINS = 16
ROWS_PER_BIN = 5
"""Expected number of rows in a cell of bin and value, for values of equal size, at which bins are made no finer."""


class CLIPClip(CosineHead):
    """Zero-shot classifier on the dimensions that have the least mutual information with S.

    Needs class prompts and sensitive values of the images: true values, or prompts to predict them from. It uses no
    labels and no gradient, and ranks by any query.

    Parameters
    ----------
    keep : float, default=400/512
        Share of the dimensions that is kept, above 0 and up to 1; the number is rounded, and at least 1.

    Attributes
    ----------
    kept_ : array of shape (p,)
        1 for dimensions that are kept, 0 for the others. `transform` and `transform_text` set the others to zero.
    information_ : array of shape (p,)
        Estimated mutual information of each dimension with S, in nats; not saved.
    text_ : array of shape (c, p)
        Class prompts on the kept dimensions, normalised.
    diagnostics_ : dict
        kept and dropped (numbers of dimensions), and a note.

    Notes
    -----
    ``I(xⱼ; S)`` is estimated for every dimension j of the unit rows by `mutual_information`, and the dimensions with
    the smallest estimates are kept; ties keep the earlier dimension. Several attributes are crossed. If S has one
    value, no dimension has information about it, and all are kept.

    Differences from the paper: it keeps 400 of 512 dimensions of CLIP ViT-B/32, here a share of any width; it takes
    true values of sex and the estimate of scikit-learn from nearest neighbours.

    Licence of the released code: none found in the listing of its repository. This is a new implementation from the
    paper.

    References
    ----------
    Wang, Liu & Wang, "Are Gender-Neutral Queries Really Gender-Neutral? Mitigating Gender Bias in Image Search", EMNLP
    2021, arXiv:2109.05433.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> s = np.arange(100) % 2
    >>> X = rng.normal(size=(100, 4)) + np.outer(s, [0.0, 0.0, 3.0, 0.0])
    >>> CLIPClip(keep=0.75).fit(X, text=np.eye(4)[:2], sensitive_features=s).kept_.tolist()
    [1.0, 1.0, 0.0, 1.0]
    """

    needs = Needs("none", True, True, False, "Wang, Liu & Wang 2021, arXiv:2109.05433")
    changes_embeddings = changes_prompts = free_queries = True
    fitted: ClassVar[tuple[str, ...]] = ("text_", "kept_")
    shapes = {"text_": ("c", "p"), "kept_": ("p",)}  # noqa: RUF012

    def __init__(self, keep: float = KEPT) -> None:
        self.keep = keep

    @property
    def title(self) -> str:
        """Name of the method."""
        return "CLIP-clip"

    def _learn(self, data: Training) -> None:
        check_interval("keep", self.keep, 0, 1, "(]")
        text, s = class_prompts(data, "CLIPClip"), sensitive_codes(data)
        width = data.X.shape[1]
        self.information_ = once(mutual_information, data.X, s, data.weight)
        dropping = varies(s, data.weight)
        number = max(1, round(self.keep * width)) if dropping else width
        self.kept_ = np.zeros(width)
        self.kept_[np.argsort(self.information_, kind="stable")[:number]] = 1.0
        remedy = "they are zero in all dimensions that are kept; raise keep"
        self.text_ = unit_prompts(text * self.kept_, "dropping dimensions", remedy=remedy)
        note = f"{number} of {width} dimensions are kept" + ("" if dropping else ": S has one value")
        self.diagnostics_ = {"kept": number, "dropped": width - number, "note": note}

    def _embed(self, rows: F64) -> F64:
        return np.asarray(rows * self.kept_)

    def _embed_text(self, rows: F64) -> F64:
        return np.asarray(rows * self.kept_)


def mutual_information(X: F64, s: Ints, weight: F64, bins: int | None = None) -> F64:
    """Estimate the mutual information of every column of X with codes, in nats.

    Parameters
    ----------
    X, s, weight : array of shape (n, p), (n,) and (n,)
        Rows, codes and row weights.
    bins : int, optional
        Number of bins of a column; 2 to `MOST_BINS` by the number of rows and values unless given.

    Returns
    -------
    array of shape (p,)
        Plug-in estimates from bins between weighted quantiles, with the correction of Miller and Madow. They may be
        slightly below zero where there is no dependence.

    Notes
    -----
    With B occupied bins, v values and K occupied cells, the plug-in estimate is too large by about
    ``(K − B − v + 1)/(2n)``, where n is ``(Σw)²/Σw²`` for weighted rows. Equal entries are in the same bin. O(n·p·log
    n) time.

    Examples
    --------
    >>> s = np.arange(400) % 2
    >>> X = np.column_stack([s, np.arange(400) // 2])
    >>> mutual_information(X, s, np.ones(400), bins=2).round(2).tolist()
    [0.69, -0.0]
    """
    used = weight > 0
    columns = np.ascontiguousarray(X[used].T)
    s, weight = np.unique(s[used], return_inverse=True)[1].reshape(-1), weight[used]
    n, values = weight.sum() ** 2 / np.sum(weight**2), int(s.max()) + 1
    if bins is None:
        bins = int(np.clip(n // (ROWS_PER_BIN * values), 2, MOST_BINS))
    levels = np.arange(1, bins) / bins
    found = np.empty((len(columns), bins, values))
    for column, out in zip(columns, found, strict=True):
        cell = np.searchsorted(_quantiles(column, weight, levels), column) * values + s
        out[:] = np.bincount(cell, weight, bins * values).reshape(bins, values)
    joint = found / weight.sum()  # (p, bins, v)
    by_bin, by_value = joint.sum(axis=2, keepdims=True), joint.sum(axis=1, keepdims=True)
    occupied = joint > 0
    ratio = np.where(occupied, joint, 1.0) / np.where(occupied, by_bin * by_value, 1.0)
    plug_in = np.sum(joint * np.log(ratio), axis=(1, 2))
    excess = occupied.sum(axis=(1, 2)) - (by_bin > 0).sum(axis=(1, 2)) - values + 1
    return np.asarray(plug_in - excess / (2 * n))


def _quantiles(column: F64, weight: F64, levels: F64) -> F64:
    """Return the smallest entries (q,) of a column (n,) up to which it has the shares (q,) of the weight."""
    levels = levels - 1e-12  # a share that is reached exactly is reached
    if np.all(weight == weight[0]):
        places = np.ceil(levels * len(column)).astype(int) - 1
        return np.asarray(np.partition(column, places)[places])
    order = np.argsort(column, kind="stable")
    reached = np.cumsum(weight[order]) / weight.sum()
    return np.asarray(column[order[np.searchsorted(reached, levels)]])
