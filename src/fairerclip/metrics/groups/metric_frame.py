"""Conversion of a group report to fairlearn's `MetricFrame`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairerclip._util.extras import require

if TYPE_CHECKING:
    from fairerclip.metrics.groups.group_report import GroupReport


def to_metric_frame(report: GroupReport, metrics: Any = None) -> Any:
    """Return a `MetricFrame` of the report, with classes as codes (of two classes the positive one is 1)."""
    fairlearn = require("fairlearn.metrics", "fairlearn", "a MetricFrame")
    pandas = require("pandas", "fairlearn", "a MetricFrame")
    N = np.array(report.confusion)
    n_classes = len(report.classes)
    s, y, p = (np.repeat(axis.ravel(), N.ravel()) for axis in np.indices(N.shape))
    flip = n_classes == 2 and report.positive == report.classes[0]
    y, p = (1 - y, 1 - p) if flip else (y, p)
    names = np.empty(len(report.sensitive), dtype=object)
    names[:] = [value if isinstance(value, str) else str(value) for value in report.sensitive]
    return fairlearn.MetricFrame(
        metrics=_default_metrics(fairlearn, n_classes) if metrics is None else metrics,
        y_true=y,
        y_pred=p,
        sensitive_features=pandas.Series(names[s], name="sensitive_features"),
    )


def _default_metrics(fairlearn: Any, n_classes: int) -> dict[str, Any]:
    from sklearn.metrics import accuracy_score

    metrics = {"accuracy": accuracy_score, "count": fairlearn.count}
    if n_classes != 2:
        return metrics
    rates = ("selection_rate", "true_positive_rate", "false_positive_rate")
    return {**metrics, **{name: getattr(fairlearn, name) for name in rates}}
