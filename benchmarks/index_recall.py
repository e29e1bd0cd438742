"""Share of the true best rows that an index of kind ivf or pq finds, for text queries: the table of docs/search.md.

``python benchmarks/index_recall.py STORE MODEL QUERIES [--k 100]`` indexes a collection by each kind, original and
mitigated, and compares the k best rows of every query with those of the flat index. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

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


def main() -> int:
    """Build the indexes, search them, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store")
    parser.add_argument("model")
    parser.add_argument("queries")
    parser.add_argument("--k", type=int, default=100)
    parser.add_argument("--splits", default="train,val,test", help="splits of a task to use")
    options = parser.parse_args()
    parts = [as_store(options.store, split)[:] for split in options.splits.split(",")]
    store = EmbeddingStore.from_array(np.concatenate(parts))
    Q = read_queries(options.queries).embeddings
    table: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        paths = {kind: Path(folder) / kind for kind in ("flat", "ivf", "pq")}
        for kind, path in paths.items():
            build_index(options.model, store, path, kind=kind)
        true = open_index(paths["flat"]).search(Q, options.k)
        for kind in ("ivf", "pq"):
            for share in SHARES:
                index = open_index(paths[kind], probe=share)
                began = time.perf_counter()
                found = index.search(Q, options.k)
                table[f"{kind}, {share:g} of the cells"] = {
                    **{side: recall(found, true, side) for side in ("original", "mitigated")},
                    "milliseconds_per_query": (time.perf_counter() - began) / len(Q) * 1e3,
                }
    result = {"rows": len(store), "queries": len(Q), "k": options.k, "share_of_the_best_rows": table}
    print(json.dumps(result, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
