"""The tables of an audit on a terminal."""

import copy

import pytest
import sample
from forms import terminal as printed


@pytest.fixture(scope="module")
def results():
    return sample.two_class(taus=3, tau_zs=2)


def test_brackets_in_titles_and_heads_are_shown(results):
    text = printed(results)
    assert "Accuracy by group [interval]" in text
    assert "value [interval]" in text


@pytest.mark.parametrize(
    "path",
    [
        "wording.templates.0.eod",
        "wording.used",
        "groups.before",
        "groups.after",
        "groups.changes",
        "groups.group_changes",
        "groups.before.eod",
        "groups.changes.0.difference",
        "groups.changes.0.low",
        "retrieval.mean.before",
        "retrieval.mean.after",
        "retrieval.queries.0.before",
        "retrieval.queries.0.after",
        "retrieval.queries.0.drift",
        "retrieval.queries.0.before.max_skew",
        "retrieval.queries.0.drift.spearman_within",
        "retrieval.mean.before.ndkl",
        "probes.0.value",
        "probes.0.low",
        "dependence.0.value",
        "dependence.0.p_value",
        "dependence.0.given",
        "representation.0.hsic_y",
        "representation.0.kcc_s.low",
    ],
)
def test_whatever_may_be_null_may_be_null(results, path):
    some = copy.deepcopy(results)
    *parents, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    part = some
    for key in parents:
        part = part[key]
    assert last in part
    part[last] = None
    assert "None" not in printed(some)


def test_groups_are_matched_by_class_and_value(results):
    some = copy.deepcopy(results)
    for row in some["groups"]["group_changes"]:
        row["name"] = "other"
    some["groups"]["after"]["groups"].reverse()
    assert printed(some) == printed(results)


def test_names_move_no_cursor_and_are_short(results):
    some = copy.deepcopy(results)
    some["groups"]["before"]["groups"][0]["name"] = "\x1b[2Jx\u202e[bold]" + "y" * 3000
    some["wording"]["templates"][0]["template"] = "[red]{}\x07"
    text = printed(some)
    assert not set(text) & {"\x1b", "\u202e", "\x07"}
    assert "[bold]" in text
    assert "[red]" in text
    assert "y" * 121 not in text
