from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairerclip.data.hashing import sort_hashes
from fairerclip.data.join import join
from fairerclip.data.label_table import read_labels
from fairerclip.errors import JoinError, LabelError


def table(tmp_path, text, name="labels.csv", encoding="utf-8"):
    file = tmp_path / name
    file.write_text(text, encoding=encoding)
    return file


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.text(min_size=1), unique=True),
    st.lists(st.text(min_size=1), unique=True),
    st.text(min_size=1),
)
def test_join_equals_a_dictionary(left, right, common):
    left, right = ([i for i in side if not i.endswith("\0")] for side in (left, right))
    common = common.rstrip("\0") or "x"
    left, right = (list(dict.fromkeys([*side, common])) for side in (left, right))
    place = {name: i for i, name in enumerate(right)}
    result = join(left, right)
    assert result.rows_in_labels.tolist() == [place.get(name, -1) for name in left]
    assert result.unmatched_embeddings == len(set(left) - set(right))
    assert result.unmatched_labels == len(set(right) - set(left))


def test_what_has_no_partner_is_counted_and_named():
    result = join([f"{i}" for i in range(10)], [f"{i}" for i in range(8, 30)])
    assert (result.matched, result.unmatched_embeddings, result.unmatched_labels) == (2, 8, 20)
    assert result.first_embeddings == ("0", "1", "2", "3", "4")
    assert result.first_labels == ("10", "11", "12", "13", "14")
    assert result.lines()[1] == "8 embeddings have no label: 0, 1, 2, 3, 4, …."


@pytest.mark.parametrize(("left", "right", "side"), [("aab", "ab", "embeddings"), ("ab", "abb", "labels")])
def test_repeated_ids_are_named(left, right, side):
    with pytest.raises(JoinError, match=rf"1 ids of the {side} are given more than once: '[ab]'"):
        join(list(left), list(right))


@pytest.mark.parametrize("n", [1, 2, 3, 1000])
def test_hashes_that_agree_in_their_high_bits_are_sorted_too(n):
    hashes = np.random.default_rng(n).integers(2**6, size=n, dtype=np.uint64)
    order, ordered = sort_hashes(hashes)
    np.testing.assert_array_equal(ordered, np.sort(hashes))
    np.testing.assert_array_equal(hashes[order], ordered)
    assert sorted(order) == list(range(n))


def test_ids_that_share_a_hash_are_told_apart(monkeypatch):
    draws = []

    def weak_then_good(width, rng):
        draws.append(width)
        return (
            np.ones(width, np.uint64) if len(draws) == 1 else rng.integers(2**63, size=width, dtype=np.uint64)
        )

    monkeypatch.setattr(sys.modules["fairerclip.data.join"], "random_keys", weak_then_good)
    assert join(["ab", "xy"], ["ba", "xy"]).rows_in_labels.tolist() == [-1, 1]
    assert len(draws) == 2


@pytest.mark.parametrize(
    ("left", "right", "words"),
    [
        ("img/a.jpg", "a.jpg", "without their directories"),
        ("a.jpg", "a", "without their file endings"),
        ("C:\\x\\a.jpg", "y/a.png", "without directories and file endings"),
        ("A.jpg", "a.jpg ", "lower case"),
        ("a", "b", "check that both"),
    ],
)
def test_when_nothing_matches_the_message_says_what_would(left, right, words):
    with pytest.raises(JoinError, match=words) as caught:
        join([left, "zz"], [right, "yy"])
    assert repr(left) in str(caught.value)
    assert repr(right) in str(caught.value)


def test_rows_without_ids_are_never_joined_by_position():
    with pytest.raises(JoinError, match="not joined by position"):
        join(None, ["a"])
    with pytest.raises(JoinError, match="strings"):
        join([0.5], ["a"])


def test_csv_with_a_byte_order_mark_quotes_and_blanks_is_read(tmp_path):
    text = 'image,caption,sex\r\n"a, b.jpg","said ""no""\nand left",f\r\nc.jpg,,\r\n\r\nd.jpg,x,m\r\n'
    result = read_labels(table(tmp_path, text, encoding="utf-8-sig"), id_column="image", columns=["sex"])
    assert result.ids.tolist() == ["a, b.jpg", "c.jpg", "d.jpg"]
    assert result.columns["sex"].names == ("f", "m")
    assert result.columns["sex"].codes.tolist() == [0, -1, 1]


