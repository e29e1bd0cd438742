"""The full audit of one task: every section against what it is computed from, and what a task may lack."""

import shlex
from dataclasses import replace

import numpy as np
import pytest

from fairerclip import EmbeddingMitigator, FairerCLIP
from fairerclip.auditing.auc_results import AucStage
from fairerclip.auditing.group_results import StageReport
from fairerclip.auditing.run import AuditOptions, audit_task, digest
from fairerclip.auditing.sections.auc_section import auc_section
from fairerclip.auditing.sections.groups import groups_section
from fairerclip.data import Split, load_task, save_task, simulate
from fairerclip.errors import LabelError, ParameterError
from fairerclip.experiment import Experiment
from fairerclip.metrics import auc_report, bias_at_k, kl_at_k, retrieval_report
from fairerclip.metrics.intervals import clopper_pearson
from fairerclip.report.command import known_command
from fairerclip.tuning.candidates import AS_ORTHOGONAL, AS_ZERO_SHOT
from light import fewer_fits, lighter_audits
from small_models import FIXED

FAST = {"n_features": 200, "random_state": 0}
QUICK = AuditOptions(permutations=19, seeds=2)


def small(name, **options):
    return simulate(name, seed=1, scale=0.1, width=48, **options)


def run_audit(task, options=QUICK, sensitive=None, classes=None, model=True, **more):
    experiment = Experiment.of(task, sensitive, classes)
    model = FairerCLIP(**FAST) if model is True else model
    return experiment, *audit_task(experiment, options, model=model, **more)


light_audits = pytest.fixture(scope="module", autouse=True)(lighter_audits)
few_fits = pytest.fixture(scope="module", autouse=True)(fewer_fits)


@pytest.fixture(scope="module")
def birds():
    return run_audit(small("waterbirds"))


@pytest.fixture(scope="module")
def objects():
    return run_audit(small("multiclass"))


@pytest.mark.parametrize("which", ["birds", "objects"])
def test_groups_are_those_of_the_predictions(which, request):
    experiment, results, model = request.getfixturevalue(which)
    test = experiment.task.test
    before, after = experiment.zero_shot(test), model.predict(test.X)
    section = results.groups
    assert section.before == StageReport.model_validate(experiment.report(test, before).as_dict())
    assert section.after == StageReport.model_validate(experiment.report(test, after).as_dict())
    y, s = experiment.labels(test)
    for group in section.group_changes:
        here = (y == group.y) & (s == group.s)
        assert group.n == here.sum()
        change = (after[here] == group.y).mean() - (before[here] == group.y).mean()
        assert group.difference == pytest.approx(change)
        assert group.low <= change <= group.high


