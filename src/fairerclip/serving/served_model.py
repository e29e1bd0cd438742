"""The model that is served: any saved model of the package, and the encoder of its embeddings."""

from __future__ import annotations

import hashlib
import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fairerclip import __version__
from fairerclip._util.extras import require
from fairerclip._util.types import F64, Floats
from fairerclip.embedding.mitigator import EmbeddingMitigator
from fairerclip.encoders.decode import open_image
from fairerclip.encoders.encoder import Encoder
from fairerclip.errors import ModelFileError, ParameterError, SensitiveQueryWarning
from fairerclip.model.answers import FittedAnswers
from fairerclip.model.archive import load
from fairerclip.model.contents import MANIFEST
from fairerclip.model.fitted import Ranking
from fairerclip.model.folder_files import read_manifest
from fairerclip.serving.micro_batches import Operation
from fairerclip.serving.problems import RequestProblem
from fairerclip.serving.service_settings import ServiceSettings
from fairerclip.solver.decision import softmax

REPLACED = "replaced"
"""Reason of the error of a model that is another one than that of the other processes."""
MAX_TEXT = 1000
"""Most characters of a text. Encoders read some 77 tokens, and tokenizers may take quadratic time for a long word."""


def load_served(settings: ServiceSettings, identity: str | None = None) -> ServedModel:
    """Load the model and the encoder that the settings name.

    Parameters
    ----------
    settings : ServiceSettings
        What to load.
    identity : str, optional
        Identity that the model must have: that of the other processes.

    Raises
    ------
    ModelFileError
        The folder is damaged, or was replaced.
    """
    before = _manifest_digest(settings.model)
    model = load(settings.model, mapped=True)  # so that the processes share the weights
    encoder = None if settings.encoder is None else settings.encoder.load()
    served = ServedModel(model, encoder, pixels=settings.limits.pixels)
    served.identity = f"{before} {None if encoder is None else encoder.provenance.weights}"
    if _manifest_digest(settings.model) != before or identity not in (None, served.identity):
        raise ModelFileError(
            f"{settings.model}, or the encoder, was replaced while it was served: a new process would give other "
            "answers than the others; start the service again"
        ).because(REPLACED)
    return served


def _manifest_digest(folder: Path) -> str:
    """Return the SHA-256 of the manifest of a model folder, which has those of its weights; "" if there is none."""
    try:
        return hashlib.sha256(read_manifest(folder / MANIFEST)[0]).hexdigest()
    except (OSError, ValueError):  # `load` says what is wrong
        return ""


