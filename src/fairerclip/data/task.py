"""Tasks: embeddings, texts, labels and splits of one experiment, in memory and in one file."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.files import reading
from fairerclip._util.types import Ints
from fairerclip.data import task_fields as fields
from fairerclip.data.io.npy import DEFAULT_LIMITS, Limits
from fairerclip.data.task_fields import SPLITS, UNNAMED, part_key, s_key, words_key
from fairerclip.data.task_files import read_arrays, task_suffix, write_arrays
from fairerclip.data.task_parts import Sensitive as Sensitive
from fairerclip.data.task_parts import SentencePairs as SentencePairs
from fairerclip.data.task_parts import Sentences as Sentences
from fairerclip.data.task_parts import Split as Split
from fairerclip.data.task_parts import Variants as Variants
from fairerclip.data.task_parts import pick_attribute
from fairerclip.errors import TaskFileError, UnknownArrayWarning

if TYPE_CHECKING:
    from fairerclip.data.task_display import TaskHead

Array = NDArray[Any]
Floats = NDArray[np.float32]

SHOWN = 5
"""Unknown arrays that one warning names."""


@dataclass(frozen=True, eq=False, repr=False)
class Task:
    """Data of one experiment: splits with embeddings and labels, and prompt embeddings.

    Attributes
    ----------
    name : str
        Name in titles and messages.
    splits : dict of str to Split
        Any of ``train``, ``val`` and ``test``.
    text_target : ndarray of shape (c, p) or None
        One prompt embedding per class.
    target_prompts, class_names : tuple of c str
        Text of the prompts, and short names of the classes.
    sensitive : dict of str to Sensitive
        Sensitive attributes by name; a single unnamed attribute has the name ``"s"``.
    simulated : bool
        Whether the embeddings are random and not computed from images.
    extra : dict of str to ndarray
        Arrays of the file with unknown names, unchanged.
    variants : Variants or None
        Other wordings of the class prompts, to measure how much results depend on the wording.
    spurious : Sentences or None
        Sentences on the sensitive attributes; Orth-Proj and Orth-Cali project the class prompts onto the orthogonal
        complement of their span.
    counterfactual : Sentences or None
        Sentences that name a class together with sensitive values, with the class of each; Orth-Cali reduces the
        distances between those of one class.
    harmful, helpful : SentencePairs or None
        Pairs of sentences whose difference RoboShot removes from images, and strengthens in them.
    queries : Sentences or None
        Free queries for a gallery, by which images are ranked; they are not classes.
    """

    name: str
    splits: dict[str, Split]
    text_target: Floats | None
    target_prompts: tuple[str, ...]
    class_names: tuple[str, ...]
    sensitive: dict[str, Sensitive] = field(default_factory=dict)
    simulated: bool = False
    extra: dict[str, Array] = field(default_factory=dict)
    variants: Variants | None = None
    spurious: Sentences | None = None
    counterfactual: Sentences | None = None
    queries: Sentences | None = None
    harmful: SentencePairs | None = None
    helpful: SentencePairs | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes, or of target prompts if there are no labels."""
        return len(self.class_names)

    @property
    def sentences(self) -> dict[str, Sentences]:
        """Sentences besides the prompts by kind: those of spurious, counterfactual and queries that the task has."""
        kinds = {"spurious": self.spurious, "counterfactual": self.counterfactual, "queries": self.queries}
        return {kind: given for kind, given in kinds.items() if given is not None}

    @property
    def sentence_pairs(self) -> dict[str, SentencePairs]:
        """Pairs of sentences by kind: those of harmful and helpful that the task has."""
        kinds = {"harmful": self.harmful, "helpful": self.helpful}
        return {kind: given for kind, given in kinds.items() if given is not None}

    @property
    def width(self) -> int:
        """Width p of the embeddings."""
        return int(next(iter(self.splits.values())).X.shape[1])

    @property
    def train(self) -> Split:
        """The training rows."""
        return self.split("train")

    @property
    def val(self) -> Split:
        """The validation rows."""
        return self.split("val")

    @property
    def test(self) -> Split:
        """The test rows."""
        return self.split("test")

    def split(self, name: str) -> Split:
        """Return the split of that name; raise a `TaskFileError` that lists the splits if it is absent."""
        if name not in self.splits:
            raise TaskFileError(f"task {self.name!r} has no split {name!r}; it has {', '.join(self.splits)}")
        return self.splits[name]

    def sensitive_attribute(self, name: str | None = None) -> Sensitive:
        """Return the sensitive attribute of that name; None means the only one.

        Raises
        ------
        ParameterError
            There is no such attribute, or None was given and there are several.
        """
        return self.sensitive[pick_attribute(name, self.sensitive, f"task {self.name!r}")]

    def head(self, n: int = 5) -> TaskHead:
        """Return the first ``n`` rows of each split with the names of their labels, without embeddings.

        Examples
        --------
        >>> Task("t", {"val": Split(np.eye(2), np.array([1, -1]))}, None, ("cat", "dog"), ("cat", "dog")).head()
        split  row  class
        val    0    dog
        val    1    ?
        """
        from fairerclip.data.task_display import task_head

        return task_head(self, n)

    def __repr__(self) -> str:
        from fairerclip.data.task_display import task_title

        return f"<{task_title(self)}>"

    def _repr_html_(self) -> str:
        from fairerclip.data.task_display import task_html

        return task_html(self)


