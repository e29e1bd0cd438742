"""Reading of a task folder, whose ``task.toml`` names the files beside it.

::

    name = "my birds"
    class_names = ["landbird", "waterbird"]      # optional: the order of the classes
    target_prompts = ["a landbird", "a waterbird"]
    text_target = "text.npy"                     # any store
    text_target_variants = "wordings.npy"        # optional: (m, c, p), other wordings of the prompts …
    target_templates = ["a {}", "a photo of a {}"]   # … and their templates
    text_spurious = "spurious.npy"               # optional, for Orth-Proj and Orth-Cali: any store …
    spurious_prompts = ["a photo of a forest"]   # … and its sentences
    text_counterfactual = "counterfactual.npy"   # optional, for Orth-Cali: sentences that name class and value,
    counterfactual_prompts = ["a landbird on land", "a landbird on water"]
    counterfactual_classes = "classes.npy"       # … and the class of each, as a number
    text_harmful = "harmful.npy"                 # optional, for RoboShot: (m, 2, p), pairs of sentences, …
    harmful_prompts = [["on land", "on water"]]  # … and their text; text_helpful, helpful_prompts are alike
    text_queries = "queries.npy"                 # optional: free queries for a gallery, any store …
    query_prompts = ["a photo of a nest"]        # … and their sentences

    [sensitive.place]
    prompts = ["on land", "on water"]
    text = "place.npy"

    [images]                                     # one store, split by a column of the labels …
    store = "embeddings"
    # ids = "ids.txt"                            # ids of its rows, if the files have none: .txt, .json, .csv …
    # [splits.train]                             # … or a store per split
    # store = "train.npy"
    # y = "y_train.npy"                          # labels as arrays, instead of a table
    # s = { place = "place_train.npy" }

    [labels]
    file = "labels.csv"
    id = "image"
    target = "bird"
    sensitive = ["place"]
    split = "split"
    split_values = { train = "0", val = "1", test = "2" }   # where they are not called train, val and test
    unmatched = "error"                          # or "drop": embeddings without a label
    match = "exact"                              # or "basename", "stem": ids are compared without folders, endings

An embedding whose split is empty in the table is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import Ints
from fairerclip.data.io.bounded_text import nearest, read_toml, text_array
from fairerclip.data.io.npy import read_npy
from fairerclip.data.join import join
from fairerclip.data.label_table import Column, LabelTable, read_labels
from fairerclip.data.stores import EmbeddingStore, open_store
from fairerclip.data.task_fields import MAX_ATTRIBUTES, SPLITS, part_key, s_key
from fairerclip.data.task_files import PAIRS, PLAIN, STRINGS, TEXTS, TOML
from fairerclip.errors import FairerClipError, JoinError, TaskFileError

Array = NDArray[Any]

MAX_NAME_BYTES = 255
_STORE_KEYS = {"store", "key", "id", "ids"}
_KEYS: dict[str, set[str]] = {
    "": {
        "name",
        "simulated",
        "class_names",
        "target_prompts",
        "text_target",
        "text_target_variants",
        "target_templates",
        "text_spurious",
        "spurious_prompts",
        "text_counterfactual",
        "counterfactual_prompts",
        "counterfactual_classes",
        "text_harmful",
        "harmful_prompts",
        "text_helpful",
        "helpful_prompts",
        "text_queries",
        "query_prompts",
        "sensitive",
        "images",
        "splits",
        "labels",
    },
    "images": _STORE_KEYS,
    "splits.*": _STORE_KEYS | {"y", "s"},
    "sensitive.*": {"names", "prompts", "text"},
    "labels": {"file", "id", "target", "sensitive", "split", "split_values", "unmatched", "match"},
}


def read_folder(path: Path) -> dict[str, Array]:
    """Read the arrays of a task folder by the keys of a task file; every fault is a `TaskFileError`."""
    reader = _Folder(path)
    try:
        return reader.arrays()
    except TaskFileError:
        raise
    except FairerClipError as error:  # of a store, a table or a join that task.toml names
        raise TaskFileError(f"{path / TOML}: {error}") from error


class _Folder:
    def __init__(self, path: Path) -> None:
        self.path, self.where = path, str(path / TOML)
        self.spec = read_toml(inside(path, TOML, str(path)), TaskFileError)
        self._check()
        self.labels: Mapping[str, Any] = self.spec.get("labels", {})

    def arrays(self) -> dict[str, Array]:
        spec = self.spec
        arrays: dict[str, Array] = {
            "name": np.array(self._of(spec, "name", str, self.path.resolve().name)),
            "simulated": np.array(self._of(spec, "simulated", bool, False)),
        }
        sensitive = spec.get("sensitive", {})
        for name, entry in sensitive.items():
            for key, part in (("prompts", "sensitive_prompts"), ("names", "sensitive_names")):
                if key in entry:
                    arrays[part_key(part, name)] = self._strings(entry, key)
            if "text" in entry:
                arrays[part_key("text_sensitive", name)] = self._text(entry["text"])
        for key in STRINGS:
            if key in spec:
                arrays[key] = self._strings(spec, key)
        for key in PAIRS:
            if key in spec:
                arrays[key] = self._pairs(spec, key)
        for key in TEXTS:
            if key in spec:
                arrays[key] = self._text(spec[key])
        for key in PLAIN:
            if key in spec:
                arrays[key] = read_npy(inside(self.path, spec[key], self.where))
        table = self._table()
        if table is not None:
            self._name_values(table, arrays)
        stores = {name: self._store(entry) for name, entry in spec.get("splits", {}).items()}
        for name, store in stores.items():
            self._split_by_file(name, store, table, arrays)
        if "images" in spec:
            self._split_by_column(self._store(spec["images"]), table, arrays)
        return arrays

    def _check(self) -> None:
        self._known("", self.spec)
        for section in ("images", "labels"):
            if section in self.spec:
                self._known(section, self.spec[section])
        for section in ("splits", "sensitive"):
            for name, entry in _table_of(self.spec.get(section, {}), self.where, section).items():
                self._known(f"{section}.*", entry, name)
                for key in ("key", "id") if section == "splits" else ():
                    self._of(entry, key, str, "")
        for section, key in (("images", "key"), ("images", "id"), ("labels", "target"), ("labels", "split")):
            if key in self.spec.get(section, {}):
                self._of(self.spec[section], key, str)
        if "sensitive" in self.spec.get("labels", {}):
            self._strings(self.spec["labels"], "sensitive")
        if len(self.spec.get("sensitive", {})) > MAX_ATTRIBUTES:
            raise TaskFileError(f"{self.where}: expected at most {MAX_ATTRIBUTES} sensitive attributes")
        if ("images" in self.spec) == bool(self.spec.get("splits")):
            raise TaskFileError(
                f"{self.where}: expected either [images], split by a column, or [splits.*], got both or neither"
            )
        unknown = set(self.spec.get("splits", {})) - set(SPLITS)
        if unknown:
            raise TaskFileError(f"{self.where}: expected splits {', '.join(SPLITS)}, got {sorted(unknown)}")

    def _known(self, section: str, entry: Any, name: str = "") -> None:
        title = section.replace("*", name) or "the top"
        for key in _table_of(entry, self.where, title):
            if key not in _KEYS[section]:
                near = nearest(key, _KEYS[section], cutoff=0.6)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise TaskFileError(
                    f"{self.where}: unknown key {key!r} in {title}{hint} Known keys: {sorted(_KEYS[section])}"
                )

    def _of(self, entry: Mapping[str, Any], key: str, kind: type, default: Any = None) -> Any:
        value = entry.get(key, default)
        if not isinstance(value, kind):
            raise TaskFileError(f"{self.where}: expected {key} to be {kind.__name__}, got {value!r:.80}")
        return value

    def _strings(self, entry: Mapping[str, Any], key: str) -> Array:
        values = self._of(entry, key, list)
        if not values or not all(isinstance(value, str) for value in values):
            raise TaskFileError(f"{self.where}: expected {key} to be a list of strings, got {values!r:.80}")
        return text_array(values, f"{self.where}: {key}", "a text", TaskFileError)

    def _pairs(self, entry: Mapping[str, Any], key: str) -> Array:
        values = self._of(entry, key, list)
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in values):
            raise TaskFileError(f"{self.where}: expected {key} to be a list of pairs, got {values!r:.80}")
        return self._strings({key: [word for pair in values for word in pair]}, key).reshape(-1, 2)

    def _store(self, entry: Mapping[str, Any]) -> EmbeddingStore:
        path = inside(self.path, self._of(entry, "store", str), self.where)
        ids = inside(self.path, entry["ids"], self.where) if "ids" in entry else None
        return open_store(path, key=entry.get("key"), id_column=entry.get("id"), ids=ids)

    def _text(self, name: Any) -> Array:
        path = inside(self.path, name, self.where)
        return np.asarray(open_store(path, modality="text"))

    def _table(self) -> LabelTable | None:
        if not self.labels:
            return None
        columns = [self.labels[key] for key in ("target", "split") if key in self.labels]
        columns += self.labels.get("sensitive", [])
        file = inside(self.path, self._of(self.labels, "file", str), self.where)
        return read_labels(
            file,
            id_column=self._of(self.labels, "id", str),
            columns=columns,
            allow_constant=[self.labels["split"]] if "split" in self.labels else [],
        )

    def _name_values(self, table: LabelTable, arrays: dict[str, Array]) -> None:
        """Add the names of classes and values that ``task.toml`` does not give, from the columns of the table."""
        pairs = [(self.labels["target"], "class_names", "target_prompts")] if "target" in self.labels else []
        pairs += [
            (name, part_key("sensitive_names", name), part_key("sensitive_prompts", name))
            for name in self.labels.get("sensitive", [])
        ]
        for column, names, prompts in pairs:
            if names not in arrays:
                values = table.columns[column].names
                if prompts in arrays and len(arrays[prompts]) != len(values):
                    raise TaskFileError(
                        f"{self.where}: column {column!r} has the values {', '.join(values[:10])} but there are "
                        f"{len(arrays[prompts])} prompts; give the names in the order of the prompts"
                    )
                arrays[names] = text_array(
                    values, f"{self.where}: column {column!r}", "a value", TaskFileError
                )

    def _codes(self, column: Column, names: Array) -> Ints:
        """Return a column as indices of the names; values that are numbers are taken as indices."""
        place = {str(name): i for i, name in enumerate(names)}
        if set(column.names) <= set(place):
            codes = [place[name] for name in column.names]
        elif all(_is_index(name, len(names)) for name in column.names):
            codes = [int(name) for name in column.names]
        else:
            raise TaskFileError(
                f"{self.where}: column {column.name!r} has the values {', '.join(column.names[:10])}, the names are "
                f"{', '.join(place)}; they must be the same, or numbers from 0"
            )
        return np.array([*codes, -1], dtype=np.int64)[column.codes]

    def _rows(self, store: EmbeddingStore, table: LabelTable) -> Ints:
        joined = join(store.ids, table.ids, match=self._of(self.labels, "match", str, "exact"))
        choice = self.labels.get("unmatched", "error")
        if choice not in ("error", "drop"):
            raise TaskFileError(f"{self.where}: expected unmatched to be 'error' or 'drop', got {choice!r}")
        if joined.unmatched_embeddings and choice == "error":
            raise JoinError(
                f'{" ".join(joined.lines())} Give them a label, or set unmatched = "drop" in [labels] to leave these '
                "embeddings out"
            )
        return joined.rows_in_labels

    def _fill(
        self, split: str, store: EmbeddingStore, rows: Ints, table: LabelTable, arrays: dict[str, Array]
    ) -> None:
        """Add the arrays of one split: the embeddings whose row in the table is not -1, and their labels."""
        chosen = np.flatnonzero(rows >= 0)
        arrays[f"image_{split}"] = store[chosen] if len(chosen) < len(store) else store[:]
        if store.ids is not None:
            arrays[f"ids_{split}"] = store.ids[chosen]
        label_rows = rows[chosen]
        if "target" in self.labels:
            column = table.columns[self.labels["target"]]
            arrays[f"y_{split}"] = self._codes(column, arrays["class_names"])[label_rows]
        for name in self.labels.get("sensitive", []):
            names = arrays[part_key("sensitive_names", name)]
            arrays[s_key(name, split)] = self._codes(table.columns[name], names)[label_rows]

    def _split_by_file(
        self, split: str, store: EmbeddingStore, table: LabelTable | None, arrays: dict[str, Array]
    ) -> None:
        entry = self.spec["splits"][split]
        if table is not None:
            self._fill(split, store, self._rows(store, table), table, arrays)
        else:
            arrays[f"image_{split}"] = store[:]
            if store.ids is not None:
                arrays[f"ids_{split}"] = store.ids
        label_files = {f"y_{split}": entry["y"]} if "y" in entry else {}
        label_files |= {
            s_key(name, split): file for name, file in _table_of(entry.get("s", {}), self.where, "s").items()
        }
        for key, file in label_files.items():
            if key in arrays:
                raise TaskFileError(f"{self.where}: {key} is given both as an array and in the labels' table")
            arrays[key] = read_npy(inside(self.path, file, self.where))

    def _split_by_column(
        self, store: EmbeddingStore, table: LabelTable | None, arrays: dict[str, Array]
    ) -> None:
        if table is None or "split" not in self.labels:
            raise TaskFileError(f"{self.where}: [images] needs [labels] with a column split")
        column = table.columns[self._of(self.labels, "split", str)]
        values = _table_of(self.labels.get("split_values", {}), self.where, "split_values")
        named = {str(value): split for split, value in values.items()} or {split: split for split in SPLITS}
        _check_split_values(column.names, named, values, self.where, column.name)
        rows = self._rows(store, table)
        code = np.where(rows >= 0, column.codes[rows], -1)
        for value, split in named.items():
            if value in column.names:
                in_split = np.where(code == column.names.index(value), rows, -1)
                if (in_split >= 0).any():
                    self._fill(split, store, in_split, table, arrays)


def _is_index(name: str, count: int) -> bool:
    """Return whether a text is a whole number below the count; a text of thousands of digits is not parsed."""
    return (
        name.isascii() and name.isdecimal() and len(name.lstrip("0")) <= len(str(count)) and int(name) < count
    )


def _check_split_values(
    names: Sequence[str], known: Collection[str], values: Mapping[str, Any], where: str, column: str
) -> None:
    unknown = [name for name in names if name not in known]
    if unknown or set(values) - set(SPLITS):
        raise TaskFileError(
            f"{where}: expected the split column {column!r} to hold {', '.join(known)}, got also {unknown[:5]}; "
            'give the meaning of its values, as in split_values = { train = "0", test = "2" }'
        )


def _table_of(value: Any, where: str, title: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TaskFileError(f"{where}: expected {title} to be a table, got {value!r:.80}")
    return value


def inside(folder: Path, name: Any, where: str) -> Path:
    """Return the path of a file that ``task.toml`` names; raise unless it exists inside the folder without links."""
    if not isinstance(name, str) or not name or "\\" in name or ":" in name or "\0" in name:
        raise TaskFileError(f"{where}: expected the relative path of a part, with /, got {name!r:.80}")
    parts = PurePosixPath(name).parts
    if PurePosixPath(name).is_absolute() or ".." in parts or not parts:
        raise TaskFileError(f"{where}: expected a path inside the folder, got {name!r}")
    if max(len(part.encode("utf-8", "surrogatepass")) for part in parts) > MAX_NAME_BYTES:
        raise TaskFileError(
            f"{where}: expected the path of a part, got a name too long for a file: {name[:40]!r}…"
        )
    path = folder
    for part in parts:
        path = path / part
        if path.is_symlink():
            raise TaskFileError(f"{where}: expected no symbolic links, {path} is one")
    if not path.exists():
        raise TaskFileError(f"{where}: expected {name} in the folder, found nothing at {path}")
    if not path.resolve().is_relative_to(folder.resolve()):
        raise TaskFileError(f"{where}: expected a path inside the folder, {name!r} leads out of it")
    for below in path.rglob("*") if path.is_dir() else ():
        if below.is_symlink():
            raise TaskFileError(f"{where}: expected no symbolic links, {below} is one")
    return path
