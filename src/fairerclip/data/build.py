"""Building of a task from embeddings, labels and prompts, joined by id."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.checks import check_range
from fairerclip._util.types import Ints
from fairerclip.data import Sensitive, Sentences, Split, Task, Variants
from fairerclip.data.datasets import DatasetIndex
from fairerclip.data.join import join
from fairerclip.data.label_table import Column, LabelTable
from fairerclip.data.prompts import EncodedPrompts, PromptSet, encode_prompts
from fairerclip.data.provenance import check_same_model
from fairerclip.data.stores import EmbeddingStore
from fairerclip.data.writer import read_text
from fairerclip.errors import JoinError, LabelError, ParameterError, PromptError, StoreError

if TYPE_CHECKING:
    from fairerclip.encoders.encoder import Encoder

Encode = Callable[[Sequence[str]], NDArray[np.floating]]

SPLITS = ("train", "val", "test")
SPLIT_NAMES = {
    "0": "train",
    "1": "val",
    "2": "test",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "eval": "test",
}
"""Accepted values of a split column besides train, val and test."""


@dataclass(frozen=True)
class Labelled:
    """Labelled rows of a data set or a label file: id, split, class and sensitive values of each."""

    name: str
    ids: NDArray[Any]
    split: NDArray[Any]
    """(n,) train, val or test."""
    y: Ints | None
    class_names: tuple[str, ...]
    sensitive: dict[str, tuple[Ints, tuple[str, ...]]]


def from_dataset(index: DatasetIndex) -> Labelled:
    """Return the labelled rows of a data set."""
    return Labelled(index.name, index.ids, index.split, index.y, index.class_names, index.sensitive)


def from_table(
    table: LabelTable,
    *,
    name: str,
    target: str | None,
    sensitive: Sequence[str],
    split_column: str | None,
    shares: tuple[float, float, float],
    seed: int,
) -> Labelled:
    """Return the labelled rows of a label file, split by a column, or at random with the given shares."""
    y = None if target is None else table.columns[target]
    if split_column is None:
        split = random_split(len(table), shares, seed)
    else:
        split = _named_split(table.columns[split_column])
    return Labelled(
        name,
        table.ids,
        split,
        None if y is None else y.codes,
        () if y is None else y.names,
        {s: (table.columns[s].codes, table.columns[s].names) for s in sensitive},
    )


def random_split(n: int, shares: tuple[float, float, float], seed: int) -> NDArray[np.str_]:
    """Return "train", "val" or "test" for each of n rows, drawn at random with shares that sum to one."""
    if not (min(shares) >= 0 and abs(sum(shares) - 1) <= 1e-9):
        raise ParameterError(f"split shares must be non-negative and sum to 1; got {shares}")
    check_range("seed", seed)
    counts = np.floor(np.cumsum(shares) * n + 0.5).astype(int)
    out = np.empty(n, dtype="<U5")
    order = np.random.default_rng(seed).permutation(n)
    for name, start, stop in zip(SPLITS, [0, *counts[:-1]], counts, strict=True):
        out[order[start:stop]] = name
    return out


def _named_split(column: Column) -> NDArray[np.str_]:
    names = [SPLIT_NAMES.get(name.lower(), name.lower()) for name in column.names]
    unknown = sorted({name for name in names if name not in SPLITS})
    if unknown:
        raise LabelError(
            f"column {column.name!r} must hold train, val or test (or 0, 1, 2); got {', '.join(unknown[:5])}"
        )
    if (column.codes < 0).any():
        raise LabelError(f"column {column.name!r} has no split for {int((column.codes < 0).sum())} rows")
    return np.array(names)[column.codes]


def build_task(
    labelled: Labelled, store: EmbeddingStore, prompts: EncodedPrompts | None
) -> tuple[Task, list[str]]:
    """Build a task: join embeddings with labels by id, and labels with prompts by name.

    Returns the task and notes on rows, classes and values that did not match. Memory: the matched embeddings.
    """
    if store.ids is None:
        raise StoreError(
            f"{store.path} has no ids, so its rows cannot be matched with labels: labels are never joined by "
            "position. Give an .npz with an array 'ids', parquet with an id column, or a clip-retrieval folder"
        )
    joined = join(store.ids, labelled.ids)
    notes = joined.lines() if joined.unmatched_embeddings or joined.unmatched_labels else []
    texts = _Texts.of(labelled, prompts)
    label_rows = joined.rows_in_labels
    rows = {}
    for name in SPLITS:
        in_split = np.flatnonzero((label_rows >= 0) & (labelled.split[label_rows] == name))
        if len(in_split):
            rows[name] = in_split
    if not rows:
        raise JoinError("no embedding with a label belongs to a split")
    splits = {
        name: _split(store, in_split, label_rows[in_split], labelled, texts)
        for name, in_split in rows.items()
    }
    task = texts.task(labelled, splits)
    return task, [*notes, *_missing_notes(task), *_sentence_notes(task, prompts)]


def _sentence_notes(task: Task, prompts: EncodedPrompts | None) -> list[str]:
    """Return notes on the free queries of the task, and on its sentences for Orth-Proj and Orth-Cali, if any."""
    queries = [] if task.queries is None else [f"Free queries: {len(task.queries.prompts)}."]
    given = [] if prompts is None else [prompts.spurious, prompts.counterfactual]
    if all(part is None for part in given):
        return queries
    kept = {"spurious": task.spurious, "counterfactual": task.counterfactual}
    counts = [f"{len(part.prompts)} {kind}" for kind, part in kept.items() if part is not None]
    if counts:
        return [*queries, f"Sentences for Orth-Proj and Orth-Cali: {', '.join(counts)}."]
    return [
        *queries,
        "The spurious and counterfactual sentences of the prompts are left out: they may be about attributes that "
        "the task does not have.",
    ]


def _missing_notes(task: Task) -> list[str]:
    """Return notes on splits, classes and values that have no rows, and on attributes without prompts."""
    out = [f"The {name} split is empty." for name in SPLITS if name not in task.splits]
    for name, split in task.splits.items():
        columns = [] if split.y is None else [("class", task.class_names, split.y)]
        columns += [(a, task.sensitive[a].names, codes) for a, codes in split.s.items()]
        for label, names, codes in columns:
            absent = [str(n) for k, n in enumerate(names) if not (codes == k).any()]
            if absent:
                out.append(f"The {name} split has no row of {label} {', '.join(absent)}.")
    out += [
        f"There are no prompts for {a}, so its values cannot be predicted from images: fit with labels 'all'."
        for a, attribute in task.sensitive.items()
        if attribute.text is None
    ]
    return out


def _split(store: EmbeddingStore, rows: Ints, labels: Ints, labelled: Labelled, texts: _Texts) -> Split:
    return Split(
        X=store[rows],
        y=None if labelled.y is None else texts.class_move[labelled.y[labels]],
        s={name: texts.value_moves[name][codes[labels]] for name, (codes, _) in labelled.sensitive.items()},
        ids=np.asarray(store.ids)[rows].astype(str),
    )


@dataclass(frozen=True)
class _Texts:
    """Prompts in the order of the task, and maps from the codes of the labels to that order."""

    class_names: tuple[str, ...]
    class_move: Ints
    value_moves: dict[str, Ints]
    value_names: dict[str, tuple[str, ...]]
    prompts: EncodedPrompts | None

    @classmethod
    def of(cls, labelled: Labelled, prompts: EncodedPrompts | None) -> _Texts:
        class_names = labelled.class_names
        if prompts is not None and prompts.class_names and labelled.y is not None:
            class_names = _ordered(labelled.class_names, prompts.class_names, "the target")
        elif prompts is not None and labelled.y is None:
            class_names = prompts.class_names
        names = {}
        for attribute, (_, values) in labelled.sensitive.items():
            known = prompts is not None and attribute in prompts.sensitive
            names[attribute] = (
                _ordered(values, prompts.sensitive[attribute].names, attribute)
                if known and prompts
                else values
            )
        moves = {a: _move(labelled.sensitive[a][1], names[a]) for a in names}
        return cls(class_names, _move(labelled.class_names, class_names), moves, names, prompts)

    def task(self, labelled: Labelled, splits: dict[str, Split]) -> Task:
        encoded = self.prompts
        target = None if encoded is None else encoded.text_target
        text = None if target is None else np.asarray(target, dtype=np.float32)
        sentences = (
            self.class_names if encoded is None else tuple(" | ".join(p) for p in encoded.target_prompts)
        )
        sensitive = {}
        for name, values in self.value_names.items():
            attribute = None if encoded is None else encoded.sensitive.get(name)
            sensitive[name] = Sensitive(
                name=name,
                names=values,
                prompts=values if attribute is None else tuple(" | ".join(p) for p in attribute.prompts),
                text=None if attribute is None else np.asarray(attribute.text, dtype=np.float32),
            )
        wordings = (
            None
            if encoded is None or encoded.variants is None
            else Variants(encoded.variants, encoded.templates)
        )
        spurious, counterfactual = self._further(encoded)
        return Task(
            labelled.name,
            splits,
            text,
            sentences,
            self.class_names,
            sensitive,
            variants=wordings,
            spurious=spurious,
            counterfactual=counterfactual,
            queries=None
            if encoded is None or encoded.queries is None
            else Sentences(encoded.queries, encoded.query_prompts),
        )

    def _further(self, encoded: EncodedPrompts | None) -> tuple[Sentences | None, Sentences | None]:
        """Return spurious and counterfactual sentences, unless the prompts have attributes that the task has not."""
        if encoded is None or not set(encoded.sensitive) <= set(self.value_names):
            return None, None
        spurious, pairs = encoded.spurious, encoded.counterfactual
        return (
            None if spurious is None else Sentences(spurious, encoded.spurious_prompts),
            None if pairs is None else Sentences(pairs.vectors, pairs.prompts, pairs.classes),
        )


def check_prompts(labelled: Labelled, prompts: PromptSet) -> None:
    """Raise, before anything is embedded, if the labels have names for which there are no prompts."""
    if labelled.y is not None and prompts.classes:
        _ordered(labelled.class_names, prompts.class_names, "the target")
    for attribute, (_, values) in labelled.sensitive.items():
        if attribute in prompts.sensitive:
            _ordered(values, prompts.sensitive_names(attribute), attribute)


def _ordered(labels: Sequence[str], prompts: Sequence[str], column: str) -> tuple[str, ...]:
    """Return the names of the prompts; raise if a name of the labels is not among them."""
    if set(labels) <= set(prompts):
        return tuple(prompts)
    raise PromptError(
        f"{column} has values {', '.join(map(str, labels))}, but the prompts are for {', '.join(prompts)}: use the "
        "same names in the prompt file and in the labels"
    )


def _move(old: Sequence[str], new: Sequence[str]) -> Ints:
    place = {name: k for k, name in enumerate(new)}
    return np.array([*(place[name] for name in old), -1], dtype=np.int64)  # -1 stays -1


def text_encoder(
    prompts: PromptSet, store: EmbeddingStore, encoder: Encoder | None, text: EmbeddingStore | None
) -> Encode:
    """Return the function that embeds prompts: a model's text encoder, or a look-up in ``text`` or in the store."""
    if encoder is not None:
        check_same_model(store.provenance, encoder.provenance)
        if encoder.width != store.shape[1]:
            raise PromptError(
                f"{encoder.name} returns {encoder.width} columns, {store.path} has {store.shape[1]}: prompts must be "
                "encoded by the model that embedded the images"
            )
        return encoder.encode_text
    if text is None:
        sentences, vectors = _stored_text(store)
    else:
        sentences, vectors = _given_text(prompts, store, text)
    place = {sentence: k for k, sentence in enumerate(sentences)}

    def look_up(wanted: Sequence[str]) -> NDArray[np.floating]:
        missing = [w for w in wanted if w not in place]
        if missing:
            raise PromptError(
                f"there is no embedding of the prompt {missing[0]!r} ({len(missing)} are missing): embed the prompts "
                "with --model, or with `fairerclip embed … --prompts`"
            )
        return np.asarray(vectors[[place[w] for w in wanted]], dtype=np.float32)

    return look_up


def _given_text(
    prompts: PromptSet, store: EmbeddingStore, text: EmbeddingStore
) -> tuple[list[str], NDArray[Any]]:
    """Return sentences and embeddings of a file; without ids in it, its rows are in the order of the prompt set."""
    check_same_model(store.provenance, text.provenance)
    if text.ids is not None:
        return [str(i) for i in text.ids], text[:]
    sentences = prompts.all_prompts()
    if len(text) != len(sentences):
        raise PromptError(
            f"{prompts.name} has {len(sentences)} distinct prompts, but {len(text)} embeddings were given; they "
            "must be in the order of its prompts"
        )
    return sentences, text[:]


def _stored_text(store: EmbeddingStore) -> tuple[list[str], NDArray[Any]]:
    try:
        sentences, vectors = read_text(store.path)
    except StoreError:
        raise PromptError(
            f"{store.path} holds no prompt embeddings: give --model (the one that embedded the images), or --text with "
            "one row per prompt"
        ) from None
    return list(sentences), vectors


def encoded_prompts(prompts: PromptSet, encode: Encode) -> EncodedPrompts:
    """Embed a prompt set and average the prompts of each class and value into one vector, as CLIP does."""
    return encode_prompts(prompts, encode, average=True)
