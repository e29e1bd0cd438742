"""Settings of the paper, of the released code, and of this package in one table."""

from __future__ import annotations

from typing import Any

from fairerclip._util.numbers import significant
from fairerclip.model.estimator import FairerCLIP
from fairerclip.model.presets import PRESETS, preset_name
from fairerclip.report.result_table import ResultTable
from fairerclip.study.paper.accuracy import published_table
from fairerclip.study.paper.context import Context, Outcome
from fairerclip.study.paper.entry_result import Found

SHOWN = (
    *("n_features", "n_components", "tau", "tau_z", "tau_text", "tau_z_text", "gamma", "gamma_text"),
    *("bandwidth", "zero_shot", "decision", "refine"),
    *("scaling", "alignment", "class_weight", "subsample", "max_iter", "random_state"),
)


def implementation(context: Context) -> Outcome:
    """Make a table of published settings and of the defaults of a fit."""
    del context  # nothing depends on the data
    columns = ["setting", "our default"]
    sources: list[dict[str, Any]] = [FairerCLIP().get_params()]
    for dataset, origin, backbone in PRESETS:
        columns.append(preset_name(dataset, origin, backbone))
        sources.append(FairerCLIP(**PRESETS[dataset, origin, backbone]).get_params())
    rows = [[name, *(_setting(params[name]) for params in sources)] for name in SHOWN]
    table = ResultTable(
        "Parameters of FairerCLIP",
        columns,
        rows,
        "A preset of the paper has one τ for both sides: tau_text and tau_z_text None are as strong as on the image "
        "side. The paper gives no γ and no seed; its presets have 1e-4 and 0. Shares in subsample are those of "
        "rows kept of the negative and of the positive class. n_components None is the number of classes minus one, "
        "the paper's r. What is auto is chosen from the labelled training rows; our defaults are those of a fit, and "
        "on a task with labelled validation rows the command `fit` chooses most of them there.",
    )
    names = {"n_features": "RFF", "r": "r", "tau": "τ", "tau_z": "τ_z", "training_rows": "training rows"}
    results: dict[str, Found] = {
        column: {k: _setting(p[k]) for k in SHOWN} for column, p in zip(columns[1:], sources, strict=True)
    }
    return Outcome(tables=[table, published_table("implementation", names)], results=results)


def _setting(value: Any) -> str:
    return significant(value, 6) if isinstance(value, float) else str(value)
