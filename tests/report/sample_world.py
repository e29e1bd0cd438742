"""Simulated rows, and the figures by group that are counted from them."""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import beta

from fairerclip.metrics.names import FIGURES

CONFIDENCE, SMALL = 0.95, 30


class World:
    """Rows with a class, a group and scores that lean on the group; `scores(lean)` says how much they lean."""

    def __init__(self, seed, n, classes, values, spurious):
        rng = np.random.default_rng(seed)
        c, v = len(classes), len(values)
        self.classes, self.values, self.n = classes, values, n
        self.y = rng.integers(c, size=n)
        aligned = rng.random(n) < spurious
        self.s = np.where(aligned, self.y % v, rng.integers(v, size=n))
        self.signal = 1.6 * np.eye(c)[self.y] + rng.normal(size=(n, c))
        self.pull = np.stack([np.where(self.s == k % v, 1.0, -1.0) for k in range(c)], axis=1)

    def scores(self, lean):
        return self.signal + lean * self.pull

    def group_sizes(self):
        return table(self.y, self.s, np.ones(self.n, dtype=int), self)

    def groups(self):
        n = self.group_sizes()
        return [
            {"name": f"{y} × {s}", "y": y, "s": s, "n": int(n[i, j]), "small": bool(n[i, j] < SMALL)}
            for i, y in enumerate(self.classes)
            for j, s in enumerate(self.values)
        ]


def table(y, s, weights, world):
    shape = len(world.classes), len(world.values)
    return (
        np.bincount(y * shape[1] + s, weights=weights, minlength=shape[0] * shape[1])
        .reshape(shape)
        .astype(int)
    )


