"""The readers refuse whatever is not a plain array, before taking memory for it."""

import io
import os
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fairerclip.data.io.npy import Limits, read_header, read_npy
from fairerclip.data.io.npz import read_npz, write_npz
from fairerclip.errors import OutputExistsError, TaskFileError

MEMORY_CAP = 1024**3


def npy(array, **options):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, **options)
    return stream.getvalue()


def raw_npy(descr, shape, data=b"", fortran=False, version=1):
    text = f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n".encode()
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + data


def make_zip(path, members, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return path


HOSTILE_MEMBERS = {
    "object array": (npy(np.array([{}], dtype=object), allow_pickle=True), "dtype object"),
    "structured dtype": (npy(np.zeros(2, dtype=[("a", "f4")])), "got dtype"),
    "complex": (npy(np.zeros(2, dtype=complex)), "got dtype complex128"),
    "bytes": (npy(np.array([b"ab"])), r"got dtype \|S2"),
    "dates": (npy(np.zeros(1, dtype="M8[s]")), "got dtype"),
    "long double": (raw_npy("'<f16'", (1,), bytes(16)), "got dtype"),
    "text of no length": (raw_npy("'<U0'", (10**12,)), "got dtype"),
    "sub-array dtype": (raw_npy("('<f4', (3,))", (1,), bytes(12)), "expected"),
    "huge declared shape": (raw_npy("'<f4'", (10**9, 512)), "needs 2048000000"),
    "overflowing shape": (raw_npy("'<f4'", (2**40, 2**40)), "fits in memory"),
    "overflowing shape with a zero": (raw_npy("'<f4'", (0, 2**62, 2**62)), "fits in memory"),
    "negative shape": (raw_npy("'<f4'", (-1,)), "none negative|0 or more"),
    "too many axes": (raw_npy("'<f4'", (1,) * 20, bytes(4)), "axes"),
    "too little data": (npy(np.arange(9.0))[:-8], "is it truncated"),
    "too much data": (npy(np.arange(9.0)) + b"x", "is it truncated"),
    "no signature": (b"PICKLEPICKLE", "signature"),
    "empty": (b"", "signature"),
    "unknown version": (b"\x93NUMPY\x09\x00" + bytes(100), "version"),
    "huge header length": (b"\x93NUMPY\x02\x00" + struct.pack("<I", 2_000_000_000), "header"),
    "header cut in its length": (b"\x93NUMPY\x02\x00\x01", "header"),
    "header cut short": (npy(np.arange(3))[:40], "header"),
    "header that is code": (raw_npy("__import__('os')", (1,)), "header"),
    "header of brackets": (raw_npy("(" * 4000, (1,)), "header"),
    "header without keys": (b"\x93NUMPY\x01\x00\x03\x00{}\n", "header"),
    "shape of floats": (raw_npy("'<f4'", (1.0,), bytes(4)), "header"),
    "code points beyond Unicode": (raw_npy("'<U1'", (1,), b"\xff\xff\xff\x7f"), "code points"),
    "surrogates": (raw_npy("'<U1'", (1,), b"\x00\xd8\x00\x00"), "code points"),
    "big-endian code points beyond Unicode": (raw_npy("'>U1'", (1,), b"\x7f\xff\xff\xff"), "code points"),
    "booleans of two": (raw_npy("'|b1'", (1,), b"\x02"), "booleans"),
}


@pytest.mark.parametrize("what", HOSTILE_MEMBERS)
@pytest.mark.parametrize("kind", ["npz", "npy"])
def test_hostile_array_is_refused_with_the_path(tmp_path, what, kind):
    data, message = HOSTILE_MEMBERS[what]
    path = tmp_path / f"bad.{kind}"
    if kind == "npz":
        make_zip(path, [("x.npy", data)])
        with pytest.raises(TaskFileError, match=f"(?s)bad.npz.*({message})"):
            read_npz(path)
    else:
        path.write_bytes(data)
        with pytest.raises(TaskFileError, match=f"(?s)bad.npy.*({message})"):
            read_npy(path)


def test_object_array_does_not_run_its_payload(tmp_path):
    flag = tmp_path / "ran"

    class Payload:
        def __reduce__(self):
            return (Path.touch, (flag,))

    data = npy(np.array([Payload()], dtype=object), allow_pickle=True)
    with pytest.raises(TaskFileError):
        read_npz(make_zip(tmp_path / "p.npz", [("x.npy", data)]))
    assert not flag.exists()


@pytest.mark.parametrize("name", ["../x.npy", "a/x.npy", "/x.npy", "a\\x.npy", "C:x.npy"])
def test_member_with_a_path_is_refused(tmp_path, name):
    with pytest.raises(TaskFileError, match="path separators"):
        read_npz(make_zip(tmp_path / "a.npz", [(name, npy(np.eye(2)))]))


@pytest.mark.parametrize("name", ["x.pkl", "x", ".npy", "x.npy.exe"])
def test_member_that_is_no_npy_is_refused(tmp_path, name):
    with pytest.raises(TaskFileError, match=r"\*\.npy only"):
        read_npz(make_zip(tmp_path / "a.npz", [("y.npy", npy(np.eye(2))), (name, npy(np.eye(2)))]))


def test_duplicate_member_is_refused(tmp_path):
    with pytest.warns(UserWarning, match="Duplicate"):
        path = make_zip(tmp_path / "a.npz", [("x.npy", npy(np.eye(2))), ("x.npy", npy(np.eye(3)))])
    with pytest.raises(TaskFileError, match="twice"):
        read_npz(path)


def test_other_compressions_and_encryption_are_refused(tmp_path):
    with pytest.raises(TaskFileError, match="encrypted or"):
        read_npz(make_zip(tmp_path / "b.npz", [("x.npy", npy(np.eye(2)))], zipfile.ZIP_BZIP2))
    path = make_zip(tmp_path / "e.npz", [("x.npy", npy(np.eye(2)))])
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1  # the encryption flag of the directory entry
    path.write_bytes(data)
    with pytest.raises(TaskFileError, match="encrypted or"):
        read_npz(path)


def test_file_cut_anywhere_is_refused(tmp_path):
    whole = make_zip(
        tmp_path / "w.npz", [("x.npy", npy(np.eye(4))), ("y.npy", npy(np.arange(4)))]
    ).read_bytes()
    path = tmp_path / "cut.npz"
    for length in range(0, len(whole), 16):
        path.write_bytes(whole[:length])
        with pytest.raises(TaskFileError, match="cut.npz"):
            read_npz(path)


def test_a_flipped_byte_gives_the_same_arrays_or_a_refusal(tmp_path):
    arrays = {"x": np.arange(12.0).reshape(3, 4), "name": np.array(["é", "b"])}
    whole = write_npz(tmp_path / "w.npz", arrays, compress=True).read_bytes()
    path, rng, refused = tmp_path / "flip.npz", np.random.default_rng(0), 0
    for _ in range(300):
        data = bytearray(whole)
        data[rng.integers(len(data))] ^= 1 << rng.integers(8)
        path.write_bytes(data)
        try:
            back = read_npz(path)
        except TaskFileError:
            refused += 1
        else:  # a flip in a date or in a name leaves the data whole
            assert all(any(np.array_equal(a, b) for b in back.values()) for a in arrays.values())
    assert refused > 150


def test_bomb_of_zeros_is_refused_by_its_ratio(tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", npy(np.zeros((40_000, 512), dtype=np.float32)))
    with pytest.raises(TaskFileError, match="ratio of at most 100:1"):
        read_npz(tmp_path / "bomb.npz")


def test_small_labels_may_compress_well(tmp_path):
    path = write_npz(tmp_path / "y.npz", {"y": np.zeros(10**6, dtype=np.int8)}, compress=True)
    assert path.stat().st_size < 10**4
    assert read_npz(path)["y"].shape == (10**6,)


def test_declared_size_beyond_the_limit_is_refused(tmp_path):
    path = write_npz(tmp_path / "a.npz", {"x": np.zeros(1000)})
    with pytest.raises(TaskFileError, match="at most 4000 bytes"):
        read_npz(path, limits=Limits(npz_bytes=4000))
    assert read_npz(path, limits=Limits(npz_bytes=9000))["x"].shape == (1000,)


def test_too_many_members_and_too_long_a_directory_are_refused(tmp_path):
    path = write_npz(tmp_path / "a.npz", {f"x{i}": np.zeros(1) for i in range(20)})
    with pytest.raises(TaskFileError, match="at most 19 arrays, got 20"):
        read_npz(path, limits=Limits(members=19))
    with pytest.raises(TaskFileError, match="zip directory of at most 100 bytes"):
        read_npz(path, limits=Limits(directory_bytes=100))


def test_zip64_directory_is_bounded_too(tmp_path):
    path = write_npz(tmp_path / "a.npz", {"x": np.zeros(1)})
    data = path.read_bytes()
    at = data.rindex(b"PK\x05\x06")
    record = b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 10**7, 10**7, 10**10, 0)
    locator = b"PK\x06\x07" + struct.pack("<IQI", 0, at, 1)
    path.write_bytes(data[:at] + record + locator + data[at:])
    with pytest.raises(TaskFileError, match="got 10000000000"):
        read_npz(path)


def test_sizes_that_lie_about_the_file_are_refused(tmp_path):
    path = write_npz(tmp_path / "a.npz", {"x": np.zeros(4)})
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\x01\x02")
    data[entry + 20 : entry + 28] = struct.pack("<II", 10**9, 10**9)  # compressed, uncompressed
    path.write_bytes(data)
    with pytest.raises(TaskFileError, match="the file has"):
        read_npz(path)


@pytest.mark.parametrize("compress", [False, True])
def test_wrong_checksum_is_refused(tmp_path, compress):
    path = write_npz(tmp_path / "a.npz", {"x": np.zeros(64)}, compress=compress)
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + 16] ^= 1  # the checksum in the directory
    path.write_bytes(data)
    with pytest.raises(TaskFileError, match="CRC"):
        read_npz(path)


