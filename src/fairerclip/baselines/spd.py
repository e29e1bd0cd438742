"""SPD: the directions of linear classifiers of S are removed one after the other, and filled with a neutral mean."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fairerclip._util.checks import check_count, check_interval, check_positive
from fairerclip._util.types import F64, Ints
from fairerclip.baselines.gradient.recipes import seed_of
from fairerclip.baselines.heads import CosineHead, class_prompts, mean_prompt, sensitive_codes, varies
from fairerclip.baselines.logistic import warn_unconverged
from fairerclip.baselines.sensitive_forest import predict_by_forest
from fairerclip.baselines.shared_solutions import once
from fairerclip.baselines.softmax import softmax_path
from fairerclip.baselines.training_data import Needs, Training, unit_prompts

TOL = 1e-4
"""Relative error of the weights of a classifier; smaller directions of a classifier are not removed."""
MAX_ITER = 100
"""Newton steps of one classifier."""


class SPD(CosineHead):
    """Zero-shot classifier off the span of several linear classifiers of S, with a neutral mean in its place.

    Needs class prompts and sensitive values of the images: true values, or prompts to predict them from. It uses no
    labels and no gradient, and ranks by any query.

    Parameters
    ----------
    directions : int, default=5
        Number r of directions that are removed, less than the width of the rows.
    C : float, default=1.0
        Inverse strength of the penalty ``½‖W‖²`` of the classifiers, for unit rows; 1 is the default of scikit-learn.
    confidence : float, default=0.7
        Rows whose most probable value has a smaller probability are rows of uncertain S.
    max_rows : int, default=1000
        Number of rows, drawn at random, that the forest learns from, as in `SFID`.
    random_state : int, RandomState or None
        Source of the drawn rows and of the forest.

    Attributes
    ----------
    basis_ : array of shape (k, p)
        Orthonormal rows U that are removed, in the order in which they were found; k is at most r.
    image_fill_, text_fill_ : array of shape (p,)
        What image rows and prompts get in the span of U.
    text_ : array of shape (c, p)
        Class prompts after the change, normalised.
    diagnostics_ : dict
        directions (their number k), classifiers (the number of those they are from), uncertain_rows, and a note.

    Notes
    -----
    A logistic regression predicts S from unit rows. An orthonormal basis of the span of its weights, one direction
    fewer than S has values, is removed from the rows before the next one is fitted, until there are r directions; from
    the last classifier those with the largest weights are taken. A classifier that finds nothing ends this earlier.
    Then ``x'' = x(I − UᵀU) + UᵀU·x̄`` with the weighted mean x̄ of the rows of uncertain S: those to which a forest gives
    no value a probability of 0.7. Forest and rows are those of `SFID`, at least 20 and 1 % of all. Several attributes
    are crossed. If S has one value, nothing is removed.

    A weak penalty lets a classifier fit noise in directions of little variance, and their removal changes little: the
    stronger the penalty, the nearer the first directions are to the differences of the means of the values.

    Prompts lose the same directions and are filled as those of `SFID` are, with the mean of the prompts of classes and
    sensitive values in the span of U. This is our choice. On validation rows of FairFace the mean MaxSkew
    differs by at most 0.001 if prompts are not filled; the mean of the images in prompts would raise all cosines.

    What is known: the paper fits classifiers one after the other as INLP does, keeps five directions, and fills in the
    mean of low confidence. O(r·(n·p² + p³)) time.

    Differences from the paper: its penalty, how it treats prompts, and how it shares directions between several values
    or attributes were not found, so these are ours.

    Licence of the released code: not known. Its README was read, and not the code; this is a new implementation.

    References
    ----------
    Zhao et al., "Bias Is a Subspace, Not a Coordinate: A Geometric Rethinking of Post-hoc Debiasing in Vision-Language
    Models", 2025, arXiv:2511.18123.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> s = np.arange(100) % 2
    >>> X = rng.normal(size=(100, 4)) + np.outer(s, [0.0, 0.0, 3.0, 0.0])
    >>> model = SPD(2, random_state=0).fit(X, text=np.eye(4)[:2], sensitive_features=s)
    >>> model.basis_.shape, bool(np.ptp(model.transform(X) @ model.basis_.T, axis=0).max() < 1e-12)
    ((2, 4), True)
    """

    needs = Needs("none", True, True, False, "Zhao et al. 2025, arXiv:2511.18123")
    changes_embeddings = changes_prompts = free_queries = True
    fitted: ClassVar[tuple[str, ...]] = ("text_", "basis_", "image_fill_", "text_fill_")
    shapes = {  # noqa: RUF012
        "text_": ("c", "p"),
        "basis_": ("k", "p"),
        "image_fill_": ("p",),
        "text_fill_": ("p",),
    }

    def __init__(
        self,
        directions: int = 5,
        *,
        C: float = 1.0,
        confidence: float = 0.7,
        max_rows: int = 1000,
        random_state: Any = None,
    ) -> None:
        self.directions = directions
        self.C = C
        self.confidence = confidence
        self.max_rows = max_rows
        self.random_state = random_state

    @property
    def title(self) -> str:
        """Name of the method."""
        return "SPD, subspace projection"

    def _learn(self, data: Training) -> None:
        check_count("directions", self.directions)
        check_positive("C", self.C)
        check_interval("confidence", self.confidence, 0, 1, "(]")
        check_count("max_rows", self.max_rows, least=10)
        text, s, width = class_prompts(data, "SPD"), sensitive_codes(data), data.X.shape[1]
        self.basis_, mean, rows, classifiers = np.zeros((0, width)), np.zeros(width), 0, 0
        note = "S has one value, so nothing is removed"
        if varies(s, data.weight):
            found = once(NullSpaces, data.X, s, data.weight, float(self.C))
            self.basis_, classifiers = found.first(min(self.directions, width - 1))
            seed = seed_of(self.random_state)
            forest = once(predict_by_forest, data.X, s, data.weight, self.max_rows, seed)
            rows, mean, remark = forest.uncertain(data.X, data.weight, self.confidence)
            note = f"{len(self.basis_)} of {width} directions are removed{remark}"
        self.image_fill_ = mean @ self.basis_.T @ self.basis_
        self.text_fill_ = mean_prompt(data, text) @ self.basis_.T @ self.basis_
        self.text_ = unit_prompts(self._embed_text(text), "removing directions")
        self.diagnostics_ = {
            "directions": len(self.basis_),
            "classifiers": classifiers,
            "uncertain_rows": rows,
            "note": note,
        }

    def _embed(self, rows: F64) -> F64:
        return np.asarray(rows - rows @ self.basis_.T @ self.basis_ + self.image_fill_)

    def _embed_text(self, rows: F64) -> F64:
        return np.asarray(rows - rows @ self.basis_.T @ self.basis_ + self.text_fill_)


class NullSpaces:
    """Directions of linear classifiers of codes s (n,) from rows X (n, p), each fitted off those before.

    The directions for a small number are the first of those for a larger one, so that settings share them.
    """

    def __init__(self, X: F64, s: Ints, weight: F64, C: float) -> None:
        used = weight > 0
        self.rows = X[used]
        values, self.codes = np.unique(s[used], return_inverse=True)
        self.weight, self.n_values, self.C = weight[used], len(values), C
        self.spans: list[F64] = []  # of each classifier, orthonormal
        self.ended = False

    def first(self, number: int) -> tuple[F64, int]:
        """Return the first directions (k, p), and the number of classifiers that they are from."""
        while not self.ended and sum(map(len, self.spans)) < number:
            span = self.next_span()
            self.ended = not len(span)
            self.spans += [] if self.ended else [span]
        before = np.cumsum([0, *map(len, self.spans)])[:-1]
        return self.basis()[:number], int(np.sum(before < number)) if self.spans else 0

    def basis(self) -> F64:
        """Return all directions found so far (k, p)."""
        return np.concatenate([np.zeros((0, self.rows.shape[1])), *self.spans])

    def next_span(self) -> F64:
        """Fit a classifier off the directions so far, and return a basis of its weights, the largest first."""
        basis = self.basis()
        rows = self.rows - self.rows @ basis.T @ basis
        path = softmax_path(
            rows, self.codes, self.weight, self.n_values, [self.C], tol=TOL, max_iter=MAX_ITER
        )
        solution = next(path)
        if not solution.converged:
            warn_unconverged(
                f"a classifier of S with C={self.C!r} is not at its minimum after {solution.steps} steps",
                "lower C",
            )
        weights = solution.coef - solution.coef @ basis.T @ basis
        _, sizes, axes = np.linalg.svd(weights, full_matrices=False)
        rank = min(self.n_values - 1, int(np.sum(sizes > TOL * sizes[0])))
        return np.asarray(axes[:rank])
