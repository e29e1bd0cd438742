"""What holds for every baseline that needs numpy and scikit-learn alone."""

import inspect
import re
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import fairerclip.baselines as baselines
from block_sizes import in_blocks
from fairerclip import FairerCLIP
from fairerclip.baselines import (
    AFR,
    DFR,
    JTT,
    LEACE,
    PPA,
    PRISM,
    SFID,
    SPD,
    TIE,
    BendVLM,
    CLIPClip,
    LinearProbe,
    NeutralRepresentation,
    OrthCali,
    OrthProj,
    PerceptionCLIP,
    RoboShot,
    Rotation,
    WiSE,
    ZeroShot,
)
from fairerclip.baselines.training_data import Needs
from fairerclip.data import simulate
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.data.stores import EmbeddingStore
from fairerclip.errors import (
    ConstantSensitiveWarning,
    FreeQueryError,
    NonFiniteError,
    ParameterError,
    PromptOrderWarning,
    RowTypeError,
    ShapeError,
    VanishedLabelWarning,
)
from fairerclip.experiment import Experiment
from light import smaller_forests

small_forests = pytest.fixture(scope="module", autouse=True)(smaller_forests)
MODELS = [
    ZeroShot(),
    LinearProbe(),
    LinearProbe(class_weight="group"),
    DFR(random_state=0),
    DFR("train", random_state=0),
    OrthProj(),
    OrthCali(),
    LEACE(),
    LEACE("probe", class_weight="group"),
    PRISM("mini"),
    PRISM(random_state=0),
    RoboShot(),
    Rotation(),
    PerceptionCLIP(),
    TIE(),
    WiSE(),
    JTT(5.0),
    AFR(2.0, random_state=0),
    PPA(random_state=0),
    CLIPClip(),
    SFID(max_rows=60, random_state=0),
    SPD(2, max_rows=60, random_state=0),
    BendVLM(random_state=0),
    NeutralRepresentation(),
]
every = pytest.mark.parametrize("model", MODELS, ids=str)


def everything(e, **changes):
    given = {
        "y": e.y,
        "text": e.text,
        "sensitive_text": e.sensitive_text,
        "validation": (e.X, e.y, e.s),
    }
    return {**given, **changes}


def test_zero_shot_is_that_of_an_experiment():
    task = simulate("waterbirds", scale=0.2, seed=3)
    experiment = Experiment.of(task)
    model = ZeroShot().fit(task.train.X, text=experiment.text, classes=experiment.classes)
    assert_array_equal(model.predict(task.test.X), experiment.zero_shot(task.test))
    assert_allclose(model.scores(task.test.X), experiment.cosines(task.test.X), atol=1e-6)


def test_several_prompts_per_class_are_averaged_at_length_one(embeddings):
    e, rng = embeddings(seed=1, n_classes=3), np.random.default_rng(1)
    prompts = [rng.uniform(1, 9, size=(4, 1)) * (t + 0.3 * rng.normal(size=(4, 12))) for t in e.text]
    model = ZeroShot().fit(e.X, text=prompts)
    for k, group in enumerate(prompts):
        mean = np.mean([g / np.linalg.norm(g) for g in group], axis=0)
        assert_allclose(model.text_[k], mean / np.linalg.norm(mean), atol=1e-12)


def reversed_prompts(prompts):
    return {k: prompts[-1 - k] for k in range(len(prompts))}


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (PromptOrderWarning, lambda e: {"text": reversed_prompts(e.text)}),
        (VanishedLabelWarning, lambda e: {"y": np.where(e.y == 2, 0, e.y)}),
        (ConstantSensitiveWarning, lambda e: {"sensitive_features": np.zeros(240), "sensitive_text": None}),
        (
            PromptOrderWarning,
            lambda e: {"sensitive_features": e.s, "sensitive_text": reversed_prompts(e.sensitive_text)},
        ),
    ],
)
def test_warnings_point_at_the_line_that_called_fit(embeddings, kind, changes):
    e = embeddings(n_classes=3, correlation=0.3)
    # A probe cannot do without rows of a class.
    model = OrthProj() if kind is VanishedLabelWarning else LinearProbe()
    with pytest.warns(kind) as caught:
        model.fit(e.X, **everything(e, **changes(e)))
    assert {w.filename for w in caught if w.category is kind} == {__file__}


@every
@pytest.mark.parametrize(("n_classes", "n_sensitive"), [(2, 2), (4, 3)])
@pytest.mark.parametrize(("n", "p"), [(400, 12), (60, 100)])
def test_it_classifies_with_several_classes_and_values(embeddings, model, n_classes, n_sensitive, n, p):
    e = embeddings(seed=2, n=n, p=p, n_classes=n_classes, n_sensitive=n_sensitive, correlation=0.4)
    names = np.array(["d", "a", "c", "b"])
    classes = names[:n_classes].tolist()
    given = everything(e, y=names[e.y], classes=classes, validation=(e.X, names[e.y], e.s))
    fitted = clone(model).fit(e.X, **given)
    assert fitted.classes_.tolist() == classes
    scores = fitted.scores(e.X)
    assert scores.shape == (n, n_classes)
    assert_array_equal(fitted.predict(e.X), names[scores.argmax(axis=1)])
    assert np.mean(fitted.predict(e.X) == names[e.y]) > 1.4 / n_classes
    margin = fitted.decision_function(e.X)
    assert_array_equal(margin, scores[:, 1] - scores[:, 0] if n_classes == 2 else scores)
    assert fitted.transform(e.X).shape == (n, p)


