"""Every parameter of every method with odd values: finite scores, or an error of the package before the work."""

import warnings
from fractions import Fraction

import numpy as np
import pytest

from fairerclip import FairerCLIP, baselines
from fairerclip.errors import FairerClipError, FairerClipWarning, ParameterError
from fairerclip.features import make_features
from fairerclip.features.feature_map import MAX_FEATURES
from light import smaller_forests

small_forests = pytest.fixture(scope="module", autouse=True)(smaller_forests)
ODD = (
    *(1e-300, 1e308, -1e300, 10**20, 10**400, -1, 0, 0.5),
    *(float("nan"), float("inf"), -float("inf"), True, np.True_, None, Fraction(1, 3), 3 + 0j),
    *(np.float16(0.3), np.int64(3), np.array(0.3), np.array([0.1, 0.2])),
    *("", "abc", b"x", "1e-300*median"),
    *((), {}, (1e308, -1e308), [float("nan"), 0], ((1e308,) * 2,) * 2, object()),
)
METHODS = [FairerCLIP, *(getattr(baselines, name) for name in baselines.__all__)]
QUICK = {"n_features": 15, "max_iter": 2, "epochs": 1, "n_refits": 1, "C": 1.0, "random_state": 0}
CASES = [
    (method, name) for method in METHODS if hasattr(method, "get_params") for name in method().get_params()
]
PARTS = 5
"""Each parameter is given every fifth odd value, starting at another one than the parameter before."""


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{m.__name__}-{name}" for m, name in CASES])
def test_odd_values_give_finite_scores_or_an_error_of_the_package(number, embeddings):
    e, (method, name) = embeddings(n=40, p=6), CASES[number]
    more = {"validation": (e.X, e.y, e.s)} if method is baselines.DFR else {}
    quick = {key: value for key, value in QUICK.items() if key in method().get_params()}
    for value in ODD[number % PARTS :: PARTS]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FairerClipWarning)
            try:
                model = method(**{**quick, name: value}).fit(
                    e.X, e.y, sensitive_features=e.s, text=e.text, sensitive_text=e.sensitive_text, **more
                )
            except FairerClipError:
                continue
            assert np.isfinite(model.scores(e.X)).all(), value
            assert np.isfinite(model.decision_function(e.X)).all(), value


def test_more_features_than_there_is_room_for_are_refused_before_they_are_drawn(embeddings, tracemalloc_peak):
    e = embeddings(n=40, p=6)

    def draw():
        with pytest.raises(ParameterError, match="n_features"):
            make_features("rbf", np.ones((1, 40_960)), n_features=30_000, bandwidth=1.0)

    assert tracemalloc_peak(draw)[1] < 10e6
    with pytest.raises(ParameterError, match="n_features"):
        FairerCLIP(n_features=MAX_FEATURES + 1).fit(e.X, e.y, sensitive_features=e.s)
