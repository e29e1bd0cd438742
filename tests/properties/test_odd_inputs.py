"""Odd arrays give the answer of the plain array with the same values, or an error of the package."""

import functools
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from odd_arrays import MAPPED, REFUSED, Odd, real_inputs

from fairerclip import EmbeddingMitigator, FairerCLIPSearch, baselines
from fairerclip.errors import FairerClipError, FairerClipWarning
from sample_rows import Embeddings
from small_models import small

E = Embeddings(seed=1, n=60, p=6, correlation=0.5)
WIDTH = E.X.shape[1]


def examples(number):
    """Draw so many examples, the same ones every time."""
    unhurried = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    return settings(
        max_examples=number, derandomize=True, deadline=None, suppress_health_check=unhurried, database=None
    )


def _baseline(name, **parameters):
    return lambda: getattr(baselines, name)(**parameters)


ESTIMATORS = {
    "FairerCLIP": small,
    "FairerCLIP, prompts": lambda: small(decision="prompts"),
    "FairerCLIP, linear": lambda: small(kernel="linear"),
    "FairerCLIP, nystroem": lambda: small(kernel="nystroem", n_features=20, dtype="float32"),
    "EmbeddingMitigator": EmbeddingMitigator,
    **{
        name: _baseline(name)
        for name in ("ZeroShot", "LinearProbe", "OrthProj", "OrthCali", "LEACE", "WiSE", "JTT", "DFR")
    },
    "FairerCLIPSearch": lambda: FairerCLIPSearch(
        small(), search_space={"fits": [{}], "taus": [0.5], "zero_shots": [0.5]}
    ),
}
FITS = [name for name in ESTIMATORS if name not in ("DFR", "FairerCLIPSearch")]
"""Those that are fitted in some hundredths of a second."""


def fitted(name, X, **replaced):
    model = ESTIMATORS[name]()
    if isinstance(model, EmbeddingMitigator):
        return model.fit(X, sensitive_features=E.s, **{"sensitive_text": E.sensitive_text, **replaced})
    own = {"validation": (E.X, E.y, E.s)} if name in ("DFR", "FairerCLIPSearch") else {}
    arguments = {"text": E.text, "sensitive_text": E.sensitive_text, **own, **replaced}
    return model.fit(X, E.y, sensitive_features=E.s, **arguments)


@functools.cache
def plain_model(name):
    return fitted(name, E.X)


def ranking(found):
    """Scores in the order of the rows: rows of equal scores may be ranked either way by the last digit."""
    return found.scores[np.argsort(found.indices)]


def methods(name):
    """The calls of a model that take rows."""
    if name.startswith("EmbeddingMitigator"):
        return {
            "transform": lambda m, X: m.transform(X),
            "scores": lambda m, X: m.scores(X, E.text),
            "rank": lambda m, X: ranking(m.rank(E.text[0], X)),
        }
    calls = {"transform": lambda m, X: m.transform(X), "scores": lambda m, X: m.scores(X)}
    if name.startswith("FairerCLIP"):
        calls["predict_proba"] = lambda m, X: m.predict_proba(X)
        calls["cosines"] = lambda m, X: m.cosines(X)
        calls["rank"] = lambda m, X: ranking(m.rank(0, X))
    return calls


CALLS = [(name, call) for name in ESTIMATORS for call in methods(name)]


