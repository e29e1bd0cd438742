"""Everything that reads a file of somebody else's: how a good file is made, and how it is read to the end.

`abuse.py` gives each reader hostile files, `fuzz.py` damaged ones. A reader ends with a value or a `FairerClipError`.
"""

from __future__ import annotations

import csv
import json
import tarfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from samples import clip_settings, two_class

from fairerclip import EmbeddingMitigator, FairerCLIP
from fairerclip.applying.mitigated_rows import as_store
from fairerclip.auditing.input_check import check
from fairerclip.auditing.many_models import read_models
from fairerclip.auditing.results import read_results
from fairerclip.baselines import LinearProbe, load_baseline
from fairerclip.data import load_task, save_task
from fairerclip.data.datasets import celeba, facet, fairface, metadata, waterbirds
from fairerclip.data.datasets.norming import read_norming
from fairerclip.data.id_files import read_id_list
from fairerclip.data.io.npy import map_npy, read_npy
from fairerclip.data.io.npz import npz_members, read_npz, write_npz
from fairerclip.data.io.remote_path import RemotePath
from fairerclip.data.io.tensors import open_tensors, write_tensors
from fairerclip.data.label_table import read_labels
from fairerclip.data.prompts import load_prompts
from fairerclip.data.prompts.templates import read_templates
from fairerclip.data.query_files import read_queries
from fairerclip.data.stores import open_store
from fairerclip.data.task import Sensitive, Split, Task, Variants
from fairerclip.data.writer import StoreWriter, read_skipped, read_text
from fairerclip.encoders import Preprocessing, onnx, open_clip, tokens, transformers
from fairerclip.encoders import weight_files as weights
from fairerclip.encoders.decode import open_image
from fairerclip.encoders.images import open_source
from fairerclip.errors import KeptRunWarning, ResultsFileError, StoreError
from fairerclip.study.jobs import Job, read_kept, read_stored, write_kept
from fairerclip.study.paper.entry_result import EntryResult
from fairerclip.study.paper.job_answers import PlaneAnswer, PlaneFigures
from forged import forge


@dataclass(frozen=True)
class Reader:
    """One way into the package.

    Attributes
    ----------
    make : writes a good input into an empty folder.
    file : the file of it that comes from somebody else, relative to the folder.
    read : reads the input to the end.
    changes : whether reading may change the folder.
    """

    make: Callable[[Path], Any]
    file: str
    read: Callable[[Path], Any]
    changes: bool = False


ROWS = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
IDS = [f"images/{i}.jpg" for i in range(6)]


def small_task() -> Any:
    codes = np.array([0, 1, -1, 0, 1, 0])
    rows = Split(ROWS, codes, {"place": codes[::-1].copy()}, np.array(IDS))
    text = ROWS[:2] + 1
    place = Sensitive("place", ("x", "y"), ("an x", "a y"), text)
    words = Variants(np.stack([text, text + 1]), ("a {}", "the {}"))
    return Task(
        "t",
        {"train": rows, "test": rows},
        text,
        ("an a", "a b"),
        ("a", "b"),
        {"place": place},
        variants=words,
    )


def _store(path: Any, **options: Any) -> Any:
    store = open_store(path, **options)
    return store.ids, store[:], store.provenance


def _in_storage(path: Path) -> Any:
    """Read a store as from object storage: through fsspec, by ranges of bytes."""
    import fsspec

    return _store(RemotePath(fsspec.filesystem("file"), str(path), f"storage:/{path}"))


def _parquet(folder: Path, name: str = "part.parquet", rows: bool = True) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"id": IDS, "label": ["a", "b"] * 3, "place": ["x", "y", "y"] * 2}
    if rows:
        columns["embedding"] = list(ROWS)
    pq.write_table(pa.table(columns), folder / name)