class ServedModel:
    """A fitted model and what it can be asked for.

    Parameters
    ----------
    model : FairerCLIP, EmbeddingMitigator or Baseline
        A fitted model.
    encoder : Encoder or None
        Model of texts and images, of the width of the fit.
    pixels : int
        Most pixels of an image.

    Attributes
    ----------
    kind : str
        Class of the model.
    width : int
        Width p of its rows.
    classes : list or None
        Class labels; None for a mitigator.
    identity : str
        Digest of the files that it was loaded from; empty if it was not.
    scoring, mitigating, ranking : Operation
        Class scores (n, c) and mitigated rows (n, p) of rows (n, p); scores (n,) for a query and rows.
    reading, seeing, decoding : Operation
        Embeddings (n, p) of texts and of pixels (n, 3, H, W); pixels of the bytes of an image.
    """

    def __init__(self, model: Any, encoder: Encoder | None = None, *, pixels: int) -> None:
        self.kind, self.identity = type(model).__name__, ""
        self.width = int(model.n_features_in_)
        self.classes = None if isinstance(model, EmbeddingMitigator) else model.classes_.tolist()
        self._model, self._encoder, self._pixels = model, encoder, pixels
        if encoder is not None and encoder.width != self.width:
            raise ParameterError(
                f"the encoder makes embeddings of width {encoder.width}, the model was fitted on width {self.width}: "
                "give the encoder that embedded the rows of the fit"
            )
        if self.classes is not None:
            self.scoring = Operation("scores", model.scores)
        if self.mitigates:
            self.mitigating = Operation("mitigate", lambda rows: np.asarray(model.transform(rows)))
        if isinstance(model, EmbeddingMitigator):
            self.ranking = Operation("rank", self._query_scores, joins=False)
        if encoder is not None:
            self.reading = Operation("encode_text", encoder.encode_text)
            self.seeing = Operation("encode_images", encoder.encode_images)
            self.decoding = Operation("decode", self._decoded, joins=False)

    @property
    def mitigates(self) -> bool:
        """Whether `mitigating` is there: for a mitigator, and for baselines that change embeddings."""
        if isinstance(self._model, FittedAnswers):
            return False
        return self.classes is None or bool(self._model.changes_embeddings)

    @property
    def encodes(self) -> bool:
        """Whether there is an encoder."""
        return self._encoder is not None

    @property
    def endpoints(self) -> list[str]:
        """Names of the endpoints that this model can answer."""
        offered = {
            "classify": self.classes is not None,
            "rank": True,
            "mitigate": self.mitigates,
            "embed": self.encodes,
        }
        return [name for name, there in offered.items() if there]

    def require(self, endpoint: str) -> None:
        """Raise a `RequestProblem` if this model cannot answer an endpoint."""
        if endpoint in self.endpoints:
            return
        why = {
            "classify": "an EmbeddingMitigator has no classes",
            "mitigate": f"{self.kind} does not give embeddings of the same space: fit an EmbeddingMitigator",
            "embed": "the service runs without --encoder",
        }[endpoint]
        raise RequestProblem(
            "not_offered", f"{endpoint} is not offered here: {why}; offered are {', '.join(self.endpoints)}"
        )

    def warm_up(self) -> None:
        """Call every operation once, so that no request waits for what a first call loads."""
        row = np.ones((1, self.width), np.float32)
        if self.classes is not None:
            self.scoring.call(row)
        if self.mitigates:
            self.mitigating.call(row)
        if self.classes is None:
            self.ranking.call((row, row))
        if self._encoder is not None:
            self.reading.call(["a photo"])
            picture = io.BytesIO()
            pillow = require("PIL.Image", "images", "serving images")
            pillow.new("RGB", (8, 8), "gray").save(picture, format="BMP")
            self.seeing.call(self.decoding.call(picture.getvalue())[None])

    def facts(self) -> dict[str, Any]:
        """Return what clients need to know; nothing about the rows of the fit, and no path."""
        encoder = None
        if self._encoder is not None:
            made = self._encoder.provenance
            encoder = {
                "model": made.model,
                "weights": made.weights,
                "library": made.library,
                "width": made.width,
            }
        return {
            "fairerclip": __version__,
            "kind": self.kind,
            "width": self.width,
            "classes": self.classes,
            "probabilities": self._has_probabilities,
            "endpoints": self.endpoints,
            "encoder": encoder,
        }

    # Answers from the results of operations ------------------------------------------------------

    def labels(self, scores: F64) -> list[Any]:
        """Return the label with the largest score of each row, as `predict` does."""
        assert self.classes is not None  # noqa: S101 - `require` was called
        return [self.classes[place] for place in scores.argmax(axis=1).tolist()]

    def probabilities(self, scores: F64) -> F64 | None:
        """Return class probabilities (n, c), as `predict_proba` does; None for methods that have none."""
        return softmax(scores * self._model.temperature_) if self._has_probabilities else None

    @property
    def _has_probabilities(self) -> bool:
        return isinstance(self._model, FittedAnswers)

    def place(self, label: Any, *, as_text: bool) -> int:
        """Return the place of a class; ``as_text`` compares texts, for labels that come from an address."""
        assert self.classes is not None  # noqa: S101 - only called for models with classes
        if as_text:
            found = [place for place, own in enumerate(self.classes) if str(own) == label]
        else:
            found = [
                place for place, own in enumerate(self.classes) if type(own) is type(label) and own == label
            ]
        if len(found) != 1:
            raise RequestProblem(
                "unknown_class", f"class must be one of {self.classes[:20]!r}; got {label!r:.80}"
            )
        return found[0]

    def about(self, query: Floats) -> str | None:
        """Return the sensitive attribute that a query is about, so that it is not mitigated; None for others."""
        return self._model.query_meaning(query[None]).about(0)  # type: ignore[no-any-return]

    def _query_scores(self, given: tuple[Floats, Floats]) -> F64:
        """Return the scores (n,) for a query (1, p) and rows (n, p)."""
        query, rows = given
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SensitiveQueryWarning)  # the answer says what the query is about
            return np.asarray(self._model.scores(rows, query)[:, 0])

    def _decoded(self, content: bytes) -> np.ndarray:
        """Decode and prepare an image."""
        assert self._encoder is not None  # noqa: S101 - the operation exists with an encoder only
        return self._encoder.preprocess(open_image(content, max_pixels=self._pixels))


def ranked(scores: F64, k: int | None) -> Ranking:
    """Return the order of rows by their scores (n,), best first, as `rank` of a model does."""
    order = np.argsort(-scores, kind="stable")[:k]
    return Ranking(order, scores[order])


def as_texts(values: Sequence[Any]) -> list[str]:
    """Return texts that may be embedded; raise a `RequestProblem` for anything else."""
    if not all(isinstance(text, str) and text.strip() for text in values):
        raise RequestProblem("invalid_request", "texts must be a list of texts that are not empty")
    longest = max(map(len, values))
    if longest > MAX_TEXT:
        raise RequestProblem("text_refused", f"a text may have at most {MAX_TEXT} characters; got {longest}")
    return list(values)
