"""Images and prompts into an embedding store: decoded ahead of the encoder, resumable at any moment.

Threads decode and preprocess while the encoder works: Pillow, numpy and torch let go of the interpreter
lock, and nothing has to be copied between processes. ``benchmarks/embed.py`` measures what decoding costs.
"""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from fairerclip._util.checks import check_range
from fairerclip.data.writer import StoreWriter, read_skipped
from fairerclip.encoders.images import (
    OTHER_ENDINGS,
    ImageItem,
    ImageSource,
    ListedImages,
    Refused,
    open_image,
    open_source,
)
from fairerclip.errors import DatasetError, FairerClipError, ImageError, OutputExistsError

if TYPE_CHECKING:
    from fairerclip.data.datasets import DatasetIndex
    from fairerclip.data.prompts import PromptSet
    from fairerclip.encoders.encoder import Encoder

SHARD_ROWS = 1024
"""Rows that a killed process can have to compute again."""
AHEAD = 3
"""Batches in memory: one in the encoder, the others being prepared."""
Progress = Callable[[int, int | None], None]
_Prepared = tuple[str, np.ndarray | str]


@dataclass(frozen=True)
class EmbedReport:
    """What a run of `embed_images` did.

    Attributes
    ----------
    done : int
        Images embedded now.
    skipped : int
        Images that could not be, now; the store's ``skipped.jsonl`` lists each with the reason.
    already : int
        Images that an earlier run had embedded or skipped.
    seconds : float
        Wall time.
    rate : float
        Images embedded per second.
    not_read : dict
        How many of the skipped are images of formats that are not read, by the ending of their names.
    """

    done: int
    skipped: int
    already: int
    seconds: float
    rate: float
    not_read: dict[str, int]


def embed_images(
    source: str | os.PathLike[str] | ImageSource,
    encoder: Encoder,
    output: str | os.PathLike[str],
    *,
    batch_size: int = 64,
    workers: int = 2,
    resume: bool = True,
    progress: Progress | None = None,
) -> EmbedReport:
    """Embed images into a store. A run that was killed is taken up where it stopped.

    Parameters
    ----------
    source : path or ImageSource
        Folder, list, table or tar; see `fairerclip.encoders.images.open_source`.
    encoder : Encoder
        See `fairerclip.encoders.load`.
    output : path
        Folder of the store. Ids are the source's: relative paths, the table's ids, or the tar's keys.
    batch_size : int
        Images that go through the encoder at once. Memory: 3 × batch_size × 12·H·W bytes.
    workers : int
        Threads that decode and preprocess.
    resume : bool
        Add to a store of the same encoder; False refuses an output that exists.
    progress : callable, optional
        Called with (images gone through, images in all or None) after each batch.

    Returns
    -------
    EmbedReport

    Notes
    -----
    An image that fails is recorded with the reason and the run goes on; a later run does not try it again.
    """
    check_range("batch_size", batch_size)
    check_range("workers", workers)
    if not resume and Path(output).exists():
        raise OutputExistsError(f"{output} exists; choose another name, or resume it")
    if isinstance(source, str | os.PathLike):
        source = open_source(source)
    width, provenance = encoder.width, encoder.provenance
    with StoreWriter(output, width=width, provenance=provenance, shard_rows=SHARD_ROWS) as writer:
        run = _Run(encoder, writer, source.total, progress)
        batches = _batches(run.todo(source), partial(_prepare, encoder), batch_size, workers)
        try:
            for batch in batches:
                run.take(batch)
        finally:
            batches.close()
        refused = read_skipped(output)
        if not run.done and refused and len(refused) == len(writer.done):
            name, reason = refused[0]
            raise DatasetError(
                f"none of {len(refused)} images could be embedded; the first, {name}: {reason}"
            )
        writer.finish()
    return run.report()


