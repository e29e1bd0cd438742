"""`audit`: the audit of arrays or of a task in one call, and its result."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from fairerclip.applying.apply import AnyModel
from fairerclip.auditing.array_task import task_from_arrays
from fairerclip.auditing.audit_options import AuditOptions
from fairerclip.auditing.finding_results import Finding, Recommendation
from fairerclip.auditing.recommendation import recommend
from fairerclip.auditing.results import AuditResults
from fairerclip.auditing.results_display import results_html
from fairerclip.auditing.run import audit_task
from fairerclip.baselines.baseline import Baseline
from fairerclip.data import Task
from fairerclip.data.stores import EmbeddingStore
from fairerclip.embedding.mitigator import EmbeddingMitigator
from fairerclip.errors import ParameterError, PromptError, ShapeError
from fairerclip.experiment import Experiment
from fairerclip.model.estimator import FairerCLIP
from fairerclip.report.phrases import presentable
from fairerclip.report.write import write_report
from fairerclip.tuning.search import FairerCLIPSearch

WIDTH = 100
"""Longest line of the ``repr`` of an audit."""


@dataclass(frozen=True, repr=False)
class Audit:
    """Result of `fairerclip.audit`; printed, it is the verdict.

    Attributes
    ----------
    results : AuditResults
        All sections; ``fairerclip.report.write_report`` writes them in further forms.

    Examples
    --------
    >>> from fairerclip import audit
    >>> from fairerclip.data import simulate
    >>> task = simulate("waterbirds", seed=0, scale=0.02, width=32)
    >>> X, y, place = task.test.X, task.test.y, task.test.sensitive()
    >>> found = audit(X, y, text=task.text_target, sensitive_features=place, permutations=19)
    >>> found.findings[0].level
    'problem'
    """

    results: AuditResults

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, most serious first: sentences, each with its level."""
        return self.results.findings

    @property
    def recommendation(self) -> Recommendation:
        """The answer: ``sentence`` says what the audit shows, ``advice`` what to do, ``action`` the same in a word."""
        return recommend(self.results)

    def to_html(self, file: str | Path, *, title: str | None = None, overwrite: bool = False) -> Path:
        """Write the results as one self-contained page, completely or not at all, and return its path."""
        return write_report(self.results, file, "html", title=title, overwrite=overwrite)

    def to_json(self, file: str | Path, *, overwrite: bool = False) -> Path:
        """Write the results for ``fairerclip report``, completely or not at all, and return the path."""
        return write_report(self.results, file, "json", overwrite=overwrite)

    def __repr__(self) -> str:
        shown = presentable(self.results)
        split, rows = shown.settings.split or "", shown.task.rows
        levels = Counter(finding.level for finding in shown.findings)
        heading = f"Audit of {shown.task.name}" + (f": {rows[split]} {split} rows" if split in rows else "")
        answer = recommend(shown)
        verdict = [
            textwrap.fill(text, WIDTH, initial_indent=mark, subsequent_indent="  ")
            for mark, text in (("", answer.sentence), ("→ ", answer.advice))
        ]
        counts = ", ".join(f"{n} {level}" for level, n in levels.items())
        return "\n".join([heading, *verdict, f"Findings: {counts or 'none'}"])

    def _repr_html_(self) -> str:
        return results_html(self.results)


