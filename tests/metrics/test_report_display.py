"""Group reports in notebooks."""

from fairerclip.metrics import group_report
from notebook_html import paragraphs, shown, tables


def test_groups_are_shown_lowest_first_with_intervals():
    y, s = ["cat", "dog"] * 60, ["day", "day", "night", "night"] * 30
    predicted = ["cat", "dog", "cat", "cat"] * 15 + ["cat", "dog", "cat", "dog"] * 15
    report = group_report(y, predicted, s, positive="dog")
    root = shown(report)
    assert paragraphs(root)[0] == (
        "Accuracy by group on 120 rows: average 87.5\u00a0%, worst group dog × night 50.0\u00a0%"
    )
    groups, figures = tables(root)
    assert groups[0] == ["group", "rows", "accuracy, 95 % interval"]
    assert groups[1] == ["dog × night", "30", "50.0\u00a0% [31.3, 68.7]"]
    assert [row[0] for row in groups[2:]] == ["cat × day", "cat × night", "dog × day"]
    assert figures[1][0] == "Average accuracy"
    low, high = (100 * end for end in report.intervals["worst_group"])
    assert figures[2] == ["Worst-group accuracy", f"50.0\u00a0% [{low:.1f}, {high:.1f}]"]
