"""How much agreement is enough: the thresholds behind the errors and warnings about prompts."""

import warnings

import numpy as np
import pytest

from fairerclip.errors import PromptError, SwappedPromptsWarning
from fairerclip.inputs.agreement import Agreement, agreement, check_swapped

TEXT, SENSITIVE_TEXT = np.eye(4)[:2, None], np.eye(4)[2:, None]


def rows_read_as(by_text, by_sensitive_text):
    """Embeddings whose nearest class prompt and nearest sensitive prompt are as given."""
    return np.eye(4)[by_text] + np.eye(4)[2 + np.asarray(by_sensitive_text)]


def wrong(codes, share):
    """Codes (0, 1) of which a share of each is exchanged, spread evenly over the rows."""
    exchanged = np.array(codes)
    for value in (0, 1):
        rows = np.flatnonzero(codes == value)
        exchanged[rows[np.diff(np.floor(np.arange(len(rows) + 1) * share + 1e-9)) > 0]] = 1 - value
    return exchanged


@pytest.mark.parametrize(
    ("best", "rows", "expected"),
    [(0.71, 20, True), (0.69, 20, False), (0.71, 19, False), (0.79, 5000, True), (0.50, 5000, False)],
)
def test_another_order_must_agree_by_a_fifth_more_on_twenty_rows(best, rows, expected):
    assert Agreement(0.5, best, error=0.01, chance=0.5, rows=rows).prefers_another_order is expected


def test_the_standard_error_is_that_of_a_mean_of_recalls():
    y = np.repeat([0, 1, -1], [40, 160, 7])
    found = agreement(rows_read_as(np.maximum(y, 0), np.maximum(y, 0)), TEXT, y)
    assert found.error == pytest.approx(np.sqrt(0.25 / 40 + 0.25 / 160) / 2)
    assert (found.rows, found.chance, found.given) == (200, 0.5, 1.0)


@pytest.mark.parametrize(("lead", "refused"), [(0.25, True), (0.15, False), (0.35, True)])
def test_swapped_prompts_are_refused_where_text_leads_on_the_sensitive_values_by_a_fifth(lead, refused):
    s = np.arange(400) % 2
    y = wrong(s, lead)
    given = rows_read_as(s, y), TEXT, y, SENSITIVE_TEXT, s
    if refused:
        with pytest.raises(PromptError):
            check_swapped(*given, depth=1)
    else:
        check_swapped(*given, depth=1)


@pytest.mark.parametrize(
    ("rows", "lead", "warned"),
    [(5000, 0.06, True), (5000, 0.04, False), (400, 0.1, True), (400, 0.07, False), (16, 0.5, False)],
)
def test_swapped_prompts_are_a_warning_from_a_lead_of_five_points_and_three_errors_on(rows, lead, warned):
    y = np.repeat([0, 1], rows // 2)  # three standard errors are 0.075 for 400 rows, and 0.02 for 5000
    X = rows_read_as(wrong(y, 0.3 + lead), wrong(y, 0.3))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_swapped(X, TEXT, y, SENSITIVE_TEXT, None, depth=1)
    assert [w.category for w in caught] == [SwappedPromptsWarning] * warned