def audit(
    X: Any,
    y: Any = None,
    *,
    text: Any = None,
    sensitive_features: Any = None,
    sensitive_text: Any = None,
    classes: Iterable[Any] | None = None,
    missing_label: Any = None,
    model: FairerCLIP | FairerCLIPSearch | Baseline | EmbeddingMitigator | None = None,
    split: str | None = None,
    k: int | None = None,
    pair: Sequence[Any] | None = None,
    permutations: int = 199,
    confidence: float = 0.95,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Audit:
    """Measure how zero-shot prediction, and a fitted model if one is given, treat groups. Nothing is fitted.

    Parameters
    ----------
    X : array, data frame, tensor or EmbeddingStore of shape (n, p), or Task
        Image embeddings of rows that the model was not fitted on; or a task.
    y : array of shape (n,), optional
        Labels, with None, NaN or ``missing_label`` where unknown. None measures rankings only.
    text : mapping from class to prompts (p,) or (m, p), or prompts (c, p), optional
        Prompts, as in `FairerCLIP.fit`. None measures the model only.
    sensitive_features : array of shape (n,) or (n, a), mapping from name to (n,), or data frame
        Categories; several attributes are crossed. Of a task: names of attributes, by default the only one.
    sensitive_text : mapping from value to prompts, or prompts (v, p), optional
        Prompts to compare with the known sensitive values; no value is predicted from them.
    classes : list, optional
        Class labels in the order of ``text``. Of a task: names of the classes to audit, by default all.
    missing_label : object, optional
        Unknown label besides None and NaN.
    model : FairerCLIP, FairerCLIPSearch, Baseline or EmbeddingMitigator, optional
        Fitted model to show as *after*; a mitigator classifies by the prompts and answers a task's free queries.
        Integer classes of a model are the codes of a task's classes.
    split : str, optional
        Split of a task to report on; by default test, else val, else train.
    k, pair : int and sequence of two values, optional
        Number of top results of a search, by default 1000, or a quarter of the rows if there are fewer than 4000; and
        the two groups of Bias@k, by default both where there are exactly two (crossed values as "female, old").
    permutations, confidence, seed, progress : int, float, int, callable
        Permutations for p-values, level of intervals, seed; function that is called after each part with (done, total).

    Returns
    -------
    Audit
        ``findings``, ``recommendation``, ``to_html(file)``, ``to_json(file)``; ``results`` has every figure.
    """
    given = {"y": y, "text": text, "sensitive_text": sensitive_text, "missing_label": missing_label}
    prepare = _of_task if isinstance(X, Task) else _of_arrays
    experiment, names = prepare(X, sensitive_features, classes, split, given)
    after = None if model is None else _named_model(model, names, X)
    options = AuditOptions(
        split=split, k=k, pair=_texts(pair), permutations=permutations, confidence=confidence, seed=seed
    )
    return _audited(experiment, options, after, progress)


def _texts(pair: Sequence[Any] | None) -> tuple[str, ...] | None:
    """Return the groups of a pair by the names that they have in results; a text alone is one group."""
    return None if pair is None else tuple(map(str, [pair] if isinstance(pair, str) else pair))


def _audited(
    experiment: Experiment,
    options: AuditOptions,
    after: AnyModel | EmbeddingMitigator | None,
    progress: Callable[[int, int], None],
) -> Audit:
    if after is None and experiment.text is None:
        raise PromptError("there is nothing to audit: give text= for zero-shot prediction, or model=")
    results, _ = audit_task(experiment, options, model=after, fitted=True, progress=progress)
    task = results.task.model_copy(update={"file": None})  # a Task does not know its file
    return Audit(results.model_copy(update={"task": task}))


def _of_arrays(
    X: Any, sensitive_features: Any, classes: Any, split: str | None, given: Mapping[str, Any]
) -> tuple[Experiment, dict[Any, str]]:
    """Return the experiment of all rows and attributes, and the name of each class label."""
    if split is not None:
        raise ParameterError(f"split={split!r} goes with a Task; arrays are one split: give its rows")
    task, names = task_from_arrays(X, sensitive_features=sensitive_features, classes=classes, **given)
    return Experiment.of(task, list(task.sensitive)), names


def _of_task(
    task: Task, attributes: Any, classes: Any, split: str | None, given: Mapping[str, Any]
) -> tuple[Experiment, dict[Any, str]]:
    """Return the experiment of some attributes and classes, and the name of each class by its name and its code."""
    superfluous = [f"{name}=" for name, value in given.items() if value is not None]
    if superfluous:
        raise ParameterError(
            f"{', '.join(superfluous)} goes with arrays; a Task holds its labels and prompts: leave it out"
        )
    chosen = [attributes] if isinstance(attributes, str) else attributes
    if chosen is not None and not all(isinstance(name, str) for name in chosen):
        raise ParameterError(
            f"sensitive_features of a Task are names of its attributes, {', '.join(task.sensitive)}; got "
            f"{type(attributes).__name__}"
        )
    names: dict[Any, str] = {name: name for name in task.class_names}
    names |= dict(enumerate(task.class_names))
    return Experiment.of(task, chosen, None if classes is None else list(classes)), names


def _named_model(model: Any, names: Mapping[Any, str], X: Any) -> AnyModel | EmbeddingMitigator:
    """Return a copy of a fitted model that predicts the names of classes, for rows without names of columns."""
    if isinstance(model, EmbeddingMitigator):
        return _unnamed_mitigator(model, X)
    if isinstance(model, Baseline):
        return _named_baseline(model, names, X)
    if not isinstance(model, FairerCLIP | FairerCLIPSearch):
        raise ParameterError(
            f"model must be a fitted FairerCLIP, FairerCLIPSearch, EmbeddingMitigator or baseline of this package; got "
            f"{type(model).__name__}"
        )
    fitted = model.fitted_model()
    if not isinstance(X, Task):
        model.embeddings(X)  # raises if X has other columns than the rows of the fit
    copied = copy(model.best_estimator_ if isinstance(model, FairerCLIPSearch) else model)
    copied.fitted_ = replace(fitted, classes=_named(fitted.classes, names))
    copied.__dict__.pop("feature_names_in_", None)
    return copied


def _unnamed_mitigator(model: EmbeddingMitigator, X: Any) -> EmbeddingMitigator:
    check_is_fitted(model, "fitted_")
    if not isinstance(X, Task | EmbeddingStore):
        model.transform(X[:1])  # raises if X has other columns than the rows of the fit
    copied = copy(model)
    copied.__dict__.pop("feature_names_in_", None)
    return copied


def _named_baseline(model: Baseline, names: Mapping[Any, str], X: Any) -> Baseline:
    check_is_fitted(model, model.fitted)
    if not isinstance(X, Task):
        try:
            model.scores(X[:1])  # raises if X has other columns than the rows of the fit
        except ValueError as error:
            raise ShapeError(str(error)) from None
    copied = copy(model)
    copied.classes_ = _named(model.classes_, names)
    copied.__dict__.pop("feature_names_in_", None)
    return copied


def _named(classes: NDArray[Any], names: Mapping[Any, str]) -> NDArray[Any]:
    return np.array([names.get(label, str(label)) for label in classes.tolist()])
