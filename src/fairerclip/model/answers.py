"""Answers of a fitted model on new rows: predictions, one family of scores, embeddings and rankings."""

from __future__ import annotations

from typing import Any, ClassVar

from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from fairerclip._util.types import F64
from fairerclip.data.given_rows import given_rows
from fairerclip.data.row_drift import Drift
from fairerclip.model.fitted import FittedModel, Ranking, UsedValue, part
from fairerclip.solver.decision import softmax


class FittedAnswers(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClassifierMixin):
    """Methods and attributes of an estimator that has a `FittedModel` as ``fitted_``.

    `scores` are the class scores; `predict`, `predict_proba`, `decision_function` and `rank` follow from them.
    """

    fitted_: FittedModel
    changes_embeddings: ClassVar[bool] = True
    """Whether `transform` returns other embeddings than the rows it is given, as some baselines do not."""

    classes_ = part("classes")
    features_, text_features_ = part("features"), part("text_features")
    mean_, components_ = part("encoders.mean"), part("encoders.components")
    intercept_, text_intercept_ = part("encoders.intercept"), part("encoders.text_intercept")
    text_mean_, text_components_ = part("encoders.text_mean"), part("encoders.text_components")
    zero_, directions_ = part("encoders.decision.zero"), part("encoders.decision.directions")
    score_weights_ = part("encoders.decision.weights")
    score_constants_ = part("encoders.decision.constants")
    eigenvalues_, objective_ = part("encoders.eigenvalues"), part("objective")
    prompts_, prompt_classes_ = part("prompts"), part("prompt_classes")
    temperature_, rows_ = part("temperature"), part("rows")
    offsets_ = part("offsets")
    tau_, zero_shot_, gamma_ = UsedValue("tau"), UsedValue("zero_shot"), UsedValue("gamma")
    criterion_, guess_weight_ = UsedValue("criterion"), UsedValue("guess_weight")
    _n_features_out = part("n_components")

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict class labels (n,): the class with the largest score."""
        return self.fitted_model().labels(self.scores(X))

    def predict_proba(self, X: Any) -> F64:
        """Compute class probabilities (n, c): softmax of the scores, with a temperature fitted to the labels."""
        return softmax(self.scores(X) * self.temperature_)

    def decision_function(self, X: Any) -> F64:
        """Compute the difference of the two scores (n,) for two classes, the scores (n, c) for more.

        For two classes a value above 0 means ``classes_[1]``.
        """
        scores = self.scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def scores(self, X: Any) -> F64:
        """Compute the class scores (n, c): `predict` takes the largest of a row, `rank` sorts the rows by one class."""
        Z = self.transform(X)
        return self.fitted_.scores(Z)

    def cosines(self, X: Any) -> F64:
        """Compute the paper's cosines with the text vector of each class (n, c); they are ±1 where r = 1.

        They are not scores: with ``decision="target"``, or with offsets, the largest need not be the predicted class.
        """
        Z = self.transform(X)
        return self.fitted_.cosines(Z)

    def transform(self, X: Any) -> Any:
        """Map image embeddings to the learned space (n, r); O(n·p·D) time, in blocks of rows.

        A tensor gives a tensor on the same device; predictions and scores are always arrays of numpy.

        Where r < c − 1 dimensions cannot hold the boundaries between c classes there is one more column, of ones.
        """
        X = self._validated(X)
        return self.fitted_.transform(X)

    def transform_text(self, T: Any) -> F64:
        """Map prompt embeddings (m, p) to the learned space (m, r), to be compared with the output of `transform`.

        With ``decision="prompts"`` this is the learned text encoder, for any prompt, and cosines classify as `predict`
        does (apart from offsets). With ``decision="target"`` a prompt of the fit gives the weights of its class, so
        that ``transform(X) @ transform_text(T).T`` ranks and classifies as `rank` and `predict` do. Any other prompt
        raises `FreeQueryError`, because the learned space represents the target only.
        """
        return self.fitted_model().transform_text(T)

    def rank(self, prompt: Any, X: Any, k: int | None = None) -> Ranking:
        """Rank the rows of X by the score of one class, best first; ``prompt`` is one of ``classes_``.

        Other prompts raise `FreeQueryError`, because the learned space represents the target only.
        """
        X = self._validated(X)
        return self.fitted_.rank(prompt, X, k)

    def drift(self, X: Any) -> Drift:
        """Compare new rows with the training rows: lengths before normalising, and mean direction. O(n·p)."""
        X = self._validated(X)
        return self.fitted_.drift(X)

    def embeddings(self, X: Any) -> Any:
        """Return the rows (n, p) that the encoder sees: checked, and at unit length with ``normalize``."""
        X = self._validated(X)
        return self.fitted_.embeddings(X)

    def fitted_model(self) -> FittedModel:
        """Return ``fitted_``; raise scikit-learn's ``NotFittedError`` before a fit."""
        check_is_fitted(self)
        return self.fitted_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "fitted_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _validated(self, X: Any, *, reset: bool = False) -> Any:
        """Return X, checked for its shape and column names; finiteness is checked by `check_rows`, which names rows."""
        if not reset:
            check_is_fitted(self)
        return given_rows(self, X, reset=reset)
