"""PRISM: one linear map of images and prompts, projected off sensitive prompts or learned from pairs of sentences."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fairerclip._util.checks import check_choice, check_count, check_positive, check_within
from fairerclip._util.types import F64, Ints
from fairerclip.baselines.gradient.recipes import seed_of
from fairerclip.baselines.heads import CosineHead, class_prompts, projected_off, sensitive_values
from fairerclip.baselines.orth_proj import project, span
from fairerclip.baselines.sentences import compose
from fairerclip.baselines.training_data import Needs, Training, unit_prompts
from fairerclip.errors import PromptError, ShapeError

VARIANTS = ("learned", "mini")
STARTS = ("random", "projection", "identity")
MAX_WIDTH = 4096
"""Largest width of rows; a few square float64 matrices of this size take 0.5 GB."""
MAX_STEPS = 100_000
PAIRS = 500
"""Number of pairs of each kind, as published; more are drawn from, at random."""
SENTENCES = 1000
"""Number of sentences beyond which some are drawn at random, so that pairs can be listed."""
BETAS, EPSILON = (0.9, 0.999), 1e-8
"""Parameters of Adam, the defaults of torch."""


class WeightedPairs(NamedTuple):
    """Sentences (k, p), and the weight of each pair of them (k, k): symmetric, each kind with the sum 2."""

    sentences: F64
    alike: F64
    apart: F64


@dataclass(eq=False, repr=False)
class PRISM(CosineHead):
    """Zero-shot classifier after one linear map of both images and prompts, which is made from prompts alone.

    Needs class prompts, and prompts of the sensitive values (``sensitive_text``). Where they are given, sentences about
    the sensitive attributes (``spurious_text``) are projected off in their place, and pairs are made of sentences that
    name class and value (``counterfactual_text``). It uses no labels and no sensitive values of images, learns nothing
    from images, and computes its gradient without torch.

    Parameters
    ----------
    variant : {"learned", "mini"}
        "learned" minimises the loss below over the map; "mini" (PRISM-mini) projects onto the orthogonal complement of
        the sentences about S, as `OrthProj` does, but maps images, too.
    start : {"random", "projection", "identity"}
        Map from which "learned" starts: entries drawn from ±1/√p, the default of the released code; the projection of
        "mini", its other choice; or no change.
    lr, steps, margin : float, int and float
        Step size of Adam, number of its steps, and the margin of the loss. As published, 0.1, 167 (an epoch of 500
        pairs in batches of 3, as the released code has them) and 0.5.
    random_state : int, RandomState or None
        Source of the random start, and of the pairs if there are more than 500.

    Attributes
    ----------
    map_ : array of shape (p, p)
        The map W; images and prompts are multiplied by it.
    text_ : array of shape (c, p)
        Mapped class prompts, normalised.
    diagnostics_ : dict
        For "mini" as in `OrthProj`. For "learned" pairs ("counterfactual sentences" or "composed"), n_alike, n_apart,
        start, the loss at the start and at the end, and a note.

    Notes
    -----
    The loss is ``mean(1 − cos(W z, W z')) + mean(max(0, cos(W z, W z'') − margin))``. z and z' name the same class and
    different values; z and z'' name different classes. Without ``counterfactual_text`` sentences are composed,
    ``n(n(t) + n(u))`` for class t and value u, and z and z'' have the same value, as in the paper. Given sentences do
    not tell their value, so all pairs of different classes count.

    PRISM-mini predicts the classes that `OrthProj` predicts: its map P is a projection, ``P x · P t = x · P t``, and
    the norm of P x is the same for all classes. Rankings of images differ by that norm.

    Differences from the paper: it trains on sentences that a language model writes, in batches. Here there are few
    pairs, so that every step uses all of them, up to 500 of each kind. Mapped class prompts are normalised, so that
    scores are cosines; the released code compares images with them as they are. The step size of 0.1 is for entries
    of W, which are about 1/√p at a random start; a comparison tries smaller ones. O(steps·k·p²) time for k sentences.

    Licence of the released code: MIT, by its README. This is a new implementation; the code was read for facts (sizes
    of batches, the start), and nothing of it was copied.

    References
    ----------
    Molahasani et al., "PRISM: Reducing Spurious Implicit Biases in Vision-Language Models with LLM-Guided Embedding
    Projection", ICCV 2025, arXiv:2507.08979.

    Examples
    --------
    >>> import numpy as np
    >>> axes = np.eye(4)
    >>> text, sensitive = axes[:2] + 0.5 * axes[2:], axes[2:]
    >>> model = PRISM(start="identity", lr=0.01, steps=100).fit(axes, text=text, sensitive_text=sensitive)
    >>> bool(model.diagnostics_["loss"] < 0.1 * model.diagnostics_["start_loss"])
    True
    """

    needs = Needs("none", True, True, False, "Molahasani et al. 2025, arXiv:2507.08979")
    prompts_alone = True
    takes_named = takes_sentences = changes_embeddings = changes_prompts = free_queries = True
    sentences = ("spurious_text", "counterfactual_text")
    fitted: ClassVar[tuple[str, ...]] = ("text_", "map_")
    shapes = {"text_": ("c", "p"), "map_": ("p", "p")}  # noqa: RUF012

    variant: str = "learned"
    _: KW_ONLY
    start: str = "random"
    lr: float = 0.1
    steps: int = 167
    margin: float = 0.5
    random_state: Any = None

    @property
    def title(self) -> str:
        """Name of the method."""
        return "PRISM-mini" if self.variant == "mini" else "PRISM"

    def _learn(self, data: Training) -> None:
        self.diagnostics_: dict[str, Any]
        check_choice("variant", self.variant, VARIANTS)
        check_choice("start", self.start, STARTS)
        check_positive("lr", self.lr)
        check_count("steps", self.steps, MAX_STEPS)
        check_within("margin", self.margin, -1.0, 1.0)
        rng, width = np.random.default_rng(seed_of(self.random_state)), data.X.shape[1]
        if width > MAX_WIDTH:
            raise ShapeError(
                f"PRISM takes rows at most {MAX_WIDTH:,} wide, because its map is a square matrix; got {width:,}"
            )
        text = class_prompts(data, "PRISM")
        if self.variant == "mini":
            removed, name = projected_off(data, "PRISM")
            self.map_ = project(np.eye(width), span(removed))
            self.diagnostics_ = {"projected": name, "note": f"{len(removed)} {name} are projected off"}
        else:
            self.map_ = self._trained(data, text, rng)
        self.text_ = unit_prompts(self._embed_text(text), "the map")

    def _trained(self, data: Training, text: F64, rng: np.random.Generator) -> F64:
        pairs, source = pairs_of(data, text, rng)
        width = len(text[0])
        if self.start == "random":
            start = rng.uniform(-1, 1, size=(width, width)) / np.sqrt(width)
        elif self.start == "projection":
            start = project(np.eye(width), span(projected_off(data, "PRISM")[0]))
        else:
            start = np.eye(width)
        W = descend(start, pairs, self.lr, self.steps, self.margin)
        n_alike, n_apart = (int(np.sum(weights > 0)) // 2 for weights in (pairs.alike, pairs.apart))
        self.diagnostics_ = {
            "pairs": source,
            "n_alike": n_alike,
            "n_apart": n_apart,
            "start": self.start,
            "start_loss": loss_and_gradient(start, pairs, self.margin)[0],
            "loss": loss_and_gradient(W, pairs, self.margin)[0],
            "note": f"{n_alike} pairs to bring together and {n_apart} to separate, {source}",
        }
        return W

    def _embed(self, rows: F64) -> F64:
        """Return the mapped rows (b, p), not normalised again. O(b·p²) time."""
        return np.asarray(rows @ self.map_.T)

    def _embed_text(self, rows: F64) -> F64:
        return self._embed(rows)


def pairs_of(data: Training, text: F64, rng: np.random.Generator) -> tuple[WeightedPairs, str]:
    """Return the pairs of sentences to bring together and to separate, and the name of their source."""
    if data.counterfactual is not None:
        sentences = np.concatenate(list(data.counterfactual.values()))
        labels = np.repeat(list(data.counterfactual), [len(rows) for rows in data.counterfactual.values()])
        # Every sentence has a value of its own, and may be compared with all of another class.
        codes = np.stack([labels, np.zeros_like(labels), np.arange(len(labels))])
        source, same_value = "counterfactual sentences", False
    elif data.sensitive_prompts is not None:
        values = sensitive_values(data)
        attribute = np.repeat(np.arange(len(values)), data.attribute_sizes)
        sentences = compose(text, np.concatenate(values)).reshape(-1, text.shape[1])
        place = np.arange(len(attribute))
        codes = np.stack(
            [
                np.repeat(np.arange(len(text)), len(place)),
                np.tile(attribute, len(text)),
                np.tile(place, len(text)),
            ]
        )
        source, same_value = "composed", True
    else:
        raise PromptError(
            "PRISM needs pairs: give counterfactual_text, or sensitive_text to compose them from"
        )
    if len(sentences) > SENTENCES:
        drawn = np.sort(rng.choice(len(sentences), SENTENCES, replace=False))
        sentences, codes = sentences[drawn], codes[:, drawn]
    (c, a, v), (i, j) = codes, np.triu_indices(len(sentences), 1)
    alike = (c[i] == c[j]) & (a[i] == a[j]) & (v[i] != v[j])
    apart = (c[i] != c[j]) & ((v[i] == v[j]) if same_value else True)
    if not alike.any() or not apart.any():
        raise PromptError(
            "PRISM needs two sentences of one class and sentences of two classes: give more counterfactual_text"
        )
    weights = [_weights(len(sentences), i[chosen], j[chosen], rng) for chosen in (alike, apart)]
    return WeightedPairs(sentences, *weights), source


def _weights(k: int, i: Ints, j: Ints, rng: np.random.Generator) -> F64:
    """Return the weights (k, k) of the pairs (i, j), at most `PAIRS` of which are used."""
    if len(i) > PAIRS:
        drawn = np.sort(rng.choice(len(i), PAIRS, replace=False))
        i, j = i[drawn], j[drawn]
    weights = np.zeros((k, k))
    weights[i, j] = weights[j, i] = 1.0 / len(i)
    return weights


def loss_and_gradient(W: F64, pairs: WeightedPairs, margin: float) -> tuple[float, F64]:
    """Return the loss of a map W (p, p) and its gradient (p, p). O(k·p² + k²·p) time."""
    mapped = pairs.sentences @ W.T
    lengths = np.maximum(np.linalg.norm(mapped, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    unit = mapped / lengths
    cosines = unit @ unit.T
    excess = np.maximum(cosines - margin, 0.0)
    loss = 0.5 * float(np.sum(pairs.alike * (1.0 - cosines)) + np.sum(pairs.apart * excess))
    slopes = pairs.apart * (excess > 0) - pairs.alike  # derivative of the loss by each cosine
    by_row = (slopes @ unit - np.sum(slopes * cosines, axis=1, keepdims=True) * unit) / lengths
    return loss, np.asarray(by_row.T @ pairs.sentences)


def descend(W: F64, pairs: WeightedPairs, lr: float, steps: int, margin: float) -> F64:
    """Return the map (p, p) after steps of Adam from W on all pairs."""
    W, first, second = W.copy(), np.zeros_like(W), np.zeros_like(W)
    for step in range(1, steps + 1):
        _, change = loss_and_gradient(W, pairs, margin)
        first += (1 - BETAS[0]) * (change - first)
        np.square(change, out=change)
        second += (1 - BETAS[1]) * (change - second)
        np.sqrt(second, out=change)  # in place: the matrices are large, and everything else is small
        change /= np.sqrt(1 - BETAS[1] ** step)
        change += EPSILON
        np.divide(first, change, out=change)
        W -= lr / (1 - BETAS[0] ** step) * change
    return W
