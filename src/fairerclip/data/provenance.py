"""Provenance of embeddings: the model, its weights and the preprocessing of the images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from fairerclip.errors import ProvenanceError


@dataclass(frozen=True)
class Provenance:
    """Record of how embeddings were computed, to decide whether two sets of them are comparable.

    Attributes
    ----------
    model : str
        Architecture, such as ``"ViT-L-14"``.
    weights : str or None
        Digest (sha256) or tag of the weights; None if unknown.
    preprocessing : str
        Short canonical description, such as ``"resize 224 bicubic, crop 224, mean/std CLIP"``.
    library : str
        Library and version that computed them.
    normalised : bool
        Whether rows have unit length.
    width : int
        Width p of a row.

    Examples
    --------
    >>> made = Provenance("ViT-B-32", "openai", "resize 224 bicubic", "open_clip 3.3.0", True, 512)
    >>> Provenance.from_dict(made.to_dict()) == made
    True
    """

    model: str
    weights: str | None
    preprocessing: str
    library: str
    normalised: bool
    width: int

    def __post_init__(self) -> None:
        for name in ("model", "preprocessing", "library"):
            if not isinstance(getattr(self, name), str):
                raise ProvenanceError(
                    f"provenance: expected {name} to be a string, got {getattr(self, name)!r}"
                )
        if not (self.weights is None or isinstance(self.weights, str)):
            raise ProvenanceError(
                f"provenance: expected weights to be a string or None, got {self.weights!r}"
            )
        if not isinstance(self.normalised, bool):
            raise ProvenanceError(
                f"provenance: expected normalised to be true or false, got {self.normalised!r}"
            )
        if isinstance(self.width, bool) or not isinstance(self.width, int) or self.width < 1:
            raise ProvenanceError(f"provenance: expected width to be a positive integer, got {self.width!r}")

    def __str__(self) -> str:
        return f"{self.model} (weights {self.weights or 'unknown'}, width {self.width})"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Any) -> Provenance:
        """Return the provenance that `to_dict` wrote; raise on missing and unknown keys."""
        if not isinstance(values, Mapping):
            raise ProvenanceError(f"provenance: expected a mapping, got {type(values).__name__}")
        known = [f.name for f in fields(cls)]
        unknown = sorted(str(key) for key in values if key not in known)
        missing = [key for key in known if key not in values]
        if unknown or missing:
            raise ProvenanceError(
                f"provenance: expected the keys {', '.join(known)}; unknown: {', '.join(unknown) or 'none'}, "
                f"missing: {', '.join(missing) or 'none'}"
            )
        return cls(**values)


def check_same_model(image: Provenance | None, text: Provenance | None) -> None:
    """Raise if images and texts come from different models; an unknown provenance passes.

    Raises
    ------
    ProvenanceError
        Model or width differ, or the weights do and are known on both sides.

    Examples
    --------
    >>> check_same_model(None, None)
    """
    if image is None or text is None:
        return
    known = image.weights is not None and text.weights is not None
    differ = [
        name
        for name in ("model", "weights", "width")
        if getattr(image, name) != getattr(text, name) and (name != "weights" or known)
    ]
    if differ:
        raise ProvenanceError(
            f"image and text embeddings come from different models ({', '.join(differ)} differ): images from "
            f"{image}, texts from {text}; embed both with the same model"
        )
