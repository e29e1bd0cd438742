"""The same audit in other words."""

from dataclasses import replace

import numpy as np
import pytest

from fairerclip.auditing.rewording import variants_from_encoder
from fairerclip.auditing.sections.wording import OWN, audit_wording
from fairerclip.data import simulate
from fairerclip.errors import (
    NonFiniteError,
    ParameterError,
    PromptFileError,
    ShapeError,
    ZeroRowError,
)
from fairerclip.experiment import Experiment


@pytest.fixture(scope="module")
def task():
    return simulate("waterbirds", scale=0.1, width=64)


@pytest.fixture(scope="module")
def experiment(task):
    return Experiment.of(task)


def test_each_wording_is_reported_as_zero_shot_with_its_prompts(task, experiment):
    found = audit_wording(experiment, "test", task.variants.text, task.variants.templates)
    assert found.split == "test"
    assert [e.template for e in found.templates] == [OWN, *task.variants.templates]
    assert found.used == 0
    for entry, text in zip(found.templates, [task.text_target, *task.variants.text], strict=True):
        reworded = Experiment.of(replace(task, text_target=text))
        report = reworded.report(task.test, reworded.zero_shot(task.test))
        assert entry.average.value == report.average
        assert (entry.worst_group.value, entry.worst_name) == (
            report.worst.accuracy,
            report.worst.name,
        )
        assert entry.eod.value == report.eod
        for figure in ("average", "worst_group", "eod"):
            found = getattr(entry, figure)
            assert (found.low, found.high) == report.intervals[figure]
            assert found.low <= found.value <= found.high


def test_the_wording_that_the_task_uses_is_found_among_those_given(task, experiment):
    texts = np.stack([task.variants.text[3], 2.0 * task.text_target, task.variants.text[0]])
    assert audit_wording(experiment, "test", texts, ["a", "b", "c"]).used == 1


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda t: t[:, :1], ShapeError),
        (lambda t: t[:2], ParameterError),
        (lambda t: np.where(t > 0.1, np.nan, t), NonFiniteError),
        (lambda t: t * np.array([1, 0, 1, 1, 1])[:, None, None].astype(t.dtype), ZeroRowError),
    ],
)
def test_wordings_that_do_not_fit_are_refused(task, experiment, change, error):
    texts = change(task.variants.text)
    with pytest.raises(error):
        audit_wording(experiment, "test", texts, task.variants.templates if len(texts) else [])


class Words:
    """An encoder that gives every word a direction, and adds them up."""

    name = "words"

    def __init__(self, width, seed=0):
        self.width, self.seed, self.asked = width, seed, []

    def encode_text(self, prompts):
        self.asked.append(list(prompts))
        rows = np.stack([sum(map(self._word, p.strip(".").split())) for p in prompts])
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    def _word(self, word):
        return np.random.default_rng([self.seed, *word.encode()]).normal(size=self.width)


@pytest.fixture
def embedded(task):
    """A task whose prompts are those of an encoder."""
    own = Words(64).encode_text(["a photo of a landbird", "a photo of a waterbird"])
    return Experiment.of(replace(task, text_target=own, simulated=False))


def test_class_names_are_embedded_in_each_template_at_once(embedded):
    encoder = Words(64)
    texts, templates = variants_from_encoder(embedded, encoder, ["a {}", "the {} here"])
    assert encoder.asked == [["a landbird", "a waterbird", "the landbird here", "the waterbird here"]]
    assert templates == ("a {}", "the {} here")
    np.testing.assert_array_equal(texts[1, 0], encoder.encode_text(["the landbird here"])[0])


@pytest.mark.parametrize("templates", [[], ["a photo"], ["{} and {}"], ["a {}", "a {}"], ["a\n{}"], [3]])
def test_bad_templates_are_refused_before_anything_is_embedded(embedded, templates):
    encoder = Words(64)
    with pytest.raises(PromptFileError):
        variants_from_encoder(embedded, encoder, templates)
    assert encoder.asked == []
