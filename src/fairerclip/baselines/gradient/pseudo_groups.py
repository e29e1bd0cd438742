"""Pseudo-groups without group labels, predicted by a simple classifier, and draws of rows that balance them."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from fairerclip._util.checks import check_choice
from fairerclip._util.types import F64, Ints
from fairerclip.baselines.gradient.recipes import labels_of
from fairerclip.baselines.training_data import Training
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.errors import PromptError

GROUPS = ("zero-shot", "kmeans")
CLUSTER_WIDTH = 16
"""Number of principal components used for clustering."""


def pseudo_groups(data: Training, how: str, seed: int) -> Ints:
    """Predict the class of each row (n,) by a simple classifier: zero-shot, or clusters matched to classes.

    "kmeans" replaces the published UMAP and k-means: unit rows are projected on at most 16 principal components and
    clustered into as many clusters as classes, and clusters are matched to classes so that most labels agree.
    """
    check_choice("groups", how, GROUPS)
    if how == "zero-shot":
        if data.text is None:
            raise PromptError(
                "pseudo-groups are read from class prompts: give text, or use groups='kmeans', which needs none"
            )
        return np.asarray((unit_rows(data.X) @ data.text.T).argmax(axis=1), dtype=np.int64)
    return match_clusters(_clusters(data.X, data.n_classes, seed), labels_of(data), data.n_classes)


def _clusters(X: F64, n_classes: int, seed: int) -> Ints:
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA

    width = min(CLUSTER_WIDTH, *X.shape)
    rows = PCA(width, random_state=seed % 2**32).fit_transform(unit_rows(X))
    distinct = len(np.unique(rows, axis=0))
    means = KMeans(min(n_classes, distinct), n_init=10, random_state=seed % 2**32)
    return np.asarray(means.fit_predict(rows), dtype=np.int64)


def match_clusters(clusters: Ints, y: Ints, n_classes: int) -> Ints:
    """Match clusters to classes one to one so that most rows agree with ``y`` (Hungarian method).

    Examples
    --------
    >>> match_clusters(np.array([2, 2, 0, 1]), np.array([0, 0, 1, 2]), 3).tolist()
    [0, 0, 1, 2]
    """
    counts = np.zeros((n_classes, n_classes), dtype=np.int64)
    np.add.at(counts, (clusters, y), 1)
    cluster, matched = linear_sum_assignment(counts, maximize=True)
    class_of = np.empty(n_classes, dtype=np.int64)
    class_of[cluster] = matched
    return class_of[clusters]


def equalise(cells: Ints, how: str, rng: np.random.Generator, rows: Ints | None = None) -> Ints:
    """Draw row numbers so that all cells that occur have the size of the smallest or of the largest cell.

    Parameters
    ----------
    cells : array of shape (n,)
        Code of the cell of each row.
    how : {"subsample", "upsample"}
        "subsample" draws without replacement; "upsample" keeps all rows and draws the rest with replacement.
    rng : Generator
        Source of the draws.
    rows : array of shape (n,) or None
        Values to return for the rows; None for their numbers.

    Examples
    --------
    >>> drawn = equalise(np.array([0, 0, 0, 1]), "upsample", np.random.default_rng(5))
    >>> np.sort(drawn).tolist()
    [0, 1, 2, 3, 3, 3]
    """
    rows = np.arange(len(cells)) if rows is None else rows
    members = [rows[cells == code] for code in np.unique(cells)]
    sizes = [len(cell) for cell in members]
    if how == "subsample":
        return np.concatenate([rng.choice(cell, min(sizes), replace=False) for cell in members])
    extra = [rng.choice(cell, max(sizes) - len(cell)) for cell in members]
    return np.concatenate([*members, *extra])


def draw_cells(cells: Ints, size: int, rng: np.random.Generator) -> Ints:
    """Draw ``size`` rows of every cell that occurs, with replacement only if it has fewer."""
    members = [np.flatnonzero(cells == code) for code in np.unique(cells)]
    return np.concatenate([rng.choice(cell, size, replace=len(cell) < size) for cell in members])


def balanced_draw(y: Ints, predicted: Ints, how: str, seed: int) -> Ints:
    """Draw shuffled row numbers, with equally many rows of each true class in each predicted class."""
    rng = np.random.default_rng(seed)
    draws = []
    for code in np.unique(predicted):
        rows = np.flatnonzero(predicted == code)
        draws.append(equalise(y[rows], how, rng, rows))
    return rng.permutation(np.concatenate(draws))
