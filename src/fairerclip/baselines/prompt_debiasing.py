"""Prompt debiasing: a change of all prompts is learned against an adversary that predicts S from similarities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fairerclip._util.checks import check_count, check_positive
from fairerclip._util.extras import require
from fairerclip._util.types import F64
from fairerclip.baselines.gradient.recipes import Recipe, check_recipe, counted, shuffled
from fairerclip.baselines.heads import CosineHead, class_prompts, values_as_target
from fairerclip.baselines.training_data import Needs, Training
from fairerclip.errors import FreeQueryError, ParameterError, PromptError, ProvenanceError

if TYPE_CHECKING:
    from fairerclip.baselines.gradient.debiasing import PromptsNet

MOST_TOKENS = 64
SAME = 1e-6
"""Largest difference of the entries of two unit rows that are the same prompt."""


@dataclass(kw_only=True, eq=False, repr=False)
class PromptDebiasing(Recipe, CosineHead):
    """Zero-shot classifier with a learned addition to prompts that hides S from an adversary.

    Needs class prompts and sensitive values of the images: true values, or prompts to predict them from; and the extra
    ``torch`` for training by gradient. It uses no labels, does not change images, and ranks by any query. There are two
    routes, and ``diagnostics_["route"]`` says which was used: with ``tokens`` and an encoder, tokens are learned that
    go through the text encoder with every sentence, as in the paper; by default an addition in embedding space.

    Parameters
    ----------
    strength : float
        Weight λ of the term that hides S.
    rank : int
        Rank of the part of the addition that depends on the prompt; 0 for one offset of all prompts. In embedding space
        only.
    hidden : int
        Width of the hidden layer of the adversary.
    adversary_lr : float
        Step size of the adversary.
    warm_up : int
        Epochs in which the adversary alone learns, before the prompts change.
    temperature : float
        Factor of the cosines in the contrastive term.
    tokens : int
        Number of learned tokens, 2 in the paper; 0 for an addition in embedding space.
    encoder : Encoder or None
        For tokens: open_clip or transformers model of `fairerclip.encoders.load` that made X. `fit` then takes
        sentences, ``text={class: [sentence, …]}``; ``sensitive_text`` may be sentences or embeddings. It is not saved.
    epochs, lr, momentum, weight_decay, batch_size, max_steps, device, progress
        Training of the addition, as in `fairerclip.baselines.gradient.recipes.Recipe`.
    random_state : int, RandomState or None
        Source of the starting weights and of the order of rows.

    Attributes
    ----------
    offset_, left_, right_ : array of shape (p,), (p, r) and (r, p)
        The prompt t becomes ``t + offset_ + left_·(right_·t)``, normalised. Zero, with r = 0, in a model with tokens.
    text_ : array of shape (c, p)
        Class prompts after the change.
    tokens_ : array of shape (t, w)
        Learned word vectors; only with tokens.
    prompts_ : array of shape (c, p)
        Class prompts before the change; only with tokens.
    diagnostics_ : dict
        ``route`` ("tokens" or "embedding space"), the encoder of tokens, the epoch that was kept and why, and the
        history of all epochs.

    Notes
    -----
    An adversary with one hidden layer predicts S from the cosines of an image with all class prompts, standardised in
    every batch. For every batch it takes five steps, and then the addition takes a step on
    ``½·CE(q, q₀) + ½·CE(r, r₀) + λ·max(0, H(S) − A)``. A is the adversary's cross-entropy, H(S) the entropy of S, q and
    q₀ the class probabilities of an image by changed and by unchanged prompts, and r and r₀ the probabilities of the
    images of the batch for a class. These are the two directions of the contrastive loss of CLIP: the second keeps the
    order of images, which the first does not see. Several attributes are crossed. Row weights multiply the losses of
    images, and are their prior probabilities in r. If S has one value, nothing is to be hidden. Prompts that are far
    from all class prompts are changed as well, and less reliably.

    Tokens are word vectors after the start token and before the words; the weights of the text encoder do not change.
    They start as the vector of the word "a". A batch takes two passes of all sentences of the classes through the text
    encoder, and one backwards, in memory that grows with the number of sentences. A loaded model classifies, and
    takes the embeddings of its class prompts as queries; sentences need ``set_params(encoder=…)``. ONNX models have no
    gradients.

    In embedding space the addition is affine: an offset alone is common to all prompts, so it would cancel in every
    comparison of classes; the part of low rank lets it depend on the prompt, as tokens do.

    Details of the losses of the paper are known from its abstract and introduction only.

    Differences from the paper, as far as these tell, of both routes: it learns from true labels of FairFace, from
    queries about people, and by the contrastive loss of pairs of images and captions; here the queries are the class
    prompts, and the pairs are those that unchanged prompts predict, with their probabilities. The adversary's loss is
    raised up to that of a guess without any image, and not without bound. An earlier revision of the released code has
    training, without a contrastive loss: there tokens are before the start token and without positions, start as the
    vector of the first word of the vocabulary, and are trained by Adam, and the adversary has three hidden layers and
    takes turns of several batches with the prompts.

    Licence of the released code: MIT. This is a new implementation.

    References
    ----------
    Berg et al., "A Prompt Array Keeps the Bias Away: Debiasing Vision-Language Models with Adversarial Learning", AACL
    2022, arXiv:2203.11933.
    """

    needs: ClassVar[Needs] = Needs("none", True, True, False, "Berg et al. 2022, arXiv:2203.11933")
    changes_prompts: ClassVar[bool] = True
    free_queries: ClassVar[bool] = True
    fitted: ClassVar[tuple[str, ...]] = ("text_", "offset_", "left_", "right_")
    only_with: ClassVar[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
        "tokens": {"tokens_": ("t", "w"), "prompts_": ("c", "p")}
    }
    shapes: ClassVar[dict[str, tuple[str, ...]]] = {
        "text_": ("c", "p"),
        "offset_": ("p",),
        "left_": ("p", "r"),
        "right_": ("r", "p"),
    }

    strength: float = 1.0
    rank: int = 8
    hidden: int = 32
    adversary_lr: float = 0.1
    warm_up: int = 2
    temperature: float = 100.0
    tokens: int = 0
    encoder: Any = None
    epochs: int = 20
    lr: float = 0.01
    weight_decay: float = 0.0

    @property
    def title(self) -> str:
        """Name of the method."""
        return "Prompt debiasing, learned tokens" if self.tokens else "Prompt debiasing"

    @property
    def has_tokens(self) -> bool:
        """Whether the fitted model has learned tokens, and not an addition in embedding space."""
        return hasattr(self, "tokens_")

    def _read(self, text: Any, sensitive_text: Any) -> tuple[Any, Any, list[list[str]] | None]:
        check_count("tokens", self.tokens, MOST_TOKENS, least=0)
        if self.encoder is None and self.tokens:
            raise ParameterError(
                f"tokens={self.tokens} are learned through a text encoder: give encoder=fairerclip.encoders.load(…), "
                "or tokens=0 for an addition in embedding space"
            )
        if not self.tokens:
            if self.encoder is not None:
                raise ParameterError(
                    "an encoder is for learned tokens, but tokens is 0: give tokens=2, or leave the encoder out"
                )
            return text, sensitive_text, None
        from fairerclip.encoders.prompt_tokens import TokenTower

        tower, words = TokenTower.of(self.encoder), sentences_of(text)
        if (
            words is not None
        ):  # raises for a sentence that is too long with tokens, before anything is embedded
            tower.ids([sentence for group in words for sentence in group], self.tokens)
        return embedded(text, self.encoder), embedded(sensitive_text, self.encoder), words

    def _learn(self, data: Training) -> None:
        require("torch", "torch", "training prompts")
        from fairerclip.baselines.gradient.debiasing import Adversary, TokenNet
        from fairerclip.baselines.gradient.loop import Run

        seed = check_recipe(self)
        for name in ("strength", "adversary_lr", "temperature"):
            check_positive(name, getattr(self, name))
        check_count("rank", self.rank, 4096, least=0)
        check_count("hidden", self.hidden, 65_536)
        check_count("warm_up", self.warm_up, least=0)
        text = class_prompts(data, "PromptDebiasing")
        data = counted(values_as_target(data))
        net = self._net(text, data.words, seed)
        run = Run(net, data, self)
        unchanged = net.unchanged if isinstance(net, TokenNet) else None
        adversary = Adversary(run, data, self.hidden, float(self.adversary_lr), seed, unchanged)
        adversary.warm_up(self.warm_up, seed)
        record = run.train(
            lambda epoch: adversary.epoch(shuffled(len(data.X), seed, epoch), float(self.strength)),
            data.validation,
        )
        for name in self.only_with["tokens"]:
            self.__dict__.pop(name, None)  # of an earlier fit
        self.__dict__.update(net.fitted())
        if isinstance(net, TokenNet):
            width = self.n_features_in_
            self.prompts_, self.offset_ = text, np.zeros(width)
            self.left_, self.right_ = np.zeros((width, 0)), np.zeros((0, width))
            route = {"route": "tokens", "encoder": self.encoder.provenance.to_dict()}
        else:
            route = {"route": "embedding space"}
        self.diagnostics_ = {**record, **route}

    def _net(self, text: F64, words: list[list[str]] | None, seed: int) -> PromptsNet:
        """Return the network to train for class prompts (c, p), or for their sentences."""
        from fairerclip.baselines.gradient.debiasing import PromptNet, TokenNet

        if words is None:
            return PromptNet(text, self.temperature, self.rank, seed)
        from fairerclip.encoders.prompt_tokens import TokenTower

        return TokenNet(text, self.temperature, TokenTower.of(self.encoder), words, self.tokens)

    def transform_text(self, T: Any) -> F64:
        """Return prompts (m, p) as images are compared with them, at unit length.

        Parameters
        ----------
        T : array of shape (m, p), or list of m str
            Any embeddings. A model with tokens takes any sentences, which ``encoder`` embeds with the tokens, and of
            embeddings those of its class prompts, before or after the change.
        """
        check_is_fitted(self, self.fitted)
        if not (self.has_tokens and is_words(T)):
            return super().transform_text(T)
        from fairerclip.encoders.prompt_tokens import TokenTower

        made_with = (self.diagnostics_ or {}).get("encoder") or {}
        if self.encoder is None:
            raise FreeQueryError(
                "tokens go through the text encoder, and a loaded model has none: give it the one of its fit "
                f"({made_with.get('model')}), model.set_params(encoder=fairerclip.encoders.load(…))"
            )
        tower = TokenTower.of(self.encoder)
        if made_with and made_with.get("weights") != self.encoder.provenance.weights:
            raise ProvenanceError(
                f"the tokens were learned with {made_with.get('model')}, weights {made_with.get('weights')}; got an "
                f"encoder with weights {self.encoder.provenance.weights}: give the one of the fit"
            )
        return np.asarray(tower.embed(T, self.tokens_), dtype=np.float64)

    def _embed_text(self, rows: F64) -> F64:
        if not self.has_tokens:
            return moved(rows, self.offset_, self.left_, self.right_)
        known, answers = np.concatenate([self.prompts_, self.text_]), np.concatenate([self.text_] * 2)
        places = (rows @ known.T).argmax(axis=1)
        other = np.flatnonzero(np.abs(rows - known[places]).max(axis=1) > SAME)
        if len(other):
            raise FreeQueryError(
                f"rows {other.tolist()[:5]} of T are not class prompts of the fit: tokens cannot be added to a "
                "sentence that is embedded already; give a list of sentences"
            )
        return np.asarray(answers[places])


def moved(T: F64, offset: F64, left: F64, right: F64) -> F64:
    """Return prompts (m, p) with ``offset + left·(right·t)`` added, not normalised."""
    return np.asarray(T + offset + (T @ right.T) @ left.T)


def is_words(T: Any) -> bool:
    """Return whether T is a string, or a sequence that begins with one.

    Examples
    --------
    >>> [is_words(T) for T in ("a photo", ["a photo"], [], [0.1], None)]
    [True, True, False, False, False]
    """
    listed = isinstance(T, Sequence) or (isinstance(T, np.ndarray) and T.ndim > 0)
    return isinstance(T, str) or (listed and len(T) > 0 and isinstance(T[0], str))


def sentences_of(text: Any) -> list[list[str]] | None:
    """Return the sentences of each class; raise for anything but one or several sentences of each."""
    if text is None:
        return None
    entries = list(text.values()) if isinstance(text, Mapping) else text
    if not isinstance(entries, Sequence | np.ndarray) or isinstance(entries, str):
        entries = [None]
    groups = [[entry] if isinstance(entry, str) else entry for entry in entries]
    if not all(isinstance(group, Sequence) and group and all(map(is_words, group)) for group in groups):
        raise PromptError(
            "learned tokens are put into sentences: give text={class: [sentence, …]}, and not embeddings; got "
            f"{text!r:.80}"
        )
    return [list(group) for group in groups]


def embedded(given: Any, encoder: Any) -> Any:
    """Return prompts with their sentences embedded by an encoder; embeddings are left as they are."""
    if isinstance(given, str):
        return encoder.encode_text([given])[0]
    if is_words(given):
        return encoder.encode_text(list(given))
    if isinstance(given, Mapping):
        return {key: embedded(value, encoder) for key, value in given.items()}
    if isinstance(given, Sequence):
        return [embedded(value, encoder) for value in given]
    return given
