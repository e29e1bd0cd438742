"""The readers refuse whatever is not a plain array, before taking memory for it."""

import io
import os
import struct
import zipfile

import numpy as np
import pytest

from fairerclip.data.io.npy import Limits, read_header, read_npy
from fairerclip.data.io.npz import read_npz, write_npz
from fairerclip.errors import OutputExistsError, TaskFileError


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
    "object array": npy(np.array([{}], dtype=object), allow_pickle=True),
    "complex": npy(np.zeros(2, dtype=complex)),
    "text of no length": raw_npy("'<U0'", (10**12,)),
    "sub-array dtype": raw_npy("('<f4', (3,))", (1,), bytes(12)),
    "huge declared shape": raw_npy("'<f4'", (10**9, 512)),
    "overflowing shape": raw_npy("'<f4'", (2**40, 2**40)),
    "negative shape": raw_npy("'<f4'", (-1,)),
    "too little data": npy(np.arange(9.0))[:-8],
    "no signature": b"PICKLEPICKLE",
    "unknown version": b"\x93NUMPY\x09\x00" + bytes(100),
    "huge header length": b"\x93NUMPY\x02\x00" + struct.pack("<I", 2_000_000_000),
    "header that is code": raw_npy("__import__('os')", (1,)),
    "header without keys": b"\x93NUMPY\x01\x00\x03\x00{}\n",
    "code points beyond Unicode": raw_npy("'<U1'", (1,), b"\xff\xff\xff\x7f"),
    "booleans of two": raw_npy("'|b1'", (1,), b"\x02"),
}


@pytest.mark.parametrize("what", HOSTILE_MEMBERS)
def test_a_hostile_array_is_refused_with_the_path(tmp_path, what):
    with pytest.raises(TaskFileError, match=r"bad.npz"):
        read_npz(make_zip(tmp_path / "bad.npz", [("x.npy", HOSTILE_MEMBERS[what])]))
    (tmp_path / "bad.npy").write_bytes(HOSTILE_MEMBERS[what])
    with pytest.raises(TaskFileError, match=r"bad.npy"):
        read_npy(tmp_path / "bad.npy")


@pytest.mark.parametrize("name", ["../x.npy", "/x.npy", "a\\x.npy", "C:x.npy", "x.pkl", ".npy"])
def test_a_member_with_a_path_or_another_ending_is_refused(tmp_path, name):
    with pytest.raises(TaskFileError):
        read_npz(make_zip(tmp_path / "a.npz", [("y.npy", npy(np.eye(2))), (name, npy(np.eye(2)))]))


def edited(path, offset, data):
    """Write over a field of the first entry of the zip directory."""
    raw = bytearray(path.read_bytes())
    entry = raw.index(b"PK\x01\x02") + offset
    raw[entry : entry + len(data)] = data
    path.write_bytes(raw)
    return path


def twice(path):
    with pytest.warns(UserWarning, match="Duplicate"):
        return make_zip(path, [("x.npy", npy(np.eye(2))), ("x.npy", npy(np.eye(3)))])


def encrypted(path):
    return edited(write_npz(path, {"x": np.eye(2)}), 8, b"\x01")


def sizes_beyond_the_file(path):
    return edited(write_npz(path, {"x": np.zeros(4)}), 20, struct.pack("<II", 10**9, 10**9))


def zip64_directory_of_ten_gigabytes(path):
    data = write_npz(path, {"x": np.zeros(1)}).read_bytes()
    at = data.rindex(b"PK\x05\x06")
    record = b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 10**7, 10**7, 10**10, 0)
    locator = b"PK\x06\x07" + struct.pack("<IQI", 0, at, 1)
    path.write_bytes(data[:at] + record + locator + data[at:])
    return path


@pytest.mark.parametrize("make", [twice, encrypted, sizes_beyond_the_file, zip64_directory_of_ten_gigabytes])
def test_a_hostile_archive_is_refused(tmp_path, make):
    with pytest.raises(TaskFileError, match=r"a.npz"):
        read_npz(make(tmp_path / "a.npz"))


