"""Image sources and safe decoding."""

from __future__ import annotations

import contextlib
import io
import os
import struct
import tarfile
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest

from fairerclip.encoders import images
from fairerclip.encoders.decode import open_image
from fairerclip.encoders.images import ImageItem, Refused, open_source
from fairerclip.errors import DatasetError, ImageError, JoinError

Image = pytest.importorskip("PIL.Image")


def encoded(kind="PNG", size=(8, 6), mode="RGB", **options):
    rng = np.random.default_rng(0)
    out = io.BytesIO()
    Image.fromarray(rng.integers(256, size=(size[1], size[0], 3), dtype=np.uint8)).convert(mode).save(
        out, kind, **options
    )
    return out.getvalue()


def ids(source):
    return [item.id for item in source.items()]


def png_of(width, height):
    """A PNG whose header claims a size; the content is a few bytes."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"0"))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP"])
def test_allowed_formats_become_rgb(kind, tmp_path):
    content = encoded(kind)
    file = tmp_path / "a.jpg"  # the name does not decide
    file.write_bytes(content)
    for source in (content, file, str(file)):
        image = open_image(source)
        assert image.mode == "RGB"
        assert image.size == (8, 6)


@pytest.mark.parametrize("mode", ["L", "1", "P", "RGBA", "CMYK"])
def test_other_colours_become_rgb(mode):
    content = encoded("JPEG" if mode == "CMYK" else "PNG", mode=mode)
    assert open_image(content).mode == "RGB"


def test_palette_with_transparency_keeps_its_colours():
    out = io.BytesIO()
    image = Image.new("P", (4, 4), 1)
    image.putpalette([0, 0, 0, 10, 20, 30])
    image.save(out, "PNG", transparency=bytes([0, 128]))
    assert open_image(out.getvalue()).getpixel((0, 0)) == (10, 20, 30)


def test_orientation_is_left_alone():
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90°
    assert open_image(encoded("JPEG", exif=exif)).size == (8, 6)


@pytest.mark.parametrize("kind", ["GIF", "TIFF", "PPM"])
def test_other_formats_are_refused(kind):
    with pytest.raises(ImageError, match="cannot be decoded"):
        open_image(encoded(kind))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP"])
def test_cut_off_images_are_refused(kind):
    content = encoded(kind, size=(64, 64))
    with pytest.raises(ImageError):
        open_image(content[: len(content) // 2])


def test_sixteen_bits_are_not_clipped_in_silence():
    out = io.BytesIO()
    Image.fromarray(np.full((4, 4), 40_000, np.uint16)).save(out, "PNG")
    with pytest.raises(ImageError, match="8 bits per channel"):
        open_image(out.getvalue())


@pytest.mark.parametrize(("width", "height"), [(8000, 8000), (12_000, 10_000), (30_000, 30_000)])
def test_too_many_pixels_are_refused_from_the_header(width, height):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        with pytest.raises(ImageError, match="50000000 are decoded|bomb"):
            open_image(png_of(width, height))


def test_many_pixels_are_an_error_where_warnings_are_errors():
    with pytest.raises(ImageError):
        open_image(png_of(12_000, 10_000))


@pytest.mark.parametrize("content", [b"", b"\x00" * 100, b"\xff\xd8\xff", b"BM" + b"\xff" * 60])
def test_rubbish_is_refused(content):
    with pytest.raises(ImageError):
        open_image(content)


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(ImageError, match="no such file"):
        open_image(tmp_path / "none.png")


def test_mutated_images_never_raise_anything_else():
    rng = np.random.default_rng(1)
    for kind in ("JPEG", "PNG", "WEBP", "BMP"):
        content = encoded(kind, size=(32, 32))
        for _ in range(100):
            raw = np.frombuffer(content, np.uint8).copy()
            raw[rng.integers(len(raw), size=3)] = rng.integers(256, size=3)
            with contextlib.suppress(ImageError):
                assert open_image(raw.tobytes()).mode == "RGB"


def test_the_scans_of_a_jpeg_are_counted_and_nothing_else(tmp_path):
    out = io.BytesIO()
    Image.new("RGB", (8, 8)).save(out, "JPEG", progressive=True, comment=b"\xff\xda" * 100)
    raw = out.getvalue()
    end, last = raw.rindex(b"\xff\xd9"), raw.rindex(b"\xff\xda")
    (tmp_path / "a.jpg").write_bytes(raw + b"\xff\xda" * 100)
    for good in (raw, tmp_path / "a.jpg", raw[:end] + raw[last:end] * 40 + raw[end:]):  # it has ten
        assert open_image(good).size == (8, 8)
    (tmp_path / "a.jpg").write_bytes(raw[:end] + raw[last:end] * 41 + raw[end:])
    for bad in (tmp_path / "a.jpg", (tmp_path / "a.jpg").read_bytes()):
        with pytest.raises(ImageError, match="more than 50 scans"):
            open_image(bad)


def test_folder_is_recursive_sorted_and_by_ending(tmp_path):
    for name in ("b/2.PNG", "b/1.jpg", "a.webp", "notes.txt", "c.gif", "z/y/x.bmp"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    source = open_source(tmp_path)
    assert ids(source) == ["a.webp", "b/1.jpg", "b/2.PNG", "c.gif", "z/y/x.bmp"]
    assert source.total == 5
    refused = [item for item in source.items() if isinstance(item, Refused)]
    assert refused == [Refused("c.gif", ".gif files are not read; save it as JPEG, PNG, WEBP or BMP")]


def test_images_of_other_formats_alone_are_an_error(tmp_path):
    for name in ("a.gif", "b.TIFF", "c.heic"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(
        DatasetError, match="holds no image.*3 left out, the first a.gif: .gif files are not read"
    ):
        open_source(tmp_path)
    with pytest.raises(DatasetError, match="c.heic: .heic files are not read"):
        open_source(tmp_path / "c.heic")
    make_tar(tmp_path / "0.tar", [("a.gif", b""), ("b.jpg", b""), ("b.txt", b"")])
    assert ids(open_source(tmp_path / "0.tar")) == ["0.tar:a.gif", "b"]
    with pytest.raises(DatasetError, match="both images and .tar"):
        open_source(tmp_path)


def test_a_folder_that_cannot_be_listed_is_named(tmp_path, monkeypatch):
    (tmp_path / "shut").mkdir()
    (tmp_path / "a.png").write_bytes(b"")
    scandir = os.scandir

    def refuse(path):
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    items = list(open_source(tmp_path).items())
    assert items[1] == Refused("shut", "the folder cannot be listed: Permission denied")


@pytest.mark.parametrize("name", ["list.txt", "table.csv"])
def test_the_size_of_a_list_is_checked_before_it_is_read(tmp_path, monkeypatch, name):
    (tmp_path / name).write_text("path\n" + "a.png\n" * 100)
    monkeypatch.setattr(images, "MAX_LIST_BYTES", 100)
    with pytest.raises(DatasetError, match="expected at most 100 bytes, got 605"):
        open_source(tmp_path / name)


def test_the_lines_of_a_list_are_counted_before_they_are_kept(tmp_path, monkeypatch):
    (tmp_path / "list.txt").write_text("a.png\nb.png\n")
    monkeypatch.setattr(images, "MAX_LISTED", 2)
    assert open_source(tmp_path / "list.txt").total == 2
    monkeypatch.setattr(images, "MAX_LISTED", 1)
    with pytest.raises(DatasetError, match="expected at most 1 lines, got 2"):
        open_source(tmp_path / "list.txt")


def test_a_list_that_may_not_be_read_is_our_error(tmp_path, monkeypatch):
    (tmp_path / "list.txt").write_text("a.png\n")

    def refuse(*args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DatasetError, match="expected a readable file or folder, got Permission denied"):
        open_source(tmp_path / "list.txt")


def test_links_to_folders_are_named_not_followed(tmp_path):
    (tmp_path / "a.png").write_bytes(b"")
    (tmp_path / "loop").symlink_to(tmp_path)
    items = list(open_source(tmp_path).items())
    assert [type(item) for item in items] == [ImageItem, Refused]


def test_list_file_is_relative_to_itself(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "list.txt").write_text("\ufeffx.png\n\n ../y.png \n", encoding="utf-8")
    items = list(open_source(tmp_path / "sub" / "list.txt").items())
    assert [item.id for item in items] == ["x.png", "../y.png"]
    assert items[1].content.resolve() == tmp_path.resolve() / "y.png"


def test_table_columns(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text('path,file,key\np.png,"a, b.png",7\nq.png,c.png,8\n')
    assert ids(open_source(file)) == ["p.png", "q.png"]
    chosen = list(open_source(file, path_column="file", id_column="key").items())
    assert [(i.id, i.content.name) for i in chosen] == [("7", "a, b.png"), ("8", "c.png")]
    with pytest.raises(DatasetError, match="no column 'image'; it has path, file, key"):
        open_source(file, path_column="image")
    file.write_text("path,key\na.png,1\n,2\n")
    with pytest.raises(DatasetError, match="line 3"):
        open_source(file)


def test_repeated_ids_and_empty_sources_are_errors(tmp_path):
    file = tmp_path / "l.txt"
    file.write_text("a.png\na.png\n")
    with pytest.raises(JoinError, match="line 2: expected ids that differ, got 'a.png' again"):
        open_source(file)
    file.write_text("\n")
    with pytest.raises(DatasetError, match="lists no image"):
        open_source(file)
    with pytest.raises(DatasetError, match="does not exist"):
        open_source(tmp_path / "nowhere")
    with pytest.raises(DatasetError, match="for .csv tables"):
        open_source(file, path_column="x")
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DatasetError, match="text in UTF-8"):
        open_source(file)


def make_tar(path, members):
    with tarfile.open(path, "w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            else:
                info.type, info.linkname = getattr(tarfile, content), "/etc/passwd"
                tar.addfile(info)


def test_tar_is_streamed_and_hostile_members_are_named(tmp_path):
    file = tmp_path / "s.tar"
    make_tar(
        file,
        [
            ("000.jpg", b"1"),
            ("000.txt", b"caption"),
            ("d/001.png", b"2"),
            ("../002.jpg", b"3"),
            ("/003.jpg", b"4"),
            ("004.jpg", "SYMTYPE"),
            ("005.jpg", "LNKTYPE"),
            ("000.png", b"5"),
        ],
    )
    items = list(open_source(file).items())
    assert [(i.id, i.content) for i in items if isinstance(i, ImageItem)] == [("000", b"1"), ("d/001", b"2")]
    reasons = {i.id: i.reason for i in items if isinstance(i, Refused)}
    assert "points outside" in reasons["s.tar:../002.jpg"]
    assert "points outside" in reasons["s.tar:/003.jpg"]
    assert "link" in reasons["s.tar:004.jpg"]
    assert "link" in reasons["s.tar:005.jpg"]
    assert "earlier image has the key '000'" in reasons["s.tar:000.png"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s.tar"]
    assert [i.content for i in open_source(file).items({"000"}) if isinstance(i, ImageItem)] == [b"", b"2"]


def tar_header(kind, size):
    member = tarfile.TarInfo("a.png")
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ((tar_header(b"L", 2) + b"a".ljust(512, b"\0")) * 3000, "too many headers of one member"),
        (tar_header(b"L", 6 << 30), "headers of at most 16,384 bytes, got one of 6,442,450,944"),
        (tar_header(b"x", 20_000) + b"1" * 20_480, "headers of at most 16,384 bytes, got one of 20,000"),
        (tar_header(b"0", -512), "got one of -512"),
        (tar_header(b"S", 0), "it is a sparse file"),
    ],
)
def test_a_hostile_header_of_a_tar_is_refused_with_its_reason(tmp_path, content, reason):
    make_tar(tmp_path / "s.tar", [("good.png", b"1")])
    good = (tmp_path / "s.tar").read_bytes()[:1024]
    (tmp_path / "s.tar").write_bytes(good + content + bytes(1024))
    first, refused = open_source(tmp_path / "s.tar").items()
    assert first == ImageItem("good", b"1")
    assert reason in refused.reason


def test_folder_of_tars(tmp_path):
    make_tar(tmp_path / "1.tar", [("b.jpg", b"")])
    make_tar(tmp_path / "0.tar", [("a.jpg", b"")])
    assert ids(open_source(tmp_path)) == ["a", "b"]
    (tmp_path / "c.jpg").write_bytes(b"")
    with pytest.raises(DatasetError, match="both images and .tar"):
        open_source(tmp_path)


def test_a_cut_off_tar_is_said(tmp_path):
    file = tmp_path / "s.tar"
    make_tar(file, [(f"{i}.jpg", b"x" * 2000) for i in range(4)])
    content = file.read_bytes()
    for cut in (2560 * 2, 2560 * 2 + 100, 2560 + 600):
        file.write_bytes(content[:cut])
        items = list(open_source(file).items())
        assert isinstance(items[-1], Refused), cut
        assert len(items) <= 3
    file.write_bytes(content[:2560] + b"\xff" * 512 + content[2560 + 512 :])
    items = list(open_source(file).items())
    assert [type(i) for i in items] == [ImageItem, Refused]
    file.write_bytes(b"not a tar")
    assert [type(i) for i in open_source(file).items()] == [Refused]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x.png")
    with pytest.raises(ImageError, match="a pipe or a device"):
        open_image(tmp_path / "x.png")


def test_sixteen_bits_of_colour_are_refused(tmp_path):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 2, 2, 16, 2, 0, 0, 0)
    rows = zlib.compress(b"".join(b"\0" + bytes(12) for _ in range(2)))
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    with pytest.raises(ImageError, match="16 bits"):
        open_image(png)


def test_a_name_that_is_not_utf8_is_refused_by_a_printable_name(tmp_path):
    try:
        (tmp_path / os.fsdecode(b"bad\xff.png")).write_bytes(b"")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    (tmp_path / "a.png").write_bytes(b"")
    _, item = open_source(tmp_path).items()
    assert isinstance(item, Refused)
    assert "not UTF-8" in item.reason
    item.id.encode()


def test_keys_of_a_tar_keep_their_folder(tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for name in ("a/0001.jpg", "b/0001.jpg"):
            tar.addfile(tarfile.TarInfo(name), io.BytesIO(b""))
    assert [item.id for item in open_source(tmp_path / "x.tar").items()] == ["a/0001", "b/0001"]
