"""One method of a comparison: what it needs, the settings that it may try, and how its estimator is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fairerclip._util.types import Ints
from fairerclip.experiment import UNKNOWN, Experiment

Parameters = Mapping[str, Any]
FitLabels = Literal["none", "target", "all", "validation"]
"""Labels that a fit uses: those of the training rows, or of the validation rows only."""
Labels = Literal["none", "target", "all", "validation", "prediction"]
"""Labels that a method needs: "prediction" are true sensitive values, also of the rows that it predicts."""


@dataclass(frozen=True)
class Method:
    """One row of a comparison.

    Attributes
    ----------
    key : str
        Name on the command line.
    title : str
        Name in tables.
    labels : {"none", "target", "all", "validation", "prediction"}
        Labels that it learns from: those of the training rows, or of the validation rows only. "prediction": it learns
        from S of the training rows, if that is known, and is given S of the rows that it predicts, while it is chosen
        and when it is measured. No saved model is, so such a method is shown beside the others, and is no rival of any.
    home : str
        Name of its class in `fairerclip.baselines`, or "FairerCLIP".
    fixed : mapping
        Parameters that do not vary.
    candidates : sequence of mapping
        Settings to try; the first is the published or default one.
    gradient : bool
        Whether it is trained by gradient (extra ``torch``) with a limit of steps; each setting then gives `CHECKPOINTS`
        models.
    seeded : bool
        Whether its result depends on a seed; otherwise one run is used for all seeds.
    needs_text, needs_sensitive : bool
        Whether it needs class prompts, and sensitive values (labels, or predicted from prompts).
    """

    key: str
    title: str
    labels: Labels
    home: str
    fixed: Parameters
    candidates: Sequence[Parameters]
    gradient: bool = False
    seeded: bool = True
    needs_text: bool = True
    needs_sensitive: bool = False

    @property
    def is_own(self) -> bool:
        """Whether it is FairerCLIP, which is tuned by its own search over `SEARCH`."""
        return self.home == "FairerCLIP"

    @property
    def needs_known_rows(self) -> bool:
        """Whether it needs the true sensitive values of the rows that it predicts."""
        return self.labels == "prediction"

    @property
    def fit_labels(self) -> FitLabels:
        """Labels that its fit uses."""
        return "none" if self.labels == "prediction" else self.labels

    @property
    def estimator(self) -> Any:
        """Class of its estimator."""
        if self.is_own:
            from fairerclip.model.estimator import FairerCLIP

            return FairerCLIP
        from fairerclip import baselines

        return getattr(baselines, self.home)

    @property
    def needs(self) -> list[str]:
        """Requirements on the task and the installation, as identifiers."""
        parts = {
            "target_labels": self.fit_labels != "none",
            "sensitive_labels": self.labels == "all",
            "validation_labels": self.labels == "validation",
            "sensitive_labels_of_predicted_rows": self.needs_known_rows,
            "class_prompts": self.needs_text,
            "sensitive_prompts": self.needs_sensitive and self.labels != "all",
            "torch": self.gradient,
        }
        return [name for name, needed in parts.items() if needed]

    def why_not(self, experiment: Experiment) -> str | None:
        """Return the reason why the method cannot run on a task; None if it can."""
        task = experiment.task
        if "train" not in task.splits:
            return "the task has no training split"
        train = task.train
        if self.fit_labels != "none" and (train.y is None or (train.y < 0).all()):
            return "there are no target labels in training"
        without = [name for name in experiment.sensitive if name not in train.s]
        if self.labels == "all" and (without or not experiment.sensitive):
            return "there are no sensitive labels in training"
        if self.labels == "validation" and not experiment.has_validation():
            return "there are no validation rows with both labels to learn from"
        if self.needs_text and experiment.text is None:
            return "there are no class prompts"
        unprompted = [name for name in experiment.sensitive if task.sensitive[name].text is None]
        if self.needs_sensitive and self.labels != "all" and (unprompted or not experiment.sensitive):
            return "there are no prompts to predict the sensitive attribute from"
        return _unknown_rows(experiment) if self.needs_known_rows else None

    def given_rows(self, experiment: Experiment, split: str, rows: Ints | None = None) -> dict[str, Any]:
        """Return what is given to predict some rows of a split besides these: their true S, if the method needs it."""
        if not self.needs_known_rows:
            return {}
        columns = experiment.group_columns(experiment.task.split(split))
        if rows is not None:
            columns = {name: None if column is None else column[rows] for name, column in columns.items()}
        return {"sensitive_features": columns}


def _unknown_rows(experiment: Experiment) -> str | None:
    """Return the reason why not all rows on which methods are measured have sensitive values; None if they have."""
    name = experiment.evaluation_split()
    groups = None if name is None else experiment.groups(experiment.task.split(name))
    if groups is None:
        return "it needs S of the rows that it predicts, and no rows have both labels"
    unknown = int((groups == UNKNOWN).sum())
    if not unknown:
        return None
    return (
        f"it needs S of all rows that it predicts, and {unknown} of the {len(groups)} {name} rows have none"
    )


def make(
    method: Method,
    parameters: Parameters,
    seed: int,
    max_steps: int | None = None,
    progress: Callable[[dict[str, Any]], None] | None = None,
) -> Any:
    """Make an unfitted estimator.

    ``max_steps`` limits training by gradient, and ``progress`` is called after each of its epochs.
    """
    maker = method.estimator
    if method.is_own:
        return maker(**method.fixed, **parameters, random_state=seed)
    names = maker().get_params()
    training = {"max_steps": max_steps, "progress": progress} if method.gradient else {}
    given = {**method.fixed, **parameters, **training}
    arguments = {name: value for name, value in given.items() if name in names}
    recipe = {name: value for name, value in given.items() if name not in names}
    if recipe:  # a probe takes the settings of its training by gradient as one parameter
        arguments["recipe"] = recipe
    return maker(**arguments, **({"random_state": seed} if "random_state" in names else {}))
