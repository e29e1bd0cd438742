"""`Verdicts`: what labelled rows tell of models, computed once for everything that compares them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairerclip._util.types import F64, Floats
from fairerclip.judging.evidence import Evidence
from fairerclip.judging.objectives import Objective, judge_margins


@dataclass(frozen=True, eq=False)
class Verdicts:
    """Figures of g models on labelled rows, without offsets."""

    draws: F64 | None
    """(g, draws) values of the objective; None for an objective that is a function."""
    right: F64
    """(g,) share of right predictions."""
    hits: F64
    """(g, c, v) expected number of right rows of each cell."""

    @classmethod
    def of(cls, evidence: Evidence, objective: Objective | None, scores: Floats) -> Verdicts:
        """Judge models with scores (g, n, c). O(g·n·(c + v·draws)) time."""
        margins = evidence.margins(scores)
        draws = None if objective is None else judge_margins(evidence, objective, margins)
        return cls(draws, right_share(margins), evidence.hits(scores)[0])

    def at(self, number: int) -> Verdicts:
        """Return the figures of one model, as those of g = 1."""
        one = slice(number, number + 1)
        return Verdicts(None if self.draws is None else self.draws[one], self.right[one], self.hits[one])

    @classmethod
    def joined(cls, parts: Sequence[Verdicts]) -> Verdicts:
        """Return the figures of all models of several."""
        draws = [part.draws for part in parts if part.draws is not None]
        return cls(
            np.concatenate(draws) if len(draws) == len(parts) else None,
            np.concatenate([part.right for part in parts]),
            np.concatenate([part.hits for part in parts]),
        )


def right_share(margins: Floats) -> F64:
    """Return the share of right predictions (g,) from margins (g, n)."""
    return np.asarray((margins > 0).mean(axis=1))
