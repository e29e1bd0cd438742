"""A CLIP of open_clip or transformers whose image embeddings are mitigated: a copy that shares the weights."""

from __future__ import annotations

from typing import Any

import torch

from fairerclip.errors import ExportError

Module = Any
PLACES = ("visual_projection", "vision_model.head", "visual")
"""Part of a model that returns the image embedding: in transformers' CLIP, in its SigLIP, and in open_clip."""


def mitigated_clip(mitigator: Module, clip: Module) -> Module:
    """Return a CLIP of the same class whose image embeddings go through a mitigator.

    Only the part that returns the image embedding, and what contains it, is copied; weights are shared with ``clip``.
    Every method of the model uses this part, so that logits, losses and features agree.

    Parameters
    ----------
    mitigator : FittedModule
        The map of a mitigator, in float64; it is rounded to the precision of the model, float32 at least.
    clip : torch.nn.Module
        Model of open_clip or transformers.
    """
    place = _place(clip)
    twin = found = _twin(clip)
    for name in place.split("."):
        inner = _twin(found._modules[name])
        found._modules[name] = inner
        found = inner
    if "mitigator" in found._modules:
        raise ExportError(
            "this CLIP has a mitigator already, and takes one only: wrap the original CLIP, with one mitigator that is "
            "fitted for all attributes"
        )
    width = getattr(found, "out_features", getattr(found, "output_dim", mitigator.width))
    if width != mitigator.width:
        raise ExportError(
            f"this CLIP gives embeddings of width {width}, and the mitigator was fitted on rows of width "
            f"{mitigator.width}: wrap the model that gave those rows"
        )
    found.__class__ = _mitigating(type(found))
    tensor = next(found.parameters())
    found.add_module("mitigator", mitigator.to(tensor.dtype).to(tensor.device))
    return twin


def _place(clip: Module) -> str:
    """Return the part of a model that returns the image embedding; one that another module has does not count."""
    for place in PLACES:
        found = clip
        for name in place.split("."):
            found = found._modules.get(name) if isinstance(found, torch.nn.Module) else None
        if found is not None:
            return place
    raise ExportError(
        "expected a CLIP of open_clip (with visual), or a CLIPModel or SiglipModel of transformers (with "
        f"visual_projection or vision_model.head); got {type(clip).__name__}"
    )


def _twin(module: Module) -> Module:
    """Return a module with the same parts, in dictionaries of its own."""
    if "forward" in vars(module):
        raise ExportError(
            f"forward of this {type(module).__name__} was replaced, as accelerate does, and a copy would still call "
            "that of the original: wrap the model first"
        )
    twin: Module = object.__new__(type(module))
    for name, value in vars(module).items():
        twin.__dict__[name] = value.copy() if isinstance(value, dict | set) else value
    return twin


def _mitigating(kind: type) -> type:
    """Return a subclass of a part of a model, of the same name, whose embeddings are mitigated."""

    def forward(self: Module, *given: Any, **named: Any) -> Any:
        found = kind.forward(self, *given, **named)  # type: ignore[attr-defined]
        # Towers of CoCa return tokens, too.
        return (self.mitigator(found[0]), *found[1:]) if isinstance(found, tuple) else self.mitigator(found)

    def forward_intermediates(self: Module, *given: Any, **named: Any) -> Any:
        found = kind.forward_intermediates(self, *given, **named)  # type: ignore[attr-defined]
        if "image_features" in found:
            found["image_features"] = self.mitigator(found["image_features"])
        return found

    own = {"forward": forward, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    if hasattr(kind, "forward_intermediates"):
        own["forward_intermediates"] = forward_intermediates
    return type(kind.__name__, (kind,), own)