def test_names_are_sorted_and_numbers_are_in_the_order_of_numbers(tmp_path):
    text = "i\tage\tcity\n1\t10\tb\n2\t9\tA\n3\t-1\tb\n4\t9\tc\n"
    result = read_labels(table(tmp_path, text, "x.tsv"), id_column="i", columns=["age", "city"])
    assert result.columns["age"].names == ("-1", "9", "10")
    assert result.columns["age"].codes.tolist() == [2, 1, 0, 1]
    assert result.columns["city"].names == ("A", "b", "c")


def test_long_tables_are_read_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("fairerclip.data.label_table._BLOCK", 7)
    text = "id,y\n" + "".join(f"{i},{i % 3}\n" for i in range(50))
    result = read_labels(table(tmp_path, text), id_column="id", columns=["y"])
    assert result.ids.tolist() == [str(i) for i in range(50)]
    assert result.columns["y"].codes.tolist() == [i % 3 for i in range(50)]


def test_parquet_labels_equal_csv_labels(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(
        pa.table(
            {"id": [3, 1, 2], "sex": pa.array(["m", None, "f"]).dictionary_encode(), "x": [0.1, 0.2, 0.3]}
        ),
        tmp_path / "l.parquet",
    )
    one = read_labels(tmp_path / "l.parquet", id_column="id", columns=["sex"])
    two = read_labels(table(tmp_path, "id,sex\n3,m\n1,\n2,f\n"), id_column="id", columns=["sex"])
    assert one.ids.tolist() == two.ids.tolist()
    assert one.columns["sex"].codes.tolist() == two.columns["sex"].codes.tolist() == [1, -1, 0]
    with pytest.raises(JoinError, match="'x' to hold text or integers"):
        read_labels(tmp_path / "l.parquet", id_column="id", columns=["x"])
    with pytest.raises(JoinError, match="did you mean 'sex'"):
        read_labels(tmp_path / "l.parquet", id_column="id", columns=["Sex"])


def test_an_unknown_column_is_answered_with_the_nearest_and_the_list(tmp_path):
    with pytest.raises(JoinError, match=r"no column 'gendr'; did you mean 'gender'\? It has: id, gender"):
        read_labels(table(tmp_path, "id,gender\n1,f\n"), id_column="id", columns=["gendr"])


def test_a_label_of_one_value_is_refused_unless_allowed(tmp_path):
    file = table(tmp_path, "id,y,z\n1,cat,\n2,cat,\n")
    with pytest.raises(LabelError, match="'cat' only"):
        read_labels(file, id_column="id", columns=["y"])
    with pytest.raises(LabelError, match="missing values only"):
        read_labels(file, id_column="id", columns=["z"], allow_constant=["z"])
    assert read_labels(file, id_column="id", columns=["y"], allow_constant=["y"]).columns["y"].names == (
        "cat",
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no columns"),
        ("id,y\n", "found none"),
        ("id,y\n1,2,3\n", "line 2: expected 2 fields"),
        ("id,y,y\n1,2,3\n", "2 times"),
        ("id,y\n,a\n", "row 0 has none"),
        ('id,y\n1,"a\n', "line 2: expected a table"),
    ],
)
def test_tables_that_cannot_be_used_say_why(tmp_path, text, words):
    with pytest.raises(JoinError, match=words):
        read_labels(table(tmp_path, text), id_column="id", columns=["y"])


def test_tables_that_are_absent_not_utf8_or_of_another_kind_are_refused(tmp_path):
    with pytest.raises(JoinError, match="found nothing"):
        read_labels(tmp_path / "none.csv", id_column="id", columns=["y"])
    (tmp_path / "latin.csv").write_bytes(b"id,y\n\xe9,a\n")
    with pytest.raises(JoinError, match="UTF-8"):
        read_labels(tmp_path / "latin.csv", id_column="id", columns=["y"])
    with pytest.raises(JoinError, match=".xlsx"):
        read_labels(tmp_path / "x.xlsx", id_column="id", columns=["y"])


def test_a_quantity_is_not_taken_for_a_category(tmp_path):
    text = "id,y\n" + "".join(f"{i},{i / 7}\n" for i in range(10_050))
    with pytest.raises(LabelError, match="divide a quantity into bins"):
        read_labels(table(tmp_path, text), id_column="id", columns=["y"])
