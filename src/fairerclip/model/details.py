"""`ModelDetails`: what is known of a model besides its numbers, for its file and its card."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from fairerclip.data.provenance import Provenance
from fairerclip.errors import ModelFileError, ParameterError, ProvenanceError

MAX_ENTRIES = 10_000
"""Most entries of one list of a model's details."""
USED_LABELS = ("none", "target", "all", "validation")
"""Labels that a model may have been fitted with."""


@dataclass(frozen=True)
class ModelMetric:
    """A figure of a model, measured on labelled rows.

    Attributes
    ----------
    name : str
        Name, such as ``"worst_group"``.
    stage : str
        ``"after"`` for the model, ``"before"`` for zero-shot on the same rows.
    split : str
        Rows that it was measured on.
    value : float
        The figure.
    attribute : str or None
        The sensitive attribute that it is about, where there are several.
    low, high : float or None
        Its interval; None where there is none.
    confidence : float or None
        Confidence of the interval.
    """

    name: str
    stage: str
    split: str
    value: float
    attribute: str | None = None
    low: float | None = None
    high: float | None = None
    confidence: float | None = None

    def __post_init__(self) -> None:
        texts = isinstance(self.name, str) and isinstance(self.split, str)
        texts = texts and (self.attribute is None or isinstance(self.attribute, str))
        numbers = [self.value, *(v for v in (self.low, self.high, self.confidence) if v is not None)]
        finite = all(type(v) in (int, float) and abs(v) <= sys.float_info.max for v in numbers)
        if not texts or self.stage not in ("before", "after") or not finite:
            raise ParameterError(
                "a metric of a model has a name, the stage 'before' or 'after', a split and finite numbers; got "
                f"{asdict(self)!r:.200}"
            )


@dataclass(frozen=True)
class GroupCount:
    """Number of training rows of a class and a sensitive value."""

    y: str
    s: str
    n: int

    def __post_init__(self) -> None:
        if not (isinstance(self.y, str) and isinstance(self.s, str) and type(self.n) is int and self.n >= 0):
            raise ParameterError(
                f"a group has a class, a sensitive value and a number of rows; got {asdict(self)!r:.200}"
            )


@dataclass(frozen=True)
class ModelDetails:
    """What is known of a model besides its numbers; `fairerclip fit` fills it from the task.

    Everything is text and counts of groups: nothing is about a single row.

    Attributes
    ----------
    task : str or None
        Name of the task that it was fitted on.
    simulated : bool
        Whether the embeddings of the task are random.
    labels : str or None
        Labels of the training rows that were used: "none", "target" or "all"; or "validation" for a method that learns
        from the labels of the validation rows.
    prompts : mapping from class to list of str
        Sentences of each class.
    sensitive : mapping from attribute to list of str
        Names of the values of each sensitive attribute.
    sensitive_prompts : mapping from attribute to list of str
        Sentences of the values, in their order.
    groups : tuple of GroupCount
        Training rows of each class and sensitive value.
    provenance : Provenance or None
        How the embeddings were made.
    metrics : tuple of ModelMetric
        Figures, with intervals where there are some.

    Examples
    --------
    >>> known = ModelDetails(task="birds", prompts={"owl": ["a photo of an owl"]})
    >>> ModelDetails.from_dict(known.to_dict()) == known
    True
    """

    task: str | None = None
    simulated: bool = False
    labels: str | None = None
    prompts: Mapping[str, list[str]] = field(default_factory=dict)
    sensitive: Mapping[str, list[str]] = field(default_factory=dict)
    sensitive_prompts: Mapping[str, list[str]] = field(default_factory=dict)
    groups: tuple[GroupCount, ...] = ()
    provenance: Provenance | None = None
    metrics: tuple[ModelMetric, ...] = ()

    def __post_init__(self) -> None:
        valid = {
            "task": self.task is None or isinstance(self.task, str),
            "simulated": isinstance(self.simulated, bool),
            "labels": self.labels in (None, *USED_LABELS),
            **{name: _lists(getattr(self, name)) for name in ("prompts", "sensitive", "sensitive_prompts")},
            "groups": _all(self.groups, GroupCount),
            "provenance": self.provenance is None or isinstance(self.provenance, Provenance),
            "metrics": _all(self.metrics, ModelMetric),
        }
        wrong = [name for name, fine in valid.items() if not fine]
        if wrong:
            raise ParameterError(f"details of a model: {wrong} are not as ModelDetails describes them")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            **{f.name: getattr(self, f.name) for f in fields(self)},
            **{
                name: {key: list(texts) for key, texts in getattr(self, name).items()}
                for name in ("prompts", "sensitive", "sensitive_prompts")
            },
            "groups": [asdict(group) for group in self.groups],
            "provenance": None if self.provenance is None else self.provenance.to_dict(),
            "metrics": [asdict(metric) for metric in self.metrics],
        }

    @classmethod
    def from_dict(cls, values: Any) -> ModelDetails:
        """Return the details that `to_dict` wrote; raise a `ModelFileError` on missing and unknown keys."""
        entries = _entries(values, cls, "details")
        made = entries["provenance"]
        try:
            return cls(
                **{
                    **entries,
                    "groups": tuple(GroupCount(**e) for e in _listed(entries["groups"], GroupCount)),
                    "metrics": tuple(ModelMetric(**e) for e in _listed(entries["metrics"], ModelMetric)),
                    "provenance": None if made is None else Provenance.from_dict(made),
                }
            )
        except (ParameterError, ProvenanceError) as problem:
            unknown = isinstance(problem, ProvenanceError) and "unknown" in str(problem)
            raise ModelFileError(str(problem)).because("unknown-field" if unknown else "value") from None


def _entries(values: Any, cls: type, where: str) -> dict[str, Any]:
    """Return the entries of an object of JSON whose keys are the fields of a class."""
    if not isinstance(values, dict):
        raise ModelFileError(f"{where}: expected an object, got {type(values).__name__}").because("value")
    odd = sorted(set(values) ^ {f.name for f in fields(cls)})
    if odd:
        raise ModelFileError(f"{where}: {odd[:5]!r:.200} are missing or unknown").because("unknown-field")
    return values


def _listed(values: Any, cls: type) -> list[dict[str, Any]]:
    if not isinstance(values, list) or len(values) > MAX_ENTRIES:
        raise ModelFileError(f"details: expected lists of at most {MAX_ENTRIES:,} entries").because("value")
    return [_entries(value, cls, "an entry of details") for value in values]


def _lists(values: Any) -> bool:
    """Return whether these are lists of text by name, not too many and none of them too long."""
    return (
        isinstance(values, Mapping)
        and len(values) <= MAX_ENTRIES
        and all(isinstance(name, str) and _texts(texts) for name, texts in values.items())
    )


def _texts(values: Any) -> bool:
    return (
        isinstance(values, list | tuple)
        and len(values) <= MAX_ENTRIES
        and all(isinstance(text, str) for text in values)
    )


def _all(values: Any, cls: type) -> bool:
    return (
        isinstance(values, tuple) and len(values) <= MAX_ENTRIES and all(isinstance(v, cls) for v in values)
    )


def forget_details(model: Any) -> None:
    """Drop the details that a model was loaded with: it is fitted again, or changed."""
    vars(model).pop("details_", None)
