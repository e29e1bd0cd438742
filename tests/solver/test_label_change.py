from functools import partial

import numpy as np
import pytest

from fairerclip.features import FourierFeatures
from fairerclip.solver.label_change import changed_moments
from fairerclip.solver.moments import Moments
from fairerclip.solver.rows import FeatureRows
from fairerclip.solver.terms import Attribute, LabelDesign, OneHot


@pytest.mark.parametrize("share", [0.0, 0.03, 1.0])
@pytest.mark.parametrize("scored", [True, False])
def test_moments_of_changed_labels_are_those_of_a_whole_pass(share, scored):
    rng = np.random.default_rng(0)
    n, c = 700, 3
    X, weight = rng.normal(size=(n, 4)), rng.uniform(size=n)
    rows = FeatureRows(
        FourierFeatures.fit(X, n_features=20, random_state=0), X, dtype="float64", block_rows=130
    )
    attributes = (
        Attribute("sex", OneHot(rng.integers(2, size=n), 2)),
        Attribute("age", rng.normal(size=(n, 1))),
    )
    scores = rng.normal(size=(n, c)) if scored else None
    y = rng.integers(c, size=n)
    z = np.where(rng.random(n) < share, 0, y)  # a class may vanish
    before, after = (LabelDesign(labels, c, attributes, scores) for labels in (y, z))

    def whole(design):
        return rows.sum(partial(Moments, 20, design.n_columns, covariance=False), [design, weight]).finalise()

    found, expected = changed_moments(rows, weight, whole(before), before, after), whole(after)
    np.testing.assert_allclose(found.cross, expected.cross, atol=1e-14)
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-14)
    assert found.trace == pytest.approx(expected.trace)
    assert found.covariance is None
