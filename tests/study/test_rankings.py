"""Comparisons of methods that rank by free queries."""

from dataclasses import replace

import numpy as np
import pytest

from fairerclip import EmbeddingMitigator
from fairerclip.baselines import LEACE, ZeroShot
from fairerclip.data import simulate
from fairerclip.errors import LabelError, ParameterError, ShapeError
from fairerclip.experiment import Experiment
from fairerclip.metrics import Estimate, able, correlation_inside_groups, kl_at_k, max_skew, ndkl
from fairerclip.metrics.intervals import clopper_pearson
from fairerclip.study.compare_rankings import RankingOptions, _over_runs, compare_rankings
from fairerclip.study.comparison import PairedChange, SeedMean
from fairerclip.study.ranking_comparison import (
    RankingFigures,
    RankingRow,
    RankingRun,
)
from fairerclip.study.ranking_page import answer_of_rankings, best_for
from fairerclip.study.ranking_run import (
    CANDIDATES,
    MITIGATOR,
    RankingTask,
    known_answers,
    ranking_methods,
    run_ranking,
)

BY_KEY = {method.key: method for method in ranking_methods()}


@pytest.fixture(scope="module")
def gallery():
    return Experiment.of(simulate("gallery", scale=0.15, width=48, seed=2), ["sex"])


def test_all_methods_read_s_as_the_mitigator_does(gallery):
    given = RankingTask.of(gallery)
    assert set(given.read_values) == {"sex"}
    truth = gallery.group_columns(gallery.task.train)["sex"]
    assert np.mean(given.read_values["sex"] == truth) > 0.8
    assert "A photo of a woman." not in given.names  # it is about S
    model = given.fit(BY_KEY["leace"], {}, 0)
    alone = LEACE().fit(gallery.task.train.X, text=given.queries, sensitive_features=given.read_values["sex"])
    X = gallery.task.test.X[:50]
    np.testing.assert_allclose(
        model.query_scores(X, given.queries), alone.query_scores(X, given.queries), atol=1e-10
    )


def test_figures_are_those_of_the_measures(gallery):
    run = run_ranking(BY_KEY["leace"], gallery, 0, floor=0.5, k=100)
    given = RankingTask.of(gallery)
    rows, groups = gallery.task.test, gallery.groups(gallery.task.test)
    unit = rows.X / np.linalg.norm(rows.X, axis=1, keepdims=True)
    scores = given.fit(BY_KEY["leace"], run.chosen, 0).query_scores(rows.X, given.queries)
    (found,) = run.attributes
    assert found.max_skew == pytest.approx(np.mean(max_skew(scores, groups, 100)))
    inside = correlation_inside_groups(unit @ given.queries.T, scores, groups)
    assert found.rank_correlation == pytest.approx(np.nanmean(inside))
    assert found.low_correlation == pytest.approx(np.nanquantile(inside, 0.05))
    assert found.kl == pytest.approx(np.mean(kl_at_k(scores, groups, 100)))
    assert found.k == 100
    assert run.candidates == CANDIDATES
    assert found.known_queries == sum(len(text) for text, _ in known_answers(gallery, rows))
    assert found.known_queries > 2  # the values of the attribute that is not mitigated


def test_the_setting_has_the_smallest_skew_that_keeps_the_order(gallery):
    weak = run_ranking(MITIGATOR, gallery, 0, floor=0.999)
    strong = run_ranking(MITIGATOR, gallery, 0, floor=0.5)
    assert weak.chosen["strength"] < strong.chosen["strength"]
    assert weak.attributes[0].max_skew > strong.attributes[0].max_skew
    assert weak.reached_floor
    assert strong.reached_floor
    # A setting that cannot keep the order is the one that keeps most of it.
    only = replace(MITIGATOR, candidates=[{"strength": 1.0}, {"strength": 0.8}])
    never = run_ranking(only, gallery, 0, floor=1.0)
    assert not never.reached_floor
    assert never.chosen["strength"] == 0.8


