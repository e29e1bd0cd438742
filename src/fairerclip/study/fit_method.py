"""One method of the package, trained on a task and ready to be saved: the setting is chosen as in a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fairerclip._util.checks import check_range
from fairerclip.auditing.rewording import check_encoder
from fairerclip.baselines.baseline import Baseline
from fairerclip.errors import LabelError, ParameterError
from fairerclip.experiment import Experiment
from fairerclip.model.contents import OF_THE_RUN
from fairerclip.study.choose_model import choose_model
from fairerclip.study.method import Method
from fairerclip.study.methods import EMBEDDING, FITTABLE, MAX_STEPS, OWN, check_labels, fit_key

if TYPE_CHECKING:
    from fairerclip.encoders.encoder import Encoder

TOKENS = 2
"""Number of tokens that are learned through a text encoder, as published."""


@dataclass(frozen=True, eq=False)
class TrainedMethod:
    """A fitted model of a method, its setting, and how the setting was chosen."""

    method: Method
    model: Baseline
    """With the offsets of the choice and its record, ``diagnostics_["tuning"]``."""
    parameters: Mapping[str, Any]
    """Setting of the method."""
    seconds: float
    """Time of the fit of this setting."""
    failures: tuple[str, ...] = ()
    """Settings that diverged."""

    @property
    def how_chosen(self) -> str:
        """Sentence on how the setting was chosen."""
        tuning = (getattr(self.model, "diagnostics_", None) or {}).get("tuning")
        settings = "one setting" if len(self.method.candidates) == 1 else "its published or default setting"
        if tuning is None:
            return (
                f"No labelled rows can choose a setting or class offsets: {self.method.title} has {settings}."
            )
        offsets = "with class offsets" if self.model.offsets_.any() else "without class offsets"
        given = tuning["strategy"].startswith("given")
        return f"Chosen: {settings if given else 'another setting than the default'}, {offsets}."


def fit_method(
    name: str,
    experiment: Experiment,
    *,
    labels: str | None = None,
    seed: int = 0,
    max_steps: int | None = None,
    encoder: Encoder | None = None,
) -> TrainedMethod:
    """Train a method, with the setting and the class offsets that `compare` would choose for it with the same seed.

    Parameters
    ----------
    name : str
        Key or alias of a method other than FairerCLIP, as in `fairerclip.study.methods`.
    experiment : Experiment
        The task, its classes and sensitive attributes.
    labels : {"none", "target", "all"}, optional
        Labels that the method is expected to learn from; others than its own are an error.
    seed : int
        Seed of everything random.
    max_steps : int, optional
        Limit of the training of one setting by gradient, in batches; by default that of a comparison.
    encoder : Encoder, optional
        For prompt-debiasing: the model that embedded the task, through whose text encoder tokens are learned.

    Returns
    -------
    TrainedMethod
        Its ``model`` has ``save``, ``predict``, ``scores`` and ``transform``.
    """
    key = fit_key(name)
    if key == OWN:
        raise ParameterError(f"{OWN} has its own fit and search: use FairerCLIP or FairerCLIPSearch")
    if key == EMBEDDING:
        raise ParameterError(
            f"{EMBEDDING} is no classifier: use EmbeddingMitigator, or fit_mitigator of a task"
        )
    method = FITTABLE[key]
    check_labels(method, labels)
    check_range("seed", seed)
    if max_steps is not None:
        check_range("max_steps", max_steps)
        if not method.gradient:
            raise ParameterError(
                f"max_steps limits training by gradient; {key} is not trained by gradient: leave it out"
            )
    reason = method.why_not(experiment)
    if reason is not None:
        raise LabelError(f"{key} cannot be trained on {experiment.task.name}: {reason}")
    if encoder is not None:
        method = through_encoder(method, experiment, encoder)
    chosen = choose_model(method, experiment, seed, max_steps=max_steps or MAX_STEPS)
    parameters = {
        name: value for name, value in {**method.fixed, **chosen.parameters}.items() if name not in OF_THE_RUN
    }
    return TrainedMethod(method, chosen.complete(), parameters, chosen.seconds, chosen.failures)


def through_encoder(method: Method, experiment: Experiment, encoder: Encoder) -> Method:
    """Return a method that learns tokens through the text encoder, which must be the one that embedded the task."""
    if method.home != "PromptDebiasing":
        raise ParameterError(
            f"an encoder is for prompt-debiasing, which learns tokens through it; {method.key} learns from embeddings: "
            "leave it out"
        )
    check_encoder(experiment.task, encoder)
    return replace(method, fixed={"tokens": TOKENS, "encoder": encoder})
