"""Comparisons of methods that rank by free queries."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest

from fairerclip import EmbeddingMitigator
from fairerclip.baselines import LEACE, ZeroShot
from fairerclip.data import SentencePairs, Sentences, resplit, simulate
from fairerclip.errors import LabelError, OutputExistsError, ParameterError, ShapeError
from fairerclip.experiment import Experiment
from fairerclip.metrics import Estimate, able, correlation_inside_groups, kl_at_k, max_skew, ndkl
from fairerclip.metrics.intervals import clopper_pearson
from fairerclip.report.result_table import text_of
from fairerclip.study.compare_rankings import RankingOptions, _over_runs, compare_rankings
from fairerclip.study.comparison import PairedChange, SeedMean
from fairerclip.study.methods import METHODS
from fairerclip.study.ranking_comparison import (
    RankingComparison,
    RankingFigures,
    RankingRow,
    RankingRun,
    write_rankings,
)
from fairerclip.study.ranking_page import _advice, answer_of_rankings, best_for, rankings_page
from fairerclip.study.ranking_run import (
    CANDIDATES,
    MITIGATOR,
    RankingTask,
    known_answers,
    ranking_methods,
    run_ranking,
)
from fairerclip.study.unrelated_task import unrelated_figures

BY_KEY = {method.key: method for method in ranking_methods()}


@pytest.fixture(scope="module")
def gallery():
    return Experiment.of(simulate("gallery", scale=0.15, width=48, seed=2), ["sex"])


@pytest.fixture
def inline(monkeypatch):
    from fairerclip.study.workers import guarded

    def run(calls, answered, **_):
        for number, call in enumerate(calls):
            answered(number, guarded(call))

    monkeypatch.setattr("fairerclip.study.jobs.run_calls", run)


def test_methods_for_rankings_take_any_query_and_have_equally_many_settings():
    methods = ranking_methods()
    assert methods[-1] is MITIGATOR
    assert {"zero-shot", "orth-proj", "orth-cali", "leace"} < {method.key for method in methods}
    for method in methods[:-1]:
        assert method.estimator.free_queries
        assert method.labels == "none"
        full = next(m for m in METHODS if m.key == method.key).candidates
        assert len(method.candidates) == min(CANDIDATES, len(full))
        assert method.candidates[0] == full[0]
        assert [c for c in full if c in list(method.candidates)] == list(method.candidates)
    assert len(MITIGATOR.candidates) == CANDIDATES


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


def test_nothing_changes_for_the_original_embeddings(gallery):
    run = run_ranking(
        BY_KEY["zero-shot"], gallery, 0, floor=0.9, unrelated=simulate("waterbirds", scale=0.1, width=48)
    )
    (found,) = run.attributes
    assert found.rank_correlation == pytest.approx(1)
    assert found.average_precision == pytest.approx(0, abs=1e-12)
    assert run.unrelated == 0
    assert 0.5 < run.unrelated_accuracy < 1


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


def test_a_resampled_split_is_a_resampled_task(gallery):
    one = run_ranking(BY_KEY["leace"], gallery, 3, floor=0.5, resampled=True)
    task = resplit(gallery.task, 3, sensitive=["sex"])
    other = run_ranking(BY_KEY["leace"], replace(gallery, task=task), 3, floor=0.5)
    (attribute,), (alone,) = one.attributes, other.attributes
    assert attribute == alone.model_copy(update={"intervals": {}}), "intervals are over splits"


def test_runs_that_share_the_readers_of_a_split_have_the_figures_of_runs_alone(gallery, monkeypatch):
    reads = []
    compute = RankingTask.read_values.func
    monkeypatch.setattr(RankingTask.read_values, "func", lambda task: reads.append(task) or compute(task))
    for seed in (3, 4):
        for key in ("leace", "orth-proj"):
            shared, alone = (
                run_ranking(BY_KEY[key], gallery, seed, floor=0.5, resampled=True, data=name)
                for name in ("this gallery", None)
            )
            assert (shared.chosen, shared.attributes) == (alone.chosen, alone.attributes)
    assert len(reads) == 2 + 4  # one for each split that is shared, and one for each run alone


def assert_kept_runs_without_figures_are_used(gallery, options, other, folder, found):
    """Runs of the version before KL and ABLE are taken as they are, with empty cells."""
    for file in folder.glob("leace-*.json"):
        content = json.loads(file.read_text())
        del content["answer"]["unrelated_accuracy"]
        for attribute in content["answer"]["attributes"]:
            del attribute["kl"]
        content["sha256"] = hashlib.sha256(json.dumps(content["answer"]).encode()).hexdigest()
        file.write_text(json.dumps(content))
    before = {file: file.read_bytes() for file in folder.iterdir()}
    earlier = compare_rankings(gallery, options, unrelated=other, work=folder)
    assert {file: file.read_bytes() for file in folder.iterdir()} == before
    leace, own = earlier.rows[1:]
    assert (leace.figures[0].kl, leace.figures[0].able) == (None, None)
    assert leace.figures[0].ndkl == found.rows[1].figures[0].ndkl
    assert own == found.rows[2]
    more = next(part for part in rankings_page(earlier).folded if part.title == "More figures")
    cells = {row[0]: [text_of(cell) for cell in row] for row in more.tables[0].rows}
    assert [cells[leace.title][place] for place in (3, 6)] == ["–", "–"]
    assert "–" not in cells[own.title]


@pytest.mark.usefixtures("inline")
def test_a_comparison_is_written_taken_up_again_and_guarded(gallery, tmp_path):
    options = RankingOptions(methods=("zero-shot", "leace", "embedding"), splits=2, floor=0.5, jobs=1)
    other = simulate("waterbirds", scale=0.1, width=48)
    found = compare_rankings(gallery, options, unrelated=other, work=tmp_path / "runs")
    assert len(list((tmp_path / "runs").glob("*-rankings-split-*.json"))) == 6
    again = compare_rankings(gallery, options, unrelated=other, work=tmp_path / "runs")
    assert again.rows == found.rows
    leace = found.rows[1]
    each = [able(run.unrelated_accuracy, run.attributes[0].max_skew).value for run in leace.runs]
    assert leace.figures[0].able.mean == pytest.approx(np.mean(each))
    assert leace.figures[0].kl.mean == pytest.approx(np.mean([run.attributes[0].kl for run in leace.runs]))
    assert_kept_runs_without_figures_are_used(gallery, options, other, tmp_path / "runs", found)
    page = rankings_page(found)
    write_rankings(found, page, tmp_path, overwrite=False)
    written = json.loads((tmp_path / "rankings.json").read_text())
    assert written["format"] == "fairerclip-ranking-comparison"
    assert "skews" not in written["rows"][0]["runs"][0]["attributes"][0]
    text = (tmp_path / "rankings.md").read_text()
    assert "EmbeddingMitigator" in text
    assert "Unrelated task" in text
    original, own = found.rows[0], found.rows[-1]
    assert own.figures[0].max_skew.mean < original.figures[0].max_skew.mean
    assert original.against["sex"].difference == pytest.approx(
        own.figures[0].max_skew.mean - original.figures[0].max_skew.mean
    )
    moved = replace(gallery, task=resplit(gallery.task, 1))
    with pytest.raises(OutputExistsError, match="is not of this task"):
        write_rankings(compare_rankings(moved, options), page, tmp_path, overwrite=False)


@pytest.mark.usefixtures("inline")
def test_figures_of_one_run_have_intervals_over_queries_and_rows(gallery, tmp_path):
    options = RankingOptions(methods=("zero-shot", "leace"), floor=0.5, jobs=1, k=100)
    other = simulate("waterbirds", scale=0.1, width=48)
    found = compare_rankings(gallery, options, unrelated=other, work=tmp_path)
    row = found.rows[1]
    (run,), (figures,) = row.runs, row.figures
    X, groups = gallery.task.test.X, gallery.groups(gallery.task.test)
    given = RankingTask.of(gallery)
    scores = given.fit(BY_KEY["leace"], run.chosen, 0).query_scores(X, given.queries)
    rng = np.random.default_rng(5)
    for name, values in (
        ("kl", kl_at_k(scores, groups, 100)),
        ("ndkl", ndkl(scores, groups, k=100)),
        ("max_skew", max_skew(scores, groups, 100)),
    ):
        means = [np.mean(rng.choice(values, len(values))) for _ in range(4000)]
        low, high = np.quantile(means, [0.025, 0.975])
        figure = getattr(figures, name)
        assert figure.mean == pytest.approx(np.mean(values))
        assert [figure.low, figure.high] == pytest.approx([low, high], abs=0.15 * (high - low))
    assert figures.low_correlation.low <= figures.low_correlation.mean <= figures.low_correlation.high
    assert figures.low_correlation.low < figures.low_correlation.high
    assert figures.average_precision.low < figures.average_precision.mean < figures.average_precision.high
    n = len(other.test)
    low, high = clopper_pearson(round(run.unrelated_accuracy * n), n, 0.95)
    skew = Estimate(figures.max_skew.mean, figures.max_skew.low, figures.max_skew.high)
    expected = able(Estimate(run.unrelated_accuracy, float(low), float(high)), skew)
    assert (figures.able.mean, figures.able.low, figures.able.high) == pytest.approx(
        (expected.value, expected.low, expected.high)
    )
    plain = ZeroShot().fit(other.test.X, text=other.text_target).predict(other.test.X) == other.test.y
    model = given.fit(BY_KEY["leace"], run.chosen, 0)
    after = model.query_scores(other.test.X, other.text_target).argmax(axis=1) == other.test.y
    changes = after.astype(float) - plain
    means = [np.mean(rng.choice(changes, n)) for _ in range(4000)]
    low, high = np.quantile(means, [0.025, 0.975])
    assert row.unrelated.mean == pytest.approx(changes.mean())
    assert [row.unrelated.low, row.unrelated.high] == pytest.approx([low, high], abs=0.15 * (high - low))
    more = next(part for part in rankings_page(found).folded if part.title == "More figures")
    assert "[" in text_of(more.tables[0].rows[1][3])


def row(key, skew, inside, low=0.0, high=0.0):
    def mean(value):
        return SeedMean(mean=value, sd=0.0, low=value, high=value, seeds=1)

    figures = RankingFigures(
        attribute="sex",
        max_skew=mean(skew),
        ndkl=mean(0.0),
        rank_correlation=mean(inside),
        low_correlation=mean(inside),
    )
    against = (
        {} if key == "embedding" else {"sex": PairedChange(difference=(low + high) / 2, low=low, high=high)}
    )
    return RankingRow(
        method=key, title=key, gradient=False, runs=(), errors=(), figures=(figures,), against=against
    )


def test_the_answer_names_losses_first_and_leaves_out_who_scrambles_the_order():
    rows = [row("zero-shot", 0.4, 1.0, -0.3, -0.2), row("leace", 0.10, 0.95, 0.01, 0.03), row("x", 0.01, 0.2)]
    own = row("embedding", 0.12, 0.96)
    assert best_for([*rows, own], "sex", 0.9).method == "leace"
    sentence, use = answer_of_rankings([*rows, own], ["sex"], 0.9)
    assert sentence.startswith("EmbeddingMitigator is clearly worse than leace for sex")
    assert use.startswith("Use leace")
    near = [rows[0], row("leace", 0.10, 0.95, -0.01, 0.03), own]
    sentence, use = answer_of_rankings(near, ["sex"], 0.9)
    assert "is not told apart from leace" in sentence
    assert use.startswith("Use EmbeddingMitigator")
    sentence, _ = answer_of_rankings([rows[0], own], ["sex"], 0.9)
    assert "EmbeddingMitigator has the smallest skew for sex of 2 methods" in sentence
    sentence, use = answer_of_rankings([row("embedding", 0.01, 0.2)], ["sex"], 0.9)
    assert "no method keeps a rank correlation of 0.9" in sentence
    assert use.startswith("Use none of them")


def test_the_mitigator_is_recommended_only_where_it_was_compared():
    rows = [row("leace", 0.10, 0.95), row("x", 0.01, 0.2)]
    alone = [entry.model_copy(update={"against": {}}) for entry in rows]
    sentence, use = answer_of_rankings(alone, ["sex"], 0.9)
    assert sentence == "Leace has the smallest skew for sex and alone keeps the order (MaxSkew 0.100)."
    assert use == "Compare with EmbeddingMitigator, too: name embedding among the methods."


def test_what_cannot_be_compared_is_refused(gallery):
    with pytest.raises(ParameterError, match="k must be"):
        compare_rankings(gallery, RankingOptions(k=10**6))
    other = simulate("waterbirds", scale=0.1, width=48)
    unlabelled = replace(other, splits={"test": replace(other.test, y=np.full(len(other.test), -1))})
    with pytest.raises(LabelError, match="unrelated task with class prompts and target labels"):
        compare_rankings(gallery, unrelated=unlabelled)
    task = gallery.task
    with pytest.raises(ParameterError, match=r"probe does not rank by free queries; .* embedding$"):
        compare_rankings(gallery, RankingOptions(methods=("probe",)))
    with pytest.raises(ParameterError, match="no method is named; there are .*embedding"):
        compare_rankings(gallery, RankingOptions(methods=()))
    with pytest.raises(LabelError, match="no training split"):
        compare_rankings(replace(gallery, task=replace(task, splits={"test": task.test})))
    silent = {name: replace(value, text=None) for name, value in task.sensitive.items()}
    with pytest.raises(LabelError, match="no prompts of sex"):
        compare_rankings(replace(gallery, task=replace(task, sensitive=silent)))
    with pytest.raises(LabelError, match="no test or validation rows with sensitive labels"):
        compare_rankings(replace(gallery, task=replace(task, splits={"train": task.train})))
    with pytest.raises(ShapeError, match="the unrelated task must"):
        compare_rankings(gallery, unrelated=simulate("waterbirds", scale=0.1, width=32))
    with pytest.raises(ParameterError, match="floor"):
        compare_rankings(gallery, RankingOptions(floor=2.0))
    with pytest.raises(LabelError, match="class prompts and target labels"):
        unrelated_figures(None, task)
    few = replace(
        task, queries=replace(task.queries, text=task.queries.text[-1:], prompts=task.queries.prompts[-1:])
    )
    with pytest.raises(LabelError, match="0 of 1 queries are not about"):
        run_ranking(BY_KEY["leace"], replace(gallery, task=few), 0, floor=0.5)


def test_the_mitigator_of_a_comparison_is_that_of_a_fit(gallery):
    given = RankingTask.of(gallery)
    model = given.fit(MITIGATOR, {"strength": 0.6}, 0)
    alone = EmbeddingMitigator(0.6, random_state=0).fit(
        gallery.task.train.X,
        sensitive_text={
            "sex": dict(zip(("female", "male"), gallery.task.sensitive["sex"].text, strict=True))
        },
        labelled=(gallery.task.val.X, {"sex": gallery.group_columns(gallery.task.val)["sex"]}),
    )
    X = gallery.task.test.X[:40]
    np.testing.assert_allclose(model.transform(X), alone.transform(X), atol=1e-8)


def test_a_method_with_one_setting_reaches_the_floor_only_if_it_keeps_the_order(gallery):
    run = run_ranking(BY_KEY["orth-proj"], gallery, 0, floor=0.9)
    assert run.candidates == 1
    assert run.attributes[0].rank_correlation < 0.9
    assert not run.reached_floor
    assert run_ranking(BY_KEY["zero-shot"], gallery, 0, floor=0.9).reached_floor


def test_figures_measured_on_the_rows_of_the_choice_are_called_optimistic(gallery):
    def page_of(split):
        run = RankingRun.model_construct(split=split)
        original = row("zero-shot", 0.2, 1.0).model_copy(update={"runs": (run,)})
        return RankingComparison.model_construct(rows=(original,))

    assert "too optimistic" in _advice(page_of("val"))[0]
    assert not _advice(page_of("test"))


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


def test_methods_are_given_the_sentences_of_the_task_for_them():
    task = simulate("gallery", scale=0.15, width=48, seed=2)
    about = Sentences(text=task.sensitive["sex"].text[:1], prompts=("a woman",))
    pairs = SentencePairs(text=task.sensitive["sex"].text[None], prompts=(("a woman", "a man"),))
    given = RankingTask.of(Experiment.of(replace(task, spurious=about, harmful=pairs), ["sex", "race"]))
    assert given.fit(BY_KEY["orth-proj"], {}, 0).diagnostics_["projected"] == "spurious sentences"
    assert given.fit(BY_KEY["roboshot"], {}, 0).diagnostics_["pairs"] == "given"
    assert given.fit(BY_KEY["rotation"], {}, 0).diagnostics_["directions"] > 1


@pytest.mark.usefixtures("inline")
def test_a_method_that_is_named_twice_is_one_row(gallery):
    found = compare_rankings(gallery, RankingOptions(methods=("zero-shot", "zero-shot"), jobs=1))
    assert [row.method for row in found.rows] == ["zero-shot"]
    assert len(found.rows[0].runs) == 1
