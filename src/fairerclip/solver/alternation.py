"""Algorithm 1: alternate the closed forms of both sides, with all, some or no labels known."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import F64, Ints
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.errors import (
    DroppedTermWarning,
    FairerClipWarning,
    LabelCycleWarning,
    NoSolutionError,
    NotConvergedWarning,
    ParameterError,
    RankWarning,
    TextCollapseError,
    TextCollapseWarning,
    VanishedLabelWarning,
)
from fairerclip.solver.decision import Decision
from fairerclip.solver.pairing import image_features, procrustes, text_features, zero_points
from fairerclip.solver.problem import Problem, Sides
from fairerclip.solver.sides import SideSolution, Weights, term_weight

Mask = NDArray[np.bool_]
Note = tuple[type[FairerClipWarning], str]

CONVERGED = 1e-6
"""Relative change of the text encoder up to which the alternation counts as converged."""


@dataclass(frozen=True)
class Setting:
    """Strengths and choices that may differ between two solutions of one `Problem`."""

    tau: float
    tau_z: float
    tau_text: float | None
    """None: the same as `tau`."""
    tau_z_text: float | None
    """None: the same as `tau_z`."""
    criterion: str
    scaling: str
    alignment: str
    zero: str
    n_components: int
    max_iter: int
    seed: int
    zero_shot: float = 0.0
    """Share of the zero-shot scores in the target, 0 to 1."""
    decision: str = "prompts"

    def weights(self, side: str) -> Weights:
        """Return the weights of the S term and the alignment term on the image or the text side."""
        tau, tau_z = (self.tau, self.tau_z) if side == "image" else self.text_strengths
        return Weights(term_weight(tau, self.scaling), term_weight(tau_z, self.scaling))

    @property
    def text_strengths(self) -> tuple[float, float]:
        """τ and τ_z of the text side."""
        return (
            self.tau if self.tau_text is None else self.tau_text,
            self.tau_z if self.tau_z_text is None else self.tau_z_text,
        )


@dataclass(frozen=True)
class Iteration:
    """Solutions of one round of Algorithm 1, and the number of labels that it changed."""

    solved_image: SideSolution
    solved_text: SideSolution
    label_changes: int

    @property
    def image(self) -> dict[str, float]:
        """Signed contribution of each term to the objective of the image side."""
        return self.solved_image.parts

    @property
    def text(self) -> dict[str, float]:
        """Signed contribution of each term to the objective of the text side."""
        return self.solved_text.parts


@dataclass(frozen=True)
class Encoders:
    """Both encoders and the decision rule: all that prediction needs."""

    mean: F64
    """(D,) weighted mean of the image features."""
    components: F64
    """(D, r) U of the image side."""
    intercept: F64
    """(r,) of Z = (Φ − mean) U + intercept; it moves the origin to where the decision needs no constants."""
    text_mean: F64
    """(D_T,)"""
    text_components: F64
    """(D_T, r) U of the text side, rotated onto the image side."""
    text_intercept: F64
    """(r,)"""
    decision: Decision
    eigenvalues: F64
    """(≤ r,) of the image side; their sum is its objective."""

    @property
    def offset(self) -> F64:
        """(r,) of Z = Φ U − offset."""
        return np.asarray(self.mean @ self.components - self.intercept)


@dataclass(frozen=True)
class Round:
    """Both sides solved for one set of labels, in reduced coordinates."""

    sides: Sides
    image: SideSolution
    text: SideSolution
    rotation: F64
    """(r_T, r) rotates the text side into the basis of the image side."""
    text_vectors: F64
    """(c, r) z_T of each class, rotated."""
    decision: Decision
    text_zero: F64
    """(r,) the point from which the angles of the text side are measured."""
    by_prompts: bool
    """Whether the angle with the prompts decides the class, instead of the predicted target."""

    def with_offsets(self, offsets: F64) -> Round:
        """Return the round with offsets (c,) added to its class scores."""
        return replace(self, decision=self.decision.with_offsets(offsets))

    def encoders(self) -> Encoders:
        """Expand both sides to feature space and move the origin for the decision; docs/math.md#origin."""
        image, text = self.sides.image, self.sides.text
        coefficients, rotation, decision = self.image.coefficients, self.rotation, self.decision
        if self.by_prompts:
            step: F64 | None = -decision.zero
            text_step = -self.text_zero
        else:
            step, text_step = decision.origin_step(), np.zeros(rotation.shape[1])
        if step is None:
            coefficients, rotation = _with_zero_column(coefficients), _with_zero_column(rotation)
            step, text_step = np.append(np.zeros_like(decision.zero), 1.0), np.append(text_step, 0.0)
            decision = decision.with_constant_coordinate()
        else:
            decision = decision.moved(step)
        return Encoders(
            mean=image.mean,
            components=image.reduced.basis @ coefficients,
            intercept=step,
            text_mean=text.mean,
            text_components=text.reduced.basis @ (self.text.coefficients @ rotation),
            text_intercept=text_step,
            decision=decision,
            eigenvalues=self.image.eigenvalues,
        )

    def score_map(self) -> tuple[F64, F64]:
        """Return weights (q, c) and constants (c,) of the class scores of rows in the reduced basis."""
        return self.image.coefficients @ self.decision.weights.T, self.decision.constants

    def predict(self) -> Ints:
        """Return the class codes (n,) of the training rows."""
        return np.asarray(self.training_scores().argmax(axis=1), dtype=np.int64)

    def training_scores(self) -> F64:
        """Return the class scores (n, c) of the training rows."""
        return self.decision.scores(self.sides.image_rows @ self.image.coefficients)


