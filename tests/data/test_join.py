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


def test_csv_with_a_byte_order_mark_quotes_and_blanks_is_read(tmp_path):
    text = 'image,caption,sex\r\n"a, b.jpg","said ""no""\nand left",f\r\nc.jpg,,\r\n\r\nd.jpg,x,m\r\n'
    result = read_labels(table(tmp_path, text, encoding="utf-8-sig"), id_column="image", columns=["sex"])
    assert result.ids.tolist() == ["a, b.jpg", "c.jpg", "d.jpg"]
    assert result.columns["sex"].names == ("f", "m")
    assert result.columns["sex"].codes.tolist() == [0, -1, 1]


def test_long_tables_are_read_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("fairerclip.data.label_table._BLOCK", 7)
    text = "id,y\n" + "".join(f"{i},{i % 3}\n" for i in range(50))
    result = read_labels(table(tmp_path, text), id_column="id", columns=["y"])
    assert result.ids.tolist() == [str(i) for i in range(50)]
    assert result.columns["y"].codes.tolist() == [i % 3 for i in range(50)]


@pytest.mark.parametrize("n", [1, 2, 1000])
def test_hashes_that_agree_in_their_high_bits_are_sorted_too(n):
    hashes = np.random.default_rng(n).integers(2**6, size=n, dtype=np.uint64)
    order, ordered = sort_hashes(hashes)
    np.testing.assert_array_equal(ordered, np.sort(hashes))
    np.testing.assert_array_equal(hashes[order], ordered)
    assert sorted(order) == list(range(n))


@pytest.mark.parametrize(
    ("left", "right", "fact"),
    [
        (list("aab"), list("ab"), "embeddings"),
        (list("ab"), list("abb"), "labels"),
        (["img/a.jpg", "zz"], ["a.jpg", "yy"], "directories"),
        (["a.jpg", "zz"], ["a", "yy"], "endings"),
        (["A.jpg", "zz"], ["a.jpg ", "yy"], "lower case"),
        (None, ["a"], "position"),
        ([0.5], ["a"], "strings"),
    ],
)
def test_ids_that_are_repeated_or_match_nothing_are_refused(left, right, fact):
    with pytest.raises(JoinError, match=fact):
        join(left, right)


def test_names_are_sorted_and_numbers_are_in_the_order_of_numbers(tmp_path):
    text = "i\tage\tcity\n1\t10\tb\n2\t9\tA\n3\t-1\tb\n4\t9\tc\n"
    result = read_labels(table(tmp_path, text, "x.tsv"), id_column="i", columns=["age", "city"])
    assert result.columns["age"].names == ("-1", "9", "10")
    assert result.columns["age"].codes.tolist() == [2, 1, 0, 1]
    assert result.columns["city"].names == ("A", "b", "c")


def test_parquet_labels_equal_csv_labels(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    sex = pa.array(["m", None, "f"]).dictionary_encode()
    pq.write_table(pa.table({"id": [3, 1, 2], "sex": sex, "x": [0.1, 0.2, 0.3]}), tmp_path / "l.parquet")
    one = read_labels(tmp_path / "l.parquet", id_column="id", columns=["sex"])
    two = read_labels(table(tmp_path, "id,sex\n3,m\n1,\n2,f\n"), id_column="id", columns=["sex"])
    assert one.ids.tolist() == two.ids.tolist()
    assert one.columns["sex"].codes.tolist() == two.columns["sex"].codes.tolist() == [1, -1, 0]
    for column in ("x", "Sex"):
        with pytest.raises(JoinError, match=f"'{column}'"):
            read_labels(tmp_path / "l.parquet", id_column="id", columns=[column])


@pytest.mark.parametrize(
    ("text", "error", "fact"),
    [
        ("", JoinError, "columns"),
        ("id,y\n", JoinError, "none"),
        ("id,yy\n1,a\n", JoinError, "'yy'"),
        ("id,y\n1,2,3\n", JoinError, "line 2"),
        ("id,y,y\n1,2,3\n", JoinError, "2 times"),
        ("id,y\n,a\n", JoinError, "row 0"),
        ('id,y\n1,"a\n', JoinError, "line 2"),
        ("id,y\n\udce9,a\n", JoinError, "UTF-8"),
        ("id,y\n1,cat\n2,cat\n", LabelError, "'cat'"),
        ("id,y\n1,\n2,\n", LabelError, "missing"),
        ("id,y\n" + "".join(f"{i},{i / 7}\n" for i in range(10_050)), LabelError, "quantity"),
    ],
)
def test_tables_that_cannot_be_used_are_refused(tmp_path, text, error, fact):
    (tmp_path / "labels.csv").write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(error, match=fact):
        read_labels(tmp_path / "labels.csv", id_column="id", columns=["y"])


def test_a_label_of_one_value_may_be_allowed_and_other_files_are_refused(tmp_path):
    file = table(tmp_path, "id,y\n1,cat\n2,cat\n")
    assert read_labels(file, id_column="id", columns=["y"], allow_constant=["y"]).columns["y"].names == (
        "cat",
    )
    for name in ("none.csv", "x.xlsx"):
        with pytest.raises(JoinError, match=name.split(".")[1]):
            read_labels(tmp_path / name, id_column="id", columns=["y"])
