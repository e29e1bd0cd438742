"""Zero-shot classification of mitigated embeddings."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip import EmbeddingMitigator, load
from fairerclip.baselines import ZeroShot
from fairerclip.baselines.mitigated_zero_shot import MitigatedZeroShot
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.errors import FairerClipError, StateError
from fairerclip.metrics.dependence.measures import dep


@pytest.fixture
def made(embeddings):
    e = embeddings(n=300)
    fairer = EmbeddingMitigator().fit(e.X, sensitive_features=e.s)
    return e, fairer, MitigatedZeroShot.of(fairer, {"cat": e.text[0], "dog": e.text[1:]})


def test_it_predicts_the_class_with_the_largest_inner_product(made):
    e, fairer, model = made
    expected = fairer.transform(e.X) @ unit_rows(e.text).T
    assert_allclose(model.scores(e.X), expected, atol=1e-12)
    assert_array_equal(model.predict(e.X), np.array(["cat", "dog"])[expected.argmax(axis=1)])
    assert_allclose(model.transform(e.X), fairer.transform(e.X), atol=1e-14)
    assert model.changes_embeddings
    assert model.title == "EmbeddingMitigator"
    assert model.classes_.tolist() == ["cat", "dog"]


def test_at_strength_0_it_is_the_zero_shot_classifier(made):
    e, fairer, _ = made
    model = MitigatedZeroShot.of(fairer.at(0.0), {0: e.text[0], 1: e.text[1]})
    plain = ZeroShot().fit(e.X, text=e.text)
    assert_array_equal(model.predict(e.X), plain.predict(e.X))


def test_its_scores_depend_less_on_s(made):
    e, _, model = made
    before = dep(ZeroShot().fit(e.X, text=e.text).scores(e.X), e.s)
    assert dep(model.scores(e.X), e.s) < 1e-6 * before


def test_prompts_about_s_are_mitigated_like_any_class(embeddings):
    e = embeddings(n=300)
    fairer = EmbeddingMitigator().fit(e.X, sensitive_text=e.sensitive_text)
    model = MitigatedZeroShot.of(fairer, dict(enumerate(e.sensitive_text)))
    assert_allclose(model.scores(e.X), fairer.transform(e.X) @ unit_rows(e.sensitive_text).T, atol=1e-12)


def test_the_mitigator_is_what_is_saved(made, tmp_path):
    e, fairer, model = made
    back = load(model.save(tmp_path / "m"))
    assert isinstance(back, EmbeddingMitigator)
    assert_array_equal(back.transform(e.X), fairer.transform(e.X))


def test_it_is_not_fitted_itself(made):
    e, _, model = made
    with pytest.raises(StateError, match=r"MitigatedZeroShot.of\(mitigator, text\)"):
        model.fit(e.X, e.y)


@pytest.mark.parametrize("text", [{"cat": np.ones(3), "dog": np.ones(3)}, {"cat": np.ones(12)}])
def test_prompts_of_another_width_or_of_one_class_are_refused(made, text):
    with pytest.raises(FairerClipError):
        MitigatedZeroShot.of(made[1], text)
