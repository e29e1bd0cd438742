"""The candidates of a search, their figures on the rows that judge them, and the course of the search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip.judging.choose import Choice
from fairerclip.judging.evidence import Evidence
from fairerclip.judging.objectives import Objective
from fairerclip.judging.verdicts import Verdicts

F32 = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Candidate:
    """One model of a search: parameters that fit it, and its scores (n, c) on the judged rows."""

    parameters: Mapping[str, Any]
    fit: int
    """Number of its costly fit; candidates of one fit differ in free parameters."""
    scores: F32 = field(repr=False)
    judged: dict[str | None, tuple[Evidence, Verdicts]] = field(default_factory=dict, repr=False)
    """Figures by the name of the objective, with the rows that gave them; filled by `verdicts_of`."""


@dataclass(frozen=True)
class Pool:
    """The candidates of a search, and the course of the search."""

    candidates: list[Candidate]
    given: int | None
    """Index of the candidate with the given parameters; None if they have no solution."""
    grid: Mapping[str, Sequence[Any]]
    fits: int
    planned: int
    seconds: float
    failures: list[str]

    @property
    def scores(self) -> F32:
        """(g, n, c) scores of all candidates."""
        return np.array([candidate.scores for candidate in self.candidates])

    @property
    def reference(self) -> int:
        """Index of the candidate that others are compared with: the given one, or the first one without it."""
        return 0 if self.given is None else self.given

    def verdicts(self, evidence: Evidence, objective: Objective | None) -> Verdicts:
        """Return the figures of all candidates on labelled rows."""
        return verdicts_of(self.candidates, evidence, objective)

    def named(self, choice: Choice) -> Choice:
        """Return a choice that is called given only if the given parameters have a solution."""
        return choice if self.given is not None else replace(choice, is_reference=False)


def verdicts_of(candidates: Sequence[Candidate], evidence: Evidence, objective: Objective | None) -> Verdicts:
    """Return the figures of candidates on labelled rows; each candidate is judged once by an objective.

    An accuracy floor makes no difference to the figures.
    """
    name = None if objective is None else objective.name
    left = [c for c in candidates if name not in c.judged or c.judged[name][0] is not evidence]
    if left:
        found = Verdicts.of(evidence, objective, np.array([c.scores for c in left]))
        for number, candidate in enumerate(left):
            candidate.judged[name] = (evidence, found.at(number))
    return Verdicts.joined([c.judged[name][1] for c in candidates])


def neighbours(pool: Pool, best: Candidate) -> list[Candidate]:
    """Return the candidates of the same fit that are one grid step away in one free parameter."""
    if "tau" not in best.parameters:
        return []
    out = []
    for candidate in pool.candidates:
        if candidate.fit != best.fit or candidate is best:
            continue
        steps = int(candidate.parameters["criterion"] != best.parameters["criterion"])
        for name in ("tau", "zero_shot"):
            order = sorted({c.parameters[name] for c in pool.candidates if c.fit == best.fit})
            steps += abs(order.index(candidate.parameters[name]) - order.index(best.parameters[name]))
        if steps == 1:
            out.append(candidate)
    return out
