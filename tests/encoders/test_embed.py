"""Embedding a source into a store: complete, resumable, once each."""

from __future__ import annotations

import os
import tarfile

import numpy as np
import pytest

from fairerclip.data.prompts import load_prompts
from fairerclip.data.provenance import Provenance
from fairerclip.data.stores import open_store
from fairerclip.data.writer import read_skipped, read_text
from fairerclip.encoders import Preprocessing
from fairerclip.encoders.embed import embed_images, embed_prompts
from fairerclip.errors import OutputExistsError, ProvenanceError

Image = pytest.importorskip("PIL.Image")

pytestmark = pytest.mark.slow


class Stub:
    """Mean colours of the four corners, and the prompts' letters."""

    name, width = "stub", 12

    def __init__(self, weights="0"):
        self.settings = Preprocessing.openai(16)
        self.provenance = Provenance("stub", weights, str(self.settings), "none", True, 12)
        self.calls = []

    def preprocess(self, image):
        return self.settings.apply(image)

    def encode_images(self, pixels):
        self.calls.append(len(pixels))
        rows = pixels.reshape(len(pixels), 3, 2, 8, 2, 8).mean(axis=(3, 5)).reshape(len(pixels), 12)
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    def encode_text(self, prompts):
        rows = np.array([[p.count(c) + 1.0 for c in "abcdefghijkl"] for p in prompts])
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def picture(seed, size=(40, 30)):
    rng = np.random.default_rng(seed)
    return Image.fromarray(rng.integers(256, size=(size[1], size[0], 3), dtype=np.uint8))


@pytest.fixture
def folder(tmp_path):
    out = tmp_path / "images"
    for i in range(23):
        (out / f"d{i % 3}").mkdir(parents=True, exist_ok=True)
        picture(i).save(out / f"d{i % 3}" / f"{i:02d}.png")
    return out


def stored(path):
    store = open_store(path)
    return dict(zip(store.ids.tolist(), store[:], strict=True))


def expected(folder):
    encoder = Stub()
    files = sorted(folder.rglob("*.png"))
    return {
        f.relative_to(folder).as_posix(): encoder.encode_images(encoder.preprocess(Image.open(f))[None])[0]
        for f in files
    }


def same(found, wanted):
    assert sorted(found) == sorted(wanted)
    for name, row in wanted.items():
        np.testing.assert_allclose(found[name], row, atol=1e-6)


@pytest.mark.parametrize(("batch_size", "workers"), [(4, 2), (64, 3)])
def test_every_image_is_embedded_once(folder, tmp_path, batch_size, workers):
    seen = []
    options = {"batch_size": batch_size, "workers": workers, "progress": lambda *done: seen.append(done)}
    report = embed_images(folder, Stub(), tmp_path / "emb", **options)
    assert (report.done, report.skipped, report.already) == (23, 0, 0)
    assert seen[-1] == (23, 23)
    same(stored(tmp_path / "emb"), expected(folder))


def test_failing_images_are_listed_and_the_run_goes_on(folder, tmp_path):
    wanted = expected(folder)
    (folder / "bad.png").write_bytes(b"no image")
    (folder / "cut.png").write_bytes((folder / "d0" / "00.png").read_bytes()[:200])
    report = embed_images(folder, Stub(), tmp_path / "emb", batch_size=5)
    assert (report.done, report.skipped) == (23, 2)
    assert [name for name, _ in read_skipped(tmp_path / "emb")] == ["bad.png", "cut.png"]
    assert all("cannot be decoded" in reason for _, reason in read_skipped(tmp_path / "emb"))
    same(stored(tmp_path / "emb"), wanted)
    again = embed_images(folder, Stub(), tmp_path / "emb")
    assert (again.done, again.skipped, again.already, again.rate) == (0, 0, 25, 0.0)


def test_rows_that_are_no_embedding_are_skipped(folder, tmp_path):
    class Broken(Stub):
        def encode_images(self, pixels):
            rows = super().encode_images(pixels)
            rows[0] = np.nan
            rows[1] = 0
            return rows

    report = embed_images(folder, Broken(), tmp_path / "emb", batch_size=23)
    assert (report.done, report.skipped) == (21, 2)
    assert "zeros, NaN or infinity" in read_skipped(tmp_path / "emb")[0][1]


def test_only_new_images_are_encoded_on_a_second_run(folder, tmp_path):
    embed_images(folder, Stub(), tmp_path / "emb")
    picture(99).save(folder / "new.png")
    encoder = Stub()
    report = embed_images(folder, encoder, tmp_path / "emb")
    assert (report.done, report.already, encoder.calls) == (1, 23, [1])
    same(stored(tmp_path / "emb"), expected(folder))


def test_tar_source(folder, tmp_path):
    with tarfile.open(tmp_path / "s.tar", "w") as tar:
        for file in sorted(folder.rglob("*.png")):
            tar.add(file, file.name)
        link = tarfile.TarInfo("evil.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    report = embed_images(tmp_path / "s.tar", Stub(), tmp_path / "emb", batch_size=7)
    assert (report.done, report.skipped) == (23, 1)
    wanted = {os.path.splitext(os.path.basename(k))[0]: v for k, v in expected(folder).items()}
    same(stored(tmp_path / "emb"), wanted)
    again = embed_images(tmp_path / "s.tar", Stub(), tmp_path / "emb")
    assert (again.done, again.already) == (0, 24)


def test_interrupted_run_is_completed(folder, tmp_path):
    class Interrupted(Stub):
        def encode_images(self, pixels):
            if len(self.calls) == 3:
                raise KeyboardInterrupt
            return super().encode_images(pixels)

    with pytest.raises(KeyboardInterrupt):
        embed_images(folder, Interrupted(), tmp_path / "emb", batch_size=4)
    encoder = Stub()
    report = embed_images(folder, encoder, tmp_path / "emb", batch_size=4)
    assert (report.done, report.already) == (11, 12)  # what was encoded is kept
    same(stored(tmp_path / "emb"), expected(folder))


def test_another_encoder_does_not_mix_in(folder, tmp_path):
    embed_images(folder, Stub(), tmp_path / "emb")
    with pytest.raises(ProvenanceError):
        embed_images(folder, Stub(weights="1"), tmp_path / "emb")
    with pytest.raises(OutputExistsError):
        embed_images(folder, Stub(), tmp_path / "emb", resume=False)


def test_prompts_are_stored_beside_the_images(folder, tmp_path):
    embed_images(folder, Stub(), tmp_path / "emb")
    prompt_set = load_prompts("waterbirds")
    embed_prompts(prompt_set, Stub(), tmp_path / "emb")
    prompts, vectors = read_text(tmp_path / "emb")
    assert prompts == prompt_set.all_prompts()
    np.testing.assert_array_equal(vectors, Stub().encode_text(prompts))
    assert len(stored(tmp_path / "emb")) == 23