@reading(TaskFileError)
def load_task(path: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> Task:
    """Read a task file and check it.

    Parameters
    ----------
    path : path-like
        An ``.npz`` or ``.safetensors`` with ``image_train``, ``y_train``, ``s_train``, ``text_target`` and so
        on.
    limits : Limits
        Largest sizes that the file may declare.

    Returns
    -------
    Task
        Embeddings in float32, labels in int64. Memory: the arrays once, and twice the largest one.

    Raises
    ------
    TaskFileError
        The file is absent or damaged, or its arrays are inconsistent.

    Warns
    -----
    UnknownArrayWarning
        The file has arrays that nothing uses; they are kept in `Task.extra`.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> X, y = np.eye(3, dtype=np.float32), np.array([0, 1, -1])
    >>> made = Task("tiny", {"train": Split(X, y)}, None, ("a cat", "a dog"), ("cat", "dog"))
    >>> load_task(save_task(made, Path(folder.name) / "tiny.npz")).train.y
    array([ 0,  1, -1])
    >>> folder.cleanup()
    """
    file = Path(path)
    arrays = read_arrays(file, limits)
    task = task_of_arrays(arrays, file)
    unused = fields.unused_arrays(arrays, list(task.sensitive), task.extra)
    if unused:
        more = f", and {len(unused) - SHOWN} more" if len(unused) > SHOWN else ""
        warnings.warn(f"{file}: {'; '.join(unused[:SHOWN])}{more}", UnknownArrayWarning, stacklevel=3)
    return task


def save_task(
    task: Task, path: str | os.PathLike[str], *, overwrite: bool = False, compress: bool = False
) -> Path:
    """Write a task file that `load_task` reads back as the same task.

    Parameters
    ----------
    task : Task
        Task to write; it is checked first, as in `load_task`.
    path : path-like
        An ``.npz`` or a ``.safetensors``; it appears whole or not at all.
    overwrite : bool
        Replace an existing file.
    compress : bool
        Deflate the arrays of an ``.npz``.

    Returns
    -------
    pathlib.Path
        The path written.

    Raises
    ------
    OutputExistsError
        The path exists and `overwrite` is false.
    TaskFileError
        The arrays of the task are inconsistent.

    Examples
    --------
    >>> import tempfile
    >>> from fairerclip.data.simulate import waterbirds
    >>> folder = tempfile.TemporaryDirectory()
    >>> save_task(waterbirds(scale=0.01, width=64), Path(folder.name) / "birds.npz").name
    'birds.npz'
    >>> folder.cleanup()
    """
    file = Path(path)
    task_suffix(file)  # before the work
    arrays = _to_arrays(task, file)
    task_of_arrays(arrays, file)
    return write_arrays(file, arrays, overwrite=overwrite, compress=compress)


def task_of_arrays(arrays: Mapping[str, Array], file: Path) -> Task:
    """Return the task that arrays by key make; raise a `TaskFileError` with the file's name if they do not fit."""
    path = str(file)
    present = [split for split in SPLITS if f"image_{split}" in arrays]
    if not present:
        keys = ", ".join(arrays) or "none"
        raise TaskFileError(f"{path}: expected image_train, image_val or image_test, got the arrays: {keys}")
    names = fields.attributes(arrays, path)
    extra = {key: arrays[key] for key in fields.unknown_keys(arrays, names, path)}
    X = {split: fields.embeddings(arrays[f"image_{split}"], f"{path}: image_{split}") for split in present}
    width = X[present[0]].shape[1]
    for split in present:
        fields.check_width(X[split], width, f"{path}: image_{split}", f"image_{present[0]}")
    fields.check_orphans(arrays, present, names, path)
    y_keys = [f"y_{split}" for split in present if f"y_{split}" in arrays]
    text, prompts, class_names = fields.texts(
        arrays, ("text_target", "target_prompts", "class_names"), width, path
    )
    if text is None and not y_keys:
        raise TaskFileError(f"{path}: expected text_target or labels y_train, y_val, y_test, got neither")
    y = {key: fields.labels(arrays[key], len(X[key[2:]]), None, f"{path}: {key}") for key in y_keys}
    class_names = class_names or prompts or fields.numbered("class", text, y, path)
    for key in y_keys:
        fields.labels(y[key], len(y[key]), len(class_names), f"{path}: {key}")
    sensitive, s = _sensitive(arrays, names, X, width, path)
    fields.check_named(class_names, f"{path}: class_names")
    splits = {
        split: Split(
            X[split],
            y.get(f"y_{split}"),
            {name: s[s_key(name, split)] for name in names if s_key(name, split) in s},
            _ids(arrays, split, len(X[split]), path),
        )
        for split in present
    }
    name = fields.scalar(arrays, "name", "U", path) or file.stem
    simulated = bool(fields.scalar(arrays, "simulated", "b", path))
    variants = fields.variants(arrays, len(class_names), width, path)
    spurious = fields.sentences(arrays, "spurious", None, width, path)
    counterfactual = fields.sentences(arrays, "counterfactual", len(class_names), width, path)
    queries = fields.sentences(arrays, "queries", None, width, path)
    harmful, helpful = (fields.pairs(arrays, kind, width, path) for kind in ("harmful", "helpful"))
    return Task(
        name,
        splits,
        text,
        prompts or class_names,
        class_names,
        sensitive,
        simulated,
        extra,
        None if variants is None else Variants(*variants),
        None if spurious is None else Sentences(*spurious),
        None if counterfactual is None else Sentences(*counterfactual),
        None if queries is None else Sentences(*queries),
        None if harmful is None else SentencePairs(*harmful),
        None if helpful is None else SentencePairs(*helpful),
    )


def _sensitive(
    arrays: Mapping[str, Array], names: list[str], X: Mapping[str, Floats], width: int, path: str
) -> tuple[dict[str, Sensitive], dict[str, Ints]]:
    attributes: dict[str, Sensitive] = {}
    values: dict[str, Ints] = {}
    for name in names:
        keys = tuple(
            part_key(part, name) for part in ("text_sensitive", "sensitive_prompts", "sensitive_names")
        )
        text, prompts, value_names = fields.texts(arrays, keys, width, path)
        s = {
            key: fields.labels(arrays[key], len(X[split]), None, f"{path}: {key}")
            for split in X
            if (key := s_key(name, split)) in arrays
        }
        stem = "group" if name == UNNAMED else name
        value_names = value_names or prompts or fields.numbered(stem, text, s, path)
        for key, array in s.items():
            values[key] = fields.labels(array, len(array), len(value_names), f"{path}: {key}")
        fields.check_named(value_names, f"{path}: {keys[2]}")
        attributes[name] = Sensitive(name, value_names, prompts or value_names, text)
    return attributes, values


def _ids(arrays: Mapping[str, Array], split: str, n: int, path: str) -> Array | None:
    key = f"ids_{split}"
    return fields.row_ids(arrays[key], n, f"{path}: {key}") if key in arrays else None


def _to_arrays(task: Task, file: Path) -> dict[str, Array]:
    arrays: dict[str, Array] = {"name": np.array(task.name), "simulated": np.array(task.simulated)}
    # Before the splits: attributes are loaded in the order in which their keys first occur.
    for name, attribute in task.sensitive.items():
        arrays[part_key("sensitive_prompts", name)] = np.array(attribute.prompts)
        arrays[part_key("sensitive_names", name)] = np.array(attribute.names)
    for split, rows in task.splits.items():
        parts = {f"image_{split}": rows.X, f"y_{split}": rows.y, f"ids_{split}": rows.ids}
        parts |= {s_key(name, split): values for name, values in rows.s.items()}
        arrays |= {key: np.asarray(value) for key, value in parts.items() if value is not None}
        unknown = [name for name in rows.s if name not in task.sensitive]
        if split not in SPLITS or unknown:
            raise TaskFileError(
                f"{file}: expected splits {', '.join(SPLITS)} and attributes {list(task.sensitive)}, "
                f"got split {split!r} with {list(rows.s)}"
            )
    for key, value in (("text_target", task.text_target), *_sensitive_texts(task)):
        if value is not None:
            arrays[key] = value
    arrays |= {"target_prompts": np.array(task.target_prompts), "class_names": np.array(task.class_names)}
    if task.variants is not None:
        arrays["text_target_variants"] = task.variants.text
        arrays["target_templates"] = np.array(task.variants.templates)
    for kind, sentences in task.sentences.items():
        arrays |= {f"text_{kind}": sentences.text, words_key(kind): np.array(sentences.prompts)}
        if sentences.classes is not None:
            arrays[f"{kind}_classes"] = sentences.classes
    for kind, pairs in task.sentence_pairs.items():
        arrays |= {f"text_{kind}": pairs.text, words_key(kind): np.array(pairs.prompts)}
    for key, array in arrays.items():
        if key.startswith(("image_", "text_")):
            arrays[key] = np.asarray(array, dtype=np.float32)
    clash = sorted((fields.known_keys(task.sensitive) | set(arrays)) & set(task.extra))
    if clash:
        raise TaskFileError(
            f"{file}: expected names of extra arrays that the format does not use, got {', '.join(clash)}"
        )
    return arrays | task.extra


def _sensitive_texts(task: Task) -> list[tuple[str, Floats | None]]:
    return [(part_key("text_sensitive", name), attribute.text) for name, attribute in task.sensitive.items()]
