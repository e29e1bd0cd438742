"""Class offsets: what they do to the scores, and that they travel with the model."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from fairerclip import FairerCLIP
from fairerclip.errors import ParameterError
from small_models import small


def fitted(e, *, offsets=None, **parameters):
    return small(**parameters).fit(e.X, e.y, sensitive_features=e.s, text=e.text).at(offsets=offsets)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("decision", ["target", "prompts"])
def test_offsets_are_added_to_the_scores(embeddings, n_classes, decision):
    e = embeddings(n_classes=n_classes)
    offsets = np.linspace(-0.3, 0.4, n_classes)
    plain, moved = (fitted(e, decision=decision, offsets=o) for o in (None, offsets))
    assert_allclose(moved.scores(e.X), plain.scores(e.X) + offsets, atol=1e-10)
    assert_array_equal(moved.components_, plain.components_)  # the encoder is the same, its origin may move
    assert_allclose(
        moved.transform(e.X) - moved.intercept_, plain.transform(e.X) - plain.intercept_, atol=1e-12
    )
    assert_array_equal(moved.predict(e.X), moved.classes_[moved.scores(e.X).argmax(axis=1)])
    if n_classes == 2:
        gap = offsets[1] - offsets[0]
        assert_allclose(moved.decision_function(e.X), plain.decision_function(e.X) + gap, atol=1e-10)


def test_offsets_survive_a_file_and_end_with_a_fit(embeddings, tmp_path):
    e = embeddings()
    plain = fitted(e).scores(e.X)
    m = fitted(e, offsets=np.array([0.2, -0.3]))
    back = FairerCLIP.load(m.save(tmp_path / "model"))
    assert back.offsets_.tolist() == m.offsets_.tolist() == [0.2, -0.3]
    assert_array_equal(back.scores(e.X), m.scores(e.X))
    # They were learned for one fitted model: a new fit has none.
    for other in (clone(m), back, m):
        other.fit(e.X, e.y, sensitive_features=e.s, text=e.text)
        assert other.offsets_.tolist() == [0, 0]
        assert_array_equal(other.scores(e.X), plain)


@pytest.mark.parametrize(
    "offsets",
    [[1.0, 2.0, 3.0], 0.5, "much", ["a", "b"], [np.nan, 0.0], [[1.0], [2.0]], {0: 1.0, 1: 0.0}],
    ids=str,
)
def test_offsets_that_cannot_be_are_refused(embeddings, offsets):
    with pytest.raises(ParameterError, match="offsets"):
        fitted(embeddings(), offsets=offsets)


def test_offsets_stay_with_a_copy_that_changes_other_parameters(embeddings):
    e = embeddings()
    moved, plain = fitted(e).at(offsets=[0.3, -0.1]).at(tau=0.2), fitted(e, tau=0.2)
    assert_allclose(moved.scores(e.X), plain.scores(e.X) + np.array([0.3, -0.1]), atol=1e-10)
