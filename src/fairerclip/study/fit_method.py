"""One method of the package, trained on a task and ready to be saved: the setting is chosen as in a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairerclip._util.checks import check_range
from fairerclip.baselines.baseline import Baseline
from fairerclip.errors import LabelError, ParameterError
from fairerclip.experiment import Experiment
from fairerclip.study.choose_model import choose_model
from fairerclip.study.method import Method
from fairerclip.study.methods import EMBEDDING, FITTABLE, MAX_STEPS, OWN, check_labels, fit_key


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
    chosen = choose_model(method, experiment, seed, max_steps=max_steps or MAX_STEPS)
    parameters = {**method.fixed, **chosen.parameters}
    return TrainedMethod(method, chosen.complete(), parameters, chosen.seconds, chosen.failures)
