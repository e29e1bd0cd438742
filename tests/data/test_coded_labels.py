"""Labels as small codes: everything that takes labels gives the same for them as for text."""

import numpy as np
import pytest

from fairerclip.data.coded_labels import CodedLabels, count_pairs, cross_labels, smallest_type
from fairerclip.errors import LabelError
from fairerclip.inputs.encode import encode
from fairerclip.metrics import group_report

NAMES = ("male", "female", "unused")
CODES = np.array([1, 0, -1, 1, 1], dtype=np.int8)


def coded(codes=CODES, names=NAMES):
    return CodedLabels(codes, names)


@pytest.mark.parametrize("classes", [None, ["unused", "male", "female"]])
@pytest.mark.parametrize("missing", ["", "male"])
def test_codes_are_encoded_as_their_names(classes, missing):
    text = (
        np.where(np.asarray(coded()) == "", missing, np.asarray(coded())) if missing else np.asarray(coded())
    )
    expected = encode(text, missing_label=missing, classes=classes)
    found = encode(coded(), missing_label=missing, classes=classes)
    np.testing.assert_array_equal(found.codes, expected.codes)
    assert found.classes.tolist() == expected.classes.tolist()
    assert found.codes.dtype == expected.codes.dtype


def test_rows_comparisons_and_choices_are_those_of_text():
    text = np.asarray(coded())
    assert text.tolist() == ["female", "male", "", "female", "female"]
    np.testing.assert_array_equal(np.asarray(coded()[1:4]), text[1:4])
    for name in ("male", "", "absent", "unused"):
        np.testing.assert_array_equal(coded() == name, text == name)
        np.testing.assert_array_equal(coded() != name, text != name)
    assert np.asarray(coded().only(["female"])).tolist() == ["female", "", "", "female", "female"]
    assert coded().present() == ["female", "male"]


def test_combinations_and_counts_are_those_of_text():
    other = CodedLabels(np.array([0, 1, 1, -1, 0]), ("x", "y"))
    assert np.asarray(cross_labels([coded(), other])).tolist() == [
        "female, x",
        "male, y",
        "",
        "",
        "female, x",
    ]
    assert count_pairs(coded(), other) == count_pairs(np.asarray(coded()), np.asarray(other))
    wide = CodedLabels(np.array([99] * 5, dtype=np.int8), tuple(f"n{k}" for k in range(100)))
    assert np.asarray(cross_labels([wide, other]))[0] == "n99, x"  # 200 combinations do not fit in a byte


def test_a_report_of_codes_is_that_of_text():
    y, p, s = (CodedLabels(np.array(c), ("a", "b")) for c in ([0, 1, 1, -1], [0, 0, 1, 0], [0, 1, 0, 1]))
    found = group_report(y, p, s, missing="", positive="b")
    expected = group_report(*map(np.asarray, (y, p, s)), missing="", positive="b")
    assert found.as_dict() == expected.as_dict()


def test_codes_that_name_nothing_are_refused():
    for codes, names, words in (
        (np.array([3]), NAMES, "codes from -1 to 2"),
        (np.array([-2]), NAMES, "codes from -1 to 2"),
        (np.array([0.0]), NAMES, "of integers"),
        (np.array([0]), ("a", "a"), "distinct"),
        (np.array([0]), ("",), "not empty"),
    ):
        with pytest.raises(LabelError, match=words):
            CodedLabels(codes, names)
    assert [smallest_type(n).itemsize for n in (127, 128, 32767, 32768)] == [1, 2, 2, 4]