def _clip_retrieval(folder: Path) -> None:
    (folder / "img_emb").mkdir()
    (folder / "metadata").mkdir()
    np.save(folder / "img_emb" / "img_emb_0.npy", ROWS)
    _parquet(folder / "metadata", "metadata_0.parquet", rows=False)


def _own_store(folder: Path) -> None:
    with StoreWriter(folder / "emb", width=4, provenance=None) as writer:
        writer.append(IDS, ROWS)
        writer.skip("bad.jpg", "no image")
        writer.write_text(["an a", "a b"], ROWS[:2])
        writer.finish()


def _resume(folder: Path) -> Any:
    with StoreWriter(folder / "emb", width=4, provenance=None) as writer:
        return writer.done


def _labels(folder: Path, ending: str = "csv") -> None:
    with (folder / f"labels.{ending}").open("w", newline="") as handle:
        writer = csv.writer(handle, delimiter="\t" if ending == "tsv" else ",")
        writer.writerows(
            [["id", "label", "place"], *([name, "ab"[i % 2], "xy"[i % 2]] for i, name in enumerate(IDS))]
        )


PROMPTS = {
    "version": 1,
    "name": "pets",
    "source": {"kind": "own", "citation": "none", "note": ""},
    "templates": ["a photo of a {}."],
    "classes": {"cat": ["a cat"], "dog": {"names": ["dog"], "templates": ["the {}"]}},
    "sensitive": {"place": ["home", "street"]},
    "counterfactual": [{"class": "cat", "sensitive": {"place": "home"}, "prompt": "a cat at home"}],
    "spurious": ["home", "street"],
    "pairs": [["cat", "dog"]],
    "queries": ["a sleeping animal"],
}
PROMPTS_TOML = """version = 1
name = "pets"
templates = ["a photo of a {}."]
spurious = ["home"]
[source]
kind = "own"
citation = "none"
[classes]
cat = ["a cat"]
dog = ["a dog"]
[sensitive.place]
home = ["home"]
"""


def _birds(folder: Path) -> None:
    body = "".join(f"{i},b/{i}.jpg,{i % 2},{i % 3},{i // 3},p.jpg\n" for i in range(6))
    (folder / "metadata.csv").write_text("img_id,img_filename,y,split,place,place_filename\n" + body)


def _celebrities(folder: Path) -> None:
    names = [f"{i + 1:06d}.jpg" for i in range(6)]
    body = "".join(
        f"{name}  {'1' if i % 2 else '-1'} {'1' if i > 2 else '-1'}\n" for i, name in enumerate(names)
    )
    (folder / "list_attr_celeba.txt").write_text(f"6\nBlond_Hair Male\n{body}")
    (folder / "list_eval_partition.txt").write_text("".join(f"{n} {i % 3}\n" for i, n in enumerate(names)))


def _faces(folder: Path) -> None:
    for part in ("train", "val"):
        body = "".join(
            f"{part}/{i}.jpg,20-29,Male,White,False\n{part}/1{i}.jpg,3-9,Female,Black,False\n" for i in (1, 2)
        )
        (folder / f"fairface_label_{part}.csv").write_text("file,age,gender,race,service_test\n" + body)


def _occupations(folder: Path) -> None:
    flags = [column for columns in facet.FLAGS.values() for column in columns]
    (folder / "annotations").mkdir()
    (folder / "imgs_1").mkdir()
    with (folder / "annotations" / "annotations.csv").open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["person_id", "filename", "class1", *flags])
        for i in range(6):
            (folder / "imgs_1" / f"{i}.jpg").write_bytes(b"")
            writer.writerow(
                [i, f"{i}.jpg", facet.CLASSES[i], *(int(j % 3 == i % 3) for j in range(len(flags)))]
            )


PEOPLE = [["Model", "EthnicitySelf", "GenderSelf", "Attractive"]] + [
    [f"{'ABLW'[i % 4]}{'FM'[i % 2]}-{i + 1:03d}", "ABLW"[i % 4], "FM"[i % 2], 2.5 + i] for i in range(8)
]


