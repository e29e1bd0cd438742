"""Share of the true best rows that an index of kind ivf or pq finds, for text queries; docs/how-to/search.md.

``python benchmarks/index_recall.py STORE MODEL QUERIES [--k 100]`` indexes a collection by each kind, original and
mitigated, and compares the k best rows of every query with those of the flat index.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from harness import Benchmark, options

from fairerclip.applying.mitigated_rows import as_store
from fairerclip.data.query_files import read_queries
from fairerclip.data.stores import EmbeddingStore
from fairerclip.export import build_index, open_index
from fairerclip.export.search_index import SearchResult

SHARES = (0.125, 0.25, 0.5, 1.0)
"""Shares of the cells that are searched."""


def recall(found: list[SearchResult], true: list[SearchResult], side: str) -> float:
    """Return the share of the true rows that were found, on average over the queries."""
    shares = []
    for got, best in zip(found, true, strict=True):
        rows = {hit.row for hit in getattr(best, side)}
        shares.append(len(rows & {hit.row for hit in getattr(got, side)}) / len(rows))
    return float(np.mean(shares))


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the indexes, and search them."""
    parser = options(repeats=1)
    parser.add_argument("store")
    parser.add_argument("model")
    parser.add_argument("queries")
    parser.add_argument("--k", type=int, default=100)
    parser.add_argument("--splits", default="train,val,test", help="splits of a task to use")
    bench = Benchmark(parser, arguments)
    asked = bench.settings
    parts = [as_store(asked.store, split)[:] for split in asked.splits.split(",")]
    store = EmbeddingStore.from_array(np.concatenate(parts))
    Q = read_queries(asked.queries).embeddings
    bench.note(f"{len(store)} rows, {len(Q)} queries, k={asked.k}")
    with tempfile.TemporaryDirectory() as folder:
        paths = {kind: Path(folder) / kind for kind in ("flat", "ivf", "pq")}
        for kind, path in paths.items():
            build_index(asked.model, store, path, kind=kind)
        flat = open_index(paths["flat"])
        true = bench.time("flat", lambda: flat.search(Q, asked.k))
        for kind in ("ivf", "pq"):
            for share in SHARES:
                name = f"{kind}, {share:g} of the cells"
                index = open_index(paths[kind], probe=share)
                found = bench.time(name, lambda index=index: index.search(Q, asked.k))
                for side in ("original", "mitigated"):
                    value = recall(found, true, side)
                    bench.figure(f"share of the best rows, {side}, {name}", value, "share", better="higher")
                bench.ratio(f"time of a search, {name} / flat", name, "flat")
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
