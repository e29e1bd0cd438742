"""What jobs of the paper's tables and figures return, and the rows and figures made of it, as frozen objects."""

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
    """Report of one fit of FairerCLIP on the rows of ``split``, with the seconds and the memory that it took.

    ``learned`` counts learned numbers, ``parameters`` are those of a preset, and ``rows`` is how many rows of a share
    of the training split the fit had.
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
    """Figures of one (τ, τ_z); None where it has no solution."""

    tau: Number
    tau_z: Number
    average: Number | None = None
    worst_group: Number | None = None
    gap: Number | None = None
    eod: Number | None = None


class PlaneAnswer(Answer):
    """Every (τ, τ_z) of a plane; ``rescale`` is what τ_z counts for in τ_eff, where the plane is one curve."""

    split: Words
    points: Many[PlaneFigures]
    rescale: Number | None = None
    notes: Many[Words] = ()


class InformationAnswer(Answer):
    """Dependence of spaces on Y and S, and how large HSIC can be on these rows, by measure."""

    stages: Many[RepresentationRow]
    bounds: Keyed[Number]
    notes: Many[Words] = ()


class SkewAnswer(Answer):
    """Skews of both prompts of a pair by convention, None where unbounded, and rank correlations inside groups."""

    k: Count
    split: Words
    prompts: Many[Words]
    skews: Keyed[Many[Number | None]]
    spearman_within: Many[Number | None]
    notes: Many[Words] = ()


class MeanFigures(Part):
    """Means over seeds with their spread; ends of intervals are means of the seeds' own, and are about the rows."""

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
    """One method in a table of the paper; with ``error`` where it has no figures.

    ``method`` is None for presets, ``chosen`` holds settings by run.
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
    """One variant of an ablation; with ``error`` where all of its fits failed."""

    figures: MeanFigures | None = None
    chosen: Many[Strengths] = ()
    error: Words | None = None


class FrontResult(Part):
    """Rows of a figure, and the points of its fronts by criterion."""

    rows: Many[MethodRow]
    fronts: Keyed[Many[PlaneFigures]]
