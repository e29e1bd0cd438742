"""The answer of a comparison: who is best, how FairerCLIP does, what to use, and what is never folded."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from made_comparison import BY_KEY, compared, many, run_of, small_experiment, wrong

from fairerclip.data import Split
from fairerclip.experiment import Experiment
from fairerclip.report.front_chart import Frame, placed_labels
from fairerclip.study.comparison import Comparison
from fairerclip.study.comparison_answer import answer_of
from fairerclip.study.comparison_page import page

HOSTILE = "<script>alert(1)</script>|a*b_c [x](y) \u202e \x00 & \"quoted\" 'single'"


@pytest.fixture(scope="module")
def experiment():
    return small_experiment()


def made(experiment, **shares):
    """A comparison of methods by their shares of wrong rows; equal shares give the same predictions."""
    runs = {}
    for key, share in shares.items():
        key = key.replace("_", "-")
        runs[key] = share if isinstance(share, str) else [run_of(experiment, wrong(experiment, share))]
    return compared(experiment, runs)


class Visible(HTMLParser):
    """Text of a page before anything is unfolded; what is drawn for a phone is not counted twice."""

    def __init__(self):
        super().__init__()
        self.words, self.open, self.hidden = [], [], 0

    def handle_starttag(self, tag, attributes):
        if tag in ("meta", "path", "rect", "circle"):
            return
        hides = tag in ("details", "style", "title") or ("class", "on-phone") in attributes
        self.open.append(hides)
        self.hidden += hides

    def handle_endtag(self, tag):
        if tag not in ("meta", "path", "rect", "circle"):
            self.hidden -= self.open.pop()

    def handle_data(self, data):
        if not self.hidden:
            self.words += data.split()


def visible(html):
    parser = Visible()
    parser.feed(html)
    return parser.words


def test_differences_are_those_of_the_same_rows(experiment):
    rows, names = experiment.task.test, np.array(experiment.classes)
    seeds = [wrong(experiment, 0.2, seed) for seed in range(3)]
    best = wrong(experiment, 0.05, 7)
    found = compared(
        experiment,
        {
            "zero-shot": [run_of(experiment, best)],
            "fairerclip-none": [run_of(experiment, codes, k) for k, codes in enumerate(seeds)],
        },
    )
    (level,) = found.best_for_labels
    assert (level.labels, level.best) == ("none", "zero-shot")
    expected = [
        experiment.paired_report(rows, names[best], names[codes]).change("worst_group") for codes in seeds
    ]
    difference = level.differences["fairerclip-none"].worst_group
    for name in ("difference", "low", "high"):
        assert getattr(difference, name) == pytest.approx(np.mean([getattr(c, name) for c in expected]))
    means = {row.method: row.figures.worst_group.mean for row in found.rows}
    assert difference.difference == pytest.approx(means["fairerclip-none"] - means["zero-shot"])
    assert found.against_zero_shot["fairerclip-none"] == level.differences["fairerclip-none"]
    assert found.verdicts[0].worst_group == difference


def test_a_win_is_told_after_the_best(experiment):
    found = made(experiment, zero_shot=0.4, probe=0.3, fairerclip_target=0.02)
    assert found.answer.startswith("“FairerCLIP, labels” has the best worst group of 3 methods on ")
    assert (
        "; against the best other method that uses no more labels, FairerCLIP is better with target labels (+"
        in (found.answer)
    )
    assert (
        found.recommendation
        == "Use “FairerCLIP, labels”: the worst group of every other method is clearly worse."
    )
    assert answer_of(found).advice == ("Without labels in training: keep zero-shot.",)
    assert found.best_for_labels[-1].not_told_apart == ()


def test_a_loss_is_told_first(experiment):
    found = made(
        experiment, zero_shot=0.4, probe=0.02, fairerclip_none=0.1, fairerclip_target=0.3, fairerclip_all=0.02
    )
    assert re.match(
        r"Against the best other method that uses no more labels, FairerCLIP is worse with target labels "
        r"\(−[0-9.]+ points\), not told apart with all labels and better without labels \(\+[0-9.]+ points\); "
        r"“ERM probe, logistic” and “FairerCLIP, labels and S” share the best worst group of 5 methods on ",
        found.answer,
    )
    assert found.recommendation == (
        "Use “ERM probe, logistic”: it cannot be told apart from 2 others, but is simpler or better on average."
    )
    assert answer_of(found).advice == ("Without labels in training: use “FairerCLIP, no labels”.",)


def test_zero_shot_is_kept_unless_something_is_clearly_better(experiment):
    found = made(experiment, zero_shot=0.2, orth_proj=0.199, probe=0.2, fairerclip_target=0.2)
    assert found.recommendation == "Keep zero-shot: no method has a clearly better worst group."
    assert set(found.best_for_labels[-1].not_told_apart) | {found.best_for_labels[-1].best} == {
        row.method for row in found.rows
    }
    assert "FairerCLIP is not told apart with target labels" in found.answer


def test_the_simplest_of_the_methods_that_are_alike_is_recommended(experiment):
    found = made(experiment, wise=0.1, probe=0.11, probe_group_true=0.1, fairerclip_all=0.09)
    assert "Use the simplest of the 4 methods that cannot be told apart: “ERM probe, logistic”." == (
        found.recommendation
    )


@pytest.fixture(scope="module")
def alike(experiment):
    """Predictions with half of the smallest group wrong: with one error less, so, and with more errors elsewhere."""
    test = experiment.task.test
    truth, (_, groups) = test.y, experiment.labels(test)
    cells = [(truth == code) & (groups == group) for code in (0, 1) for group in set(groups)]
    inside = min(cells, key=np.sum)
    every_second = inside & (np.cumsum(inside) % 2 == 0)
    half = np.where(every_second, 1 - truth, truth)
    better = half.copy()
    better[np.flatnonzero(every_second)[0]] = truth[np.flatnonzero(every_second)[0]]
    noisy = np.where(~inside & (np.arange(len(truth)) % 4 == 0), 1 - truth, half)
    return [[run_of(experiment, codes)] for codes in (better, half, noisy)]


def test_a_simpler_method_that_loses_on_average_is_not_recommended(experiment, alike):
    better, _, noisy = alike
    found = compared(experiment, {"zero-shot": noisy, "probe": better})
    level = found.best_for_labels[-1]
    assert (level.best, level.not_told_apart, level.use) == ("probe", ("zero-shot",), "probe")
    assert level.differences["zero-shot"].average.high < -0.01
    assert found.recommendation == (
        "Use “ERM probe, logistic”: it cannot be told apart from Zero-shot, but is simpler or better on average."
    )


def test_the_simplest_is_sought_among_those_that_keep_the_average(experiment, alike):
    better, half, noisy = alike
    found = compared(experiment, {"zero-shot": noisy, "orth-proj": half, "probe": better})
    top = found.best_for_labels[-1]
    assert (top.best, top.use, top.not_told_apart) == ("probe", "orth-proj", ("zero-shot", "orth-proj"))
    assert found.recommendation == (
        "Of the 3 methods that cannot be told apart, use the simplest whose average is not clearly lower: Orth-Proj."
    )
    assert answer_of(found).advice == ()  # the recommended method needs no labels


def test_harms_and_failures_are_never_folded(experiment):
    found = made(experiment, zero_shot=0.1, orth_proj="ParameterError: no", probe=0.45, fairerclip_target=0.4)
    kinds = [alert.kind for alert in answer_of(found).alerts]
    assert kinds[:2] == ["failed", "harm"]
    words = " ".join(visible(page(found).to_html()))
    assert "Orth-Proj failed: ParameterError: no" in words
    assert "Clearly worse than zero-shot: FairerCLIP, labels (worst group −" in words
    assert "ERM probe, logistic (worst group −" in words
    assert found.answer.startswith("Against the best other method")


def test_comparisons_without_a_choice(experiment):
    failed = made(experiment, zero_shot="LostWorkerError: gone", probe="ValueError: x")
    assert failed.answer == "No method has a result: 2 methods failed."
    assert failed.recommendation == "Read the errors below and run the same command again."
    assert page(failed).picture is None
    assert "<svg" not in page(failed).to_html()
    single = made(experiment, probe=0.1)
    assert single.answer.startswith("Only “ERM probe, logistic” has figures on ")
    assert single.recommendation.startswith("Compare at least two methods")
    assert page(single).to_html().count("<svg") == 2


def test_figures_on_training_rows_are_no_reason_to_choose(experiment):
    task = experiment.task
    only = Experiment.of(replace(task, splits={"train": task.train}))
    runs = {
        key: [run_of(only, wrong(only, share, split="train"), split="train")]
        for key, share in (("zero-shot", 0.3), ("probe", 0.0))
    }
    found = compared(only, runs)
    assert "training rows, 100.0 %" in found.answer
    assert found.recommendation.startswith("Do not choose by these figures: they are on the training rows.")
    assert answer_of(found).advice == ()
    assert any("saw the answers" in alert.text for alert in answer_of(found).alerts)


def test_a_comparison_of_an_earlier_version_is_shown_without_what_it_lacks(experiment):
    found = made(experiment, zero_shot=0.3, probe=0.1)
    new = ("answer", "recommendation", "best_for_labels", "against_zero_shot")
    early = Comparison.model_validate({k: v for k, v in found.as_dict().items() if k not in new})
    assert (early.answer, early.best_for_labels, dict(early.against_zero_shot)) == (None, (), {})
    words = answer_of(early)
    assert words.sentence == found.answer
    assert "no paired differences" in words.recommendation
    text = page(early).to_html()
    assert "nothing is said on what is told apart" in text
    assert "≈" not in text


def test_names_are_shown_and_do_nothing(experiment):
    methods = [
        replace(BY_KEY["probe"], key="bad", title=HOSTILE),
        replace(BY_KEY["zero-shot"], title=HOSTILE * 9),
    ]
    runs = {"bad": [run_of(experiment, wrong(experiment, 0.1))], "zero-shot": HOSTILE}
    found = compared(experiment, runs, methods)
    html, markdown = page(found).to_html(), page(found).to_markdown()
    assert "<script" not in html + markdown
    assert "&lt;script&gt;" in html
    for mark in ("\u202e", "\x00"):
        assert mark not in html + markdown
    assert "style=" not in html
    assert re.findall(r"(?:src|href)=\"(?!#term-)", html) == []
    rows = [line for line in markdown.splitlines() if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in rows[:3]} == {8}


def test_every_link_leads_to_a_definition(experiment):
    html = page(made(experiment, zero_shot=0.3, probe=0.1)).to_html()
    wanted = set(re.findall(r'href="#([^"]+)"', html))
    assert wanted
    assert wanted <= set(re.findall(r'id="([^"]+)"', html))


def test_thirty_methods_have_few_words_and_labels_that_do_not_overlap(experiment):
    shown = page(many(experiment))
    assert len(visible(shown.to_html())) <= 900
    marks = shown.picture.marks
    assert len(marks) == 30
    for size, names in (((600, 430), 6), ((340, 268), 3)):
        frame = Frame(*size, (0.4, 1.0), (0.2, 1.0), names)
        labels = placed_labels(marks, frame)
        assert len(labels) == 30
        for place, label in enumerate(labels):
            assert label.box.within(frame.area)
            assert not any(label.box.meets(other.box) for other in labels[:place])


def test_two_marks_at_the_same_place_have_two_labels(experiment):
    found = made(experiment, zero_shot=0.2, probe=0.2)
    labels = placed_labels(page(found).picture.marks, Frame(340, 268, (0.5, 1), (0.5, 1), 3))
    assert len(labels) == 2
    assert not labels[0].box.meets(labels[1].box)


def test_rows_without_groups_are_refused(experiment):
    task = experiment.task
    bare = {name: Split(split.X, split.y, {}) for name, split in task.splits.items()}
    from fairerclip.errors import LabelError
    from fairerclip.study.compare import compare

    with pytest.raises(LabelError):
        compare(Experiment.of(replace(task, splits=bare)))
