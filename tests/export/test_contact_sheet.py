"""A sheet of the images of search results: from the folder of images only, whatever the ids say."""

import numpy as np
import pytest

from fairerclip.errors import ImageError, MissingImageWarning, OutputExistsError, ParameterError
from fairerclip.export.contact_sheet import GAP, LINE, MAX_TILES, TILE, image_file, write_sheet
from fairerclip.export.search_index import Hit, SearchResult

image = pytest.importorskip("PIL.Image")


@pytest.fixture
def images(tmp_path):
    (tmp_path / "images").mkdir()
    for name, colour in (("a.png", "red"), ("b.png", "blue")):
        image.new("RGB", (40, 20), colour).save(tmp_path / "images" / name)
    (tmp_path / "secret.png").write_bytes((tmp_path / "images" / "a.png").read_bytes())
    return tmp_path / "images"


def found(*ids, about=None):
    hits = tuple(Hit(k, k, name, 1.0) for k, name in enumerate(ids, 1))
    return SearchResult("a query \x1b é 日", about, hits, hits[::-1])


def test_the_original_results_are_above_the_mitigated_ones(images, tmp_path):
    assert (
        write_sheet([found("a.png", "b.png"), found("b.png", about="place")], images, tmp_path / "s.png") == 0
    )
    sheet = image.open(tmp_path / "s.png")
    assert sheet.size == (GAP + 2 * (TILE + GAP), 2 * (3 * LINE + 2 * (TILE + GAP)))
    pixels, middle = np.asarray(sheet), TILE // 2
    upper, lower = 2 * LINE + middle, 3 * LINE + TILE + GAP + middle
    left, right = GAP + middle, 2 * GAP + TILE + middle
    assert pixels[upper, left].tolist() == pixels[lower, right].tolist() == [255, 0, 0]
    assert pixels[upper, right].tolist() == pixels[lower, left].tolist() == [0, 0, 255]
    with pytest.raises(OutputExistsError):
        write_sheet([found("a.png")], images, tmp_path / "s.png")


def test_images_that_are_missing_damaged_or_outside_are_grey_and_counted(images, tmp_path):
    (images / "bad.png").write_bytes(b"\x89PNG damaged")
    (images / "link.png").symlink_to(tmp_path / "secret.png")
    ids = [
        "../secret.png",
        str(tmp_path / "secret.png"),
        "link.png",
        "bad.png",
        "none.png",
        "a\0b",
        "",
        "a.png",
    ]
    with pytest.warns(MissingImageWarning, match="7 images are grey on the sheet, the first '../secret.png'"):
        assert write_sheet([found(*ids)], images, tmp_path / "s.png") == 7
    pixels = np.asarray(image.open(tmp_path / "s.png"))
    assert pixels[2 * LINE + 5, GAP + 5].tolist() == [211, 211, 211]
    for name in ("../secret.png", "link.png"):
        with pytest.raises(ImageError, match="out of the folder"):
            image_file(images, name)


def test_bad_requests_are_refused(images, tmp_path):
    with pytest.raises(ParameterError, match="must end in .png; got 's.jpg'"):
        write_sheet([found("a.png")], images, tmp_path / "s.jpg")
    with pytest.raises(ParameterError, match="expected the folder of the images"):
        write_sheet([found("a.png")], tmp_path / "nowhere", tmp_path / "s.png")
    with pytest.raises(ParameterError, match="ask for fewer results"):
        write_sheet([found(*["a.png"] * MAX_TILES)], images, tmp_path / "s.png")
