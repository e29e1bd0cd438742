"""The rule that loading never runs code, tested by loading: Python itself reports what is run, fetched or unpickled."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import tarfile

import numpy as np
import pytest
from safetensors.numpy import save_file

from fairerclip.auditing.results import read_results
from fairerclip.baselines import ZeroShot, load_baseline
from fairerclip.data import load_task, save_task
from fairerclip.data.label_table import read_labels
from fairerclip.data.prompts import load_prompts
from fairerclip.data.prompts.templates import read_templates
from fairerclip.data.simulate import waterbirds
from fairerclip.data.stores import open_store
from fairerclip.encoders import load
from fairerclip.encoders.embed import embed_images
from fairerclip.encoders.images import open_source
from fairerclip.errors import FairerClipError

pytestmark = pytest.mark.slow

MARK = "a_mark_that_only_hostile_files_hold"
PAYLOAD = f"MARK = {MARK!r}\nfrom transformers import CLIPTokenizer as Evil\n"
AUTO_MAP = {"auto_map": {"AutoTokenizer": ["evil.Evil", "evil.Evil"], "AutoModel": "evil.Evil"}}
FORBIDDEN = ("subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.startfile")
NETWORK = ("socket.connect", "socket.getaddrinfo", "socket.sendto", "urllib.", "http.client.", "ftplib.")


class Watch:
    """An audit hook: Python keeps it for good, so it can be switched off."""

    def __init__(self):
        self.folder: str | None = None
        self.seen: list[str] = []

    def __call__(self, event, args):
        if self.folder is None:
            return
        text = None
        if event.startswith((*FORBIDDEN, *NETWORK)) or event == "pickle.find_class":
            text = str(args)
        elif event == "exec" and (self._ours(args[0].co_filename) or MARK in args[0].co_consts):
            text = args[0].co_filename
        elif event == "compile" and (self._ours(args[1]) or self._marked(args[0])):
            text = str(args[1])
        elif event in ("import", "ctypes.dlopen") and self._ours(args[1] if event == "import" else args[0]):
            text = str(args[0])
        elif event == "marshal.loads" and self._marked(args[0]):
            text = "bytes"
        if text is not None:
            self.seen.append(f"{event}: {text[:200]}")
            raise RuntimeError(f"{event} while a file is read")

    def _ours(self, name):
        name = os.fsdecode(name) if isinstance(name, str | bytes | os.PathLike) else ""
        return bool(name) and os.path.abspath(name).startswith(self.folder)

    @staticmethod
    def _marked(source):
        return (
            MARK in source
            if isinstance(source, str)
            else isinstance(source, bytes) and MARK.encode() in source
        )

    @contextlib.contextmanager
    def on(self, folder):
        self.folder, self.seen = str(folder), []
        try:
            yield
        finally:
            self.folder = None


@pytest.fixture(scope="module")
def watch():
    hook = Watch()
    sys.addaudithook(hook)
    return hook


class Evil:
    """Unpickled, it would run a command."""

    def __reduce__(self):
        return os.system, (f"true {MARK}",)


def table(path):
    return read_labels(path, id_column="id", columns=["a"])


def write_files(root):
    """Every kind of file but encoders: what reads it, and the file."""
    image = pytest.importorskip("PIL.Image")
    task, rows = waterbirds(scale=0.01, width=32), np.eye(4, dtype=np.float32)
    for name in ("t.npz", "t.safetensors"):
        yield load_task, save_task(task, root / name)
    np.save(root / "rows.npy", rows)
    save_file({"rows": rows}, root / "rows.safetensors")
    for name in ("rows.npy", "rows.safetensors"):
        yield open_store, root / name
    (root / "labels.csv").write_text(f"id,a\n1,{MARK}\n2,=cmd|' /C calc'!A0\n")
    yield table, root / "labels.csv"
    (root / "prompts.json").write_text(json.dumps({"name": f"__import__('os').system('{MARK}')"}))
    yield load_prompts, root / "prompts.json"
    (root / "templates.txt").write_text("{} {{__class__}} " + MARK + "\n")
    yield read_templates, root / "templates.txt"
    (root / "images").mkdir()
    image.new("RGB", (20, 20)).save(root / "images" / "a.png")
    yield lambda path: list(open_source(path).items()), root / "images"
    with tarfile.open(root / "x.tar", "w") as tar:
        tar.add(root / "images" / "a.png", "a.png")
    yield lambda path: list(open_source(path).items()), root / "x.tar"
    yield load_baseline, ZeroShot().fit(rows, text=rows[:2]).save(root / "baseline")
    # A pickle, under every name that a reader might look at.
    for name in ("labels.pkl", "m.safetensors", "results.json", "rows.parquet"):
        (root / name).write_bytes(pickle.dumps(Evil()))
    np.save(root / "o.npy", np.array([Evil()]), allow_pickle=True)
    np.savez(root / "task.npz", image_train=np.array([Evil()]))
    readers = {"o.npy": open_store, "task.npz": load_task, "labels.pkl": table, "m.safetensors": open_store}
    for name, read in {**readers, "results.json": read_results, "rows.parquet": open_store}.items():
        yield read, root / name


def test_no_file_makes_python_run_anything(watch, tmp_path):
    (tmp_path / "evil.py").write_text(PAYLOAD)
    good = 0
    for read, path in write_files(tmp_path):
        with watch.on(tmp_path), contextlib.suppress(FairerClipError):
            read(path)
            good += 1
        assert not watch.seen, f"{path.name}: {watch.seen}"
    assert good >= 9  # the others are hostile, and refused


@pytest.mark.parametrize("library", ["open_clip", "transformers", "onnx"])
@pytest.mark.parametrize("harmless", [True, False], ids=["good", "hostile"])
def test_no_model_makes_python_run_anything(watch, library, harmless, tmp_path, request):
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("transformers")
    fixture = {"transformers": "clip_folder"}.get(library, f"{library}_folder")
    folder = shutil.copytree(request.getfixturevalue(fixture), tmp_path / "model")
    for name in ("evil.py", "__init__.py", "torch.py", "tokenizers.py", "modeling_clip.py"):
        (folder / name).write_text(PAYLOAD)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Evil()))
    if not harmless:
        if library == "open_clip":
            shutil.copy(request.getfixturevalue("clip_folder") / "tokenizer.json", folder)
            config = json.loads((folder / "open_clip_config.json").read_text())
            config["model_cfg"]["text_cfg"] |= {
                "hf_tokenizer_name": "x",
                "tokenizer_kwargs": {"trust_remote_code": True},
            }
            (folder / "open_clip_config.json").write_text(json.dumps(config))
        for name in ("config.json", "tokenizer_config.json", "preprocess.json"):
            values = json.loads((folder / name).read_text()) if (folder / name).is_file() else {}
            (folder / name).write_text(json.dumps(values | AUTO_MAP))
    (tmp_path / "images").mkdir()
    image.new("RGB", (70, 70), "red").save(tmp_path / "images" / "a.png")
    loaded = False
    with watch.on(tmp_path), contextlib.suppress(FairerClipError):
        encoder = load(f"{library}:{folder}")
        encoder.encode_text(["a bird"])
        embed_images(tmp_path / "images", encoder, tmp_path / "emb")
        loaded = True
    assert not watch.seen
    assert loaded is harmless


def test_the_watch_sees_code_run(watch, tmp_path):
    for run in (
        lambda: pickle.loads(pickle.dumps(Evil())),  # noqa: S301
        lambda: subprocess.run(["true"], check=True),
        lambda: eval(f"'{MARK}'"),  # noqa: S307
        lambda: exec(compile("1", str(tmp_path / "x.py"), "exec")),  # noqa: S102
    ):
        with watch.on(tmp_path), pytest.raises(RuntimeError):
            run()
