"""The tables of an audit on a terminal."""

import copy

from forms import terminal as printed


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
