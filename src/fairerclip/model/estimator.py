"""`FairerCLIP`: the method behind scikit-learn's face."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
)
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d

from fairerclip.errors import ConstantPredictionWarning, StateError
from fairerclip.inputs.encode import as_labels
from fairerclip.inputs.sensitive import resolve_sensitive
from fairerclip.inputs.target import resolve_target, zero_shot_share
from fairerclip.model import prepare as fitting
from fairerclip.model.model_file import read_model, write_model
from fairerclip.model.parameters import check_offsets, check_parameters, check_shifts
from fairerclip.model.path import TauPath, path_grid, solve_path
from fairerclip.model.predictor import Predictor, Ranking
from fairerclip.model.presets import preset
from fairerclip.solver.alternation import Alternation, Encoders, Setting, alternate
from fairerclip.solver.calibration import fit_temperature

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["FairerCLIP", "Ranking"]


class FairerCLIP(Predictor, ClassNamePrefixFeaturesOutMixin, ClassifierMixin, BaseEstimator):
    """Mitigate bias and spurious correlation in CLIP-like embeddings.

    Learns an image and a text encoder in an RKHS so that what they give depends on the target Y,
    depends less on the sensitive attribute S, and keeps images aligned with their prompts. Closed
    form; with or without labels, any number of classes and sensitive values.

    A fit takes O(n·D² + D³/3) time and D² + block·D memory (plus n·D where that fits in a quarter of
    the free memory).

    Parameters
    ----------
    normalize : bool
        Bring image and prompt embeddings to unit length, in `fit` and ever after, so that the output of
        ``encode_image`` and unit rows give the same model and the same answers. False takes them as they come.
    tau, tau_z : float
        Strength of the S term and of the image-text alignment on the image side; in [0, 1) for
        ``scaling="spectral"``, any non-negative number for ``scaling="paper"``.
    tau_text, tau_z_text : float or None
        The same on the text side; None is as strong as on the image side, whatever that is: the paper's one τ.
    gamma, gamma_text : float
        Ridge of both sides.
    n_features : int
        D, for ``kernel`` "rbf", "orthogonal" and "nystroem".
    bandwidth : float or str
        σ of the RBF kernel: a number, "median", or a multiple such as "3*median".
    kernel : {"rbf", "orthogonal", "nystroem", "exact", "linear"}
        Feature map of the image side. The text side uses the exact kernel on its few distinct prompts.
    alignment : {"linear", "rbf"}
        Kernel of Dep(Z_I, Z_T).
    n_components : int or None
        r; None means the number of classes minus one.
    zero_shot : float or None
        Share of the zero-shot scores in the target, in [0, 1]: 0 knows the labels alone, as the paper does, 1 the
        prompts alone. None means 0.5 where labels are known and 0.75 where all are guessed. Without ``text`` it
        counts as 0.
    orthogonal : bool
        Take what the sensitive prompts span off the class prompts before those scores are read; without
        ``sensitive_text`` it changes nothing.
    decision : {"target", "prompts"}
        Predict the class with the largest predicted target, or the one whose prompt is closest in angle, as the paper
        does.
    offsets : sequence of c numbers or None
        Added to the scores of the classes: where the boundaries between them lie. `tune` learns them.
    sensitive_shifts : c rows of numbers, one per sensitive value, or None
        How much of what a row says of each sensitive value is taken off the score of each class.
        ``tune(objective="max_skew")`` learns them.
    criterion : {"marginal", "conditional"}
        Dependence on S, or on S inside each class (equal opportunity, equalized odds).
    scaling : {"spectral", "paper"}
        Divide each term by its spectral norm and weigh it by τ/(1−τ), or weigh by τ as it is.
    class_weight : None, "balanced", "group", "subsample", "subsample:SHARE" or shares kept
        Row weights by class or by class × sensitive value, or sub-sampling; shares are {class: share}, or a sequence
        in the order of ``classes_``. From pseudo-labels they are computed once and then kept.
    solver : {"auto", "cholesky", "cg"}
        How to solve with the regularised covariance.
    max_iter : int
        Cap on the rounds of Algorithm 1.
    refine : bool
        Replace guessed labels by the model's own predictions in every round, as the paper does, instead of keeping
        the guesses. A zero-shot share of 0.5 or more keeps it from feeding on its errors; see docs/choosing.md.
    decision_zero : {"balanced", "mean", "none"}
        With ``decision="prompts"``, where angles are measured from: the midpoint of the class means, the mean of all
        rows, or the origin of the features (the paper's formula read literally, and the authors' code; the threshold
        then carries an offset of the random features). ``decision="target"`` has boundaries of its own.
    sensitive_terms : {"each", "intersection"}
        Several sensitive attributes as several terms, or as one whose values are their combinations.
    sensitive_kind : {"auto", "categorical", "continuous"}
        What the sensitive attributes are; "auto" takes floats with a fractional part for quantities.
    missing_label : object
        A value of y or of the sensitive features that means unknown, besides None and NaN.
    random_state : int, RandomState or None
        Seed of features, sub-sampling and samples.
    dtype : {"float32", "float64"}
        Working precision of the features during the fit; sums and solves are float64.

    Attributes
    ----------
    classes_ : (c,) class labels.
    components_ : (D, r) U of the image side;
        ``transform(X) = (features_.transform(unit X) - mean_) @ components_ + intercept_``.
    mean_ : (D,) weighted mean of the features.
    intercept_ : (r,) puts the origin of the learned space where inner products (``decision="target"``) or cosines
        (``decision="prompts"``) with `transform_text` decide as `predict` does.
    features_, text_features_ : fitted feature maps of both sides.
    text_components_, text_mean_, text_intercept_ : the text side's.
    prompts_, prompt_classes_ : (m, p), (m,) the prompts of the fit and the place of their class, or None without text.
    rows_ : lengths and mean direction of the training rows, for `drift`.
    seed_ : the number that drew features and samples; ``random_state=seed_`` fits the same model again.
    eigenvalues_ : (r,) of the image side; ``objective_`` is their sum.
    n_iter_ : rounds of Algorithm 1 that were run.
    pseudo_labels_ : (n,) labels, known and guessed (after the last refinement), or None where y was complete.
    pseudo_sensitive_ : (n,) sensitive values, known and guessed, a mapping of them for several
        attributes, or None where they were complete.
    diagnostics_ : residual, condition number, ranks, objective and label changes per round, margins.

    References
    ----------
    Dehdashtian, Wang, Boddeti, "FairerCLIP: Debiasing CLIP's Zero-Shot Predictions using Functions in
    RKHSs", ICLR 2024 (arXiv:2403.15593).

    Examples
    --------
    >>> from fairerclip import FairerCLIP
    >>> from fairerclip.data import simulate
    >>> task = simulate("multiclass", seed=0)
    >>> attribute = task.sensitive_attribute()
    >>> model = FairerCLIP(n_features=500, random_state=0).fit(
    ...     task.train.X, task.train.y, text=task.text_target, sensitive_text=attribute.text)
    >>> model.transform(task.test.X).shape[1] == task.n_classes - 1
    True
    """

    def __init__(
        self,
        *,
        normalize: bool = True,
        tau: float = 0.8,
        tau_z: float = 0.7,
        tau_text: float | None = 0.1,
        tau_z_text: float | None = 0.1,
        gamma: float = 1e-3,
        gamma_text: float = 1e-4,
        n_features: int = 1000,
        bandwidth: float | str = "3*median",
        kernel: str = "rbf",
        alignment: str = "linear",
        n_components: int | None = None,
        zero_shot: float | None = None,
        orthogonal: bool = False,
        decision: str = "target",
        offsets: Sequence[float] | None = None,
        sensitive_shifts: Sequence[Sequence[float]] | None = None,
        criterion: str = "marginal",
        scaling: str = "spectral",
        class_weight: Any = "balanced",
        solver: str = "auto",
        max_iter: int = 10,
        refine: bool = False,
        decision_zero: str = "balanced",
        sensitive_terms: str = "each",
        sensitive_kind: str = "auto",
        missing_label: Any = None,
        random_state: Any = None,
        dtype: str = "float32",
    ) -> None:
        self.normalize = normalize
        self.tau = tau
        self.tau_z = tau_z
        self.tau_text = tau_text
        self.tau_z_text = tau_z_text
        self.gamma = gamma
        self.gamma_text = gamma_text
        self.n_features = n_features
        self.bandwidth = bandwidth
        self.kernel = kernel
        self.alignment = alignment
        self.n_components = n_components
        self.zero_shot = zero_shot
        self.orthogonal = orthogonal
        self.decision = decision
        self.offsets = offsets
        self.sensitive_shifts = sensitive_shifts
        self.criterion = criterion
        self.scaling = scaling
        self.class_weight = class_weight
        self.solver = solver
        self.max_iter = max_iter
        self.refine = refine
        self.decision_zero = decision_zero
        self.sensitive_terms = sensitive_terms
        self.sensitive_kind = sensitive_kind
        self.missing_label = missing_label
        self.random_state = random_state
        self.dtype = dtype

    @classmethod
    def preset(cls, dataset: str, *, source: str = "paper", backbone: str = "ViT-L/14") -> FairerCLIP:
        """An unfitted, seeded model with published parameters: ``preset("paper")`` is the published method.

        Or those of a dataset: "waterbirds", "celeba", "cheekbones", "fairface", "cfd"; source "paper", or "released"
        (the authors' code). Shares of rows kept are in the order of ``classes_``, the positive class second.
        """
        return cls(**preset(dataset, source, backbone))

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sensitive_features: Any = None,
        text: Any = None,
        sensitive_text: Any = None,
        sample_weight: Any = None,
        classes: Iterable[Any] | None = None,
        missing_label: Any = None,
    ) -> FairerCLIP:
        """Learn both encoders.

        Parameters
        ----------
        X : (n, p) image embeddings.
        y : (n,) labels, with None, NaN or ``missing_label`` where unknown; None for no labels at all.
            Unknown labels are read from ``text``, and refined with ``refine=True``; known ones stay.
        sensitive_features : (n,) or (n, a) or mapping name → (n,), categorical or continuous; missing
            categories are read from ``sensitive_text`` and never refined.
        text : a mapping class → prompts (p,) or (m, p); or prompts in the order of ``classes``, (c, p) or c arrays
            (m, p). Without ``classes`` these are taken only for labels 0 … c−1, which are their numbers. None: class
            means of X stand in. Prompts that contradict known labels are a `PromptError` or a named warning.
        sensitive_text : prompts of the sensitive values: a mapping value → prompts; or prompts by number, (v, p) or v
            arrays (m, p), for values 0 … v−1 or unknown ones. For several attributes a mapping name → any of these.
        sample_weight : (n,) row weights.
        classes : class labels in the order of ``text``, where y does not show them all.
        missing_label : overrides the constructor's; what was used is kept as ``missing_label_``.
        """
        params = self.get_params(deep=False)
        check_parameters(params)
        prompted = text is not None or sensitive_text is not None
        X, seen = fitting.training_rows(
            self._embeddings(X, reset=True), normalize=self.normalize, prompted=prompted
        )
        weight = fitting.check_weights(sample_weight, X.shape[0])
        missing = self.missing_label if missing_label is None else missing_label
        if y is not None:
            y = as_labels(y)
            y = column_or_1d(y, warn=True) if y.ndim == 2 and y.shape[1] == 1 else y
        target = resolve_target(X, y, text, weight, classes=classes, missing_label=missing)
        sensitive = resolve_sensitive(
            X,
            sensitive_features,
            sensitive_text,
            target,
            kind=self.sensitive_kind,
            terms=self.sensitive_terms,
            missing_label=missing,
        )
        seed = fitting.draw_seed(self.random_state)
        params["random_state"] = check_random_state(seed)
        prepared = fitting.prepare(X, target, sensitive, params, weight)
        self._solve(prepared, prepared.y, prepared.free if self.refine else None)
        self.missing_label_, self.seed_, self.rows_ = missing, seed, seen
        return self

    def tune(
        self,
        X: Any,
        y: Any = None,
        *,
        validation: Any,
        objective: Any = "worst_group",
        accuracy_floor: float | None = None,
        search: Mapping[str, Any] | None = None,
        max_seconds: float | None = None,
        progress: Any = None,
        **fit_arguments: Any,
    ) -> FairerCLIP:
        """Fit with the parameters that labelled validation rows like best.

        Parameters
        ----------
        X, y, **fit_arguments : as `fit` takes them; y may be None.
        validation : (X, y, s) rows with labels and sensitive values; (X, y) or s=None where the groups are to be
            read from ``sensitive_text``; (X, None, s) for ``objective="max_skew"``.
        objective : "worst_group", "worst_class", "eod" or "equalized_odds" (the smallest difference, best under an
            ``accuracy_floor``), "average", "max_skew" (rankings by prompt), or a function of (y, predicted, groups)
            whose largest value wins.
        accuracy_floor : share of right predictions to reach on the validation rows, in [0, 1]. If no model of the
            search reaches it, the most accurate one is taken, with an `AccuracyFloorWarning`. None means no floor, or
            for "eod" and "equalized_odds" what zero-shot reaches there.
        search : what to try instead of the defaults: ``fits`` (a list of mappings of parameters, each a new fit),
            ``taus``, ``zero_shots``, ``criteria`` (free).
        max_seconds : stop before a fit that would end later; the first is always done.
        progress : called after each fit with (done, planned).

        Notes
        -----
        Groups are judged by a posterior over their accuracies and not by raw shares, which are luck where a group
        has a handful of rows, and class offsets are learned; docs/choosing.md. ``diagnostics_["tuning"]`` has the
        chosen point and its neighbours, each with intervals.
        """
        from fairerclip.tuning.tune import tune

        check_parameters(self.get_params(deep=False))
        found = tune(
            self,
            X,
            y,
            validation,
            objective,
            accuracy_floor=accuracy_floor,
            search=search,
            max_seconds=max_seconds,
            progress=progress,
            **fit_arguments,
        )
        self.__dict__ = found.__dict__  # whole: nothing of an earlier fit stays
        return self

    def path(
        self,
        taus: Any = None,
        tau_zs: Any = None,
        *,
        criterion: Any = None,
        zero_shots: Any = None,
        refine: bool | None = None,
        progress: Any = None,
    ) -> TauPath:
        """Every model on a (τ, τ_z) grid from the factorisation of this fit.

        Parameters
        ----------
        taus, tau_zs : strengths of the image side, and of the text side where that has None for its own; None for 20
            values from 0 to 0.95, and for this model's own ``tau_z``.
        criterion : "marginal", "conditional" or a list of both; None for this model's own.
        zero_shots : shares of the zero-shot scores in the target; None for this model's own.
        refine : refine pseudo-labels anew at every point (one pass over the data per round), or keep the guesses that
            the prompts give; None for this model's own. The parameters of a point fit the same model again.
        progress : called after each point with (done, total).
        """
        check_is_fitted(self)
        if getattr(self, "_prepared", None) is None:
            raise StateError(
                "this model no longer holds its training data (it was loaded or unpickled): call fit first"
            )
        has_text = self._prepared.target.has_text
        grid = path_grid(
            self._setting(self._prepared), taus, tau_zs, criterion, zero_shots, has_text=has_text
        )
        refined = self.refine if refine is None else refine
        return TauPath(self, solve_path(self._prepared, grid, refine=refined, progress=progress), refined)

    def _at(self, setting: Setting, *, refine: bool) -> FairerCLIP:
        """A fitted copy at another point of the plane, sharing this model's factorisation.

        Its parameters are those that `fit` gets to the same point with, the seed among them.
        """
        other = type(self)()
        other.__dict__.update(self.__dict__)  # copy.copy would leave out the training data, as pickling does
        other.set_params(
            tau=setting.tau,
            tau_z=setting.tau_z,
            criterion=setting.criterion,
            zero_shot=setting.zero_shot,
            refine=refine,
            random_state=self.seed_,
        )
        return other._solve(self._prepared, self._prepared.y, self._prepared.free if refine else None)

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the fitted model as a folder: tensors in safetensors, the rest in JSON. No pickle."""
        check_is_fitted(self)
        return write_model(self, Path(path), overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path) -> FairerCLIP:
        """Read a model that `save` wrote; everything is checked before it is used."""
        return read_model(Path(path), cls)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        for name in ("_prepared", "_codes"):  # the training data is not part of the model
            state.pop(name, None)
        return state

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "components_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _setting(self, prepared: fitting.Prepared) -> Setting:
        r = self.n_components if self.n_components is not None else len(np.unique(prepared.y)) - 1
        return Setting(
            tau=float(self.tau),
            tau_z=float(self.tau_z),
            tau_text=None if self.tau_text is None else float(self.tau_text),
            tau_z_text=None if self.tau_z_text is None else float(self.tau_z_text),
            criterion=self.criterion,
            scaling=self.scaling,
            alignment=self.alignment,
            zero=self.decision_zero,
            n_components=int(r),
            max_iter=int(self.max_iter),
            seed=prepared.seed,
            zero_shot=zero_shot_share(self.zero_shot, prepared.target),
            decision=self.decision,
            offsets=check_offsets(self.offsets, len(prepared.target.classes)),
            sensitive_shifts=check_shifts(
                self.sensitive_shifts,
                len(prepared.target.classes),
                sum(a.psi.shape[1] for a in prepared.problem.attributes),
            ),
        )

    def _solve(
        self, prepared: fitting.Prepared, y: NDArray[np.int64], free: NDArray[np.bool_] | None
    ) -> FairerCLIP:
        result = alternate(prepared.problem, y, self._setting(prepared), free)
        # Only now that there is a solution: a fit that fails leaves the model as it was.
        self._prepared, self._codes = prepared, result.last.sides.y
        self.classes_ = prepared.target.classes
        self._store(result.last.encoders())
        self.prompts_, self.prompt_classes_ = prepared.target.listed_prompts()
        self._record(result)
        for kind, message in result.notes:
            warnings.warn(message, kind, stacklevel=3)
        self._calibrate()
        return self

    def _store(self, encoders: Encoders) -> None:
        self.mean_, self.components_ = encoders.mean, encoders.components
        self.intercept_, self.text_intercept_ = encoders.intercept, encoders.text_intercept
        self.text_mean_, self.text_components_ = encoders.text_mean, encoders.text_components
        decision = encoders.decision
        self.zero_, self.directions_ = decision.zero, decision.directions
        self.score_weights_, self.score_constants_ = decision.weights, decision.constants
        self.eigenvalues_ = encoders.eigenvalues
        self.objective_ = float(encoders.eigenvalues.sum())

    def _record(self, result: Alternation) -> None:
        problem, target = self._prepared.problem, self._prepared.target
        self.features_ = problem.rows.features
        self.text_features_ = problem.prompts.features
        self.n_iter_ = len(result.history)
        labels = target.codes.copy()
        labels[self._prepared.rows] = result.labels
        if target.guess is not None and self.refine:
            self._guess_left_out(labels, target.guess.rows)
        self.pseudo_labels_ = None if target.guess is None else self.classes_[labels]
        values = self._prepared.sensitive.values
        self.pseudo_sensitive_ = next(iter(values.values())) if len(values) == 1 else values or None
        self.diagnostics_: dict[str, Any] = fitting.diagnostics(self._prepared, result)

    def _guess_left_out(self, labels: NDArray[np.int64], guessed: NDArray[np.bool_]) -> None:
        """Rows that sub-sampling or weights left out took no part in refinement: they get predictions."""
        left = guessed.copy()
        left[self._prepared.rows] = False
        if left.any():
            Phi = self._prepared.problem.rows.raw(np.flatnonzero(left))
            labels[left] = self._decision.scores(Phi @ self.components_ - self._offset).argmax(axis=1)

    def _training_scores(self) -> NDArray[np.float64]:
        """Scores (n, c) of the training rows that took part."""
        Z = self._prepared.problem.rows.project(self.mean_, self.components_)
        return self._decision.scores(Z + self.intercept_)

    def _calibrate(self) -> None:
        problem, scores = self._prepared.problem, self._training_scores()
        # Against labels that were given, or else the first guesses: the refined ones are the model's own
        # predictions, and would make it look certain.
        known = ~self._prepared.free if not self._prepared.free.all() else slice(None)
        self.temperature_ = fit_temperature(scores[known], self._prepared.y[known], problem.weight[known])
        predicted = scores.argmax(axis=1)
        if np.all(predicted == predicted[0]):
            warnings.warn(
                f"every training row is predicted to be {self.classes_.tolist()[predicted[0]]!r}; lower tau or "
                "tau_text, or balance the classes with class_weight='balanced'",
                ConstantPredictionWarning,
                stacklevel=4,
            )
