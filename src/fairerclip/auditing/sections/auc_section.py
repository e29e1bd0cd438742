"""AUC of class scores by sensitive value, before and after mitigation."""

from __future__ import annotations

from fairerclip._util.types import Floats
from fairerclip.applying.apply import AnyModel
from fairerclip.auditing.auc_results import AucSection, AucStage
from fairerclip.auditing.sections.pictures import Cells
from fairerclip.auditing.sections.retrieval import class_scores
from fairerclip.data import Split
from fairerclip.experiment import Experiment
from fairerclip.metrics import auc_report


def auc_section(
    experiment: Experiment, split: Split, model: AnyModel | None, *, confidence: float
) -> AucSection | None:
    """Measure the AUC of class scores in each group; None if no group has rows of every class that occurs.

    With two classes the score is that of the second minus that of the first, as in the histograms. With more it is the
    mean over the classes that have rows, each against the others.
    """
    cells = Cells(experiment, split)
    pairs = {(group.y, group.s) for group in cells.groups}
    present = [name for name in experiment.classes if any(y == name for y, _ in pairs)]
    complete = [s for s in {s for _, s in pairs} if all((name, s) in pairs for name in present)]
    if len(present) < 2 or not complete:
        return None
    before, after = (
        None if scores is None else _measured(experiment, scores, present, cells, confidence)
        for scores in class_scores(experiment, split.X[cells.rows], model)
    )
    return None if before is None and after is None else AucSection(before=before, after=after)


def _measured(
    experiment: Experiment, scores: Floats, present: list[str], cells: Cells, confidence: float
) -> AucStage:
    if len(experiment.classes) == 2:
        margin, positive = scores[:, 1] - scores[:, 0], experiment.classes[1]
        report = auc_report(cells.y, margin, cells.s, positive=positive, confidence=confidence)
    else:
        columns = [experiment.classes.index(name) for name in present]
        report = auc_report(cells.y, scores[:, columns], cells.s, classes=present, confidence=confidence)
    return AucStage.model_validate(report.as_dict())
