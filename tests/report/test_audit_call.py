"""`fairerclip.audit`: arrays and tasks in one call, what it returns and writes, and what it refuses."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

from fairerclip import FairerCLIP, FairerCLIPSearch
from fairerclip.auditing import AuditOptions, audit_task, read_results
from fairerclip.baselines import LinearProbe
from fairerclip.data import Sensitive, Split, Task
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


def test_a_pair_that_is_none_of_the_groups_is_refused(arrays):
    for pair, error in (
        (("lake", "sea"), LabelError),
        (("field",), ParameterError),
        ("field", ParameterError),
    ):
        with pytest.raises(error, match="field"):
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
        with pytest.raises(OutputExistsError):
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


def test_attributes_and_classes_of_a_task_are_chosen_by_name(made, passed):
    experiment, _ = passed(made, sensitive_features="place", classes=CLASSES[::-1])
    assert (experiment.sensitive, experiment.classes) == (("place",), CLASSES[::-1])
    with pytest.raises(ParameterError, match="no sensitive attribute 'sex'"):
        audit(made, sensitive_features=["sex"])
    with pytest.raises(ParameterError, match="got ndarray"):
        audit(made, sensitive_features=np.zeros(120))


def nan_row(X):
    X = X.copy()
    X[7, 1] = np.nan
    return X


@pytest.mark.parametrize(
    ("change", "error", "fact"),
    [
        ({"X": "mine.npz"}, ShapeError, "X must be"),
        ({"X": [[1.0, 2.0], [1.0]]}, ShapeError, "rows of different lengths"),
        ({"X": lambda X: X[:0]}, ShapeError, "at least one row"),
        ({"X": nan_row}, NonFiniteError, "row 7 of 120"),
        ({"X": lambda X: X.astype(float) * 1e300}, NonFiniteError, "120 rows"),
        ({"X": np.zeros_like}, ZeroRowError, "120 rows"),
        ({"y": lambda y: y[1:]}, ShapeError, "y has 119"),
        ({"y": ["land"] * 119 + ["sea"]}, LabelError, "sea"),
        ({"y": [1] * 119 + ["1"], "text": None}, LabelError, "'1'"),
        ({"text": None}, PromptError, "nothing to audit"),
        ({"text": lambda text: np.stack([*text.values()])}, PromptError, "text={'land'"),
        ({"text": lambda text: {n: p[1:] for n, p in text.items()}}, ShapeError, "as wide as X"),
        ({"sensitive_features": None}, LabelError, "groups of known values"),
        ({"sensitive_features": lambda s: s["place"][1:]}, ShapeError, "120 rows"),
        (
            {"sensitive_features": {"place": np.linspace(0, 1, 120)}, "sensitive_text": None},
            LabelError,
            "bin it first",
        ),
        ({"sensitive_text": {"place": {"field": np.ones(8), "sea": np.arange(8)}}}, PromptError, "lake"),
        ({"k": 121}, ParameterError, "k must be"),
        ({"split": "val"}, ParameterError, "split='val'"),
        ({"model": LogisticRegression()}, ParameterError, "got LogisticRegression"),
        ({"model": narrow()}, ShapeError, "expecting 2"),
    ],
)
def test_bad_input_is_refused_in_one_line(arrays, change, error, fact):
    changed = {name: new(arrays[name]) if callable(new) else new for name, new in change.items()}
    with pytest.raises(error, match=re.escape(fact)) as refusal:
        audit(**arrays | changed)
    assert isinstance(refusal.value, FairerClipError)
    assert "\n" not in str(refusal.value)


def test_swapped_prompts_are_refused(made):
    X, y, s = made.test.X, made.test.y, made.test.s["place"]
    text, sensitive_text = made.sensitive["place"].text, made.text_target
    options = {"text": text, "sensitive_text": sensitive_text, "missing_label": -1}
    with pytest.warns(UninformativePromptsWarning), pytest.raises(PromptError, match="swapped"):
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
