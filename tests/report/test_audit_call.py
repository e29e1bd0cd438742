"""`fairerclip.audit`: arrays and tasks in one call, what it returns and writes, and what it refuses."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

from fairerclip import FairerCLIP, FairerCLIPSearch, SoftValues
from fairerclip.auditing import AuditOptions, audit_task, read_results
from fairerclip.baselines import LinearProbe
from fairerclip.data import Sensitive, Split, Task, open_store
from fairerclip.errors import (
    FairerClipError,
    LabelError,
    NonFiniteError,
    OutputExistsError,
    ParameterError,
    PromptError,
    ShapeError,
    UninformativePromptsWarning,
    ZeroRowError,
)
from fairerclip.experiment import Experiment
from fairerclip.metrics import group_report
from fairerclip.report import audit_call
from fairerclip.report.audit_call import audit
from light import lighter_audits

CLASSES, PLACES = ("land", "water"), ("field", "lake")
light_audits = pytest.fixture(scope="module", autouse=True)(lighter_audits)


QUICK = {"permutations": 19}


def narrow():
    """A baseline of rows of another width."""
    return LinearProbe().fit(np.eye(2), ["land", "water"])


@pytest.fixture(scope="module")
def made():
    """A task with a test split only, in which a few labels are unknown."""
    rng = np.random.default_rng(5)
    y, s = np.arange(120) % 2, np.arange(120) // 2 % 2
    text, sensitive_text = rng.normal(size=(2, 2, 8)).astype(np.float32)
    X = (text[y] + sensitive_text[s] + rng.normal(size=(120, 8))).astype(np.float32)
    y[:3], s[2:5] = -1, -1
    attribute = Sensitive("place", PLACES, PLACES, sensitive_text)
    split = Split(X, y, {"place": s})
    return Task("arrays", {"test": split}, text, CLASSES, CLASSES, {"place": attribute})


@pytest.fixture(scope="module")
def arrays(made):
    def named(codes, names):
        return [None if code < 0 else names[code] for code in codes]

    return {
        "X": made.test.X,
        "y": named(made.test.y, CLASSES),
        "text": dict(zip(CLASSES, made.text_target, strict=True)),
        "sensitive_features": {"place": named(made.test.s["place"], PLACES)},
        "sensitive_text": dict(zip(PLACES, made.sensitive["place"].text, strict=True)),
    }


@pytest.fixture(scope="module")
def found(arrays):
    return audit(**arrays, **QUICK)


@pytest.fixture(scope="module")
def model(made):
    known = (made.test.y >= 0) & (made.test.s["place"] >= 0)
    fitted = FairerCLIP(n_features=40, random_state=0)
    return fitted.fit(
        made.test.X[known],
        made.test.y[known],
        text=made.text_target,
        sensitive_features=made.test.s["place"][known],
    )


def test_arrays_give_the_results_of_the_task_of_the_same_rows(made, found):
    expected, _ = audit_task(Experiment.of(made), AuditOptions(**QUICK))
    assert found.results.task.file is None
    left_out = {"made": True, "task": {"file"}}
    assert found.results.model_dump(exclude=left_out) == expected.model_dump(exclude=left_out)


def test_a_pair_is_given_by_the_values_of_the_rows_and_a_bad_one_is_refused(arrays, made):
    codes = {
        **arrays,
        "sensitive_features": made.test.s["place"],
        "sensitive_text": None,
        "missing_label": -1,
    }
    with pytest.raises(LabelError, match=r"pair names '2', which is none of the groups \['0', '1'\]"):
        audit(**codes | {"y": made.test.y, "text": made.text_target}, pair=(0, 2), **QUICK)
    for pair in ("field", ("field",), ("field", "field")):
        with pytest.raises(ParameterError, match=r"two different values of the groups \['field', 'lake'\]"):
            audit(**arrays, pair=pair, **QUICK)


def test_printed_foreign_text_is_clean(found):
    task = found.results.task.model_copy(update={"name": "a\x1b[2Jb"})
    groups = found.results.groups
    worst = groups.before.worst.model_copy(update={"name": "worst\x1b[2J"})
    groups = groups.model_copy(update={"before": groups.before.model_copy(update={"worst": worst})})
    printed = repr(replace(found, results=found.results.model_copy(update={"task": task, "groups": groups})))
    assert "worst" in printed
    assert "\x1b" not in printed


def test_the_page_and_the_json_are_written_once(found, tmp_path):
    page = found.to_html(tmp_path / "page.html", title="Birds by place")
    assert page == tmp_path / "page.html"
    assert "<title>Birds by place</title>" in page.read_text(encoding="utf-8")
    file = found.to_json(str(tmp_path / "results.json"))
    assert read_results(file) == found.results
    assert json.loads(file.read_text(encoding="utf-8"))["task"]["name"] == "arrays"
    for write in (found.to_html, found.to_json):
        taken = page if write == found.to_html else file
        with pytest.raises(OutputExistsError, match="overwrite=True"):
            write(taken)
        assert write(taken, overwrite=True) == taken
    with pytest.raises(ParameterError, match=r"ends in \.json"):
        found.to_html(tmp_path / "page.json")
    assert sorted(f.name for f in tmp_path.iterdir()) == ["page.html", "results.json"]


def test_figures_after_are_those_of_the_predictions_of_the_model(made, model):
    y, s, X = made.test.y, made.test.s["place"], made.test.X
    known = (y >= 0) & (s >= 0)
    expected = group_report(y[known], model.predict(X[known]), s[known], positive=1)
    results = audit(
        X, y, text=made.text_target, sensitive_features=s, missing_label=-1, model=model, k=10, **QUICK
    ).results
    after = results.groups.after
    assert (after.average, after.eod) == (expected.average, expected.eod)
    assert [group.correct for group in after.groups] == [group.correct for group in expected.groups]
    assert results.task.classes == ("0", "1")
    assert (results.model.source, results.retrieval.k) == ("given", 10)


@pytest.fixture
def passed(monkeypatch):
    """Call `audit` up to the measuring; return what would be measured: the experiment and the model."""

    class Measuring(Exception):
        pass

    def stop(experiment, options, *, model, fitted, progress):
        assert fitted
        raise Measuring(experiment, model)

    def call(*arguments, **options):
        with pytest.raises(Measuring) as stopped:
            audit(*arguments, **options)
        return stopped.value.args

    monkeypatch.setattr(audit_call, "audit_task", stop)
    return call


def test_a_search_is_audited_as_the_model_that_it_chose(made, model, passed):
    search = FairerCLIPSearch(FairerCLIP())
    with pytest.raises(NotFittedError):
        audit(made, model=search)
    search.best_estimator_ = model
    _, after = passed(made, model=search)
    assert type(after) is FairerCLIP
    assert after.get_params() == model.get_params()
    np.testing.assert_array_equal(after.scores(made.test.X), model.scores(made.test.X))


def test_a_model_that_was_fitted_on_named_columns_is_audited_on_them_alone(made, arrays, passed):
    pandas = pytest.importorskip("pandas")
    names = [f"e{i}" for i in range(made.width)]
    frame = pandas.DataFrame(made.test.X, columns=names)
    fitted = FairerCLIP(n_features=20, random_state=0)
    fitted.fit(frame, arrays["y"], text=arrays["text"], sensitive_text=arrays["sensitive_text"])
    experiment, after = passed(**{**arrays, "X": frame}, model=fitted)
    np.testing.assert_array_equal(after.predict(experiment.task.test.X), fitted.predict(frame))
    without = {**arrays, "text": None, "sensitive_text": None}
    with pytest.raises(ShapeError, match="feature names"):
        audit(**{**without, "X": frame[names[::-1]]}, model=fitted)


def test_several_attributes_are_crossed_and_several_prompts_averaged(made, arrays, passed):
    pandas = pytest.importorskip("pandas")
    place = arrays["sensitive_features"]["place"]
    columns = pandas.DataFrame({"place": place, "time": np.arange(120) % 2})
    prompts = {name: np.stack([p, 2 * p]) for name, p in arrays["text"].items()}
    changed = {"text": prompts, "sensitive_features": columns, "sensitive_text": None}
    experiment, _ = passed(**{**arrays, **changed})
    assert experiment.sensitive == ("place", "time")
    groups = experiment.groups(experiment.task.test)
    assert groups.tolist() == ["" if p is None else f"{p}, {i % 2}" for i, p in enumerate(place)]
    cosines = Experiment.of(made).cosines(made.test.X)
    np.testing.assert_allclose(experiment.cosines(made.test.X), cosines, atol=1e-6)


def test_embeddings_may_be_a_store_or_of_any_precision(arrays, passed, tmp_path):
    np.save(tmp_path / "X.npy", arrays["X"])
    for X in (open_store(tmp_path / "X.npy"), arrays["X"].astype(np.float64), arrays["X"].tolist()):
        experiment, _ = passed(**{**arrays, "X": X})
        assert experiment.task.test.X.dtype == np.float32
        np.testing.assert_array_equal(experiment.task.test.X, arrays["X"])


def test_attributes_and_classes_of_a_task_are_chosen_by_name(made, passed):
    experiment, _ = passed(made, sensitive_features="place", classes=CLASSES[::-1])
    assert (experiment.sensitive, experiment.classes) == (("place",), CLASSES[::-1])
    with pytest.raises(ParameterError, match="no sensitive attribute 'sex'"):
        audit(made, sensitive_features=["sex"])
    with pytest.raises(ParameterError, match="are names of its attributes, place; got ndarray"):
        audit(made, sensitive_features=np.zeros(120))


def nan_row(X):
    X = X.copy()
    X[7, 1] = np.nan
    return X


def changed(arrays, change):
    """Replace arguments by values, or by functions of them."""
    return {**arrays, **{name: new(arrays[name]) if callable(new) else new for name, new in change.items()}}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"X": "mine.npz"}, ShapeError, "X must be a Task, or numbers of shape (n, p)"),
        ({"X": [[1.0, 2.0], [1.0]]}, ShapeError, "rows of different lengths"),
        ({"X": lambda X: X[:, 0]}, ShapeError, "and shape (120,)"),
        ({"X": lambda X: X[:, :1]}, ShapeError, "rows of one column have no direction"),
        ({"X": lambda X: X[:0]}, ShapeError, "at least one row"),
        ({"X": nan_row}, NonFiniteError, "NaN or infinity in row 7 of 120"),
        ({"X": lambda X: X.astype(float) * 1e300}, NonFiniteError, "NaN or infinity in 120 rows"),
        ({"X": np.zeros_like}, ZeroRowError, "X is zero in 120 rows"),
        ({"y": lambda y: y[1:]}, ShapeError, "X has 120 rows but y has 119"),
        ({"y": ["land"] * 119 + ["sea"]}, LabelError, "labels ['sea'] are not among the classes"),
        ({"y": ["land"] * 119 + [""], "text": None}, LabelError, "the classes is an empty text"),
        ({"y": [1] * 119 + ["1"], "text": None}, LabelError, "several of the classes are '1' as text"),
        ({"y": None, "text": None}, LabelError, "y and text are both None"),
        ({"text": None}, PromptError, "there is nothing to audit"),
        (
            {"text": lambda text: np.stack([*text.values()])},
            PromptError,
            "write text={'land': …, 'water': …}",
        ),
        ({"text": lambda text: {n: p[1:] for n, p in text.items()}}, ShapeError, "as wide as X"),
        (
            {"text": lambda text: np.stack([*text.values()])[::-1], "classes": CLASSES},
            PromptError,
            "the prompts of the target contradict its labels",
        ),
        ({"sensitive_features": None}, LabelError, "an audit compares groups of known values"),
        ({"sensitive_features": [None] * 120, "sensitive_text": None}, LabelError, "no groups to compare"),
        ({"sensitive_features": lambda s: s["place"][1:]}, ShapeError, "X has 120 rows but sensitive"),
        (
            {"sensitive_features": {"place": np.linspace(0, 1, 120)}, "sensitive_text": None},
            LabelError,
            "is a quantity: bin it first",
        ),
        (
            {"sensitive_features": SoftValues(np.full((120, 2), 0.5), PLACES), "sensitive_text": None},
            LabelError,
            "is probabilities: give known values",
        ),
        (
            {"sensitive_text": {"place": {"field": np.ones(8), "sea": np.arange(8)}}},
            PromptError,
            "['lake'] without",
        ),
        ({"k": 121}, ParameterError, "k must be between 1 and the number of rows, 120; got 121"),
        ({"confidence": 1.5}, ParameterError, "confidence"),
        ({"permutations": 3}, ParameterError, "permutations"),
        ({"seed": -1}, ParameterError, "seed"),
        ({"split": "val"}, ParameterError, "split='val' goes with a Task"),
        (
            {"model": LogisticRegression()},
            ParameterError,
            "or baseline of this package; got LogisticRegression",
        ),
        ({"model": narrow()}, ShapeError, "X has 8 features, but LinearProbe is expecting 2"),
    ],
)
def test_bad_input_is_refused_in_one_line(arrays, change, error, message):
    with pytest.raises(error, match=re.escape(message)) as refusal:
        audit(**changed(arrays, change))
    assert isinstance(refusal.value, FairerClipError)
    assert "\n" not in str(refusal.value)


def test_swapped_prompts_are_refused(made):
    X, y, s = made.test.X, made.test.y, made.test.s["place"]
    text, sensitive_text = made.sensitive["place"].text, made.text_target
    options = {"text": text, "sensitive_text": sensitive_text, "missing_label": -1}
    with (
        pytest.warns(UninformativePromptsWarning, match="the target"),
        pytest.raises(PromptError, match="text and sensitive_text seem to be swapped"),
    ):
        audit(X, y, sensitive_features=s, **options)


def test_a_model_of_other_classes_or_other_columns_is_refused(made, arrays, model):
    with pytest.raises(LabelError, match="does not know land, water"):
        audit(**arrays, model=model)  # fitted on 0 and 1, which say nothing about these arrays
    wide = {**arrays, "X": np.hstack([arrays["X"]] * 2), "text": None, "sensitive_text": None}
    with pytest.raises(ShapeError, match="8 features"):
        audit(**wide, model=model)
    with pytest.raises(NotFittedError):
        audit(made, model=FairerCLIP())


def test_a_baseline_is_audited_as_after_and_named(made, arrays):
    X, codes = made.test.X, np.where(made.test.y < 0, 0, made.test.y)
    probe = LinearProbe().fit(X, codes).at(offsets=[0.2, -0.2])
    named = LinearProbe().fit(X, np.array(CLASSES)[codes]).at(offsets=[0.2, -0.2])
    for found in (audit(**arrays, **QUICK, model=named), audit(made, **QUICK, model=probe)):
        results = found.results
        assert results.model.method == "linear probe with class offsets"
        assert results.model.parameters["offsets_"] == "[0.2, -0.2]"
        assert (results.model.tau, results.model.labels, results.plane) == (None, "target", None)
        known = (made.test.y >= 0) & (made.test.s["place"] >= 0)
        right = (probe.predict(X) == made.test.y)[known].mean()
        assert results.groups.after.average == pytest.approx(right)
        assert {row.stage for row in results.probes} == {"before"}
        (note,) = [finding.text for finding in found.findings if "trade-off" in finding.text]
        assert "the model is linear probe. It changes no image embeddings" in note
    assert probe.classes_.tolist() == [0, 1]
