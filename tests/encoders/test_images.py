"""Image sources and safe decoding."""

from __future__ import annotations

import io
import os
import tarfile

import numpy as np
import pytest

from fairerclip.encoders.decode import open_image
from fairerclip.encoders.images import ImageItem, Refused, open_source
from fairerclip.errors import DatasetError, ImageError, JoinError

Image = pytest.importorskip("PIL.Image")

pytestmark = pytest.mark.slow


def encoded(kind="PNG", size=(8, 6), mode="RGB", **options):
    rng = np.random.default_rng(0)
    out = io.BytesIO()
    Image.fromarray(rng.integers(256, size=(size[1], size[0], 3), dtype=np.uint8)).convert(mode).save(
        out, kind, **options
    )
    return out.getvalue()


def ids(source):
    return [item.id for item in source.items()]


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP"])
def test_allowed_formats_become_rgb(kind, tmp_path):
    content = encoded(kind)
    file = tmp_path / "a.jpg"  # the name does not decide
    file.write_bytes(content)
    for source in (content, file, str(file)):
        image = open_image(source)
        assert image.mode == "RGB"
        assert image.size == (8, 6)


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK"])
def test_other_colours_become_rgb(mode):
    content = encoded("JPEG" if mode == "CMYK" else "PNG", mode=mode)
    assert open_image(content).mode == "RGB"


def test_the_scans_of_a_jpeg_are_counted_and_nothing_else():
    out = io.BytesIO()
    Image.new("RGB", (8, 8)).save(out, "JPEG", progressive=True, comment=b"\xff\xda" * 100)
    raw = out.getvalue()
    end, last = raw.rindex(b"\xff\xd9"), raw.rindex(b"\xff\xda")
    for good in (raw, raw + b"\xff\xda" * 100, raw[:end] + raw[last:end] * 40 + raw[end:]):  # it has ten
        assert open_image(good).size == (8, 8)
    with pytest.raises(ImageError):
        open_image(raw[:end] + raw[last:end] * 41 + raw[end:])


def test_folder_is_recursive_sorted_and_by_ending(tmp_path):
    for name in ("b/2.PNG", "b/1.jpg", "a.webp", "notes.txt", "c.gif", "z/y/x.bmp"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    source = open_source(tmp_path)
    assert ids(source) == ["a.webp", "b/1.jpg", "b/2.PNG", "c.gif", "z/y/x.bmp"]
    assert source.total == 5
    refused = [item for item in source.items() if isinstance(item, Refused)]
    assert refused == [Refused("c.gif", ".gif files are not read; save it as JPEG, PNG, WEBP or BMP")]


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
    with pytest.raises(DatasetError, match="image"):
        open_source(file, path_column="image")
    file.write_text("path,key\na.png,1\n,2\n")
    with pytest.raises(DatasetError, match="3"):
        open_source(file)


def test_repeated_ids_and_empty_sources_are_errors(tmp_path):
    file = tmp_path / "l.txt"
    for content, error in (
        (b"a.png\na.png\n", JoinError),
        (b"\n", DatasetError),
        (b"\xff\xfe\x00", DatasetError),
    ):
        file.write_bytes(content)
        with pytest.raises(error):
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


@pytest.mark.linux
def test_what_is_no_whole_image_of_these_formats_with_8_bits_is_refused(tmp_path):
    sixteen = io.BytesIO()
    Image.fromarray(np.full((4, 4), 40_000, np.uint16)).save(sixteen, "PNG")
    whole = encoded("PNG", size=(64, 64))
    for content in (encoded("GIF"), encoded("TIFF"), whole[: len(whole) // 2], sixteen.getvalue(), b""):
        with pytest.raises(ImageError):
            open_image(content)
    os.mkfifo(tmp_path / "x.png")  # a pipe is not waited for
    for file in (tmp_path / "x.png", tmp_path / "none.png"):
        with pytest.raises(ImageError):
            open_image(file)


def test_images_of_other_formats_alone_and_images_beside_tars_are_errors(tmp_path):
    (tmp_path / "a.gif").write_bytes(b"")
    with pytest.raises(DatasetError, match="gif"):
        open_source(tmp_path)
    make_tar(tmp_path / "0.tar", [("a.gif", b""), ("b.jpg", b""), ("b.txt", b"")])
    assert ids(open_source(tmp_path / "0.tar")) == ["0.tar:a.gif", "b"]
    with pytest.raises(DatasetError, match=r"\.tar"):
        open_source(tmp_path)
