"""Average and worst group over the (τ, τ_z) plane."""

from __future__ import annotations

from fairerclip._util.numbers import number, setting
from fairerclip.experiment import Experiment
from fairerclip.metrics.names import FIGURES
from fairerclip.report.document_charts import Heatmap
from fairerclip.report.result_table import Cell, Content, ResultTable
from fairerclip.study.paper.accuracy import paper_parameters
from fairerclip.study.paper.context import Context, Outcome, job
from fairerclip.study.paper.fits import BEYOND, plane
from fairerclip.study.paper.job_answers import PlaneAnswer
from fairerclip.study.workers import Failure

STEPS = [round(0.1 * i, 1) for i in range(10)]


def heatmaps(context: Context) -> Outcome:
    """Compute average and worst group over (τ, τ_z), from one factorisation."""
    outcome = Outcome(notes=[ONE_CURVE])
    steps = STEPS[::3] if context.options.quick else STEPS
    taus = [*steps, *BEYOND]
    for source_task in context.tasks("blond", "waterbirds"):
        experiment = Experiment.of(source_task.task)
        call = job(
            experiment,
            plane,
            PlaneAnswer,
            f"{source_task.dataset}, plane",
            parameters=paper_parameters(context, source_task.dataset),
            labels="target",
            seed=0,
            taus=taus,
            tau_zs=steps,
        )
        answer = context.run([call])[0]
        if isinstance(answer, Failure):
            outcome.tables.append(
                ResultTable(source_task.title, ["part", "what happened"], [["plane", answer.error]])
            )
            continue
        for figure in ("average", "worst_group"):
            by_strength: dict[tuple[float, float], float | None] = {
                (p.tau, p.tau_z): getattr(p, figure) for p in answer.points
            }
            shares = [[by_strength[tau, tau_z] for tau in taus] for tau_z in steps]
            values = [[None if share is None else 100 * share for share in line] for line in shares]
            name = f"{source_task.title}: {FIGURES[figure].label}, {answer.split} rows, per cent"
            outcome.heatmaps.append(Heatmap(name, "τ", taus, "τ_z", steps, values))
            rows: list[list[Content]] = [
                [setting(z), *(Cell(share, "bare") for share in line)]
                for z, line in zip(steps, shares, strict=True)
            ]
            outcome.tables.append(ResultTable(name, ["τ_z \\ τ", *map(setting, taus)], rows))
        outcome.results[f"{source_task.dataset} {source_task.encoder}"] = answer.points
        if answer.rescale is not None:
            outcome.notes.append(f"{source_task.title}: τ_eff = τ / (1 + {number(answer.rescale, 2)} τ_z).")
    return outcome


ONE_CURVE = (
    "With labels, two classes and one prompt per class, the plane is one curve: points with the same τ_eff (below) "
    "have the same figures, because the alignment term is a multiple of Dep(Z_I, Y). There is one seed; parameters are "
    "those of the paper's preset for the dataset, with τ and τ_z the same on both sides. The published figure has "
    "no numbers."
)
