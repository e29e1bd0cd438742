"""Embedding of images and prompts into a store; a run can be interrupted and resumed at any moment.

Threads decode and preprocess images while the encoder runs: Pillow, numpy and torch release the interpreter
lock, and nothing is copied between processes. ``benchmarks/embed.py`` measures the cost of decoding.
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
from fairerclip.encoders.decode import open_image
from fairerclip.encoders.images import (
    OTHER_ENDINGS,
    ImageItem,
    ImageSource,
    ListedImages,
    Refused,
    open_source,
)
from fairerclip.errors import DatasetError, FairerClipError, ImageError, OutputExistsError

if TYPE_CHECKING:
    from fairerclip.data.datasets import DatasetIndex
    from fairerclip.data.prompts import PromptSet
    from fairerclip.encoders.encoder import Encoder

SHARD_ROWS = 1024
"""Rows per shard, and the most rows that must be computed again after a process was killed."""
AHEAD = 3
"""Batches in memory: one in the encoder, the others in preparation."""
Progress = Callable[[int, int | None], None]
_Prepared = tuple[str, np.ndarray | str]


@dataclass(frozen=True)
class EmbedReport:
    """Counts and times of a run of `embed_images`.

    Attributes
    ----------
    done : int
        Number of images that this run embedded.
    skipped : int
        Number of images that this run could not embed; ``skipped.jsonl`` of the store lists each with the reason.
    already : int
        Number of images that an earlier run had embedded or skipped.
    seconds : float
        Wall time.
    rate : float
        Images embedded per second.
    not_read : dict of str to int
        Number of skipped images in formats that are not supported, by the ending of their names.
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
    """Embed images into a store; a run that was interrupted continues where it stopped.

    Parameters
    ----------
    source : path or ImageSource
        Folder, list, table or tar; see `fairerclip.encoders.images.open_source`.
    encoder : Encoder
        See `fairerclip.encoders.load`.
    output : path
        Folder of the store. Ids are those of the source: relative paths, ids of the table, or keys of the tar.
    batch_size : int
        Images per batch of the encoder. Memory: 3 × batch_size × 12·H·W bytes.
    workers : int
        Threads that decode and preprocess.
    resume : bool
        Add to an existing store of the same encoder; if False, raise if the output exists.
    progress : callable, optional
        Called after each batch with (images processed, total number of images or None).

    Returns
    -------
    EmbedReport
        Counts and times.

    Notes
    -----
    An image that fails is recorded with the reason and the run continues; a later run does not try it again.
    """
    check_range("batch_size", batch_size)
    check_range("workers", workers)
    if not resume and Path(output).exists():
        raise OutputExistsError(f"{output} exists; choose another name, or resume it")
    if isinstance(source, str | os.PathLike):
        source = open_source(source)
    with StoreWriter(
        output, width=encoder.width, provenance=encoder.provenance, shard_rows=SHARD_ROWS
    ) as writer:
        run = _Run(encoder, writer, source.total, progress)
        batches = _batches(run.todo(source), partial(_prepare, encoder), batch_size, workers)
        try:
            for batch in batches:
                run.take(batch)
        finally:
            batches.close()
        skipped = read_skipped(output)
        if not run.done and skipped and len(skipped) == len(writer.done):
            first = ": ".join(skipped[0])
            raise DatasetError(f"none of {len(skipped)} images could be embedded; the first, {first}")
        writer.finish()
    return run.report()


def embed_prompts(prompt_set: PromptSet, encoder: Encoder, output: str | os.PathLike[str]) -> Path:
    """Write the embeddings of all prompts of a set into a store, and return the file."""
    prompts = prompt_set.all_prompts()
    vectors = encoder.encode_text(prompts)
    with StoreWriter(output, width=encoder.width, provenance=encoder.provenance) as writer:
        return writer.write_text(prompts, vectors)


@dataclass
class _Run:
    """Counts of one run, with its encoder and its writer."""

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
        """Yield the images that no earlier run has embedded or skipped."""
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
        """Encode and store the images that could be prepared; record the others as skipped."""
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
                    self._skip(name, "the encoder returned a row of zeros, NaN or infinity")
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
    """Return the preprocessed image, or the reason why it cannot be prepared."""
    try:
        return encoder.preprocess(open_image(item.content))
    except ImageError as error:
        return str(error)
    except (OSError, ValueError, ArithmeticError, MemoryError) as error:
        if isinstance(error, FairerClipError):  # not caused by this image
            raise
        return f"it cannot be prepared: {type(error).__name__}: {error}"


def _batches(
    items: Iterator[ImageItem],
    prepare: Callable[[ImageItem], np.ndarray | str],
    batch_size: int,
    workers: int,
) -> Generator[list[_Prepared]]:
    """Yield batches of prepared images in order; the next batches are prepared meanwhile."""
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
    """Embed the images of a data set into a store, with their ids; an interrupted run continues."""
    source = ListedImages([ImageItem(str(i), p) for i, p in zip(index.ids, index.paths(), strict=True)])
    return embed_images(source, encoder, folder, **options)