@pytest.mark.parametrize("which", ["birds", "objects"])
def test_the_plane_counts_every_group_at_every_point(which, request):
    experiment, results, chosen = request.getfixturevalue(which)
    plane, val = results.plane, experiment.task.val
    y, s = experiment.labels(val)
    assert len(plane.points) == len(plane.taus) * len(plane.tau_zs) * len(plane.criteria)
    model = experiment.fit(FairerCLIP(**chosen.get_params()), "target").at(offsets=chosen.offsets_)
    for place in (0, len(plane.points) // 2, plane.chosen):
        point = plane.points[place]
        path = model.path(point.tau, point.tau_z, criterion=point.criterion)
        predicted = path.model(0).predict(val.X)
        for group, correct in zip(plane.groups, point.correct, strict=True):
            here = (y == group.y) & (s == group.s)
            assert group.n == here.sum()
            assert correct == (predicted[here] == group.y).sum()
        report = experiment.report(val, predicted)
        assert point.average == pytest.approx(report.average)
        assert point.worst_group == pytest.approx(report.worst.accuracy)
        assert point.eod == pytest.approx(report.eod)
    for place, (group, known) in enumerate(zip(plane.groups, plane.intervals, strict=True)):
        seen = {p.correct[place] for p in [*plane.points, plane.baseline]}
        assert {int(k) for k in known} == seen
        for k, ends in known.items():
            low, high = clopper_pearson(int(k), group.n, 0.95)
            assert ends == pytest.approx([float(low), float(high)])
    zero_shot = experiment.report(val, experiment.zero_shot(val))
    assert plane.baseline.average == pytest.approx(zero_shot.average)
    assert plane.one_curve is (which == "birds")


@pytest.mark.parametrize("which", ["birds", "objects"])
def test_the_model_is_what_tune_gives_and_its_point_is_marked(which, request):
    experiment, results, model = request.getfixturevalue(which)
    tuned = experiment.tune(FairerCLIP(**FAST), "target")
    assert tuned.get_params() == model.get_params()
    val, test, plane = experiment.task.val, experiment.task.test, results.plane
    np.testing.assert_array_equal(tuned.predict(test.X), model.predict(test.X))
    point = plane.points[plane.chosen]
    assert (point.tau, point.tau_z, point.criterion) == (tuned.tau, tuned.tau_z, tuned.criterion)
    assert point.worst_group == experiment.report(val, tuned.predict(val.X)).worst.accuracy
    assert (plane.chosen_by, results.settings.chosen_on) == ("expected worst group", "val")


@pytest.mark.parametrize(
    ("labels", "tuned"),
    [
        ("target", None),
        ("target", {**AS_ZERO_SHOT, "tau": 0.0, "offsets": [0.0, 0.0123]}),
        ("none", {**AS_ORTHOGONAL, "tau": 0.5, "criterion": "conditional"}),
    ],
    ids=["tuned", "zero-shot with offsets", "orthogonal prompts"],
)
@pytest.mark.slow
def test_the_command_fits_the_point_that_is_picked(labels, tuned, run, tmp_path, monkeypatch):
    task = small("waterbirds")
    if tuned is not None:  # whatever the search likes best
        parameters = {name: value for name, value in tuned.items() if name != "offsets"}
        monkeypatch.setattr(
            Experiment,
            "tune",
            lambda self, model, labels: self.fit(model.set_params(**parameters), labels).at(
                offsets=tuned.get("offsets")
            ),
        )
    monkeypatch.chdir(tmp_path)  # commands name the file without its folder: pages travel
    file = save_task(task, tmp_path / "birds & co.npz")
    options = replace(QUICK, labels=labels, source=str(file), seeds=1)
    experiment, results, model = run_audit(task, options)
    plane, val = results.plane, experiment.task.val
    y, s = experiment.labels(val)
    for place in (1, plane.chosen):
        point = plane.points[place]
        command = plane.command
        for name in ("tau", "tau_z", "criterion"):
            command = command.replace("{" + name + "}", str(getattr(point, name)))
        words = shlex.split(command)
        assert words[:2] == ["fairerclip", "fit"]
        assert "--no-tune" in words
        assert known_command(command) == command  # else a page would not show it
        words[words.index("MODEL")] = str(tmp_path / f"model-{place}")
        code, _, err = run(*words[1:])
        assert code == 0, err
        predicted = FairerCLIP.load(tmp_path / f"model-{place}").predict(val.X)
        found = [int((predicted[(y == g.y) & (s == g.s)] == g.y).sum()) for g in plane.groups]
        assert found == list(point.correct)
    words = shlex.split(results.model.command)
    words[words.index("MODEL")] = str(tmp_path / "chosen")
    assert run(*words[1:])[0] == 0
    again = FairerCLIP.load(tmp_path / "chosen")
    assert again.get_params() == model.get_params()
    assert (again.predict(task.test.X) == model.predict(task.test.X)).all()


@pytest.mark.parametrize("which", ["birds", "objects"])
def test_pictures_count_every_row_once(which, request):
    experiment, results, model = request.getfixturevalue(which)
    n = len(experiment.task.test)
    for stage in ("before", "after"):
        histogram = getattr(results.scores, stage)
        assert sum(sum(group.counts) for group in histogram.groups) == n
        assert min(abs(edge) for edge in histogram.edges) < 1e-9  # the threshold is an edge
        picture = getattr(results.picture, stage)
        assert sum(cell[3] for cell in picture.cells) == n
        for number, group in enumerate(results.picture.groups):
            assert sum(cell[3] for cell in picture.cells if cell[2] == number) == group.n
    # Right of the threshold is the second class of two; of more, a row that is classified correctly.
    histogram, edges = results.scores.after, np.array(results.scores.after.edges)
    right = sum(int(np.array(g.counts)[edges[:-1] >= -1e-9].sum()) for g in histogram.groups)
    predicted = model.predict(experiment.task.test.X)
    y, _ = experiment.labels(experiment.task.test)
    assert right == ((predicted == experiment.classes[1]) if which == "birds" else (predicted == y)).sum()


@pytest.mark.parametrize("which", ["birds", "objects"])
def test_rankings_and_auc_are_of_cosines_before_and_scores_after(which, request):
    experiment, results, model = request.getfixturevalue(which)
    section, test = results.retrieval, experiment.task.test
    y, s = experiment.labels(test)
    k, relevant = section.k, y[:, None] == np.array(experiment.classes)
    order = [model.classes_.tolist().index(name) for name in experiment.classes]
    two = len(experiment.classes) == 2
    assert section.pair == (tuple(sorted(set(s))) if two else None)
    for stage, scores in (("before", experiment.cosines(test.X)), ("after", model.scores(test.X)[:, order])):
        ranked = [getattr(query, stage) for query in section.queries]
        for j, (part, found) in enumerate(zip(ranked, retrieval_report(scores, s, k).queries, strict=True)):
            assert part.max_skew.value == pytest.approx(found.figures.max_skew.value)
            assert part.counts == pytest.approx(list(found.counts))
            top = np.argsort(-scores[:, j], kind="stable")[:k]
            assert part.precision.value == pytest.approx(relevant[top, j].mean(), abs=2 / k)
        assert [part.kl.value for part in ranked] == pytest.approx(kl_at_k(scores, s, k))
        assert getattr(section.mean, stage).kl.value == pytest.approx(np.mean(kl_at_k(scores, s, k)))
        if two:
            bias = bias_at_k(scores, s, k, pair=section.pair)
            assert [part.bias.value for part in ranked] == pytest.approx(bias)
            found = auc_report(y, scores[:, 1] - scores[:, 0], s, positive=experiment.classes[1])
        else:
            found = auc_report(y, scores, s, classes=experiment.classes)
        assert getattr(results.auc, stage) == AucStage.model_validate(found.as_dict())
    change = section.queries[0].changes.kl
    assert change.difference == pytest.approx(change.after - change.before)


def test_auc_leaves_out_groups_and_classes_without_rows():
    task = small("waterbirds")
    rows, (name,) = task.test, task.sensitive
    y = rows.y.copy()
    y[(rows.s[name] == 1) & (rows.y == 1)] = -1
    experiment = Experiment.of(replace(task, splits={"test": replace(rows, y=y)}))
    (value,) = {*np.unique(experiment.groups(rows))} - {
        *np.unique(experiment.labels(rows)[1][rows.s[name] == 0])
    }
    found = auc_section(experiment, experiment.task.test, None, confidence=0.9).before
    assert (found.left_out, found.auc_gap, found.confidence) == ((value,), None, 0.9)
    lone = replace(rows, y=np.zeros_like(rows.y))
    assert auc_section(experiment, lone, None, confidence=0.9) is None
    apart = replace(rows, y=rows.s[name].copy())  # every value of S has one class
    assert auc_section(experiment, apart, None, confidence=0.9) is None
    many = small("multiclass")
    some = replace(many.test, y=np.where(many.test.y > 1, -1, many.test.y))
    found = auc_section(Experiment.of(many), some, None, confidence=0.9).before
    assert (found.positive, set(found.classes)) == (None, set(many.class_names[:2]))


def test_a_gallery_without_classes_is_audited_by_its_rankings():
    _, results, model = run_audit(small("gallery"), QUICK, ["sex"], model=EmbeddingMitigator())
    assert results.groups is results.plane is results.scores is results.picture is None
    assert results.wording is None
    assert len(results.retrieval.queries) == 10
    assert results.retrieval.mean.after is not None
    assert isinstance(model.mitigator_, EmbeddingMitigator)
    made = results.model
    assert (made.method, made.labels, made.source) == ("EmbeddingMitigator", "none", "fitted here")
    assert results.settings.chosen_on is None


def test_a_mitigator_that_reads_s_by_validation_rows_is_no_evidence_on_them():
    for labels, action in ((None, "measure"), ("all", "use")):
        options = replace(QUICK, split="val", labels=labels)
        _, results, _ = run_audit(small("gallery"), options, ["sex"], model=EmbeddingMitigator())
        assert results.recommendation.action == action


def test_several_attributes_are_crossed_and_probed_apart():
    _, results, _ = run_audit(small("gallery"), QUICK, ["sex", "race"], ["good", "evil"], model=None)
    assert len(results.retrieval.groups) == 14
    assert {probe.attribute for probe in results.probes} == {"sex", "race"}


def test_a_given_model_is_taken_as_it_is():
    task = small("waterbirds")
    experiment = Experiment.of(task)
    model = FairerCLIP(**FAST, tau=0.3)
    experiment.fit(model, "target")
    results, after = audit_task(experiment, QUICK, model=model, fitted=True)
    assert after is model
    assert results.model.source == "given"
    assert results.plane is results.groups.seeds is None
    assert results.groups.after.average == pytest.approx(
        experiment.report(task.test, model.predict(task.test.X)).average
    )


def test_without_validation_labels_nothing_is_chosen():
    task = small("waterbirds")
    del task.splits["val"]
    _, results, model = run_audit(task, model=FairerCLIP(**FAST, tau=0.6))
    assert results.settings.chosen_on is None
    plane = results.plane
    assert (plane.split, plane.chosen_by) == ("test", "given")
    point = plane.points[plane.chosen]
    assert (point.tau, point.tau_z) == (model.tau, model.tau_z) == (0.6, 0.7)


def test_rows_without_labels_are_left_out():
    task = small("waterbirds")
    test = task.test
    y = test.y.copy()
    y[:5] = -1
    task.splits["test"] = Split(test.X, y, test.s)
    _, results, _ = run_audit(task, model=None)
    assert results.groups.before.n == len(test) - 5
    assert results.groups.before.dropped == 5
    assert results.retrieval.n == len(test) - 5


def test_the_digest_is_of_the_data_not_of_the_file(tmp_path):
    task = small("waterbirds")
    copies = [load_task(save_task(task, tmp_path / name)) for name in ("a.npz", "b.safetensors")]
    assert {digest(copy) for copy in copies} == {digest(task)}
    task.test.y[0] = 1 - task.test.y[0]
    assert digest(task) != digest(copies[0])


def test_what_cannot_be_audited_is_said():
    task = small("waterbirds")
    bare = replace(task, splits={"test": Split(task.test.X, task.test.y)}, sensitive={})
    with pytest.raises(LabelError):
        audit_task(Experiment.of(bare), QUICK)
    task.splits["val"] = Split(task.val.X, task.val.y)
    with pytest.raises(LabelError, match="val"):
        audit_task(Experiment.of(task), replace(QUICK, split="val"))
    with pytest.raises(ParameterError, match="seeds"):
        audit_task(Experiment.of(task), replace(QUICK, seeds=0))
    with pytest.raises(ParameterError, match="pair"):
        audit_task(Experiment.of(replace(task, text_target=None)), replace(QUICK, pair=("a", "b")))


def test_fits_with_other_seeds_have_the_offsets_of_the_chosen_model():
    experiment = Experiment.of(small("waterbirds"))
    test = experiment.task.test
    first, second = (
        experiment.fit(FairerCLIP(**FIXED, n_features=100, random_state=seed), "target") for seed in (0, 1)
    )
    offsets = [0.0, float(np.ptp(first.scores(test.X)) / 4)]
    models = [model.at(offsets=offsets) for model in (first, second)]
    assert (models[1].predict(test.X) != second.predict(test.X)).any()
    section = groups_section(experiment, test, models[0], labels="target", seeds=2, confidence=0.95)
    averages = [experiment.report(test, model.predict(test.X)).average for model in models]
    spread = next(figure for figure in section.seeds.figures if figure.figure == "average")
    assert spread.mean == pytest.approx(np.mean(averages))
    assert spread.sd == pytest.approx(np.std(averages, ddof=1))
