"""Building of a task from embeddings, labels and prompts, joined by id, or by position where that is asked for."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.remedies import use_labels
from fairerclip._util.types import Ints
from fairerclip.data import Sensitive, SentencePairs, Sentences, Split, Task, Variants
from fairerclip.data.coded_labels import smallest_type
from fairerclip.data.join import Join, join, join_by_position
from fairerclip.data.labelled_rows import Labelled
from fairerclip.data.prompts import EncodedPrompts, PromptSet, encode_prompts
from fairerclip.data.prompts.encoded_prompts import joined_prompts
from fairerclip.data.provenance import check_same_model
from fairerclip.data.store_rows import select_rows
from fairerclip.data.stores import EmbeddingStore
from fairerclip.data.task_counts import few_rows_note
from fairerclip.data.task_fields import SPLITS
from fairerclip.data.writer import read_text
from fairerclip.errors import (
    JoinError,
    ParameterError,
    PositionJoinWarning,
    PromptError,
    StoreError,
)

if TYPE_CHECKING:
    from fairerclip.encoders.encoder import Encoder

Encode = Callable[[Sequence[str]], NDArray[np.floating]]

VALIDATION_ROWS = 50_000
"""Most validation rows of a task whose other rows stay on disk; they choose a model, in memory."""


def build_task(
    labelled: Labelled,
    store: EmbeddingStore,
    prompts: EncodedPrompts | None,
    *,
    match: str = "exact",
    by_position: bool = False,
    in_memory: bool = True,
) -> tuple[Task, list[str]]:
    """Build a task: join embeddings with labels by id, and labels with prompts by name.

    Parameters
    ----------
    labelled : Labelled
        Labels and splits, as `from_table` returns them.
    store : EmbeddingStore
        Embeddings.
    prompts : EncodedPrompts or None
        Prompt embeddings; their names must be those of the labels.
    match : "exact", "basename" or "stem"
        Part of the ids that is compared, as in `join`.
    by_position : bool
        Take row k of the embeddings and row k of the labels for the same image, with a `PositionJoinWarning`.
    in_memory : bool
        Read the matched embeddings. Otherwise ``X`` of the train and test splits are stores whose rows stay on disk,
        labels take 1 or 2 bytes per row, and of more than 50,000 validation rows so many are drawn at random and read.

    Returns
    -------
    task : Task
        Memory: the matched embeddings with ``in_memory``; otherwise ids, labels and validation rows.
    notes : list of str
        Sentences on rows, classes and values that did not match.

    Raises
    ------
    StoreError
        The embeddings have no ids, and `by_position` is false.
    JoinError
        No id matches, an id occurs twice, or the numbers of rows differ with `by_position`.
    PromptError
        The labels have names for which there are no prompts.
    """
    joined = _joined(labelled, store, match, by_position)
    notes = joined.lines() if joined.unmatched_embeddings or joined.unmatched_labels else []
    texts = TaskTexts.of(labelled, prompts)
    label_rows = joined.rows_in_labels
    split_of = labelled.splits(label_rows[label_rows >= 0])
    rows = {}
    for name in SPLITS:
        in_split = np.flatnonzero((label_rows >= 0) & (split_of[label_rows] == name))
        if len(in_split):
            rows[name] = in_split
    if not rows:
        raise JoinError("no embedding with a label belongs to a split")
    # Without ids of the embeddings, rows were joined by position, so that those of the labels are theirs.
    ids = labelled.ids if store.ids is None else store.ids
    if not in_memory:
        ids = None
        if len(rows.get("val", ())) > VALIDATION_ROWS:
            notes.append(
                f"{VALIDATION_ROWS:,} of {len(rows['val']):,} validation rows are used, drawn at random."
            )
            drawn = np.random.default_rng(0).choice(rows["val"], VALIDATION_ROWS, replace=False)
            rows["val"] = np.sort(drawn)
    splits = {}
    for name, in_split in rows.items():
        X = store[in_split] if in_memory or name == "val" else select_rows(store, in_split)
        splits[name] = _split(X, ids, in_split, label_rows[in_split], labelled, texts)
    task = texts.task(labelled, splits)
    held = missing_notes(task)
    if not in_memory and list(rows) == ["train"]:
        held = ["Nothing was held out: there is no split column, so all rows are training rows."]
    return task, [*notes, *held, *few_rows_note(task), *sentence_notes(task, prompts)]


def _joined(labelled: Labelled, store: EmbeddingStore, match: str, by_position: bool) -> Join:
    if by_position:
        if match != "exact":
            raise ParameterError(
                f"match={match!r} compares ids, but rows are joined by position: give one of them"
            )
        joined = join_by_position(len(store), len(labelled))
        warnings.warn(
            f"{len(store):,} rows are joined by position: row k of {store.path} is taken for row k of the labels. "
            "Only their numbers were compared; labels in another order would not be noticed",
            PositionJoinWarning,
            stacklevel=3,
        )
        return joined
    check_ids(store)
    return join(store.ids, labelled.ids, match=match)


def check_ids(store: EmbeddingStore) -> None:
    """Raise if the rows of a store have no ids by which labels can be joined to them."""
    if not store.has_ids:
        raise StoreError(
            f"{store.path} has no ids, so its rows cannot be matched with labels: give --ids FILE with an id per row, "
            "or --by-position if the labels are in the order of the rows (in Python open_store(…, ids=…), or "
            "build_task(…, by_position=True))"
        )


def sentence_notes(task: Task, prompts: EncodedPrompts | None) -> list[str]:
    """Return notes on the free queries of the task, and on its sentences for Orth-Proj, Orth-Cali and RoboShot."""
    queries = [] if task.queries is None else [f"Free queries: {len(task.queries.prompts)}."]
    kinds = ("spurious", "counterfactual", "harmful", "helpful")
    given = [] if prompts is None else [getattr(prompts, kind) for kind in kinds]
    if all(part is None for part in given):
        return queries
    kept = {"spurious": task.spurious, "counterfactual": task.counterfactual}
    counts = [f"{len(part.prompts)} {kind}" for kind, part in kept.items() if part is not None]
    pairs = [f"{len(part.prompts)} {kind}" for kind, part in task.sentence_pairs.items()]
    notes = [f"Sentences for Orth-Proj and Orth-Cali: {', '.join(counts)}."] if counts else []
    notes += [f"Pairs of sentences for RoboShot: {', '.join(pairs)}."] if pairs else []
    left_out = (
        "The spurious and counterfactual sentences of the prompts are left out: they may be about attributes that "
        "the task does not have."
    )
    return [*queries, *(notes or [left_out])]


def missing_notes(task: Task) -> list[str]:
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
        f"There are no prompts for {a}, so its values cannot be predicted from images: fit with {use_labels('all')}."
        for a, attribute in task.sensitive.items()
        if attribute.text is None
    ]
    return out


def _split(
    X: Any,
    ids: NDArray[Any] | None,
    rows: Ints,
    labels: Ints,
    labelled: Labelled,
    texts: TaskTexts,
) -> Split:
    def moved(codes: Ints, move: Ints) -> Ints:
        kind = smallest_type(int(move.max()) + 1) if isinstance(X, EmbeddingStore) else move.dtype
        return np.asarray(move.astype(kind)[codes[labels]])

    return Split(
        X=X,
        y=None if labelled.y is None else moved(labelled.y, texts.class_move),
        s={name: moved(codes, texts.value_moves[name]) for name, (codes, _) in labelled.sensitive.items()},
        ids=None if ids is None else np.asarray(ids)[rows].astype(str),
    )


@dataclass(frozen=True)
class TaskTexts:
    """Prompts in the order of the task, and maps from the codes of the labels to that order."""

    class_names: tuple[str, ...]
    class_move: Ints
    value_moves: dict[str, Ints]
    value_names: dict[str, tuple[str, ...]]
    prompts: EncodedPrompts | None

    @classmethod
    def of(cls, labelled: Labelled, prompts: EncodedPrompts | None) -> TaskTexts:
        """Return the prompts for the names of the labels; raise if a name has none."""
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
        """Return the task of these splits."""
        encoded = self.prompts
        target = None if encoded is None else encoded.text_target
        text = None if target is None else np.asarray(target, dtype=np.float32)
        sentences = (
            self.class_names if encoded is None else tuple(map(joined_prompts, encoded.target_prompts))
        )
        sensitive = {}
        for name, values in self.value_names.items():
            attribute = None if encoded is None else encoded.sensitive.get(name)
            sensitive[name] = Sensitive(
                name=name,
                names=values,
                prompts=values if attribute is None else tuple(map(joined_prompts, attribute.prompts)),
                text=None if attribute is None else np.asarray(attribute.text, dtype=np.float32),
            )
        wordings = (
            None
            if encoded is None or encoded.variants is None
            else Variants(encoded.variants, encoded.templates)
        )
        spurious, counterfactual, harmful, helpful = self._further(encoded)
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
            harmful=harmful,
            helpful=helpful,
        )

    def _further(
        self, encoded: EncodedPrompts | None
    ) -> tuple[Sentences | None, Sentences | None, SentencePairs | None, SentencePairs | None]:
        """Return sentences for other methods, unless the prompts have attributes that the task has not."""
        if encoded is None or not set(encoded.sensitive) <= set(self.value_names):
            return None, None, None, None
        spurious, named = encoded.spurious, encoded.counterfactual
        harmful, helpful = (
            None if pairs is None else SentencePairs(*pairs) for pairs in (encoded.harmful, encoded.helpful)
        )
        return (
            None if spurious is None else Sentences(spurious, encoded.spurious_prompts),
            None if named is None else Sentences(named.vectors, named.prompts, named.classes),
            harmful,
            helpful,
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
