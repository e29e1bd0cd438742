"""Answers of the jobs of a reproduction, and the rows and figures made from them, as frozen objects."""

from __future__ import annotations

from fairerclip.auditing.group_results import StageReport
from fairerclip.auditing.results import RepresentationRow
from fairerclip.auditing.validation import Count, Keyed, Many, Number, Pair, Part
from fairerclip.study.jobs import Answer, Settings, Words


class Strengths(Part):
    """The τ and τ_z of a fit."""

    tau: Number
    tau_z: Number


class FitAnswer(Answer):
    """Report of one fit of FairerCLIP on the rows of ``split``, with the time and the memory that the fit took.

    ``learned`` is the number of learned values, ``parameters`` are those of a preset, and ``rows`` is the number of
    training rows if only a share of the training split was used.
    """

    report: StageReport
    chosen: Strengths
    seconds: Number
    peak_mb: Number | None = None
    learned: Count
    n_features: Count
    split: Words
    parameters: Settings | None = None
    rows: Count | None = None
    notes: Many[Words] = ()


class PlaneFigures(Part):
    """Figures at one (τ, τ_z); None if there is no solution."""

    tau: Number
    tau_z: Number
    average: Number | None = None
    worst_group: Number | None = None
    gap: Number | None = None
    eod: Number | None = None


class PlaneAnswer(Answer):
    """All points (τ, τ_z) of a plane; ``rescale`` is the factor of τ_z in τ_eff if the plane is one curve."""

    split: Words
    points: Many[PlaneFigures]
    rescale: Number | None = None
    notes: Many[Words] = ()


class InformationAnswer(Answer):
    """Dependence of embeddings on Y and S, and the upper bounds of HSIC on these rows, by measure."""

    stages: Many[RepresentationRow]
    bounds: Keyed[Number]
    notes: Many[Words] = ()


class SkewAnswer(Answer):
    """Skews of both prompts of a pair by convention, None if unbounded, and rank correlations inside groups."""

    k: Count
    split: Words
    prompts: Many[Words]
    skews: Keyed[Many[Number | None]]
    spearman_within: Many[Number | None]
    notes: Many[Words] = ()


class MeanFigures(Part):
    """Means and standard deviations over seeds; ends of intervals are means over seeds of intervals over rows."""

    seeds: Count
    average: Number | None = None
    average_sd: Number | None = None
    train_weighted: Number | None = None
    train_weighted_sd: Number | None = None
    worst_group: Number | None = None
    worst_group_sd: Number | None = None
    gap: Number | None = None
    gap_sd: Number | None = None
    eod: Number | None = None
    eod_sd: Number | None = None
    eod_negative: Number | None = None
    eod_negative_sd: Number | None = None
    worst_ends: Pair | None = None
    eod_ends: Pair | None = None


class MethodRow(Part):
    """One method in a table of the paper; it has an ``error`` if it has no figures.

    ``method`` is None for presets, ``chosen`` has the settings of each run.
    """

    method: Words | None = None
    title: Words
    labels: Words
    error: Words | None = None
    seconds: Number | None = None
    seconds_in_all: Number | None = None
    parameters: Number | None = None
    peak_mb: Number | None = None
    n_features: Count | None = None
    figures: MeanFigures | None = None
    chosen: Many[Settings] = ()
    notes: Many[Words] = ()


class VariantResult(Part):
    """One variant of an ablation; it has an ``error`` if all of its fits failed."""

    figures: MeanFigures | None = None
    chosen: Many[Strengths] = ()
    error: Words | None = None


class FrontResult(Part):
    """Rows of a figure, and the points of its fronts by criterion."""

    rows: Many[MethodRow]
    fronts: Keyed[Many[PlaneFigures]]
