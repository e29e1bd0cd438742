"""The spread over seeds is that of the chosen model, learned offsets included."""

import numpy as np
import pytest

from fairerclip import FairerCLIP
from fairerclip.auditing.sections.groups import groups_section
from fairerclip.data import simulate
from fairerclip.experiment import Experiment
from small_models import FIXED


def test_fits_with_other_seeds_have_the_offsets_of_the_chosen_model():
    experiment = Experiment.of(simulate("waterbirds", seed=1, scale=0.1, width=48))
    test = experiment.task.test
    first, second = (
        experiment.fit(FairerCLIP(**FIXED, n_features=100, random_state=seed), "target") for seed in (0, 1)
    )
    offsets = [0.0, float(np.ptp(first.scores(test.X)) / 4)]
    models = [model.at(offsets=offsets) for model in (first, second)]
    assert (models[1].predict(test.X) != second.predict(test.X)).any()
    section = groups_section(experiment, test, models[0], labels="target", seeds=2, confidence=0.95)
    averages = [experiment.report(test, model.predict(test.X)).average for model in models]
    spread = next(figure for figure in section.seeds.figures if figure.figure == "average")
    assert spread.mean == pytest.approx(np.mean(averages))
    assert spread.sd == pytest.approx(np.std(averages, ddof=1))
