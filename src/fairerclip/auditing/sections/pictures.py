"""Score distributions by group, and a 2-D picture of the embeddings.

Both are counts in bins, never single rows: a page may be passed on and must not contain the embedding of a person.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from fairerclip._util.numbers import worded
from fairerclip._util.types import Floats
from fairerclip.applying.apply import AnyModel
from fairerclip.auditing.group_results import (
    GroupCell,
    HistogramGroup,
    PictureSection,
    PictureStage,
    ScoreHistogram,
    ScoresSection,
)
from fairerclip.auditing.sections.retrieval import class_scores
from fairerclip.data import Split
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.experiment import UNKNOWN, Experiment

HISTOGRAM_BINS = 40
PICTURE_BINS = (44, 32)
TAILS = 0.5
"""Per cent of the values at each end that are counted in the first or last bin."""


class Cells:
    """Rows of a split that have both labels, and the index of the group of each."""

    def __init__(self, experiment: Experiment, split: Split) -> None:
        y, s = experiment.labels(split)
        known = (y != UNKNOWN) & (s != UNKNOWN)
        self.rows = np.flatnonzero(known)
        self.y, self.s = y[known], s[known]
        pairs, self.codes = np.unique(np.column_stack([y[known], s[known]]), axis=0, return_inverse=True)
        self.codes = self.codes.ravel()
        sizes = np.bincount(self.codes, minlength=len(pairs))
        self.groups = [
            GroupCell(name=f"{a} × {b}", y=str(a), s=str(b), n=int(n))
            for (a, b), n in zip(pairs, sizes, strict=True)
        ]


def scores_section(experiment: Experiment, split: Split, model: AnyModel | None) -> ScoresSection | None:
    """Return histograms of each group's margins before and after mitigation; None without prompts and model."""
    if experiment.text is None and model is None:
        return None
    cells = Cells(experiment, split)
    if len(experiment.classes) == 2:
        label = f"score of “{experiment.classes[1]}” minus score of “{experiment.classes[0]}”"
    else:
        label = "score of the true class minus the best other score"
    stages = class_scores(experiment, split.X[cells.rows], model)
    margins = [None if scores is None else _margin(scores, experiment, cells) for scores in stages]
    return ScoresSection(
        label=label,
        before=None if margins[0] is None else _histogram(margins[0], cells),
        after=None if margins[1] is None else _histogram(margins[1], cells),
    )


def _margin(scores: Floats, experiment: Experiment, cells: Cells) -> Floats:
    if len(experiment.classes) == 2:
        return np.asarray(scores[:, 1] - scores[:, 0])
    place = {name: k for k, name in enumerate(experiment.classes)}
    true_class = np.array([place[name] for name in cells.y])
    rows = np.arange(len(true_class))
    others = scores.copy()
    others[rows, true_class] = -np.inf
    return np.asarray(scores[rows, true_class] - others.max(axis=1))


def _edges(values: Floats, bins: int, through_zero: bool) -> Floats:
    """Return edges of bins of equal width over all values but the tails; one edge is 0 if ``through_zero``."""
    low, high = np.percentile(values, [TAILS, 100 - TAILS]).astype(np.float64)
    if not high > low:
        low, high = low - 0.5, high + 0.5
    if not through_zero:
        return np.linspace(low, high, bins + 1)
    low, high = min(low, 0.0), max(high, 0.0)
    width = (high - low) / bins
    return np.asarray(width * np.arange(np.floor(low / width), np.ceil(high / width) + 1))


def _bins(values: Floats, edges: Floats) -> NDArray[np.intp]:
    return np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)


def _histogram(values: Floats, cells: Cells) -> ScoreHistogram:
    edges = _edges(values, HISTOGRAM_BINS, through_zero=True)
    places = _bins(values, edges)
    groups = []
    for g, group in enumerate(cells.groups):
        counts = np.bincount(places[cells.codes == g], minlength=len(edges) - 1)
        groups.append(HistogramGroup(**vars(group), counts=tuple(counts.tolist())))
    return ScoreHistogram(edges=_rounded(edges), threshold=0.0, groups=tuple(groups))


def picture_section(
    experiment: Experiment, split: Split, model: AnyModel | None, seed: int
) -> PictureSection:
    """Project the embeddings before mitigation, and after if the model changes them, to two dimensions in bins."""
    cells = Cells(experiment, split)
    X = unit_rows(split.X[cells.rows]).astype(np.float64)
    flat, explained = _principal(X, seed)
    share = f"{worded(explained)} of the variance"
    before = _picture(
        flat,
        cells,
        ("first principal component", "second"),
        f"image embeddings; the two components explain {share}",
    )
    after = None
    if model is not None and model.changes_embeddings:
        Z = np.asarray(model.transform(split.X[cells.rows]), dtype=np.float64)
        if Z.shape[1] > 1:
            two, explained = _principal(Z, seed)
            note = (
                f"mitigated embeddings of width {Z.shape[1]}; the two components explain {worded(explained)} of the "
                "variance"
            )
            after = _picture(two, cells, ("first principal component", "second"), note)
        else:
            note = (
                "with two classes the mitigated embedding is one number, on the horizontal axis; the vertical axis is "
                "the first principal component of the image embeddings and only spreads the points"
            )
            points = np.column_stack([Z[:, 0], flat[:, 0]])
            after = _picture(
                points, cells, ("mitigated embedding", "before: first principal component"), note
            )
    return PictureSection(groups=tuple(cells.groups), before=before, after=after)


def _principal(X: Floats, seed: int) -> tuple[Floats, float]:
    """Return two principal components (n, 2), padded with zeros, and their share of the variance."""
    width = min(2, *X.shape)
    pca = PCA(n_components=width, svd_solver="randomized" if min(X.shape) > 50 else "full", random_state=seed)
    with np.errstate(invalid="ignore", divide="ignore"):  # identical rows have no variance
        flat = pca.fit_transform(X)
        share = float(np.nan_to_num(pca.explained_variance_ratio_).sum())
    return np.pad(flat, ((0, 0), (0, 2 - width))), share


def _picture(points: Floats, cells: Cells, labels: tuple[str, str], note: str) -> PictureStage:
    edges = [_edges(points[:, d], PICTURE_BINS[d], through_zero=False) for d in (0, 1)]
    places = [_bins(points[:, d], edges[d]) for d in (0, 1)]
    occupied, counts = np.unique(np.column_stack([*places, cells.codes]), axis=0, return_counts=True)
    return PictureStage(
        x_label=labels[0],
        y_label=labels[1],
        x_edges=_rounded(edges[0]),
        y_edges=_rounded(edges[1]),
        cells=tuple(
            (x, y, group, n) for (x, y, group), n in zip(occupied.tolist(), counts.tolist(), strict=True)
        ),
        note=note,
    )


def _rounded(edges: Floats) -> tuple[float, ...]:
    return tuple(float(f"{edge:.6g}") for edge in edges)
