"""Base class of the baselines: labels and prompts are resolved as in `FairerCLIP`, and prediction is common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from fairerclip._util.arrays import as_numbers
from fairerclip._util.types import F64, Floats
from fairerclip.baselines.shared_solutions import keep_answer, kept_answer
from fairerclip.baselines.training_data import (
    Needs,
    Training,
    Validation,
    text_pairs_of,
    training_data,
    unit_or_zero,
    unit_prompts,
    unit_sentences,
)
from fairerclip.data.embedding_rows import check_rows, fill_checked, unit_rows
from fairerclip.data.given_rows import checked_columns, checked_matrix
from fairerclip.data.stores import EmbeddingStore
from fairerclip.errors import FreeQueryError, LabelError, ParameterError, PromptError, ShapeError
from fairerclip.inputs.encode import as_labels, encode
from fairerclip.inputs.sensitive_columns import encode_groups
from fairerclip.model.details import forget_details
from fairerclip.model.parameters import check_offsets
from fairerclip.model.saving import SavedModel


class Baseline(TransformerMixin, ClassifierMixin, SavedModel, BaseEstimator):
    """Classifier with the `fit` of `FairerCLIP`; subclasses implement ``_learn`` and ``_class_scores``.

    A subclass also has ``needs``, ``title``, and ``fitted``, the names of the arrays of the fitted model, for saving.
    ``shapes`` has the expected shapes of saved arrays: "p" is the width of X, "c" the number of classes, and any other
    letter a size that several arrays share.
    """

    needs: ClassVar[Needs]
    changes_embeddings: ClassVar[bool] = False
    """Whether `transform` returns other embeddings than the unit rows it is given."""
    changes_prompts: ClassVar[bool] = False
    """Whether `transform_text` returns other embeddings than the unit rows it is given."""
    free_queries: ClassVar[bool] = False
    """Whether images can be ranked by any query (`query_scores`), and not by the classes of the fit alone."""
    prompts_alone: ClassVar[bool] = False
    """Whether it learns from prompts alone, so that the training rows do not matter."""
    offsets_: F64
    """Numbers (c,) that are added to the class scores: zeros after a fit; a choice on labelled rows may learn them."""
    fitted: ClassVar[tuple[str, ...]]
    shapes: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    only_with: ClassVar[Mapping[str, Mapping[str, tuple[str, ...]]]] = {}
    """Parameter → arrays, with their shapes, that a model has besides ``fitted`` if the parameter is not zero."""
    takes_sentences: ClassVar[bool] = False
    """Whether ``spurious_text`` is accepted in place of sensitive values."""
    takes_named: ClassVar[bool] = False
    """Whether ``counterfactual_text`` is accepted in place of sensitive values."""
    state_keys: ClassVar[tuple[str, ...]] = ()
    """Keys of `_state`."""
    sentences: ClassVar[tuple[str, ...]] = ()
    """Arguments of `fit` with embeddings of sentences that the method uses; it ignores others."""

    @property
    def requirements(self) -> Needs:
        """Inputs that `fit` needs with these parameters; ``needs`` is for the default parameters."""
        return self.needs

    @property
    def title(self) -> str:
        """Name of the method with these parameters, for reports."""
        raise NotImplementedError

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sensitive_features: Any = None,
        text: Any = None,
        sensitive_text: Any = None,
        sample_weight: Any = None,
        classes: Iterable[Any] | None = None,
        missing_label: Any = None,
        validation: tuple[Any, Any, Any] | None = None,
        spurious_text: Any = None,
        counterfactual_text: Mapping[Any, Any] | None = None,
        text_pairs: Mapping[str, Any] | None = None,
    ) -> Self:
        """Fit the model and return it.

        Parameters
        ----------
        X, y, sensitive_features, text, sensitive_text, sample_weight, classes, missing_label
            As in `FairerCLIP.fit`; rows are normalised to unit length. Rows without a label are left out if the
            method needs labels.
        validation : tuple (X, y, s), optional
            Validation rows with class and sensitive labels.
        spurious_text : array of shape (m, p), optional
            Embeddings of sentences about the sensitive attributes, for methods that project them out.
        counterfactual_text : mapping from class to array of shape (m, p), optional
            Embeddings of sentences that name the class together with a sensitive value.
        text_pairs : mapping from "harmful" or "helpful" to array of shape (m, 2, p), optional
            Embeddings of pairs of sentences. A method ignores sentences that are not in its ``sentences``.
        """
        X = checked_matrix(self, X, reset=True)
        forget_details(self)
        sources = [sensitive_features, sensitive_text, spurious_text if self.takes_sentences else None]
        sources += [text_pairs] if "text_pairs" in self.sentences else []
        sources += [counterfactual_text] if self.takes_named else []
        self._require(y, text, sensitive_features, sources, validation)
        text, sensitive_text, words = self._read(text, sensitive_text)
        learns, given = self.requirements.labels != "none", (sensitive_features, sensitive_text)
        # Candidates of a choice are fitted on the same rows, which are checked and resolved once for all of them.
        inputs = (X, y, text, given, sample_weight, classes, missing_label, learns)
        prepared = kept_answer(training_data, inputs)
        if prepared is None:  # called from here, so that its warnings name the line that called `fit`
            prepared = keep_answer(training_data, inputs, training_data(*inputs))
        found, data = prepared
        self.classes_, self.offsets_ = found.copy(), np.zeros(len(found))
        self._learn(
            replace(
                data,
                y=None if y is None else data.y,
                validation=self._validation(validation, missing_label),
                spurious=unit_sentences(spurious_text, X.shape[1], "spurious_text"),
                counterfactual=self._counterfactual(counterfactual_text),
                pairs=text_pairs_of(text_pairs, X.shape[1]),
                words=words,
            )
        )
        return self

    def _read(self, text: Any, sensitive_text: Any) -> tuple[Any, Any, list[list[str]] | None]:
        """Return class and sensitive prompts as embeddings, and the sentences of each class if it embeds them."""
        return text, sensitive_text, None

    def _require(
        self, y: Any, text: Any, sensitive_features: Any, sensitive: Iterable[Any], validation: Any
    ) -> None:
        name, needs = type(self).__name__, self.requirements
        if needs.labels != "none" and y is None:
            raise LabelError(
                f"{name} learns from labels: give y (it requires y to be passed, but the target y is None)"
            )
        if needs.labels == "all" and sensitive_features is None:
            raise LabelError(f"{name} learns from sensitive values: give sensitive_features")
        if needs.text and text is None:
            raise PromptError(f"{name} starts from class prompts: give text")
        if needs.sensitive and all(given is None for given in sensitive):
            raise PromptError(
                f"{name} needs sensitive values: give sensitive_features, or sensitive_text to read them"
            )
        if needs.validation and validation is None:
            raise ParameterError(f"{name} needs validation rows with labels: give validation=(X, y, s)")

    def _counterfactual(self, given: Any) -> dict[int, F64] | None:
        """Check and return the sentences of each class that has any, by class code."""
        if given is None:
            return None
        if not isinstance(given, Mapping) or not given:
            raise PromptError(
                f"counterfactual_text must be a mapping from class to embeddings (m, p); got {type(given).__name__}"
            )
        unknown = [name for name in given if name not in self.classes_.tolist()]
        if unknown:
            raise PromptError(
                f"counterfactual_text names {unknown[:5]}; the classes are {self.classes_.tolist()[:10]}"
            )
        codes = {name: code for code, name in enumerate(self.classes_.tolist())}
        sentences = {
            codes[k]: unit_sentences(rows, self.n_features_in_, f"counterfactual_text[{k!r}]")
            for k, rows in given.items()
        }
        return {code: rows for code, rows in sentences.items() if rows is not None}

    def _validation(self, given: Any, missing_label: Any) -> Validation | None:
        if given is None:
            return None
        if not isinstance(given, (tuple, list)) or len(given) != 3:
            raise ParameterError(f"validation must be a triple (X, y, s); got {type(given).__name__}")
        X, y, s = given
        X = as_numbers(X, "validation X").astype(np.float64, copy=False)
        if X.ndim != 2 or X.shape[1] != self.n_features_in_:
            raise ShapeError(
                f"validation rows must have shape (m, {self.n_features_in_}) as X has; got {X.shape}"
            )
        check_rows(X, "validation X", zero_is_error=False)
        target = encode(as_labels(y), missing_label=missing_label, classes=self.classes_)
        groups = encode_groups(s, missing_label, kind="categorical")
        if not len(X) == len(target.codes) == len(groups.codes):
            raise ShapeError(
                "validation X, y and s must have the same number of rows; got "
                f"{len(X)}, {len(target.codes)} and {len(groups.codes)}"
            )
        known = ~target.missing & ~groups.missing
        if not known.any():
            raise LabelError("no validation row has both a target and a sensitive label")
        return Validation(np.asarray(unit_rows(X[known])), target.codes[known], groups.codes[known])

    def _learn(self, data: Training) -> None:
        raise NotImplementedError

    def _state(self) -> dict[str, Any]:
        """Return fitted values that are no arrays and that a file of the model needs, as JSON values."""
        return {}

    def _restore(self, state: Mapping[str, Any]) -> None:
        """Set the fitted values of `_state`, as a file has them; raise if they are impossible."""

    def _embed(self, rows: F64) -> F64:
        """Return the embeddings (b, p) that the method classifies, of a block of rows (b, p)."""
        return rows

    def _class_scores(self, embedded: F64) -> F64:
        """Return the class scores (b, c) of what `_embed` gives (b, p)."""
        raise NotImplementedError

    def scores(self, X: Any) -> F64:
        """Return the class scores (n, c), with offsets; the largest one decides. Rows are read by blocks."""
        check_is_fitted(self, self.fitted)
        return self._by_blocks(X, self._scored, len(self.offsets_))

    def _scored(self, rows: F64) -> F64:
        return np.asarray(self._class_scores(self._embed(rows)) + self.offsets_)

    def at(self, *, offsets: Any) -> Self:
        """Return a fitted copy whose class scores have other offsets: c numbers in the order of ``classes_``."""
        check_is_fitted(self, self.fitted)
        other = copy(self)
        forget_details(other)
        other.offsets_ = check_offsets(offsets, len(self.classes_))
        return other

    def transform(self, X: Any) -> F64:
        """Return the image embeddings that the method classifies (n, …): unit rows, unless it changes them."""
        check_is_fitted(self, self.fitted)
        return self._by_blocks(X, self._embed, self.n_features_in_)

    def _embed_text(self, rows: F64) -> F64:
        """Return unit prompts (m, p) as images are compared with them, not normalised again."""
        return rows

    def _match(self, embedded: F64, text: F64) -> F64:
        """Return the scores (b, m) of what `_embed` gives (b, p) for prompts (m, p): cosines.

        They are zero for a row of which a map left nothing, and not those of its rounding errors.
        """
        rows = unit_or_zero(embedded) if self.changes_embeddings else unit_rows(embedded)
        return np.asarray(rows @ text.T)

    def transform_text(self, T: Any) -> F64:
        """Return any prompts (m, p) as images are compared with them, at unit length."""
        check_is_fitted(self, self.fitted)
        if not self.free_queries:
            raise FreeQueryError(
                f"{type(self).__name__} knows the classes of its fit alone, and ranks by no other query; use a method "
                "for rankings (free_queries), such as EmbeddingMitigator"
            )
        rows = as_numbers(T, "T").astype(np.float64, copy=False)
        if rows.ndim != 2 or rows.shape[1] != self.n_features_in_ or not len(rows):
            raise ShapeError(
                f"T must have shape (m, {self.n_features_in_}), with one row at least; got {rows.shape}"
            )
        check_rows(rows, "T", zero_is_error=True)
        return unit_prompts(
            self._embed_text(unit_rows(rows)),
            "the map of prompts",
            kind="rows of T",
            remedy="the method removes all of them; leave these queries out",
        )

    def query_scores(self, X: Any, T: Any) -> F64:
        """Return the scores (n, m) by which rows are ranked for any queries (m, p); the higher, the earlier."""
        text = self.transform_text(T)
        return self._by_blocks(X, lambda rows: self._match(self._embed(rows), text), len(text))

    def decision_function(self, X: Any) -> F64:
        """Return the signed margin (n,) for two classes, or the scores (n, c) for more."""
        return self._margins(self.scores(X))

    def _margins(self, scores: F64) -> F64:
        return np.asarray(scores[:, 1] - scores[:, 0]) if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predicted class labels (n,)."""
        return self._decided(self.scores(X))

    def _decided(self, scores: F64) -> NDArray[Any]:
        return np.asarray(self.classes_[scores.argmax(axis=1)])

    def _by_blocks(
        self, X: Any, function: Callable[..., F64], width: int, columns: Sequence[NDArray[Any]] = ()
    ) -> F64:
        """Return a function of blocks of rows X (n, p) and of columns (n, …) as an array (n, width).

        Rows are checked on the way.
        """
        checked = checked_columns if isinstance(X, EmbeddingStore) else checked_matrix
        X = checked(self, X, reset=False)
        n = int(X.shape[0])
        if any(len(column) != n for column in columns):
            raise ShapeError(
                f"X has {n} rows but sensitive_features has {len(columns[0])}: give one value per row"
            )
        out = np.empty((n, width))
        fill_checked(X, "X", partial(self._on_block, function), out, columns, unit=False, depth=5)
        return out

    def _on_block(self, function: Callable[..., F64], rows: Floats, *columns: NDArray[Any]) -> F64:
        wide = np.asarray(rows, dtype=np.float64)
        return function(unit_rows(wide), *columns)
