"""The answers of the package stay: figures of scenarios, one page, one terminal answer, one saved model per kind."""

import json

import numpy as np
import pytest
from rich.console import Console, ConsoleDimensions
from scenarios import HERE, REAL, SCENARIOS, WIDTH, asked, differences, text_differences, texts

from fairerclip import load

KEPT = json.loads((HERE / "figures.json").read_text(encoding="utf-8"))


QUICK = ("two-classes: models", "mitigator", "metrics")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in SCENARIOS]
)
def test_simulated_figures_stay(name, run):
    measured = SCENARIOS[name](run)
    assert 5 < len(measured) <= 50
    assert not differences(KEPT[name], measured)


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_real_figures_stay(name, run, real_data):
    measured = REAL[name](run)
    assert 5 < len(measured) <= 50
    assert not differences(KEPT[name], measured)


@pytest.mark.slow
def test_the_page_and_the_terminal_answer_stay(run, monkeypatch):
    # Whatever COLUMNS said when the console was made: workers of pytest have one of their own.
    monkeypatch.setattr(Console, "size", property(lambda _: ConsoleDimensions(WIDTH, 25)))
    monkeypatch.setattr(Console, "width", property(lambda _: WIDTH))
    for name, text in texts(run).items():
        assert not text_differences((HERE / name).read_text(encoding="utf-8"), text), name


@pytest.mark.parametrize("kind", ["fairerclip", "paper", "mitigator", "baseline"])
def test_a_saved_model_of_each_kind_answers(kind):
    kept = json.loads((HERE / "saved" / "answers.json").read_text(encoding="utf-8"))[kind]
    answers = asked(load(HERE / "saved" / kind))
    assert answers.pop("predicted", None) == kept.pop("predicted", None)
    assert answers.keys() == kept.keys()
    for name, values in answers.items():
        np.testing.assert_allclose(values, kept[name], rtol=1e-5, atol=1e-6, err_msg=name)