@pytest.mark.slow
@pytest.mark.usefixtures("inline_jobs")
def test_figures_of_one_run_have_intervals_over_queries_and_rows(gallery, tmp_path):
    options = RankingOptions(methods=("zero-shot", "leace"), floor=0.5, jobs=1, k=100)
    other = simulate("waterbirds", scale=0.1, width=48)
    row = compare_rankings(gallery, options, unrelated=other, work=tmp_path).rows[1]
    (run,), (figures,) = row.runs, row.figures
    given, groups = RankingTask.of(gallery), gallery.groups(gallery.task.test)
    model = given.fit(BY_KEY["leace"], run.chosen, 0)
    scores = model.query_scores(gallery.task.test.X, given.queries)
    plain = ZeroShot().fit(other.test.X, text=other.text_target).predict(other.test.X) == other.test.y
    after = model.query_scores(other.test.X, other.text_target).argmax(axis=1) == other.test.y
    rng = np.random.default_rng(5)
    for figure, values in (
        (figures.kl, kl_at_k(scores, groups, 100)),
        (figures.ndkl, ndkl(scores, groups, k=100)),
        (figures.max_skew, max_skew(scores, groups, 100)),
        (row.unrelated, after.astype(float) - plain),
    ):
        means = [np.mean(rng.choice(values, len(values))) for _ in range(2000)]
        low, high = np.quantile(means, [0.025, 0.975])
        assert figure.mean == pytest.approx(np.mean(values))
        assert [figure.low, figure.high] == pytest.approx([low, high], abs=0.15 * (high - low))
    n = len(other.test)
    ends = clopper_pearson(round(run.unrelated_accuracy * n), n, 0.95)
    skew = Estimate(figures.max_skew.mean, figures.max_skew.low, figures.max_skew.high)
    expected = able(Estimate(run.unrelated_accuracy, *map(float, ends)), skew)
    found = (figures.able.mean, figures.able.low, figures.able.high)
    assert found == pytest.approx((expected.value, expected.low, expected.high))


def row(key, skew, inside, low=0.0, high=0.0):
    def mean(value):
        return SeedMean(mean=value, sd=0.0, low=value, high=value, seeds=1)

    figures = RankingFigures(
        attribute="sex",
        max_skew=mean(skew),
        ndkl=mean(0.0),
        kl=mean(0.0),
        rank_correlation=mean(inside),
        low_correlation=mean(inside),
    )
    against = (
        {} if key == "embedding" else {"sex": PairedChange(difference=(low + high) / 2, low=low, high=high)}
    )
    return RankingRow(
        method=key, title=key, gradient=False, runs=(), errors=(), figures=(figures,), against=against
    )


def test_what_cannot_be_compared_is_refused(gallery):
    task = gallery.task
    silent = {name: replace(value, text=None) for name, value in task.sensitive.items()}
    for experiment, options, error in (
        (gallery, {"options": RankingOptions(k=10**6)}, ParameterError),
        (gallery, {"unrelated": simulate("waterbirds", scale=0.1, width=32)}, ShapeError),
        (replace(gallery, task=replace(task, sensitive=silent)), {}, LabelError),
    ):
        with pytest.raises(error):
            compare_rankings(experiment, **options)


def test_the_mitigator_of_a_comparison_is_that_of_a_fit(gallery):
    given = RankingTask.of(gallery)
    model = given.fit(MITIGATOR, {"strength": 0.6}, 0)
    alone = EmbeddingMitigator(0.6).fit(
        gallery.task.train.X,
        sensitive_text={
            "sex": dict(zip(("female", "male"), gallery.task.sensitive["sex"].text, strict=True))
        },
        labelled=(gallery.task.val.X, {"sex": gallery.group_columns(gallery.task.val)["sex"]}),
    )
    X = gallery.task.test.X[:40]
    np.testing.assert_allclose(model.transform(X), alone.transform(X), atol=1e-8)


def test_means_over_fewer_splits_are_corrected_and_intervals_stay_in_the_range():
    def runs(values):
        return [RankingRun.model_construct(seed=seed, unrelated=v) for seed, v in values.items()]

    found = {
        "full": runs({0: 0.1, 1: 0.3, 2: 0.5}),
        "few": runs({0: 0.2, 1: 0.4}),
        "one": runs({2: 0.9}),
    }
    figures = {key: _over_runs(key, found, lambda run: run.unrelated, (0.0, 1.0), 0.5) for key in found}
    assert figures["full"].mean == pytest.approx(0.3)
    assert figures["few"].mean == pytest.approx(0.4)  # 0.1 more than the other on the same splits
    assert (figures["few"].low, figures["few"].high) == (0, 1)
    assert figures["one"].mean == pytest.approx(0.7)
    assert (figures["one"].low, figures["one"].high) == (0, 1)  # nothing is known of the spread of one split


def test_the_best_is_the_least_skewed_that_keeps_the_order():
    rows = [row("zero-shot", 0.4, 1.0, -0.3, -0.2), row("leace", 0.10, 0.95, 0.01, 0.03), row("x", 0.01, 0.2)]
    own = row("embedding", 0.12, 0.96)
    assert best_for([*rows, own], "sex", 0.9).method == "leace"
    for others, use in (
        ([*rows, own], "Use leace"),
        ([rows[0], row("leace", 0.10, 0.95, -0.01, 0.03), own], "Use EmbeddingMitigator"),
        ([row("embedding", 0.01, 0.2)], "Use none of them"),
    ):
        assert answer_of_rankings(others, ["sex"], 0.9)[1].startswith(use)