def _people_csv(folder: Path) -> None:
    with (folder / "norming.csv").open("w", newline="") as handle:
        csv.writer(handle).writerows(PEOPLE)


def _people_xlsx(folder: Path) -> None:
    import openpyxl

    book = openpyxl.Workbook()
    for row in PEOPLE:
        book.active.append(row)
    book.save(folder / "norming.xlsx")


def _fitted() -> Any:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(30, 4)), np.arange(30) % 2
    return X, y, rng.normal(size=(2, 4))


def _model(folder: Path) -> None:
    X, y, text = _fitted()
    model = FairerCLIP(n_features=4, zero_shot=0.0, random_state=0, refine=False)
    model.fit(X, y, sensitive_features=np.arange(30) // 2 % 2, text=text).save(folder / "model")


def _baseline(folder: Path) -> None:
    X, y, text = _fitted()
    LinearProbe().fit(X, y, text=text).save(folder / "model")


def _mitigator(folder: Path) -> None:
    X, y, text = _fitted()
    model = EmbeddingMitigator()
    s = np.where(np.arange(30) % 4, np.where(y == 1, "a", "b"), None)  # unknown values have a reader
    model.fit(X, sensitive_features=s, sensitive_text={"a": text[0], "b": text[1]})
    model.save(folder / "model")


def _forge(folder: Path) -> None:
    """Give a changed model digests that fit, as somebody who forges one would."""
    with suppress(OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
        forge(folder, blob=(folder / "model.safetensors").read_bytes())  # else it is read as it is


def _forged_model(folder: Path) -> Any:
    _forge(folder / "model")
    return FairerCLIP.load(folder / "model").predict(_fitted()[0])


def _forged_baseline(folder: Path) -> Any:
    _forge(folder / "model")
    return load_baseline(folder / "model").predict(_fitted()[0])


def _forged_mitigator(folder: Path) -> Any:
    _forge(folder / "model")
    model = EmbeddingMitigator.load(folder / "model")
    X = _fitted()[0]
    return model.transform(X), model.query_meaning(X), model.drift(X)


def _results(folder: Path) -> None:
    (folder / "results.json").write_text(json.dumps(two_class(taus=2, tau_zs=2)))


def _image(folder: Path, ending: str) -> None:
    from PIL import Image

    Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(folder / f"image.{ending}")


def _image_list(folder: Path) -> None:
    _image(folder, "png")
    (folder / "list.txt").write_text("image.png\n")


def _image_table(folder: Path) -> None:
    _image(folder, "png")
    (folder / "list.csv").write_text("id,path\na,image.png\n")


def _settings(name: str, content: Any) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).write_text(json.dumps(content))


def _shards(folder: Path) -> None:
    for name in ("a.safetensors", "b.safetensors"):
        write_tensors(folder / name, {"x": ROWS}, {}, overwrite=False)
    index = {"metadata": {"total_size": 96}, "weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


REPRODUCTION = {
    "format": "fairerclip-reproduction",
    "source": "Simulated tasks",
    "version": 1,
    "name": "fits",
    "title": "t",
    "where": "tab:x",
    "kind": "simulated",
    "command": "fairerclip reproduce fits",
    "settings": {"seeds": 1, "gradient_seeds": 1, "max_seconds": 60.0, "quick": True},
    "tasks": [],
    "made": {"date": "2026-01-01"},
    "failures": [],
    "results": {"a": {"b": [1, 0.5, None]}},
    "document": {
        "title": "t",
        "source": "s",
        "notes": ["n"],
        "tables": [{"title": "t", "columns": ["a"], "rows": [["x"], [1.5], [None]], "note": None, "left": 1}],
        "heatmaps": [
            {"title": "t", "x_title": "x", "x": [0.5], "y_title": "y", "y": [0.1], "values": [[None]]}
        ],
        "curves": [{"title": "t", "x_title": "x", "y_title": "y", "series": {"a": [[0.0, 1.0]]}}],
    },
}
PLANE = PlaneAnswer(split="test", points=(PlaneFigures(tau=0.5, tau_z=0.0, average=0.25),), rescale=None)
KEPT = Job("plane", {"method": "zero-shot"}, "run.json", PlaneAnswer, PlaneAnswer, {})


def _kept_run(folder: Path) -> Any:
    """A kept run that is damaged is told in a warning, and run again."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", KeptRunWarning)
        try:
            return read_kept(folder / "run.json", KEPT)
        except KeptRunWarning as told:
            raise ResultsFileError(str(told)) from None


def _pictures(source: Any) -> list[Any]:
    return [open_image(item.content) if hasattr(item, "content") else item for item in source.items()]


def _image_tar(folder: Path) -> None:
    _image(folder, "png")
    with tarfile.open(folder / "images.tar", "w") as tar:
        tar.add(folder / "image.png", "a/image.png")
        tar.add(folder / "image.png", "b.jpg")


READERS: dict[str, Reader] = {
    "npz": Reader(
        lambda f: write_npz(f / "a.npz", {"x": ROWS, "t": np.array(IDS)}),
        "a.npz",
        lambda f: read_npz(f / "a.npz"),
    ),
    "npz-deflated": Reader(
        lambda f: write_npz(f / "a.npz", {"x": ROWS, "t": np.array(IDS)}, compress=True),
        "a.npz",
        lambda f: [np.array(m.array()) for m in npz_members(f / "a.npz").values()],
    ),
    "npy": Reader(
        lambda f: np.save(f / "a.npy", ROWS),
        "a.npy",
        lambda f: (np.array(read_npy(f / "a.npy")), np.array(map_npy(f / "a.npy"))),
    ),
    "storage-npy": Reader(
        lambda f: np.save(f / "a.npy", ROWS),
        "a.npy",
        lambda f: _in_storage(f / "a.npy"),
    ),
    "storage-parquet": Reader(
        lambda f: _parquet(f, "a.parquet"), "a.parquet", lambda f: _in_storage(f / "a.parquet")
    ),
    "safetensors": Reader(
        lambda f: write_tensors(f / "a.safetensors", {"x": ROWS}, {"k": "v"}, overwrite=False),
        "a.safetensors",
        lambda f: [np.array(t.array()) for t in open_tensors(f / "a.safetensors", StoreError)[0].values()],
    ),
    "task-npz": Reader(
        lambda f: save_task(small_task(), f / "t.npz"), "t.npz", lambda f: load_task(f / "t.npz")
    ),
    "task-safetensors": Reader(
        lambda f: save_task(small_task(), f / "t.safetensors"),
        "t.safetensors",
        lambda f: load_task(f / "t.safetensors"),
    ),
    "apply-npz": Reader(
        lambda f: save_task(small_task(), f / "t.npz"),
        "t.npz",
        lambda f: as_store(f / "t.npz")[:],
    ),
    "store-npy": Reader(lambda f: np.save(f / "a.npy", ROWS), "a.npy", lambda f: _store(f / "a.npy")),
    "store-npz": Reader(
        lambda f: write_npz(f / "a.npz", {"embeddings": ROWS, "ids": np.array(IDS)}),
        "a.npz",
        lambda f: _store(f / "a.npz"),
    ),
    "store-safetensors": Reader(
        lambda f: write_tensors(f / "a.safetensors", {"x": ROWS}, {"ids": json.dumps(IDS)}, overwrite=False),
        "a.safetensors",
        lambda f: _store(f / "a.safetensors"),
    ),
    "store-parquet": Reader(_parquet, "part.parquet", lambda f: _store(f / "part.parquet")),
    "clip-retrieval-rows": Reader(_clip_retrieval, "img_emb/img_emb_0.npy", _store),
    "clip-retrieval-metadata": Reader(_clip_retrieval, "metadata/metadata_0.parquet", _store),
    "store-manifest": Reader(_own_store, "emb/store.json", lambda f: _store(f / "emb")),
    "store-ids": Reader(_own_store, "emb/shards/00000.ids.txt", lambda f: _store(f / "emb")),
    "store-shard": Reader(_own_store, "emb/shards/00000.npy", lambda f: _store(f / "emb")),
    "store-skipped": Reader(_own_store, "emb/skipped.jsonl", lambda f: read_skipped(f / "emb")),
    "store-resumed": Reader(_own_store, "emb/skipped.jsonl", _resume, changes=True),
    "store-text": Reader(_own_store, "emb/text.safetensors", lambda f: read_text(f / "emb")),
    "queries-npz": Reader(
        lambda f: write_npz(f / "q.npz", {"text": ROWS, "queries": np.array(IDS)}),
        "q.npz",
        lambda f: read_queries(f / "q.npz"),
    ),
    "labels-csv": Reader(
        _labels,
        "labels.csv",
        lambda f: read_labels(f / "labels.csv", id_column="id", columns=["label", "place"]),
    ),
    "labels-tsv": Reader(
        lambda f: _labels(f, "tsv"),
        "labels.tsv",
        lambda f: read_labels(f / "labels.tsv", id_column="id", columns=["label"]),
    ),
    "labels-parquet": Reader(
        _parquet,
        "part.parquet",
        lambda f: read_labels(f / "part.parquet", id_column="id", columns=["label", "place"]),
    ),
    "checked-task": Reader(
        lambda f: save_task(small_task(), f / "t.npz"), "t.npz", lambda f: check(f / "t.npz").as_dict()
    ),
    "checked-store": Reader(_own_store, "emb/store.json", lambda f: check(f / "emb").as_dict()),
    "ids-txt": Reader(
        lambda f: (f / "ids.txt").write_text("".join(f"{name}\n" for name in IDS)),
        "ids.txt",
        lambda f: read_id_list(f / "ids.txt", rows=len(IDS)),
    ),
    "ids-json": Reader(
        lambda f: (f / "ids.json").write_text(json.dumps(IDS)),
        "ids.json",
        lambda f: read_id_list(f / "ids.json", rows=len(IDS)),
    ),
    "prompts-json": Reader(
        lambda f: (f / "p.json").write_text(json.dumps(PROMPTS)),
        "p.json",
        lambda f: load_prompts(f / "p.json"),
    ),
    "prompts-toml": Reader(
        lambda f: (f / "p.toml").write_text(PROMPTS_TOML), "p.toml", lambda f: load_prompts(f / "p.toml")
    ),
    "templates": Reader(
        lambda f: (f / "t.txt").write_text("a {}\nthe {}\n"), "t.txt", lambda f: read_templates(f / "t.txt")
    ),
    "waterbirds": Reader(_birds, "metadata.csv", lambda f: waterbirds.read(f, check_images=False)),
    "celeba-attributes": Reader(
        _celebrities, "list_attr_celeba.txt", lambda f: celeba.read(f, check_images=False)
    ),
    "celeba-partition": Reader(
        _celebrities, "list_eval_partition.txt", lambda f: celeba.read(f, check_images=False)
    ),
    "fairface": Reader(_faces, "fairface_label_train.csv", lambda f: fairface.read(f, check_images=False)),
    "facet": Reader(_occupations, "annotations/annotations.csv", facet.read),
    "metadata": Reader(
        _birds, "metadata.csv", lambda f: metadata.read(f, filename="img_filename", sensitive="place")
    ),
    "cfd-csv": Reader(_people_csv, "norming.csv", lambda f: read_norming(f / "norming.csv")),
    "cfd-xlsx": Reader(_people_xlsx, "norming.xlsx", lambda f: read_norming(f / "norming.xlsx")),
    "results": Reader(_results, "results.json", read_results),
    "kept-run": Reader(
        lambda f: write_kept(f / "run.json", KEPT.key, PLANE),
        "run.json",
        _kept_run,
    ),
    "reproduction": Reader(
        _settings("r.json", REPRODUCTION),
        "r.json",
        lambda f: read_stored(f / "r.json", EntryResult),
    ),
    "facts-of-models": Reader(
        _settings("m.json", {"a": {"label": "A", "parameters": 1e6, "data": "x"}}),
        "m.json",
        lambda f: read_models(f / "m.json"),
    ),
    "model-manifest": Reader(_model, "model/fairerclip.json", lambda f: FairerCLIP.load(f / "model")),
    "model-tensors": Reader(_model, "model/model.safetensors", lambda f: FairerCLIP.load(f / "model")),
    "baseline-manifest": Reader(_baseline, "model/fairerclip.json", lambda f: load_baseline(f / "model")),
    "baseline-tensors": Reader(_baseline, "model/model.safetensors", lambda f: load_baseline(f / "model")),
    "mitigator-manifest": Reader(
        _mitigator, "model/fairerclip.json", lambda f: EmbeddingMitigator.load(f / "model")
    ),
    "mitigator-tensors": Reader(
        _mitigator, "model/model.safetensors", lambda f: EmbeddingMitigator.load(f / "model")
    ),
    "forged-mitigator-manifest": Reader(_mitigator, "model/fairerclip.json", _forged_mitigator),
    "forged-mitigator-tensors": Reader(_mitigator, "model/model.safetensors", _forged_mitigator),
    "forged-model-manifest": Reader(_model, "model/fairerclip.json", _forged_model),
    "forged-model-tensors": Reader(_model, "model/model.safetensors", _forged_model),
    "forged-baseline-manifest": Reader(_baseline, "model/fairerclip.json", _forged_baseline),
    "forged-baseline-tensors": Reader(_baseline, "model/model.safetensors", _forged_baseline),
    "preprocessing": Reader(
        _settings("p.json", clip_settings.OPENAI), "p.json", lambda f: Preprocessing.from_json(f / "p.json")
    ),
    "open_clip-config": Reader(
        _settings("c.json", clip_settings.OPEN_CLIP), "c.json", lambda f: open_clip.read_config(f / "c.json")
    ),
    "transformers-config": Reader(
        _settings("c.json", clip_settings.CLIP), "c.json", lambda f: transformers.read_config(f / "c.json")
    ),
    "transformers-processor": Reader(
        _settings("preprocessor_config.json", clip_settings.PROCESSOR),
        "preprocessor_config.json",
        transformers.read_settings,
    ),
    "transformers-index": Reader(_shards, "model.safetensors.index.json", weights.transformers_files),
    "onnx-settings": Reader(
        _settings("s.json", clip_settings.MANIFEST), "s.json", lambda f: onnx.read_settings(f / "s.json")
    ),
    "tokenizer": Reader(
        _settings("t.json", clip_settings.TOKENIZER), "t.json", lambda f: tokens.read_tokenizer(f / "t.json")
    ),
    "image-png": Reader(lambda f: _image(f, "png"), "image.png", lambda f: open_image(f / "image.png")),
    "image-jpeg": Reader(lambda f: _image(f, "jpg"), "image.jpg", lambda f: open_image(f / "image.jpg")),
    "image-webp": Reader(lambda f: _image(f, "webp"), "image.webp", lambda f: open_image(f / "image.webp")),
    "image-bmp": Reader(lambda f: _image(f, "bmp"), "image.bmp", lambda f: open_image(f / "image.bmp")),
    "image-tar": Reader(_image_tar, "images.tar", lambda f: _pictures(open_source(f / "images.tar"))),
    "image-list": Reader(_image_list, "list.txt", lambda f: _pictures(open_source(f / "list.txt"))),
    "image-table": Reader(
        _image_table, "list.csv", lambda f: _pictures(open_source(f / "list.csv", path_column="path"))
    ),
}
