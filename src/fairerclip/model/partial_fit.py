"""`partial_fit`: a model from rows that come in batches, of which only sums and a sample are kept.

The closed form needs sums over rows, and sums are additive. They are kept for each part of the rows that has a weight
of its own (class, group, guessed or known), because weights that balance classes are known only after all rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state

from fairerclip._util.arrays import to_numpy
from fairerclip._util.checks import as_bytes
from fairerclip._util.types import F64, Floats, Ints
from fairerclip.data.embedding_rows import RowSummary
from fairerclip.errors import ParameterError, StateError, VanishedLabelWarning
from fairerclip.inputs.prompts import zero_shot
from fairerclip.inputs.sensitive import ResolvedSensitive, resolve_sensitive
from fairerclip.inputs.sensitive_columns import SensitiveColumn
from fairerclip.inputs.target import Guess, ResolvedTarget, known_labels, resolve_target
from fairerclip.inputs.weights import check_weights, class_factors
from fairerclip.model.attribute_maps import AttributeMaps
from fairerclip.model.automatic import start_values
from fairerclip.model.fit_data import check_label_columns, image_features, prompt_scores, text_prompts
from fairerclip.model.kept_fit import KeptFit
from fairerclip.model.parameters import check_parameters
from fairerclip.model.prepare import Prepared, draw_seed, training_rows
from fairerclip.solver.moments import MomentTable
from fairerclip.solver.problem import Problem
from fairerclip.solver.rows import FeatureRows, PassOptions, sums_budget
from fairerclip.solver.terms import LabelDesign, LabelMoments

SAMPLE_ROWS = 20_000
"""Rows that are kept, drawn evenly from all rows so far: the temperature of probabilities is fitted on them."""
ONLY_FIT: Mapping[str, tuple[Any, str]] = {
    "refine": (False, "guessed labels are refined in passes over all rows"),
    "alignment": ("linear", "the RBF kernel needs all rows"),
    "subsample": (None, "shares of the classes are known only after all rows"),
}
"""Parameters that need all rows at once → the value that does not, and why."""


@dataclass(eq=False)
class KeptSample:
    """Rows drawn evenly from all rows so far: those with the smallest of random keys."""

    keys: F64
    X: Floats
    """(m, p) as the features see them."""
    labels: LabelDesign
    weight: F64
    part: Ints

    def joined(self, other: KeptSample) -> KeptSample:
        """Return the sample of the rows of both."""
        keys = np.concatenate([self.keys, other.keys])
        kept = np.sort(np.argsort(keys, kind="stable")[:SAMPLE_ROWS])
        both = self.labels.joined(other.labels)
        return KeptSample(
            keys[kept],
            np.concatenate([self.X, other.X])[kept],
            both[kept],
            np.concatenate([self.weight, other.weight])[kept],
            np.concatenate([self.part, other.part])[kept],
        )


class BatchSums:
    """Sums over all rows so far; classes, values, prompts and features are those of the first call.

    Parameters
    ----------
    params : mapping
        Parameters of the estimator.
    text, sensitive_text : as in `FairerCLIP.fit`
        Prompts.
    classes : as in `FairerCLIP.fit`
        Classes in the order of ``text``.
    """

    def __init__(self, params: Mapping[str, Any], text: Any, sensitive_text: Any, classes: Any) -> None:
        for name, (value, reason) in ONLY_FIT.items():
            if params[name] != value:
                raise ParameterError(f"partial_fit needs {name}={value!r}: {reason}; use fit on all rows")
        self._params, self._text, self._sensitive_text, self._classes = params, text, sensitive_text, classes
        self.seed = draw_seed(params["random_state"])
        random_state = check_random_state(self.seed)
        self._feature_seed, self.alignment_seed = random_state.randint(
            np.iinfo(np.int32).max, size=2
        ).tolist()
        self._random_state = random_state
        self._draws = np.random.default_rng(self._feature_seed)
        self._begun = False
        self.rows: list[RowSummary] = []
        self.known = 0

    def add(self, X: Any, y: Any, sensitive_features: Any, sample_weight: Any, progress: Any) -> None:
        """Add the rows of one call."""
        params = self._params
        X, seen = training_rows(X, normalize=params["normalize"], prompted=True)
        weight = check_weights(sample_weight, X.shape[0])
        with warnings.catch_warnings():
            # A batch need not have every class.
            warnings.simplefilter("ignore", VanishedLabelWarning)
            target = self._target(X, y, weight)
            sensitive = resolve_sensitive(
                *(X, sensitive_features, self._sensitive_text, target),
                kind=params["sensitive_kind"],
                terms=params["sensitive_terms"],
                missing_label=params["missing_label"],
                keep_constant=True,
            )
        if not self._begun:
            self._begin(X, weight, target, sensitive)
        attributes = self._maps.attributes(sensitive.columns)
        orthogonal = sensitive if params["orthogonal"] else None
        scores = prompt_scores(X, target, orthogonal, params["n_components"])
        labels = LabelDesign(target.codes, len(target.classes), tuple(attributes), scores)
        guessed = np.zeros(len(target.codes), dtype=bool) if target.guess is None else target.guess.rows
        part = self._part_of(target.codes, sensitive.columns, guessed)
        how = PassOptions(as_bytes(params["memory_budget"]), progress)
        rows = FeatureRows(self.features, X, dtype=params["dtype"], budget=0)
        n_parts, D = len(self._label_moments), self.features.n_features
        start = partial(MomentTable, n_parts, D, labels.n_columns, shift=self._centre)
        self._table.merge(rows.sum_saved(start, [labels, weight, part], how, "", values=n_parts * D * D))
        for number in np.unique(part).tolist():
            at = np.flatnonzero((part == number) & (weight > 0))
            if len(at):
                own = LabelMoments.of(labels[at], weight[at]).scaled(float(weight[at].sum()))
                earlier = self._label_moments[number]
                self._label_moments[number] = own if earlier is None else earlier.plus(own)
        self._draw(X, labels, weight, part)
        self.rows.append(seen)
        self.known += int((~guessed).sum())

    def _target(self, X: Any, y: Any, weight: F64) -> ResolvedTarget:
        """Complete the labels of some rows; without prompts, by the class means of the first rows."""
        missing = self._params["missing_label"]
        if self._text is not None or not self._begun:
            return resolve_target(
                X, y, self._text, weight, classes=self._classes, missing_label=missing, learns=False
            )
        encoded, _ = known_labels(y, None, X.shape, classes=self.classes.tolist(), missing_label=missing)
        if not encoded.missing.any():
            return ResolvedTarget(encoded.codes, self.classes, self._prompts, None, has_text=False)
        predicted, margins = zero_shot(X, self._prompts, np.mean(np.concatenate(self._prompts), axis=0))
        codes = np.where(encoded.missing, predicted, encoded.codes)
        return ResolvedTarget(
            codes, self.classes, self._prompts, Guess(encoded.missing, margins), has_text=False
        )

    def _begin(self, X: Any, weight: F64, target: ResolvedTarget, sensitive: ResolvedSensitive) -> None:
        """Fix what later rows must share with these: features, classes and values."""
        params = self._params
        check_label_columns(target, sensitive.columns)
        self.features = image_features(X, weight, params, self._feature_seed)
        self._maps = AttributeMaps.of(sensitive.columns, weight, self._random_state)
        self.classes, self._prompts = target.classes, target.prompts
        self._sensitive_prompts = sensitive.prompts
        kernel, bandwidth = params["kernel"], params["bandwidth"]
        self.text_side = text_prompts(
            target, kernel, bandwidth, self._feature_seed, normalize=params["normalize"]
        )
        n_parts = 2 * (len(self.classes) * self._n_groups if params["class_weight"] is not None else 1)
        D = self.features.n_features
        needed, room = 8 * n_parts * D * D, sums_budget(as_bytes(params["memory_budget"]))
        if needed > room:
            raise ParameterError(
                f"sums of {n_parts} parts of the rows (class × group × known or guessed) with {D} features take "
                f"{needed:,} bytes, more than {room:,}: lower n_features, raise memory_budget, or set class_weight=None"
            )
        columns = len(self.classes) * (1 + self._maps.width) + (len(self.classes) if target.has_text else 0)
        self._centre = FeatureRows(self.features, X, dtype=params["dtype"], budget=0).centre()
        self._table = MomentTable(n_parts, D, columns, shift=self._centre)
        self._label_moments: list[LabelMoments | None] = [None] * n_parts
        self._sample: KeptSample | None = None
        self._begun = True

    @property
    def normalize(self) -> bool:
        """Whether rows and prompts are scaled to unit length, as in the first call."""
        return bool(self._params["normalize"])

    @property
    def has_text(self) -> bool:
        """Whether prompts were given."""
        return self._text is not None

    @property
    def _n_groups(self) -> int:
        """Number of combinations of sensitive values that have weights of their own."""
        return self._maps.n_groups if self._params["class_weight"] == "group" else 1

    def _part_of(self, y: Ints, columns: Sequence[SensitiveColumn], guessed: Any) -> Ints:
        """Return the number (n,) of the part of each row."""
        if self._params["class_weight"] is None:
            return np.asarray(guessed, dtype=np.int64)
        groups = self._maps.groups(columns) if self._n_groups > 1 else 0
        return np.asarray((y.astype(np.int64) * self._n_groups + groups) * 2 + guessed)

    def _draw(self, X: Any, labels: LabelDesign, weight: F64, part: Ints) -> None:
        keys = np.where(weight > 0, self._draws.random(len(part)), np.inf)
        kept = np.sort(np.argsort(keys, kind="stable")[:SAMPLE_ROWS])
        kept = kept[np.isfinite(keys[kept])]
        dtype = np.dtype(self._params["dtype"])
        drawn = KeptSample(
            keys[kept], to_numpy(X[kept]).astype(dtype, copy=False), labels[kept], weight[kept], part[kept]
        )
        self._sample = drawn if self._sample is None else self._sample.joined(drawn)

    def _factors(self, guess_weight: float) -> F64:
        """Return the factor (parts,) of the weights of the rows of each part, as `inputs.weights` weighs rows."""
        class_weight = self._params["class_weight"]
        total = self._table.weight.copy()
        factors = np.ones(len(total))
        if self.known:
            factors[1::2] = guess_weight
        if class_weight is None:
            return factors
        cells = (total * factors).reshape(len(self.classes), self._n_groups, 2)
        if isinstance(class_weight, Mapping):
            return np.asarray(
                factors * np.repeat(class_factors(class_weight, self.classes), 2 * self._n_groups)
            )
        if class_weight == "group" and not self._maps.n_groups > 1:
            raise ParameterError("class_weight='group' needs a categorical sensitive attribute")
        # Every class, or every class × group, has the same total weight.
        sums = np.broadcast_to(cells.sum(axis=2, keepdims=True), cells.shape).ravel()
        return np.asarray(np.divide(factors, sums, out=np.zeros_like(factors), where=sums > 0))

    def prepare(self, params: Mapping[str, Any]) -> Prepared:
        """Factor C of all rows so far; ``params`` have no "auto"."""
        sample = self._sample
        if sample is None:
            raise StateError("no rows have been added")
        factors = self._factors(float(params["guess_weight"]))
        (moments,) = self._table.combine([factors])
        own = [m.scaled(f / moments.weight) for m, f in zip(self._label_moments, factors, strict=True) if m]
        table = reduce(LabelMoments.plus, own)
        problem = Problem(
            FeatureRows(self.features, sample.X, dtype=params["dtype"]),
            sample.weight * factors[sample.part],
            sample.labels.attributes,
            self.text_side,
            sample.labels.y,
            gamma=float(params["gamma"]),
            gamma_text=float(params["gamma_text"]),
            solver="cholesky",
            random_state=self._random_state,
            scores=sample.labels.scores,
            moments=moments,
            table=table,
            n_rows=sum(part.rows for part in self.rows),
        )
        class_weight = params["class_weight"]
        mapped = isinstance(class_weight, Mapping)
        return Prepared(
            *(
                problem,
                np.arange(len(sample.keys)),
                sample.labels.y,
                sample.part % 2 == 1,
                self.alignment_seed,
            ),
            gamma=float(params["gamma"]),
            guess_weight=float(params["guess_weight"]),
            class_factors=class_factors(class_weight, self.classes) if mapped else None,
            target=ResolvedTarget(sample.labels.y, self.classes, self._prompts, None, has_text=self.has_text),
            sensitive=ResolvedSensitive([], {}, {}, self._sensitive_prompts),
        )


class BatchFit(KeptFit):
    """An estimator that can be fitted on rows that come in batches."""

    _batches: BatchSums | None = None

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sensitive_features: Any = None,
        text: Any = None,
        sensitive_text: Any = None,
        sample_weight: Any = None,
        classes: Any = None,
        progress: Any = None,
    ) -> Self:
        """Add rows to the model: those of all calls give the same model as `fit` on them, but for what is "auto".

        The first call fixes the prompts, the classes, the values of the sensitive attributes, and the features, whose
        bandwidth it takes from its rows; so its rows should be like the others and have every sensitive value that has
        no prompt. Parameters that are "auto" keep the values that a fit starts from, and no offsets are learned,
        because a choice by cross-validation needs all rows (docs/explanation/choosing.md#auto). Without ``text`` the
        class means of the first rows, which must have every class, take the place of prompts. Of the rows, sums and a
        sample of 20,000 are kept: O(parts·D²) memory, with a part for each class (each class × group with
        ``class_weight="group"``). Guessed labels are not kept, so ``pseudo_labels_`` is None. The model answers once
        two classes have rows.

        Parameters
        ----------
        X, y, sensitive_features, sample_weight, progress
            As in `fit`.
        text, sensitive_text, classes
            As in `fit`; given in the first call, and not in later ones.
        """
        params = self.get_params(deep=False)  # type: ignore[attr-defined]
        check_parameters(params)
        first = self._batches is None
        if first and hasattr(self, "fitted_"):
            raise StateError(
                "the sums of this model were not kept (it was fitted by fit, loaded or unpickled): begin with "
                "partial_fit"
            )
        if not first and not (text is None and sensitive_text is None and classes is None):
            raise ParameterError(
                "text, sensitive_text and classes are given in the first call of partial_fit only"
            )
        X = self._validated(X, reset=not hasattr(self, "fitted_"))  # type: ignore[attr-defined]
        sums = BatchSums(params, text, sensitive_text, classes) if self._batches is None else self._batches
        sums.add(X, y, sensitive_features, sample_weight, progress)
        own = start_values(params, sums.known / sum(part.rows for part in sums.rows))
        own["normalize"] = sums.normalize
        if not sums.has_text:
            own["zero_shot"] = 0.0
        prepared = sums.prepare(own)
        self._batches = sums
        if prepared.n_present < 2:
            return self
        self._solve(prepared, RowSummary.joined(sums.rows), prepared.adjustment(), own)
        self.missing_label_, self.seed_ = params["missing_label"], sums.seed
        return self