@pytest.mark.parametrize("limit", [{"npz_bytes": 4000}, {"members": 19}, {"directory_bytes": 100}])
def test_limits_hold(tmp_path, limit):
    path = write_npz(tmp_path / "a.npz", {f"x{i}": np.zeros(100) for i in range(20)})
    assert len(read_npz(path)) == 20
    with pytest.raises(TaskFileError):
        read_npz(path, limits=Limits(**limit))


def test_a_long_header_is_refused_before_it_is_read():
    class Counted(io.BytesIO):
        def read(self, size=-1):
            assert 0 <= size <= 8, "no more than the signature and the length"
            return super().read(size)

    header = b"\x93NUMPY\x02\x00" + struct.pack("<I", 10**6) + b" " * 10**6
    with pytest.raises(TaskFileError, match="10000"):
        read_header("x", Counted(header), Limits())


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "u8", "?", "U5"])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("memory", ["C", "F"])
def test_every_plain_dtype_and_order_reads_back(tmp_path, dtype, order, memory):
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    foreign = np.asarray(array.astype(array.dtype.newbyteorder(order)), order=memory)
    (tmp_path / "x.npy").write_bytes(npy(foreign))
    for read in (
        read_npz(make_zip(tmp_path / "a.npz", [("x.npy", npy(foreign))]))["x"],
        read_npy(tmp_path / "x.npy"),
    ):
        assert read.dtype == array.dtype
        assert read.dtype.isnative
        assert np.array_equal(read, array)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_header_version_is_mapped_and_read_only(tmp_path, version):
    (tmp_path / "x.npy").write_bytes(npy(np.arange(5), version=version))
    mapped = read_npy(tmp_path / "x.npy")
    assert mapped.tolist() == [0, 1, 2, 3, 4]
    assert isinstance(mapped, np.memmap)
    assert not mapped.flags.writeable


@pytest.mark.parametrize("compress", [False, True])
def test_written_arrays_read_back_bit_for_bit(tmp_path, compress):
    rng = np.random.default_rng(0)
    arrays = {
        "größe": rng.standard_normal((50, 3)).astype(np.float16),
        "n": np.array([np.nan, -0.0]),
        "scalar": np.array(3),
        "text": np.array("grüße 鳥 🐦"),
        "labels": np.zeros(10**5, dtype=np.int8),  # these compress well, and are no bomb
    }
    paths = [write_npz(tmp_path / new / "a.npz", arrays, compress=compress) for new in "ab"]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    (np.savez_compressed if compress else np.savez)(tmp_path / "numpy.npz", **arrays)
    for path in (paths[0], tmp_path / "numpy.npz"):
        back = read_npz(path)
        assert list(back) == list(arrays)
        for key, array in arrays.items():
            assert (back[key].dtype, back[key].shape) == (array.dtype, array.shape)
            assert back[key].tobytes() == array.tobytes()


@pytest.mark.parametrize("read", [read_npz, read_npy])
def test_what_is_no_file_is_refused(tmp_path, read):
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.npz")  # and not waited for
    for path in (tmp_path / "gone.npz", tmp_path, "a\0b.npz", tmp_path / "pipe.npz"):
        with pytest.raises(TaskFileError):
            read(path)


def test_an_existing_output_is_kept_unless_overwriting_succeeds(tmp_path, monkeypatch):
    path = write_npz(tmp_path / "a.npz", {"x": np.zeros(1)})
    before = path.read_bytes()
    with pytest.raises(OutputExistsError):
        write_npz(path, {"x": np.ones(1)})
    with pytest.raises(OutputExistsError):
        write_npz(tmp_path, {"x": np.eye(2)}, overwrite=True)
    for arrays in ({"a/b": np.eye(2)}, {"x": np.array([None])}, {"x": np.zeros(1, dtype=complex)}):
        with pytest.raises(TaskFileError):  # it could not be read back
            write_npz(path, arrays, overwrite=True)

    def full(descriptor):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="no space"):
            write_npz(path, {"x": np.ones(1)}, overwrite=True)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]
    write_npz(path, {"x": np.ones(1)}, overwrite=True)
    assert read_npz(path)["x"] == 1
