"""Scores of all points of a grid of settings at once, for rows that the solution did not see.

A cross-validation solves the same grid in every fold, for every γ and row weight. Where the text side fills its span,
the image side is one eigenproblem per point (docs/math.md#one-step), and those of all points are solved together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fairerclip._util.types import F64
from fairerclip.errors import NoSolutionError, TextCollapseError
from fairerclip.solver.alternation import Round, Setting
from fairerclip.solver.lowrank import RANK_TOLERANCE
from fairerclip.solver.problem import Sides
from fairerclip.solver.sides import Term
from fairerclip.solver.terms import alignment_map, scores_map


def grid_scores(
    sides: Sides, settings: Sequence[Setting], P: F64, solve: Callable[[Setting], Round]
) -> list[F64 | None]:
    """Return the class scores (m, c) of rows at every setting; None where a setting has no solution.

    Parameters
    ----------
    sides : Sides
        Both sides, for the labels that every setting starts from.
    settings : sequence of Setting
        Points that differ in τ, τ_z, criterion and share of zero-shot scores alone.
    P : array of shape (m, q)
        The rows in the reduced basis of the image side: (Φ − mean) E.
    solve : callable
        Solves one setting by Algorithm 1, with labels that stay fixed; used where the text side does not fill its span.

    Notes
    -----
    O(g·q³ + g·m·q·c) time for g points, without a pass over the rows that were fitted on.
    """
    text = {key: _text_vectors(sides, setting) for key, setting in _by_text(settings).items()}
    together = [
        g
        for g, setting in enumerate(settings)
        if _is_target(sides, setting) and text[_text_key(setting)] is not None
    ]
    out: list[F64 | None] = [None] * len(settings)
    if together:
        points = [settings[g] for g in together]
        vectors = [text[_text_key(setting)] for setting in points]
        for g, found in zip(together, _solve_together(sides, points, vectors, P), strict=True):
            out[g] = found
    for g in sorted(set(range(len(settings))) - set(together)):
        try:
            solved = solve(settings[g])
        except (NoSolutionError, TextCollapseError):
            continue
        out[g] = solved.decision.scores(P @ solved.image.coefficients)
    return out


def _text_key(setting: Setting) -> tuple[Any, ...]:
    return (*setting.text_strengths, setting.criterion, setting.scaling, setting.n_components)


def _by_text(settings: Sequence[Setting]) -> dict[tuple[Any, ...], Setting]:
    """Return one setting for each problem of the text side."""
    return {_text_key(setting): setting for setting in settings}


def _is_target(sides: Sides, setting: Setting) -> bool:
    """Return whether a setting decides by the target, with linear alignment and all dimensions of the classes."""
    present = int(np.count_nonzero(sides.image.table.class_share))
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
    sides: Sides, settings: Sequence[Setting], vectors: Sequence[F64 | None], P: F64
) -> list[F64 | None]:
    """Solve Eq. (7) for every setting with its text vectors (c, r), and return the scores of the rows P (m, q)."""
    image = sides.image
    q = image.reduced.coordinates.shape[0]
    first, T = (
        np.zeros((len(settings), q, q)),
        np.zeros((len(settings), q, q)),
    )  # without alignment, and with it
    aligned: dict[tuple[float, int], Term] = {}
    for g, (setting, z) in enumerate(zip(settings, vectors, strict=True)):
        target, weights = image.target_term(setting.zero_shot), setting.weights("image")
        key = (setting.zero_shot, id(z))
        if weights.alignment and z is not None and key not in aligned:
            aligned[key] = image.term("z", alignment_map(target.A, z))
        penalties = [(-weights.sensitive, term) for term in image.sensitive_terms(setting.criterion)]
        first[g] = _weighted([(1.0, target), *penalties], setting.scaling, q)
        T[g] = first[g] + _weighted(
            [(weights.alignment, aligned[key])] if key in aligned else [], setting.scaling, q
        )
    values, a = np.linalg.eigh((T + T.transpose(0, 2, 1)) / 2)  # rising eigenvalues
    largest = np.abs(values).max(axis=1, initial=0.0)[:, None]
    r = settings[0].n_components
    values, a = values[:, ::-1][:, :r], a[:, :, ::-1][:, :, :r]
    positive = values > RANK_TOLERANCE * largest  # (g, r)
    # Algorithm 1 begins without alignment, and ends there if no direction has a positive objective.
    start = np.linalg.eigvalsh((first + first.transpose(0, 2, 1)) / 2)
    begins = start.max(axis=1, initial=0.0) > RANK_TOLERANCE * np.abs(start).max(axis=1, initial=0.0)
    solved = positive.any(axis=1) & begins
    class_weights, constants = _decisions(sides, settings, a * positive[:, None, :])
    scores = P @ class_weights + constants[:, None, :]  # (g, m, c)
    return [found if is_solved else None for found, is_solved in zip(scores, solved.tolist(), strict=True)]


def _weighted(signed: Sequence[tuple[float, Term]], scaling: str, q: int) -> F64:
    """Return the sum Σ σ M Mᵀ of terms in reduced coordinates (q, q); terms that vanish are left out."""
    parts = [
        (sigma / term.norm if scaling == "spectral" else sigma) * term.B
        for sigma, term in signed
        if sigma != 0 and not term.vanished
    ]
    return np.sum(parts, axis=0) if parts else np.zeros((q, q))


def _decisions(sides: Sides, settings: Sequence[Setting], a: F64) -> tuple[F64, F64]:
    """Return weights (g, q, c) of reduced rows and constants (g, c) of `Decision.by_target` for a (g, q, r)."""
    image = sides.image
    present = image.table.class_share > 0
    c = max(int(present.sum()), 1)
    means = image.class_means(a)  # (g, c, r)
    share = np.zeros((len(settings), 1))
    if image.table.has_scores:
        share = np.where(present, np.array([s.zero_shot for s in settings])[:, None], 1.0)  # (g, c)
    weights = (1 - share)[:, :, None] * means / c
    constants = -(1 - share) * np.sum(means**2, axis=2) / (2 * c)
    if image.table.has_scores:
        A = scores_map(image.table)
        weights = weights + share[:, :, None] * ((image.reduced.coordinates @ A).T @ a)
        constants = constants + share * (image.table.means @ A)
    return a @ weights.transpose(0, 2, 1), constants
