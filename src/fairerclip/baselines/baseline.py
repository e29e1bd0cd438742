"""What every baseline shares: labels and prompts resolved as `FairerCLIP` does, and one way to predict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from fairerclip._util.types import F64, Ints
from fairerclip.data.embedding_rows import check_rows, unit_rows
from fairerclip.errors import LabelError, ParameterError, PromptError, ShapeError
from fairerclip.inputs.encode import as_labels, encode
from fairerclip.inputs.prompts import prototypes
from fairerclip.inputs.sensitive import ResolvedSensitive, resolve_sensitive
from fairerclip.inputs.sensitive_columns import encode_groups
from fairerclip.inputs.target import ResolvedTarget, resolve_target
from fairerclip.inputs.weights import check_weights


class Needs(NamedTuple):
    """What a method must be given, and where it comes from."""

    labels: str
    """Least labels of the training rows: "none", "target" (y) or "all" (y and true s)."""
    text: bool
    """Whether it needs class prompts."""
    sensitive: bool
    """Whether it needs sensitive values in training, true ones or prompts to read them from."""
    validation: bool
    """Whether it needs validation rows with y and s (to stop, or to learn from)."""
    paper: str
    """Whose method it is."""


class Validation(NamedTuple):
    """Validation rows (m, p) with codes of class and group."""

    X: F64
    y: Ints
    s: Ints


@dataclass(frozen=True, eq=False)
class Training:
    """Training rows as a method sees them.

    Attributes
    ----------
    X : (n, p) rows whose label is known; all rows where a method takes no labels.
    y : (n,) class codes, or None without labels.
    s : (n,) group codes, true or read zero-shot; several attributes are crossed. None without any.
    s_is_true : whether ``s`` was given for every row.
    weight : (n,) row weights.
    n_classes, n_groups : int
    text : (c, p) one unit vector per class, or None.
    prompts : c arrays (m, p) of prompts, or None.
    sensitive_prompts : prompts of each sensitive value, over all attributes, or None.
    validation : Validation or None
    attribute_sizes : how many of ``sensitive_prompts`` belong to each attribute, in order.
    spurious : (m, p) unit embeddings of sentences about the sensitive attributes, or None.
    counterfactual : for some classes (m, p) unit embeddings of sentences that name it with a sensitive value, or None.
    """

    X: F64
    y: Ints | None
    s: Ints | None
    s_is_true: bool
    weight: F64
    n_classes: int
    n_groups: int
    text: F64 | None
    prompts: list[NDArray[Any]] | None
    sensitive_prompts: list[NDArray[Any]] | None
    validation: Validation | None
    attribute_sizes: tuple[int, ...] = ()
    spurious: F64 | None = None
    counterfactual: tuple[F64, ...] | None = None


class Baseline(TransformerMixin, ClassifierMixin, BaseEstimator):
    """A classifier with the `fit` of `FairerCLIP`; subclasses say how they learn and score.

    A subclass has ``needs``, ``fitted`` (names of the arrays that make the fitted model, for saving), ``_learn``
    and ``scores``. ``shapes`` says what a saved array must look like: "p" is the width of X, "c" the number of
    classes, any other letter a size that several arrays share.
    """

    needs: ClassVar[Needs]
    fitted: ClassVar[tuple[str, ...]]
    normalize_: bool
    """Whether rows are brought to unit length: always, but in models of files that are older than that."""
    shapes: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    added: ClassVar[Mapping[str, Any]] = {}
    """Parameters that files of versions 1 and 2 lack, with what these versions did."""
    takes_sentences: ClassVar[bool] = False
    """Whether ``spurious_text`` does for sensitive values."""

    @property
    def requirements(self) -> Needs:
        """What `fit` must be given with these parameters; ``needs`` is that of the default ones."""
        return self.needs

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
    ) -> Baseline:
        """Learn; parameters as in `FairerCLIP.fit`.

        Parameters
        ----------
        X, y, sensitive_features, text, sensitive_text, sample_weight, classes, missing_label
            As in `FairerCLIP.fit`; rows are brought to unit length. Rows without a label are left out where the
            method needs labels.
        validation : (X, y, s), optional
            Validation rows with class and sensitive labels.
        spurious_text : (m, p), optional
            Embeddings of sentences about the sensitive attributes, whose span `OrthProj` and `OrthCali` take away.
        counterfactual_text : mapping from class to (m, p), optional
            Embeddings of sentences that name the class together with a sensitive value, for `OrthCali`. Other methods
            have no use for either.
        """
        X = validate_data(self, X, dtype=np.float64, reset=True)
        check_rows(X, "X", zero_is_error=True)
        X = unit_rows(X)
        self.normalize_ = True
        weight = check_weights(sample_weight, len(X))
        read = [sensitive_features, sensitive_text, spurious_text if self.takes_sentences else None]
        self._require(y, text, sensitive_features, read, validation)
        learns = self.requirements.labels != "none"
        target = resolve_target(
            X, y, text, weight, classes=classes, missing_label=missing_label, learns=learns
        )
        self.classes_ = target.classes
        sensitive = self._sensitive(X, sensitive_features, sensitive_text, target, missing_label)
        groups = None if sensitive is None else sensitive.groups
        known = np.ones(len(X), dtype=bool)
        if learns and target.guess is not None:
            known = ~target.guess.rows
        prompts = {} if sensitive is None else sensitive.prompts
        self._learn(
            Training(
                X=X[known],
                y=None if y is None else target.codes[known],
                s=None if groups is None else groups[known],
                s_is_true=sensitive is not None and not sensitive.trust,
                weight=weight[known],
                n_classes=len(target.classes),
                n_groups=0 if groups is None else int(groups.max()) + 1,
                text=None if text is None else prototypes(target.prompts),
                prompts=None if text is None else target.prompts,
                sensitive_prompts=None if sensitive is None or not prompts else sensitive.all_prompts,
                validation=self._validation(validation, missing_label),
                attribute_sizes=tuple(len(values.groups) for values in prompts.values()),
                spurious=_sentences(spurious_text, X.shape[1], "spurious_text"),
                counterfactual=self._counterfactual(counterfactual_text),
            )
        )
        return self

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

    def _sensitive(
        self, X: F64, sensitive_features: Any, sensitive_text: Any, target: ResolvedTarget, missing_label: Any
    ) -> ResolvedSensitive | None:
        """Sensitive attributes, complete; None where neither values nor prompts are given."""
        if sensitive_features is None and sensitive_text is None:
            return None
        return resolve_sensitive(
            X,
            sensitive_features,
            sensitive_text,
            target,
            kind="categorical",
            terms="each",
            missing_label=missing_label,
        )

    def _counterfactual(self, given: Any) -> tuple[F64, ...] | None:
        """Sentences of each class that has any."""
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
        found = [
            _sentences(rows, self.n_features_in_, f"counterfactual_text[{k!r}]") for k, rows in given.items()
        ]
        return tuple(rows for rows in found if rows is not None)

    def _validation(self, given: Any, missing_label: Any) -> Validation | None:
        if given is None:
            return None
        if not isinstance(given, (tuple, list)) or len(given) != 3:
            raise ParameterError(f"validation must be a triple (X, y, s); got {type(given).__name__}")
        X, y, s = given
        X = np.asarray(X, dtype=np.float64)
        if X.ndim != 2 or X.shape[1] != self.n_features_in_:
            raise ShapeError(
                f"validation rows must have shape (m, {self.n_features_in_}) as X has; got {X.shape}"
            )
        check_rows(X, "validation X", zero_is_error=False)
        target = encode(as_labels(y), missing_label=missing_label, classes=self.classes_)
        groups = encode_groups(s, missing_label, kind="categorical")
        if not len(X) == len(target.codes) == len(groups.codes):
            raise ShapeError("validation X, y and s must have as many rows each")
        known = ~target.missing & ~groups.missing
        if not known.any():
            raise LabelError("no validation row has both a target and a sensitive label")
        return Validation(np.asarray(unit_rows(X[known])), target.codes[known], groups.codes[known])

    def _learn(self, data: Training) -> None:
        raise NotImplementedError

    def scores(self, X: Any) -> F64:
        """Score of each class (n, c); the largest wins."""
        raise NotImplementedError

    def transform(self, X: Any) -> F64:
        """Image embeddings as the method sees them (n, …): at unit length, unless it changes them."""
        return self._rows(X)

    def decision_function(self, X: Any) -> F64:
        """Signed margin (n,) for two classes, scores (n, c) for more."""
        scores = self.scores(X)
        return np.asarray(scores[:, 1] - scores[:, 0]) if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Class labels (n,)."""
        best = self.scores(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the fitted model as a folder of numbers and JSON; see `fairerclip.baselines.file`."""
        from fairerclip.baselines.file import save_baseline

        return save_baseline(self, path, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a fitted model of this class from a folder that `save` wrote; runs no code from it."""
        from fairerclip.baselines.file import load_baseline

        return load_baseline(path, cls)

    def _rows(self, X: Any) -> F64:
        check_is_fitted(self, self.fitted)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        check_rows(X, "X", zero_is_error=False)
        return np.asarray(unit_rows(X) if self.normalize_ else X)


def _sentences(given: Any, width: int, name: str) -> F64 | None:
    """Embeddings of sentences (m, p) at unit length."""
    if given is None:
        return None
    rows = np.asarray(given, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != width or not len(rows):
        raise ShapeError(f"{name} must have shape (m, {width}), as wide as X; got {rows.shape}")
    check_rows(rows, name, zero_is_error=True)
    return np.asarray(unit_rows(rows))