@every
def test_it_has_the_signature_of_the_estimator(model):
    ours, theirs = (inspect.signature(cls.fit).parameters for cls in (type(model), FairerCLIP))
    of_passes = {"progress", "checkpoint"}  # baselines have their rows in memory
    assert set(theirs) - of_passes <= set(ours)


@every
def test_it_says_what_it_needs_and_whose_it_is(model):
    assert isinstance(type(model).needs, Needs)
    found = re.search(r"(arXiv|openreview):\S+", model.needs.paper)
    assert found is not None
    assert found[0] in type(model).__doc__
    assert set(model.shapes) == set(model.fitted)


@pytest.mark.parametrize("name", baselines.BASELINES)
def test_its_docstring_names_needs_differences_licence_and_source(name):
    cls = getattr(baselines, name)
    paragraphs = [" ".join(part.split()) for part in inspect.getdoc(cls).split("\n\n")]
    (needs,) = (part for part in paragraphs if part.startswith("Needs "))
    for word in ("prompts", "labels", "sensitive values", "gradient"):
        assert word in needs
    assert sum(part.startswith("Differences from the paper") for part in paragraphs) == 1
    (licence,) = (part for part in paragraphs if part.startswith("Licence of the released code: "))
    assert re.match(r"[^:]*: (MIT|BSD 2-Clause|CC BY-NC|none|not known)[.,; ]", licence)
    assert re.search(r"[Tt]his is a new implementation", licence)
    (source,) = (part for part in paragraphs if part.startswith("References ---"))
    paper = r"(?:arXiv|openreview):[\w.]*\w"
    assert re.search(paper, source)
    assert all(name in source for name in re.findall(paper, cls.needs.paper))


@every
def test_it_can_do_with_what_it_says_it_needs_and_no_less(embeddings, model):
    e = embeddings(seed=3)
    needs = model.requirements
    least = {
        "y": e.y if needs.labels != "none" else None,
        "text": e.text if needs.text else None,
        "sensitive_text": e.sensitive_text if needs.sensitive else None,
        "validation": (e.X, e.y, e.s) if needs.validation else None,
    }
    clone(model).fit(e.X, **least)
    for name in [name for name, value in least.items() if value is not None]:
        with pytest.raises(ValueError, match="give "):
            clone(model).fit(e.X, **{**least, name: None})


@every
def test_parameters_are_kept_and_cloned(model):
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    assert type(model)(**model.get_params()).get_params() == model.get_params()


@every
def test_the_same_data_give_the_same_model_and_are_left_alone(embeddings, model):
    e = embeddings(seed=4)
    before = e.X.copy()
    a, b = (clone(model).fit(e.X, **everything(e)) for _ in range(2))
    assert_array_equal(a.scores(e.X), b.scores(e.X))
    assert_array_equal(e.X, before)


@every
def test_repeated_rows_do_no_harm(embeddings, model):
    e = embeddings(seed=5)
    rows = np.repeat(np.arange(len(e.X)), 2)
    twice = clone(model).fit(
        e.X[rows], **everything(e, y=e.y[rows], validation=(e.X[rows], e.y[rows], e.s[rows]))
    )
    assert np.mean(twice.predict(e.X) == e.y) > 0.7


@every
def test_bad_rows_are_refused_by_number(embeddings, model):
    e = embeddings(seed=6)
    with pytest.raises(NotFittedError):
        clone(model).predict(e.X)
    fitted = clone(model).fit(e.X, **everything(e))
    with pytest.raises(ValueError, match="has 5 features"):
        fitted.predict(e.X[:, :5])
    bad = e.X.copy()
    bad[7, 3] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        fitted.predict(bad)
    with pytest.raises(ValueError, match="NaN"):
        clone(model).fit(bad, **everything(e))
    with pytest.raises(NonFiniteError, match="validation X contains NaN or infinity in row 7"):
        clone(model).fit(e.X, **everything(e, validation=(bad, e.y, e.s)))
    with pytest.raises(ShapeError, match=r"validation rows must have shape \(m, 12\)"):
        clone(model).fit(e.X, **everything(e, validation=(e.X[:, :5], e.y, e.s)))
    with pytest.raises(ParameterError, match=r"validation must be a triple \(X, y, s\)"):
        clone(model).fit(e.X, **everything(e, validation=e.X))


def test_a_first_fit_that_fails_leaves_no_model(embeddings):
    e = embeddings(seed=7)
    model = LinearProbe(C=-1.0)
    with pytest.raises(ParameterError):
        model.fit(e.X, e.y)
    with pytest.raises(NotFittedError):
        model.predict(e.X)


