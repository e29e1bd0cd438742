"""What holds for every baseline, or for all of one kind."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from block_sizes import in_blocks
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
    Adapter,
    BendVLM,
    CLIPClip,
    ContrastiveAdapter,
    DeAR,
    LinearProbe,
    NeutralRepresentation,
    OrthCali,
    OrthProj,
    PerceptionCLIP,
    PromptDebiasing,
    RoboShot,
    Rotation,
    WiSE,
    ZeroShot,
    load_baseline,
)
from fairerclip.data import simulate
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.data.stores import EmbeddingStore
from fairerclip.errors import (
    ConstantSensitiveWarning,
    FreeQueryError,
    NonFiniteError,
    ParameterError,
    RowTypeError,
    ShapeError,
)
from fairerclip.experiment import Experiment
from fairerclip.metrics import correlation_inside_groups, group_report, max_skew
from light import smaller_forests

small_forests = pytest.fixture(scope="module", autouse=True)(smaller_forests)
MODELS = [
    ZeroShot(),
    LinearProbe(class_weight="group"),
    DFR(C=10.0, n_refits=4, random_state=0),
    DFR("train", C=10.0, n_refits=4, random_state=0),
    OrthProj(),
    OrthCali(),
    LEACE(),
    LEACE("probe", class_weight="group"),
    PRISM("mini"),
    PRISM(steps=20, random_state=0),
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
RECIPE = {"epochs": 3, "lr": 0.1}
BY_GRADIENT = [
    LinearProbe("sgd", recipe=RECIPE, random_state=1),
    DFR("subsample", recipe={**RECIPE, "groups": "kmeans"}, random_state=1),
    Adapter(hidden=6, epochs=2, random_state=1),
    ContrastiveAdapter(
        hidden=6, epochs=2, positives=20, neighbours=60, negatives=30, cell_rows=40, random_state=1
    ),
    DeAR(epochs=2, random_state=1),
    PromptDebiasing(epochs=2, random_state=1),
]


def each(models):
    return pytest.mark.parametrize("model", models, ids=str)


def everything(e, **changes):
    given = {"y": e.y, "text": e.text, "sensitive_text": e.sensitive_text, "validation": (e.X, e.y, e.s)}
    return {**given, **changes}


# Every method ---------------------------------------------------------------------------------------


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


@each(MODELS)
@pytest.mark.parametrize(("n", "p", "n_classes", "n_sensitive"), [(300, 12, 2, 2), (60, 100, 4, 3)])
def test_it_classifies_with_several_classes_and_values(embeddings, model, n, p, n_classes, n_sensitive):
    e = embeddings(seed=2, n=n, p=p, n_classes=n_classes, n_sensitive=n_sensitive, correlation=0.4)
    names = np.array(["d", "a", "c", "b"])
    classes = names[:n_classes].tolist()
    given = everything(e, y=names[e.y], classes=classes, validation=(e.X, names[e.y], e.s))
    fitted = clone(model).fit(e.X, **given)
    scores = fitted.scores(e.X)
    assert scores.shape == (n, n_classes)
    assert_array_equal(fitted.predict(e.X), names[scores.argmax(axis=1)])
    assert np.mean(fitted.predict(e.X) == names[e.y]) > 1.4 / n_classes
    margin = fitted.decision_function(e.X)
    assert_array_equal(margin, scores[:, 1] - scores[:, 0] if n_classes == 2 else scores)


@each(MODELS)
def test_it_can_do_with_what_it_says_it_needs_and_no_less(embeddings, model):
    e = embeddings(seed=3, n=120)
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


@each(MODELS)
def test_the_lengths_of_rows_and_prompts_have_no_effect_and_rows_are_left_alone(embeddings, model):
    e = embeddings(seed=4, n=120)
    X, lengths = e.X.copy(), np.random.default_rng(4).uniform(1, 9, size=(120, 1))
    first = clone(model).fit(e.X, **everything(e))
    assert_array_equal(e.X, X)
    given = everything(
        e, text=3 * e.text, sensitive_text=2 * e.sensitive_text, validation=(4 * e.X, e.y, e.s)
    )
    other = clone(model).fit(lengths * e.X, **given)
    assert_allclose(other.scores(lengths * e.X), first.scores(e.X), atol=1e-4)


@each([*MODELS, *(pytest.param(model, marks=pytest.mark.slow) for model in BY_GRADIENT)])
def test_equal_data_give_equal_models_that_answer_bit_for_bit_after_saving(embeddings, tmp_path, model):
    if model in BY_GRADIENT:
        pytest.importorskip("torch")
    e = embeddings(seed=1, n=120, n_classes=3)
    given = {"text": e.text, "sensitive_text": e.sensitive_text, "validation": (e.X, e.y, e.s)}
    fitted, twin = (clone(model).fit(e.X, e.y, **given) for _ in range(2))
    back = load_baseline(fitted.save(tmp_path / "deep" / "model"))
    assert type(back) is type(model)
    for other in (twin, back):
        assert_array_equal(other.scores(e.X), fitted.scores(e.X))
        assert_array_equal(other.transform(e.X), fitted.transform(e.X))
    assert_array_equal(back.predict(e.X), fitted.predict(e.X))
    assert back.get_params() == fitted.get_params()
    assert getattr(back, "diagnostics_", None) == getattr(fitted, "diagnostics_", None)


@each(MODELS)
def test_answers_do_not_depend_on_blocks_and_threads_or_on_where_the_rows_are(embeddings, model, monkeypatch):
    e = embeddings(n=120)
    fitted = clone(model).fit(e.X, **everything(e, sensitive_features=e.s))
    X = e.X.astype(np.float32)
    scores, mapped = fitted.scores(X), fitted.transform(X)
    in_blocks(monkeypatch, 7, threads=2)
    for rows in (X, EmbeddingStore.from_array(X)):
        assert_allclose(fitted.scores(rows), scores, atol=1e-12)
        assert_allclose(fitted.transform(rows), mapped, atol=1e-12)


@each(MODELS)
def test_classes_are_queries_like_any_other_where_there_are_free_queries(embeddings, model):
    e = embeddings(n=120, n_classes=3)
    fitted = clone(model).fit(e.X, **everything(e))
    other = np.random.default_rng(0).normal(size=(4, 12))
    if not fitted.free_queries:
        with pytest.raises(FreeQueryError):
            fitted.query_scores(e.X, other)
        return
    if "probe" not in fitted.get_params().get("head", ""):
        assert_allclose(fitted.query_scores(e.X, e.text), fitted.scores(e.X), atol=1e-10)
    mapped = fitted.transform_text(other)
    assert_allclose(np.linalg.norm(mapped, axis=1), 1)
    assert fitted.changes_prompts == (np.abs(mapped - unit_rows(other)).max() > 1e-9)
    assert fitted.changes_embeddings == (np.abs(fitted.transform(e.X) - unit_rows(e.X)).max() > 1e-9)
    with pytest.raises(ShapeError):
        fitted.query_scores(e.X, other[:, :5])
    with pytest.raises(RowTypeError):
        fitted.transform_text(["a photo of a cat"])


@each(MODELS)
def test_methods_that_learn_from_prompts_alone_are_the_same_on_other_rows(embeddings, model):
    e = embeddings(seed=1, n=120, n_classes=3)
    other = np.random.default_rng(0).permutation(len(e.X))[:60]
    given = {"text": e.text, "sensitive_text": e.sensitive_text, "validation": (e.X, e.y, e.s)}
    first = clone(model).fit(e.X, e.y, **given)
    second = clone(model).fit(e.X[other], e.y[other], **given)
    assert np.array_equal(first.scores(e.X), second.scores(e.X)) == model.prompts_alone


@each([OrthProj(), LinearProbe(), LEACE()])
def test_offsets_are_added_to_the_scores_of_a_copy(embeddings, model):
    e = embeddings(n_classes=3)
    fitted = clone(model).fit(e.X, **everything(e))
    moved = fitted.at(offsets=[0.0, 1e4, 0.0])
    assert_allclose(moved.scores(e.X), fitted.scores(e.X) + np.array([0, 1e4, 0]))
    assert set(moved.predict(e.X)) == {1}
    assert not fitted.offsets_.any()
    assert not moved.fit(e.X, **everything(e)).offsets_.any()
    with pytest.raises(ParameterError, match="offsets"):
        fitted.at(offsets=[1, 2])


def test_bad_rows_are_refused_by_number(embeddings):
    e = embeddings(seed=6)
    bad = e.X.copy()
    bad[7, 3] = np.nan
    for model in (LinearProbe(C=(0.1, 1.0)), DFR()):
        fitted = clone(model).fit(e.X, **everything(e))
        with pytest.raises(ValueError, match="NaN"):
            fitted.predict(bad)
        with pytest.raises(ValueError, match="NaN"):
            clone(model).fit(bad, **everything(e))
        with pytest.raises(NonFiniteError, match="row 7"):
            clone(model).fit(e.X, **everything(e, validation=(bad, e.y, e.s)))
        with pytest.raises(ShapeError, match="validation"):
            clone(model).fit(e.X, **everything(e, validation=(e.X[:, :5], e.y, e.s)))


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (LinearProbe(C=[1.0, -1.0]), "C"),
        (DFR(n_refits=0), "n_refits"),
        (OrthCali(float("nan")), "lam"),
        (RoboShot(boost=float("nan")), "boost"),
        (PerceptionCLIP(temperature=0.0), "temperature"),
        (BendVLM(0), "neighbours"),
        (NeutralRepresentation(prefix="fixed"), "prefix"),
        (Adapter(variant="mlp"), "variant"),
    ],
    ids=str,
)
def test_a_parameter_out_of_range_is_named(embeddings, model, name):
    if isinstance(model, Adapter):
        pytest.importorskip("torch")
    e = embeddings()
    with pytest.raises(ParameterError, match=rf"\b{name}\b"):
        model.fit(e.X, **everything(e))


# Methods of one kind --------------------------------------------------------------------------------


@each(
    [
        LEACE(),
        CLIPClip(),
        SFID(),
        SPD(),
        BendVLM(),
        NeutralRepresentation(),
        DeAR(epochs=2),
        PromptDebiasing(),
    ]
)
def test_where_s_has_one_value_it_is_zero_shot(embeddings, model):
    if isinstance(model, DeAR | PromptDebiasing):
        pytest.importorskip("torch")
    e = embeddings(seed=7, n_classes=3)
    with pytest.warns(ConstantSensitiveWarning):
        model = clone(model).fit(e.X, text=e.text, sensitive_features=np.ones(len(e.X), dtype=int))
    assert_allclose(model.scores(e.X), ZeroShot().fit(e.X, text=e.text).scores(e.X), atol=1e-5)


@each(
    [
        LinearProbe(class_weight="group", tol=1e-8),
        LEACE("probe", tol=1e-8),
        WiSE(tol=1e-8),
        JTT(9.0, tol=1e-8),
        PPA(random_state=0, tol=1e-8),
        CLIPClip(),
        SPD(2, random_state=0),
        NeutralRepresentation(),
        TIE(),
        DeAR(epochs=2, random_state=0),
    ]
)
def test_rows_of_weight_zero_are_as_good_as_gone(embeddings, model):
    if isinstance(model, DeAR):
        pytest.importorskip("torch")
    e = embeddings(seed=8)
    weight = np.where(np.arange(len(e.y)) < 160, 1.0, 0.0)
    given = {"text": e.text, "sensitive_text": e.sensitive_text}
    weighted = clone(model).fit(e.X, e.y, **given, sensitive_features=e.s, sample_weight=weight)
    some = clone(model).fit(e.X[:160], e.y[:160], **given, sensitive_features=e.s[:160])
    assert_allclose(weighted.scores(e.X), some.scores(e.X), atol=1e-3)


@each(
    [
        LinearProbe(class_weight="group"),
        DFR("train", C=0.3, random_state=0),
        LEACE("probe", class_weight="group"),
        WiSE(class_weight="group"),
    ]
)
def test_groups_are_read_from_prompts_where_they_are_not_given(embeddings, model):
    e = embeddings(seed=5)
    read = (e.X @ e.sensitive_text.T).argmax(axis=1)
    assert 0 < np.mean(read != e.s) < 0.5
    a = clone(model).fit(e.X, e.y, text=e.text, sensitive_text=e.sensitive_text)
    b = clone(model).fit(e.X, e.y, text=e.text, sensitive_features=read)
    assert_array_equal(a.scores(e.X), b.scores(e.X))
    assert (a.diagnostics_["sensitive"], b.diagnostics_["sensitive"]) == ("read from prompts", "given")


@each([PRISM("mini"), RoboShot()])
def test_an_image_of_which_nothing_is_left_is_not_classified_by_rounding_errors(embeddings, model):
    e = embeddings(seed=2, p=40)
    unit = unit_rows(e.sensitive_text)
    X = np.vstack([e.X, unit[0] - unit[1]])
    fitted = clone(model).fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    assert_array_equal(fitted.scores(X)[-1], 0)
    assert (np.abs(fitted.scores(X)[:-1]).max(axis=1) > 0).all()


# What they are for ----------------------------------------------------------------------------------


@each(
    [
        OrthProj(),
        OrthCali(),
        PRISM("mini"),
        PRISM(start="identity", lr=0.01, steps=50),
        RoboShot(),
        Rotation(),
        PerceptionCLIP(),
        TIE(),
        LEACE(),
    ]
)
def test_a_background_in_images_and_class_prompts_loses_its_effect(model):
    rng = np.random.default_rng(8)
    y, s = np.arange(400) % 2, np.arange(400) // 2 % 2
    axes = np.eye(10)
    X = axes[y] + 1.5 * axes[2 + s] + 0.1 * rng.normal(size=(400, 10))
    given = {"text": axes[:2] + 0.8 * axes[2:4], "sensitive_text": axes[2:4]}
    if isinstance(model, PerceptionCLIP):  # it needs sentences of class and background
        given["counterfactual_text"] = {k: axes[k] + axes[2:4] for k in (0, 1)}
    plain = group_report(y, ZeroShot().fit(X, **given).predict(X), s)
    fair = group_report(y, clone(model).fit(X, **given).predict(X), s)
    assert plain.worst.accuracy < 0.3
    assert fair.worst.accuracy > 0.9


@each(
    [
        LEACE(),
        CLIPClip(),
        SFID(3 / 32, random_state=0),
        SPD(2, random_state=0),
        BendVLM(random_state=0),
        NeutralRepresentation(),
    ]
)
def test_skew_of_rankings_falls_and_order_inside_groups_is_kept(model):
    rng = np.random.default_rng(7)
    s, axis = np.arange(600) % 2, (np.arange(32) < 3) / np.sqrt(3)  # S lives in three dimensions
    X = rng.normal(size=(600, 32)) + 2.5 * np.outer(2 * s - 1, axis)
    queries = rng.normal(size=(10, 32)) + 1.5 * axis
    given = {"text": queries[:6], "sensitive_features": s, "sensitive_text": np.array([-axis, axis])}
    fitted = clone(model).fit(X, **given)
    first, last = ZeroShot().fit(X, text=queries).query_scores(X, queries), fitted.query_scores(X, queries)
    before, after = (np.mean([max_skew(column, s, k=100) for column in a.T]) for a in (first, last))
    assert after < 0.3 < 0.35 < before
    assert np.mean(correlation_inside_groups(first, last, s)) > 0.55


@pytest.mark.slow
@each(
    [
        LinearProbe(C=0.01, class_weight="group"),
        DFR(C=0.3, random_state=0),
        DFR("train", C=0.3, random_state=0),
        JTT(20.0, C=0.01),
        AFR(8.0, lam=0.01, C=0.01, random_state=0),
        PPA(C=0.01, random_state=0),
    ]
)
def test_the_worst_group_is_better_than_that_of_a_probe_where_rows_are_correlated(model):
    task = simulate("waterbirds", scale=0.3, seed=1)
    s = {name: next(iter(rows.s.values())) for name, rows in task.splits.items()}
    given = {"text": Experiment.of(task).text, "sensitive_features": s["train"]}
    given["validation"] = (task.val.X, task.val.y, s["val"])

    def worst(model):
        predicted = model.fit(task.train.X, task.train.y, **given).predict(task.test.X)
        return group_report(task.test.y, predicted, s["test"]).worst.accuracy

    assert worst(clone(model)) > worst(LinearProbe(C=0.01)) + 0.1
