"""Fitted models of every kind, and what they answer, for the tests of exports."""

import functools
import warnings

import numpy as np

from fairerclip import EmbeddingMitigator
from fairerclip.baselines import (
    DFR,
    LEACE,
    PPA,
    PRISM,
    SFID,
    SPD,
    CLIPClip,
    LinearProbe,
    NeutralRepresentation,
    OrthCali,
    OrthProj,
    RoboShot,
    WiSE,
    ZeroShot,
)
from fairerclip.baselines.mitigated_zero_shot import MitigatedZeroShot
from fairerclip.errors import TextCollapseWarning
from sample_rows import Embeddings
from small_models import small

SCORES = 1e-4
"""Largest difference of a score that is promised."""
E = Embeddings(seed=1, n=300, n_classes=3, n_sensitive=3, correlation=0.5)
NEW = Embeddings(seed=2, n=200, n_classes=3, n_sensitive=3, correlation=0.5).X.astype(np.float32)
"""Rows of new images."""
NAMES = np.array(["cat", "Hündin", "鳥"])
TEXT = dict(zip(NAMES.tolist(), E.text, strict=True))
VALUES = dict(zip("abc", E.sensitive_text, strict=True))


def fairer(**parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TextCollapseWarning)  # one dimension is too few for three prompts
        return small(**parameters).fit(E.X, NAMES[E.y], text=TEXT, sensitive_text=VALUES)


def adjusted(**changes):
    return fairer().at(**changes)


def mitigated(crossed=False, **parameters):
    second = np.where(E.y == 0, "even", "odd")
    known = {"place": np.array(list("abc"))[E.s], "second": second}
    terms = {"sensitive_terms": "intersection"} if crossed else {}
    return EmbeddingMitigator(**terms, **parameters).fit(E.X, sensitive_features=known)


def baseline(model):
    given = {"text": TEXT, "sensitive_text": VALUES, "validation": (E.X, NAMES[E.y], E.s)}
    return model.fit(E.X, NAMES[E.y], **given)


def adapter(**parameters):
    """An adapter with weights of its own, without training."""
    from fairerclip.baselines import Adapter

    rng, model = np.random.default_rng(0), Adapter(**parameters)
    model.classes_, model.n_features_in_ = NAMES, 12
    model.hidden_weight_, model.hidden_bias_ = rng.normal(size=(7, 12)), rng.normal(size=7)
    model.output_weight_, model.output_bias_ = rng.normal(size=(12, 7)), rng.normal(size=12)
    model.text_, model.offsets_ = E.text, np.array([0.5, 0.0, -0.5])
    return model


def residual():
    """A DeAR with weights of its own, without training."""
    from fairerclip.baselines import DeAR

    rng, model = np.random.default_rng(0), DeAR()
    model.classes_, model.n_features_in_ = NAMES, 12
    model.residual_weight_, model.residual_bias_ = 0.3 * rng.normal(size=(12, 12)), 0.1 * rng.normal(size=12)
    model.text_, model.offsets_ = E.text, np.array([0.5, 0.0, -0.5])
    return model


def addition():
    """A PromptDebiasing with weights of its own, without training."""
    from fairerclip.baselines import PromptDebiasing

    rng, model = np.random.default_rng(1), PromptDebiasing()
    model.classes_, model.n_features_in_ = NAMES, 12
    model.offset_, model.left_, model.right_ = (0.3 * rng.normal(size=n) for n in (12, (12, 3), (3, 12)))
    model.offsets_ = np.zeros(3)
    model.text_ = E.text
    model.text_ = model.transform_text(E.text)
    return model


KINDS = {
    **{
        f"{kernel}, {decision}, normalize={normalize}": functools.partial(
            fairer, kernel=kernel, decision=decision, normalize=normalize
        )
        for kernel, decision, normalize in [
            ("rbf", "target", True),
            ("rbf", "prompts", False),
            ("orthogonal", "prompts", True),
            ("nystroem", "target", False),
            ("exact", "prompts", True),
            ("linear", "target", True),
            ("linear", "prompts", False),
        ]
    },
    "zero-shot share": functools.partial(fairer, zero_shot=0.7, tau=0.3),
    "one dimension": functools.partial(fairer, n_components=1),
    "from the mean": functools.partial(fairer, decision="prompts", decision_zero="mean"),
    "narrow kernel": functools.partial(fairer, bandwidth=0.01),
    "offsets": functools.partial(adjusted, offsets=[0.2, -0.1, 0.0]),
    "adapter": adapter,
    "DeAR": residual,
    "prompt debiasing": addition,
    "CLIP-Adapter": functools.partial(adapter, variant="clip-adapter", ratio=0.3),
    **{
        str(model): functools.partial(baseline, model)
        for model in (
            ZeroShot(),
            LinearProbe(),
            DFR(C=1.0, n_refits=2, random_state=0),
            OrthProj(),
            OrthCali(),
            LEACE(),
            LEACE("probe"),
            PRISM(start="identity", lr=0.01),
            RoboShot(boost=0.5),
            WiSE(),
            PPA(random_state=0),
            CLIPClip(),
            SFID(0.2, random_state=0),
            SPD(2, random_state=0),
            NeutralRepresentation(),
        )
    },
    "shifted zero-shot": lambda: baseline(ZeroShot()).at(offsets=[0.1, 0.0, 0.05]),
    "mitigator": mitigated,
    "mitigator, unit": functools.partial(mitigated, unit=True, strength=0.7),
    "mitigator, crossed": functools.partial(mitigated, crossed=True),
    "mitigator with classes": lambda: MitigatedZeroShot.of(mitigated(), TEXT),
}
"""Name → function that fits a model."""


@functools.cache
def model_of(kind):
    return KINDS[kind]()


def answers(model, part, rows):
    """What the package answers, by the name of the output."""
    if part == "classifier":
        probabilities = (
            {"probabilities": model.predict_proba(rows)} if hasattr(model, "predict_proba") else {}
        )
        return {"scores": model.scores(rows), **probabilities}
    if part == "text":
        return {"representation": model.transform_text(rows)}
    name = "mitigated" if isinstance(model, EmbeddingMitigator) else "representation"
    return {name: model.transform(rows)}
