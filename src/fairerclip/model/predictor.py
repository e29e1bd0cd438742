"""What a fitted model does: classes, scores, embeddings and rankings of new rows."""

from __future__ import annotations

import numbers
import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from fairerclip.data.stores import EmbeddingStore
from fairerclip.errors import FreeQueryError, RenamedWarning, ShapeError, StateError
from fairerclip.features import FeatureMap
from fairerclip.inputs.drift import Drift, RowSummary, compare_rows
from fairerclip.inputs.image_rows import UnitRows, check_rows, unit_rows, working_dtype
from fairerclip.inputs.zero_shot_scores import prototypes
from fairerclip.solver.calibration import softmax
from fairerclip.solver.decision import Decision
from fairerclip.solver.rows import BLOCK_ROWS

F64 = NDArray[np.float64]
Floats = NDArray[np.floating]
SAME_PROMPT = 1 - 1e-5
"""A prompt with this cosine or more with a fitted one is that prompt, in whatever precision it was kept."""


class Ranking(NamedTuple):
    """The best rows for a prompt, best first."""

    indices: NDArray[np.int64]
    scores: F64


class Predictor(TransformerMixin):
    """The half of `FairerCLIP` that needs no training data: everything follows from the fitted arrays.

    A transformer itself, since scikit-learn wraps ``transform`` for ``set_output`` in the class that defines it.
    """

    normalize: bool
    decision: str
    sensitive_shifts: Any
    classes_: NDArray[Any]
    features_: FeatureMap
    mean_: F64
    components_: F64
    intercept_: F64
    text_features_: FeatureMap
    text_mean_: F64
    text_components_: F64
    text_intercept_: F64
    prompts_: F64 | None
    prompt_classes_: NDArray[np.int64] | None
    rows_: RowSummary | None
    zero_: F64
    directions_: F64
    score_weights_: F64
    score_constants_: F64
    temperature_: float
    n_features_in_: int

    def predict(self, X: Any) -> NDArray[Any]:
        """Class labels (n,)."""
        return self.decide(self.transform(X))["prediction"]

    def decision_function(self, X: Any) -> F64:
        """Signed margin (n,) for two classes, scores (n, c) for more; inner products, not cosines."""
        return self.decide(self.transform(X))["score"]

    def decide(self, Z: Floats) -> dict[str, NDArray[Any]]:
        """What `predict` and `decision_function` give, from rows that `transform` gave (n, r)."""
        check_is_fitted(self)
        scores = self._decision.scores(np.asarray(Z, dtype=np.float64))
        margin = scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores
        return {"prediction": np.asarray(self.classes_[scores.argmax(axis=1)]), "score": margin}

    def cosines(self, X: Any) -> F64:
        """Return the paper's cosines with each class's text vector (n, c); ±1 where r = 1.

        They are no scores: with ``decision="target"`` or with offsets their largest need not be the predicted class.
        """
        check_is_fitted(self)
        return self._decision.cosines(np.asarray(self.transform(X), dtype=np.float64))

    def similarity(self, X: Any) -> F64:
        """Return `cosines`, under its earlier name."""
        warnings.warn(
            "similarity is called cosines now; it goes in the next release", RenamedWarning, stacklevel=2
        )
        return self.cosines(X)

    def predict_proba(self, X: Any) -> F64:
        """Softmax of the scores (n, c) at the temperature that fits the training labels best."""
        scores = self.scores(X)
        return softmax(scores * self.temperature_)

    def transform(self, X: Any) -> Floats:
        """Image embeddings in the learned space (n, r); O(n·p·D) time, by blocks.

        Where r < c − 1 dimensions cannot hold the boundaries between c classes there is one more column, of ones.
        """
        check_is_fitted(self)
        X = self._rows(X)
        out = np.empty((X.shape[0], self.components_.shape[1]), dtype=working_dtype(X.dtype))
        components = self.components_.astype(out.dtype)
        for start in range(0, X.shape[0], BLOCK_ROWS):
            block = slice(start, start + BLOCK_ROWS)
            Phi = self.features_.transform(np.asarray(X[block], dtype=out.dtype))
            out[block] = Phi @ components - self._offset
        return out

    def transform_text(self, T: Any) -> F64:
        """Prompt embeddings (m, p) in the learned space (m, r), to be compared with what `transform` gives.

        With ``decision="prompts"`` this is the learned text encoder, for any prompt, and cosines classify as `predict`
        does (offsets aside). With ``decision="target"`` a fitted prompt gives the weights of its class, so that
        ``transform(X) @ transform_text(T).T`` ranks and classifies as `rank` and `predict` do; the learned space holds
        the target alone, so another prompt is a `FreeQueryError`.
        """
        check_is_fitted(self)
        T = np.asarray(T)
        if T.ndim != 2 or T.shape[1] != self.n_features_in_:
            raise ShapeError(f"text must have shape (m, {self.n_features_in_}); got {T.shape}")
        check_rows(T, "text", zero_is_error=True)
        T = np.asarray(T, dtype=np.float64)
        if self._decides_by_weights and self.rows_ is not None:  # models of earlier files answer as they did
            return np.asarray(self.score_weights_[self._fitted_prompts(T)])
        rows = np.asarray(unit_rows(T)) if self.normalize else T
        Phi = self.text_features_.transform(rows)
        return np.asarray((Phi - self.text_mean_) @ self.text_components_ + self.text_intercept_)

    @property
    def _decides_by_weights(self) -> bool:
        """Whether the scores are inner products with weights of the classes, and not with prompts."""
        return self.decision == "target" or self.sensitive_shifts is not None

    def _fitted_prompts(self, T: F64) -> NDArray[np.int64]:
        """Class codes (m,) of prompts (m, p) that the model was fitted on; any other prompt is an error."""
        if self.prompts_ is None or self.prompt_classes_ is None:
            raise FreeQueryError(
                "this model was fitted without text, so there is no prompt that it knows: fit it with text=, or rank "
                f"by one of its classes {self.classes_.tolist()[:10]}"
            )
        fitted = np.asarray(unit_rows(self.prompts_))
        means = prototypes([fitted[self.prompt_classes_ == k] for k in np.unique(self.prompt_classes_)])
        known = np.concatenate([fitted, means])
        owner = np.concatenate([self.prompt_classes_, np.unique(self.prompt_classes_)])
        cosines = np.asarray(unit_rows(T)) @ known.T
        strangers = np.flatnonzero(cosines.max(axis=1) < SAME_PROMPT)
        if len(strangers):
            raise FreeQueryError(
                f"row {strangers[0]} of text is none of the {len(fitted)} prompts that this model was fitted on "
                f"(largest cosine {cosines[strangers[0]].max():.3f}). {self._why_no_free_query()}"
            )
        return np.asarray(owner[cosines.argmax(axis=1)])

    def _why_no_free_query(self) -> str:
        return (
            f"The learned space has r={self.components_.shape[1]} dimensions and holds the target alone: fit a model "
            "with this prompt as a class to rank by it. For free queries, EmbeddingMitigator will map embeddings "
            "within their own space; until this package has it, LEACE in fairerclip.baselines does"
        )

    def drift(self, X: Any) -> Drift:
        """Compare new rows with those of the fit: lengths before normalising, and mean direction. O(n·p).

        `fairerclip apply` warns of what it finds.
        """
        check_is_fitted(self)
        if self.rows_ is None:
            raise StateError(
                "this model was saved by an earlier version, which did not keep what its rows looked like: fit and "
                "save it again to compare"
            )
        X = self._embeddings(X, reset=False)
        check_rows(X, "X", zero_is_error=False)
        return compare_rows(self.rows_, RowSummary.of(X), normalize=self.normalize)

    def rank(self, prompt: Any, X: Any, k: int | None = None) -> Ranking:
        """Rows of X that match a prompt the model was fitted on, best first, by inner product.

        ``prompt`` is one of ``classes_``. The learned space holds the target alone, so a free query
        has no meaning in it.
        """
        check_is_fitted(self)
        label = isinstance(prompt, tuple) or np.ndim(prompt) == 0
        places = [i for i, c in enumerate(self.classes_.tolist()) if label and c == prompt]
        if not places:
            shown = prompt if label else f"an array of shape {np.shape(prompt)}"
            raise FreeQueryError(
                f"{shown!r} is not among the prompts this model was fitted on: {self.classes_.tolist()[:10]}. "
                f"{self._why_no_free_query()}"
            )
        scores = self.scores(X)[:, places[0]]
        if k is not None and not (isinstance(k, numbers.Integral) and 1 <= k <= len(scores)):
            raise ShapeError(f"k must be an integer in [1, {len(scores)}], the number of rows; got {k!r}")
        order = np.argsort(-scores, kind="stable")[:k]
        return Ranking(order, scores[order])

    def scores(self, X: Any) -> F64:
        """Scores of the classes (n, c): `predict` takes the largest of a row, `rank` sorts the rows by one."""
        check_is_fitted(self)
        return self._decision.scores(np.asarray(self.transform(X), dtype=np.float64))

    @property
    def _offset(self) -> F64:
        """(r,) Z = Φ U − offset."""
        return np.asarray(self.mean_ @ self.components_ - self.intercept_)

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[1])

    @property
    def _decision(self) -> Decision:
        return Decision(self.zero_, self.directions_, self.score_weights_, self.score_constants_)

    def _rows(self, X: Any) -> Any:
        """New rows, checked, and of unit length where the model wants that."""
        X = self._embeddings(X, reset=False)
        check_rows(X, "X", zero_is_error=False)
        return UnitRows(X) if self.normalize else X

    def _embeddings(self, X: Any, *, reset: bool) -> Any:
        # Finiteness is checked by check_rows, which names the rows.
        try:
            if isinstance(X, EmbeddingStore):  # its rows are float32 already, and are never all in memory
                return validate_data(self, X, reset=reset, skip_check_array=True)
            return validate_data(self, X, reset=reset, dtype="numeric", ensure_all_finite=False)
        except ValueError as error:
            raise ShapeError(str(error)) from None
