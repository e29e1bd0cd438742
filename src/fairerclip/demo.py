"""The whole story on the embedded default: audit, mitigate, trade off, write a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairerclip import __version__
from fairerclip.data import simulate
from fairerclip.errors import OutputExistsError
from fairerclip.files import atomic_file
from fairerclip.metrics import GroupReport, dep
from fairerclip.model import FairerCLIP
from fairerclip.path import PRIOR
from fairerclip.tables import write_table
from fairerclip.workflow import Experiment

RESULTS, TABLE, MODEL = "results.json", "path.csv", "model"
VARIANTS = [(labels, criterion) for labels in ("none", "target") for criterion in ("marginal", "conditional")]
STEPS = len(VARIANTS) + 3
TAUS = [round(0.1 * k, 1) for k in range(8)] + [0.75, 0.8, 0.85, 0.9, 0.95]


@dataclass(frozen=True)
class DemoResult:
    """What the demo found; every figure in it was computed."""

    task_name: str
    rows: dict[str, int]
    reports: list[tuple[str, GroupReport]]
    table: list[dict[str, Any]]
    best: int
    dependence: tuple[float, float]
    findings: list[str]
    seed: int

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "fairerclip_version": __version__,
            "task": self.task_name,
            "simulated": True,
            "seed": self.seed,
            "rows": self.rows,
            "reports": {name: report.as_dict() for name, report in self.reports},
            "path": self.table,
            "best": self.best,
            "dependence_on_s": {"tau_0": self.dependence[0], "chosen": self.dependence[1]},
            "findings": self.findings,
        }


def run_demo(
    output: Path, *, seed: int = 0, progress: Callable[[int, int], None] = lambda done, total: None
) -> DemoResult:
    """Run the demo and write its results, the path's table and the chosen model to a folder."""
    if (
        output.exists()
        and not (output / RESULTS).is_file()
        and not (output.is_dir() and not any(output.iterdir()))
    ):
        raise OutputExistsError(f"{output} exists and is not the folder of an earlier demo; give another one")
    experiment = Experiment.of(simulate("waterbirds", seed=seed))
    test = experiment.task.test
    reports = [("zero-shot", experiment.report(test, experiment.zero_shot(test)))]
    progress(1, STEPS)
    for step, (labels, criterion) in enumerate(VARIANTS, 2):
        model = FairerCLIP(class_weight="balanced", criterion=criterion, random_state=seed)
        experiment.fit(model, labels)
        name = f"{'labels' if labels == 'target' else 'no labels'}, {criterion}"
        reports.append((name, experiment.report(test, model.predict(test.X))))
        progress(step, STEPS)
    # The last of them has labels, and its factorisation serves every τ and both criteria.
    plane = model.path(TAUS, criterion=["marginal", "conditional"])
    table = experiment.evaluate_path(plane, "val")
    best = plane.best_index("shrunken_worst_group")
    chosen = plane.model(best)
    name = f"labels, chosen: {chosen.criterion}, τ={chosen.tau:g}"
    reports.append((name, experiment.report(test, chosen.predict(test.X))))
    progress(STEPS - 1, STEPS)
    groups = experiment.groups(test)
    dependence = tuple(dep(plane.model(g).transform(test.X), groups) for g in (0, best))
    result = DemoResult(
        task_name=experiment.task.name,
        rows={split: len(rows) for split, rows in experiment.task.splits.items()},
        reports=reports,
        table=table,
        best=best,
        dependence=(dependence[0], dependence[1]),
        findings=_findings(reports, dependence),
        seed=seed,
    )
    _write(output, result, chosen)
    progress(STEPS, STEPS)
    return result


def _findings(reports: list[tuple[str, GroupReport]], dependence: tuple[float, ...]) -> list[str]:
    before, after = reports[0][1], reports[-1][1]
    return [
        f"Zero-shot is right for {before.average:.1%} of the test rows on average, but for {before.worst.accuracy:.1%} "
        f"[{before.worst.low:.1%}, {before.worst.high:.1%}] of its worst group: {before.worst.name} "
        f"(n={before.worst.n}).",
        f"The model chosen on validation is right for {after.average:.1%} on average and for "
        f"{after.worst.accuracy:.1%} [{after.worst.low:.1%}, {after.worst.high:.1%}] of its worst group, "
        f"{after.worst.name} (n={after.worst.n}).",
        f"Dependence of the learned embeddings on the background went from {dependence[0]:.3g} at τ=0 to "
        f"{dependence[1]:.3g} (Dep of the paper's Eq. 2, test rows).",
        f"The model was chosen by the validation worst group, each group shrunk by {PRIOR:g} rows of the average.",
    ]


def _write(output: Path, result: DemoResult, model: FairerCLIP) -> None:
    output.mkdir(parents=True, exist_ok=True)
    model.save(output / MODEL, overwrite=True)
    write_table(result.table, output / TABLE, overwrite=True)
    with atomic_file(output / RESULTS, overwrite=True) as handle:
        handle.write(json.dumps(result.as_dict(), indent=2, allow_nan=False).encode())
