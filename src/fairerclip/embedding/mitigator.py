"""`EmbeddingMitigator`: embeddings in, embeddings of the same space and width out, for rankings by any query."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from fairerclip._util.arrays import as_numbers
from fairerclip._util.checks import LARGEST, as_bytes, check_choice, check_interval
from fairerclip._util.types import F64
from fairerclip.data.embedding_rows import check_directions, check_rows, fill_checked, summarise_rows
from fairerclip.data.given_rows import given_rows
from fairerclip.data.row_pass import Progress
from fairerclip.embedding.attributes import read_given
from fairerclip.embedding.collection_drift import CollectionDrift, CollectionSummary, compare_collections
from fairerclip.embedding.fitted_map import FittedMap
from fairerclip.embedding.query_meaning import QueryMeaning, check_queries, meaning_of, warn_of_sensitive
from fairerclip.embedding.strength_path import StrengthPath, solve_strengths
from fairerclip.embedding.sums import begin_sums
from fairerclip.errors import ParameterError, ShapeError, StateError
from fairerclip.model.details import forget_details
from fairerclip.model.fitted import Ranking
from fairerclip.model.parameters import SMALLEST_RIDGE
from fairerclip.model.saving import SavedModel
from fairerclip.solver.rows import PassOptions

STRENGTH = 0.93
"""Default strength: a little below 1, which keeps more of the order inside groups at little skew."""


class EmbeddingMitigator(OneToOneFeatureMixin, TransformerMixin, SavedModel, BaseEstimator):
    """Map of embeddings into their own space, after which any query depends less on the sensitive attributes.

    For every query q the score q·x is replaced by the affine function closest to it whose dependence on S is penalised.
    It is linear in q, so one affine map of the image embeddings serves all queries; text embeddings stay as they are.
    It mitigates the dependence on S; it does not make S unreadable.

    Parameters
    ----------
    strength : float or mapping from attribute to float, default=0.93
        Strength of the mitigation from 0, which changes nothing, to 1, after which the scores of every query are
        uncorrelated with S on the rows of the fit.
    unit : bool, default=False
        Scale the mapped rows to unit length. Indexes of cosines need it; it costs a little skew and order.
    gamma : float, default=1e-4
        Ridge on the change of a score.
    about : float or None, default=0.4
        Share of a query in the span of the sensitive prompts from which `scores` and `rank` leave it unmitigated: "a
        photo of a woman" asks for S. None mitigates every query.
    sensitive_terms : {"each", "intersection"}
        Mitigate each attribute, or the combinations of their values.
    sensitive_kind : {"auto", "categorical", "continuous"}
        Kind of the attributes; "auto" takes floats with non-integer values for quantities.
    missing_label : object
        Label of an unknown sensitive value, besides None and NaN.
    memory_budget : int, str or None
        Memory for sums besides the rows and labels, in bytes or as "1GB"; None counts with what is free. It limits the
        number of threads of a fit, each of which has sums of its own, and changes the last digits.

    Attributes
    ----------
    fitted_ : FittedMap
        The map, and sums over the rows of the fit; nothing about a single row.
    n_features_in_ : int
        Width p of the embeddings.
    diagnostics_ : dict
        For each attribute: what its values were read from, and the share of the dependence that is left.

    Notes
    -----
    docs/math.md#same-space has the derivation. A(x) = x − M(Δ + MᵀC⁻¹M)⁻¹MᵀC⁻¹(x − x̄) with the covariance C of x and
    the covariances M of x with the labels of S. With strength 1 and γ → 0 it is least-squares concept erasure (LEACE).
    O(n·p²) time in one pass over the rows, O(p²) memory.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> s = rng.integers(2, size=400)
    >>> X = rng.normal(size=(400, 8)) + np.outer(2 * s - 1, np.eye(8)[0])
    >>> fairer = EmbeddingMitigator(strength=1).fit(X, sensitive_features=s)
    >>> Z = fairer.transform(X)
    >>> bool(abs(Z[s == 0].mean(axis=0) - Z[s == 1].mean(axis=0)).max() < 1e-3)
    True
    """

    def __init__(
        self,
        strength: Any = STRENGTH,
        *,
        unit: bool = False,
        gamma: float = 1e-4,
        about: float | None = 0.4,
        sensitive_terms: str = "each",
        sensitive_kind: str = "auto",
        missing_label: Any = None,
        memory_budget: int | str | None = None,
    ) -> None:
        self.strength, self.unit = strength, unit
        self.gamma, self.about = gamma, about
        self.sensitive_terms, self.sensitive_kind = sensitive_terms, sensitive_kind
        self.missing_label, self.memory_budget = missing_label, memory_budget

    # Fitting ------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sensitive_features: Any = None,
        sensitive_text: Any = None,
        labelled: Any = None,
        sample_weight: Any = None,
        progress: Progress | None = None,
    ) -> Self:
        """Learn the map from rows, by blocks: one pass checks them, and one adds them.

        Parameters
        ----------
        X : array, data frame, tensor, memory map or EmbeddingStore of shape (n, p)
            Image embeddings, best of the collection that will be searched.
        y : None
            Ignored.
        sensitive_features : array of shape (n,) or (n, a), mapping from name to (n,), or SoftValues, optional
            Sensitive values; unknown ones are read from the prompts, the known rows and ``labelled``.
        sensitive_text : mapping from value to prompts, or prompts (v, p), optional
            Prompts of the sensitive values, as in `FairerCLIP.fit`.
        labelled : pair of arrays (m, p) and (m,), optional
            A few rows with known sensitive values, which need not be among X; several attributes as in
            ``sensitive_features``.
        sample_weight : array of shape (n,), optional
            Row weights in the map. Sensitive values are read from all rows alike.
        progress : callable, optional
            Called with the numbers of rows done and of all rows, in each of the two passes.
        """
        given = (sensitive_features, sensitive_text, labelled)
        return self._add(X, given, sample_weight, progress, reset=True)

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sensitive_features: Any = None,
        sensitive_text: Any = None,
        labelled: Any = None,
        sample_weight: Any = None,
        progress: Progress | None = None,
    ) -> Self:
        """Add rows to the sums and update the map.

        The first call learns how S is read, from its rows, prompts and labelled rows; later calls take rows and, where
        they are known, sensitive values. Unlike `fit` on all rows at once, a reader of S therefore sees the first rows
        only, and there is none where the first call knew all values: later ones must give them, too.
        """
        first = not hasattr(self, "_sums")
        if first and hasattr(self, "fitted_"):
            raise StateError("a loaded mitigator has no sums of its rows, so none can be added; fit again")
        if not first and (sensitive_text is not None or labelled is not None):
            raise ParameterError(
                "sensitive_text and labelled are taken by the first call of partial_fit only"
            )
        given = (sensitive_features, sensitive_text, labelled)
        return self._add(X, given, sample_weight, progress, reset=first)

    def _add(self, X: Any, given: Any, weight: Any, progress: Any, *, reset: bool) -> Self:
        self._check_parameters()
        X = self._validated(X, reset=reset)
        if reset:
            check_directions(X)
        rows = summarise_rows(X, "X", zero_is_error=True, progress=progress)
        known = read_given(X.shape, *given, kind=self.sensitive_kind, missing_label=self.missing_label)
        if reset:
            self._sums = begin_sums(X, known, crossed=self.sensitive_terms == "intersection")
        how = PassOptions(as_bytes(self.memory_budget), progress)
        self._sums.add(X, known, weight, rows, how)
        self._factored = self._sums.factor(self.gamma)
        return self._set_strength()

    def _set_strength(self) -> Self:
        sums, factored = self._sums, self._factored
        strengths = self._strengths([a.name for a in sums.attributes])
        remaining = factored.space.remaining(strengths)
        forget_details(self)
        self.fitted_ = FittedMap(
            factored.space.at(strengths),
            tuple(sums.attributes),
            tuple(strengths),
            tuple(remaining),
            factored.summary,
        )
        self.diagnostics_ = {
            "attributes": {a.name: dict(a.record) for a in sums.attributes},
            "remaining": dict(zip(sums.terms, remaining, strict=True)),
            "rows": factored.summary.rows.rows,
        }
        return self

    def at(self, strength: Any) -> EmbeddingMitigator:
        """Return a fitted copy with another strength, from the same factorisation."""
        if not hasattr(self, "_sums"):
            raise StateError(
                "a loaded mitigator has one strength only; fit again, or choose the strength before saving"
            )
        own = self.get_params(deep=False)
        other = type(self)(**{**own, "strength": strength})
        other._check_parameters()
        other.__dict__.update({name: value for name, value in vars(self).items() if name not in own})
        other._sums = self._sums.copy()  # rows that are added to one of them are not added to the other
        return other._set_strength()

    def path(
        self,
        X: Any,
        queries: Any,
        groups: Any,
        *,
        strengths: Any = None,
        k: int | None = None,
        confidence: float = 0.95,
        progress: Any = None,
    ) -> StrengthPath:
        """Measure skew and rank correlation of the rankings by some queries, at every strength.

        Parameters
        ----------
        X : array of shape (n, p)
            Gallery with known groups, best not the rows of the fit.
        queries : array of shape (m, p)
            Embeddings of the queries. Those that are about S (``about``) are left out.
        groups : array of shape (n,)
            Sensitive value of each row.
        strengths : list of float, optional
            Default: 0 to 1 in steps of 0.1, with more of them near 1.
        k : int, optional
            Number of results of a search. Default: 1000, or a quarter of the rows.
        confidence : float
            Level of the intervals.
        progress : callable, optional
            Called after each strength with (done, total).
        """
        check_is_fitted(self)
        queries = check_queries(queries, self.n_features_in_)
        asked = self.query_meaning(queries).mitigated
        if not asked.any():
            raise ParameterError(
                "every query is about a sensitive attribute, so none is mitigated; set about=None"
            )
        X = self._validated(X)
        check_rows(X, "X", zero_is_error=False, depth=3)
        return solve_strengths(
            self,
            X,
            queries[asked],
            groups,
            strengths=strengths,
            k=k,
            confidence=confidence,
            progress=progress,
        )

    # Answers ------------------------------------------------------------------------------------

    def transform(self, X: Any) -> Any:
        """Map embeddings (n, p) into the same space (n, p), in blocks; float16, float32 and tensors keep their type.

        Rows are scaled to unit length first, and the result is scaled to unit length only with ``unit=True``.
        """
        check_is_fitted(self)
        X = self._validated(X)
        return self.fitted_.map.transform(X, unit=self.unit, name="X", depth=4)

    def scores(self, X: Any, queries: Any) -> F64:
        """Compute the scores (n, m) of rows for queries (m, p): q·A(x), or q·x for queries that are about S."""
        check_is_fitted(self)
        Q = check_queries(queries, self.n_features_in_)
        meaning = self.query_meaning(Q)
        warn_of_sensitive(meaning)
        X = self._validated(X)
        function = partial(self.fitted_.map.scores, Q, mitigated=meaning.mitigated, unit=self.unit)
        scores = np.empty((int(X.shape[0]), len(Q)))
        fill_checked(X, "X", function, scores, unit=True, depth=3)
        return scores

    def rank(self, query: Any, X: Any, k: int | None = None) -> Ranking:
        """Rank the rows of X by one query (p,), best first; one that is about S ranks by the original embeddings."""
        Q = as_numbers(query, "query")
        scores = self.scores(X, Q[None] if Q.ndim == 1 else Q)
        if scores.shape[1] != 1:
            raise ShapeError(f"rank takes one query of shape ({self.n_features_in_},); got {Q.shape}")
        order = np.argsort(-scores[:, 0], kind="stable")
        if k is not None and not 1 <= k <= len(order):
            raise ParameterError(f"k must be between 1 and {len(order)}, the number of rows; got {k}")
        return Ranking(order[:k], scores[order[:k], 0])

    def query_meaning(self, queries: Any) -> QueryMeaning:
        """Return how far each query (m, p) lies in the span of the sensitive prompts, and which are mitigated."""
        check_is_fitted(self)
        Q = check_queries(queries, self.n_features_in_)
        prompts = {a.name: a.prompts for a in self.fitted_.attributes if a.prompts is not None}
        return meaning_of(Q, prompts, self.about)

    def drift(self, X: Any) -> CollectionDrift:
        """Compare rows with those of the fit: means, covariance, and the shares of the sensitive values. O(n·p²)."""
        check_is_fitted(self)
        X = self._validated(X)
        rows = summarise_rows(X, "X", zero_is_error=False, depth=3)
        return compare_collections(self.fitted_, CollectionSummary.of(X, rows, self.fitted_.attributes))

    # Checks -------------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        check_choice("unit", self.unit, (True, False))
        check_choice("sensitive_terms", self.sensitive_terms, ("each", "intersection"))
        check_choice("sensitive_kind", self.sensitive_kind, ("auto", "categorical", "continuous"))
        check_interval("gamma", self.gamma, SMALLEST_RIDGE, LARGEST, "[]")
        as_bytes(self.memory_budget)
        if self.about is not None:
            check_interval("about", self.about, 0, 1, "[]", " or None")
        values = self.strength.values() if isinstance(self.strength, Mapping) else [self.strength]
        for value in values:
            check_interval("strength", value, 0, 1, "[]")

    def _strengths(self, names: list[str]) -> list[float]:
        """Return the strength of each term."""
        if not isinstance(self.strength, Mapping):
            return [float(self.strength)] * len(self._sums.terms)
        if self.sensitive_terms == "intersection":
            raise ParameterError("an intersection is one term: give one strength, not a mapping")
        unknown = [name for name in self.strength if name not in names]
        if unknown or set(self.strength) != set(names):
            raise ParameterError(f"strength must name the attributes {names}; got {list(self.strength)}")
        return [float(self.strength[name]) for name in names]

    def _validated(self, X: Any, *, reset: bool = False) -> Any:
        kept = np.float16 if getattr(X, "dtype", None) == np.float16 else "numeric"
        return given_rows(self, X, reset=reset, dtype=kept)

    def __getstate__(self) -> dict[str, Any]:
        hidden = ("_sums", "_factored")  # sums of the rows of the fit are not part of the model
        return {name: value for name, value in super().__getstate__().items() if name not in hidden}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32", "float16"]
        return tags
