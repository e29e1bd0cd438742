"""The demo on a simulated task: fit, tune and audit models, and write a model, a table and a page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairerclip._util.files import atomic_folder, check_folder
from fairerclip.auditing.group_results import PlaneSection
from fairerclip.auditing.results import FILE_NAME as RESULTS
from fairerclip.auditing.results import AuditResults, write_results
from fairerclip.auditing.run import STEPS as AUDIT_STEPS
from fairerclip.auditing.run import AuditOptions, audit_task
from fairerclip.data import open_task
from fairerclip.data.io.csv_table import write_table
from fairerclip.errors import OutputExistsError
from fairerclip.experiment import Experiment
from fairerclip.metrics import GroupReport
from fairerclip.model.estimator import FairerCLIP
from fairerclip.report.write import write_report

TABLE, MODEL, PAGE = "path.csv", "model", "report.html"
VARIANTS = ("none", "target")
STEPS = len(VARIANTS) + len(AUDIT_STEPS) + 1


@dataclass(frozen=True)
class DemoResult:
    """Figures of the demo, all computed by it, and the path of its page."""

    reports: list[tuple[str, GroupReport]]
    results: AuditResults
    plane: PlaneSection
    page: Path

    def as_dict(self) -> dict[str, Any]:
        """Return the results as JSON values."""
        return {
            "variants": {name: report.as_dict() for name, report in self.reports},
            "page": str(self.page),
            "results": self.results.model_dump(by_alias=True),
        }


def run_demo(
    output: Path, *, seed: int = 0, progress: Callable[[int, int], None] = lambda done, total: None
) -> DemoResult:
    """Run the demo and write results, the table of the plane, the chosen model and the page to a folder."""
    if (
        output.exists()
        and not (output / RESULTS).is_file()
        and not (output.is_dir() and not any(output.iterdir()))
    ):
        raise OutputExistsError(f"{output} exists and is not the folder of an earlier demo; give another one")
    check_folder(output, overwrite=True)
    source = f"simulated:waterbirds@{seed}" if seed else "simulated:waterbirds"
    experiment = Experiment.of(open_task(source))
    test = experiment.task.test
    reports = [("zero-shot", experiment.report(test, experiment.zero_shot(test)))]
    for step, labels in enumerate(VARIANTS, 1):
        model = experiment.fit(FairerCLIP(random_state=seed), labels)
        name = f"{'labels' if labels == 'target' else 'no labels'}, as it comes"
        reports.append((name, experiment.report(test, model.predict(test.X))))
        progress(step, STEPS)
    options = AuditOptions(labels="target", seed=seed, source=source)
    results, chosen = audit_task(
        experiment,
        options,
        model=FairerCLIP(random_state=seed),
        progress=lambda done, _: progress(len(VARIANTS) + done, STEPS),
    )
    if chosen is None or results.plane is None:
        raise AssertionError("an audit that fits a model returns it and its plane")
    name = "labels, tuned on validation rows"
    reports.append((name, experiment.report(test, chosen.predict(test.X))))
    page = _write(output, results, results.plane, chosen)
    progress(STEPS, STEPS)
    return DemoResult(reports, results, results.plane, page)


def _write(output: Path, results: AuditResults, plane: PlaneSection, model: FairerCLIP) -> Path:
    with atomic_folder(output, overwrite=True) as fresh:
        model.save(fresh / MODEL)
        write_table([point.model_dump(exclude={"correct"}) for point in plane.points], fresh / TABLE)
        write_results(results, fresh / RESULTS)
        write_report(results, fresh / PAGE)
    return output / PAGE
