"""Tasks that are legal and odd, by name: each is a small task with one thing changed."""

from dataclasses import replace

import numpy as np

from fairerclip.data import Split, Task
from fairerclip.data.task import Sensitive


def plain(classes=2, rows=(40, 24, 24), width=8, values=2, prompted=True):
    """A task that can be learned, with as many rows of each class as there is room for; 0 rows leave a split out."""
    rng = np.random.default_rng(0)
    centres, shifts = rng.normal(size=(classes, width)), rng.normal(size=(values, width))
    splits = {}
    for name, n in zip(("train", "val", "test"), rows, strict=True):
        y = rng.permutation(np.arange(n) % classes)
        s = np.where(rng.random(n) < 0.7, y % values, rng.integers(values, size=n))
        X = centres[y] + shifts[s] + 0.8 * rng.normal(size=(n, width))
        if n:
            splits[name] = Split(X.astype(np.float32), y, {"s": s})
    names = tuple(f"class {k}" for k in range(classes))
    groups = tuple(f"value {k}" for k in range(values))
    text = shifts.astype(np.float32) if prompted else None
    attribute = Sensitive("s", groups, groups, text)
    return Task("odd", splits, centres.astype(np.float32), names, names, {"s": attribute})


def edited(task, splits, *, X=None, y=None, s=None):
    """The same task with functions of the embeddings or labels of some splits in place of them."""
    out = dict(task.splits)
    for name in splits.split():
        old = out[name]
        out[name] = replace(
            old,
            X=old.X if X is None else np.asarray(X(old.X), dtype=np.float32),
            y=old.y if y is None else y(old.y),
            s=old.s if s is None else {"s": s(old.s["s"])},
        )
    return replace(task, splits=out)


def unknown(codes):
    return np.full_like(codes, -1)


def constant(codes):
    return np.zeros_like(codes)


def without_last(codes):
    return np.where(codes == codes.max(), 0, codes)


def first_row_tiny(X):
    return np.concatenate([X[:1] * np.float32(1e-30), X[1:]])


EVERY = "train val test"
ODD = {
    "no known class in training": lambda: edited(plain(), "train", y=unknown),
    "no known class at all": lambda: edited(plain(), EVERY, y=unknown),
    "no known class in test": lambda: edited(plain(), "test", y=unknown),
    "no known value at all": lambda: edited(plain(), EVERY, s=unknown),
    "no known value in training": lambda: edited(plain(), "train", s=unknown),
    "no known value in test": lambda: edited(plain(), "test", s=unknown),
    "one tiny test row": lambda: edited(plain(), "test", X=first_row_tiny),
    "huge test rows": lambda: edited(plain(), "test", X=lambda X: X * np.float32(1e30)),
    "huge rows": lambda: edited(plain(), EVERY, X=lambda X: X * np.float32(1e30)),
    "tiny rows": lambda: edited(plain(), EVERY, X=lambda X: X * np.float32(1e-30)),
    "subnormal halves": lambda: edited(plain(), EVERY, X=lambda X: (X * 1e-7).astype(np.float16)),
    "two test rows": lambda: plain(rows=(40, 24, 2)),
    "one test row": lambda: plain(rows=(40, 24, 1)),
    "names of 5,000 characters": lambda: replace(plain(), class_names=("a" * 5000, "b" * 5000)),
    "one row of a class": lambda: plain(classes=8, rows=(8, 8, 8)),
    "a class without training rows": lambda: edited(plain(classes=3), "train", y=without_last),
    "a class without test rows": lambda: edited(plain(classes=3), "test", y=without_last),
    "no class in common": lambda: edited(edited(plain(), "train", y=constant), "test", y=lambda y: y * 0 + 1),
    "a value without validation rows": lambda: edited(plain(), "val", s=constant),
    "one value": lambda: edited(plain(), EVERY, s=constant),
    "one class in training": lambda: edited(plain(), "train", y=constant),
    "one class": lambda: edited(plain(), EVERY, y=constant),
    "repeated rows": lambda: edited(plain(), EVERY, X=lambda X: X[np.arange(len(X)) % 4]),
    "equal rows": lambda: edited(plain(), EVERY, X=lambda X: np.repeat(X[:1], len(X), axis=0)),
    "one column": lambda: plain(width=1),
    "one training row": lambda: plain(rows=(1, 24, 24)),
    "no validation rows": lambda: plain(rows=(40, 0, 24)),
    "one validation row": lambda: plain(rows=(40, 1, 24)),
    "test rows only": lambda: plain(rows=(0, 0, 24)),
    "no prompts of the values": lambda: plain(prompted=False),
    "no prompts of the classes": lambda: replace(plain(), text_target=None),
    "forty values": lambda: plain(values=40, rows=(80, 80, 80)),
    "one class and prompt": lambda: plain(classes=1),
}
