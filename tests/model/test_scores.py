"""One rule for scores: whatever is called a score of the classes decides as `predict` does."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import spearmanr

from fairerclip import FairerCLIP
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.errors import FreeQueryError
from paper import PAPER
from small_models import AUTO, FIXED

SETTINGS = {
    "given": {},
    "auto": AUTO,
    "no balance": {"class_weight": None, "zero_shot": 0.0},
    "offsets": {"offsets": "some"},
    "linear": {"kernel": "linear", "zero_shot": 1.0},
    "few components": {"n_components": 1, "max_iter": 200},
    "cosines": {**PAPER},
    "cosines, mean": {**PAPER, "decision_zero": "mean"},
    "cosines, uncentred": {**PAPER, "decision_zero": "none"},
}


def fitted(e, dtype=np.float64, **parameters):
    offsets = np.random.default_rng(8).normal(scale=0.3, size=len(e.text))
    learned = {"offsets": offsets} if parameters.pop("offsets", None) else {}
    m = FairerCLIP(**{**FIXED, "n_features": 60, "random_state": 0, **parameters})
    return m.fit(e.X.astype(dtype), e.y, sensitive_features=e.s, text=e.text).at(**learned)


@pytest.mark.filterwarnings("ignore::fairerclip.errors.TextCollapseWarning")
@pytest.mark.parametrize("c", [2, 4])
@pytest.mark.parametrize("name", SETTINGS)
def test_every_score_decides_as_predict_does(embeddings, name, c):
    e = embeddings(n_classes=c, n=400, correlation=0.5)
    m = fitted(e, **SETTINGS[name])
    predicted, scores = m.predict(e.X), m.scores(e.X)
    assert len(np.unique(predicted)) > 1
    assert np.mean(predicted == e.y) > 0.5
    if not name.startswith("cosines"):
        assert_allclose(scores, m.transform(e.X) @ m.score_weights_.T + m.score_constants_, atol=1e-8)
    if c == 2:
        assert_allclose(m.decision_function(e.X), scores[:, 1] - scores[:, 0])
    assert_array_equal(m.classes_[scores.argmax(axis=1)], predicted)
    assert_array_equal(m.classes_[m.predict_proba(e.X).argmax(axis=1)], predicted)
    decision = m.decision_function(e.X)
    places = (decision > 0).astype(int) if c == 2 else decision.argmax(axis=1)
    assert_array_equal(m.classes_[places], predicted)
    for k in range(c):
        assert_array_equal(m.rank(k, e.X).indices, np.argsort(-scores[:, k], kind="stable"))


@pytest.mark.filterwarnings("ignore::fairerclip.errors.TextCollapseWarning")
@pytest.mark.parametrize(("c", "dtype"), [(2, np.float32), (4, np.float64)])
@pytest.mark.parametrize("name", [n for n in SETTINGS if not n.startswith("cosines")])
def test_embeddings_of_images_and_prompts_rank_and_classify_as_the_model_does(embeddings, name, c, dtype):
    e = embeddings(n_classes=c, n=400, correlation=0.5)
    m = fitted(e, dtype, **SETTINGS[name])
    X = e.X.astype(dtype)
    product = m.transform(X).astype(np.float64) @ m.transform_text(e.text).T
    agreement = np.mean(m.classes_[product.argmax(axis=1)] == m.predict(X))
    assert agreement == 1 if dtype == np.float64 else agreement >= 0.995
    for k in range(c):
        assert spearmanr(product[:, k], m.scores(X)[:, k]).statistic > 1 - 1e-6


@pytest.mark.parametrize(("zero", "c"), [("balanced", 2), ("mean", 3), ("none", 5)])
def test_with_the_papers_decision_cosines_in_the_learned_space_classify(embeddings, c, zero):
    e = embeddings(n_classes=c, n=400, correlation=0.5)
    m = fitted(e, **PAPER, decision_zero=zero)
    cosines = unit_rows(m.transform(e.X)) @ unit_rows(m.transform_text(e.text)).T
    assert_array_equal(m.classes_[cosines.argmax(axis=1)], m.predict(e.X))
    assert_allclose(cosines, m.cosines(e.X), atol=1e-6)
    anything = np.random.default_rng(0).normal(size=(7, 12))
    assert m.transform_text(anything).shape == (7, c - 1)


def test_the_uncentred_decision_is_the_papers_formula_read_literally(embeddings):
    e = embeddings(n_classes=4, n=300, correlation=0.5)
    m = fitted(e, **{**PAPER, "decision_zero": "none", "class_weight": "balanced"})
    image = m.features_.transform(unit_rows(e.X)) @ m.components_  # f(x) = Uᵀφ(x), nothing subtracted
    text = m.text_features_.transform(unit_rows(e.text)) @ m.text_components_
    assert_allclose(m.transform(e.X), image, atol=1e-8)
    assert_allclose(m.transform_text(e.text), text, atol=1e-8)
    assert_array_equal(m.predict(e.X), (unit_rows(image) @ unit_rows(text).T).argmax(axis=1))
    centred = fitted(e, **{**PAPER, "decision_zero": "mean", "class_weight": "balanced"})
    assert_array_equal(m.components_, centred.components_)
    assert np.any(m.transform(e.X) != centred.transform(e.X))


@pytest.mark.parametrize("precision", [np.float16, np.float64])
def test_a_fitted_prompt_is_known_in_any_length_and_precision(embeddings, precision):
    e = embeddings(n_classes=3)
    prompts = [np.stack([t, t + 0.1 * t[::-1]]) for t in e.text]
    m = FairerCLIP(n_features=60, random_state=0).fit(e.X, e.y, sensitive_features=e.s, text=prompts)
    for k, group in enumerate(prompts):
        assert_array_equal(m.transform_text((5 * group).astype(precision)), m.score_weights_[[k, k]])
        mean = unit_rows(group).mean(axis=0, keepdims=True)  # what an ensemble of prompts is searched with
        assert_array_equal(m.transform_text(mean), m.score_weights_[[k]])


def test_another_prompt_is_a_free_query_and_says_what_is_for_that(embeddings):
    e = embeddings(n_classes=3)
    m = fitted(e)
    with pytest.raises(FreeQueryError):
        m.transform_text(np.stack([e.text[0], e.text[0] + 0.2 * e.text[1]]))
    with pytest.raises(FreeQueryError):
        m.rank("a photo of a doctor", e.X)
    without = FairerCLIP(n_features=60, random_state=0).fit(e.X, e.y, sensitive_features=e.s)
    with pytest.raises(FreeQueryError):
        without.transform_text(e.text)
