"""Algorithm 1: alternate the two closed forms, with labels, without, or with some."""

from __future__ import annotations

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
from fairerclip.features import FourierFeatures
from fairerclip.solver.decision import Adjustment, Decision
from fairerclip.solver.problem import Problem, Sides
from fairerclip.solver.sides import SideSolution, Weights, term_weight

Mask = NDArray[np.bool_]
Note = tuple[type[FairerClipWarning], str]

CONVERGED = 1e-6
"""Relative change of the text encoder below which the alternation has arrived."""
ALIGNMENT_FEATURES = 256
"""Random features of the RBF alignment kernel; its input has r dimensions, so few are enough."""


@dataclass(frozen=True)
class Setting:
    """What may differ between two solutions of one `Problem`."""

    tau: float
    tau_z: float
    tau_text: float | None
    """None is as strong as on the image side."""
    tau_z_text: float | None
    criterion: str
    scaling: str
    alignment: str
    zero: str
    n_components: int
    max_iter: int
    seed: int
    zero_shot: float = 0.0
    """Share of the zero-shot scores in the target."""
    decision: str = "prompts"

    def weights(self, side: str) -> Weights:
        """The S and alignment weights of the image or the text side."""
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
    """What one round of Algorithm 1 did."""

    solved_image: SideSolution
    solved_text: SideSolution
    label_changes: int

    @property
    def image(self) -> dict[str, float]:
        """Signed contribution of each term on the image side; their sum is its objective."""
        return self.solved_image.parts

    @property
    def text(self) -> dict[str, float]:
        """The same on the text side."""
        return self.solved_text.parts


@dataclass(frozen=True)
class Encoders:
    """Two encoders and the decision rule: all that prediction needs."""

    mean: F64
    """(D,) weighted mean of the image features."""
    components: F64
    """(D, r) U of the image side."""
    intercept: F64
    """(r,) Z = (Φ − mean) U + intercept: the origin of the learned space is where the decision wants it."""
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
        """(r,) Z = Φ U − offset."""
        return np.asarray(self.mean @ self.components - self.intercept)


@dataclass(frozen=True)
class Round:
    """Both sides solved for one set of labels, in reduced coordinates."""

    sides: Sides
    image: SideSolution
    text: SideSolution
    rotation: F64
    """(r_T, r) puts the text side into the image side's basis."""
    text_vectors: F64
    """(c, r) z_T of each class, rotated."""
    decision: Decision
    text_zero: F64
    """(r,) the point from which the angles of the text side are measured."""
    by_prompts: bool
    """Whether the angle with the prompts decides, and not the predicted target."""
    sensitive_shifts: F64 | None = None
    """(c, q) weights of the predicted sensitive values that are subtracted from each class score."""

    def adjusted(self, adjustment: Adjustment) -> Round:
        """Return the round with learned corrections of its class scores."""
        return replace(
            self,
            decision=self.decision.with_offsets(adjustment.offsets),
            sensitive_shifts=adjustment.sensitive_shifts,
        )

    @property
    def weighs_classes(self) -> bool:
        """Whether the scores are inner products with weights of the classes, and not with prompts."""
        return not self.by_prompts or self.sensitive_shifts is not None

    def encoders(self) -> Encoders:
        """Expand to feature space, with the origin where the decision wants it; docs/math.md#origin."""
        image, text = self.sides.image, self.sides.text
        coefficients, turned, decision = self.image.coefficients, self.rotation, self.decision
        if self.sensitive_shifts is not None:
            # Z becomes the scores themselves: what is taken off them lies outside the span of the old Z.
            coefficients = coefficients @ decision.weights.T - image.explained() @ self.sensitive_shifts.T
            turned = turned @ decision.weights.T
            decision = decision.by_scores()
        if self.by_prompts and self.sensitive_shifts is None:
            step: F64 | None = -decision.zero
            text_step = -self.text_zero
        else:
            step, text_step = decision.origin_step(), np.zeros(turned.shape[1])
        if step is None:
            coefficients, turned = _with_zero_column(coefficients), _with_zero_column(turned)
            step, text_step = np.append(np.zeros_like(decision.zero), 1.0), np.append(text_step, 0.0)
            decision = decision.with_constant_coordinate()
        else:
            decision = decision.moved(step)
        return Encoders(
            mean=image.mean,
            components=image.reduced.basis @ coefficients,
            intercept=step,
            text_mean=text.mean,
            text_components=text.reduced.basis @ (self.text.coefficients @ turned),
            text_intercept=text_step,
            decision=decision,
            eigenvalues=self.image.eigenvalues,
        )

    def predict(self) -> Ints:
        """Class codes of the training rows (n,)."""
        scores = self.decision.scores(self.sides.image_rows @ self.image.coefficients)
        return np.asarray(scores.argmax(axis=1), dtype=np.int64)


def _with_zero_column(a: F64) -> F64:
    return np.hstack([a, np.zeros((len(a), 1))])