def _with_zero_column(a: F64) -> F64:
    return np.hstack([a, np.zeros((len(a), 1))])


@dataclass(frozen=True)
class Alternation:
    """Result of Algorithm 1: the last round, the labels and the history."""

    last: Round
    labels: Ints
    """(n,) labels after the last refinement."""
    history: tuple[Iteration, ...]
    converged: bool
    notes: tuple[Note, ...]
    """Warnings that the caller is to issue."""


def alternate(problem: Problem, y: Ints, setting: Setting, free: Mask | None = None) -> Alternation:
    """Run Algorithm 1 of Dehdashtian et al. 2024 (arXiv:2403.15593); docs/math.md#algorithm.

    Parameters
    ----------
    problem : Problem
        The data with the factor of C.
    y : array of shape (n,)
        Known labels and initial pseudo-labels.
    setting : Setting
        Strengths and choices.
    free : bool array of shape (n,) or None
        Rows whose label is a pseudo-label to be refined. None or all False leaves y unchanged.

    Returns
    -------
    Alternation
        The last round, the labels and the history.

    Notes
    -----
    With fixed labels there is no pass over the data: both sides are solved in a basis of at most K columns.
    For two classes with one prompt each the first iteration is the fixed point; docs/math.md#one-step.
    """
    if setting.max_iter < 1:
        raise ParameterError(f"max_iter must be at least 1; got {setting.max_iter}")
    history: list[Iteration] = []
    seen = {_digest(y)}
    notes: list[Note] = []
    settled, labels = False, y
    for latest in _rounds(problem, y, setting, free):
        if latest is None:
            settled = True
            break
        current, labels = latest
        changes = int(np.sum(labels != current.sides.y))
        history.append(Iteration(current.image, current.text, changes))
        if changes and _digest(labels) in seen:
            message = (
                f"pseudo-labels returned to an earlier state after {len(history)} rounds and would repeat "
                f"({changes} rows alternate); stopped there. Set max_iter=1 to keep the first solve"
            )
            notes.append((LabelCycleWarning, message))
            settled = True
            break
        seen.add(_digest(labels))
        if len(history) == setting.max_iter:
            settled = changes == 0 and _solve_text(current, setting) is None
            break
    notes += _outcome_notes(current, labels, setting)
    if not settled and setting.max_iter > 1:
        reason = f"{changes} pseudo-labels still changed" if changes else "the encoders still moved"
        notes.append((NotConvergedWarning, f"stopped at max_iter={setting.max_iter} rounds while {reason}"))
    return Alternation(current, labels, tuple(history), settled, tuple(notes))


def _rounds(
    problem: Problem, y: Ints, setting: Setting, free: Mask | None
) -> Iterator[tuple[Round, Ints] | None]:
    """Yield each round with the labels that it predicts, and None when another round would change nothing."""
    sides = problem.sides(y)
    start = _solve(sides, "image", setting, None)
    image_means = image_features(sides, start, sides.y, setting.alignment, setting.seed)
    text = _solve(sides, "text", setting, image_means)
    refining = free is not None and bool(free.any())
    while True:
        current = _round(sides, text, setting)
        labels = y
        if refining and free is not None:
            labels = np.where(free, current.predict(), y)
        yield current, labels
        if np.array_equal(labels, y):
            next_text = _solve_text(current, setting)
            if next_text is None:
                yield None
                return
            text = next_text
            continue
        image_means = image_features(sides, current.image, labels, setting.alignment, setting.seed)
        y, sides = labels, problem.sides(labels)
        text = _solve(sides, "text", setting, image_means)


