"""All points of a grid of settings solved at once: class scores as functions of rows in the reduced basis.

A path and a cross-validation solve the same grid again and again: in every fold, for every γ and row weight. Where the
text side fills its span, the image side is one eigenproblem per point (docs/math.md#one-step), and those of all points
are solved together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairerclip._util.types import F64, Ints
from fairerclip.errors import NoSolutionError, TextCollapseError
from fairerclip.solver.alternation import Round, Setting
from fairerclip.solver.lowrank import RANK_TOLERANCE
from fairerclip.solver.problem import Sides
from fairerclip.solver.sides import Side, Term
from fairerclip.solver.terms import alignment_map, scores_map

VALUES_AT_ONCE = 1 << 22
"""Largest number of values of the matrices that are solved at once: 32 MB, of which there are a few."""


@dataclass(frozen=True, eq=False)
class GridSolution:
    """Points that were solved together: the class scores of reduced rows P (m, q) are P @ weights[i] + constants[i]."""

    tried: Ints
    """(t,) numbers of the settings that can be solved together."""
    places: Ints
    """(k,) numbers of those that have a solution."""
    weights: F64
    """(k, q, c)"""
    constants: F64
    """(k, c)"""


def solve_grid(sides: Sides, settings: Sequence[Setting]) -> GridSolution:
    """Solve all settings together where the text side fills its span.

    Parameters
    ----------
    sides : Sides
        Both sides, for the labels that every setting starts from.
    settings : sequence of Setting
        Points that differ in τ, τ_z, criterion and share of zero-shot scores alone.

    Notes
    -----
    O(g·q³) time for g points, without a pass over the rows that were fitted on.
    """
    text = {key: _text_vectors(sides, setting) for key, setting in _by_text(settings).items()}
    present = int(np.count_nonzero(sides.image.table.class_share))
    tried = [
        g
        for g, setting in enumerate(settings)
        if _is_target(setting, present) and text[_text_key(setting)] is not None
    ]
    q, c = sides.image.reduced.coordinates.shape[0], sides.image.table.n_classes
    each = max(1, VALUES_AT_ONCE // max(1, q * q))
    places: list[int] = []
    weights, constants = [np.zeros((0, q, c))], [np.zeros((0, c))]
    for start in range(0, len(tried), each):
        part = tried[start : start + each]
        points = [settings[g] for g in part]
        solved, own_weights, own_constants = _solve_together(
            sides, points, [text[_text_key(setting)] for setting in points]
        )
        places += [g for g, is_solved in zip(part, solved.tolist(), strict=True) if is_solved]
        weights.append(own_weights[solved])
        constants.append(own_constants[solved])
    return GridSolution(
        np.array(tried, dtype=np.int64),
        np.array(places, dtype=np.int64),
        np.concatenate(weights),
        np.concatenate(constants),
    )


def grid_scores(
    sides: Sides, settings: Sequence[Setting], P: F64, solve: Callable[[Setting], Round]
) -> list[F64 | None]:
    """Return the class scores (m, c) of rows at every setting; None where a setting has no solution.

    Parameters
    ----------
    sides, settings
        As `solve_grid` takes them.
    P : array of shape (m, q)
        The rows in the reduced basis of the image side: (Φ − mean) E.
    solve : callable
        Solves one setting by Algorithm 1, with labels that stay fixed; used where the text side does not fill its span.

    Notes
    -----
    O(g·q³ + g·m·q·c) time for g points, without a pass over the rows that were fitted on.
    """
    together = solve_grid(sides, settings)
    out: list[F64 | None] = [None] * len(settings)
    if len(together.places):
        found = P @ together.weights + together.constants[:, None, :]  # (k, m, c)
        for g, scores in zip(together.places.tolist(), found, strict=True):
            out[g] = scores
    for g in sorted(set(range(len(settings))) - set(together.tried.tolist())):
        try:
            solved = solve(settings[g])
        except (NoSolutionError, TextCollapseError):
            continue
        out[g] = solved.decision.scores(P @ solved.image.coefficients)
    return out


def _text_key(setting: Setting) -> tuple[Any, ...]:
    # Without alignment: where the text side fills its span, it does so for every τ_z.
    return (setting.text_strengths[0], setting.criterion, setting.scaling, setting.n_components)


def _by_text(settings: Sequence[Setting]) -> dict[tuple[Any, ...], Setting]:
    """Return one setting for each problem of the text side."""
    return {_text_key(setting): setting for setting in settings}


def _is_target(setting: Setting, present: int) -> bool:
    """Return whether a setting decides by the target, with linear alignment and all dimensions of the classes."""
    return (
        setting.alignment == "linear" and setting.decision == "target" and setting.n_components == present - 1
    )


def _text_vectors(sides: Sides, setting: Setting) -> F64 | None:
    """Return z_T (c, r) up to a rotation, or None if the text side does not fill its span.

    The alignment term is positive semidefinite. So if the text side has c − 1 positive eigenvalues without it, it has
    them for every image encoder, and the first round is the fixed point.
    """
    present = int(np.count_nonzero(sides.text.table.class_share))
    solution = sides.text.solve(
        setting.weights("text"), None, r=present - 1, criterion=setting.criterion, scaling=setting.scaling
    )
    return sides.text_vectors(solution.coefficients) if solution.n_positive == present - 1 else None


def _solve_together(
    sides: Sides, settings: Sequence[Setting], vectors: Sequence[F64 | None]
) -> tuple[Any, F64, F64]:
    """Solve Eq. (7) for every setting with its text vectors (c, r).

    Returns whether each has a solution (g,), and the weights (g, q, c) and constants (g, c) of the class scores.
    """
    first, T = _signed_sums(sides.image, settings, vectors)
    values, a = np.linalg.eigh(T)  # rising eigenvalues
    largest = np.abs(values).max(axis=1, initial=0.0)[:, None]
    r = settings[0].n_components
    values, a = values[:, ::-1][:, :r], a[:, :, ::-1][:, :, :r]
    positive = values > RANK_TOLERANCE * largest  # (g, r)
    # Algorithm 1 begins without alignment, and ends there if no direction has a positive objective.
    start = np.linalg.eigvalsh(first)
    begins = start.max(axis=1, initial=0.0) > RANK_TOLERANCE * np.abs(start).max(axis=1, initial=0.0)
    return (
        positive.any(axis=1) & begins,
        *_decisions(sides.image, settings, a * positive[:, None, :]),
    )


def _signed_sums(image: Side, settings: Sequence[Setting], vectors: Sequence[F64 | None]) -> tuple[F64, F64]:
    """Return the sums Σ σ M Mᵀ of all terms but the alignment, and of all terms, both (g, q, q).

    Points share their terms: those of the target differ by the share of zero-shot scores, those of S by the criterion.
    """
    scaling = settings[0].scaling
    targets: dict[float, F64] = {}
    penalties: dict[str, F64] = {}
    aligned: dict[tuple[float, int], F64] = {}
    strengths = [setting.weights("image") for setting in settings]
    for setting, z in zip(settings, vectors, strict=True):
        target = image.target_term(setting.zero_shot)
        if setting.zero_shot not in targets:
            targets[setting.zero_shot] = _sum_of(image, [target], scaling)
        if setting.criterion not in penalties:
            penalties[setting.criterion] = _sum_of(image, image.sensitive_terms(setting.criterion), scaling)
        key = (setting.zero_shot, id(z))
        if z is not None and key not in aligned:
            aligned[key] = _sum_of(image, [image.term("z", alignment_map(target.A, z))], scaling)
    first = _at(targets, [s.zero_shot for s in settings])
    penalty = _at(penalties, [s.criterion for s in settings])
    first -= np.array([w.sensitive for w in strengths])[:, None, None] * penalty
    alignment = _at(aligned, [(s.zero_shot, id(z)) for s, z in zip(settings, vectors, strict=True)])
    return first, first + np.array([w.alignment for w in strengths])[:, None, None] * alignment


def _at(matrices: dict[Any, F64], keys: Sequence[Any]) -> F64:
    """Return the matrix of each key (g, q, q)."""
    numbers = {key: number for number, key in enumerate(matrices)}
    return np.array(list(matrices.values()))[[numbers[key] for key in keys]]


def _sum_of(image: Side, terms: Sequence[Term], scaling: str) -> F64:
    """Return the sum of terms in reduced coordinates (q, q), scaled; those that vanish are left out."""
    q = image.reduced.coordinates.shape[0]
    parts = [term.B / term.norm if scaling == "spectral" else term.B for term in terms if not term.vanished]
    total = np.sum(parts, axis=0) if parts else np.zeros((q, q))
    return np.asarray((total + total.T) / 2)


def _decisions(image: Side, settings: Sequence[Setting], a: F64) -> tuple[F64, F64]:
    """Return weights (g, q, c) of reduced rows and constants (g, c) of `Decision.by_target` for a (g, q, r)."""
    present = image.table.class_share > 0
    c = max(int(present.sum()), 1)
    means = image.class_means(a)  # (g, c, r)
    share = np.zeros((len(settings), 1))
    if image.table.has_scores:
        share = np.where(present, np.array([s.zero_shot for s in settings])[:, None], 1.0)  # (g, c)
    weights = (1 - share)[:, :, None] * means / c
    constants = np.broadcast_to(-(1 - share) * np.sum(means**2, axis=2) / (2 * c), means.shape[:2])
    if image.table.has_scores:
        A = scores_map(image.table)
        weights = weights + share[:, :, None] * ((image.reduced.coordinates @ A).T @ a)
        constants = constants + share * (image.table.means @ A)
    return a @ weights.transpose(0, 2, 1), constants