@dataclass(frozen=True)
class Alternation:
    """The outcome of Algorithm 1 and how it went."""

    last: Round
    labels: Ints
    """(n,) labels after the last refinement."""
    history: tuple[Iteration, ...]
    converged: bool
    notes: tuple[Note, ...]
    """Warnings for the caller to give."""


def procrustes(source: F64, target: F64, weight: F64) -> F64:
    """Orthogonal Q (r_s, r_t) maximising Σ w ⟨source Q, target⟩; docs/math.md#procrustes.

    Each encoder is determined up to an orthogonal matrix and no term of the objective sees it; this
    settles the sign for one component and the basis for several.
    """
    u, _, vt = np.linalg.svd((source * weight[:, None]).T @ target, full_matrices=False)
    return np.asarray(u @ vt)


def alternate(problem: Problem, y: Ints, setting: Setting, free: Mask | None = None) -> Alternation:
    """Algorithm 1 of Dehdashtian et al. 2024 (arXiv:2403.15593); docs/math.md#algorithm.

    Parameters
    ----------
    problem : the data, factored.
    y : (n,) known labels and initial pseudo-labels.
    setting : strengths and choices.
    free : (n,) rows whose label is a guess to be refined; None or all False keeps y as it is.

    Notes
    -----
    With labels fixed no pass over the data is made: both sides live in a basis of at most K columns.
    For two classes with one prompt each the first iteration is the fixed point; docs/math.md#one-step.
    """
    if setting.max_iter < 1:
        raise ParameterError(f"max_iter must be at least 1; got {setting.max_iter}")
    history: list[Iteration] = []
    seen = {y.tobytes()}
    notes: list[Note] = []
    settled = False
    labels = y
    for latest in _rounds(problem, y, setting, free):
        if latest is None:
            settled = True
            break
        current, labels = latest
        changes = int(np.sum(labels != current.sides.y))
        history.append(Iteration(current.image, current.text, changes))
        if changes and labels.tobytes() in seen:
            notes.append(
                (
                    LabelCycleWarning,
                    f"pseudo-labels returned to an earlier state after {len(history)} rounds and would repeat "
                    f"({changes} rows alternate); stopped there. Set max_iter=1 to keep the first solve",
                )
            )
            settled = True
            break
        seen.add(labels.tobytes())
        if len(history) == setting.max_iter:
            settled = changes == 0 and _solve_text(current, setting) is None
            break
    notes += _outcome_notes(current, labels, setting)
    if not settled and setting.max_iter > 1:
        still = f"{changes} pseudo-labels still changed" if changes else "the encoders still moved"
        notes.append((NotConvergedWarning, f"stopped at max_iter={setting.max_iter} rounds while {still}"))
    return Alternation(current, labels, tuple(history), settled, tuple(notes))


def _rounds(
    problem: Problem, y: Ints, setting: Setting, free: Mask | None
) -> Iterator[tuple[Round, Ints] | None]:
    """Yield each round with the labels it predicts, then None once nothing would change."""
    sides = problem.sides(y)
    start = _solve(sides, "image", setting, None)
    text = _solve(sides, "text", setting, _image_features(sides, start, sides.y, setting))
    refining = free is not None and bool(free.any())
    while True:
        current = _round(sides, text, setting)
        labels = y
        if refining and free is not None:
            labels = np.where(free, current.predict(), y)
        yield current, labels
        if np.array_equal(labels, y):
            fresh = _solve_text(current, setting)
            if fresh is None:
                yield None
                return
            text = fresh
            continue
        pairing = _image_features(sides, current.image, labels, setting)
        y, sides = labels, problem.sides(labels)
        text = _solve(sides, "text", setting, pairing)


def _round(sides: Sides, text: SideSolution, setting: Setting) -> Round:
    """Solve the image side against a text side, and turn the text side onto it."""
    image = _solve(sides, "image", setting, _text_features(sides, text, setting))
    vectors = sides.text_vectors(text.coefficients)
    share = sides.image.table.class_share
    rotation = procrustes(vectors, image.class_means, share)
    vectors = vectors @ rotation
    if not np.any(vectors):
        raise TextCollapseError(
            "the text encoder maps every class to zero; lower tau_text or raise tau_z_text"
        )
    zeros = _zeros(sides, image, text, rotation, vectors, setting.zero)
    decision = Decision.of(vectors, share > 0, zeros)
    by_prompts = setting.decision == "prompts"
    if not by_prompts:
        predicted = sides.image.predicted_scores(image.coefficients) if sides.image.table.has_scores else None
        decision = decision.by_target(image.class_means, share > 0, setting.zero_shot, predicted)
    return Round(sides, image, text, rotation, vectors, decision, zeros[1], by_prompts)