def test_long_header_is_refused_before_it_is_read(tmp_path):
    class Counted(io.BytesIO):
        def read(self, size=-1):
            assert 0 <= size <= 8, "no more than the signature and the length"
            return super().read(size)

    header = b"\x93NUMPY\x02\x00" + struct.pack("<I", 10**6) + b" " * 10**6
    with pytest.raises(TaskFileError, match="header of 0 to 10000 bytes|header of at most 10000 bytes"):
        read_header("x", Counted(header), Limits())
    (tmp_path / "x.npy").write_bytes(npy(np.arange(3)))
    with pytest.raises(TaskFileError, match="50 bytes"):
        read_npy(tmp_path / "x.npy", limits=Limits(header_bytes=50))


@pytest.mark.linux
@pytest.mark.parametrize("what", ["bomb", "huge declared shape", "huge header length"])
def test_refusal_takes_no_memory(tmp_path, what):
    path = tmp_path / "a.npz"
    if what == "bomb":
        zeros = bytes(2**20)
        with (
            zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
            archive.open("x.npy", "w") as member,
        ):
            member.write(raw_npy("'<f4'", (2**28 // 4 * 2,)))
            for _ in range(512):
                member.write(zeros)
    else:
        make_zip(path, [("x.npy", HOSTILE_MEMBERS[what][0])])
    code = (
        "import resource, sys\n"
        "from fairerclip.data.io.npz import read_npz\n"
        "from fairerclip.errors import TaskFileError\n"
        f"resource.setrlimit(resource.RLIMIT_AS, ({MEMORY_CAP}, {MEMORY_CAP}))\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n    read_npz(sys.argv[1])\n"
        "except TaskFileError as error:\n"
        "    assert 'MemoryError' not in str(error), error\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    # One BLAS thread: each further one would reserve address space of its own under the cap.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 20_000, "kilobytes of growth"


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "u2", "i4", "u8", "?", "U5"])
@pytest.mark.parametrize("order", ["<", ">"])
def test_every_plain_dtype_reads_back_in_native_order(tmp_path, dtype, order):
    array = np.arange(6).reshape(3, 2).astype(dtype)
    foreign = array.astype(array.dtype.newbyteorder(order))
    back = read_npz(make_zip(tmp_path / "a.npz", [("x.npy", npy(foreign))]))["x"]
    (tmp_path / "x.npy").write_bytes(npy(foreign))
    for read in (back, read_npy(tmp_path / "x.npy")):
        assert read.dtype == array.dtype
        assert read.dtype.isnative
        assert np.array_equal(read, array)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_header_version_is_read(tmp_path, version):
    (tmp_path / "x.npy").write_bytes(npy(np.arange(5), version=version))
    assert read_npy(tmp_path / "x.npy").tolist() == [0, 1, 2, 3, 4]


def test_fortran_order_gives_the_right_rows(tmp_path):
    array = np.asfortranarray(np.arange(24.0).reshape(2, 3, 4))
    data = npy(array)
    assert b"'fortran_order': True" in data
    back = read_npz(make_zip(tmp_path / "a.npz", [("x.npy", data)]))["x"]
    (tmp_path / "x.npy").write_bytes(data)
    assert np.array_equal(back, array)
    assert back.flags.c_contiguous
    assert np.array_equal(read_npy(tmp_path / "x.npy"), array)


def test_npy_is_mapped_and_read_only(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(3))
    mapped = read_npy(tmp_path / "x.npy")
    assert isinstance(mapped, np.memmap)
    assert not mapped.flags.writeable


def test_empty_arrays_and_scalars_are_read(tmp_path):
    arrays = {"empty": np.empty((0, 4)), "scalar": np.array(3), "text": np.array("grüße 鳥 🐦")}
    back = read_npz(write_npz(tmp_path / "a.npz", arrays))
    assert back["empty"].shape == (0, 4)
    assert back["scalar"].item() == 3
    assert back["text"].item() == "grüße 鳥 🐦"
    np.save(tmp_path / "e.npy", np.empty((0, 4)))
    assert read_npy(tmp_path / "e.npy").shape == (0, 4)


def test_member_names_may_be_any_unicode(tmp_path):
    assert list(read_npz(write_npz(tmp_path / "a.npz", {"größe": np.arange(2)}))) == ["größe"]


def test_what_numpy_writes_is_read(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.eye(3), y=np.arange(3))
    np.savez_compressed(tmp_path / "b.npz", x=np.eye(3), y=np.arange(3))
    for name in ("a.npz", "b.npz"):
        back = read_npz(tmp_path / name)
        assert list(back) == ["x", "y"]
        assert np.array_equal(back["x"], np.eye(3))


@pytest.mark.parametrize("read", [read_npz, read_npy])
def test_absent_file_folder_and_impossible_name_are_named(tmp_path, read):
    with pytest.raises(TaskFileError, match="gone.npz: expected a file, found nothing"):
        read(tmp_path / "gone.npz")
    with pytest.raises(TaskFileError, match="a folder or a device"):
        read(tmp_path)
    with pytest.raises(TaskFileError):
        read("a\0b.npz")


@pytest.mark.linux
def test_fifo_is_refused_instead_of_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(TaskFileError, match="device"):
        read_npz(tmp_path / "pipe.npz")


@pytest.mark.parametrize("compress", [False, True])
def test_written_arrays_read_back_bit_for_bit(tmp_path, compress):
    rng = np.random.default_rng(0)
    arrays = {"x": rng.standard_normal((50, 3)).astype(np.float16), "n": np.array([np.nan, -0.0])}
    back = read_npz(write_npz(tmp_path / "a.npz", arrays, compress=compress))
    assert all(back[key].tobytes() == array.tobytes() for key, array in arrays.items())


def test_equal_arrays_make_equal_files(tmp_path):
    files = [write_npz(tmp_path / f"{i}.npz", {"x": np.eye(3)}) for i in range(2)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_existing_output_is_kept_unless_overwriting(tmp_path):
    path = write_npz(tmp_path / "a.npz", {"x": np.zeros(1)})
    with pytest.raises(OutputExistsError, match="overwrite=True"):
        write_npz(path, {"x": np.ones(1)})
    assert read_npz(path)["x"] == 0
    write_npz(path, {"x": np.ones(1)}, overwrite=True)
    assert read_npz(path)["x"] == 1


def test_failed_write_leaves_the_old_file_and_no_temporary(tmp_path, monkeypatch):
    path = write_npz(tmp_path / "a.npz", {"x": np.zeros(1)})
    before = path.read_bytes()

    def full(descriptor):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_npz(path, {"x": np.ones(1)}, overwrite=True)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]


def test_what_could_not_be_read_back_is_not_written(tmp_path):
    for arrays in ({"a/b": np.eye(2)}, {"x": np.array([None])}, {"x": np.zeros(1, dtype=complex)}):
        with pytest.raises(TaskFileError):
            write_npz(tmp_path / "a.npz", arrays)
    with pytest.raises(OutputExistsError, match="folder"):
        write_npz(tmp_path, {"x": np.eye(2)}, overwrite=True)
    assert list(tmp_path.iterdir()) == []


def test_an_absent_folder_is_made(tmp_path):
    assert write_npz(tmp_path / "new" / "a.npz", {"x": np.eye(2)}).is_file()


@pytest.mark.linux
def test_written_file_has_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "plain").touch()
    path = write_npz(tmp_path / "a.npz", {"x": np.eye(2)})
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode
