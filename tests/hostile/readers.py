"""The readers of files of somebody else: how a good file is made, and how it is read to the end.

Each file format and each dataset has one entry. Settings and images of encoders have tests in ``tests/encoders``.
"""

from __future__ import annotations

import csv
import json
import sys
import tarfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS), str(TESTS / "report")]  # also for a child that runs without pytest

from sample import two_class  # noqa: E402

from fairerclip import EmbeddingMitigator, FairerCLIP  # noqa: E402
from fairerclip.auditing.many_models import read_models  # noqa: E402
from fairerclip.auditing.results import read_results  # noqa: E402
from fairerclip.baselines import LinearProbe, load_baseline  # noqa: E402
from fairerclip.data import load_task, save_task  # noqa: E402
from fairerclip.data.datasets import celeba, facet, fairface, metadata, waterbirds  # noqa: E402
from fairerclip.data.datasets.norming import read_norming  # noqa: E402
from fairerclip.data.id_files import read_id_list  # noqa: E402
from fairerclip.data.io.npy import map_npy, read_npy  # noqa: E402
from fairerclip.data.io.npz import npz_members, read_npz, write_npz  # noqa: E402
from fairerclip.data.io.tensors import open_tensors, write_tensors  # noqa: E402
from fairerclip.data.label_table import read_labels  # noqa: E402
from fairerclip.data.prompts import load_prompts  # noqa: E402
from fairerclip.data.prompts.templates import read_templates  # noqa: E402
from fairerclip.data.query_files import read_queries  # noqa: E402
from fairerclip.data.stores import open_store  # noqa: E402
from fairerclip.data.task import Sensitive, Split, Task, Variants  # noqa: E402
from fairerclip.data.writer import StoreWriter, read_skipped, read_text  # noqa: E402
from fairerclip.encoders.decode import open_image  # noqa: E402
from fairerclip.encoders.images import open_source  # noqa: E402
from fairerclip.errors import StoreError  # noqa: E402
from forged import forge  # noqa: E402


class Reader(NamedTuple):
    """Makes a good input in an empty folder; the file of it that comes from somebody else; reads it to the end."""

    make: Callable[[Path], Any]
    file: str
    read: Callable[[Path], Any]
    needs: str | None = None


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


def _store(path: Path) -> Any:
    store = open_store(path)
    return store.ids, store[:], store.provenance


def _parquet(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"id": IDS, "label": ["a", "b"] * 3, "place": ["x", "y", "y"] * 2, "embedding": list(ROWS)}
    pq.write_table(pa.table(columns), folder / "part.parquet")


def _own_store(folder: Path) -> None:
    with StoreWriter(folder / "emb", width=4, provenance=None) as writer:
        writer.append(IDS, ROWS)
        writer.skip("bad.jpg", "no image")
        writer.write_text(["an a", "a b"], ROWS[:2])
        writer.finish()


def _labels(folder: Path) -> None:
    body = "".join(f"{name},{'ab'[i % 2]},{'xy'[i % 2]}\n" for i, name in enumerate(IDS))
    (folder / "labels.csv").write_text("id,label,place\n" + body)


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


MANIFEST, TENSORS = "model/fairerclip.json", "model/model.safetensors"


def _forged(load: Callable[[Path], Any], use: Callable[[Any, Any], Any]) -> Callable[[Path], Any]:
    """A reader of a changed model that is given digests that fit, as by somebody who forges one."""

    def read(folder: Path) -> Any:
        files = [folder / name for name in (MANIFEST, TENSORS)]
        if all(file.is_file() and file.stat().st_size < 1 << 20 for file in files):
            with suppress(OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
                forge(folder / "model", blob=files[1].read_bytes())
        return use(load(folder / "model"), _fitted()[0])

    return read


def _image(folder: Path, ending: str) -> None:
    from PIL import Image

    Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(folder / f"image.{ending}")


def _image_list(folder: Path) -> None:
    _image(folder, "png")
    (folder / "list.txt").write_text("image.png\n")


def _pictures(source: Any) -> list[Any]:
    return [open_image(item.content) if hasattr(item, "content") else item for item in source.items()]


def _image_tar(folder: Path) -> None:
    _image(folder, "png")
    with tarfile.open(folder / "images.tar", "w") as tar:
        tar.add(folder / "image.png", "a/image.png")
        tar.add(folder / "image.png", "b.jpg")


def _json(content: Any) -> Callable[[Path], Any]:
    return lambda folder: (folder / "a.json").write_text(json.dumps(content))


def _results(folder: Path) -> None:
    (folder / "a.json").write_text(json.dumps(two_class()))


def _text(content: str, name: str) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).write_text(content)


_read_model = _forged(FairerCLIP.load, lambda model, X: model.predict(X))
_read_baseline = _forged(load_baseline, lambda model, X: model.predict(X))
_read_mitigator = _forged(EmbeddingMitigator.load, lambda model, X: (model.transform(X), model.drift(X)))

READERS: dict[str, Reader] = {
    "npy": Reader(
        lambda f: np.save(f / "a.npy", ROWS),
        "a.npy",
        lambda f: (np.array(read_npy(f / "a.npy")), np.array(map_npy(f / "a.npy"))),
    ),
    "npz": Reader(
        lambda f: write_npz(f / "a.npz", {"x": ROWS, "t": np.array(IDS)}, compress=True),
        "a.npz",
        lambda f: (read_npz(f / "a.npz"), [np.array(m.array()) for m in npz_members(f / "a.npz").values()]),
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
    "store-parquet": Reader(_parquet, "part.parquet", lambda f: _store(f / "part.parquet"), "pyarrow"),
    "store-manifest": Reader(_own_store, "emb/store.json", lambda f: _store(f / "emb")),
    "store-ids": Reader(_own_store, "emb/shards/00000.ids.txt", lambda f: _store(f / "emb")),
    "store-skipped": Reader(_own_store, "emb/skipped.jsonl", lambda f: read_skipped(f / "emb")),
    "store-text": Reader(_own_store, "emb/text.safetensors", lambda f: read_text(f / "emb")),
    "queries": Reader(
        lambda f: write_npz(f / "q.npz", {"text": ROWS, "queries": np.array(IDS)}),
        "q.npz",
        lambda f: read_queries(f / "q.npz"),
    ),
    "labels-csv": Reader(
        _labels,
        "labels.csv",
        lambda f: read_labels(f / "labels.csv", id_column="id", columns=["label", "place"]),
    ),
    "labels-parquet": Reader(
        _parquet,
        "part.parquet",
        lambda f: read_labels(f / "part.parquet", id_column="id", columns=["label", "place"]),
        "pyarrow",
    ),
    "ids-txt": Reader(
        _text("".join(f"{name}\n" for name in IDS), "ids.txt"),
        "ids.txt",
        lambda f: read_id_list(f / "ids.txt", rows=len(IDS)),
    ),
    "ids-json": Reader(_json(IDS), "a.json", lambda f: read_id_list(f / "a.json", rows=len(IDS))),
    "prompts-json": Reader(_json(PROMPTS), "a.json", lambda f: load_prompts(f / "a.json")),
    "prompts-toml": Reader(_text(PROMPTS_TOML, "p.toml"), "p.toml", lambda f: load_prompts(f / "p.toml")),
    "templates": Reader(_text("a {}\nthe {}\n", "t.txt"), "t.txt", lambda f: read_templates(f / "t.txt")),
    "waterbirds": Reader(_birds, "metadata.csv", lambda f: waterbirds.read(f, check_images=False)),
    "celeba": Reader(_celebrities, "list_attr_celeba.txt", lambda f: celeba.read(f, check_images=False)),
    "fairface": Reader(_faces, "fairface_label_train.csv", lambda f: fairface.read(f, check_images=False)),
    "facet": Reader(_occupations, "annotations/annotations.csv", facet.read),
    "metadata": Reader(
        _birds, "metadata.csv", lambda f: metadata.read(f, filename="img_filename", sensitive="place")
    ),
    "cfd-csv": Reader(_people_csv, "norming.csv", lambda f: read_norming(f / "norming.csv")),
    "cfd-xlsx": Reader(_people_xlsx, "norming.xlsx", lambda f: read_norming(f / "norming.xlsx"), "openpyxl"),
    "results": Reader(_results, "a.json", lambda f: read_results(f / "a.json")),
    "facts-of-models": Reader(
        _json({"a": {"label": "A", "parameters": 1e6, "data": "x"}}),
        "a.json",
        lambda f: read_models(f / "a.json"),
    ),
    "model-manifest": Reader(_model, MANIFEST, _read_model),
    "model-tensors": Reader(_model, TENSORS, _read_model),
    "baseline-manifest": Reader(_baseline, MANIFEST, _read_baseline),
    "baseline-tensors": Reader(_baseline, TENSORS, _read_baseline),
    "mitigator-manifest": Reader(_mitigator, MANIFEST, _read_mitigator),
    "mitigator-tensors": Reader(_mitigator, TENSORS, _read_mitigator),
    "image-png": Reader(
        lambda f: _image(f, "png"), "image.png", lambda f: open_image(f / "image.png"), "PIL"
    ),
    "image-jpeg": Reader(
        lambda f: _image(f, "jpg"), "image.jpg", lambda f: open_image(f / "image.jpg"), "PIL"
    ),
    "image-tar": Reader(_image_tar, "images.tar", lambda f: _pictures(open_source(f / "images.tar")), "PIL"),
    "image-list": Reader(_image_list, "list.txt", lambda f: _pictures(open_source(f / "list.txt")), "PIL"),
}
