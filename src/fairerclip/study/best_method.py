"""The winner of a comparison as a model: it is trained again exactly as it was run, and can be saved."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fairerclip.applying.apply import AnyModel
from fairerclip.errors import LabelError, ParameterError, RefitWarning, WorkFailedError
from fairerclip.experiment import Experiment
from fairerclip.report.fit_tables import settings_text
from fairerclip.study.choose_model import choose_model
from fairerclip.study.compare import data_of
from fairerclip.study.comparison import Comparison, ComparisonRow, MethodRun
from fairerclip.study.comparison_answer import rivals
from fairerclip.study.method import Method
from fairerclip.study.methods import chosen_methods
from fairerclip.study.workers import Call, Failure, guarded


@dataclass(frozen=True, eq=False)
class BestMethod:
    """The method with the best worst group of a comparison, its run, and its model."""

    method: Method
    run: MethodRun
    model: AnyModel

    @property
    def sentences(self) -> tuple[str, str]:
        """What was chosen, and how to read its figures."""
        settings = settings_text(self.run.chosen)
        setting = f" with {settings}" if settings else ""
        return (
            f"Best worst group: {self.method.key} ({self.method.title}), seed {self.run.seed}{setting}.",
            f"It was chosen by its figures on the {self.run.split} rows, where they are therefore optimistic.",
        )

    def as_dict(self) -> dict[str, object]:
        """Return method, seed and setting, ready for JSON."""
        run = self.run
        about = {"method": self.method.key, "title": self.method.title, "seed": run.seed, "split": run.split}
        return {**about, "chosen": dict(run.chosen), "offsets": list(run.offsets)}


def best_row(comparison: Comparison) -> ComparisonRow:
    """Return the row with the best worst group, then the best average, as means over seeds.

    Methods that are given S of the rows that they predict are left out, as a model is used without it.
    """
    found = rivals(comparison)
    if not found:
        raise LabelError(
            f"no method has figures of {comparison.task.name}, apart from those that are given S of the rows they "
            "predict: there is no best one"
        )
    return next(row for row in comparison.rows if row.method == found[0].method)


def refit_best(experiment: Experiment, comparison: Comparison) -> BestMethod:
    """Train the best method of a comparison again, with the seed and the steps of its first run.

    Parameters
    ----------
    experiment : Experiment
        The task that was compared, with the same classes and attributes.
    comparison : Comparison
        Results of `compare`.

    Warns
    -----
    RefitWarning
        The model predicts rows otherwise than the run did, which was made on another machine or by other versions.
    """
    own, compared = data_of(experiment), comparison.task
    if (own.digest, own.classes, own.sensitive) != (compared.digest, compared.classes, compared.sensitive):
        raise ParameterError(
            f"the comparison is of {compared.name} with other rows, classes or attributes: give the task it was made of"
        )
    row = best_row(comparison)
    (method,) = chosen_methods([row.method])
    run = next(run for run in row.runs if isinstance(run, MethodRun))
    arguments = {"seed": run.seed, "max_steps": comparison.settings.max_steps}
    # On one core, as a run: sums of several threads differ in the last digits.
    done = guarded(Call(choose_model, {"method": method, "experiment": experiment, **arguments}))
    if isinstance(done, Failure):
        raise WorkFailedError(f"{method.key} could not be trained again: {done.error}", comparison.as_dict())
    model = done.value.complete()
    predicted = model.predict(experiment.task.split(run.split).X)
    expected = np.array(experiment.classes)[list(run.predicted)]
    if len(expected) and (predicted != expected).any():
        warnings.warn(
            f"{method.key} predicts {int((predicted != expected).sum())} of {len(expected)} rows otherwise than in the "
            "comparison, whose run was made on another machine or by other versions: compare again in a new folder",
            RefitWarning,
            stacklevel=2,
        )
    return BestMethod(method, run, model)


def save_best(
    experiment: Experiment, comparison: Comparison, path: str | Path, *, overwrite: bool = False
) -> BestMethod:
    """Save the model of `refit_best` as a folder, which `fairerclip.load` reads, and return it."""
    best = refit_best(experiment, comparison)
    best.model.save(path, overwrite=overwrite)
    return best
