"""Hostile files, one per idea, and what it costs to refuse them.

``python tests/hostile/abuse.py [NAME…]`` (``make abuse``) makes each file, lets its reader read it in a process of its
own with a gigabyte more address space than the imported package has, and prints seconds, megabytes and the answer. It
exits with 1 where something other than a `FairerClipError` came, or one second or 200 MB were not enough. With
``--json`` the answers are a document. Needs Linux.
"""

from __future__ import annotations

import json
import os
import resource
import struct
import sys
import tempfile
import time
import warnings
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fuzz import HEADROOM, MEGABYTES, SECONDS, address_space, peak, resident
from readers import IDS, READERS, ROWS, Reader, small_task

PATIENCE = 30
"""Seconds after which a reader is stopped."""


@dataclass(frozen=True)
class Case:
    """A hostile file: whose reader meets it, how it is made in a folder with a good input, whether it may be taken.

    ``harmless`` marks what need not be refused, as long as it costs no more than the limits.
    """

    reader: str
    make: Callable[[Path], Any]
    harmless: bool = False


CASES: dict[str, Case] = {}


def case(reader: str, *, harmless: bool = False) -> Callable[[Callable[[Path], Any]], Callable[[Path], Any]]:
    """Register a maker: it is given the path of the file that comes from somebody else, a good one at first."""

    def keep(make: Callable[[Path], Any]) -> Callable[[Path], Any]:
        name = f"{make.__name__.strip('_')}"
        assert name not in CASES, name
        CASES[name] = Case(reader, make, harmless)
        return make

    return keep


def sparse(file: Path, size: int, head: bytes = b"") -> None:
    """A file that is all zeros behind its head and takes no room on the disk."""
    with file.open("wb") as handle:
        handle.write(head)
        handle.truncate(size)


def tensors(file: Path, header: Any, data: bytes = b"", size: int | None = None) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    content = len(text).to_bytes(8, "little") + text + data
    file.write_bytes(content) if size is None else sparse(file, size, content)


def npy(
    descr: str,
    shape: str,
    data: bytes = b"",
    *,
    fortran: bool = False,
    version: int = 1,
    declared: int | None = None,
) -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    length = len(text) if declared is None else declared
    return (
        b"\x93NUMPY"
        + bytes([version, 0])
        + (struct.pack("<H", length & 0xFFFF) if version == 1 else struct.pack("<I", length))
        + text
        + data
    )


# Text that is short in a file and wide in an array.


@case("labels-csv")
def csv_with_one_long_id(file: Path) -> None:
    rows = "".join(f"{i},a,x\n" for i in range(20_000))
    file.write_text(f"id,label,place\n{'x' * 100_000},b,y\n{rows}")


@case("labels-csv")
def csv_whose_ids_differ_much_in_length(file: Path) -> None:
    rows = "".join(f"{i},a,x\n" for i in range(20_000))
    file.write_text(f"id,label,place\n{'x' * 4000},b,y\n{rows}")


def parquet_text(file: Path, values: Any, **more: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": values, **more}), file, compression="zstd")


@case("labels-parquet")
def parquet_with_one_long_id(file: Path) -> None:
    n = 20_000
    names = [f"{i}" for i in range(n - 1)] + ["x" * 2_500_000]
    parquet_text(file, names, label=["a", "b"] * (n // 2), place=["x", "y"] * (n // 2))


@case("labels-parquet")
def parquet_that_repeats_a_long_text(file: Path) -> None:
    import pyarrow as pa

    n = 3_000_000
    long = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, dtype=np.int32)), ["x" * 1000])
    parquet_text(file, long, label=long, place=long)


@case("store-parquet")
def parquet_store_that_repeats_a_long_id(file: Path) -> None:
    import pyarrow as pa

    n = 100_000
    long = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, dtype=np.int32)), ["x" * 4000])
    rows = pa.FixedSizeListArray.from_arrays(pa.array(np.ones(n, dtype=np.float32)), 1)
    parquet_text(file, long, embedding=rows)


