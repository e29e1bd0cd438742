"""Tasks with thousands of labels, made from a FairFace task: age or sex as the target, sex or race as the groups.

Two are for development (`DEVELOPMENT`): defaults and rules may be chosen on them. The others are for reports only. Rows
of all splits are pooled and split again within each class × group; two tasks keep fewer training rows of some cells, so
that the target is correlated with the attribute in training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fairerclip.data import Sensitive, Split, Task

DEVELOPMENT = ("over40-sex", "stage-race")
REPORTED = ("adult-sex", "over30-race", "sex-race-tied", "stage-sex-tied")


def _task(
    name: str,
    X: Any,
    y: Any,
    s: Any,
    prompts: tuple[Any, Any],
    shares: Sequence[float],
    kept: Any = None,
) -> Task:
    """Make a task with three splits; ``kept`` (c, |S|) are the shares of training cells that are kept."""
    text, sensitive = (np.asarray(t, dtype=np.float32) for t in prompts)
    rng = np.random.default_rng(len(X))
    parts: list[list[Any]] = [[], [], []]
    for k in range(len(text)):
        for g in range(len(sensitive)):
            rows = rng.permutation(np.flatnonzero((y == k) & (s == g)))
            train, val, test = (int(share * len(rows)) for share in shares)
            thinned = train if kept is None else max(2, int(kept[k][g] * train))
            cuts = (slice(thinned), slice(train, train + val), slice(train + val, train + val + test))
            for part, cut in zip(parts, cuts, strict=True):
                part.append(rows[cut])
    splits = {}
    for title, part in zip(("train", "val", "test"), parts, strict=True):
        rows = np.concatenate(part)
        splits[title] = Split(X[rows], y[rows].astype(np.int64), {"s": s[rows].astype(np.int64)})
    names, values = (tuple(str(i) for i in range(len(t))) for t in (text, sensitive))
    attribute = Sensitive("s", values, values, sensitive)
    return Task(name, splits, text, names, names, {"s": attribute})


def rich_tasks(face: Task) -> dict[str, Task]:
    """Make the tasks from a task with the attributes sex, race (7 values) and age (9 values)."""
    parts = [face.train, face.val, face.test]
    X = np.concatenate([p.X for p in parts])
    age, race, sex = (np.concatenate([p.s[name] for p in parts]) for name in ("age", "race", "sex"))
    T = {name: face.sensitive_attribute(name).text for name in ("age", "race", "sex")}

    def stage(first: int, stop: int) -> Any:
        return T["age"][first:stop].mean(axis=0)

    stages = [stage(0, 3), stage(3, 5), stage(5, 9)]
    grown, usual = age >= 3, (0.26, 0.06, 0.3)
    five = np.array([0, 1, 2, 3, 3, 4, 4])
    four, place = np.isin(race, [0, 1, 2, 4]), np.array([0, 1, 2, -1, 3, -1, -1])[race]
    made = [
        _task(
            *("over40-sex", X[grown], (age >= 5)[grown].astype(int), sex[grown]),
            ([stage(3, 5), stage(5, 9)], T["sex"]),
            usual,
        ),
        _task(
            *("stage-race", X, np.digitize(age, [3, 5]), five[race]),
            (stages, [T["race"][five == k].mean(axis=0) for k in range(5)]),
            usual,
        ),
        _task(
            *("adult-sex", X, (age >= 3).astype(int), sex),
            ([stage(0, 3), stage(3, 9)], T["sex"]),
            usual,
        ),
        _task(
            *("over30-race", X[grown], (age >= 4)[grown].astype(int), race[grown]),
            ([stage(3, 4), stage(4, 9)], T["race"]),
            usual,
        ),
        _task(
            *("sex-race-tied", X[four], sex[four], place[four]),
            (T["sex"], T["race"][[0, 1, 2, 4]]),
            (0.5, 0.09, 0.3),
            [[0.9, 0.15, 0.7, 0.4], [0.15, 0.9, 0.4, 0.7]],
        ),
        _task(
            *("stage-sex-tied", X, np.digitize(age, [3, 5]), sex),
            (stages, T["sex"]),
            (0.4, 0.06, 0.3),
            [[0.9, 0.3], [0.6, 0.6], [0.15, 0.9]],
        ),
    ]
    return {task.name: task for task in made}
