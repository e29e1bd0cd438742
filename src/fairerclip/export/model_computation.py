"""The functions of every kind of fitted model as computations: the one place that export has their maths.

`parts_of` names the functions of a model that can leave the package, and `computation_of` describes one of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fairerclip._util.types import F64
from fairerclip.baselines import BASELINES
from fairerclip.baselines.adapter import Adapted, Adapter
from fairerclip.baselines.baseline import Baseline
from fairerclip.baselines.bend_vlm import BendVLM
from fairerclip.baselines.clip_clip import CLIPClip
from fairerclip.baselines.dear import DeAR
from fairerclip.baselines.heads import CosineHead, LinearHead
from fairerclip.baselines.leace import LEACE
from fairerclip.baselines.mitigated_zero_shot import MitigatedZeroShot
from fairerclip.baselines.neutral_representation import NeutralRepresentation
from fairerclip.baselines.orth_cali import OrthCali
from fairerclip.baselines.orth_proj import OrthProj
from fairerclip.baselines.prism import PRISM
from fairerclip.baselines.prompt_debiasing import PromptDebiasing
from fairerclip.baselines.roboshot import RoboShot
from fairerclip.baselines.sfid import SFID
from fairerclip.baselines.spd import SPD
from fairerclip.baselines.wise import WiSE
from fairerclip.embedding.mitigator import EmbeddingMitigator
from fairerclip.errors import ExportError
from fairerclip.export.computation import (
    Affine,
    Computation,
    Cosine,
    Kernel,
    Positive,
    Probabilities,
    Scaled,
)
from fairerclip.features import FeatureMap
from fairerclip.features.fourier import FourierFeatures
from fairerclip.features.landmarks import LandmarkFeatures
from fairerclip.features.linear import LinearFeatures
from fairerclip.model.estimator import FairerCLIP

PARTS = ("classifier", "image", "text")
"""Functions of a model: rows → class scores, image rows → embeddings, and prompt rows → embeddings."""
LARGEST_PHASE = 100.0
"""Largest bound of a phase x·ω whose cosine is taken in float32: the error of a phase is about 1e-7 of the bound."""
NO_EXPORT = "there is no form of it outside of the package; `apply` takes it"
"""Why a method is not exported."""
MOST_BYTES = (1 << 31) - (1 << 22)
"""Most bytes of the constants: a file of ONNX, a protocol buffer, is smaller than 2 GiB."""


def parts_of(model: Any) -> tuple[str, ...]:
    """Return the functions that a fitted model has, out of `PARTS`; the first one is its default.

    Examples
    --------
    >>> from fairerclip.baselines import ZeroShot
    >>> parts_of(ZeroShot().fit([[1.0, 0.0], [0.0, 1.0]], text={"cat": [1.0, 0.1], "dog": [0.1, 1.0]}))
    ('classifier',)
    """
    if isinstance(model, EmbeddingMitigator):
        check_is_fitted(model)
        return ("image",)
    if isinstance(model, FairerCLIP):
        check_is_fitted(model)
        return PARTS[:2] if model.fitted_.weighs_classes else PARTS
    if isinstance(model, Baseline):
        check_is_fitted(model, model.fitted)
        has = {
            "classifier": True,
            "image": model.changes_embeddings,
            "text": model.changes_prompts and not isinstance(model, BendVLM) and not _has_tokens(model),
        }
        return tuple(part for part in PARTS if has[part])
    best = " (give its best_estimator_)" if hasattr(model, "best_estimator_") else ""
    raise ExportError(
        "expected a fitted model: FairerCLIP, EmbeddingMitigator or a baseline of fairerclip.baselines; got "
        f"{type(model).__name__}{best}"
    )


def computation_of(model: Any, part: str | None = None) -> Computation:
    """Return one function of a fitted model; by default its classifier, or the map of a mitigator."""
    parts = parts_of(model)
    chosen = parts[0] if part is None else part
    if chosen not in PARTS:
        raise ExportError(f"part must be one of {', '.join(PARTS)}; got {part!r}")
    if chosen not in parts:
        raise ExportError(_why_not(model, chosen, parts))
    if isinstance(model, EmbeddingMitigator):
        found = _mitigator(model)
    elif isinstance(model, FairerCLIP):
        found = _fairerclip(model, chosen)
    else:
        found = _baseline(model, chosen)
    odd = [label for label in found.labels() if not isinstance(label, str | bool | int | float)]
    if odd:
        raise ExportError(
            f"labels that leave the package are text, numbers or booleans; got {type(odd[0]).__name__} {odd[0]!r:.60}: "
            "relabel before fitting"
        )
    if found.constant_bytes > MOST_BYTES:
        raise ExportError(
            f"the arrays of this model take {found.constant_bytes:,} bytes, and a file holds at most {MOST_BYTES:,}: "
            "fit with fewer n_features"
        )
    return found


def _why_not(model: Any, part: str, parts: Sequence[str]) -> str:
    name = type(model).__name__
    reason = f"a fitted {name} has no part {part!r}"
    if isinstance(model, EmbeddingMitigator):
        reason += ": queries are used as the text tower gives them" if part == "text" else ""
    elif part == "text" and isinstance(model, FairerCLIP):
        reason += (
            ": with decision='target' the scores are inner products with weights of the classes, and no other prompt "
            "has any; fit with decision='prompts' for a text encoder, or use EmbeddingMitigator"
        )
    elif part == "text" and isinstance(model, BendVLM):
        reason += ": it compares every prompt with reference images; `transform_text` maps prompts"
    elif part == "text" and _has_tokens(model):
        reason += ": its tokens go through the text encoder; `transform_text` embeds sentences with them"
    elif part == "image":
        reason += ": it classifies the embeddings as they are"
    return f"{reason}. Export {' or '.join(parts)}"


def _has_tokens(model: Any) -> bool:
    return isinstance(model, PromptDebiasing) and model.has_tokens


# FairerCLIP -----------------------------------------------------------------------------------------


def _fairerclip(model: FairerCLIP, part: str) -> Computation:
    fitted = model.fitted_
    found = Computation(fitted.features.n_features_in, "FairerCLIP", part, fitted.normalize)
    found.wide = part == "text"  # as in the package: prompts are few, and may be near each other
    x = found.rows()
    if part == "text":
        side = (model.text_features_, model.text_mean_, model.text_components_, model.text_intercept_)
    else:
        side = (model.features_, model.mean_, model.components_, model.intercept_)
    features, mean, weight, bias = side
    if part == "classifier":  # both affine maps as one
        bias = bias @ model.score_weights_.T + model.score_constants_
        weight = weight @ model.score_weights_.T
    length = 1.0 if fitted.normalize else float(fitted.rows.lengths[-1])
    out = _of_features(found, x, features, mean, weight, bias, length)
    if part != "classifier":
        found.outputs["representation"] = out
        return found
    found.classes = model.classes_
    found.outputs["scores"] = out
    found.outputs["probabilities"] = found.add(Probabilities, out, factor=float(model.temperature_))
    return found


def _of_features(
    found: Computation,
    x: int,
    features: FeatureMap,
    mean: F64,
    weight: F64,
    bias: F64,
    length: float = 1.0,
) -> int:
    """Add ``(Φ(x) − mean) @ weight + bias``; ``length`` is that of a long row."""
    if isinstance(features, FourierFeatures):
        scale = math.sqrt(2.0 / features.n_features)
        wide = length * float(np.linalg.norm(features.omega, axis=0).max()) > LARGEST_PHASE
        phase = found.add(Affine, x, weight=features.omega, bias=features.offset, wide=wide)
        cosines = found.add(Cosine, phase, wide=wide)
        return found.add(Affine, cosines, weight=scale * weight, bias=bias, centre=mean / scale)
    if isinstance(features, LinearFeatures):
        s = features.scale
        return found.add(Affine, x, weight=weight / s, bias=bias, centre=mean * s)
    if isinstance(features, LandmarkFeatures):
        factor = 1.0 / (math.sqrt(2.0) * features.bandwidth)
        centre = features.landmarks.mean(axis=0) * factor
        landmarks = features.landmarks * factor - centre
        kernel = found.add(Kernel, x, landmarks=landmarks, centre=centre, factor=factor, wide=True)
        constant = bias - mean @ weight
        return found.add(Affine, kernel, weight=features.projection @ weight, bias=constant, wide=True)
    raise ExportError(f"features of type {type(features).__name__} cannot be exported")


# EmbeddingMitigator ---------------------------------------------------------------------------------


def _mitigator(model: EmbeddingMitigator) -> Computation:
    found = Computation(model.n_features_in_, "EmbeddingMitigator", "image", True, same_space=True)
    found.outputs["mitigated"] = _mitigated(found, found.rows(), model)
    return found


def _mitigated(found: Computation, x: int, model: EmbeddingMitigator) -> int:
    """Add the map of a mitigator, ``x − (x − mean)·right·left``, of unit rows."""
    fitted = model.fitted_.map
    if not fitted.right.size:  # nothing to mitigate
        return x
    removed = found.add(Affine, x, weight=fitted.right, centre=fitted.mean)
    change = found.add(Affine, removed, weight=-fitted.left)
    mapped = found.total(x, change)
    return found.unit(mapped) if model.unit else mapped


# Baselines ------------------------------------------------------------------------------------------


def _baseline(model: Baseline, part: str) -> Computation:
    found = Computation(int(model.n_features_in_), type(model).__name__, part, True)
    if part == "text":
        found.normalize = found.wide = True  # as in the package
        found.outputs["representation"] = _projected(found, found.rows(), model)
        return found
    embedded = _embedded(found, found.rows(), model)
    if part == "image":
        found.outputs["representation"] = embedded
        return found
    found.classes = model.classes_
    found.outputs["scores"] = _head(found, embedded, model)
    return found


def _embedded(found: Computation, x: int, model: Baseline) -> int:
    """Add what the method classifies."""
    if isinstance(model, LEACE):
        return _less(found, found.unit(x), model.right_, model.left_, model.mean_)
    if isinstance(model, PRISM):
        return found.add(Affine, x, weight=model.map_.T)
    if isinstance(model, RoboShot):
        x = _less(found, x, model.remove * model.harmful_.T, model.harmful_)
        return found.unit(_less(found, x, -model.boost * model.helpful_.T, model.helpful_))
    if isinstance(model, CLIPClip | SFID):
        return _overwritten(found, x, model.kept_, model.image_fill_ if isinstance(model, SFID) else None)
    if isinstance(model, SPD):
        return _less(found, x, model.basis_.T, model.basis_, model.image_fill_)
    if isinstance(model, NeutralRepresentation):
        return _less(found, x, model.right_, model.left_)
    if isinstance(model, DeAR):
        residual = found.add(Affine, x, weight=model.residual_weight_.T, bias=model.residual_bias_)
        return found.total(x, residual)
    if isinstance(model, MitigatedZeroShot):
        return _mitigated(found, x, model.mitigator_)
    if not isinstance(model, Adapted):
        if model.changes_embeddings:
            raise ExportError(f"{type(model).__name__} cannot be exported: {NO_EXPORT}")
        return x
    share = model.ratio if isinstance(model, Adapter) and model.variant == "clip-adapter" else None
    hidden = found.add(Affine, x, weight=model.hidden_weight_.T, bias=model.hidden_bias_)
    factor = 1.0 if share is None else share  # it is positive, so that it can be inside of max(·, 0)
    output = found.add(
        Affine,
        found.add(Positive, hidden),
        weight=factor * model.output_weight_.T,
        bias=factor * model.output_bias_,
    )
    if share is None:
        return output
    return found.total(found.add(Positive, output), found.add(Scaled, x, factor=1.0 - share))


def _head(found: Computation, embedded: int, model: Baseline) -> int:
    """Add the class scores of what the method classifies, with offsets."""
    if isinstance(model, CosineHead | Adapted):
        factor = model.temperature if isinstance(model, Adapted) else 1.0
        return found.add(Affine, found.unit(embedded), weight=factor * model.text_.T, bias=model.offsets_)
    if isinstance(model, MitigatedZeroShot):
        return found.add(Affine, embedded, weight=model.text_.T, bias=model.offsets_)
    if isinstance(model, WiSE):
        embedded = found.unit(embedded)
    elif not isinstance(model, LinearHead | LEACE):
        name = type(model).__name__
        if name not in BASELINES:
            raise ExportError(f"{name} is not a method of this package, and cannot be exported")
        raise ExportError(f"{name} cannot be exported: {NO_EXPORT}")
    return found.add(Affine, embedded, weight=model.coef_.T, bias=model.intercept_ + model.offsets_)


def _projected(found: Computation, x: int, model: Any) -> int:
    """Add the map of prompts of the methods that change them, at unit length."""
    if isinstance(model, PRISM):
        return found.unit(found.add(Affine, x, weight=model.map_.T))
    if isinstance(model, CLIPClip | SFID):
        fill = model.text_fill_ if isinstance(model, SFID) else None
        return found.unit(_overwritten(found, x, model.kept_, fill))
    if isinstance(model, SPD):
        return found.unit(_less(found, x, model.basis_.T, model.basis_, model.text_fill_))
    if isinstance(model, PromptDebiasing):
        inside = found.add(Affine, x, weight=model.right_.T)
        change = found.add(Affine, inside, weight=model.left_.T, bias=model.offset_)
        return found.unit(found.total(x, change))
    if isinstance(model, OrthCali):
        x = _less(found, x, model.directions_.T * model.shrink_, model.directions_)
    elif not isinstance(model, OrthProj):
        raise ExportError(f"{type(model).__name__} cannot be exported: {NO_EXPORT}")
    return found.unit(_less(found, x, model.basis_.T, model.basis_))


def _less(found: Computation, x: int, right: F64, left: F64, centre: F64 | None = None) -> int:
    """Add ``x − (x − centre)·right·left``."""
    if not right.size:
        return x
    inside = found.add(Affine, x, weight=right, centre=centre)
    return found.total(x, found.add(Affine, inside, weight=-left))


def _overwritten(found: Computation, x: int, kept: F64, fill: F64 | None) -> int:
    """Add ``x·kept + fill`` for kept (p,) of zeros and ones."""
    axes = np.eye(len(kept))[kept == 0]
    return _less(found, x, axes.T, axes, fill)
