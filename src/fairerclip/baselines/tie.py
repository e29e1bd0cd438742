"""TIE and TIE*: image embeddings moved against the prompt of their sensitive value, given or read from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from fairerclip._util.checks import check_within
from fairerclip._util.types import F64, Ints
from fairerclip.baselines.given_values import value_places
from fairerclip.baselines.heads import CosineHead, class_prompts, sensitive_values
from fairerclip.baselines.training_data import Needs, Training
from fairerclip.errors import ModelFileError, PromptError
from fairerclip.model.contents import are_labels, plain_value

MOST = 1e6
"""Largest ``scale``."""


class TIE(CosineHead):
    """Zero-shot classifier of images that are translated against the prompt of their sensitive value.

    Needs class prompts, prompts of the sensitive values (``sensitive_text``), and training images without labels.
    Values of S on the training images are used where they are given (``sensitive_features``) and read zero-shot from
    the prompts otherwise. No labels y, no gradient. It maps images alone, so that any query can be ranked.

    The paper has two methods, and a fitted model is both. With ``sensitive_features``, the true values of the images to
    predict, `predict`, `scores`, `decision_function`, `transform` and `query_scores` are those of TIE. Without, values
    are read zero-shot, and they are those of TIE*.

    Parameters
    ----------
    scale : float, default=1.0
        Factor of the translation; 1 as published, 0 is `ZeroShot`.

    Attributes
    ----------
    values_ : array of shape (v, p)
        One unit prompt per sensitive value, over all attributes.
    shifts_ : array of shape (v,)
        Length of the translation of each value, ``scale·λ``; 0 for a value of no training row.
    attribute_ : array of shape (v,)
        Number of the attribute of each value.
    text_ : array of shape (c, p)
        One unit vector per class.
    sensitive_values_ : dict of str to tuple
        Values of each attribute, in the order of ``values_``.
    diagnostics_ : dict
        sensitive ("true" or "predicted": the values that the lengths are from), shifts and a note.

    Notes
    -----
    With unit rows x and the unit prompt ``u_s`` of value s, ``λ_s`` is the mean of ``x·u_s`` over the training rows of
    value s, weighted by the row weights, and ``x' = x − λ_s u_s``.

    TIE takes the true value of every test image. TIE* predicts it: ``ŝ`` is the value whose prompt has the largest
    cosine with the row. The lengths λ are from true values if S is given to ``fit``. With several attributes, which the
    paper has not, every attribute adds its own translation, and ŝ and λ are taken from the rows before any translation,
    so that the order has no effect. True values are given for all attributes or for none. A value of no training row
    moves nothing. An attribute with one value in all training rows moves nothing; `fit` warns. `score` and the commands
    are those of TIE*, since they are not given S.

    Scores are cosines, whose norm ``‖x'‖`` changes rankings and no predicted class. O(n·p·v) time.

    Differences from the paper: several attributes, which it has not, are translated one by one.

    Licence of the released code: none. This is a new implementation from the paper.

    References
    ----------
    Lu, Chai & Wang, "Mitigating Spurious Correlations in Zero-Shot Multimodal Models", ICLR 2025,
    openreview:UsRKFYR4lM.

    Examples
    --------
    >>> import numpy as np
    >>> images = np.array([[0.6, 0.5, 0.9, 0.0], [0.5, 0.6, 0.0, 0.9]])
    >>> text = [[1.0, 0.0, 0.0, 0.3], [0.0, 1.0, 0.3, 0.0]]
    >>> sensitive = [[0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    >>> TIE(scale=0.0).fit(images, text=text, sensitive_text=sensitive).predict(images).tolist()
    [1, 0]
    >>> TIE().fit(images, text=text, sensitive_text=sensitive).predict(images).tolist()
    [0, 1]

    With the true values of the images:

    >>> TIE().fit(images, text=text, sensitive_text=sensitive).predict(images, sensitive_features=[1, 0]).tolist()
    [1, 0]
    """

    needs = Needs("none", True, True, False, "Lu, Chai & Wang 2025, openreview:UsRKFYR4lM")
    changes_embeddings = free_queries = True
    state_keys: ClassVar[tuple[str, ...]] = ("sensitive_values",)
    fitted: ClassVar[tuple[str, ...]] = ("text_", "values_", "shifts_", "attribute_")
    shapes = {  # noqa: RUF012
        "text_": ("c", "p"),
        "values_": ("v", "p"),
        "shifts_": ("v",),
        "attribute_": ("v",),
    }

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    @property
    def title(self) -> str:
        """Name of the method."""
        return "TIE*"

    def _learn(self, data: Training) -> None:
        check_within("scale", self.scale, 0.0, MOST)
        self.text_ = class_prompts(data, "TIE")
        if data.sensitive_prompts is None:
            raise PromptError("TIE moves images along prompts of the sensitive values: give sensitive_text")
        attributes = sensitive_values(data)
        self.values_ = np.concatenate(attributes)
        self.attribute_ = np.repeat(np.arange(len(attributes)), data.attribute_sizes).astype(np.float64)
        lengths = [np.zeros(len(values)) for values in attributes]
        for length, values, codes in zip(lengths, attributes, data.value_codes, strict=True):
            if codes is not None:
                onehot = np.eye(len(values))[codes] * data.weight[:, None]
                sums = np.sum(onehot * (data.X @ values.T), axis=0)
                np.divide(sums, onehot.sum(axis=0), out=length, where=onehot.sum(axis=0) > 0)
        self.shifts_ = self.scale * np.concatenate(lengths)
        self.sensitive_values_: dict[str, tuple[Any, ...]] = dict(data.value_names)
        source = "true" if data.s_is_true else "predicted"
        self.diagnostics_ = {
            "sensitive": source,
            "shifts": self.shifts_.tolist(),
            "note": f"lengths of the translation from {source} sensitive values; those of new rows are predicted "
            "unless they are given",
        }

    def transform(self, X: Any, *, sensitive_features: Any = None) -> F64:
        """Return the translated rows (n, p), not normalised again.

        Parameters
        ----------
        X : array or EmbeddingStore of shape (n, p)
            Image embeddings.
        sensitive_features : array of shape (n,) or (n, a), DataFrame, or mapping from attribute to array, optional
            True value of every attribute for every row (TIE). None to read them zero-shot (TIE*).
        """
        known = self._places(sensitive_features)
        return self._by_blocks(X, self._embed, self.n_features_in_, known)

    def scores(self, X: Any, *, sensitive_features: Any = None) -> F64:
        """Return the class scores (n, c), with offsets; the largest one decides. Parameters are as in `transform`."""
        known = self._places(sensitive_features)
        return self._by_blocks(X, self._scored, len(self.offsets_), known)

    def query_scores(self, X: Any, T: Any, *, sensitive_features: Any = None) -> F64:
        """Return the scores (n, m) by which rows are ranked for any queries (m, p); the higher, the earlier.

        ``sensitive_features`` is as in `transform`.
        """
        text, known = self.transform_text(T), self._places(sensitive_features)
        return self._by_blocks(X, lambda rows, *s: self._match(self._embed(rows, *s), text), len(text), known)

    def decision_function(self, X: Any, *, sensitive_features: Any = None) -> F64:
        """Return the signed margin (n,) for two classes, or the scores (n, c). Parameters are as in `transform`."""
        return self._margins(self.scores(X, sensitive_features=sensitive_features))

    def predict(self, X: Any, *, sensitive_features: Any = None) -> NDArray[Any]:
        """Return the predicted class labels (n,). Parameters are as in `transform`."""
        return self._decided(self.scores(X, sensitive_features=sensitive_features))

    def _places(self, given: Any) -> tuple[Ints, ...]:
        """Return the places (n, a) of true values among ``values_`` as the column of a pass; none if not given."""
        check_is_fitted(self, self.fitted)
        if given is None:
            return ()
        return (value_places(given, self.sensitive_values_),)

    def _scored(self, rows: F64, *places: Ints) -> F64:
        return np.asarray(self._class_scores(self._embed(rows, *places)) + self.offsets_)

    def _embed(self, rows: F64, *places: Ints) -> F64:
        """Return the translated rows (b, p); their values are at ``places`` (b, a), or read. O(b·p·v) time."""
        cosines, moved = rows @ self.values_.T, rows
        for number, attribute in enumerate(np.unique(self.attribute_)):
            own = np.flatnonzero(self.attribute_ == attribute)
            value = places[0][:, number] if places else own[cosines[:, own].argmax(axis=1)]
            moved = moved - self.shifts_[value][:, None] * self.values_[value]
        return np.asarray(moved)

    def _state(self) -> dict[str, Any]:
        return {
            "sensitive_values": [
                {"name": name, "values": [plain_value(value, "a sensitive value") for value in values]}
                for name, values in self.sensitive_values_.items()
            ]
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        listed = state["sensitive_values"]
        described = isinstance(listed, list) and all(
            isinstance(entry, dict)
            and set(entry) == {"name", "values"}
            and isinstance(entry["name"], str)
            and are_labels(entry["values"])
            for entry in listed
        )
        found = {entry["name"]: tuple(entry["values"]) for entry in listed} if described else {}
        sizes = np.unique(self.attribute_, return_counts=True)[1].tolist()
        if [len(values) for values in found.values()] != sizes:
            raise ModelFileError("sensitive_values do not name the values of the prompts of the model")
        self.sensitive_values_ = found
