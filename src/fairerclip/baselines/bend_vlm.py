"""BendVLM: each query is projected off its sensitive directions and made equally similar to images of each value."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.checks import check_count
from fairerclip._util.types import F64, Ints
from fairerclip.baselines.gradient.recipes import seed_of
from fairerclip.baselines.heads import (
    CosineHead,
    class_prompts,
    differences,
    sensitive_codes,
    sensitive_values,
)
from fairerclip.baselines.orth_proj import project, span
from fairerclip.baselines.sentences import compose_pairs
from fairerclip.baselines.training_data import Needs, Training, unit_prompts
from fairerclip.errors import PromptError

NEIGHBOURS = {"few": 100, "many": 10}
"""Published numbers of reference images of a value: for sex, and for the seven values of race."""


class BendVLM(CosineHead):
    """Zero-shot classifier with every query bent away from S: by prompts first, then by reference images of each value.

    Needs class prompts, and sensitive values of the images: true values, or prompts to predict them from. The first
    step needs prompts of the values and is left out without them. It uses no labels and no gradient, changes no
    image, and ranks by any query.

    Parameters
    ----------
    neighbours : int, optional
        Number of reference images of each value, the nearest ones of a projected query, whose mean counts; by default
        100 for two values and 10 for more, as published. All are used if a value has fewer.
    max_reference : int, default=1000
        Most reference images of each value, drawn at random from the training rows.
    random_state : int, RandomState or None
        Source of the drawn images.

    Attributes
    ----------
    reference_, reference_groups_ : array of shape (m, p) and (m,)
        **Embeddings of training images**, in single precision, and the codes of their values. Any query is compared
        with them, so a saved model holds them: do not pass on its file where these embeddings must not be passed on.
    values_, attributes_ : array of shape (v, p) and (v,)
        Prompts of the sensitive values, and the code of the attribute of each.
    sentences_ : array of shape (d, p)
        Differences of counterfactual sentences; no rows without sentences.
    text_ : array of shape (c, p)
        Class prompts after both steps.
    diagnostics_ : dict
        directions ("counterfactual sentences", "composed" or "none"), neighbours, reference_rows and a note.

    Notes
    -----
    Step 1 projects a query t onto the orthogonal complement of a subspace, which gives ``e₀``. The subspace is spanned
    by differences of the prompts of two values of an attribute, and by ``(aᵢ − aⱼ)/2`` for sentences a that name the
    query together with a value. Step 2 is ``max e·e₀`` subject to ``‖e‖ = 1`` and ``e·μᵢ`` equal for all values i,
    where μᵢ is the mean of the reference images of value i that are nearest to e₀. The solution is exact: ``e₀`` is
    projected onto the null space of the differences of the μᵢ and normalised. Several attributes are crossed in step 2.
    If S has one value, there is nothing to make equal.

    Differences from the paper: it solves step 2 by an iterative solver, and a language model writes the sentences of
    every query. Here ``counterfactual_text`` of all classes is used for every query, also for free ones. Without
    sentences they are *composed*, ``n(t + u)`` for a query t and a value u. The span of composed differences and of
    differences of prompts would contain ``t + u`` itself wherever t is nearer to one value, and projecting it out
    would remove the query. So per attribute as many leading directions of all differences are kept as the differences
    of prompts span. For the same reason prompts of values enter by their differences, where the released code projects
    off the prompts themselves. Row weights are the probabilities with which reference images are drawn. S may be
    predicted; the paper uses labelled reference images.

    Licence of the released code: none. This is a new implementation from the paper; the code was read for facts (by
    what the nearest images are found, and from what prompts the subspace is made).

    References
    ----------
    Gerych et al., "BendVLM: Test-Time Debiasing of Vision-Language Embeddings", NeurIPS 2024, arXiv:2411.04420.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> s = np.arange(60) % 2
    >>> X = rng.normal(size=(60, 4)) + np.outer(s, [0.0, 0.0, 3.0, 0.0])
    >>> model = BendVLM(random_state=0).fit(X, text=np.eye(4)[:2], sensitive_features=s)
    >>> means = [model.scores(X)[s == value].mean(axis=0) for value in (0, 1)]
    >>> bool(np.abs(means[0] - means[1]).max() < 1e-6)
    True
    """

    needs = Needs("none", True, True, False, "Gerych et al. 2024, arXiv:2411.04420")
    changes_prompts = free_queries = True
    sentences = ("counterfactual_text",)
    fitted: ClassVar[tuple[str, ...]] = (
        "text_",
        "values_",
        "attributes_",
        "sentences_",
        "reference_",
        "reference_groups_",
    )
    shapes = {  # noqa: RUF012
        "text_": ("c", "p"),
        "values_": ("v", "p"),
        "attributes_": ("v",),
        "sentences_": ("d", "p"),
        "reference_": ("m", "p"),
        "reference_groups_": ("m",),
    }
    reference_: NDArray[np.float32]

    def __init__(
        self, neighbours: int | None = None, *, max_reference: int = 1000, random_state: Any = None
    ) -> None:
        self.neighbours = neighbours
        self.max_reference = max_reference
        self.random_state = random_state

    @property
    def title(self) -> str:
        """Name of the method."""
        return "BendVLM"

    def _learn(self, data: Training) -> None:
        if self.neighbours is not None:
            check_count("neighbours", self.neighbours)
        check_count("max_reference", self.max_reference)
        text, width = class_prompts(data, "BendVLM"), data.X.shape[1]
        prompts = sensitive_values(data) if data.sensitive_prompts else []
        self.values_ = np.concatenate([np.empty((0, width)), *prompts])
        self.attributes_ = np.repeat(np.arange(len(prompts)), [len(part) for part in prompts]).astype(float)
        sentences = (data.counterfactual or {}).values()
        self.sentences_ = np.concatenate(
            [np.empty((0, width)), *(differences(part) / 2 for part in sentences)]
        )
        rng = np.random.default_rng(seed_of(self.random_state))
        rows, groups = _references(sensitive_codes(data), data.weight, self.max_reference, rng)
        self.reference_ = data.X[rows].astype(np.float32)
        self.reference_groups_ = groups.astype(float)
        if data.counterfactual is not None and not len(span(self.sentences_)):
            raise PromptError(
                "counterfactual_text has no class with two different sentences, so there is no pair"
            )
        self.text_ = unit_prompts(self._embed_text(text), "bending")
        composed = "composed" if prompts else "none"
        source = "counterfactual sentences" if len(self.sentences_) else composed
        self.diagnostics_ = {
            "directions": source,
            "neighbours": self._count(),
            "reference_rows": len(rows),
            "note": f"{len(rows)} embeddings of training rows are part of the model; directions: {source}",
        }

    def _count(self) -> int:
        if self.neighbours is not None:
            return int(self.neighbours)
        return NEIGHBOURS["few" if len(np.unique(self.reference_groups_)) <= 2 else "many"]

    def _embed_text(self, rows: F64) -> F64:
        """Return unit prompts (m, p) after both steps, not normalised. O(m·(reference rows)·p) time."""
        fixed = span(np.concatenate([self.sentences_, *self._differences()]))
        out = np.empty_like(rows)
        for t, bent in zip(rows, out, strict=True):
            basis = fixed if len(self.sentences_) else self._local(t)
            projected = project(t[None], basis)[0]
            bent[:] = equalised(projected, self._means(projected))
        return out

    def _differences(self) -> list[F64]:
        """Return the differences (d, p) of prompts of two values, for each attribute."""
        return [differences(self.values_[self.attributes_ == code]) for code in np.unique(self.attributes_)]

    def _local(self, t: F64) -> F64:
        """Return orthonormal sensitive directions (r, p) of a query (p,), with composed sentences."""
        found = [np.empty((0, len(t)))]
        for code, plain in zip(np.unique(self.attributes_), self._differences(), strict=True):
            pairs = compose_pairs(t[None], [self.values_[self.attributes_ == code]]).reshape(-1, 2, len(t))
            both = np.concatenate([plain, (pairs[:, 0] - pairs[:, 1]) / 2])
            rank = len(span(plain))
            found.append(np.linalg.svd(both, full_matrices=False)[2][:rank])
        return span(np.concatenate(found))

    def _means(self, e: F64) -> F64:
        """Return the mean (v, p) of the reference images of every value that are nearest to a projected query (p,)."""
        similar, count = self.reference_ @ e, self._count()
        means = []
        for group in np.unique(self.reference_groups_):
            rows = np.flatnonzero(self.reference_groups_ == group)
            nearest = rows[np.argsort(-similar[rows], kind="stable")[:count]]
            means.append(self.reference_[nearest].mean(axis=0, dtype=np.float64))
        return np.asarray(means).reshape(-1, len(e))


def equalised(e: F64, means: F64) -> F64:
    """Return the vector (p,) nearest to e (p,) that has equal inner products with all means (v, p).

    Normalised, it is the unit vector that has the largest inner product with e under this constraint.

    Examples
    --------
    >>> equalised(np.array([3.0, 1.0, 1.0]), np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])).round(12).tolist()
    [2.0, 2.0, 1.0]
    """
    return np.asarray(project(e[None], span(differences(means)))[0])


def _references(s: Ints, weight: F64, most: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Draw at most ``most`` rows of every code; return their numbers and codes.

    Rows of equal weight are drawn without replacement; others with replacement, with probabilities by weight.
    """
    drawn = []
    for code in np.unique(s[weight > 0]):
        rows = np.flatnonzero((s == code) & (weight > 0))
        share = weight[rows] / weight[rows].sum()
        equal = bool(np.all(weight[rows] == weight[rows[0]]))
        count = min(most, len(rows))
        drawn.append(rng.choice(rows, count, replace=not equal, p=None if equal else share))
    found = np.concatenate(drawn)
    return found, s[found]
