"""`FairerCLIP`: the method behind scikit-learn's face."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from fairerclip._util.types import F64, Floats
from fairerclip.data.embedding_rows import Drift, RowSummary
from fairerclip.data.stores import EmbeddingStore
from fairerclip.errors import ParameterError, RenamedWarning, ShapeError, StateError
from fairerclip.inputs.sensitive import resolve_sensitive
from fairerclip.inputs.target import resolve_target
from fairerclip.inputs.weights import check_weights
from fairerclip.model import prepare as fitting
from fairerclip.model.fitted import FittedModel, Ranking, part
from fairerclip.model.model_file import read_model, write_model
from fairerclip.model.parameters import FREE, check_parameters, warn_of_idle
from fairerclip.model.path import TauPath, path_grid, solve_path
from fairerclip.model.presets import preset
from fairerclip.solver.decision import softmax

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class FairerCLIP(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClassifierMixin, BaseEstimator):
    """Mitigate bias and spurious correlation in CLIP-like embeddings.

    Learns an image and a text encoder in an RKHS whose outputs depend on the target Y, depend less on the sensitive
    attribute S, and keep images aligned with their prompts. Closed form; with or without labels, any number of classes
    and sensitive values. A fit takes O(n·D² + D³/3) time and D² + block·D memory (plus n·D where that fits in a
    quarter of the free memory).

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
        Project the class prompts onto the orthogonal complement of the sensitive prompts before those scores are
        read; without ``sensitive_text`` it changes nothing.
    decision : {"target", "prompts"}
        Predict the class with the largest predicted score, or, as the paper, the one whose prompt is closest in angle.
    offsets : sequence of c numbers or None
        Added to the scores of the classes: where the boundaries between them lie. `tune` learns them.
    sensitive_shifts : c rows of numbers, one per sensitive value, or None
        Weights of the predicted sensitive values that are subtracted from each class score.
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
    fitted_ : `FittedModel`, all that new rows need; the attributes down to ``rows_`` are parts of it.
    classes_ : (c,) class labels.
    components_ : (D, r) U of the image side;
        ``transform(X) = (features_.transform(unit X) - mean_) @ components_ + intercept_``.
    mean_ : (D,) weighted mean of the features.
    intercept_ : (r,) puts the origin of the learned space where inner products (``decision="target"``) or cosines
        (``decision="prompts"``) with `transform_text` decide as `predict` does.
    features_, text_features_ : fitted feature maps of both sides.
    text_components_, text_mean_, text_intercept_ : the text side's.
    prompts_, prompt_classes_ : (m, p), (m,) the prompts of the fit and the place of their class, or None without text.
    eigenvalues_ : (r,) of the image side; ``objective_`` is their sum.
    rows_ : lengths and mean direction of the training rows, for `drift`.
    seed_ : the number that drew features and samples; ``random_state=seed_`` fits the same model again.
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
    >>> S = task.sensitive_attribute().text
    >>> model = FairerCLIP(n_features=500, random_state=0)
    >>> model = model.fit(task.train.X, task.train.y, text=task.text_target, sensitive_text=S)
    >>> model.transform(task.test.X).shape[1] == task.n_classes - 1
    True
    """

    fitted_: FittedModel
    _state: fitting.FitState | None = None

    classes_ = part("classes")
    features_, text_features_ = part("features"), part("text_features")
    mean_, components_ = part("encoders.mean"), part("encoders.components")
    intercept_, text_intercept_ = part("encoders.intercept"), part("encoders.text_intercept")
    text_mean_, text_components_ = part("encoders.text_mean"), part("encoders.text_components")
    zero_, directions_ = part("encoders.decision.zero"), part("encoders.decision.directions")
    score_weights_ = part("encoders.decision.weights")
    score_constants_ = part("encoders.decision.constants")
    eigenvalues_, objective_ = part("encoders.eigenvalues"), part("objective")
    prompts_, prompt_classes_ = part("prompts"), part("prompt_classes")
    temperature_, rows_ = part("temperature"), part("rows")
    _n_features_out = part("n_components")

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
        self.tau, self.tau_z = tau, tau_z
        self.tau_text, self.tau_z_text = tau_text, tau_z_text
        self.gamma, self.gamma_text = gamma, gamma_text
        self.n_features = n_features
        self.bandwidth, self.kernel = bandwidth, kernel
        self.alignment = alignment
        self.n_components = n_components
        self.zero_shot, self.orthogonal = zero_shot, orthogonal
        self.decision, self.decision_zero = decision, decision_zero
        self.offsets, self.sensitive_shifts = offsets, sensitive_shifts
        self.criterion, self.scaling = criterion, scaling
        self.class_weight = class_weight
        self.solver = solver
        self.max_iter, self.refine = max_iter, refine
        self.sensitive_terms, self.sensitive_kind = sensitive_terms, sensitive_kind
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
        warn_of_idle(params)
        prompted = text is not None or sensitive_text is not None
        X, seen = fitting.training_rows(
            self._validated(X, reset=True), normalize=self.normalize, prompted=prompted
        )
        weight = check_weights(sample_weight, X.shape[0])
        missing = self.missing_label if missing_label is None else missing_label
        target = resolve_target(X, y, text, weight, classes=classes, missing_label=missing)
        sensitive = resolve_sensitive(
            *(X, sensitive_features, sensitive_text, target),
            kind=self.sensitive_kind,
            terms=self.sensitive_terms,
            missing_label=missing,
        )
        seed = fitting.draw_seed(self.random_state)
        params["random_state"] = check_random_state(seed)
        self._solve(fitting.prepare(X, target, sensitive, params, weight), seen)
        self.missing_label_, self.seed_ = missing, seed
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
        """Fit with the parameters that do best on labelled validation rows, and learn class offsets.

        Groups are judged by a posterior over their accuracies, since raw shares of a handful of rows are luck;
        docs/choosing.md. ``diagnostics_["tuning"]`` has the chosen point and its neighbours, each with intervals.

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
        """
        from fairerclip.tuning.tune import tune

        check_parameters(self.get_params(deep=False))
        warn_of_idle(self.get_params(deep=False))
        found = tune(
            *(self, X, y, validation, objective),
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
        prepared, setting = self.state.prepared, self.state.setting
        grid = path_grid(setting, taus, tau_zs, criterion, zero_shots, has_text=prepared.target.has_text)
        refined = self.refine if refine is None else refine
        return TauPath(self, solve_path(prepared, grid, refine=refined, progress=progress), refined)

    @property
    def state(self) -> fitting.FitState:
        """What the fit left in memory; a model that was loaded or unpickled has nothing of it."""
        check_is_fitted(self)
        if self._state is None:
            raise StateError(
                "this model no longer holds its training data (it was loaded or unpickled): call fit first"
            )
        return self._state

    def at(self, **parameters: Any) -> FairerCLIP:
        """Return a fitted copy with other values of those parameters that need no new factorisation.

        The parameters of the copy, its seed among them, fit the same model again.
        """
        prepared = self.state.prepared
        costly = [name for name in parameters if name not in FREE]
        if costly:
            raise ParameterError(f"{costly[0]} needs a new fit; free to change are {', '.join(FREE)}")
        other = type(self)()
        other.__dict__.update(self.__dict__)  # copy.copy would leave out the training data, as pickling does
        other.set_params(**parameters, random_state=self.seed_)
        check_parameters(other.get_params(deep=False))
        return other._solve(prepared, self.fitted_.rows)

    def predict(self, X: Any) -> NDArray[Any]:
        """Class labels (n,)."""
        return self.decide(self.transform(X))["prediction"]

    def decision_function(self, X: Any) -> F64:
        """Signed margin (n,) for two classes, scores (n, c) for more; inner products, not cosines."""
        return self.decide(self.transform(X))["score"]

    def decide(self, Z: Floats) -> dict[str, NDArray[Any]]:
        """What `predict` and `decision_function` give, from rows that `transform` gave (n, r)."""
        check_is_fitted(self)
        return self.fitted_.decide(Z)

    def scores(self, X: Any) -> F64:
        """Scores of the classes (n, c): `predict` takes the largest of a row, `rank` sorts the rows by one."""
        Z = self.transform(X)
        return self.fitted_.scores(Z)

    def predict_proba(self, X: Any) -> F64:
        """Softmax of the scores (n, c) at the temperature that fits the training labels best."""
        return softmax(self.scores(X) * self.temperature_)

    def cosines(self, X: Any) -> F64:
        """Return the paper's cosines with each class's text vector (n, c); ±1 where r = 1.

        They are no scores: with ``decision="target"`` or with offsets their largest need not be the predicted class.
        """
        Z = self.transform(X)
        return self.fitted_.cosines(Z)

    def similarity(self, X: Any) -> F64:
        """Return `cosines`, under its earlier name."""
        warnings.warn(
            "similarity is called cosines now; it goes in the next release", RenamedWarning, stacklevel=2
        )
        return self.cosines(X)

    def transform(self, X: Any) -> Floats:
        """Image embeddings in the learned space (n, r); O(n·p·D) time, by blocks.

        Where r < c − 1 dimensions cannot hold the boundaries between c classes there is one more column, of ones.
        """
        X = self._validated(X)
        return self.fitted_.transform(X)

    def transform_text(self, T: Any) -> F64:
        """Prompt embeddings (m, p) in the learned space (m, r), to be compared with what `transform` gives.

        With ``decision="prompts"`` this is the learned text encoder, for any prompt, and cosines classify as `predict`
        does (offsets aside). With ``decision="target"`` a fitted prompt gives the weights of its class, so that
        ``transform(X) @ transform_text(T).T`` ranks and classifies as `rank` and `predict` do; the learned space holds
        the target alone, so another prompt is a `FreeQueryError`.
        """
        check_is_fitted(self)
        return self.fitted_.transform_text(T)

    def rank(self, prompt: Any, X: Any, k: int | None = None) -> Ranking:
        """Rows of X that match a prompt the model was fitted on, best first, by inner product.

        ``prompt`` is one of ``classes_``: the learned space holds the target alone, so a free query has no meaning.
        """
        X = self._validated(X)
        return self.fitted_.rank(prompt, X, k)

    def drift(self, X: Any) -> Drift:
        """Compare new rows with those of the fit: lengths before normalising, and mean direction. O(n·p)."""
        X = self._validated(X)
        return self.fitted_.drift(X)

    def embeddings(self, X: Any) -> Any:
        """Rows (n, p) as the encoder takes them: of the fitted width, finite, and at unit length with ``normalize``."""
        X = self._validated(X)
        return self.fitted_.embeddings(X)

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
        state.pop("_state", None)  # the training data is not part of the model
        return state

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "fitted_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _validated(self, X: Any, *, reset: bool = False) -> Any:
        if not reset:
            check_is_fitted(self)
        try:  # finiteness is checked by check_rows, which names the rows
            if isinstance(X, EmbeddingStore):  # its rows are float32 already, and are never all in memory
                return validate_data(self, X, reset=reset, skip_check_array=True)
            return validate_data(self, X, reset=reset, dtype="numeric", ensure_all_finite=False)
        except ValueError as error:
            raise ShapeError(str(error)) from None

    def _solve(self, prepared: fitting.Prepared, seen: RowSummary | None) -> FairerCLIP:
        """Solve a problem with the present parameters, and become the model of the solution."""
        state, result = fitting.solve(prepared, self.get_params(deep=False))
        fitted, notes = state.model(seen, normalize=self.normalize)
        # Only now that there is a solution: a fit that fails leaves the model as it was.
        self._state, self.fitted_ = state, fitted
        self.n_iter_ = len(result.history)
        self.diagnostics_: dict[str, Any] = fitting.diagnostics(prepared, result)
        self.pseudo_labels_ = state.pseudo_labels(result.labels if self.refine else None)
        values = prepared.sensitive.values
        self.pseudo_sensitive_ = next(iter(values.values())) if len(values) == 1 else values or None
        for kind, message in (*result.notes, *notes):
            warnings.warn(message, kind, stacklevel=3)
        return self
