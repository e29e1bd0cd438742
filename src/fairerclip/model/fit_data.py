"""`FitData`: what a fit knows of its rows before row weights by class, γ and the free parameters are set.

Features, sensitive attributes and zero-shot scores are the same for every row weight, γ, τ and share. So several fits
of one set of rows, and the fits of a cross-validation, share them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.arrays import SINGLE, in_memory, type_name
from fairerclip._util.types import F64, Floats, Ints
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.errors import LabelError
from fairerclip.features import FeatureMap, make_features
from fairerclip.features.feature_map import check_n_features
from fairerclip.inputs.encode import occurring
from fairerclip.inputs.prompts import prototypes, without_span, zero_shot_scores
from fairerclip.inputs.sensitive import ResolvedSensitive
from fairerclip.inputs.sensitive_columns import SensitiveColumn
from fairerclip.inputs.target import ResolvedTarget
from fairerclip.inputs.weights import class_factors, draw_weights, weigh_classes
from fairerclip.model.prepare import Prepared
from fairerclip.solver.moments import MomentResult
from fairerclip.solver.problem import Problem, Prompts
from fairerclip.solver.rows import FeatureRows, PassOptions, kept_bytes
from fairerclip.solver.solver_choice import solver_for
from fairerclip.solver.terms import Attribute, LabelDesign, OneHot

FEATURE_FIT_ROWS, BANDWIDTH_ROWS = 20_000, 1000
"""Rows that a feature map is fitted on (landmarks, scale): a seeded sample beyond this, which has fewer rows where only
a bandwidth comes from it."""
MAX_LABEL_COLUMNS = 6000
"""Largest number of label columns, classes × (1 + sensitive values) plus zero-shot scores: about 2 GB."""
CONTINUOUS_LANDMARKS = 20
"""Nyström landmarks of a continuous attribute: an RBF kernel of one variable has low rank."""
EXACT_PROMPTS = 5000
"""The text kernel is exact up to this number of prompts, and a Nyström approximation beyond."""


@dataclass(frozen=True, eq=False)
class FitData:
    """Rows that take part in a fit, with their features, labels, sensitive attributes and zero-shot scores."""

    X: Any
    """(n, p) all rows."""
    target: ResolvedTarget
    sensitive: ResolvedSensitive
    params: Mapping[str, Any]
    """Parameters of the estimator."""
    weight: F64
    """(n,) sample weights; 0 for rows that sub-sampling left out."""
    chosen: Ints
    """(m,) numbers of the rows that take part."""
    rows: FeatureRows
    """Features of these rows."""
    attributes: tuple[Attribute, ...]
    """ψ(s) of these rows."""
    scores: Floats | None
    """(m, c) their zero-shot scores; None without prompts."""
    feature_seed: int
    alignment_seed: int
    random_state: np.random.RandomState
    how: PassOptions
    """Memory and progress of passes over the features."""

    @classmethod
    def of(
        cls,
        X: Any,
        target: ResolvedTarget,
        sensitive: ResolvedSensitive,
        params: Mapping[str, Any],
        sample_weight: F64,
        how: PassOptions,
    ) -> FitData:
        """Draw the rows that take part, and fit the feature map; neither uses weights by class or group."""
        check_label_columns(target, sensitive.columns)
        random_state = params["random_state"]
        feature_seed, alignment_seed = random_state.randint(np.iinfo(np.int32).max, size=2).tolist()
        weight = draw_weights(target.codes, target.classes, sample_weight, params["subsample"], random_state)
        weighted, class_weight = weight, params["class_weight"]
        # Weights by class are the same as sample weights; a class of weight zero takes no part.
        if isinstance(class_weight, Mapping):
            weighted = weigh_classes(class_weight, target.codes, sensitive.groups, target.classes, weight)
            weight = np.where(weighted > 0, weight, 0.0)
        features = image_features(X, weighted, params, feature_seed)
        check_n_features(features.n_features)  # the number of linear features is the width of the rows
        chosen = np.flatnonzero(weight > 0)
        everything = len(chosen) == X.shape[0]
        orthogonal = sensitive if params["orthogonal"] else None
        scores = prompt_scores(X, target, orthogonal, params["n_components"])
        return cls(
            *(X, target, sensitive, params, weight, chosen),
            rows=FeatureRows(
                *(features, X),
                rows=None if everything else chosen,
                dtype=params["dtype"],
                budget=kept_bytes(how.memory_budget),
            ),
            attributes=tuple(
                a if everything else a.taken(chosen)
                for a in sensitive_attributes(sensitive.columns, weighted, random_state)
            ),
            scores=scores if scores is None or everything else scores[chosen],
            feature_seed=feature_seed,
            alignment_seed=alignment_seed,
            random_state=random_state,
            how=how,
        )

    @cached_property
    def y(self) -> Ints:
        """(m,) class codes of the rows that take part, known and guessed."""
        return np.asarray(self._part(self.target.codes))

    def _part(self, column: Any) -> Any:
        """Return the entries (m,) of a column (n,) for the rows that take part, without a copy where all do."""
        return column if len(self.chosen) == len(column) else column[self.chosen]

    @cached_property
    def groups(self) -> Ints | None:
        """(m,) codes of the joint categorical sensitive values of these rows; None if there are none."""
        groups = self.sensitive.groups
        return None if groups is None else self._part(groups)

    @cached_property
    def prompts(self) -> Prompts:
        """The text side of the target on all rows."""
        return self._text_side(self.target)

    def _text_side(self, target: ResolvedTarget) -> Prompts:
        kernel, bandwidth = self.params["kernel"], self.params["bandwidth"]
        return text_prompts(target, kernel, bandwidth, self.feature_seed, normalize=self.params["normalize"])

    def design(self) -> LabelDesign:
        """Return the label columns of these rows."""
        return LabelDesign(self.y, len(self.target.classes), self.attributes, self.scores)

    @cached_property
    def guessed(self) -> NDArray[np.bool_] | None:
        """(m,) whether the label of a row is a guess; None if all are known."""
        return None if self.target.guess is None else self._part(self.target.guess.rows)

    @property
    def known(self) -> NDArray[np.bool_]:
        """(m,) whether the label of a row was given."""
        return np.ones(len(self.y), dtype=bool) if self.guessed is None else ~self.guessed

    @property
    def known_share(self) -> float:
        """Share of the rows whose label was given."""
        return float(self.known.mean())

    def weigh(
        self, class_weight: Any, places: Ints | slice, guess_weight: float = 1.0, y: Ints | None = None
    ) -> F64:
        """Return the weights of some of these rows, by their places, in a fit on them alone.

        ``guess_weight`` multiplies the weights of rows whose label is a guess, before classes are balanced; it has no
        effect if all labels are guesses. ``y`` are the classes of these rows, if the fit on them guesses other labels
        than the fit on all rows.
        """
        groups, weight = self.groups, self._part(self.weight)[places]
        if guess_weight != 1 and self.guessed is not None and not self.guessed.all():
            weight = np.where(self.guessed[places], guess_weight * weight, weight)
        return weigh_classes(
            class_weight,
            self.y[places] if y is None else y,
            None if groups is None else groups[places],
            self.target.classes,
            weight,
        )

    def project(self, rows: Ints, mean: F64, basis: F64) -> F64:
        """Return (Φ − mean) @ basis (m, q) of rows of X by their numbers, in rising order."""
        places = np.searchsorted(self.chosen, rows)
        found = self.chosen[np.minimum(places, len(self.chosen) - 1)]
        if np.array_equal(found, rows):
            return self.rows.project_some(places, mean, basis)
        # Some take no part in the fit: their features are not kept.
        return self.project_new(self.X[rows], mean, basis)

    def project_new(self, X: Any, mean: F64, basis: F64) -> F64:
        """Return (Φ − mean) @ basis (m, q) of other rows X (m, p), prepared as those of the fit."""
        return FeatureRows(self.rows.features, X, dtype=self.rows.dtype.name, budget=0).project(mean, basis)

    def more_rows(self, X: Any, rows: Ints | None = None) -> FeatureRows:
        """Return the features of other rows X (m, p), or of some of them, kept if the memory budget allows it."""
        budget = kept_bytes(self.how.memory_budget)
        return FeatureRows(self.rows.features, X, rows=rows, dtype=self.rows.dtype.name, budget=budget)

    def prepare(
        self,
        class_weight: Any,
        gamma: float,
        *,
        guess_weight: float = 1.0,
        places: Ints | None = None,
        moments: MomentResult | None = None,
        once: bool = False,
    ) -> Prepared:
        """Weight the rows and factor C; O(n·D²) unless ``moments`` are given, and O(D³/3).

        Parameters
        ----------
        class_weight : None, "balanced", "group" or mapping
            Weights of the rows.
        gamma : float
            Ridge.
        guess_weight : float
            Weight of a row whose label is a guess, relative to one whose label is known.
        places : int array, optional
            Fit on these of the rows alone, by their places among the m, in rising order.
        moments : MomentResult, optional
            Moments of these rows with these weights, if known.
        once : bool
            Whether there will be no other fit on these features, so that the sums need not keep them.
        """
        params, everything = self.params, places is None
        at = slice(None) if places is None else places
        chosen = self.chosen[at]
        target = self.target if everything else self.target.of_rows(self.X, chosen, self.weight)
        codes = self._part(target.codes)[at]
        weight = self.weigh(class_weight, at, guess_weight, codes)
        rows = self.rows if places is None else self.rows.part(places, kept_bytes(self.how.memory_budget))
        problem = Problem(
            rows,
            weight,
            self.attributes if everything else tuple(a.taken(at) for a in self.attributes),
            self.prompts if target is self.target else self._text_side(target),
            codes,
            gamma=float(gamma),  # NumPy before 2 cannot add a whole number beyond 64 bits to an array
            gamma_text=float(params["gamma_text"]),
            solver=solver_for(params["solver"], rows, self.X.shape[1], gamma=float(gamma)),
            random_state=self.random_state,
            scores=None if self.scores is None else self.scores[at],
            moments=moments,
            keeps=not once or (params["refine"] and target.guess is not None),
            how=self.how,
        )
        guess = target.guess
        free = np.zeros(len(chosen), dtype=bool) if guess is None else self._part(guess.rows)[at]
        by_class = isinstance(class_weight, Mapping)
        return Prepared(
            *(problem, chosen, codes, free, self.alignment_seed),
            gamma=float(gamma),
            guess_weight=float(guess_weight),
            class_factors=class_factors(class_weight, target.classes) if by_class else None,
            target=target,
            sensitive=self.sensitive,
        )


def sensitive_attributes(
    columns: Sequence[SensitiveColumn], weight: F64, random_state: np.random.RandomState
) -> list[Attribute]:
    """Return ψ(s) of each attribute: one-hot or probabilities of its values, RBF features of a quantity.

    Values that no row has are left out.
    """
    out = []
    for column in columns:
        # The other terms are called y and z, which an attribute may be, too.
        name = column.name if column.name == "s" else f"s:{column.name}"
        psi: Any = column.soft
        if psi is None and column.codes is not None:
            present, codes = occurring(column.codes)
            psi = OneHot(codes, len(present))
        elif psi is None and column.values is not None:
            values = column.values[:, None]
            features = make_features(
                *("nystroem", values),
                n_features=CONTINUOUS_LANDMARKS,
                bandwidth="median",
                sample_weight=weight,
                random_state=random_state,
            )
            psi = np.asarray(features.transform(values), dtype=np.float64)
        out.append(Attribute(name, psi))
    return out


def text_prompts(
    target: ResolvedTarget, kernel: str, bandwidth: float | str, seed: int, *, normalize: bool
) -> Prompts:
    """Return the features of the prompts: exact for up to 5000 prompts, because they are few."""
    T = np.concatenate(target.prompts)
    T = np.asarray(unit_rows(T)) if normalize and target.has_text else T  # class means are not embeddings
    class_of = np.repeat(np.arange(len(target.prompts)), [len(p) for p in target.prompts])
    if kernel != "linear":
        kernel = "exact" if len(T) <= EXACT_PROMPTS else "nystroem"
    features = make_features(
        kernel, T, n_features=min(len(T), EXACT_PROMPTS), bandwidth=bandwidth, random_state=seed
    )
    return Prompts(
        features, np.asarray(features.transform(T), dtype=np.float64), class_of, len(target.classes)
    )


def image_features(X: Any, weight: F64, params: Mapping[str, Any], seed: int) -> FeatureMap:
    """Fit the image side's feature map on the rows with weight, or a seeded sample of them.

    Frequencies are kept in float32 where the fit uses them in float32 only.
    """
    kernel = params["kernel"]
    rows = np.flatnonzero(weight > 0)
    if len(rows) > FEATURE_FIT_ROWS:
        count = min(FEATURE_FIT_ROWS, BANDWIDTH_ROWS) if kernel in ("rbf", "orthogonal") else FEATURE_FIT_ROWS
        rows = np.sort(np.random.RandomState(seed).choice(rows, count, replace=False))
    sample = X if len(rows) == len(weight) else X[rows]
    return make_features(
        kernel,
        in_memory(sample),
        n_features=params["n_features"],
        bandwidth=params["bandwidth"],
        sample_weight=weight[rows],
        random_state=np.random.default_rng(seed),  # draws Ω three times faster than a RandomState
        single=params["dtype"] == "float32" and type_name(X.dtype) in SINGLE,
    )


def check_label_columns(target: ResolvedTarget, columns: Sequence[SensitiveColumn]) -> None:
    """Raise for more classes and sensitive values than the moments can hold in memory."""
    values = sum(CONTINUOUS_LANDMARKS if a.categories is None else len(a.categories) for a in columns)
    c = len(target.classes)
    width = c * (1 + values) + (c if target.has_text else 0)
    if width > MAX_LABEL_COLUMNS:
        raise LabelError(
            f"{c:,} classes and {values:,} sensitive values make {width:,} label columns, more than "
            f"{MAX_LABEL_COLUMNS:,}: fit on fewer classes, or join values"
        )


def prompt_scores(
    X: Any, target: ResolvedTarget, sensitive: ResolvedSensitive | None, n_components: int | None
) -> NDArray[np.floating] | None:
    """Return zero-shot scores (n, c), or None without prompts.

    With ``sensitive``, class prompts are projected onto the orthogonal complement of its prompts. Scores are centred
    where the space has fewer dimensions than classes, because only differences between classes can be kept then.
    """
    if not target.has_text:
        return None
    centred = n_components is None or n_components < len(target.classes)
    T = prototypes(target.prompts)
    if sensitive is not None and sensitive.prompts:
        T = prototypes([row[None, :] for row in without_span(T, prototypes(sensitive.all_prompts))])
    return zero_shot_scores(X, T, centred=centred)
