"""Rankings by free queries, before and after mitigation of the embeddings: skew, order inside groups, and utility.

    python benchmarks/rankings.py SUITE [-o rankings.json] [--draws 10]

SUITE is a folder with fairface.npz, fairface_queries.npz, celeba_blond.npz, celeba_cheekbones.npz,
celeba_attractive.npz and pacs.npz. Prints the tables of docs/benchmarks/rankings.md. Maps are fitted on training rows;
figures are of test rows. If the package concept-erasure is installed, its eraser takes part with its default
parameters.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "2")

import numpy as np

from fairerclip import EmbeddingMitigator
from fairerclip.baselines.leace import erase
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.inputs.prompts import without_span
from fairerclip.metrics import average_precision, correlation_inside_groups, max_skew

Map = Callable[[Any], Any]
K = 1000
COUNTS = (0, 100, 300, 1000)
LABELS = ("blond", "cheekbones", "attractive")
REPLICATES = 2000


class Suite:
    """Arrays of a task file, with unit rows."""

    def __init__(self, path: Path) -> None:
        self.arrays = dict(np.load(path))

    def rows(self, split: str) -> Any:
        """Return the unit rows of a split."""
        return unit_rows(self.arrays[f"image_{split}"].astype(np.float64))

    def text(self, name: str) -> Any:
        """Return unit embeddings of texts."""
        return unit_rows(self.arrays[name].astype(np.float64))

    def codes(self, name: str) -> Any:
        """Return labels."""
        return self.arrays[name].astype(int)


def interval(values: Any) -> tuple[float, float, float]:
    """Return the mean over queries and its 95 % interval from resampled queries."""
    rng = np.random.default_rng(0)
    means = np.asarray(values)[rng.integers(len(values), size=(REPLICATES, len(values)))].mean(axis=1)
    return float(np.mean(values)), *(float(q) for q in np.quantile(means, [0.025, 0.975]))


class Gallery:
    """The test rows of a collection with one attribute, and free queries."""

    def __init__(self, suite: Suite, attribute: str, queries: Any) -> None:
        self.train, self.val, self.test = (suite.rows(split) for split in ("train", "val", "test"))
        self.s = {split: suite.codes(f"s_{attribute}_{split}") for split in ("train", "val", "test")}
        self.prompts, self.queries, self.name = suite.text(f"text_sensitive_{attribute}"), queries, attribute
        self.before = self.test @ queries.T

    def figures(self, scores: Any) -> tuple[Any, Any]:
        """Return MaxSkew@k (q,) and the rank correlations inside groups (q, g)."""
        return max_skew(scores, self.s["test"], K), correlation_inside_groups(
            self.before, scores, self.s["test"]
        )

    def scores(self, mapped: Map) -> Any:
        """Return the scores (n, q) of the mapped test rows."""
        return mapped(self.test) @ self.queries.T


def concept_erasure(X: Any, s: Any) -> Map | None:
    """Return the eraser of concept-erasure with its defaults, if it is installed."""
    try:
        import torch
        from concept_erasure import LeaceFitter
    except ImportError:
        return None
    onehot = torch.tensor(np.eye(int(s.max()) + 1)[s])
    eraser = LeaceFitter.fit(torch.tensor(X), onehot).eraser
    return lambda Z: eraser(torch.tensor(np.asarray(Z))).numpy()


def leace(X: Any, s: Any) -> Map:
    """Return the least-squares eraser of the package."""
    return erase(X, s, np.ones(len(X)), 0.0)


def fit(gallery: Gallery, rows: Any = None, **parameters: Any) -> EmbeddingMitigator:
    """Fit on the training rows with prompts and some labelled validation rows (all, unless given)."""
    rows = np.arange(len(gallery.val)) if rows is None else rows
    labelled = (gallery.val[rows], gallery.s["val"][rows]) if len(rows) else None
    return EmbeddingMitigator(**parameters).fit(
        gallery.train, sensitive_text=gallery.prompts, labelled=labelled
    )


def line(name: str, gallery: Gallery, scores: Any, out: dict[str, Any]) -> None:
    """Print and keep the figures of one method."""
    skews, correlations = gallery.figures(scores)
    skew, inside = interval(skews), interval(np.nanmean(correlations, axis=1))
    low = float(np.nanquantile(correlations, 0.05))
    out[name] = {"max_skew": skew, "rank_correlation": inside, "low_correlation": low}
    print(
        f"| {name} | {skew[0]:.4f} [{skew[1]:.4f}, {skew[2]:.4f}] | {inside[0]:.4f} | {low:.3f} |", flush=True
    )


def methods(gallery: Gallery) -> dict[str, Any]:
    """Compare methods that read S from all validation rows."""
    print(f"\n### {gallery.name}: S from {len(gallery.val)} labelled rows and prompts\n")
    print("| method | MaxSkew@1000 [95 % over queries] | rank correlation inside groups | 5th percentile |")
    print("|---|---|---|---|")
    out: dict[str, Any] = {}
    rng = np.random.default_rng(0)
    line("random order", gallery, rng.normal(size=gallery.before.shape), out)
    line("original embeddings", gallery, gallery.before, out)
    span = gallery.prompts - gallery.prompts.mean(axis=0)
    projected = without_span(gallery.queries, span)
    line("queries projected, images as they are", gallery, gallery.test @ projected.T, out)
    default = fit(gallery)
    line("EmbeddingMitigator()", gallery, gallery.scores(default.transform), out)
    line("… queries projected, too", gallery, default.transform(gallery.test) @ projected.T, out)
    line("… unit rows", gallery, gallery.scores(lambda X: unit_rows(default.transform(X))), out)
    for strength in (0.8, 0.9, 1.0):
        line(f"strength={strength}", gallery, gallery.scores(default.at(strength).transform), out)
    collection = EmbeddingMitigator().fit(
        gallery.test, sensitive_text=gallery.prompts, labelled=(gallery.val, gallery.s["val"])
    )
    line(
        "fitted on the gallery itself, without its labels", gallery, gallery.scores(collection.transform), out
    )
    reader = default.fitted_.attributes[0].reader
    read = reader.logits(gallery.train).argmax(axis=1)
    by_prompt = (gallery.train @ gallery.prompts.T).argmax(axis=1)
    line("LEACE, S from prompts", gallery, gallery.scores(leace(gallery.train, by_prompt)), out)
    line("LEACE, S from the same reader", gallery, gallery.scores(leace(gallery.train, read)), out)
    other = concept_erasure(gallery.train, read)
    if other is not None:
        line("concept-erasure, S from the same reader", gallery, gallery.scores(other), out)
    true = EmbeddingMitigator().fit(
        gallery.train, sensitive_features=gallery.s["train"], sensitive_text=gallery.prompts
    )
    line("EmbeddingMitigator(), true S in training", gallery, gallery.scores(true.transform), out)
    line("LEACE, true S in training", gallery, gallery.scores(leace(gallery.train, gallery.s["train"])), out)
    return out


def few_labels(gallery: Gallery, draws: int) -> dict[str, Any]:
    """Compare maps with few labelled rows beside the prompts, over random draws of these rows."""
    print(f"\n### {gallery.name}: few labelled rows beside the prompts, {draws} draws\n")
    print(
        "| labelled rows | EmbeddingMitigator: MaxSkew, mean ± sd (largest); correlation | LEACE: prompts and labels |"
        " LEACE: labels alone | concept-erasure: prompts and labels | MaxSkew less than LEACE at equal correlation |"
    )
    print("|---|---|---|---|---|---|")
    out: dict[str, Any] = {}
    by_prompt = (gallery.train @ gallery.prompts.T).argmax(axis=1)
    for count in COUNTS:
        found: dict[str, list[Any]] = {}
        gains = []
        for draw in range(draws if count else 1):
            rows = np.random.default_rng([count, draw]).permutation(len(gallery.val))[:count]
            ours = gallery.scores(fit(gallery, rows).transform)
            found.setdefault("mitigator", []).append(gallery.figures(ours))
            X = np.vstack([gallery.train, gallery.val[rows]])
            s = np.concatenate([by_prompt, gallery.s["val"][rows]])
            rivals = {"leace": leace(X, s), "concept": concept_erasure(X, s)}
            if count:
                rivals["alone"] = leace(gallery.val[rows], gallery.s["val"][rows])
            for name, mapped in rivals.items():
                if mapped is not None:
                    found.setdefault(name, []).append(gallery.figures(gallery.scores(mapped)))
            best = min(
                (mapped for mapped in rivals.values() if mapped is not None),
                key=lambda mapped: max_skew(gallery.scores(mapped), gallery.s["test"], K).mean(),
            )
            gains.append(_gain(gallery, ours, gallery.scores(best)))
        gain = interval(np.mean(gains, axis=0))
        cells = {name: _summary(values) for name, values in found.items()}
        out[str(count)] = {**cells, "gain_at_equal_correlation": gain}
        shown = [_shown(cells.get(name)) for name in ("mitigator", "leace", "alone", "concept")]
        print(
            f"| {count} | {' | '.join(shown)} | {gain[0]:+.4f} [{gain[1]:+.4f}, {gain[2]:+.4f}] |", flush=True
        )
    return out


def _gain(gallery: Gallery, ours: Any, rival: Any) -> Any:
    """Return by how much our MaxSkew is smaller (q,), where the stronger change is weakened to the same correlation."""

    def correlation(scores: Any) -> float:
        return float(np.nanmean(correlation_inside_groups(gallery.before, scores, gallery.s["test"])))

    target = max(correlation(ours), correlation(rival))
    first, second = (_weakened(gallery.before, scores, target, correlation) for scores in (ours, rival))
    return max_skew(second, gallery.s["test"], K) - max_skew(first, gallery.s["test"], K)


def _weakened(before: Any, after: Any, target: float, correlation: Callable[[Any], float]) -> Any:
    """Return scores between before and after, with at least the target correlation, by bisection."""
    if correlation(after) >= target:
        return after
    low, high = 0.0, 1.0
    for _ in range(8):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if correlation(before + middle * (after - before)) >= target else (low, middle)
        )
    return before + low * (after - before)


def _summary(values: list[Any]) -> dict[str, float]:
    skews = [float(skew.mean()) for skew, _ in values]
    inside = [float(np.nanmean(correlations)) for _, correlations in values]
    return {"max_skew": float(np.mean(skews)), "sd": float(np.std(skews)), "largest": max(skews),
            "rank_correlation": float(np.mean(inside))}  # fmt: skip


def _shown(cell: dict[str, float] | None) -> str:
    if cell is None:
        return "–"
    return (
        f"{cell['max_skew']:.4f} ± {cell['sd']:.4f} ({cell['largest']:.4f}); {cell['rank_correlation']:.3f}"
    )


def precision(suite: Path, fairface: Suite) -> dict[str, Any]:
    """Measure average precision inside groups for queries whose truth is known."""
    print("\n### Average precision inside groups, points of change\n")
    print("| query | original | EmbeddingMitigator() | strength=1 | LEACE, prompts |")
    print("|---|---|---|---|---|")
    out: dict[str, Any] = {}
    for label in LABELS:
        task = Suite(suite / f"celeba_{label}.npz")
        X, prompts = (
            {split: task.rows(split) for split in ("train", "val", "test")},
            task.text("text_sensitive"),
        )
        query, truth = task.text("text_target")[1], task.codes("y_test") == 1
        maps = _maps(X, task.codes("s_val"), prompts)
        out[label] = _precisions(label, X["test"], query, truth, task.codes("s_test"), maps)
    means = {name: float(np.mean([out[label][name] for label in LABELS])) for name in out[LABELS[0]]}
    print("| mean of the three | " + " | ".join(f"{value:+.2f}" for value in list(means.values())[1:]) + " |")
    ages = fairface.text("text_sensitive_age")
    X = {split: fairface.rows(split) for split in ("train", "val", "test")}
    maps = _maps(X, fairface.codes("s_sex_val"), fairface.text("text_sensitive_sex"))
    names = fairface.arrays["sensitive_names_age"].tolist()
    for code, name in enumerate(names):
        truth = fairface.codes("s_age_test") == code
        groups = fairface.codes("s_sex_test")
        out[f"age {name}"] = _precisions(f"age {name}", X["test"], ages[code], truth, groups, maps)
    return {**out, "mean": means}


def _maps(X: dict[str, Any], s: Any, prompts: Any) -> dict[str, Map]:
    made = EmbeddingMitigator().fit(X["train"], sensitive_text=prompts, labelled=(X["val"], s))
    return {
        "EmbeddingMitigator()": made.transform,
        "strength=1": made.at(1).transform,
        "LEACE": leace(X["train"], (X["train"] @ prompts.T).argmax(axis=1)),
    }


def _precisions(
    name: str, X: Any, query: Any, truth: Any, groups: Any, maps: dict[str, Map]
) -> dict[str, float]:
    before = 100 * average_precision(X @ query, truth, groups)
    values = {"original": float(np.nanmean(before))}
    for key, mapped in maps.items():
        after = 100 * average_precision(mapped(X) @ query, truth, groups)
        values[key] = float(np.nanmean(after - before))
    changes = " | ".join(f"{values[key]:+.2f}" for key in maps)
    print(f"| {name} | {' / '.join(f'{v:.1f}' for v in before)} | {changes} |", flush=True)
    return values


def unrelated(suite: Path, galleries: list[Gallery]) -> dict[str, float]:
    """Measure zero-shot accuracy on objects in four styles with maps fitted on faces."""
    pacs = Suite(suite / "pacs.npz")
    X, T, y = pacs.rows("test"), pacs.text("text_target"), pacs.codes("y_test")
    before = 100 * float(((X @ T.T).argmax(axis=1) == y).mean())
    print(f"\nPACS, zero-shot accuracy {before:.2f} %; change with a map fitted on faces:")
    out = {"original": before}
    for gallery in galleries:
        made = fit(gallery)
        for strength in (made.strength, 1.0):
            mapped = made.at(strength).transform(X)
            after = 100 * float(((mapped @ T.T).argmax(axis=1) == y).mean())
            out[f"{gallery.name}, {strength}"] = after - before
            print(f"- {gallery.name}, strength {strength}: {after - before:+.2f} points", flush=True)
    return out


def main() -> None:
    """Run all parts and write them as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suite", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("rankings.json"))
    parser.add_argument("--draws", type=int, default=10)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    fairface = Suite(options.suite / "fairface.npz")
    queries = Suite(options.suite / "fairface_queries.npz").text("text")
    galleries = [Gallery(fairface, name, queries) for name in ("sex", "race")]
    results: dict[str, Any] = {"k": K, "queries": len(queries)}
    for gallery in galleries:
        results[gallery.name] = {
            "methods": methods(gallery),
            "few_labels": few_labels(gallery, options.draws),
        }
        options.output.write_text(json.dumps(results, indent=1))
    results["average_precision"] = precision(options.suite, fairface)
    results["unrelated"] = unrelated(options.suite, galleries)
    options.output.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
