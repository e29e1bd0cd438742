"""What a fitted model does: classes, scores, embeddings and rankings of new rows."""

from __future__ import annotations

import numbers
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from fairerclip.data.stores import EmbeddingStore
from fairerclip.errors import FreeQueryError, ShapeError
from fairerclip.features import FeatureMap
from fairerclip.inputs import check_rows
from fairerclip.solver.calibration import softmax
from fairerclip.solver.decision import Decision
from fairerclip.solver.rows import BLOCK_ROWS

F64 = NDArray[np.float64]
Floats = NDArray[np.floating]


class Ranking(NamedTuple):
    """The best rows for a prompt, best first."""

    indices: NDArray[np.int64]
    scores: F64


class Predictor(TransformerMixin):
    """The half of `FairerCLIP` that needs no training data: everything follows from the fitted arrays.

    A transformer itself, since scikit-learn wraps ``transform`` for ``set_output`` in the class that defines it.
    """

    classes_: NDArray[Any]
    features_: FeatureMap
    mean_: F64
    components_: F64
    text_features_: FeatureMap
    text_mean_: F64
    text_components_: F64
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

    def similarity(self, X: Any) -> F64:
        """Return the paper's cosines with each class's text vector (n, c); ±1 where r = 1."""
        check_is_fitted(self)
        return self._decision.cosines(np.asarray(self.transform(X), dtype=np.float64))

    def predict_proba(self, X: Any) -> F64:
        """Softmax of the scores (n, c) at the temperature that fits the training labels best."""
        scores = self.scores(X)
        return softmax(scores * self.temperature_)

    def transform(self, X: Any) -> Floats:
        """Image embeddings in the learned space (n, r); O(n·p·D) time, by blocks."""
        check_is_fitted(self)
        X = self._embeddings(X, reset=False)
        check_rows(X, "X", zero_is_error=False)
        single = X.dtype in (np.float16, np.float32)
        out = np.empty((X.shape[0], self.components_.shape[1]), dtype=np.float32 if single else np.float64)
        components = self.components_.astype(out.dtype)
        offset = self.mean_ @ self.components_
        for start in range(0, X.shape[0], BLOCK_ROWS):
            block = slice(start, start + BLOCK_ROWS)
            out[block] = self.features_.transform(np.asarray(X[block], dtype=out.dtype)) @ components - offset
        return out

    def transform_text(self, T: Any) -> F64:
        """Prompt embeddings (m, p) in the learned space (m, r)."""
        check_is_fitted(self)
        T = np.asarray(T)
        if T.ndim != 2 or T.shape[1] != self.n_features_in_:
            raise ShapeError(f"text must have shape (m, {self.n_features_in_}); got {T.shape}")
        check_rows(T, "text", zero_is_error=True)
        T = np.asarray(T, dtype=np.float64)
        return np.asarray((self.text_features_.transform(T) - self.text_mean_) @ self.text_components_)

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
                f"{shown!r} is not among the prompts this model was fitted on: {self.classes_.tolist()[:10]}. The "
                f"learned space has r={self.components_.shape[1]} dimensions and holds the target alone; fit a model "
                "with this prompt as a class to rank by it"
            )
        scores = self.scores(X)[:, places[0]]
        if k is not None and not (isinstance(k, numbers.Integral) and 1 <= k <= len(scores)):
            raise ShapeError(f"k must be an integer in [1, {len(scores)}], the number of rows; got {k!r}")
        order = np.argsort(-scores, kind="stable")[:k]
        return Ranking(order, scores[order])

    def scores(self, X: Any) -> F64:
        """Scores of the classes (n, c): what `predict` and `rank` go by."""
        check_is_fitted(self)
        return self._decision.scores(np.asarray(self.transform(X), dtype=np.float64))

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[1])

    @property
    def _decision(self) -> Decision:
        return Decision(self.zero_, self.directions_, self.score_weights_, self.score_constants_)

    def _embeddings(self, X: Any, *, reset: bool) -> Any:
        # Finiteness is checked by check_rows, which names the rows.
        try:
            if isinstance(X, EmbeddingStore):  # its rows are float32 already, and are never all in memory
                return validate_data(self, X, reset=reset, skip_check_array=True)
            return validate_data(self, X, reset=reset, dtype="numeric", ensure_all_finite=False)
        except ValueError as error:
            raise ShapeError(str(error)) from None
