"""PerceptionCLIP: the context of an image, here its sensitive value, is inferred first, then its class in it."""

from __future__ import annotations

from functools import reduce
from typing import ClassVar

import numpy as np
from scipy.special import log_softmax, logsumexp

from fairerclip._util.checks import check_choice, check_positive
from fairerclip._util.types import F64
from fairerclip.baselines.baseline import Baseline
from fairerclip.baselines.heads import class_prompts, sensitive_values
from fairerclip.baselines.sentences import compose
from fairerclip.baselines.training_data import Needs, Training
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.errors import PromptError
from fairerclip.inputs.prompts import prototypes

INFER = ("classes", "contexts")
MOST_SENTENCES = 100_000
"""Largest number of sentences, classes times contexts."""
BLOCK = 1 << 22
"""Number of cosines that are held at a time."""


class PerceptionCLIP(Baseline):
    """Zero-shot classifier with a sentence for every class in every context, weighted by the inferred context.

    Contexts are the sensitive values, and with several attributes their combinations.

    Needs class prompts, and prompts of the sensitive values (``sensitive_text``) or sentences that name class and value
    (``counterfactual_text``). It uses no labels, no sensitive values of images and no gradient, learns nothing from
    images and does not change them.

    Parameters
    ----------
    infer : {"classes", "contexts"}
        What the context is inferred from: the sentences of all classes in that context, or a sentence about the context
        alone.
    temperature : float, default=1.0
        Divisor of the scores of contexts: large values weight all contexts alike, small ones choose one of them. The
        paper tries 0.5 to 10.
    logit_scale : float, default=100.0
        Factor κ of the cosines; that of CLIP is 100.

    Attributes
    ----------
    sentences_ : array of shape (c, z, p)
        Unit embeddings of each class in each context.
    contexts_ : array of shape (z, p)
        Unit embeddings of the contexts alone.
    diagnostics_ : dict
        sentences ("counterfactual sentences" or "composed"), contexts (their number z) and a note.

    Notes
    -----
    With ``f(y, z; x) = κ·cos(x, t_yz)``, temperature T and context prompts ``t_z``:

    * ``p(z|x) ∝ Σ_y exp(f(y, z; x)/T)`` with ``infer="classes"``, or ``∝ exp(κ·cos(x, t_z)/T)`` with "contexts";
    * ``p(y|x, z) = exp f(y, z; x) / Σ_y' exp f(y', z; x)``;
    * the score of class y is ``log Σ_z p(z|x)·p(y|x, z)``.

    With ``infer="classes"`` and T = 1 this is the version in one step, ``Σ_z exp f(y, z; x)`` up to a constant of the
    row.

    The k-th sentences of all classes in ``counterfactual_text`` must be about the same context, and every class must
    have as many; the order is not checked, since sentences do not tell their context. Then ``t_z`` is the normalised
    mean of the sentences of a context. Without them, sentences are composed: ``t_yz = n(n(t_y) + n(u_z))``, where u_z
    is the prompt of a value or the normalised sum of those of a combination, and ``t_z = n(u_z)``. O(n·p·c·z) time.

    Differences from the paper: it writes sentences, and several of them for a context; here they may be composed.

    Licence of the released code: not known; no licence file was found in the listing of its repository, which another
    list names as MIT. This is a new implementation; the code was read for facts, and nothing of it was copied.

    References
    ----------
    An et al., "PerceptionCLIP: Visual Classification by Inferring and Conditioning on Contexts", ICLR 2024,
    arXiv:2308.01313.

    Examples
    --------
    >>> import numpy as np
    >>> images = np.array([[0.2, 0.1, 0.9, 0.0], [0.1, 0.2, 0.0, 0.9]])
    >>> text = [[1.0, 0.0, 0.0, 0.3], [0.0, 1.0, 0.3, 0.0]]
    >>> sensitive = [[0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    >>> PerceptionCLIP().fit(images, text=text, sensitive_text=sensitive).contexts_.tolist()
    [[0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    """

    needs = Needs("none", True, True, False, "An et al. 2024, arXiv:2308.01313")
    prompts_alone = takes_named = True
    sentences = ("counterfactual_text",)
    fitted: ClassVar[tuple[str, ...]] = ("sentences_", "contexts_")
    shapes = {"sentences_": ("c", "z", "p"), "contexts_": ("z", "p")}  # noqa: RUF012

    def __init__(
        self, infer: str = "classes", *, temperature: float = 1.0, logit_scale: float = 100.0
    ) -> None:
        self.infer = infer
        self.temperature = temperature
        self.logit_scale = logit_scale

    @property
    def title(self) -> str:
        """Name of the method."""
        return "PerceptionCLIP"

    def _learn(self, data: Training) -> None:
        check_choice("infer", self.infer, INFER)
        check_positive("temperature", self.temperature)
        check_positive("logit_scale", self.logit_scale)
        text = class_prompts(data, "PerceptionCLIP")
        if data.counterfactual is not None:
            source, self.sentences_ = "counterfactual sentences", self._given(data)
            self.contexts_ = prototypes(list(self.sentences_.transpose(1, 0, 2)))
        elif data.sensitive_prompts is not None:
            source, self.contexts_ = "composed", self._combinations(data)
            self.sentences_ = compose(text, self.contexts_)
        else:
            raise PromptError(
                "PerceptionCLIP needs sentences of every class in every context: give sensitive_text to compose them, "
                "or counterfactual_text"
            )
        n_contexts = len(self.contexts_)
        self.diagnostics_ = {
            "sentences": source,
            "contexts": n_contexts,
            "note": f"{len(text)} classes in {n_contexts} contexts, {source}",
        }

    def _given(self, data: Training) -> F64:
        """Return the given sentences (c, z, p); raise if the classes have different numbers of them."""
        found = data.counterfactual or {}
        counts = [len(found.get(code, ())) for code in range(data.n_classes)]
        if len(set(counts)) > 1:
            shown = ", ".join(f"{c}: {n}" for c, n in list(zip(self.classes_, counts, strict=True))[:10])
            raise PromptError(
                "PerceptionCLIP compares classes in the same contexts, so counterfactual_text must have as many "
                f"sentences for every class, in the same order of contexts; got {shown}. Leave it out to compose them"
            )
        return np.stack([found[code] for code in range(data.n_classes)])

    def _combinations(self, data: Training) -> F64:
        """Return one unit vector (z, p) per combination of values."""
        attributes = sensitive_values(data)
        count = int(np.prod([len(values) for values in attributes])) * data.n_classes
        if count > MOST_SENTENCES:
            raise PromptError(
                f"PerceptionCLIP needs a sentence for every class and combination of values: {count:,}, more than "
                f"{MOST_SENTENCES:,}; use fewer sensitive attributes"
            )
        sums = reduce(lambda a, b: (a[:, None] + b[None]).reshape(-1, a.shape[1]), attributes)
        return np.asarray(unit_rows(sums))

    def _class_scores(self, embedded: F64) -> F64:
        """Return the logarithms (b, c) of the probabilities of the classes. O(b·p·c·z) time."""
        rows = unit_rows(embedded)
        size = max(1, BLOCK // self.sentences_[..., 0].size)
        parts = [self._log_probabilities(rows[i : i + size]) for i in range(0, max(1, len(rows)), size)]
        return np.concatenate(parts)

    def _log_probabilities(self, rows: F64) -> F64:
        c, z, p = self.sentences_.shape
        logits = self.logit_scale * (rows @ self.sentences_.reshape(-1, p).T).reshape(-1, c, z)
        if self.infer == "classes":
            of_contexts = logsumexp(logits / self.temperature, axis=1)
        else:
            of_contexts = self.logit_scale / self.temperature * (rows @ self.contexts_.T)
        joint = log_softmax(logits, axis=1) + log_softmax(of_contexts, axis=1)[:, None]
        return np.asarray(logsumexp(joint, axis=2))
