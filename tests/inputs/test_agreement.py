"""Prompts and labels that do not belong together are an error or a named warning, never silence."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fairerclip.baselines import LEACE, ZeroShot
from fairerclip.errors import (
    PromptError,
    PromptOrderWarning,
    SwappedPromptsWarning,
    UninformativePromptsWarning,
)
from fairerclip.inputs.agreement import agreement
from small_models import small

NAMES = np.array(["landbird", "waterbird", "seabird", "shorebird"])


# The rule for arrays of prompts -----------------------------------------------------------------------


@pytest.mark.parametrize("model", [small(), LEACE(), ZeroShot()], ids=["FairerCLIP", "LEACE", "ZeroShot"])
@pytest.mark.parametrize("labels", [NAMES, [3, 7], [-1, 1], [0.0, 5.0]], ids=str)
def test_labels_that_do_not_number_the_prompts_of_an_array_are_an_error(embeddings, model, labels):
    e = embeddings()
    with pytest.raises(PromptError):
        model.fit(e.X, np.array(labels)[e.y], sensitive_features=e.s, text=e.text)


def test_a_mapping_and_an_order_give_the_same_model(embeddings):
    e = embeddings(n_classes=4, n=300)
    y, shuffled = NAMES[e.y], [2, 0, 3, 1]
    by_number = small().fit(e.X, e.y, sensitive_features=e.s, text=e.text)
    mapping = {NAMES[k]: e.text[k] for k in range(4)}
    named = small().fit(e.X, y, sensitive_features=e.s, text=mapping)
    ordered = small().fit(e.X, y, sensitive_features=e.s, text=e.text[shuffled], classes=NAMES[shuffled])
    assert_array_equal(named.predict(e.X), NAMES[by_number.predict(e.X)])
    assert_array_equal(ordered.predict(e.X), named.predict(e.X))


# Orders that contradict the labels ----------------------------------------------------------------------


@pytest.mark.parametrize("model", [small(), LEACE(), ZeroShot()], ids=["FairerCLIP", "LEACE", "ZeroShot"])
def test_reversed_prompts_with_integer_labels_are_an_error(embeddings, model):
    e = embeddings()
    with pytest.raises(PromptError):
        model.fit(e.X, e.y, sensitive_features=e.s, text=e.text[::-1])


def test_a_mapping_that_contradicts_the_labels_is_a_named_warning(embeddings):
    e = embeddings()
    with pytest.warns(PromptOrderWarning) as caught:
        small().fit(e.X, e.y, sensitive_features=e.s, text={0: e.text[1], 1: e.text[0]})
    assert {w.filename for w in caught} == {__file__}
    named = {0: e.sensitive_text[1], 1: e.sensitive_text[0]}
    with pytest.warns(PromptOrderWarning) as caught:
        small().fit(e.X, e.y, sensitive_features=e.s, text=e.text, sensitive_text=named)
    assert {w.filename for w in caught} == {__file__}


def test_reversed_sensitive_prompts_are_an_error_where_values_are_known(embeddings):
    e = embeddings(correlation=0.3)
    with pytest.raises(PromptError):
        small().fit(e.X, e.y, sensitive_features=e.s, text=e.text, sensitive_text=e.sensitive_text[::-1])


def test_prompts_that_favour_one_class_still_tell_their_order(embeddings):
    e = embeddings()
    towards = e.text[0] - e.text[1]
    X = e.X + 2 * towards / np.linalg.norm(towards)  # read zero-shot, nearly every row is of the first class
    assert np.mean((X @ e.text.T).argmax(axis=1) == 0) > 0.95
    unbalanced = {"zero_shot": 0.0, "tau": 0.3}
    small(**unbalanced).fit(X, e.y, sensitive_features=e.s, text=e.text)
    with pytest.raises(PromptError):
        small().fit(X, e.y, sensitive_features=e.s, text=e.text[::-1])


def test_prompts_of_another_model_are_a_named_warning(embeddings):
    e = embeddings(n=600)
    noise = np.random.default_rng(3).normal(size=e.text.shape)
    noise -= (noise @ np.linalg.pinv(e.text)) @ e.text
    X = np.hstack([e.X, np.random.default_rng(4).normal(size=e.X.shape) / np.sqrt(12)])
    with pytest.warns(UninformativePromptsWarning):
        small().fit(X, e.y, sensitive_features=e.s, text=np.hstack([np.zeros_like(noise), noise]))


def test_class_prompts_and_sensitive_prompts_that_are_swapped_are_an_error_with_values_known(embeddings):
    e = embeddings(correlation=0.5, n=400)
    with pytest.raises(PromptError):
        small().fit(e.X, e.y, sensitive_features=e.s, text=e.sensitive_text, sensitive_text=e.text)


def test_class_prompts_and_sensitive_prompts_that_are_swapped_are_a_warning_without(embeddings):
    e = embeddings(correlation=0.6, n=400)
    with pytest.warns(SwappedPromptsWarning):
        small().fit(e.X, e.y, text=e.sensitive_text, sensitive_text=e.text)


def test_right_prompts_are_taken_without_a_word(embeddings):
    for seed in range(2):
        for c in (2, 4):
            e = embeddings(seed=seed, n_classes=c, n_sensitive=c, n=400)
            given = {"text": e.text, "sensitive_text": e.sensitive_text}
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                small().fit(e.X, e.y, sensitive_features=e.s, **given)
                small().fit(e.X, e.y, **given)
            assert caught == []


# The figure itself --------------------------------------------------------------------------------------


@pytest.mark.parametrize("c", [2, 3, 5])
def test_agreement_is_the_mean_recall_of_centred_cosines(embeddings, c):
    e = embeddings(n_classes=c, n=500, seed=2)
    unit = [a / np.linalg.norm(a, axis=1, keepdims=True) for a in (e.X, e.text)]
    cosines = unit[0] @ unit[1].T
    cosines = cosines - np.mean([cosines[e.y == k].mean(axis=0) for k in range(c)], axis=0)
    read = cosines.argmax(axis=1)
    recalls = []
    for first in (0, 1):  # every other row of each class, and the rest
        rows = [np.flatnonzero(e.y == k)[first::2] for k in range(c)]
        recalls.append(np.mean([np.mean(read[r] == k) for k, r in enumerate(rows)]))
    found = agreement(e.X, [t[None] for t in e.text], e.y)
    assert found.given == pytest.approx(np.mean(recalls), abs=1e-9)
    assert found.best == pytest.approx(found.given)
    assert found.rows == 500
    turned = agreement(e.X, [t[None] for t in np.roll(e.text, 1, axis=0)], e.y)
    assert turned.best == pytest.approx(found.given)
    assert turned.given < found.given - 0.2


def test_few_rows_of_many_classes_do_not_choose_an_order_by_luck():
    rng = np.random.default_rng(0)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        text = rng.normal(size=(10, 30))
        y = np.repeat(np.arange(10), 2)
        X = 0.3 * text[y] + rng.normal(size=(20, 30))
        assert not agreement(X, [t[None] for t in text], y).prefers_another_order