def test_names_are_imported_when_used_and_need_no_torch():
    assert set(baselines.BASELINES) <= set(dir(baselines))
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = baselines.Nonsense
    code = (
        "import sys\nimport fairerclip.baselines\nassert 'sklearn' not in sys.modules\n"
        "from fairerclip.baselines import DFR, LEACE, LinearProbe, OrthCali, OrthProj, WiSE, ZeroShot, load_baseline\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "model",
    [
        LinearProbe("sgd", recipe={"epochs": 3, "lr": 0.1}, random_state=1),
        DFR("subsample", recipe={"epochs": 3, "lr": 0.1}, random_state=1),
        DFR("upsample", recipe={"epochs": 3, "lr": 0.1, "groups": "kmeans"}, random_state=1),
    ],
    ids=str,
)
def test_recipes_by_gradient_are_reached_by_name_and_saved(embeddings, tmp_path, model):
    pytest.importorskip("torch")
    e = embeddings(seed=8, correlation=0.4)
    assert not model.requirements.validation
    assert not model.requirements.sensitive
    fitted = clone(model).fit(e.X, e.y, text=e.text)
    assert np.mean(fitted.predict(e.X) == e.y) > 0.7
    back = baselines.load_baseline(fitted.save(tmp_path / "model"))
    assert_array_equal(back.scores(e.X), fitted.scores(e.X))
    assert back.recipe == model.recipe


@every
def test_every_method_has_a_title_and_takes_offsets(embeddings, model):
    e = embeddings(n_classes=3)
    fitted = clone(model).fit(e.X, **everything(e))
    assert len(fitted.title) > 3
    moved = fitted.at(offsets=[0.0, 1e4, 0.0])
    assert_allclose(moved.scores(e.X), fitted.scores(e.X) + np.array([0, 1e4, 0]))
    assert set(moved.predict(e.X)) == {1}
    assert not fitted.offsets_.any()
    assert not moved.fit(e.X, **everything(e)).offsets_.any()
    with pytest.raises(ParameterError, match="offsets must be 3 numbers"):
        fitted.at(offsets=[1, 2])


@every
def test_answers_do_not_depend_on_blocks_and_threads_or_on_where_the_rows_are(embeddings, model, monkeypatch):
    e = embeddings()
    fitted = clone(model).fit(e.X, **everything(e, sensitive_features=e.s))
    X = e.X.astype(np.float32)
    scores, mapped = fitted.scores(X), fitted.transform(X)
    in_blocks(monkeypatch, 7, threads=2)
    for rows in (X, EmbeddingStore.from_array(X)):
        assert_allclose(fitted.scores(rows), scores, atol=1e-12)
        assert_allclose(fitted.transform(rows), mapped, atol=1e-12)
        assert_array_equal(fitted.predict(rows), fitted.classes_[scores.argmax(axis=1)])


@every
def test_classes_are_queries_like_any_other_where_there_are_free_queries(embeddings, model):
    e = embeddings(n_classes=3)
    fitted = clone(model).fit(e.X, **everything(e))
    other = np.random.default_rng(0).normal(size=(4, 12))
    if not fitted.free_queries:
        with pytest.raises(FreeQueryError, match="knows the classes of its fit alone"):
            fitted.query_scores(e.X, other)
        return
    if "probe" not in fitted.get_params().get("head", ""):
        assert_allclose(fitted.query_scores(e.X, e.text), fitted.scores(e.X), atol=1e-10)
    mapped = fitted.transform_text(other)
    assert_allclose(np.linalg.norm(mapped, axis=1), 1)
    unit = other / np.linalg.norm(other, axis=1, keepdims=True)
    assert fitted.changes_prompts == (np.abs(mapped - unit).max() > 1e-9)
    assert fitted.changes_embeddings == (np.abs(fitted.transform(e.X) - unit_rows(e.X)).max() > 1e-9)
    assert fitted.query_scores(e.X, other).shape == (len(e.X), 4)
    with pytest.raises(ShapeError, match=r"T must have shape \(m, 12\)"):
        fitted.query_scores(e.X, other[:, :5])
    with pytest.raises(ShapeError, match="with one row at least"):
        fitted.transform_text(other[:0])
    with pytest.raises(RowTypeError, match="T must hold real numbers"):
        fitted.transform_text(["a photo of a cat"])


@every
def test_methods_that_learn_from_prompts_alone_are_the_same_on_other_rows(embeddings, model):
    e = embeddings(seed=1, n_classes=3)
    other = np.random.default_rng(0).permutation(len(e.X))[:60]
    given = {"text": e.text, "sensitive_text": e.sensitive_text, "validation": (e.X, e.y, e.s)}
    first = clone(model).fit(e.X, e.y, **given)
    second = clone(model).fit(e.X[other], e.y[other], **given)
    same = np.array_equal(first.scores(e.X), second.scores(e.X))
    assert same == model.prompts_alone
