"""`FairerCLIP`: the method as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sklearn.base import BaseEstimator

from fairerclip._util.types import F64
from fairerclip.errors import ParameterError
from fairerclip.model.answers import FittedAnswers
from fairerclip.model.automatic import resolve_automatic
from fairerclip.model.fit_inputs import FitInputs, read_inputs
from fairerclip.model.kept_fit import KeptFit
from fairerclip.model.parameters import FREE, check_parameters, warn_of_idle
from fairerclip.model.path import TauPath, path_grid, solve_path
from fairerclip.model.prepare import Prepared
from fairerclip.model.presets import preset
from fairerclip.model.saving import SavedModel


class FairerCLIP(FittedAnswers, KeptFit, SavedModel, BaseEstimator):
    """Mitigate bias and spurious correlation in CLIP-like embeddings.

    Learns an image encoder and a text encoder in an RKHS whose outputs depend on the target Y, depend less on the
    sensitive attribute S, and keep images aligned with their prompts. Closed form; with or without labels, any number
    of classes and sensitive values. A fit takes O(n·D² + D³/3) time and D² + block·D memory (plus n·D where that fits
    in half of the free memory).

    The first seven parameters are the ones to try. The other parameters have defaults that rarely need a change.
    Parameters that are "auto" are chosen from the labelled training rows by cross-validation, for the accuracy of the
    worst class × group; without labels, or with too few rows of a group, they keep values that did well on other
    tasks (docs/explanation/choosing.md). The values that were used end with an underscore: ``tau_``, ``zero_shot_``,
    ``gamma_``, ``criterion_``, ``guess_weight_``, ``offsets_``. With labels, the choice makes a fit about four times as
    long.

    Parameters
    ----------
    tau : float or "auto"
        Strength of the S term on the image side: larger values reduce the dependence on S further. In [0, 1) for
        ``scaling="spectral"``, any non-negative number for ``scaling="paper"``.
    zero_shot : float, "auto" or None
        Share of the zero-shot scores in the target, in [0, 1]: 0 uses the labels only, as the paper does, 1 the
        prompts only. None means the value that "auto" starts from: 0.5 where most labels are known, and 1 otherwise.
        Without ``text`` it is 0.
    gamma : float or "auto"
        Ridge of the image side.
    class_weight : None, "balanced", "group" or {class: weight}
        Weight of each row by its class, as in scikit-learn, or so that every class × sensitive value has the same total
        weight ("group"). Boundaries treat classes alike, but with a mapping a class of weight 2 is predicted as if it
        were twice as likely; a class that is not named has weight 1. Weights of guessed labels use the first guesses.
    criterion : {"auto", "marginal", "conditional"}
        Dependence on S, or on S inside each class (equal opportunity, equalized odds).
    class_offsets : {"auto", None}
        Learn offsets of the class scores from the out-of-fold scores of the training rows, or use the boundaries of
        the closed form. With a mapping as ``class_weight``, which moves the boundaries itself, none are learned.
    random_state : int, RandomState or None
        Seed of features, sub-sampling and samples.

    Other Parameters
    ----------------
    guess_weight : float or "auto"
        Weight of a row whose label is guessed, relative to one whose label is known, in [0, 1]. It has no effect if
        all labels are known, or none.
    tau_z : float
        Strength of the image-text alignment on the image side; same range as ``tau``.
    tau_text, tau_z_text : float or None
        The same strengths on the text side; None uses the values of the image side, as the paper does.
    gamma_text : float
        Ridge of the text side.
    kernel : {"rbf", "orthogonal", "nystroem", "exact", "linear"}
        Feature map of the image side. The text side uses the exact kernel on its few distinct prompts.
    n_features : int
        Number D of features, for ``kernel`` "rbf", "orthogonal" and "nystroem".
    bandwidth : float or str
        σ of the RBF kernel: a number, "median", or a multiple such as "3*median".
    alignment : {"linear", "rbf"}
        Kernel of the dependence Dep(Z_I, Z_T) between image and text embeddings.
    n_components : int or None
        Dimension r of the learned space; None means the number of classes minus one.
    orthogonal : bool
        Project the class prompts onto the orthogonal complement of the sensitive prompts before zero-shot scores are
        computed. Without ``sensitive_text`` it has no effect.
    decision : {"target", "prompts"}
        Predict the class with the largest predicted score, or, as in the paper, the class with the closest prompt.
    decision_zero : {"balanced", "mean", "none"}
        With ``decision="prompts"``, the point from which angles are measured: the midpoint of the class means, the
        mean of all rows, or the origin of the features (the paper's formula read literally, and the authors' code;
        the threshold then contains an offset of the random features).
    scaling : {"spectral", "paper"}
        Divide each term by its spectral norm and weight it by τ/(1−τ), or weight it by τ.
    subsample : None, "balanced", "balanced:SHARE", {class: share} or sequence of shares
        Rows to keep, drawn at random: from every class as many rows as the smallest class has ("balanced") or this
        share of that number, or a share in (0, 1] of the rows of each class, by class or in the order of
        ``classes_``. Row weights are computed for the rows that are kept.
    solver : {"auto", "cholesky", "cg"}
        How to solve with the regularised covariance: by a Cholesky factor, or by conjugate gradients, which never form
        it; "auto" takes what is estimated to cost less (docs/math.md#cg).
    max_iter : int
        Largest number of rounds of Algorithm 1.
    refine : bool
        Replace guessed labels by the model's predictions in every round, as the paper does, instead of keeping the
        first guesses. With a zero-shot share below 0.5 errors can reinforce themselves; see
        docs/explanation/choosing.md.
    normalize : bool
        Scale image and prompt embeddings to unit length, in `fit` and for new rows, so that the output of
        ``encode_image`` and unit rows give the same model and the same answers. False uses them unchanged.
    sensitive_terms : {"each", "intersection"}
        Several sensitive attributes as several terms, or as one term whose values are their combinations.
    sensitive_kind : {"auto", "categorical", "continuous"}
        Type of the sensitive attributes; "auto" treats floats with a fractional part as continuous.
    missing_label : object
        A value of y or of the sensitive features that means unknown, besides None and NaN.
    dtype : {"float32", "float64"}
        Working precision of the features during the fit; sums and solves are float64.
    memory_budget : int, str or None
        Memory for features and sums besides the rows and labels, in bytes or as "1GB"; None counts with what is free.
        Features that do not fit are computed again in every pass. It changes the time and the last digits.

    Attributes
    ----------
    classes_ : array of shape (c,)
        Class labels.
    offsets_ : array of shape (c,)
        Offsets that were added to the class scores: learned by ``class_offsets="auto"`` or by `FairerCLIPSearch`, or
        set by `at`; otherwise zeros.
    tau_, zero_shot_, gamma_, guess_weight_, criterion_ : float, float, float, float, str
        Values that were used.
    fitted_ : FittedModel
        All that new rows need; the attributes above, and those down to ``rows_``, are parts of it.
    features_, mean_, components_, intercept_ : FeatureMap, arrays of shape (D,), (D, r), (r,)
        The image encoder: ``transform(X) = (features_.transform(unit X) - mean_) @ components_ + intercept_``. Text
        encoder: ``text_features_``, ``text_mean_``, ``text_components_``, ``text_intercept_``.
    prompts_, prompt_classes_ : arrays of shape (m, p) and (m,), or None
        Prompts of the fit and the index of their class; None without text.
    eigenvalues_, rows_ : array of shape (r,), RowSummary
        Eigenvalues of the image side, whose sum is ``objective_``; lengths and mean direction of the training rows.
    seed_, n_iter_ : int
        Seed that was used (``random_state=seed_`` fits the same model again); rounds of Algorithm 1.
    pseudo_labels_, pseudo_sensitive_ : array of shape (n,), mapping or None
        Labels and sensitive values, known and guessed (labels after the last refinement), a mapping for several
        attributes; None where all were known.
    diagnostics_ : dict
        Residual, condition number, ranks, objective and label changes per round, margins; ``diagnostics_["automatic"]``
        is the record of the choice of "auto" parameters, ``diagnostics_["tuning"]`` that of a search.

    See Also
    --------
    fairerclip.FairerCLIPSearch : Choose the parameters on labelled rows.

    References
    ----------
    Dehdashtian, Wang, Boddeti, "FairerCLIP: Debiasing CLIP's Zero-Shot Predictions using Functions in RKHSs", 2024.

    Examples
    --------
    >>> from fairerclip import FairerCLIP
    >>> from fairerclip.data import simulate
    >>> task = simulate("multiclass", seed=0)
    >>> S = task.sensitive_attribute().text
    >>> model = FairerCLIP(n_features=500, random_state=0)
    >>> model = model.fit(task.train.X, task.train.y, text=task.text_target, sensitive_text=S)
    >>> model.transform(task.test.X).shape[1] == task.n_classes - 1
    True
    """

    def __init__(
        self,
        *,
        tau: float | str = "auto",
        zero_shot: float | str | None = "auto",
        gamma: float | str = "auto",
        class_weight: Any = "balanced",
        criterion: str = "auto",
        class_offsets: str | None = "auto",
        random_state: Any = None,
        guess_weight: float | str = "auto",
        tau_z: float = 0.7,
        tau_text: float | None = 0.1,
        tau_z_text: float | None = 0.1,
        gamma_text: float = 1e-4,
        kernel: str = "rbf",
        n_features: int = 1000,
        bandwidth: float | str = "3*median",
        alignment: str = "linear",
        n_components: int | None = None,
        orthogonal: bool = False,
        decision: str = "target",
        decision_zero: str = "balanced",
        scaling: str = "spectral",
        subsample: Any = None,
        solver: str = "auto",
        max_iter: int = 10,
        refine: bool = False,
        normalize: bool = True,
        sensitive_terms: str = "each",
        sensitive_kind: str = "auto",
        missing_label: Any = None,
        dtype: str = "float32",
        memory_budget: int | str | None = None,
    ) -> None:
        self.tau, self.zero_shot, self.gamma = tau, zero_shot, gamma
        self.class_weight, self.criterion, self.class_offsets = class_weight, criterion, class_offsets
        self.random_state, self.guess_weight = random_state, guess_weight
        self.tau_z, self.tau_text, self.tau_z_text = tau_z, tau_text, tau_z_text
        self.gamma_text = gamma_text
        self.kernel, self.n_features, self.bandwidth = kernel, n_features, bandwidth
        self.alignment, self.n_components, self.orthogonal = alignment, n_components, orthogonal
        self.decision, self.decision_zero = decision, decision_zero
        self.scaling, self.subsample = scaling, subsample
        self.solver, self.max_iter, self.refine = solver, max_iter, refine
        self.normalize = normalize
        self.sensitive_terms, self.sensitive_kind = sensitive_terms, sensitive_kind
        self.missing_label, self.dtype = missing_label, dtype
        self.memory_budget = memory_budget

    @classmethod
    def preset(cls, dataset: str, *, source: str = "paper", backbone: str = "ViT-L/14") -> FairerCLIP:
        """Return an unfitted, seeded model with published parameters.

        ``dataset`` is "paper" (the method as published), "waterbirds", "celeba", "cheekbones", "fairface" or "cfd";
        ``source`` is "paper", or "released" for the authors' code. The second of two classes is the positive one.
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
        progress: Any = None,
    ) -> FairerCLIP:
        """Learn both encoders.

        Parameters
        ----------
        X : array, data frame, tensor or EmbeddingStore of shape (n, p)
            Image embeddings.
        y : array of shape (n,), optional
            Labels, with None, NaN or ``missing_label`` where unknown; None for no labels at all. Unknown labels are
            predicted from ``text``, and refined with ``refine=True``; known labels stay.
        sensitive_features : array of shape (n,) or (n, a), or mapping from name to (n,), optional
            Categorical or continuous; missing categories are predicted from ``sensitive_text`` and never refined.
        text : mapping from class to prompts (p,) or (m, p), or prompts (c, p), optional
            Prompts that are not a mapping are in the order of ``classes``; without ``classes`` the labels must be
            0 … c−1. None: class means of X are used instead. Prompts that contradict known labels are a `PromptError`
            or a named warning.
        sensitive_text : mapping from value to prompts, or prompts (v, p), optional
            Prompts of the sensitive values; without a mapping the values must be 0 … v−1 or unknown. For several
            attributes a mapping from name to any of these.
        sample_weight, classes : array of shape (n,) and list, optional
            Row weights; class labels in the order of ``text``, where y does not contain all of them.
        missing_label : object, optional
            Replaces the constructor's; ``missing_label_`` is the value that was used.
        progress : callable, optional
            Called with the numbers of rows done and of all rows in each pass.
        """
        params = self.get_params(deep=False)
        check_parameters(params)
        warn_of_idle(params)
        inputs = read_inputs(
            *(params, self._validated(X, reset=True), y),
            sensitive_features=sensitive_features,
            text=text,
            sensitive_text=sensitive_text,
            sample_weight=sample_weight,
            classes=classes,
            missing_label=missing_label,
            progress=progress,
        )
        return self._learn(inputs)

    def _learn(self, inputs: FitInputs) -> FairerCLIP:
        """Choose what is "auto", solve, and keep the solution."""
        chosen = resolve_automatic(inputs.data)
        prepared = chosen.prepare(inputs.data)
        offsets = prepared.offsets(chosen.offsets)
        return self._complete(prepared, inputs, offsets, chosen.parameters, chosen.record)

    def _complete(
        self,
        prepared: Prepared,
        inputs: FitInputs,
        offsets: F64,
        params: Mapping[str, Any],
        record: dict[str, Any] | None = None,
    ) -> FairerCLIP:
        """Solve the factored problem of a fit with parameters of which none is "auto"."""
        self._solve(prepared, inputs.seen, offsets, params, depth=5)
        self.diagnostics_["automatic"] = record
        self.missing_label_, self.seed_ = inputs.missing_label, inputs.seed
        inputs.data.how.finish()
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
        """Solve every model on a (τ, τ_z) grid from the factorisation of this fit.

        Parameters
        ----------
        taus, tau_zs : float or list of float, optional
            Strengths of the image side, and of the text side where ``tau_text`` or ``tau_z_text`` is None. Default: 20
            values of τ from 0 to 0.95, and this model's ``tau_z``.
        criterion, zero_shots : str or list of str, float or list of float, optional
            Criteria, and shares of the zero-shot scores in the target. Default: this model's.
        refine : bool, optional
            Refine pseudo-labels at every point (one pass over the data per round), or keep the first guesses. Default:
            this model's.
        progress : callable, optional
            Called after each point with (done, total).
        """
        prepared, setting = self.state.prepared, self.state.setting
        grid = path_grid(setting, taus, tau_zs, criterion, zero_shots, has_text=prepared.target.has_text)
        refined = self.refine if refine is None else refine
        points, scores = solve_path(
            prepared, grid, refine=refined, offsets=self.state.offsets, progress=progress
        )
        return TauPath(self, points, scores, refined)

    def at(self, *, offsets: Any = None, **parameters: Any) -> FairerCLIP:
        """Return a fitted copy with other values of parameters that need no new sums over the rows, such as gamma.

        The parameters of the copy, its seed among them, fit the same model again, before offsets: they have the
        values that were used, none is "auto". Another gamma takes a factorisation, or steps of conjugate gradients
        from the solutions of this fit; the model is that of a fit up to rounding, or the tolerance of that solver.

        Parameters
        ----------
        offsets : sequence of c numbers, optional
            Added to the class scores, in the order of ``classes_``. Default: ``offsets_``.
        **parameters
            Parameters of the constructor to change.
        """
        state = self.state
        costly = [name for name in parameters if name not in (*FREE, "gamma")]
        if costly:
            raise ParameterError(
                f"{costly[0]} needs a new fit; free to change are gamma, {', '.join((*FREE, 'offsets'))}"
            )
        offsets = state.offsets if offsets is None else state.prepared.offsets(offsets)
        other = type(self)()
        other.__dict__.update(self.__dict__)  # copy.copy would leave out the training data, as pickling does
        of_fit = {"random_state": self.seed_, "normalize": self.fitted_.normalize}
        other.set_params(**{**self.used_parameters(), **parameters, **of_fit})
        if not parameters:
            return other._set_offsets(offsets)
        params = other.get_params(deep=False)
        check_parameters(params)
        prepared = state.prepared if "gamma" not in parameters else state.prepared.at(params["gamma"])
        return other._solve(prepared, self.fitted_.rows, offsets, params)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_state", None)  # the training data is not part of the model
        return state