def _zeros(
    sides: Sides, image: SideSolution, text: SideSolution, rotation: F64, vectors: F64, kind: str
) -> tuple[F64, F64]:
    """The points (r,) from which the angles of both sides are measured; docs/math.md#zero."""
    present = sides.image.table.class_share > 0
    if kind == "balanced":
        return image.class_means[present].mean(axis=0), vectors[present].mean(axis=0)
    if kind == "mean":
        return np.zeros(vectors.shape[1]), np.zeros(vectors.shape[1])
    # "none": Z is about the mean of the features, so their own origin lies at minus that mean.
    image_mean = sides.image.mean @ (sides.image.reduced.basis @ image.coefficients)
    text_mean = sides.text.mean @ (sides.text.reduced.basis @ text.coefficients)
    return -image_mean, -(text_mean @ rotation)


def _solve_text(current: Round, setting: Setting) -> SideSolution | None:
    """The next text solution, or None if it is the one we have: then the image side stays too."""
    sides = current.sides
    present = int(np.count_nonzero(sides.image.table.class_share))
    if setting.alignment == "linear" and len(current.text.eigenvalues) == present - 1:
        return None  # the text side fills its whole span, which is all that the image side sees of it
    fresh = _solve(sides, "text", setting, _image_features(sides, current.image, sides.y, setting))
    vectors = sides.text_vectors(fresh.coefficients)
    share = sides.image.table.class_share
    moved = vectors @ procrustes(vectors, current.text_vectors, share) - current.text_vectors
    same = np.linalg.norm(moved) <= CONVERGED * np.linalg.norm(current.text_vectors)
    return None if same else fresh


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


def _rbf_features(Z: F64, weight: F64, seed: int) -> F64:
    # Drawn anew for each Z because its median bandwidth changes; the seed keeps it deterministic.
    phi = FourierFeatures.fit(
        Z, n_features=ALIGNMENT_FEATURES, bandwidth="median", sample_weight=weight, random_state=seed
    )
    return np.asarray(phi.transform(Z), dtype=np.float64)


def _image_features(sides: Sides, image: SideSolution, y: Ints, setting: Setting) -> F64:
    """What the text side sees of the image side: class means of Z_I or of its RBF features (c, ·)."""
    if setting.alignment == "linear" and y is sides.y:
        return image.class_means
    Z = sides.image_rows @ image.coefficients
    values = Z if setting.alignment == "linear" else _rbf_features(Z, sides.weight, setting.seed)
    onehot = np.zeros((len(y), sides.prompts.n_classes))
    onehot[np.arange(len(y)), y] = sides.weight
    share = onehot.sum(axis=0)[:, None]
    sums = onehot.T @ values
    return np.asarray(np.divide(sums, share, out=np.zeros_like(sums), where=share > 0))


def _text_features(sides: Sides, text: SideSolution, setting: Setting) -> F64:
    """What the image side sees of the text side: means over each class's prompts (c, ·)."""
    Z = sides.text_rows @ text.coefficients
    if setting.alignment == "rbf":
        Z = _rbf_features(Z, sides.prompts.share.T @ sides.text.table.class_share, setting.seed)
    return sides.prompts.share @ Z


def _outcome_notes(last: Round, labels: Ints, setting: Setting) -> list[Note]:
    notes: list[Note] = []
    n_classes = last.sides.prompts.n_classes
    before = last.sides.image.table.class_share > 0
    gone = np.flatnonzero((np.bincount(labels, minlength=n_classes) == 0) & before)
    if len(gone):
        notes.append(
            (
                VanishedLabelWarning,
                f"no row is labelled with class number {', '.join(map(str, gone))} after refinement; lower tau, "
                "set max_iter=1, or give some labels",
            )
        )
    for name, solution in (("image", last.image), ("text", last.text)):
        if len(solution.eigenvalues) < setting.n_components:
            notes.append(
                (
                    RankWarning,
                    f"{setting.n_components} components were asked for, the {name} side has "
                    f"{solution.n_positive} with a positive objective, which are kept. Lower n_components or tau",
                )
            )
    # The text side varies with the class alone: balanced groups, or the conditional criterion, leave
    # nothing of S there. That is as it should be, so only the image side is worth a warning.
    if last.image.dropped:
        notes.append(
            (
                DroppedTermWarning,
                f"the dependence on {', '.join(last.image.dropped)} vanished (constant, or balanced away by the "
                "weights) and was left out of the objective",
            )
        )
    return notes + _collapse_notes(last.decision)


def _collapse_notes(decision: Decision) -> list[Note]:
    unit = np.asarray(unit_rows(decision.directions))
    similar = unit @ unit.T - 2 * np.eye(len(unit))
    i, j = np.unravel_index(int(np.argmax(similar)), similar.shape)
    if similar[i, j] <= 1 - 1e-9:
        return []
    return [
        (
            TextCollapseWarning,
            f"the text encoder gives classes number {i} and {j} the same direction: they cannot be told apart. "
            "Raise n_components, lower tau_text, or give prompts that differ",
        )
    ]