def outcome(call):
    """What a call gives, or its error; nothing but warnings of the package may be warned of."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", FairerClipWarning)
        try:
            answer = call()
        except FairerClipError as error:
            answer = error
    if isinstance(answer, Exception):
        assert len(str(answer).splitlines()) == 1, str(answer)
        return answer
    answer = answer.detach().cpu().numpy() if hasattr(answer, "detach") else np.asarray(answer)
    assert np.isfinite(answer).all()
    return answer


def bytes_of(X):
    """All that a call could have changed in place."""
    if isinstance(X, np.ndarray) and X.dtype.kind != "O":
        base = X
        while isinstance(base.base, np.ndarray):
            base = base.base
        return base.tobytes()
    if hasattr(X, "detach"):
        return X.detach().numpy().tobytes()
    return repr(X)


def same(answer, other, *, single):
    if isinstance(answer, Exception) or isinstance(other, Exception):
        assert type(answer) is type(other), f"{answer!r} instead of {other!r}"
        return
    assert answer.shape == other.shape
    if answer.dtype.kind not in "fiu":
        assert_array_equal(answer, other)
        return
    limit = 2e-3 if answer.dtype.itemsize == 2 else 2e-5 if single else 1e-9
    size = max(1.0, float(np.abs(other).max()))
    assert_allclose(answer.astype(np.float64) / size, other.astype(np.float64) / size, rtol=0, atol=limit)


def unit_by_hand(X):
    """Unit rows of a plain matrix, by the obvious formula in more precision than float64."""
    wide = X.astype(np.longdouble)
    wide = wide / np.abs(wide).max(axis=1, keepdims=True)
    return (wide / np.sqrt((wide * wide).sum(axis=1, keepdims=True))).astype(X.dtype)


@pytest.fixture(autouse=True)
def _no_files_left():
    yield
    while MAPPED:
        MAPPED.pop().unlink()


@examples(100)
@given(call=st.sampled_from(CALLS), odd=real_inputs(WIDTH))
def test_answers_are_those_of_a_plain_array(call: tuple[str, str], odd: Odd):
    model, method = plain_model(call[0]), methods(call[0])[call[1]]
    before = bytes_of(odd.given)
    answer = outcome(lambda: method(model, odd.given))
    assert bytes_of(odd.given) == before, "the input was changed"
    again = outcome(lambda: method(model, odd.given))
    assert_array_equal(answer, again)
    # All of these models scale rows to unit length: so does the reference, in its own way.
    same(
        answer, outcome(lambda: method(model, unit_by_hand(odd.plain))), single=odd.plain.dtype == np.float32
    )


def scores(model):
    """Scores (n, 2) of plain rows, whichever the model."""
    return model.scores(E.X, E.text) if isinstance(model, EmbeddingMitigator) else model.scores(E.X)


@examples(40)
@given(name=st.sampled_from(FITS), odd=real_inputs(WIDTH, like=E.X))
def test_a_fit_is_that_of_a_plain_array(name: str, odd: Odd):
    before = bytes_of(odd.given)
    found = outcome(lambda: scores(fitted(name, odd.given)))
    assert bytes_of(odd.given) == before, "the input was changed"
    other = outcome(lambda: scores(fitted(name, unit_by_hand(odd.plain))))
    same(found, other, single=True)


@examples(150)
@given(
    call=st.sampled_from([*CALLS, *((name, "fit") for name in FITS)]),
    kind=st.sampled_from(sorted(REFUSED)),
    rows=st.integers(1, 5),
)
def test_what_holds_no_rows_of_numbers_is_refused(call: tuple[str, str], kind: str, rows: int):
    name, method = call
    if method == "fit":
        assume(kind != "another width")
        error = outcome(lambda: fitted(name, REFUSED[kind](E.X)))
    else:
        error = outcome(lambda: methods(name)[method](plain_model(name), REFUSED[kind](E.X[:rows])))
    assert isinstance(error, FairerClipError), f"{kind} was answered: {error!r:.100}"
    assert isinstance(error, ValueError)


PROMPTS = {
    "text of a fit": lambda T: fitted("FairerCLIP", E.X, text=T).scores(E.X),
    "sensitive_text of a fit": lambda T: fitted("FairerCLIP", E.X, sensitive_text=T).scores(E.X),
    "text of a baseline": lambda T: fitted("ZeroShot", E.X, text=T).scores(E.X),
    "sensitive_text of a mitigator": lambda T: fitted("EmbeddingMitigator", E.X, sensitive_text=T).transform(
        E.X
    ),
    "spurious_text": lambda T: fitted("OrthProj", E.X, text=E.sensitive_text, spurious_text=T).scores(E.X),
    "queries": lambda T: plain_model("EmbeddingMitigator").scores(E.X, T),
    "transform_text": lambda T: plain_model("FairerCLIP, prompts").transform_text(T),
    "validation rows": lambda T: fitted("LinearProbe", E.X, validation=(T, [0, 1], [0, 1])).scores(E.X),
    "labelled rows": lambda T: EmbeddingMitigator().fit(E.X, labelled=(T, [0, 1])).transform(E.X),
}
"""Calls with two rows that are not X: prompts, queries, a few labelled rows."""


@pytest.mark.slow
@examples(40)
@given(place=st.sampled_from(sorted(PROMPTS)), odd=real_inputs(WIDTH, like=E.text))
def test_prompts_and_labelled_rows_are_those_of_a_plain_array(place: str, odd: Odd):
    before = bytes_of(odd.given)
    found = outcome(lambda: PROMPTS[place](odd.given))
    assert bytes_of(odd.given) == before, "the input was changed"
    same(found, outcome(lambda: PROMPTS[place](unit_by_hand(odd.plain))), single=True)


@examples(40)
@given(place=st.sampled_from(sorted(PROMPTS)), kind=st.sampled_from(sorted(set(REFUSED) - {"nothing"})))
def test_no_prompts_are_taken_from_what_holds_no_numbers(place: str, kind: str):
    error = outcome(lambda: PROMPTS[place](REFUSED[kind](E.text)))
    assert isinstance(error, FairerClipError), f"{kind} was taken: {error!r:.100}"


# Faults that odd arrays have shown -------------------------------------------------------------------------


def test_a_mask_that_hides_nothing_changes_nothing():
    hidden = np.ma.masked_array(E.X, mask=np.zeros(E.X.shape, dtype=bool))
    model = plain_model("FairerCLIP")
    assert_array_equal(model.scores(hidden), model.scores(E.X))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lengths_of_the_largest_rows_are_finite(dtype, tmp_path):
    found = fitted("FairerCLIP", (E.X / np.abs(E.X).max() * np.finfo(dtype).max).astype(dtype))
    assert np.isfinite(found.rows_.lengths).all()
    assert type(found).load(found.save(tmp_path / "m")).rows_.lengths.tolist() == found.rows_.lengths.tolist()


def test_no_baseline_divides_by_rounding_errors_where_all_training_rows_are_equal():
    X = np.repeat(E.X[:1], 60, axis=0)
    eraser = baselines.LEACE().fit(X, E.y, text=E.text, sensitive_features=E.s)
    assert np.abs(eraser.transform(E.X) - E.X).max() < 1e-12
    assert np.abs(baselines.WiSE().fit(X, E.y, text=E.text).scores(E.X)).max() < 10