def embed_prompts(prompt_set: PromptSet, encoder: Encoder, output: str | os.PathLike[str]) -> Path:
    """Store the embedding of every prompt of a set beside the images; returns the file."""
    prompts = prompt_set.all_prompts()
    vectors = encoder.encode_text(prompts)
    with StoreWriter(output, width=encoder.width, provenance=encoder.provenance) as writer:
        return writer.write_text(prompts, vectors)


@dataclass
class _Run:
    """The counts of one run, and where its results go."""

    encoder: Encoder
    writer: StoreWriter
    total: int | None
    progress: Progress | None
    done: int = 0
    skipped: int = 0
    already: int = 0
    not_read: Counter[str] = field(default_factory=Counter)
    start: float = field(default_factory=time.perf_counter)

    def todo(self, source: ImageSource) -> Iterator[ImageItem]:
        """Images that no earlier run went through."""
        earlier = frozenset(self.writer.done)
        for item in source.items(earlier):
            if item.id in earlier:
                self.already += 1
            elif isinstance(item, Refused):
                self._skip(item.id, item.reason)
                if (ending := PurePosixPath(item.id).suffix.lower()) in OTHER_ENDINGS:
                    self.not_read[ending] += 1
            else:
                yield item

    def take(self, batch: list[_Prepared]) -> None:
        """Encode what could be prepared, and store it; record what could not."""
        ids = []
        pixels = []
        for name, result in batch:
            if isinstance(result, str):
                self._skip(name, result)
            else:
                ids.append(name)
                pixels.append(result)
        if ids:
            rows = self.encoder.encode_images(np.stack(pixels))
            usable = np.isfinite(rows).all(axis=1) & rows.any(axis=1)
            self.writer.append([name for name, use in zip(ids, usable, strict=True) if use], rows[usable])
            for name, use in zip(ids, usable, strict=True):
                if not use:
                    self._skip(name, "the encoder gave a row of zeros, NaN or infinity")
            self.done += int(usable.sum())
        if self.progress is not None:
            self.progress(self.done + self.skipped + self.already, self.total)

    def report(self) -> EmbedReport:
        seconds = time.perf_counter() - self.start
        rate = self.done / seconds if self.done else 0.0
        not_read = dict(sorted(self.not_read.items()))
        return EmbedReport(self.done, self.skipped, self.already, seconds, rate, not_read)

    def _skip(self, name: str, reason: str) -> None:
        self.writer.skip(name, reason)
        self.skipped += 1


def _prepare(encoder: Encoder, item: ImageItem) -> np.ndarray | str:
    """The image as the encoder wants it, or why it cannot be."""
    try:
        return encoder.preprocess(open_image(item.content))
    except ImageError as error:
        return str(error)
    except (OSError, ValueError, ArithmeticError, MemoryError) as error:
        if isinstance(error, FairerClipError):  # not this image's fault
            raise
        return f"it cannot be prepared: {type(error).__name__}: {error}"


def _batches(
    items: Iterator[ImageItem],
    prepare: Callable[[ImageItem], np.ndarray | str],
    batch_size: int,
    workers: int,
) -> Generator[list[_Prepared]]:
    """Prepared images in order, the next batches being worked on while the caller has one."""
    waiting: deque[tuple[str, Future[np.ndarray | str]]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="fairerclip-decode")
    try:
        for item in items:
            waiting.append((item.id, pool.submit(prepare, item)))
            if len(waiting) == AHEAD * batch_size:
                yield [_result(*waiting.popleft()) for _ in range(batch_size)]
        while waiting:
            yield [_result(*waiting.popleft()) for _ in range(min(batch_size, len(waiting)))]
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _result(name: str, future: Future[np.ndarray | str]) -> _Prepared:
    return name, future.result()


def embed_dataset(index: DatasetIndex, encoder: Encoder, folder: Path, **options: Any) -> Any:
    """Embed a dataset's images into a store, under their ids; resumes."""
    source = ListedImages([ImageItem(str(i), p) for i, p in zip(index.ids, index.paths(), strict=True)])
    return embed_images(source, encoder, folder, **options)
