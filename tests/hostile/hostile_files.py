"""Hostile files, an idea a file, and what became of each in this process, whose address space is limited.

``python tests/hostile/hostile_files.py`` prints a line of JSON for each: its name, what came of it, and seconds of the
processor. Needs Linux.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import struct
import tempfile
import time
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from readers import PROMPTS, READERS

HEADROOM = 400 << 20
"""Bytes of address space beyond those of the imported package; 200 MB of memory are promised to be enough."""
PATIENCE = 30
NOBODY = 65534
"""Root may read everything."""
FILES: dict[str, tuple[str, Callable[[Path], Any]]] = {}


def read_by(reader: str) -> Callable[[Callable[[Path], Any]], Callable[[Path], Any]]:
    """Register what makes a hostile file: it is given the path of a good one."""

    def keep(make: Callable[[Path], Any]) -> Callable[[Path], Any]:
        FILES[make.__name__] = reader, make
        return make

    return keep


def sparse(file: Path, size: int, head: bytes = b"") -> None:
    """A file that is all zeros behind its head and takes no room on the disk."""
    file.write_bytes(head)
    os.truncate(file, size)


def tensors(file: Path, header: Any, data: bytes = b"") -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)


def npy(descr: str, shape: str, data: bytes = b"") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def archive(file: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> None:
    with zipfile.ZipFile(file, "w", method) as out:
        for name, content in members.items():
            out.writestr(name, content)


# Files that do not end, or cannot be read ----------------------------------------------------------


@read_by("prompts-json")
def text_that_never_ends(file: Path) -> None:
    sparse(file, 6 << 30)


@read_by("labels-csv")
def table_that_never_ends(file: Path) -> None:
    sparse(file, 6 << 30, b"id,label,place\n")


@read_by("model-tensors")
def tensors_that_never_end(file: Path) -> None:
    sparse(file, 7 << 30)


@read_by("labels-csv")
def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@read_by("model-manifest")
def link_to_a_device(file: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


@read_by("results")
def file_that_may_not_be_read(file: Path) -> None:
    file.chmod(0o000)


# Small files of large or deep content --------------------------------------------------------------


@read_by("results")
def lists_in_lists(file: Path) -> None:
    file.write_text("[" * 1_000_000)


@read_by("ids-json")
def json_of_millions_of_empty_lists(file: Path) -> None:
    file.write_text("[" + "[]," * 5_000_000 + "[]]")


@read_by("prompts-json")
def names_times_templates(file: Path) -> None:
    names, templates = [f"n {i}" for i in range(300)], [f"{i} {{}} " + "x" * 1900 for i in range(300)]
    classes = {f"class {c}": {"names": names, "templates": templates} for c in range(6)}
    file.write_text(json.dumps(PROMPTS | {"classes": classes}))


@read_by("celeba")
def count_of_5000_digits(file: Path) -> None:
    file.write_text("9" * 5000 + "\nBlond_Hair Male\n000001.jpg 1 1\n")


@read_by("labels-csv")
def table_with_an_open_quote(file: Path) -> None:
    file.write_text('id,label,place\n"' + "a,b,c\n" * 2_000_000)


@read_by("ids-txt")
def more_ids_than_rows(file: Path) -> None:
    file.write_text("a\n" * 20_000_000)


@read_by("labels-parquet")
def parquet_that_repeats_a_long_text(file: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    n = 1_000_000
    long = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, dtype=np.int32)), ["x" * 1000])
    pq.write_table(pa.table({"id": long, "label": long, "place": long}), file, compression="zstd")


# Arrays --------------------------------------------------------------------------------------------


@read_by("npz")
def npz_of_zeros(file: Path) -> None:
    archive(file, {"x.npy": npy("'<f4'", "(25000000,)") + bytes(100_000_000)})


@read_by("npz")
def npz_with_a_path(file: Path) -> None:
    archive(file, {"../x.npy": npy("'<f4'", "(1,)", bytes(4))})


@read_by("npz")
def npz_with_members_in_one_place(file: Path) -> None:
    archive(file, {f"{i}.npy": npy("'<f4'", "(1000,)", bytes(4000)) for i in range(3)})
    raw, at = bytearray(file.read_bytes()), 0
    while (at := raw.find(b"PK\x01\x02", at)) >= 0:
        raw[at + 42 : at + 46] = bytes(4)
        at += 4
    file.write_bytes(raw)


@read_by("npy")
def npy_that_is_larger_than_its_file(file: Path) -> None:
    file.write_bytes(npy("'<f4'", "(1000000000, 512)"))


@read_by("npy")
def npy_with_a_pickle(file: Path) -> None:
    file.write_bytes(npy("'|O'", "(1,)", b"cos\nsystem\n(S'true'\ntR."))


@read_by("safetensors")
def safetensors_with_overlap(file: Path) -> None:
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    tensors(file, {"a": entry, "b": entry}, bytes(8))


@read_by("safetensors")
def safetensors_whose_header_is_longer_than_the_file(file: Path) -> None:
    file.write_bytes((2**63).to_bytes(8, "little") + b"{}")


@read_by("safetensors")
def safetensors_whose_shape_overflows(file: Path) -> None:
    tensors(file, {"a": {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 0]}})


# Workbooks and pictures ----------------------------------------------------------------------------


def workbook(file: Path, sheet: bytes) -> None:
    with zipfile.ZipFile(file) as good:
        members = {name: good.read(name) for name in good.namelist()}
    archive(file, members | {"xl/worksheets/sheet1.xml": sheet})


SHEET = b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>%s</sheetData></worksheet>'


@read_by("cfd-xlsx")
def workbook_with_a_cell_in_its_last_corner(file: Path) -> None:
    workbook(file, SHEET % b'<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>')


@read_by("cfd-xlsx")
def workbook_with_entities(file: Path) -> None:
    entities = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 9))
    cell = SHEET % b'<row r="1"><c r="A1" t="str"><v>&l8;</v></c></row>'
    workbook(file, f'<!DOCTYPE x [<!ENTITY l0 "lol">{entities}]>'.encode() + cell)


def png(width: int, height: int, data: bytes = b"") -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", data) + chunk(b"IEND", b"")


@read_by("image-png")
def picture_of_200_megapixels(file: Path) -> None:
    file.write_bytes(png(20_000, 10_000, zlib.compress(bytes(10_000_000))))


@read_by("image-jpeg")
def picture_of_many_scans(file: Path) -> None:
    from PIL import Image

    Image.new("RGB", (3000, 3000)).save(file, "JPEG", progressive=True)
    raw = file.read_bytes()
    end = raw.rindex(b"\xff\xd9")
    file.write_bytes(raw[:end] + raw[raw.rindex(b"\xff\xda") : end] * 200 + raw[end:])


def tar_header(kind: bytes, size: int) -> bytes:
    import tarfile

    member = tarfile.TarInfo("a.png")
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


@read_by("image-tar")
def tar_with_a_name_of_six_gigabytes(file: Path) -> None:
    sparse(file, 7 << 30, tar_header(b"L", 6 << 30))


@read_by("image-tar")
def tar_with_links_out(file: Path) -> None:
    import tarfile

    with tarfile.open(file, "w") as out:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            member = tarfile.TarInfo("a.png")
            member.type, member.linkname = kind, "/etc/passwd"
            out.addfile(member)


# What becomes of them ------------------------------------------------------------------------------


def outcome(reader: str, make: Callable[[Path], Any]) -> dict[str, Any]:
    import resource  # Windows has none, and collects the names of these files

    from fairerclip.errors import FairerClipError

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        folder.chmod(0o755)
        READERS[reader].make(folder)
        READERS[reader].read(folder)  # what is imported where it is used
        make(folder / READERS[reader].file)
        gc.collect()
        line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmSize"))
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, ((int(line.split()[1]) << 10) + HEADROOM, most))
        signal.alarm(PATIENCE)
        began = time.process_time()
        user = os.geteuid()
        if make is file_that_may_not_be_read and user == 0:
            os.seteuid(NOBODY)
        try:
            READERS[reader].read(folder)
            kind, message = "taken", ""
        except FairerClipError as error:
            kind, message = "refused", str(error)
        except BaseException as error:  # noqa: BLE001 - what escapes is what is looked for
            kind, message = f"escaped: {type(error).__name__}", str(error)
        finally:
            os.seteuid(user)
            seconds = time.process_time() - began
            signal.alarm(0)
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
    return {"kind": kind, "message": message[:500], "seconds": seconds}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for name, (reader, make) in FILES.items():
        print(json.dumps({"name": name, **outcome(reader, make)}), flush=True)