def _round(sides: Sides, text: SideSolution, setting: Setting) -> Round:
    """Solve the image side for a given text side, and rotate the text side onto it."""
    image = _solve(sides, "image", setting, text_features(sides, text, setting.alignment, setting.seed))
    vectors = sides.text_vectors(text.coefficients)
    share = sides.image.table.class_share
    rotation = procrustes(vectors, image.class_means, share)
    vectors = vectors @ rotation
    if not np.any(vectors):
        raise TextCollapseError(
            "the text encoder maps every class to zero; lower tau_text or raise tau_z_text"
        )
    zeros = zero_points(sides, image, text, rotation, vectors, setting.zero)
    decision = Decision.of(vectors, share > 0, zeros)
    by_prompts = setting.decision == "prompts"
    if not by_prompts:
        predicted = sides.image.predicted_scores(image.coefficients) if sides.image.table.has_scores else None
        decision = decision.by_target(image.class_means, share > 0, setting.zero_shot, predicted)
    return Round(sides, image, text, rotation, vectors, decision, zeros[1], by_prompts)


def _solve_text(current: Round, setting: Setting) -> SideSolution | None:
    """Return the next text solution, or None if it equals the current one: then the image side stays the same."""
    sides = current.sides
    present = int(np.count_nonzero(sides.image.table.class_share))
    if setting.alignment == "linear" and len(current.text.eigenvalues) == present - 1:
        return None  # the text side has all its dimensions, and the image side depends on their span alone
    image_means = image_features(sides, current.image, sides.y, setting.alignment, setting.seed)
    solution = _solve(sides, "text", setting, image_means)
    vectors = sides.text_vectors(solution.coefficients)
    share = sides.image.table.class_share
    moved = vectors @ procrustes(vectors, current.text_vectors, share) - current.text_vectors
    same = np.linalg.norm(moved) <= CONVERGED * np.linalg.norm(current.text_vectors)
    return None if same else solution


def _solve(sides: Sides, which: str, setting: Setting, other: F64 | None) -> SideSolution:
    side = sides.image if which == "image" else sides.text
    solution = side.solve(
        setting.weights(which),
        other,
        r=setting.n_components,
        criterion=setting.criterion,
        scaling=setting.scaling,
        zero_shot=setting.zero_shot if which == "image" else 0.0,
    )
    if solution.n_positive:
        return solution
    if "y" in solution.dropped:
        raise NoSolutionError(
            "the embeddings do not depend on the target at all (Dep(Z, Y) vanishes): check that rows and labels "
            "are in the same order and that at least two classes have rows"
        )
    if which == "text":
        tau, tau_z = setting.text_strengths
        raise TextCollapseError(
            f"the text encoder collapses: at tau_text={tau:g}, tau_z_text={tau_z:g} and "
            f"scaling={setting.scaling!r} the S term outweighs the target, so every class would get the same "
            "vector. Lower tau_text, raise tau_z_text, or use scaling='paper'"
        )
    raise NoSolutionError(
        f"no direction has a positive objective at tau={setting.tau:g} with scaling={setting.scaling!r}: the S "
        "term outweighs the target everywhere. Lower tau"
    )


def _digest(labels: Ints) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(labels).data).digest()


def _outcome_notes(last: Round, labels: Ints, setting: Setting) -> list[Note]:
    notes: list[Note] = []
    n_classes = last.sides.prompts.n_classes
    before = last.sides.image.table.class_share > 0
    vanished = np.flatnonzero(~np.isin(np.arange(n_classes), labels) & before)
    if len(vanished):
        message = (
            f"no row is labelled with class number {', '.join(map(str, vanished))} after refinement; lower tau, "
            "set max_iter=1, or give some labels"
        )
        notes.append((VanishedLabelWarning, message))
    for name, solution in (("image", last.image), ("text", last.text)):
        if len(solution.eigenvalues) < setting.n_components:
            message = (
                f"{setting.n_components} components were asked for, the {name} side has "
                f"{solution.n_positive} with a positive objective, which are kept. Lower n_components or tau"
            )
            notes.append((RankWarning, message))
    # The text side varies with the class alone, so balanced groups or the conditional criterion remove
    # its S term. That is expected; only the image side is worth a warning.
    if last.image.dropped:
        message = (
            f"the dependence on {', '.join(last.image.dropped)} vanished (constant, or balanced away by the "
            "weights) and was left out of the objective"
        )
        notes.append((DroppedTermWarning, message))
    return notes + _collapse_notes(last.decision)


def _collapse_notes(decision: Decision) -> list[Note]:
    unit = np.asarray(unit_rows(decision.directions))
    similar = unit @ unit.T - 2 * np.eye(len(unit))
    i, j = np.unravel_index(int(np.argmax(similar)), similar.shape)
    if similar[i, j] <= 1 - 1e-9:
        return []
    message = (
        f"the text encoder gives classes number {i} and {j} the same direction: they cannot be told apart. "
        "Raise n_components, lower tau_text, or give prompts that differ"
    )
    return [(TextCollapseWarning, message)]
