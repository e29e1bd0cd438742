"""A task with chosen classes and attributes; the only module that decides which labels a fit may use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.remedies import use_labels, without_prompts
from fairerclip.applying.answer_blocks import predicted_labels
from fairerclip.applying.apply import AnyModel
from fairerclip.data import EmbeddingStore, Split, Task
from fairerclip.data.coded_labels import UNKNOWN as UNKNOWN
from fairerclip.data.coded_labels import CodedLabels, count_pairs, cross_labels, with_gaps
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.data.row_pass import is_remote
from fairerclip.data.store_rows import rows_in_memory
from fairerclip.errors import LabelError, ParameterError, PromptError, ShapeError
from fairerclip.inputs.prompts import zero_shot
from fairerclip.metrics import GroupReport, PairedReport, group_report, max_skew, paired_report
from fairerclip.metrics.retrieval.top_rows import default_cut
from fairerclip.model.estimator import FairerCLIP
from fairerclip.model.path import TauPath
from fairerclip.tuning.search import FairerCLIPSearch

LABELS = ("none", "target", "all")
"""Which labels of the training split a fit may use: none, y, or y and s."""
TUNING_ROWS = 10
"""Number of labelled validation rows from which a model is tuned by default."""
HALVES = 2
"""Smallest number of labelled validation rows to choose a model with: one half chooses, the other half judges."""


@dataclass(frozen=True)
class PromptSkew:
    """MaxSkew@k of the ranking by one prompt, zero-shot and by a model."""

    prompt: str
    k: int
    before: float
    after: float


@dataclass(frozen=True)
class Experiment:
    """A task with some of its classes and some of its sensitive attributes; `Experiment.of` makes one.

    Attributes
    ----------
    task : Task
        The task.
    sensitive : tuple of str
        Names of the sensitive attributes.
    classes : tuple of str
        Names of the classes.
    """

    task: Task
    sensitive: tuple[str, ...]
    classes: tuple[str, ...]

    @classmethod
    def of(
        cls, task: Task, sensitive: Sequence[str] | None = None, classes: Sequence[str] | None = None
    ) -> Experiment:
        """Make an experiment with some attributes (None for the only one) and classes (None for all) of a task.

        Two opposite prompts as classes make a retrieval query.
        """
        if sensitive is None:
            sensitive = [task.sensitive_attribute().name] if task.sensitive else []
        names = tuple(task.sensitive_attribute(name).name for name in sensitive)
        chosen = tuple(task.class_names) if classes is None else tuple(classes)
        unknown = [c for c in chosen if c not in task.class_names]
        if unknown:
            raise ParameterError(f"{unknown} are not classes of {task.name}: {', '.join(task.class_names)}")
        if len(set(task.class_names)) != len(task.class_names) or len(set(chosen)) < 2:
            raise LabelError(f"at least 2 classes with distinct names are needed; got {', '.join(chosen)}")
        return cls(task, names, chosen)

    @property
    def text(self) -> NDArray[np.floating] | None:
        """Prompt embeddings (c, p) of the chosen classes; None without prompts."""
        if self.task.text_target is None:
            return None
        return self.task.text_target[[self.task.class_names.index(c) for c in self.classes]]

    @property
    def named_text(self) -> dict[str, NDArray[np.floating]] | None:
        """Prompt embedding (p,) by class name, so that a fit does not depend on the order of the prompts."""
        return None if self.text is None else dict(zip(self.classes, self.text, strict=True))

    def target(self, split: Split) -> NDArray[np.str_] | None:
        """Return the class names of a split's rows (n,), `UNKNOWN` if unknown or not chosen; None without y."""
        if split.y is None:
            return None
        names = _named(split, split.y, self.task.class_names)
        if isinstance(names, CodedLabels):
            return cast(NDArray[np.str_], names.only(self.classes))
        return np.where(np.isin(names, self.classes), names, UNKNOWN)

    def groups(self, split: Split) -> NDArray[np.str_] | None:
        """Return the sensitive values of a split's rows (n,), joined over attributes; None if one has no labels."""
        columns = [self._attribute(split, name) for name in self.sensitive]
        if not columns or any(column is None for column in columns):
            return None
        joined = [column for column in columns if column is not None]
        if len(joined) == 1:
            return joined[0]
        if isinstance(joined[0], CodedLabels):
            return cast(NDArray[np.str_], cross_labels(joined))
        known = np.all([column != UNKNOWN for column in joined], axis=0)
        crossed = np.array([", ".join(values) for values in zip(*joined, strict=True)])
        return np.where(known, crossed, UNKNOWN)

    def _attribute(self, split: Split, name: str) -> NDArray[np.str_] | None:
        if name not in split.s:
            return None
        return _named(split, split.s[name], self.task.sensitive[name].names)

    def group_columns(self, split: Split) -> dict[str, NDArray[np.str_] | None]:
        """Return the sensitive values of a split's rows (n,) by attribute; None for one that has no labels."""
        return {name: self._attribute(split, name) for name in self.sensitive}

    def arguments(self, labels: str, split: str = "train", *, guess: bool = True) -> dict[str, Any]:
        """Return the arguments of `FairerCLIP.fit`, with the labels that ``labels`` allows.

        Sensitive prompts, from which sensitive values without labels are predicted, are included only if ``guess`` or
        if some labels are missing.
        """
        if labels not in LABELS:
            raise ParameterError(f"labels must be one of {', '.join(LABELS)}; got {labels!r}")
        rows = self.task.split(split)
        y = None if labels == "none" else self.target(rows)
        if labels != "none" and y is None:
            what = f"{self.task.name} has no target labels in its {split} split"
            raise LabelError(f"{what}; use {use_labels('none')}")
        if labels == "none" and self.text is None:
            raise PromptError(
                f"{self.task.name} has no text_target, so labels are needed: use {use_labels('target', 'all')}"
            )
        columns = self.group_columns(rows) if labels == "all" else {}
        if labels == "all":
            missing = [name for name, column in columns.items() if column is None]
            if missing or not columns:
                raise LabelError(
                    f"{self.task.name} has no labels of {missing or 'any sensitive attribute'} in its {split} split; "
                    f"use {use_labels('target', 'none')}"
                )
        texts = {name: self.task.sensitive[name].text for name in self.sensitive}
        without = [name for name, text in texts.items() if text is None]
        guessing = any((rows.s[name] < 0).any() for name in columns) if labels == "all" else guess
        if guessing and without:
            known = [rows.s.get(name, np.array(-1)) >= 0 for name in without]
            usable = rows.y is not None and bool(np.all(known))
            raise PromptError(f"{self.task.name} has {without_prompts(without, split, labelled=usable)}")
        return {
            "X": rows.X,
            "y": y,
            "text": self.named_text,
            "classes": self.classes,
            "sensitive_features": columns or None,
            "sensitive_text": self._sensitive_text(texts) if guessing else None,
            "missing_label": UNKNOWN,
        }

    def mitigator_arguments(
        self, labels: str, collection: EmbeddingStore | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Return the rows that an `EmbeddingMitigator` is fitted on, and the other arguments of its fit.

        With labels "none" the sensitive values are read from their prompts and from the labelled validation rows, with
        "all" they are the labels of the training rows. A ``collection`` takes the place of the training rows; it has no
        labels, and "all" then reads them from the labelled rows of training and validation.
        """
        if labels not in ("none", "all"):
            raise ParameterError(
                f"labels of an EmbeddingMitigator must be one of none, all; got {labels!r}: it learns from no classes"
            )
        if collection is not None:
            if collection.shape[1] != self.task.width:
                raise ShapeError(
                    f"{collection.path} is {collection.shape[1]} wide and {self.task.name} {self.task.width}; embed "
                    "both with the same CLIP model"
                )
            return collection, self._few_labels(("train", "val") if labels == "all" else ("val",))
        train = self.task.split("train")
        if labels == "none":
            return train.X, self._few_labels(("val",))
        columns = self._known_columns(train)
        if missing := [name for name in self.sensitive if name not in columns]:
            raise LabelError(
                f"{self.task.name} has no labels of {', '.join(missing)} in its train split; use {use_labels('none')}"
            )
        return train.X, {"sensitive_features": columns, "sensitive_text": self._prompted() or None}

    def _few_labels(self, splits: Sequence[str]) -> dict[str, Any]:
        """Return prompts, and the labelled rows of some splits, as arguments of `EmbeddingMitigator.fit`."""
        task, texts = self.task, self._prompted()
        found = [task.splits[name] for name in splits if name in task.splits]
        columns = [self._known_columns(split) for split in found]
        unread = [
            name for name in self.sensitive if name not in texts and not any(name in c for c in columns)
        ]
        if unread:
            train = task.splits.get("train")
            trained = train is not None and set(unread) <= set(self._known_columns(train))
            hint = f", or use {use_labels('all')}" if trained else ""
            rows = " or ".join({"train": "training", "val": "validation"}[name] for name in splits)
            raise PromptError(
                f"{task.name}: {', '.join(unread)} cannot be read: there are neither prompts (text_sensitive) nor "
                f"labelled {rows} rows; give one of them{hint}"
            )
        given: dict[str, Any] = {"sensitive_text": texts or None}
        if any(columns):
            # Every attribute with prompts needs a column; those without labels have unknown values only.
            gaps = [np.full(len(split), None, dtype=object) for split in found]
            values = {
                name: np.concatenate(
                    [column.get(name, gap) for column, gap in zip(columns, gaps, strict=True)]
                )
                for name in self.sensitive
            }
            given["labelled"] = (np.concatenate([split.X for split in found]), values)
        return given

    def _prompted(self) -> dict[str, dict[str, Any]]:
        """Return the prompts of each attribute that has any, by value; raise without an attribute."""
        if not self.sensitive:
            raise LabelError(f"{self.task.name} has no sensitive attribute, so there is nothing to mitigate")
        texts = {name: self.task.sensitive[name].text for name in self.sensitive}
        prompted = {name: text for name, text in texts.items() if text is not None}
        return self._sensitive_text(prompted) or {}

    def _known_columns(self, split: Split) -> dict[str, NDArray[Any]]:
        """Return sensitive values by attribute, None where unknown; only those that a row of the split has."""
        return {
            name: with_gaps(column)
            for name, column in self.group_columns(split).items()
            if column is not None and (column != UNKNOWN).any()
        }

    def sentences(self) -> dict[str, Any]:
        """Return the arguments of some methods besides `arguments`: their sentences and pairs of sentences.

        A task does not tell which attribute its sentences are about: they are used only if all attributes are chosen.
        """
        task, arguments = self.task, dict[str, Any]()
        if set(self.sensitive) != set(task.sensitive):
            return arguments
        if task.spurious is not None:
            arguments["spurious_text"] = task.spurious.text
        if task.counterfactual is not None and task.counterfactual.classes is not None:
            codes = {name: task.class_names.index(name) for name in self.classes}
            texts = {
                name: task.counterfactual.text[task.counterfactual.classes == k] for name, k in codes.items()
            }
            arguments["counterfactual_text"] = {k: text for k, text in texts.items() if len(text)} or None
        if task.sentence_pairs:
            arguments["text_pairs"] = {kind: pairs.text for kind, pairs in task.sentence_pairs.items()}
        return arguments

    def _sensitive_text(self, texts: Mapping[str, Any]) -> dict[str, dict[str, Any]] | None:
        """Return prompts by attribute and value, so that a fit does not depend on their order."""
        values = {name: self.task.sensitive[name].names for name in texts}
        return {name: dict(zip(values[name], text, strict=True)) for name, text in texts.items()} or None

    def fit(self, model: FairerCLIP, labels: str, *, progress: Any = None) -> FairerCLIP:
        """Fit a model on the training split; ``progress`` as in `FairerCLIP.fit`."""
        arguments = self.arguments(labels)
        return model.fit(arguments.pop("X"), arguments.pop("y"), **arguments, progress=progress)

    def tune(
        self,
        model: FairerCLIP,
        labels: str,
        objective: str = "worst_group",
        cv: int | None = None,
        **options: Any,
    ) -> FairerCLIP:
        """Return the model that `FairerCLIPSearch` finds, starting from a model that is not changed.

        Candidates are judged on the validation split, which needs target and sensitive labels; with ``cv``, by
        cross-validation on the training split. ``options`` are parameters of the search, and ``progress``, called after
        each fit with (done, planned).
        """
        if cv is not None and labels == "none":
            raise LabelError(f"cv needs {use_labels('target', 'all')}")
        options |= {} if cv is None else {"cv": cv}
        progress = options.pop("progress", None)
        validation = None if cv is not None else self._validation()
        arguments = self.arguments(labels)
        search = FairerCLIPSearch(model, objective=objective, **options).fit(
            *(arguments.pop("X"), arguments.pop("y")), validation=validation, progress=progress, **arguments
        )
        return search.best_estimator_

    def _validation(self) -> tuple[Any, Any, Any]:
        """Return X, y and s of the validation split, to choose a model by; raise where labels are missing."""
        rows = self.task.val
        groups = self.group_columns(rows)
        if any(column is None for column in groups.values()) or not groups:
            raise LabelError(f"{self.task.name} has no sensitive labels in its val split: fit without tuning")
        if not self.is_labelled("val"):
            raise LabelError(
                f"{self.task.name} has no row with both a target and a sensitive label in its val split to choose by: "
                "fit without tuning, or cross-validate (cv)"
            )
        return rows.X, self.target(rows), groups

    def zero_shot(self, split: Split) -> NDArray[np.str_]:
        """Return the class whose prompt has the largest cosine with each row (n,)."""
        if self.text is None:
            raise PromptError(f"{self.task.name} has no text_target: there is no zero-shot classifier")
        codes, _ = zero_shot(split.X, [t[None] for t in self.text])
        return _named(split, codes, self.classes)

    def cosines(self, X: NDArray[Any]) -> NDArray[np.floating]:
        """Return the cosines of rows with the prompts (n, c), by which zero-shot classifies and ranks."""
        if self.text is None:
            raise PromptError(f"{self.task.name} has no text_target: there is nothing to compare images with")
        return np.asarray(unit_rows(X) @ unit_rows(self.text).T)

    def labels(self, split: Split) -> tuple[NDArray[np.str_], NDArray[np.str_]]:
        """Return class and group names of a split's rows (n,), or raise if no row has both."""
        y, groups = self.target(split), self.groups(split)
        if y is None or groups is None or not ((y != UNKNOWN) & (groups != UNKNOWN)).any():
            raise LabelError(
                f"{self.task.name}: expected rows with both a target and a sensitive label, got none; use a split "
                "with labels"
            )
        return y, groups

    def report(self, split: Split, predicted: NDArray[Any], confidence: float = 0.95) -> GroupReport:
        """Measure accuracy by group of predictions on a split; rows without labels are left out."""
        y, groups = self.labels(split)
        return group_report(y, predicted, groups, **self._report_options(y, groups), confidence=confidence)

    def paired_report(
        self, split: Split, before: NDArray[Any], after: NDArray[Any], confidence: float = 0.95
    ) -> PairedReport:
        """Compare two predictions on a split by group, with paired intervals of the changes."""
        y, groups = self.labels(split)
        options = self._report_options(y, groups)
        return paired_report(y, before, after, groups, **options, confidence=confidence)

    def _report_options(self, y: NDArray[np.str_], groups: NDArray[np.str_]) -> dict[str, Any]:
        # With two classes, the second one in the order of the prompts is the positive class.
        positive = self.classes[1] if len(self.classes) == 2 else None
        sizes = self._train_groups() or {}
        # If no group of the training split occurs here, the train-weighted average is not defined.
        overlap = not sizes.keys().isdisjoint(count_pairs(y, groups))
        return {"train_groups": sizes if overlap else None, "positive": positive, "missing": UNKNOWN}

    def _train_groups(self) -> Mapping[tuple[str, str], int] | None:
        split = self.task.splits.get("train")
        y, groups = (None, None) if split is None else (self.target(split), self.groups(split))
        if y is None or groups is None:
            return None
        return count_pairs(y, groups)

    def before_after(self, model: AnyModel, split: str) -> PairedReport | GroupReport:
        """Compare zero-shot with the model by group on one split; without prompts, measure the model alone."""
        rows = self.task.split(split)
        after = predicted_labels(model, rows.X)
        if self.text is None:
            return self.report(rows, after)
        return self.paired_report(rows, self.zero_shot(rows), after)

    def skews(self, model: AnyModel, split: str, k: int | None = None) -> list[PromptSkew]:
        """Measure MaxSkew@k of each prompt before (cosines) and after (the model's scores) on all rows of a split.

        The default of ``k`` is 1000, or a quarter of the rows if there are fewer than 4000.
        """
        rows = rows_in_memory(self.task.split(split))
        groups = self.groups(rows)
        if groups is None or self.text is None:
            raise LabelError(
                f"{self.task.name}: skew needs prompts and sensitive labels in the {split} split"
            )
        known = groups != UNKNOWN
        k = default_cut(int(known.sum())) if k is None else k
        before = max_skew(self.cosines(rows.X[known]), groups[known], k)
        after = max_skew(model.scores(rows.X[known]), groups[known], k)
        return [
            PromptSkew(name, k, float(b), float(a))
            for name, b, a in zip(self.classes, before, after, strict=True)
        ]

    def evaluation_split(self) -> str | None:
        """Return the first of test, val and train that has rows with both labels; None if none has."""
        return next((name for name in ("test", "val", "train") if self.is_labelled(name)), None)

    def is_labelled(self, name: str) -> bool:
        """Return whether a split exists and has rows with both a target and a sensitive label."""
        return self._labelled_rows(name) > 0

    def _labelled_rows(self, name: str) -> int:
        """Return the number of rows with both a target and a sensitive label; 0 if the split does not exist."""
        split = self.task.splits.get(name)
        y, groups = (None, None) if split is None else (self.target(split), self.groups(split))
        if y is None or groups is None:
            return 0
        return int(((y != UNKNOWN) & (groups != UNKNOWN)).sum())

    def has_groups(self, split: Split) -> bool:
        """Return whether a row of a split has a sensitive label."""
        groups = self.groups(split)
        return groups is not None and bool((groups != UNKNOWN).any())

    def has_validation(self) -> bool:
        """Return whether labelled validation rows can choose a model, apart from the rows to report on."""
        return self.evaluation_split() != "val" and self._labelled_rows("val") >= HALVES

    def is_gallery(self) -> bool:
        """Return whether no row has a target label, so that prompts rank: `EmbeddingMitigator` is the method for it."""
        return all(split.y is None or bool((split.y < 0).all()) for split in self.task.splits.values())

    def can_tune(self) -> bool:
        """Return whether enough validation rows have both labels to tune a model."""
        return self._labelled_rows("val") >= TUNING_ROWS

    def ranked_split(self) -> str | None:
        """Return the split to report retrieval on: the first of test and val that has sensitive labels, or None."""
        for name in ("test", "val"):
            split = self.task.splits.get(name)
            if split is not None and self.text is not None and self.has_groups(split):
                return name
        return None

    def evaluate_path(self, path: TauPath, split: str) -> list[dict[str, Any]]:
        """Return the table of a path's figures on one split, one row per point."""
        rows = self.task.split(split)
        y, groups = self.labels(rows)
        known = (y != UNKNOWN) & (groups != UNKNOWN)
        return path.evaluate(rows.X[known], y[known], groups[known])


def _named(split: Split, codes: NDArray[np.integer], names: Sequence[str]) -> NDArray[np.str_]:
    if isinstance(split.X, EmbeddingStore) or is_remote(split.X):  # the names would not fit in memory
        return cast(NDArray[np.str_], CodedLabels(codes, tuple(names)))
    return np.asarray(np.array([*names, UNKNOWN])[codes])  # the code of an unknown label is -1
