"""Comparisons of made-up predictions, through the same code as real ones but without training."""

from unittest.mock import patch

import numpy as np

from fairerclip.auditing.group_results import StageReport
from fairerclip.data import simulate
from fairerclip.experiment import Experiment
from fairerclip.study import compare as study
from fairerclip.study.comparison import FailedRun, MethodRun
from fairerclip.study.methods import METHODS

BY_KEY = {method.key: method for method in METHODS}


def small_experiment():
    return Experiment.of(simulate("waterbirds", seed=1, scale=0.1, width=48))


def run_of(experiment, codes, seed=0, split="test"):
    """A run with these predicted classes."""
    rows = experiment.task.split(split)
    report = experiment.report(rows, np.array(experiment.classes)[codes])
    return MethodRun(
        seed=seed,
        split=split,
        report=StageReport.model_validate(report.as_dict()),
        predicted=tuple(int(code) for code in codes),
        chosen={},
        offsets=(),
        candidates=1,
        seconds=1.0,
        seconds_in_all=2.0,
        parameters=10,
        notes=(),
    )


def wrong(experiment, share, seed=0, split="test"):
    """Predicted classes of which a share is wrong."""
    truth = experiment.task.split(split).y
    return np.where(np.random.default_rng(seed).random(len(truth)) < share, 1 - truth, truth)


def compared(experiment, runs, methods=None):
    """A comparison of methods with these runs; text in place of runs is the error of a method that failed."""
    methods = methods or [BY_KEY[key] for key in runs]
    found = {
        key: [FailedRun(seed=0, error=given)] if isinstance(given, str) else given
        for key, given in runs.items()
    }
    with (
        patch.object(study, "_run", lambda *_: found),
        patch.object(study, "chosen_methods", lambda _: methods),
    ):
        return study.compare(experiment)
