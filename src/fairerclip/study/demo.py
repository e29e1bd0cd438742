"""The demo on a task, simulated or the user's: fit, tune and audit models, and write a model, a table and a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairerclip._util.files import check_folder, output_folder
from fairerclip.applying.apply import AnyModel
from fairerclip.auditing.audit_options import AuditOptions
from fairerclip.auditing.group_results import PlaneSection
from fairerclip.auditing.model_results import Labels
from fairerclip.auditing.results import FILE_NAME as RESULTS
from fairerclip.auditing.results import AuditResults, write_results
from fairerclip.auditing.run import STEPS as AUDIT_STEPS
from fairerclip.auditing.run import audit_task, audited_split
from fairerclip.data import open_task
from fairerclip.data.io.csv_table import write_table
from fairerclip.embedding.mitigator import EmbeddingMitigator
from fairerclip.errors import LabelError, OutputExistsError
from fairerclip.experiment import Experiment
from fairerclip.metrics import GroupReport
from fairerclip.model.estimator import FairerCLIP
from fairerclip.report.write import write_report

TABLE, MODEL, PAGE = "path.csv", "model", "report.html"
LABEL_NAMES: dict[Labels, str] = {"none": "no labels", "target": "labels", "all": "all labels"}


@dataclass(frozen=True)
class DemoResult:
    """Figures of the demo, all computed by it, and the path of its page.

    ``reports`` are by model, and empty if no row to report on has both labels; ``plane`` is None if no row to judge its
    points on has.
    """

    reports: list[tuple[str, GroupReport]]
    results: AuditResults
    plane: PlaneSection | None
    page: Path

    def as_dict(self) -> dict[str, Any]:
        """Return the results as JSON values."""
        return {
            "variants": {name: report.as_dict() for name, report in self.reports},
            "page": str(self.page),
            "results": self.results.model_dump(by_alias=True),
        }


def run_demo(
    output: Path,
    *,
    source: str | None = None,
    sensitive: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> DemoResult:
    """Run the demo and write results, the table of the plane, the chosen model and the page to a folder.

    Parameters
    ----------
    output : Path
        Folder to write to; that of an earlier demo is replaced.
    source : str, optional
        Task file, or name of a simulated task. None for the simulated Waterbirds of this seed.
    sensitive, classes : sequence of str, optional
        Sensitive attributes and classes of the task, as in `Experiment.of`.
    seed : int, default=0
        Random seed.
    progress : callable
        Called with (steps done, number of steps).
    """
    _check_output(output)
    if source is None:
        source = f"simulated:waterbirds@{seed}" if seed else "simulated:waterbirds"
    experiment = Experiment.of(open_task(source), sensitive, classes)
    if "train" not in experiment.task.splits:
        raise LabelError(
            f"{experiment.task.name} has no training split to fit a mitigation on: `fairerclip audit` measures it "
            "without one"
        )
    usable = usable_labels(experiment)
    gallery = experiment.is_gallery()
    options = AuditOptions(labels=None if gallery else usable[-1], seed=seed, source=source)
    split = audited_split(experiment, options, needs_training=True)
    variants = usable if experiment.is_labelled(split) else []
    steps = len(variants) + len(AUDIT_STEPS) + 1
    reports = _untuned_reports(experiment, split, variants, seed, lambda done: progress(done, steps))
    results, chosen = audit_task(
        experiment,
        options,
        model=EmbeddingMitigator() if gallery else FairerCLIP(random_state=seed),
        progress=lambda done, _: progress(len(variants) + done, steps),
    )
    if chosen is None:
        raise AssertionError("an audit that fits a model returns it")
    if variants and results.settings.chosen_on is not None:  # else the model is the last of the untuned ones
        name = f"{LABEL_NAMES[usable[-1]]}, tuned on validation rows"
        reports.append((name, _report(experiment, split, chosen)))
    page = _write(output, results, results.plane, chosen)
    progress(steps, steps)
    return DemoResult(reports, results, results.plane, page)


def usable_labels(experiment: Experiment) -> list[Labels]:
    """Return which labels of the training rows a fit can use, the one that the demo's model uses last.

    Sensitive values are predicted from their prompts; a fit uses the labels of an attribute that has none.
    """
    train = experiment.task.train
    prompted = all(experiment.task.sensitive[name].text is not None for name in experiment.sensitive)
    usable: list[Labels] = ["none"] if experiment.text is not None and prompted else []
    if train.y is not None and (train.y >= 0).any():
        usable.append("target" if prompted else "all")
    return usable or ["none"]  # the fit raises an error that says what is missing


def _check_output(output: Path) -> None:
    """Raise, before the work, if the folder could not be written or holds something else than an earlier demo."""
    if (
        output.exists()
        and not (output / RESULTS).is_file()
        and not (output.is_dir() and not any(output.iterdir()))
    ):
        raise OutputExistsError(f"{output} exists and is not the folder of an earlier demo; give another one")
    check_folder(output, overwrite=True)


def _untuned_reports(
    experiment: Experiment, split: str, variants: Sequence[Labels], seed: int, done: Callable[[int], None]
) -> list[tuple[str, GroupReport]]:
    """Measure zero-shot, if there are prompts, and models with default parameters that use some or no labels."""
    rows, reports = experiment.task.split(split), []
    if variants and experiment.text is not None:
        reports.append(("zero-shot", experiment.report(rows, experiment.zero_shot(rows))))
    for step, labels in enumerate(variants, 1):
        model = experiment.fit(FairerCLIP(random_state=seed), labels)
        reports.append((f"{LABEL_NAMES[labels]}, as it comes", _report(experiment, split, model)))
        done(step)
    return reports


def _report(experiment: Experiment, split: str, model: AnyModel) -> GroupReport:
    rows = experiment.task.split(split)
    return experiment.report(rows, model.predict(rows.X))


def _write(output: Path, results: AuditResults, plane: PlaneSection | None, model: AnyModel) -> Path:
    with output_folder(output, overwrite=True) as folder:
        write_results(
            results, folder / RESULTS, overwrite=True
        )  # first: it marks the folder as that of a demo
        model.save(folder / MODEL, overwrite=True)
        if plane is None:
            (folder / TABLE).unlink(missing_ok=True)
        else:
            points = [point.model_dump(exclude={"correct"}) for point in plane.points]
            write_table(points, folder / TABLE, overwrite=True)
        write_report(results, folder / PAGE, overwrite=True)
    return output / PAGE
