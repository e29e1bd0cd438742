"""Labels as small codes: everything that takes labels gives the same for them as for text."""

import numpy as np
import pytest

from fairerclip.data.coded_labels import CodedLabels, count_pairs, cross_labels, smallest_type
from fairerclip.errors import LabelError
from fairerclip.inputs.encode import encode
from fairerclip.metrics import group_report

NAMES = ("male", "female", "unused")
CODED = CodedLabels(np.array([1, 0, -1, 1, 1], dtype=np.int8), NAMES)
TEXT = np.array(["female", "male", "", "female", "female"])


@pytest.mark.parametrize("classes", [None, ["unused", "male", "female"]])
@pytest.mark.parametrize("missing", ["", "male"])
def test_codes_are_encoded_as_their_names(classes, missing):
    expected = encode(np.where(TEXT == "", missing, TEXT), missing_label=missing, classes=classes)
    found = encode(CODED, missing_label=missing, classes=classes)
    np.testing.assert_array_equal(found.codes, expected.codes)
    assert found.classes.tolist() == expected.classes.tolist()
    assert found.codes.dtype == expected.codes.dtype


def test_rows_comparisons_and_combinations_are_those_of_text():
    for rows in (slice(None), slice(1, 4)):
        np.testing.assert_array_equal(np.asarray(CODED[rows]), TEXT[rows])
    for name in ("male", "", "absent", "unused"):
        np.testing.assert_array_equal(CODED == name, TEXT == name)
        np.testing.assert_array_equal(CODED != name, TEXT != name)
    assert np.asarray(CODED.only(["female"])).tolist() == ["female", "", "", "female", "female"]
    assert CODED.present() == ["female", "male"]
    other = CodedLabels(np.array([0, 1, 1, -1, 0]), ("x", "y"))
    crossed = np.asarray(cross_labels([CODED, other]))
    assert crossed.tolist() == ["female, x", "male, y", "", "", "female, x"]
    assert count_pairs(CODED, other) == count_pairs(TEXT, np.asarray(other))
    wide = CodedLabels(np.array([99] * 5, dtype=np.int8), tuple(f"n{k}" for k in range(100)))
    assert np.asarray(cross_labels([wide, other]))[0] == "n99, x"  # 200 combinations do not fit in a byte
    assert [smallest_type(n).itemsize for n in (127, 128, 32767, 32768)] == [1, 2, 2, 4]


def test_a_report_of_codes_is_that_of_text():
    y, p, s = (CodedLabels(np.array(c), ("a", "b")) for c in ([0, 1, 1, -1], [0, 0, 1, 0], [0, 1, 0, 1]))
    found = group_report(y, p, s, missing="", positive="b")
    expected = group_report(*map(np.asarray, (y, p, s)), missing="", positive="b")
    assert found.as_dict() == expected.as_dict()


@pytest.mark.parametrize(
    ("codes", "names"), [([3], NAMES), ([-2], NAMES), ([0.0], NAMES), ([0], ("a", "a")), ([0], ("",))]
)
def test_codes_that_name_nothing_are_refused(codes, names):
    with pytest.raises(LabelError):
        CodedLabels(np.array(codes), names)
