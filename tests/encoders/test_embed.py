"""Embedding a source into a store: complete, resumable, once each."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from types import SimpleNamespace

import numpy as np
import pytest

from fairerclip.data.prompts import load_prompts
from fairerclip.data.provenance import Provenance
from fairerclip.data.stores import open_store
from fairerclip.data.writer import read_skipped, read_text
from fairerclip.encoders import Preprocessing
from fairerclip.encoders.embed import embed_images, embed_prompts
from fairerclip.errors import DatasetError, OutputExistsError, ParameterError, ProvenanceError

Image = pytest.importorskip("PIL.Image")
STUB = '''
import sys, time
import numpy as np
from fairerclip.encoders.preprocess import Preprocessing
from fairerclip.data.provenance import Provenance

class Stub:
    """Mean colours of the four corners, and the prompts' letters; as slow as asked."""
    name, width = "stub", 12
    def __init__(self, pause=0.0, weights="0"):
        self.settings = Preprocessing.openai(16)
        self.provenance = Provenance("stub", weights, str(self.settings), "none", True, 12)
        self.pause, self.calls = pause, []
    def preprocess(self, image):
        return self.settings.apply(image)
    def encode_images(self, pixels):
        time.sleep(self.pause)
        self.calls.append(len(pixels))
        rows = pixels.reshape(len(pixels), 3, 2, 8, 2, 8).mean(axis=(3, 5)).reshape(len(pixels), 12)
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    def encode_text(self, prompts):
        rows = np.array([[p.count(c) + 1.0 for c in "abcdefghijkl"] for p in prompts])
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
'''
_names: dict = {}
exec(STUB, _names)  # noqa: S102 - the same text runs in a process of its own below
Stub = _names["Stub"]


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


@pytest.mark.parametrize(("batch_size", "workers"), [(1, 1), (4, 2), (64, 3)])
def test_every_image_is_embedded_once(folder, tmp_path, batch_size, workers):
    seen = []
    report = embed_images(
        folder,
        Stub(),
        tmp_path / "emb",
        batch_size=batch_size,
        workers=workers,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert (report.done, report.skipped, report.already) == (23, 0, 0)
    assert report.rate == pytest.approx(23 / report.seconds)
    assert seen[-1] == (23, 23)
    assert seen == sorted(seen)
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


def test_an_image_that_fails_in_preprocessing_is_skipped(folder, tmp_path):
    class Choosy(Stub):
        def preprocess(self, image):
            if image.size[0] > 40:
                raise MemoryError("too wide")
            return super().preprocess(image)

    picture(5, (60, 30)).save(folder / "wide.png")
    report = embed_images(folder, Choosy(), tmp_path / "emb")
    assert (report.done, report.skipped) == (23, 1)
    assert read_skipped(tmp_path / "emb") == [("wide.png", "it cannot be prepared: MemoryError: too wide")]


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


def test_killed_run_is_completed_nothing_twice_nothing_lost(folder, tmp_path):
    (tmp_path / "stub.py").write_text(STUB)
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import fairerclip.encoders.embed as embed; from stub import Stub\n"
        "embed.SHARD_ROWS = 4\n"
        "embed.embed_images(sys.argv[2], Stub(pause=0.05), sys.argv[3], batch_size=3)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path), str(folder), str(tmp_path / "emb")]
    kept = 0
    for shards in (1, 3):
        process = subprocess.Popen(command)
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            if len(list((tmp_path / "emb").glob("shards/0*.npy"))) >= shards:
                break
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        committed = len(list((tmp_path / "emb").glob("shards/0*.npy"))) * 4
        assert committed > kept
        kept = committed
    report = embed_images(folder, Stub(), tmp_path / "emb", batch_size=3)
    assert (report.already, report.done) == (kept, 23 - kept)
    ids = open_store(tmp_path / "emb").ids.tolist()
    assert len(ids) == len(set(ids)) == 23
    same(stored(tmp_path / "emb"), expected(folder))


def test_another_encoder_does_not_mix_in(folder, tmp_path):
    embed_images(folder, Stub(), tmp_path / "emb")
    with pytest.raises(ProvenanceError):
        embed_images(folder, Stub(weights="1"), tmp_path / "emb")
    with pytest.raises(OutputExistsError):
        embed_images(folder, Stub(), tmp_path / "emb", resume=False)
    with pytest.raises(ParameterError, match="from 1 to 65,536"):
        embed_images(folder, Stub(), tmp_path / "e2", batch_size=0)


def test_decoding_runs_ahead_of_the_encoder(folder, tmp_path):
    class Watched(Stub):
        prepared = 0
        ahead = ()

        def preprocess(self, image):
            Watched.prepared += 1
            return super().preprocess(image)

        def encode_images(self, pixels):
            time.sleep(0.1)
            Watched.ahead += (Watched.prepared - sum(self.calls),)
            return super().encode_images(pixels)

    embed_images(folder, Watched(), tmp_path / "emb", batch_size=5)
    assert min(Watched.ahead[:3]) > 5  # more than the batch in hand
    assert max(Watched.ahead) <= 3 * 5  # and no more than agreed


def test_prompts_are_stored_beside_the_images(folder, tmp_path):
    embed_images(folder, Stub(), tmp_path / "emb")
    prompt_set = load_prompts("waterbirds")
    embed_prompts(prompt_set, Stub(), tmp_path / "emb")
    prompts, vectors = read_text(tmp_path / "emb")
    assert prompts == prompt_set.all_prompts()
    np.testing.assert_array_equal(vectors, Stub().encode_text(prompts))
    assert len(stored(tmp_path / "emb")) == 23


@pytest.fixture
def command(monkeypatch):
    import typer
    from typer.testing import CliRunner

    import fairerclip.encoders.loading
    from fairerclip.cli import command_embed as embed
    from fairerclip.cli import show

    asked = SimpleNamespace(options=None)

    def fake_load(name, **options):
        asked.options = {"name": name, **options}
        return Stub()

    monkeypatch.setattr(fairerclip.encoders.loading, "load", fake_load)
    app = typer.Typer()
    app.command()(embed.embed)

    def run(*arguments):
        out = io.StringIO()
        monkeypatch.setattr(show.out, "_file", out)  # its property would bind today's stdout for good
        result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
        return result.exit_code, out.getvalue() + result.stdout

    run.asked = asked
    return run


def test_command_embeds_and_sums_up(folder, tmp_path, command):
    (folder / "bad.png").write_bytes(b"")
    arguments = (folder, "--model", "ViT-B/32", "-o", tmp_path / "emb", "--prompts", "waterbirds")
    code, text = command(*arguments)
    assert code == 0
    assert "23 images embedded" in text
    assert "1 skipped, listed in" in text
    assert "prompts; written to" in text
    assert command.asked.options == {
        "name": "ViT-B/32",
        "weights": None,
        "device": "cpu",
        "download": False,
        "preprocessing": None,
    }
    code, text = command(*arguments)
    assert "0 images embedded" in text
    assert "24 done earlier" in text


def test_command_speaks_json(folder, tmp_path, command):
    import json

    code, text = command(folder, "--model", "m", "-o", tmp_path / "emb", "--json", "--download")
    values = json.loads(text)
    assert code == 0
    assert (values["done"], values["skipped"], values["prompts"]) == (23, 0, 0)
    assert values["provenance"]["model"] == "stub"
    assert command.asked.options["download"] is True


def test_images_of_other_formats_are_counted_and_told(folder, tmp_path, command):
    import json

    for name in ("a.gif", "b.gif", "c.TIFF", "notes.txt"):
        (folder / name).write_bytes(b"")
    code, text = command(folder, "--model", "m", "-o", tmp_path / "emb")
    assert code == 0
    assert "3 skipped, listed in" in text
    assert "of these not read: 2 .gif, 1 .tiff" in text
    assert [name for name, _ in read_skipped(tmp_path / "emb")] == ["a.gif", "b.gif", "c.TIFF"]
    _, text = command(folder, "--model", "m", "-o", tmp_path / "again", "--json")
    assert json.loads(text)["not_read"] == {".gif": 2, ".tiff": 1}


def test_stub_is_an_encoder():
    assert isinstance(Stub().provenance, Provenance)
    assert isinstance(Stub().settings, Preprocessing)


def test_a_folder_in_which_nothing_can_be_embedded_is_an_error(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_bytes(b"no picture")
    with pytest.raises(DatasetError, match=r"none of 1 images.*a\.png"):
        embed_images(tmp_path / "images", Stub(), tmp_path / "emb")
