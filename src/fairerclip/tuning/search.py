"""`FairerCLIPSearch`: the choice of parameters on labelled rows, as a scikit-learn meta-estimator."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone

from fairerclip._util.types import F64
from fairerclip.errors import LabelError, ParameterError
from fairerclip.judging.choose import Choice, choose, choose_by_scorer
from fairerclip.judging.objectives import Objective
from fairerclip.model.answers import FittedAnswers
from fairerclip.model.automatic import AUTOMATIC, start_values
from fairerclip.model.estimator import FairerCLIP
from fairerclip.model.fit_data import FitData
from fairerclip.model.fitted import FittedModel
from fairerclip.model.parameters import check_parameters, warn_of_idle
from fairerclip.model.prepare import Prepared, draw_seed
from fairerclip.tuning.candidates import CandidateFits, gather, search_space
from fairerclip.tuning.found_rows import FoundRows, check_groups, find_rows
from fairerclip.tuning.judged_rows import check_columns, label_column, shape_of, split_validation
from fairerclip.tuning.pool import Pool
from fairerclip.tuning.read_once import ReadOnce
from fairerclip.tuning.record import VARIED, candidate_table, search_record, warn_of_floor, with_floor

Progress = Callable[[int, int], None]


class FairerCLIPSearch(FittedAnswers, MetaEstimatorMixin, BaseEstimator):
    """Choose the parameters of `FairerCLIP` on labelled rows, and learn class offsets.

    Candidates are judged on validation rows and on training rows with a label, each scored by models that were fitted
    without it. The objective is estimated by a posterior over the accuracies of the groups (raw shares of a handful of
    rows are noisy), and a candidate replaces the given parameters only if the rows show a gain;
    docs/explanation/choosing.md. The estimator that was given is never changed. After `fit` the search predicts, scores
    and ranks as ``best_estimator_`` does.

    Parameters
    ----------
    estimator : FairerCLIP or None
        Model whose parameters the search starts from; None for ``FairerCLIP()``.
    objective : str or callable
        "worst_group", "worst_class", "eod" or "equalized_odds" (the smallest difference, best with an
        ``accuracy_floor``), "average", or a function of (y, predicted, groups) whose largest value wins.
    accuracy_floor : float or None
        Share of right predictions to reach on the judged rows, in [0, 1]. If no candidate reaches it, the most
        accurate one is taken, with an `AccuracyFloorWarning`. None means no floor, or for "eod" and "equalized_odds"
        the accuracy of zero-shot.
    search_space : mapping or None
        Candidates to try instead of the defaults: ``fits`` (a list of mappings of parameters, each a new fit),
        ``taus``, ``zero_shots``, ``criteria`` (free).
    max_seconds : float or None
        Stop before a fit that would end later; the first fit of the search, in every fold, is always done.
    cv : int, splitter, iterable of (train, test), or None
        Cross-validation on the training rows: a number of folds, which are stratified by class × group, or as
        scikit-learn takes it. A row is judged once at most. With None validation rows judge alone; without these it
        means four folds.
    random_state : int, RandomState or None
        Seed of the folds, and of the features where ``estimator`` has ``random_state=None``: all candidates share one
        draw of features. With an int, a clone of the search finds the same model.

    Attributes
    ----------
    best_estimator_ : FairerCLIP
        The chosen model, fitted on all training rows, with ``offsets_`` as learned.
        ``best_estimator_.diagnostics_["tuning"]`` is the record of the search, which `FairerCLIP.save` stores.
    best_params_ : dict
        Chosen values of the parameters that are searched, and the seed.
        ``clone(estimator).set_params(**best_params_).fit(…)`` gives the scores of ``best_estimator_`` before learned
        offsets.
    best_score_ : float
        The objective of the chosen model, as counted on the judged rows, which it was chosen on; a difference is
        negative, so that larger is better.
    results_ : list of dict
        A table with one row per candidate: its parameters and its figures on the judged rows.
    strategy_ : str
        What was chosen: "given" (the given parameters), "given, offsets", "search" (another candidate) or "search,
        offsets".
    classes_ : array of shape (c,)
        Class labels.

    See Also
    --------
    fairerclip.FairerCLIP : The model.

    Examples
    --------
    >>> from fairerclip import FairerCLIP, FairerCLIPSearch
    >>> from fairerclip.data import simulate
    >>> task = simulate("waterbirds", seed=0, scale=0.1, width=32)
    >>> S = task.sensitive_attribute().text
    >>> space = {"fits": [{"class_weight": "balanced"}], "taus": [0.0, 0.8], "zero_shots": [0.5]}
    >>> search = FairerCLIPSearch(FairerCLIP(n_features=100, random_state=0), search_space=space)
    >>> validation = (task.val.X, task.val.y, task.val.sensitive())
    >>> search = search.fit(
    ...     task.train.X, task.train.y, text=task.text_target, sensitive_text=S, validation=validation)
    >>> search.predict(task.test.X).shape == task.test.y.shape
    True
    """

    best_estimator_: FairerCLIP

    def __init__(
        self,
        estimator: FairerCLIP | None = None,
        *,
        objective: Any = "worst_group",
        accuracy_floor: float | None = None,
        search_space: Mapping[str, Any] | None = None,
        max_seconds: float | None = None,
        cv: Any = 4,
        random_state: Any = 0,
    ) -> None:
        self.estimator = estimator
        self.objective, self.accuracy_floor = objective, accuracy_floor
        self.search_space = search_space
        self.max_seconds = max_seconds
        self.cv = cv
        self.random_state = random_state

    @property
    def fitted_(self) -> FittedModel:  # type: ignore[override]
        """What ``best_estimator_`` needs for new rows."""
        return self.best_estimator_.fitted_

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        validation: Any = None,
        groups: Any = None,
        sensitive_features: Any = None,
        text: Any = None,
        sensitive_text: Any = None,
        sample_weight: Any = None,
        classes: Any = None,
        missing_label: Any = None,
        progress: Progress | None = None,
    ) -> FairerCLIPSearch:
        """Search, and fit the chosen model on all training rows.

        Parameters
        ----------
        X, y, sensitive_features, text, sensitive_text, sample_weight, classes, missing_label
            As `FairerCLIP.fit` takes them; with validation rows y may be None.
        validation : (X, y, s) or None
            Labelled rows to judge candidates on, besides the training rows with a label (`UnusedRowsWarning` where
            these cannot judge). (X, y), or s=None, predicts the groups from ``sensitive_text``. With None the training
            rows judge alone; groups are ``sensitive_features``, or predicted.
        groups : array of shape (n,), optional
            Rows with equal entries (one person, near-duplicates) stay in one fold of the cross-validation.
        progress : callable, optional
            Called after each fit with (done, planned).
        """
        base = self._base()
        checked = self._validated(X, reset=True)
        X = X if hasattr(X, "columns") else checked  # the chosen model keeps the names of columns
        if self.max_seconds is not None and not (
            isinstance(self.max_seconds, numbers.Real) and self.max_seconds > 0
        ):
            raise ParameterError(f"max_seconds must be a number above 0 or None; got {self.max_seconds!r}")
        if validation is not None and groups is not None and self.cv is None:
            raise ParameterError(
                "groups keeps rows together in cross-validation; with validation= and cv=None there are no folds"
            )
        # An iterator of classes would be empty by the second fit.
        given = {
            "sensitive_features": sensitive_features,
            "text": text,
            "sensitive_text": sensitive_text,
            "sample_weight": sample_weight,
            "classes": None if classes is None else list(classes),
            "missing_label": missing_label,
        }
        self._search(base, X, y, validation, groups, given, progress)
        return self

    def _base(self) -> FairerCLIP:
        """Return the estimator to search from: unfitted, checked, and with a seed."""
        model = FairerCLIP() if self.estimator is None else self.estimator
        if not isinstance(model, FairerCLIP):
            raise ParameterError(f"estimator must be a FairerCLIP; got {type(model).__name__}")
        base: FairerCLIP = clone(model)
        check_parameters(base.get_params(deep=False))
        warn_of_idle(base.get_params(deep=False))
        # A generator would draw other features for every candidate.
        base.set_params(
            random_state=draw_seed(self.random_state if base.random_state is None else base.random_state)
        )
        return base

    def _search(
        self,
        base: FairerCLIP,
        X: Any,
        y: Any,
        validation: Any,
        groups: Any,
        given: dict[str, Any],
        progress: Progress | None,
    ) -> None:
        """Search by the figures of candidates on judged rows."""
        if callable(self.objective) and self.accuracy_floor is not None:
            raise ParameterError("accuracy_floor cannot be used with a function as the objective")
        goal = None if callable(self.objective) else Objective(self.objective, self.accuracy_floor)
        y, validation = _checked(X, y, validation)
        together = check_groups(groups, shape_of(X)[0])
        fits, grid = search_space(self.search_space)  # an invalid one is refused before rows are read
        own_fits = {"fits": fits} if self.search_space is not None and "fits" in self.search_space else {}
        params = base.get_params(deep=False)
        rows = self._validated(X, reset=True)
        read = ReadOnce(params, rows, y, given)
        data = read.inputs.data
        params = start_values(params, data.known_share)
        missing = params["missing_label"] if given["missing_label"] is None else given["missing_label"]
        found = find_rows(
            *(data, rows, y, validation),
            cv=self.cv,
            groups=together,
            seed=draw_seed(self.random_state),
            missing_label=missing,
        )
        found.judged.check_defined(goal)

        def data_of(other: Mapping[str, Any]) -> FitData:
            return data if other is params else read.data(other)

        candidates = CandidateFits(params, data_of, found.splits, found.held)
        pool = gather(
            *(candidates, found.judged.evidence, goal),
            search={**grid, **own_fits},
            has_text=given["text"] is not None,
            has_sensitive_text=given["sensitive_text"] is not None,
            max_seconds=self.max_seconds,
            progress=progress,
        )
        chosen, goal = self._choose(pool, found, goal)
        best = pool.candidates[chosen.candidate]
        used = {name: params[name] for name in AUTOMATIC}
        model = clone(base).set_params(**{**used, **best.parameters, "class_offsets": None})
        shared = read.is_shared({**params, **best.parameters})
        prepared = candidates.prepared(best.parameters) if shared else None
        if prepared is None:
            model.fit(X, y, **given)
            model = model.at(offsets=chosen.offsets) if np.any(chosen.offsets) else model
        else:
            model = _fit_again(model, X, prepared, read, chosen.offsets)
        record = self._take(model, pool, chosen, found, goal)
        self.results_ = candidate_table(pool, found.judged.evidence, goal, params)
        warn_of_floor(record, given=self.accuracy_floor is not None)

    def _take(
        self, model: FairerCLIP, pool: Pool, chosen: Choice, found: FoundRows, goal: Objective | None
    ) -> dict[str, Any]:
        """Take over the model that was chosen and its figures, and return the record of the search."""
        name = self.objective if goal is not None else getattr(self.objective, "__name__", "scorer")
        floor = None if goal is None else goal.accuracy_floor
        record = search_record(pool, chosen, found, model, objective=name, floor=floor)
        model.diagnostics_["tuning"] = record
        best = pool.candidates[chosen.candidate]
        self.best_estimator_ = model
        self.best_params_ = _chosen_params(model, (*VARIED, *AUTOMATIC, *best.parameters))
        scores = best.scores.astype(np.float64) + chosen.offsets
        self.best_score_ = chosen.value if goal is None else goal.figure(found.judged.evidence, scores)
        self.strategy_ = chosen.strategy
        return record

    def _choose(
        self, pool: Pool, found: FoundRows, goal: Objective | None
    ) -> tuple[Choice, Objective | None]:
        """Return the choice among the candidates, and the objective with its floor."""
        judged = found.judged
        if goal is not None:
            goal = with_floor(goal, pool, judged, found.prompts)
            verdicts = pool.verdicts(judged.evidence, goal)
            return pool.named(choose(pool.scores, judged.evidence, goal, pool.reference, verdicts)), goal

        def score(scores: F64) -> float:
            value = self.objective(judged.y, judged.classes[scores.argmax(axis=1)], judged.groups)
            if not isinstance(value, numbers.Real):
                raise ParameterError(f"the objective function must return a number; got {value!r:.200}")
            return float(value)

        return pool.named(choose_by_scorer(pool.scores, score, pool.reference)), None


def _checked(X: Any, y: Any, validation: Any) -> tuple[NDArray[Any] | None, Any]:
    """Return labels and validation rows, checked; raise if there is nothing to choose by."""
    if validation is None and y is None:
        raise LabelError(
            "FairerCLIPSearch requires y to be passed, but the target y is None: give y, or validation=(X, y, s) "
            "with labels to choose by"
        )
    if validation is not None:
        held = split_validation(validation)
        check_columns(X, validation[0], held[0])
        validation = held
    return None if y is None else label_column(y), validation


def _fit_again(model: FairerCLIP, X: Any, prepared: Prepared, read: ReadOnce, offsets: F64) -> FairerCLIP:
    """Fit the chosen model on all rows, which are not read again; of the search, the offsets alone are left in it."""
    model._validated(X, reset=True)
    params = start_values(model.get_params(deep=False), read.inputs.data.known_share)
    model._complete(prepared, read.inputs, prepared.offsets(offsets), params)
    if np.any(offsets):  # as `FairerCLIP.at` leaves it
        model.set_params(**model.used_parameters(), random_state=model.seed_)
    read.repeat_warnings(depth=4)  # the line that called `FairerCLIPSearch.fit`
    return model


def _chosen_params(model: FairerCLIP, searched: Iterable[str]) -> dict[str, Any]:
    """Return the parameters of a model that a search varied, and its seed."""
    own = model.get_params(deep=False)
    return {name: own[name] for name in own if name in {*searched, "random_state"}}
