"""Results of an audit about its model, as frozen objects: how it was fitted and how it was chosen."""

from __future__ import annotations

from typing import Literal

from fairerclip.auditing.group_results import Command
from fairerclip.auditing.validation import Boolean, Count, Keyed, Many, Number, Part, Scalar, Share, Text

Known = Literal["known", "partly guessed", "guessed"]
Labels = Literal["none", "target", "all"]
Method = Literal[
    "FairerCLIP",
    "zero-shot",
    "zero-shot with class offsets",
    "orthogonal prompts",
    "orthogonal prompts with class offsets",
]
"""What a model of FairerCLIP is: learned encoders, or a zero-shot classifier that a search kept. The method of a
baseline is its title."""


class TrainingSection(Part):
    """Rows that a model was fitted on, and how many of their labels were predicted from prompts (guessed).

    ``sensitive_guessed`` is by attribute.
    """

    rows: Count
    target: Known
    target_guessed: Count
    sensitive_guessed: Keyed[Count]


class TuningSection(Part):
    """How a search chose a model, and the model's figures on the rows that were used to choose it.

    ``folds`` is None where all rows were validation rows, else the number of folds of a cross-validation on the
    training rows; ``validation_rows`` of the rows are validation rows. ``gain`` is that of the objective over the
    parameters that were given, with its standard deviation ``doubt``.
    """

    objective: Text
    rows: Count
    groups: Text | None = None
    accuracy_floor: Number | None = None
    strategy: Text | None = None
    validation_rows: Count | None = None
    gain: Number | None = None
    doubt: Number | None = None
    average: Share | None = None
    worst_group: Share | None = None
    eod: Number | None = None
    max_skew: Number | None = None
    strength: Number | None = None
    folds: Count | None = None


class SensitiveSource(Part):
    """Where a mitigator has the values of one attribute from.

    ``given`` tells whether the values of the rows of the fit were given; if not, ``reader`` is what their reader was
    learned from, and ``labelled_rows`` the number of labelled rows among that.
    """

    given: Boolean
    reader: Text | None = None
    labelled_rows: Count | None = None


class MitigatorSection(Part):
    """An `EmbeddingMitigator`: ``rows`` of its fit, and by attribute or combination its strength and what is left.

    ``remaining`` is the share of the dependence on S that is left on the rows of the fit. ``drift`` are warnings on
    differences between the rows of the fit and the audited rows.
    """

    rows: Count
    attributes: Keyed[SensitiveSource]
    strengths: Keyed[Share]
    remaining: Keyed[Share]
    drift: Many[Text] = ()


class ModelSection(Part):
    """The model after mitigation; ``command`` is None for a model that was given.

    ``labels`` are those that a model fitted here was given, and those that a baseline learns from. ``source`` tells
    whether the model was fitted here or given. Only FairerCLIP has ``tau``, ``tau_z``, ``criterion`` and ``n_iter``,
    only a baseline or a mitigator has ``paper``.
    """

    labels: Labels | None = None
    tau: Number | None = None
    tau_z: Number | None = None
    criterion: Text | None = None
    n_iter: Count | None = None
    parameters: Keyed[Scalar]
    command: Command | None = None
    seconds: Number | None = None
    source: Text
    method: Text | None = None
    paper: Text | None = None
    training: TrainingSection | None = None
    tuning: TuningSection | None = None
    mitigator: MitigatorSection | None = None
