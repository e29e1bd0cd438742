"""`FittedModel`: the part of a fit that new rows need, without the training data."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.arrays import Placed, as_numbers, beside, empty, to_numpy
from fairerclip._util.numbers import number
from fairerclip._util.types import F64, Ints
from fairerclip.data.embedding_rows import (
    RowSummary,
    check_rows,
    fill_checked,
    summarise_rows,
    unit_rows,
    unit_view,
    working_dtype,
)
from fairerclip.data.row_drift import Drift, compare_rows
from fairerclip.errors import FreeQueryError, ShapeError
from fairerclip.features import FeatureMap
from fairerclip.inputs.prompts import prototypes
from fairerclip.solver.alternation import Encoders

USED = ("tau", "zero_shot", "gamma", "criterion", "guess_weight")
"""Parameters that may be "auto", whose values in a fit are kept."""
FREE_QUERIES = "for any query use EmbeddingMitigator (fairerclip fit TASK --method embedding)"
"""What to do about a prompt that a model was not fitted on."""
SAME_PROMPT = 1 - 1e-5
"""A prompt with this cosine or more with a fitted one is that prompt, in whatever precision it was kept."""


class FittedPart:
    """A fitted attribute of an estimator that is stored in its ``fitted_``; it does not exist before `fit`."""

    def __init__(self, path: str) -> None:
        self._get: Callable[[Any], Any] = attrgetter(path)

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, model: Any, owner: type | None = None) -> Any:
        if model is None:
            return self
        fitted = getattr(model, "fitted_", None)
        if fitted is None:
            raise AttributeError(f"{type(model).__name__!r} object has no attribute {self._name!r}")
        return self._get(fitted)

    def __set__(self, model: Any, value: Any) -> None:
        raise AttributeError(f"{self._name} is a result of fit and cannot be set")


class UsedValue(FittedPart):
    """The value that a fit used for a parameter."""

    def __init__(self, name: str) -> None:
        self._get = lambda fitted: fitted.used[name]


def part(path: str) -> Any:
    """Return a fitted attribute that is stored at a path inside ``fitted_``."""
    return FittedPart(path)


class Ranking(NamedTuple):
    """Rows for a prompt, best first, with their scores."""

    indices: NDArray[np.int64]
    scores: F64


@dataclass(frozen=True, eq=False)
class RowEncoder:
    """Function of blocks of rows, as the model sees them: (b, p) → Φ(X) @ components − offset (b, r).

    The features of a block are all that a thread needs in memory.
    """

    features: FeatureMap
    components: Placed
    offset: F64

    def __call__(self, rows: Any) -> Any:
        """Map a block in working precision; a tensor gives a tensor."""
        Phi = self.features.transform(rows)
        return Phi @ self.components.beside(Phi)[0] - beside(Phi, self.offset)


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A model without its training data: all that `FairerCLIP` needs to answer and to be saved.

    Parameters
    ----------
    classes : array of shape (c,)
        Class labels.
    features, text_features : FeatureMap
        Fitted feature maps of both sides.
    encoders : Encoders
        Both encoders and the decision rule.
    temperature : float
        Factor of the scores in the softmax of the probabilities.
    prompts, prompt_classes : arrays of shape (m, p) and (m,), or None
        Prompts of the fit and the index of their class; None without text.
    rows : RowSummary
        Lengths and mean direction of the training rows.
    normalize : bool
        Whether rows and prompts are scaled to unit length.
    weighs_classes : bool
        Whether scores are inner products with class weights instead of prompts.
    offsets : array of shape (c,)
        Offsets that were added to the class scores; the encoders contain them already.
    used : mapping
        Values of the parameters `USED`.
    """

    classes: NDArray[Any]
    features: FeatureMap
    text_features: FeatureMap
    encoders: Encoders
    temperature: float
    prompts: F64 | None
    prompt_classes: Ints | None
    rows: RowSummary
    normalize: bool
    weighs_classes: bool
    offsets: F64
    used: Mapping[str, Any]

    @property
    def n_components(self) -> int:
        """Dimension r of the learned space."""
        return int(self.encoders.components.shape[1])

    @property
    def objective(self) -> float:
        """Sum of the eigenvalues of the image side."""
        return float(self.encoders.eigenvalues.sum())

    def embeddings(self, X: Any) -> Any:
        """Return rows (n, p) as the encoder sees them: checked, and at unit length with ``normalize``."""
        check_rows(X, "X", zero_is_error=False)
        return unit_view(X) if self.normalize else X

    def transform(self, X: Any) -> Any:
        """Map rows X (n, p) to the learned space (n, r); O(n·p·D) time, in blocks that are checked on the way.

        A tensor gives a tensor on its device.
        """
        out = empty(X, (int(X.shape[0]), self.n_components), working_dtype(X.dtype))
        components = Placed(self.encoders.components.astype(working_dtype(X.dtype)))
        encode = RowEncoder(self.features, components, self.encoders.offset)
        return fill_checked(X, "X", encode, out, unit=self.normalize, depth=5)

    def scores(self, Z: Any) -> F64:
        """Return class scores (n, c) of rows that `transform` gave (n, r)."""
        return self.encoders.decision.scores(to_numpy(Z).astype(np.float64, copy=False))

    def labels(self, scores: F64) -> NDArray[Any]:
        """Return the class labels (n,) with the largest of the scores (n, c)."""
        return np.asarray(self.classes[scores.argmax(axis=1)])

    def cosines(self, Z: Any) -> F64:
        """Return the paper's cosines of rows Z (n, r) with the text vector of each class (n, c)."""
        return self.encoders.decision.cosines(to_numpy(Z).astype(np.float64, copy=False))

    def transform_text(self, T: Any) -> F64:
        """Map prompt embeddings T (m, p) to the learned space (m, r), or to the weights of their classes."""
        T = as_numbers(T, "text")
        width = self.features.n_features_in
        if T.ndim != 2 or T.shape[1] != width or not len(T):
            raise ShapeError(f"text must have shape (m, {width}), with one row at least; got {T.shape}")
        check_rows(T, "text", zero_is_error=True)
        T = np.asarray(T, dtype=np.float64)
        if self.weighs_classes:
            return np.asarray(self.encoders.decision.weights[self._fitted_prompts(T)])
        Phi = self.text_features.transform(np.asarray(unit_rows(T)) if self.normalize else T)
        both = self.encoders
        return np.asarray((Phi - both.text_mean) @ both.text_components + both.text_intercept)

    def _fitted_prompts(self, T: F64) -> Ints:
        """Return class codes (m,) of prompts (m, p) of the fit; raise for any other prompt."""
        if self.prompts is None or self.prompt_classes is None:
            raise FreeQueryError(
                "this model was fitted without text, so there is no prompt that it knows: fit it with text=, rank by "
                f"one of its classes {self.classes.tolist()[:10]}, or {FREE_QUERIES}"
            )
        fitted = np.asarray(unit_rows(self.prompts))
        means = prototypes([fitted[self.prompt_classes == k] for k in np.unique(self.prompt_classes)])
        known = np.concatenate([fitted, means])
        owner = np.concatenate([self.prompt_classes, np.unique(self.prompt_classes)])
        cosines = np.asarray(unit_rows(T)) @ known.T
        strangers = np.flatnonzero(cosines.max(axis=1) < SAME_PROMPT)
        if len(strangers):
            raise FreeQueryError(
                f"row {strangers[0]} of text is none of the {len(fitted)} prompts that this model was fitted on "
                f"(largest cosine {number(cosines[strangers[0]].max())}). {self._why_no_free_query()}"
            )
        return np.asarray(owner[cosines.argmax(axis=1)])

    def rank(self, prompt: Any, X: Any, k: int | None = None) -> Ranking:
        """Return the best k of the rows X (n, p), or all, by the score of a class; raise for any other prompt."""
        label = isinstance(prompt, tuple) or np.ndim(prompt) == 0
        places = [i for i, c in enumerate(self.classes.tolist()) if label and c == prompt]
        if not places:
            shown = prompt if label else f"an array of shape {np.shape(prompt)}"
            raise FreeQueryError(
                f"{shown!r} is not among the prompts this model was fitted on: {self.classes.tolist()[:10]}. "
                f"{self._why_no_free_query()}"
            )
        scores = self.scores(self.transform(X))[:, places[0]]
        if k is not None and not (isinstance(k, numbers.Integral) and 1 <= k <= len(scores)):
            raise ShapeError(f"k must be an integer in [1, {len(scores)}], the number of rows; got {k!r}")
        order = np.argsort(-scores, kind="stable")[:k]
        return Ranking(order, scores[order])

    def _why_no_free_query(self) -> str:
        return (
            f"The learned space has r={self.n_components} dimensions and holds the target alone: fit a model with this "
            f"prompt as a class to rank by it, or {FREE_QUERIES}"
        )

    def drift(self, X: Any) -> Drift:
        """Compare new rows (n, p) with the training rows; O(n·p)."""
        found = summarise_rows(X, "X", zero_is_error=False)
        return compare_rows(self.rows, found, normalize=self.normalize)
