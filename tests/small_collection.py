"""A small collection with a sensitive value, a mitigator of it, and its folder in the layout of clip-retrieval."""

from itertools import pairwise

import numpy as np

from fairerclip import EmbeddingMitigator
from fairerclip.data.embedding_rows import unit_rows

WIDTH = 12
_fixed = np.random.default_rng(5)
MEAN = _fixed.normal(size=WIDTH)
VALUE = _fixed.normal(size=WIDTH)
PROMPTS = {"x": unit_rows((MEAN + VALUE)[None])[0], "y": unit_rows((MEAN - VALUE)[None])[0]}
"""Embeddings of the prompts of both sensitive values."""
QUERIES = unit_rows(_fixed.normal(size=(3, WIDTH)))


def rows(n, seed=0):
    """Unit rows (n, WIDTH) of float32, and their sensitive values."""
    rng = np.random.default_rng(seed)
    s = rng.integers(2, size=n)
    X = MEAN + np.where(s == 0, 1, -1)[:, None] * VALUE * 0.5 + rng.normal(size=(n, WIDTH))
    return unit_rows(X.astype(np.float32)), np.where(s == 0, "x", "y")


def mitigator(**parameters):
    X, s = rows(400, seed=1)
    return EmbeddingMitigator(**parameters).fit(X, sensitive_features={"place": s}, sensitive_text=PROMPTS)


def clip_retrieval(folder, sizes=(30, 0, 25), dtype=np.float16, metadata=True, seed=0):
    """Write partitions of these sizes as clip-retrieval does, with text embeddings, and return their rows and ids."""
    X = rows(sum(sizes), seed)[0].astype(dtype)
    ids = [f"images/{k}.jpg" for k in range(len(X))]
    for name in ("img_emb", "text_emb", *(["metadata"] if metadata else [])):
        (folder / name).mkdir(parents=True)
    edges = np.cumsum([0, *sizes])
    for k, (start, stop) in enumerate(pairwise(edges)):
        np.save(folder / "img_emb" / f"img_emb_{k:02d}.npy", X[start:stop])
        np.save(folder / "text_emb" / f"text_emb_{k:02d}.npy", X[start:stop])
        if metadata:
            import pyarrow as pa
            import pyarrow.parquet as pq

            table = pa.table({"image_path": ids[start:stop], "caption": ["a"] * int(stop - start)})
            pq.write_table(table, folder / "metadata" / f"metadata_{k:02d}.parquet")
    return X, ids
