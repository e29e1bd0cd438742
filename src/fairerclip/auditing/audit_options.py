"""Options of the audit of one task, and the check of their values before any work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fairerclip._util.checks import check_confidence, check_range
from fairerclip.auditing.model_results import Labels
from fairerclip.errors import ParameterError
from fairerclip.experiment import UNKNOWN, Experiment
from fairerclip.metrics.retrieval.skew import pair_codes


@dataclass(frozen=True)
class AuditOptions:
    """Options of an audit.

    Attributes
    ----------
    split : str or None
        Split to report on; None for test, else val, else train.
    labels : {"none", "target", "all"} or None
        Labels that a model fitted here may use, as in `Experiment.fit`; None for "target", or "none" for an
        `EmbeddingMitigator`, which learns from no class labels.
    k : int or None
        Number of top results of a search; None for 1000, or a quarter of the rows if there are fewer than 4000.
    pair : tuple of two str, or None
        The two groups of Bias@k, which is positive if the first is shown more often; None for both groups where there
        are exactly two.
    permutations : int
        Number of permutations for p-values.
    seeds : int
        Number of seeds that the chosen model is fitted with, to measure the spread over seeds.
    tune : bool
        Whether a FairerCLIP fitted here is tuned on the validation split, if that has labels, by its worst group.
    confidence : float
        Level of every interval.
    seed : int
        Seed of everything random.
    source : str
        The task as named on the command line.
    wordings : tuple of (array of shape (m, c, p), tuple of m str) or None
        Prompt embeddings and names of m wordings; None for those of the task.
    """

    split: str | None = None
    labels: Labels | None = None
    k: int | None = None
    pair: tuple[str, ...] | None = None
    permutations: int = 199
    seeds: int = 3
    tune: bool = True
    confidence: float = 0.95
    seed: int = 0
    source: str = "TASK.npz"
    wordings: tuple[Any, tuple[str, ...]] | None = None


def check_options(options: AuditOptions, experiment: Experiment, split_name: str) -> None:
    """Raise for values that would fail only after the work is done."""
    for name in ("seed", "seeds", "permutations"):
        check_range(name, getattr(options, name))
    n = len(experiment.task.split(split_name))
    if options.k is not None and not 1 <= options.k <= n:
        raise ParameterError(f"k must be between 1 and the number of rows, {n}; got {options.k}")
    check_confidence(options.confidence)
    if options.pair is not None:
        _check_pair(options.pair, experiment, split_name)


def _check_pair(pair: tuple[str, ...], experiment: Experiment, split_name: str) -> None:
    """Raise if there are no rankings, or if a pair is not two groups of the split."""
    groups = experiment.groups(experiment.task.split(split_name))
    if experiment.text is None or groups is None:
        raise ParameterError(
            f"pair names two groups of rankings by prompts, and {experiment.task.name} has no prompts to rank by: "
            "leave it out"
        )
    pair_codes(pair, sorted({*groups[groups != UNKNOWN].tolist()}))
