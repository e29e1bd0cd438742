"""One simulated task and one fit, which all pictures of the method show."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fairerclip import FairerCLIP, Task
from fairerclip.data import simulate
from fairerclip.metrics import GroupReport, group_report

DOCS = Path(__file__).parents[1]
BEFORE, AFTER = "#b35806", "#2166ac"
"""Colours of zero-shot and of the fitted model."""
LAND, WATER = "#8c6d31", "#3182bd"
"""Colours of the two backgrounds."""


@cache
def fitted() -> tuple[Task, Any]:
    """Return the simulated birds and a model that was fitted on their training rows."""
    task = simulate("waterbirds")
    model = FairerCLIP(random_state=0)
    model.fit(
        task.train.X, task.train.y, text=task.text_target, sensitive_text=task.sensitive_attribute().text
    )
    return task, model


@cache
def reports() -> tuple[GroupReport, GroupReport]:
    """Return the figures of the test rows for zero-shot and for the model."""
    task, model = fitted()
    test = task.test
    zero_shot = np.argmax(test.X @ task.text_target.T, axis=1)
    return tuple(
        group_report(test.y, labels, test.sensitive()) for labels in (zero_shot, model.predict(test.X))
    )


def group_names() -> list[str]:
    """Return names such as "waterbird on land", in the order of the groups of a report."""
    task, _ = fitted()
    places = [name.removesuffix(" background") for name in task.sensitive_attribute().names]
    return [f"{task.class_names[g.y]}\non {places[g.s]}" for g in reports()[0].groups]