def plain(value):
    """Python numbers, with null for what is not finite."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def figures(y, s, p, world, train):
    """The figures of one set of predictions, by counting."""
    counts, hits = table(y, s, np.ones(len(y)), world), table(y, s, p == y, world)
    recall = hits / np.maximum(counts, 1)
    selected = table(p, s, np.ones(len(y)), world) / np.maximum(counts.sum(axis=0), 1)
    false = (table(p, s, p != y, world)) / np.maximum(counts.sum(axis=0) - counts, 1)
    spread = np.ptp(recall, axis=1)
    signed = recall[:, 0] - recall[:, 1]
    chosen = slice(1, 2) if len(world.classes) == 2 else slice(None)
    average = float((p == y).mean())
    worst = float(recall[counts > 0].min())
    return {
        "average": average,
        "train_weighted_average": float((recall * train).sum() / train.sum()),
        "worst_group": worst,
        "gap": average - worst,
        "eod": float(spread[chosen].max()),
        "eod_signed": float(signed[chosen][0]),
        "eod_mean": float(spread.mean()),
        "eod_mean_signed": float(signed.mean()),
        "equalized_odds_difference": float(max(spread.max(), np.ptp(false, axis=1).max())),
        "demographic_parity_difference": float(np.ptp(selected, axis=1).max()),
    }


def resampled(world, predictions, train, draws=60, seed=5):
    """Figures of each prediction on the same resampled rows, one dict of arrays per prediction."""
    rng = np.random.default_rng(seed)
    rows = [rng.integers(world.n, size=world.n) for _ in range(draws)]
    out = []
    for p in predictions:
        drawn = [figures(world.y[r], world.s[r], p[r], world, train) for r in rows]
        out.append({name: np.array([d[name] for d in drawn]) for name in drawn[0]})
    return out


def clopper_pearson(k, n):
    k, n, tail = np.asarray(k), np.asarray(n), (1 - CONFIDENCE) / 2
    low = np.where(k == 0, 0.0, beta.ppf(tail, np.maximum(k, 1), n - k + 1))
    return low, np.where(k == n, 1.0, beta.ppf(1 - tail, k + 1, np.maximum(n - k, 1)))


def wald(k1, n1, k2, n2):
    p, q = k1 / n1, k2 / n2
    half = 1.96 * math.sqrt(p * (1 - p) / n1 + q * (1 - q) / n2)
    return {"low": p - q - half, "high": p - q + half}


def span(draws):
    return [float(end) for end in np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])]


def report(world, p, train, draws):
    counts = world.group_sizes()
    hits = table(world.y, world.s, p == world.y, world)
    low, high = clopper_pearson(hits, np.maximum(counts, 1))
    groups = []
    for g, (i, j) in zip(world.groups(), np.ndindex(counts.shape), strict=True):
        share = hits[i, j] / max(counts[i, j], 1)
        groups.append({**g, "correct": hits[i, j], "accuracy": share, "low": low[i, j], "high": high[i, j]})
    found = figures(world.y, world.s, p, world, train)
    confusion = np.zeros((len(world.values), len(world.classes), len(world.classes)), dtype=int)
    np.add.at(confusion, (world.s, world.y, p), 1)
    differences = [
        {
            "y": y,
            "s": s,
            "reference": world.values[0],
            "difference": hits[i, j] / counts[i, j] - hits[i, 0] / counts[i, 0],
            **wald(hits[i, j], counts[i, j], hits[i, 0], counts[i, 0]),
        }
        for i, y in enumerate(world.classes)
        for j, s in enumerate(world.values)
        if j
    ]
    return {
        "n": world.n,
        "dropped": 0,
        **{name: value for name, value in found.items() if name != "worst_group"},
        "groups": groups,
        "worst": min(groups, key=lambda g: g["accuracy"]),
        "intervals": {name: span(draws[name]) for name in found},
        "differences": differences,
        "confusion": confusion,
        "empty": [],
        "positive": world.classes[1] if len(world.classes) == 2 else None,
        "classes": world.classes,
        "sensitive": world.values,
        "confidence": CONFIDENCE,
    }


def groups_section(world, train_world, before, after):
    train = train_world.group_sizes()
    drawn = resampled(world, [before, after], train)
    reports = [report(world, p, train, d) for p, d in zip((before, after), drawn, strict=True)]
    first, last = (figures(world.y, world.s, p, world, train) for p in (before, after))
    changes = []
    for name, figure in FIGURES.items():
        low, high = span(drawn[1][name] - drawn[0][name])
        row = {
            "figure": name,
            "label": figure.label,
            "better": figure.better,
            "before": first[name],
            "after": last[name],
        }
        changes.append({**row, "difference": last[name] - first[name], "low": low, "high": high})
    group_changes = []
    for one, two in zip(reports[0]["groups"], reports[1]["groups"], strict=True):
        mask = (world.y == world.classes.index(one["y"])) & (world.s == world.values.index(one["s"]))
        change = (after[mask] == world.y[mask]).astype(float) - (before[mask] == world.y[mask])
        half = 1.96 * change.std() / max(math.sqrt(mask.sum()), 1)
        keep = {key: one[key] for key in ("name", "y", "s", "n", "small")}
        ends = {
            "low": change.mean() - half,
            "high": change.mean() + half,
            "clear": abs(change.mean()) > 2 * half,
        }
        group_changes.append(
            {**keep, "before": one["accuracy"], "after": two["accuracy"], "difference": change.mean(), **ends}
        )
    seeds = [figures(world.y, world.s, w, world, train) for w in _other_seeds(world)]
    spread = [
        {
            "figure": name,
            "label": FIGURES[name].label,
            "mean": np.mean(values),
            "sd": np.std(values, ddof=1),
            "smallest": min(values),
            "largest": max(values),
            "sampling_se": drawn[1][name].std(),
        }
        for name in ("average", "worst_group", "eod")
        for values in [[f[name] for f in seeds]]
    ]
    return {
        "before": reports[0],
        "after": reports[1],
        "changes": changes,
        "group_changes": group_changes,
        "seeds": {"n": len(seeds), "figures": spread},
    }


def _other_seeds(world):
    for seed in range(5):
        noise = np.random.default_rng(seed + 40).normal(scale=0.1, size=world.signal.shape)
        yield (world.scores(0.15) + noise).argmax(axis=1)
