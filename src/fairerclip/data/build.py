"""From embeddings, labels and prompts to a task: everything joined by id."""

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
"""What a column of splits may say besides train, val and test."""


@dataclass(frozen=True)
class Labelled:
    """Rows with an id, a split, a class and groups: what a dataset or a label file gives."""

    name: str
    ids: NDArray[Any]
    split: NDArray[Any]
    """(n,) train, val or test."""
    y: Ints | None
    class_names: tuple[str, ...]
    sensitive: dict[str, tuple[Ints, tuple[str, ...]]]


def from_dataset(index: DatasetIndex) -> Labelled:
    """A dataset's own lists."""
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
    """A label file: the target, the sensitive attributes, and splits by column or at random by share."""
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
    """Train, val or test for each of n rows, by shares that sum to one; seeded."""
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
            f"column {column.name!r} must say train, val or test (or 0, 1, 2); got {', '.join(unknown[:5])}"
        )
    if (column.codes < 0).any():
        raise LabelError(f"column {column.name!r} has no split for {int((column.codes < 0).sum())} rows")
    return np.array(names)[column.codes]


def build_task(
    labelled: Labelled, store: EmbeddingStore, prompts: EncodedPrompts | None
) -> tuple[Task, list[str]]:
    """Join embeddings with labels by id, and with prompts by class and value name.

    Returns the task and plain sentences on what did not match. Memory: the embeddings that match.
    """
    if store.ids is None:
        raise StoreError(
            f"{store.path} has no ids, so its rows cannot be matched with labels: labels are never joined by "
            "position. Give an .npz with an array 'ids', parquet with an id column, or a clip-retrieval folder"
        )
    met = join(store.ids, labelled.ids)
    notes = met.lines() if met.unmatched_embeddings or met.unmatched_labels else []
    texts = _Texts.of(labelled, prompts)
    rows = {}
    for name in SPLITS:
        here = np.flatnonzero((met.rows_in_labels >= 0) & (labelled.split[met.rows_in_labels] == name))
        if len(here):
            rows[name] = here
    if not rows:
        raise JoinError("no embedding with a label belongs to a split")
    splits = {
        name: _split(store, here, met.rows_in_labels[here], labelled, texts) for name, here in rows.items()
    }
    task = texts.task(labelled, splits)
    return task, [*notes, *_gaps(task), *_sentences_said(task, prompts)]


def _sentences_said(task: Task, prompts: EncodedPrompts | None) -> list[str]:
    """What became of the sentences of the prompt set that Orth-Proj and Orth-Cali work on."""
    there = [] if prompts is None else [prompts.spurious, prompts.counterfactual]
    if all(part is None for part in there):
        return []
    kept = {"spurious": task.spurious, "counterfactual": task.counterfactual}
    counts = [f"{len(part.prompts)} {kind}" for kind, part in kept.items() if part is not None]
    if counts:
        return [f"Sentences for Orth-Proj and Orth-Cali: {', '.join(counts)}."]
    return [
        "The spurious and counterfactual sentences of the prompts are left out: they may be about attributes that "
        "the task does not have."
    ]


def _gaps(task: Task) -> list[str]:
    """Splits, classes and values that have no rows, and attributes without prompts."""
    out = [f"The {name} split is empty." for name in SPLITS if name not in task.splits]
    for name, split in task.splits.items():
        columns = [] if split.y is None else [("class", task.class_names, split.y)]
        columns += [(a, task.sensitive[a].names, codes) for a, codes in split.s.items()]
        for what, names, codes in columns:
            gone = [str(n) for k, n in enumerate(names) if not (codes == k).any()]
            if gone:
                out.append(f"The {name} split has no row of {what} {', '.join(gone)}.")
    out += [
        f"There are no prompts for {a}, so its values cannot be read from images: fit with labels 'all'."
        for a, attribute in task.sensitive.items()
        if attribute.text is None
    ]
    return out


def _split(store: EmbeddingStore, here: Ints, labels: Ints, labelled: Labelled, texts: _Texts) -> Split:
    return Split(
        X=store[here],
        y=None if labelled.y is None else texts.class_move[labelled.y[labels]],
        s={name: texts.value_moves[name][codes[labels]] for name, (codes, _) in labelled.sensitive.items()},
        ids=np.asarray(store.ids)[here].astype(str),
    )


@dataclass(frozen=True)
class _Texts:
    """Prompts in the order of the task, and how label codes move to that order."""

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
        )

    def _further(self, encoded: EncodedPrompts | None) -> tuple[Sentences | None, Sentences | None]:
        """Spurious and counterfactual sentences, unless they may be about attributes that the task does not have."""
        if encoded is None or not set(encoded.sensitive) <= set(self.value_names):
            return None, None
        said, both = encoded.spurious, encoded.counterfactual
        return (
            None if said is None else Sentences(said, encoded.spurious_prompts),
            None if both is None else Sentences(both.vectors, both.prompts, both.classes),
        )


def check_prompts(labelled: Labelled, prompts: PromptSet) -> None:
    """Refuse prompts whose names are not those of the labels: known before anything is embedded."""
    if labelled.y is not None and prompts.classes:
        _ordered(labelled.class_names, prompts.class_names, "the target")
    for attribute, (_, values) in labelled.sensitive.items():
        if attribute in prompts.sensitive:
            _ordered(values, prompts.sensitive_names(attribute), attribute)


def _ordered(labels: Sequence[str], prompts: Sequence[str], what: str) -> tuple[str, ...]:
    """The prompts' names, which must be those of the labels."""
    if set(labels) <= set(prompts):
        return tuple(prompts)
    raise PromptError(
        f"{what} has values {', '.join(map(str, labels))}, but the prompts are for {', '.join(prompts)}: use the same "
        "names in the prompt file and in the labels"
    )


def _move(old: Sequence[str], new: Sequence[str]) -> Ints:
    place = {name: k for k, name in enumerate(new)}
    return np.array([*(place[name] for name in old), -1], dtype=np.int64)  # -1 stays -1


def text_encoder(
    prompts: PromptSet, store: EmbeddingStore, encoder: Encoder | None, text: EmbeddingStore | None
) -> Encode:
    """Where prompt embeddings come from: a model, vectors that were given, or the store itself."""
    if encoder is not None:
        check_same_model(store.provenance, encoder.provenance)
        if encoder.width != store.shape[1]:
            raise PromptError(
                f"{encoder.name} gives {encoder.width} columns, {store.path} has {store.shape[1]}: prompts must be "
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
    """Prompt embeddings from a file: by sentence where it has them, else in the order of the set."""
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
    """Prompts of each class and value averaged into one vector, as CLIP does."""
    return encode_prompts(prompts, encode, average=True)