@case("labels-parquet")
def parquet_whose_page_is_a_bomb(file: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    long = pa.array(["\0" * 1_000_000] * 80)
    table = pa.table({"id": long, "label": long, "place": long})
    pq.write_table(table, file, compression="zstd", use_dictionary=False, data_page_size=1 << 30)


@case("store-parquet")
def parquet_with_a_column_twice(file: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pa.array(list(ROWS))
    pq.write_table(pa.Table.from_arrays([rows, rows, pa.array(IDS)], ["embedding", "embedding", "id"]), file)


@case("store-parquet")
def parquet_with_its_ids_twice(file: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(
        pa.Table.from_arrays([pa.array(list(ROWS)), pa.array(IDS), pa.array(IDS)], ["embedding", "id", "id"]),
        file,
    )


@case("store-parquet")
def parquet_with_many_zero_embeddings(file: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    n, p = 20_000, 512
    flat = pa.array(np.zeros(n * p, dtype=np.float32))
    pq.write_table(
        pa.table({"embedding": pa.FixedSizeListArray.from_arrays(flat, p)}), file, compression="zstd"
    )


@case("task-safetensors")
def safetensors_with_one_long_id(file: Path) -> None:
    ids = json.dumps([*map(str, range(60_000)), "x" * 200_000])
    tensors(file, {"__metadata__": {"ids_train": ids}})


@case("store-safetensors")
def safetensors_store_with_one_long_id(file: Path) -> None:
    ids = json.dumps([*map(str, range(60_000)), "x" * 200_000])
    tensors(
        file,
        {
            "__metadata__": {"ids": ids},
            "x": {"dtype": "F32", "shape": [60_001, 1], "data_offsets": [0, 240_004]},
        },
        b"\0" * 240_004,
    )


@case("store-ids")
def ids_of_a_shard_with_a_long_one(file: Path) -> None:
    file.write_text(
        "".join(json.dumps(str(i)) + "\n" for i in range(100_000)) + json.dumps("x" * 20_000) + "\n"
    )


@case("store-ids")
def ids_of_a_shard_without_a_line_end(file: Path) -> None:
    sparse(file, 6 << 30)


@case("waterbirds")
def list_of_images_with_one_long_path(file: Path) -> None:
    rows = "".join(f"{i},b/{i}.jpg,0,0,0,p\n" for i in range(100_000))
    file.write_text(f"img_id,img_filename,y,split,place,place_filename\n0,{'x' * 100_000},0,0,0,p\n{rows}")


@case("store-ids")
def ids_of_a_shard_that_are_empty(file: Path) -> None:
    file.write_text('""\n' * 5_000_000)


@case("store-skipped", harmless=True)
def many_skipped_lines(file: Path) -> None:
    file.write_text("".join(f'{{"id": "{i}", "reason": "no image"}}\n' for i in range(100_000)))


@case("labels-parquet")
def parquet_of_millions_of_equal_rows(file: Path) -> None:
    import pyarrow as pa

    n = 2_000_000
    short = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, dtype=np.int32)), ["x"])
    parquet_text(file, short, label=short, place=short)


@case("store-parquet")
def parquet_of_wide_zero_embeddings(file: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows, width = 4096, 10_000
    flat = pa.array(np.zeros(rows * width, dtype=np.float32))
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * width)
    pq.write_table(pa.table({"embedding": pa.ListArray.from_arrays(offsets, flat)}), file, compression="zstd")


# Small files that take long.


@case("task-safetensors")
def two_names_that_difflib_compares(file: Path) -> None:
    tensors(
        file,
        {
            "__metadata__": {
                "sensitive_names_" + "ab" * 50_000: '["a"]',
                "image_trane" + "ba" * 50_000: '["a"]',
            }
        },
    )


@case("labels-csv")
def a_long_column_name(file: Path) -> None:
    file.write_text("id" + "ab" * 50_000 + ",lab" + "el" * 50_000 + "\n1,2\n")


@case("task-safetensors")
def many_keys_of_metadata(file: Path) -> None:
    tensors(file, {"__metadata__": {f"sensitive_names_{i}": '["a"]' for i in range(120_000)}})


@case("task-npz")
def many_arrays_that_look_like_others(file: Path) -> None:
    from fairerclip.data.io.npz import write_npz

    names = [f"sensitive_names_{'ab' * 40}{i}" for i in range(125)] + [
        f"sensitive_namex_{'ab' * 40}{i}" for i in range(125)
    ]
    write_npz(file, {name: np.array(["a"]) for name in names}, overwrite=True)


@case("prompts-toml")
def toml_with_nested_tables_in_quotes(file: Path) -> None:
    file.write_text('"a" . ' * 17_000 + '"a" = 1\n')


@case("prompts-json", harmless=True)
def prompts_with_many_counterfactuals(file: Path) -> None:
    from readers import PROMPTS

    names = [f"class {i}" for i in range(20_000)]
    entries = [
        {"class": names[-1], "sensitive": {"place": "home"}, "prompt": f"p {i}"} for i in range(20_000)
    ]
    file.write_text(
        json.dumps(
            PROMPTS | {"classes": {name: [name] for name in names}, "counterfactual": entries, "pairs": []}
        )
    )


@case("prompts-json")
def names_times_templates(file: Path) -> None:
    from readers import PROMPTS

    names, templates = [f"n {i}" for i in range(300)], [f"{i} {{}} " + "x" * 1900 for i in range(300)]
    file.write_text(
        json.dumps(
            PROMPTS | {"classes": {f"class {c}": {"names": names, "templates": templates} for c in range(6)}}
        )
    )


@case("prompts-json")
def names_times_templates_of_many_attributes(file: Path) -> None:
    from readers import PROMPTS

    names, templates = [f"n {i}" for i in range(90)], [f"{i} {{}} " + "x" * 40 for i in range(80)]
    values = {"a": {"names": names, "templates": templates}}
    file.write_text(
        json.dumps(PROMPTS | {"sensitive": {f"s{k}": values for k in range(60)}, "counterfactual": []})
    )


# Small files that take much memory.


@case("safetensors")
def header_of_empty_lists(file: Path) -> None:
    tensors(file, b"[" + b"[]," * 12_000_000 + b"[]]")


@case("task-safetensors")
def header_of_empty_lists_within_the_limit(file: Path) -> None:
    tensors(file, b"[" + b"[]," * 5_000_000 + b"[]]")


@case("task-safetensors")
def ids_of_two_letters(file: Path) -> None:
    tensors(file, {"__metadata__": {"ids_train": json.dumps([f"{i % 1000}" for i in range(1_500_000)])}})


@case("results")
def results_of_empty_lists(file: Path) -> None:
    file.write_text('{"format": "fairerclip-results", "version": 1, "x": [' + "[]," * 5_000_000 + "[]]}")


@case("results")
def results_of_small_tables(file: Path) -> None:
    file.write_text('{"format": "fairerclip-results", "version": 1, "x": [' + '{"a":{}},' * 99_000 + "1]}")


@case("results")
def results_that_never_end(file: Path) -> None:
    sparse(file, 33 << 30)


@case("results")
def results_of_deep_lists(file: Path) -> None:
    file.write_text("[" * 1_000_000)


@case("results")
def results_that_describe_a_huge_plane(file: Path) -> None:
    document = json.loads(file.read_text())
    document["plane"] |= {"taus": [0.5] * 700, "tau_zs": [0.5] * 700, "criteria": ["marginal"] * 700}
    file.write_text(json.dumps(document))


@case("store-manifest")
def manifest_of_a_store_that_never_ends(file: Path) -> None:
    sparse(file, 6 << 30)


@case("store-skipped")
def skipped_lines_that_never_end(file: Path) -> None:
    sparse(file, 6 << 30)


@case("store-resumed")
def skipped_lines_that_never_end_taken_up_again(file: Path) -> None:
    sparse(file, 6 << 30)


@case("store-skipped")
def a_skipped_line_without_a_reason(file: Path) -> None:
    file.write_text('{"id": "a"}\n')


@case("store-skipped")
def a_skipped_line_that_is_a_list(file: Path) -> None:
    file.write_text("[1]\n")


@case("ids-txt")
def ids_that_never_end(file: Path) -> None:
    sparse(file, 6 << 30, b"a\n")


@case("ids-txt")
def more_ids_than_rows(file: Path) -> None:
    file.write_text("a\n" * 20_000_000)


@case("ids-json")
def ids_of_empty_lists(file: Path) -> None:
    file.write_text("[" + "[]," * 5_000_000 + "[]]")


@case("labels-csv")
def table_that_never_ends(file: Path) -> None:
    sparse(file, 6 << 30, b"id,label,place\n")


@case("labels-csv")
def table_with_an_open_quote(file: Path) -> None:
    file.write_text('id,label,place\n"' + "a,b,c\n" * 2_000_000)


@case("labels-csv")
def table_of_quoted_line_ends(file: Path) -> None:
    file.write_text("id,label,place\n" + '"\n",' * 4_000_000)


@case("labels-csv")
def table_of_many_columns(file: Path) -> None:
    file.write_text("," * 5_000_000)


@case("celeba-attributes")
def list_of_celebrities_that_never_ends(file: Path) -> None:
    sparse(file, 1 << 30)


@case("celeba-attributes")
def count_of_5000_digits(file: Path) -> None:
    file.write_text("9" * 5000 + "\nBlond_Hair Male\n000001.jpg 1 1\n")


@case("celeba-partition")
def list_of_parts_in_five_million_lines(file: Path) -> None:
    file.write_text("a 1\n" * 5_000_000)


@case("image-list")
def list_of_images_that_never_ends(file: Path) -> None:
    sparse(file, 6 << 30)


@case("image-list")
def list_of_one_image_over_and_over(file: Path) -> None:
    file.write_text("a\n" * 2_000_000)


@case("image-table")
def table_of_one_image_over_and_over(file: Path) -> None:
    file.write_text("id,path\n" + "a,b\n" * 1_900_000)


@case("image-list")
def list_of_three_million_images(file: Path) -> None:
    file.write_text("".join(f"{i:x}\n" for i in range(3_000_000)))


@case("image-table")
def table_of_two_million_images(file: Path) -> None:
    file.write_text("id,path\n" + "".join(f"b,{i:x}\n" for i in range(2_000_000)))


@case("image-table")
def table_of_images_that_never_ends(file: Path) -> None:
    sparse(file, 6 << 30)


@case("prompts-json")
def prompts_that_never_end(file: Path) -> None:
    sparse(file, 6 << 30)


@case("templates")
def templates_that_never_end(file: Path) -> None:
    sparse(file, 6 << 30)


@case("preprocessing")
def preprocessing_that_never_ends(file: Path) -> None:
    sparse(file, 6 << 30)


@case("model-manifest")
def manifest_of_a_model_that_never_ends(file: Path) -> None:
    sparse(file, 6 << 30)


@case("model-tensors")
def tensors_of_a_model_that_never_end(file: Path) -> None:
    sparse(file, 7 << 30)


@case("model-tensors")
def tensors_of_a_model_of_another_size(file: Path) -> None:
    size = 7 << 30
    header = {"components_": {"dtype": "F64", "shape": [size // 8], "data_offsets": [0, size]}}
    tensors(file, header, size=size + 8 + len(json.dumps(header)))


@case("baseline-tensors")
def tensors_of_a_baseline_that_never_end(file: Path) -> None:
    sparse(file, 7 << 30)


@case("baseline-tensors")
def tensors_of_a_baseline_of_another_size(file: Path) -> None:
    size = 7 << 30
    header = {"weights": {"dtype": "F64", "shape": [size // 8], "data_offsets": [0, size]}}
    tensors(file, header, size=size + 8 + len(json.dumps(header)))


@case("mitigator-manifest")
def manifest_of_a_mitigator_that_never_ends(file: Path) -> None:
    sparse(file, 6 << 30)


@case("mitigator-tensors")
def tensors_of_a_mitigator_that_never_end(file: Path) -> None:
    sparse(file, 7 << 30)


@case("mitigator-tensors")
def tensors_of_a_mitigator_of_another_size(file: Path) -> None:
    size = 7 << 30
    header = {"covariance": {"dtype": "F64", "shape": [size // 8], "data_offsets": [0, size]}}
    tensors(file, header, size=size + 8 + len(json.dumps(header)))


@case("model-manifest")
def manifest_of_a_model_that_is_nested_without_end(file: Path) -> None:
    file.write_bytes(b'{"diagnostics": ' * 60_000)


@case("model-manifest")
def manifest_of_a_model_of_two_million_lists(file: Path) -> None:
    file.write_bytes(b"[" + b"[]," * 690_000 + b"[]]")


@case("model-manifest")
def manifest_of_a_model_that_is_a_link(file: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


@case("model-tensors")
def tensors_of_a_model_that_are_a_link(file: Path) -> None:
    file.rename(file.with_name("other"))
    file.symlink_to("other")


@case("model-manifest")
def manifest_of_a_model_that_is_a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@case("model-tensors")
def tensors_of_a_model_that_are_a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@case("forged-model-tensors")
def tensors_of_a_model_that_overlap(file: Path) -> None:
    entry = {"dtype": "F64", "shape": [4], "data_offsets": [0, 32]}
    tensors(file, {"mean_": entry, "zero_": {**entry, "data_offsets": [16, 48]}}, b"\0" * 48)


@case("forged-model-tensors")
def tensors_of_a_model_of_a_shape_that_is_a_lie(file: Path) -> None:
    tensors(file, {"mean_": {"dtype": "F64", "shape": [1 << 40], "data_offsets": [0, 8]}}, b"\0" * 8)


@case("model-manifest", harmless=True)
def card_of_a_model_that_is_a_pipe(file: Path) -> None:
    file.with_name("README.md").unlink()
    os.mkfifo(file.with_name("README.md"))


# Archives.


def archive(file: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> None:
    with zipfile.ZipFile(file, "w", method) as out:
        for name, content in members.items():
            out.writestr(name, content)


@case("npz")
def npz_of_zeros(file: Path) -> None:
    array = npy("'<f4'", "(25000000,)")
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as out,
        out.open("x.npy", "w", force_zip64=True) as member,
    ):
        member.write(array)
        for _ in range(20):
            member.write(b"\0" * 5_000_000)


@case("npz")
def npz_whose_array_is_larger_than_the_file(file: Path) -> None:
    archive(file, {"x.npy": npy("'<f4'", "(1000000000, 512)")})


@case("npz")
def npz_with_a_path(file: Path) -> None:
    archive(file, {"../x.npy": npy("'<f4'", "(1,)", b"\0" * 4)})


@case("npz")
def npz_with_a_pickle(file: Path) -> None:
    archive(file, {"x.npy": npy("'|O'", "(1,)", b"cos\nsystem\n(S'true'\ntR.")})


@case("npz")
def npz_with_an_array_twice(file: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with zipfile.ZipFile(file, "w") as out:
            for _ in range(2):
                out.writestr("x.npy", npy("'<f4'", "(1,)", b"\0" * 4))


@case("npz")
def npz_of_a_later_zip_version(file: Path) -> None:
    archive(file, {"x.npy": npy("'<f4'", "(1,)", b"\0" * 4)})
    raw = bytearray(file.read_bytes())
    raw[raw.rfind(b"PK\x01\x02") + 6] = 99
    file.write_bytes(raw)


@case("apply-npz")
def npz_of_a_later_zip_version_applied(file: Path) -> None:
    npz_of_a_later_zip_version(file)


@case("npz")
def npz_with_a_long_directory(file: Path) -> None:
    archive(file, {f"{'n' * 200}{i}.npy": b"" for i in range(6_000)}, zipfile.ZIP_STORED)


@case("npz")
def npz_with_members_in_one_place(file: Path) -> None:
    archive(file, {f"{i:05d}.npy": npy("'<f4'", "(1000000,)", b"\0" * 4_000_000) for i in range(3)})
    raw = bytearray(file.read_bytes())
    at = 0
    while (at := raw.find(b"PK\x01\x02", at)) >= 0:
        raw[at + 42 : at + 46] = b"\0\0\0\0"
        at += 4
    file.write_bytes(raw)


@case("npz")
def npz_with_encryption(file: Path) -> None:
    archive(file, {"x.npy": npy("'<f4'", "(1,)", b"\0" * 4)}, zipfile.ZIP_STORED)
    raw = bytearray(file.read_bytes())
    raw[raw.rfind(b"PK\x01\x02") + 8] |= 1
    file.write_bytes(raw)


@case("npy")
def npy_whose_header_is_too_long(file: Path) -> None:
    file.write_bytes(npy("'<f4'", "(1,)", version=2, declared=2_000_000_000))


@case("npy")
def npy_that_is_larger_than_its_file(file: Path) -> None:
    file.write_bytes(npy("'<f4'", "(1000000000, 512)"))


@case("npy")
def npy_of_objects(file: Path) -> None:
    file.write_bytes(npy("'|O'", "(1,)", b"cos\nsystem\n(S'true'\ntR."))


@case("npy")
def npy_of_structures(file: Path) -> None:
    file.write_bytes(npy("[('a', '<f4')]", "(1,)", b"\0" * 4))


@case("npy")
def npy_with_a_shape_that_overflows(file: Path) -> None:
    file.write_bytes(npy("'<f4'", "(4294967296, 4294967296, 0)"))


@case("npy")
def npy_with_a_deep_header(file: Path) -> None:
    file.write_bytes(npy("(" * 3000 + ")" * 3000, "(1,)"))


@case("npy")
def npy_with_nothing_of_an_endless_type(file: Path) -> None:
    file.write_bytes(npy("'<U1000000000'", "(0,)"))


@case("store-npy", harmless=True)
def npy_in_fortran_order(file: Path) -> None:
    np.save(file, np.asfortranarray(ROWS))


@case("store-npy", harmless=True)
def npy_in_foreign_byte_order(file: Path) -> None:
    np.save(file, ROWS.astype(">f4"))


@case("store-npy", harmless=True)
def npy_of_20_gigabytes(file: Path) -> None:
    sparse(file, 128 + 4 * 1_000_000 * 5_000, npy("'<f4'", "(1000000, 5000)"))


# safetensors.


@case("safetensors")
def safetensors_with_overlap(file: Path) -> None:
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    tensors(file, {"a": entry, "b": entry}, b"\0" * 8)


@case("safetensors")
def safetensors_with_a_key_twice(file: Path) -> None:
    entry = '"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}'
    tensors(file, f"{{{entry}, {entry}}}".encode(), b"\0" * 4)


@case("safetensors")
def safetensors_whose_header_is_longer_than_the_file(file: Path) -> None:
    file.write_bytes((2**63).to_bytes(8, "little") + b"{}")


@case("safetensors")
def safetensors_whose_shape_overflows(file: Path) -> None:
    tensors(file, {"a": {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 0]}})


@case("safetensors")
def safetensors_with_nothing_of_an_endless_shape(file: Path) -> None:
    tensors(file, {"a": {"dtype": "F32", "shape": [0, 2**62], "data_offsets": [0, 0]}})


@case("safetensors")
def safetensors_with_an_unknown_type(file: Path) -> None:
    tensors(file, {"a": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}}, b"\0")


@case("safetensors")
def safetensors_with_bytes_behind(file: Path) -> None:
    tensors(file, {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"\0" * 9)


@case("safetensors")
def safetensors_whose_header_is_deep(file: Path) -> None:
    tensors(file, b'{"a":' * 100_000 + b"1" + b"}" * 100_000)


# Workbooks.


def workbook(file: Path, **parts: bytes) -> None:
    """A workbook with parts replaced; ``sheet`` is the first sheet, ``styles`` and ``strings`` are what they say."""
    names = {
        "sheet": "xl/worksheets/sheet1.xml",
        "styles": "xl/styles.xml",
        "strings": "xl/sharedStrings.xml",
    }
    with zipfile.ZipFile(file) as good:
        members = {name: good.read(name) for name in good.namelist()}
    archive(file, members | {names[key]: content for key, content in parts.items()})


SHEET = b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>%s</sheetData></worksheet>'


@case("cfd-xlsx")
def workbook_with_a_cell_in_its_last_corner(file: Path) -> None:
    workbook(file, sheet=SHEET % b'<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>')


@case("cfd-xlsx")
def workbook_with_wide_rows(file: Path) -> None:
    rows = b"".join(b'<row r="%d"><c r="XFD%d"><v>1</v></c></row>' % (i, i) for i in range(1, 20_000))
    workbook(file, sheet=SHEET % rows)


@case("cfd-xlsx")
def workbook_of_many_styles(file: Path) -> None:
    name = b'<styleSheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><fonts>%s</fonts></styleSheet>'
    workbook(file, styles=name % (b"<font/>" * 2_000_000))


@case("cfd-xlsx")
def workbook_of_many_texts(file: Path) -> None:
    name = b'<sst xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">%s</sst>'
    workbook(file, strings=name % (b"<si><t>ab</t></si>" * 1_000_000))


@case("cfd-xlsx")
def workbook_with_entities(file: Path) -> None:
    entities = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 9))
    body = (
        f'<!DOCTYPE x [<!ENTITY l0 "lol">{entities}]>'.encode()
        + SHEET % b'<row r="1"><c r="A1" t="str"><v>&l8;</v></c></row>'
    )
    workbook(file, sheet=body)


@case("cfd-xlsx")
def workbook_that_names_a_sheet_many_times(file: Path) -> None:
    with zipfile.ZipFile(file) as good:
        members = {name: good.read(name) for name in good.namelist()}
    one = members["xl/workbook.xml"]
    start, end = one.index(b"<sheet "), one.index(b"</sheets>")
    members["xl/workbook.xml"] = one[:start] + one[start:end] * 1000 + one[end:]
    archive(file, members)


# Images.


def png(width: int, height: int, data: bytes = b"") -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", data) + chunk(b"IEND", b"")


@case("image-png")
def picture_of_200_megapixels(file: Path) -> None:
    file.write_bytes(png(20_000, 10_000, zlib.compress(b"\0" * 10_000_000)))


@case("image-png")
def picture_of_two_billion_columns(file: Path) -> None:
    file.write_bytes(png(2**31 - 1, 1, zlib.compress(b"\0" * 1000)))


@case("image-png")
def picture_file_that_never_ends(file: Path) -> None:
    sparse(file, 6 << 30, png(8, 8)[:60])


def jpeg(edge: int, scans: int = 0, parts: bytes = b"") -> bytes:
    """A progressive picture whose last scan is repeated, with parts at its beginning."""
    import io

    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (edge, edge)).save(out, "JPEG", progressive=True)
    raw = out.getvalue()
    end = raw.rindex(b"\xff\xd9")
    return raw[:2] + parts + raw[2:end] + raw[raw.rindex(b"\xff\xda") : end] * scans + raw[end:]


@case("image-jpeg")
def picture_of_many_scans(file: Path) -> None:
    file.write_bytes(jpeg(3000, scans=200))


@case("image-jpeg")
def picture_of_many_comments(file: Path) -> None:
    file.write_bytes(jpeg(8, parts=b"\xff\xfe\x00\x02" * 3_000_000))


@case("image-tar", harmless=True)
def tar_that_never_ends(file: Path) -> None:
    sparse(file, 6 << 30)


@case("image-tar", harmless=True)
def tar_with_links_out(file: Path) -> None:
    import io
    import tarfile

    with tarfile.open(file, "w") as out:
        for name, kind, target in (
            ("a.png", tarfile.SYMTYPE, "/etc/passwd"),
            ("../b.png", tarfile.REGTYPE, ""),
            ("c.png", tarfile.LNKTYPE, "/etc/passwd"),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            out.addfile(member, io.BytesIO())


def tar_header(kind: bytes, size: int, name: str = "a.png") -> bytes:
    import tarfile

    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


@case("image-tar", harmless=True)
def tar_of_headers_of_headers(file: Path) -> None:
    file.write_bytes(3000 * (tar_header(b"L", 2) + b"a".ljust(512, b"\0")))


@case("image-tar", harmless=True)
def tar_with_a_name_of_six_gigabytes(file: Path) -> None:
    sparse(file, 7 << 30, tar_header(b"L", 6 << 30))


@case("image-tar", harmless=True)
def tar_with_attributes_of_six_gigabytes(file: Path) -> None:
    sparse(file, 7 << 30, tar_header(b"x", 6 << 30))


@case("image-tar", harmless=True)
def tar_with_attributes_of_digits(file: Path) -> None:
    file.write_bytes(tar_header(b"x", 1 << 20) + b"1" * (1 << 20))


@case("image-tar", harmless=True)
def tar_of_a_negative_size(file: Path) -> None:
    file.write_bytes(tar_header(b"0", 0, "a.txt") + tar_header(b"0", -512, "b.txt") + bytes(1024))


@case("image-tar", harmless=True)
def tar_with_a_picture_of_holes(file: Path) -> None:
    size = 250 << 20
    pax = b"".join(
        b"%d %b\n" % (len(line) + 4, line)
        for line in (b"GNU.sparse.major=0", b"GNU.sparse.minor=1", b"GNU.sparse.name=a.png")
    )
    for line in (b"GNU.sparse.size=%d" % size, b"GNU.sparse.map=0,512"):
        pax += b"%d %b\n" % (len(line) + 4, line)
    body = png(8, 8).ljust(512, b"\0")
    file.write_bytes(
        tar_header(b"x", len(pax)) + pax.ljust(512, b"\0") + tar_header(b"0", 512) + body + bytes(1024)
    )


@case("task-npz")
def task_of_many_attributes(file: Path) -> None:
    from fairerclip.data.io.npz import write_npz

    write_npz(file, {f"sensitive_names_a{i}": np.array(["a", "b"]) for i in range(200)}, overwrite=True)


@case("task-npz")
def task_with_values_that_are_no_numbers(file: Path) -> None:
    from fairerclip.data.io.npz import write_npz

    task = small_task()
    write_npz(file, {"image_train": task.train.X * np.nan, "text_target": task.text_target}, overwrite=True)


@case("labels-csv")
def table_that_is_a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@case("results")
def results_that_are_a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@case("prompts-json")
def prompts_that_are_a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def answer(one: Case) -> dict[str, Any]:
    """What came of a case, tried in a process of its own."""
    with tempfile.TemporaryDirectory() as place:
        reader, folder = READERS[one.reader], Path(place)
        reader.make(folder)
        made = os.fork()
        if not made:  # in a process of its own, so that what making took is not counted
            one.make(folder / reader.file)
            os._exit(0)
        assert os.waitpid(made, 0)[1] == 0, "the hostile file could not be made"
        ours, theirs = os.pipe()
        child = os.fork()
        if not child:
            os.close(ours)
            os.write(theirs, json.dumps(_read(reader, folder)).encode())
            os._exit(0)
        os.close(theirs)
        with os.fdopen(ours, "rb") as handle:
            told = handle.read()
        os.waitpid(child, 0)
    if not told:
        return {
            "kind": "killed",
            "message": "the process was killed or hung",
            "seconds": PATIENCE,
            "megabytes": 0.0,
        }
    return dict(json.loads(told))


def _read(reader: Reader, folder: Path) -> dict[str, Any]:
    import signal

    from fairerclip.errors import FairerClipError

    signal.alarm(PATIENCE)
    # Seconds of the processor, so that a busy machine makes no difference; what only waits is stopped by the alarm.
    before, began = resident(), time.process_time()
    resource.setrlimit(resource.RLIMIT_AS, (address_space() + HEADROOM,) * 2)
    warnings.simplefilter("ignore")
    try:
        reader.read(folder)
        kind, message = "taken", ""
    except FairerClipError as error:
        kind, message = "refused", str(error)
    except BaseException as error:  # noqa: BLE001 - what escapes is what is looked for
        kind, message = f"escaped: {type(error).__name__}", str(error)
    seconds = time.process_time() - began
    return {
        "kind": kind,
        "message": message[:2000],
        "seconds": seconds,
        "megabytes": max(0.0, peak() - before),
    }


def faults(one: Case, came: dict[str, Any]) -> list[str]:
    """What is not as promised."""
    checks = {
        came["kind"]: came["kind"] != "refused" and not (one.harmless and came["kind"] == "taken"),
        f"{came['seconds']:.2f} s": came["seconds"] > SECONDS,
        f"{came['megabytes']:.0f} MB": came["megabytes"] > MEGABYTES,
        "more than one line": "\n" in came["message"],
    }
    return [text for text, wrong in checks.items() if wrong]


def main() -> int:
    wanted = [name for name in sys.argv[1:] if not name.startswith("--")] or list(CASES)
    for name in dict.fromkeys(
        CASES[name].reader for name in wanted
    ):  # libraries that are imported where they are used
        with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            READERS[name].make(Path(place))
            READERS[name].read(Path(place))
    answers = {name: answer(CASES[name]) for name in wanted}
    if "--json" in sys.argv:
        print(json.dumps(answers))
        return 0
    bad = 0
    for name, came in answers.items():
        wrong = faults(CASES[name], came)
        bad += bool(wrong)
        mark = f"FAULT ({', '.join(wrong)})" if wrong else came["kind"]
        print(f"{name}: {mark}, {came['seconds']:.2f} s, {came['megabytes']:.0f} MB: {came['message'][:150]}")
    print(f"{len(answers)} hostile files, {bad} not as promised")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
