"""scikit-learn's own checks of EmbeddingMitigator, and life inside its pipelines."""

import numpy as np
import pytest
import sklearn
from gallery import Gallery
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator

from fairerclip import EmbeddingMitigator

EXPECTED = {
    "check_estimators_dtypes": "one of its integer rows is zero, which has no direction: an error by contract",
}


def checks():
    for estimator, check in estimator_checks_generator(EmbeddingMitigator()):
        name = check.func.__name__ if hasattr(check, "func") else check.__name__
        details = "-".join(f"{k}={v}" for k, v in getattr(check, "keywords", {}).items())
        marks = pytest.mark.xfail(reason=EXPECTED[name], strict=True) if name in EXPECTED else ()
        yield pytest.param(estimator, check, id=f"{name}-{details}", marks=marks)


@pytest.mark.filterwarnings("ignore::fairerclip.errors.NoSensitiveWarning")
@pytest.mark.parametrize(("estimator", "check"), [*checks()])
def test_a_check_of_scikit_learn(estimator, check):
    check(estimator)


def test_the_expected_failures_are_checks_that_exist():
    names = {getattr(c, "func", c).__name__ for _, c in estimator_checks_generator(EmbeddingMitigator())}
    assert set(EXPECTED) <= names


def test_a_clone_has_the_parameters_and_not_the_fit():
    g = Gallery()
    fairer = EmbeddingMitigator(0.3, about=None).fit(g.X, sensitive_features=g.s)
    copy = clone(fairer)
    assert copy.get_params() == fairer.get_params()
    with pytest.raises(NotFittedError):
        copy.transform(g.X)
    assert_array_equal(copy.fit(g.X, sensitive_features=g.s).transform(g.X), fairer.transform(g.X))


@pytest.mark.parametrize("call", ["transform", "drift", "query_meaning", "save"])
def test_an_unfitted_mitigator_says_so(call, tmp_path):
    with pytest.raises(NotFittedError):
        getattr(EmbeddingMitigator(), call)(tmp_path / "m" if call == "save" else np.eye(3))
    for call in (EmbeddingMitigator().scores, EmbeddingMitigator().rank):
        with pytest.raises(NotFittedError):
            call(np.eye(3), np.eye(3))
    with pytest.raises(NotFittedError):
        EmbeddingMitigator().path(np.eye(3), np.eye(3), [0, 1, 0])


def test_a_pipeline_passes_sensitive_features_on():
    g = Gallery()
    y = (g.X[:, 0] > 0).astype(int)
    pipe = make_pipeline(EmbeddingMitigator(), LogisticRegression())
    pipe.fit(g.X, y, embeddingmitigator__sensitive_features=g.s)
    alone = EmbeddingMitigator().fit(g.X, sensitive_features=g.s)
    assert_allclose(pipe[:-1].transform(g.X), alone.transform(g.X))
    with sklearn.config_context(enable_metadata_routing=True):
        routed = make_pipeline(
            EmbeddingMitigator().set_fit_request(sensitive_features=True), LogisticRegression()
        )
        routed.fit(g.X, y, sensitive_features=g.s)
    assert_allclose(routed.predict_proba(g.X), pipe.predict_proba(g.X))


def test_set_output_and_names_of_columns():
    g = Gallery()
    fairer = EmbeddingMitigator().fit(g.X, sensitive_features=g.s)
    assert fairer.get_feature_names_out().tolist() == [f"x{k}" for k in range(10)]
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(g.X, columns=[f"c{k}" for k in range(10)])
    named = EmbeddingMitigator().fit(frame, sensitive_features=g.s).set_output(transform="pandas")
    assert named.transform(frame).columns.tolist() == frame.columns.tolist()
    assert_allclose(named.transform(frame).to_numpy(), fairer.transform(g.X), atol=1e-12)
