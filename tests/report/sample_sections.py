"""The other sections of synthetic results, counted from the rows of `sample_world`."""

from __future__ import annotations

import numpy as np
from sample_world import clopper_pearson, figures, report, span, table


def margins(world, scores):
    """Second class minus first, or the true class against the best other one."""
    if len(world.classes) == 2:
        return scores[:, 1] - scores[:, 0]
    true = scores[np.arange(world.n), world.y]
    return true - np.where(np.eye(len(world.classes))[world.y] == 1, -np.inf, scores).max(axis=1)


def histogram(world, scores, bins=24):
    values = margins(world, scores)
    edges = np.linspace(values.min(), values.max(), bins + 1)
    groups = []
    for g in world.groups():
        mask = (world.y == world.classes.index(g["y"])) & (world.s == world.values.index(g["s"]))
        counts = np.histogram(values[mask], edges)[0]
        groups.append({**{key: g[key] for key in ("name", "y", "s", "n")}, "counts": counts})
    return {"edges": edges, "threshold": 0.0, "groups": groups}


def picture(world, lean, note, bins=18):
    x, y = margins(world, world.scores(lean)), lean * 2 * world.s + 0.5 * world.signal[:, 0]
    edges = [np.linspace(a.min(), a.max(), bins + 1) for a in (x, y)]
    i, j = (np.clip(np.digitize(a, e) - 1, 0, bins - 1) for a, e in zip((x, y), edges, strict=True))
    groups = world.y * len(world.values) + world.s
    cells, n = np.unique(np.stack([i, j, groups], axis=1), axis=0, return_counts=True)
    rows = [[*cell, count] for cell, count in zip(cells.tolist(), n.tolist(), strict=True)]
    labels = {"x_label": "direction of the classes", "y_label": "first direction of S", "note": note}
    return {**labels, "x_edges": edges[0], "y_edges": edges[1], "cells": rows}


def plane_section(world, taus, tau_zs, criteria):
    counts = world.group_sizes().ravel()
    seen = [set() for _ in counts]

    def measured(scores):
        p = scores.argmax(axis=1)
        found = figures(world.y, world.s, p, world, world.group_sizes())
        correct = table(world.y, world.s, p == world.y, world).ravel()
        for known, k in zip(seen, correct, strict=True):
            known.add(int(k))
        shrunken = ((correct + 8 * found["average"]) / (counts + 8))[counts > 0].min()
        kept = {key: found[key] for key in ("average", "worst_group", "gap", "eod")}
        return {**kept, "correct": correct, "shrunken_worst_group": shrunken}

    empty = dict.fromkeys(("correct", "average", "worst_group", "shrunken_worst_group", "gap", "eod"))
    points = []
    for shift, criterion in enumerate(criteria):
        for tau_z in tau_zs:
            for tau in taus:
                strength = tau / (1 + 0.4 * tau_z)
                place = {"tau": tau, "tau_z": tau_z, "criterion": criterion, "lambda_eff": strength}
                failed = strength > 0.9
                reason = (
                    "NoSolutionError: tau is so large that no direction is worth taking" if failed else None
                )
                lean = 0.9 * (1 - 1.35 * strength) + 0.05 * shift
                values = empty if failed else measured(world.scores(lean))
                points.append({**place, "failure": reason, **values})
    good = [i for i, point in enumerate(points) if point["failure"] is None]
    front = [i for i in good if not any(_beats(points[j], points[i]) for j in good)]
    unique = {(points[i]["average"], points[i]["worst_group"]): i for i in reversed(front)}
    baseline = measured(world.scores(0.9))
    del baseline["shrunken_worst_group"]
    return {
        "split": "val",
        "taus": taus,
        "tau_zs": tau_zs,
        "criteria": criteria,
        "groups": world.groups(),
        "intervals": [_interval_table(known, n) for known, n in zip(seen, counts, strict=True)],
        "points": points,
        "chosen": max(good, key=lambda i: points[i]["shrunken_worst_group"]),
        "chosen_by": "expected worst group",
        "front": sorted(unique.values(), key=lambda i: points[i]["average"]),
        "one_curve": len(world.classes) == 2,
        "baseline": baseline,
        "command": "fairerclip fit TASK.npz -o MODEL --labels target --tau {tau} --tau-z {tau_z} "
        "--criterion {criterion} --set class_weight=balanced",
    }


def _beats(a, b):
    one, two = (a["average"], a["worst_group"]), (b["average"], b["worst_group"])
    return all(x >= y for x, y in zip(one, two, strict=True)) and one != two


def _interval_table(known, n):
    ends = {k: clopper_pearson(k, max(int(n), 1)) for k in sorted(known)}
    return {str(k): [float(low), float(high)] for k, (low, high) in ends.items()}


RANKED = ("max_skew", "min_skew", "ndkl", "kl", "bias", "precision", "recall")


def ranking(world, score, relevant, k, draws=30):
    """Who is in the top k: counts, skews, divergences at k, Bias@k, precision and recall, with resampled intervals."""
    shares = np.bincount(world.s, minlength=len(world.values)) / world.n

    def measure(rows):
        top = rows[np.argsort(-score[rows], kind="stable")[:k]]
        counts = np.bincount(world.s[top], minlength=len(world.values))
        seen = counts / k
        with np.errstate(divide="ignore", invalid="ignore"):
            skew = np.log(seen / shares)
            ndkl = np.nansum(np.where(seen > 0, seen * skew, 0.0))
        hits = relevant[top].mean(), relevant[top].sum() / max(relevant[rows].sum(), 1)
        bias = (counts[0] - counts[1]) / max(counts[0] + counts[1], 1)
        return counts, np.array([skew.max(), skew.min(), ndkl, ndkl, bias, *hits])

    counts, values = measure(np.arange(world.n))
    rng = np.random.default_rng(9)
    drawn = np.stack([measure(rng.integers(world.n, size=world.n))[1] for _ in range(draws)])
    ends = {name: _finite_span(drawn[:, i]) for i, name in enumerate(RANKED)}
    found = {
        name: {"value": values[i], "low": ends[name][0], "high": ends[name][1]}
        for i, name in enumerate(RANKED)
    }
    return {"counts": counts, **found}, drawn


def _finite_span(draws):
    return span(draws) if np.isfinite(draws).all() else [None, None]


def retrieval_section(world, before, after, k, labels=True):
    queries, means = [], {"before": [], "after": []}
    for i, name in enumerate(world.classes):
        relevant = world.y == i
        (one, first), (two, last) = (ranking(world, scores[:, i], relevant, k) for scores in (before, after))
        changes = {
            name: {
                "before": one[name]["value"],
                "after": two[name]["value"],
                "difference": two[name]["value"] - one[name]["value"],
                **dict(zip(("low", "high"), _finite_span(last[:, m] - first[:, m]), strict=True)),
            }
            for m, name in enumerate(RANKED)
        }
        if not labels:
            for part in (one, two, changes):
                part["precision"] = part["recall"] = None
        kept = len(set(np.argsort(-before[:, i])[:k]) & set(np.argsort(-after[:, i])[:k])) / k
        rho = float(np.corrcoef(before[:, i], after[:, i])[0, 1])
        drift = {"spearman": est(rho), "spearman_within": est(min(1, rho + 0.03)), "overlap": est(kept)}
        queries.append({"name": name, "prompt": f"a photo of a {name}.", "before": one, "after": two})
        ends = changes["max_skew"]["low"], changes["max_skew"]["high"]
        clear = None not in ends and not ends[0] <= 0 <= ends[1]
        queries[-1] |= {"changes": changes, "drift": drift, "clear": clear}
        means["before"].append(one)
        means["after"].append(two)
    mean = {stage: {n: _mean_est([r[n] for r in ranks]) for n in RANKED} for stage, ranks in means.items()}
    mean["changes"] = {n: _mean_change(mean["before"][n], mean["after"][n]) for n in RANKED}
    shares = np.bincount(world.s, minlength=len(world.values)) / world.n
    head = {"split": "test", "k": k, "n": world.n, "reference": "population", "ties": "expected"}
    pair = world.values[:2]
    return {**head, "groups": world.values, "shares": shares, "pair": pair, "queries": queries, "mean": mean}


def auc_section(world, before, after):
    """AUC of the last class against the others in each group, from all pairs of rows, with wide intervals."""
    stages = {}
    for stage, scores in (("before", before), ("after", after)):
        margin, right = scores[:, -1] - scores[:, 0], world.y == len(world.classes) - 1
        groups = []
        for code, value in enumerate(world.values):
            above = margin[right & (world.s == code)][:, None] - margin[~right & (world.s == code)]
            n = int((world.s == code).sum())
            groups.append({"s": value, "name": value, "n": n, "auc": est(float((above > 0).mean()))})
        worst, best = (pick(groups, key=lambda group: group["auc"]["value"]) for pick in (min, max))
        gap = best["auc"]["value"] - worst["auc"]["value"]
        stages[stage] = {
            "groups": groups,
            "overall": est(float((margin[right][:, None] > margin[~right]).mean())),
            "worst": worst["name"],
            "worst_auc": worst["auc"],
            "auc_gap": {"value": gap, "low": 0.0, "high": gap + 0.02},
            "classes": world.classes,
            "positive": world.classes[-1],
            "left_out": [],
            "confidence": 0.95,
        }
    return stages


def queries_section(ranked):
    """Return free queries with the figures of the prompts of a retrieval section; the last one is about S."""
    queries = []
    for query in [*ranked["queries"], ranked["queries"][0]]:
        tops = {
            stage: {name: query[stage][name] for name in ("counts", "max_skew")}
            for stage in ("before", "after")
        }
        change, drift = query["changes"]["max_skew"], query["drift"]
        queries.append(
            {
                "prompt": f"anybody like {query['name']}",
                **tops,
                "change": change,
                "clear": query["clear"],
                "correlation": drift["spearman_within"]["value"],
                "kept": drift["overlap"]["value"],
                "share": 0.1,
                "about": None,
            }
        )
    queries[-1] |= {"prompt": "a photo with land background", "share": 0.9, "about": "background"}
    queries[-1] |= {"after": queries[-1]["before"], "clear": False}
    means = [_mean_est([query[stage]["max_skew"] for query in queries[:-1]]) for stage in ("before", "after")]
    mean = {
        "queries": len(queries) - 1,
        "before": means[0],
        "after": means[1],
        "change": _mean_change(*means),
        "correlation": est(0.9),
        "low_correlation": 0.8,
        "kept": est(0.7),
    }
    head = {key: ranked[key] for key in ("split", "k", "n", "groups", "shares")}
    precision = {"before": 0.6, "after": 0.55, "difference": -0.05, "low": -0.1, "high": 0.0}
    return {**head, "total": len(queries), "queries": queries, "mean": mean, "precision": precision}


def est(value, half=0.02):
    return {"value": value, "low": max(-1.0, value - half), "high": min(1.0, value + half)}


def _mean_est(parts):
    if any(part is None for part in parts):
        return None
    keys = ("value", "low", "high")
    return {
        key: None if any(p[key] is None for p in parts) else np.mean([p[key] for p in parts]) for key in keys
    }


def _mean_change(one, two):
    if one is None:
        return None
    difference = two["value"] - one["value"]
    row = {"before": one["value"], "after": two["value"], "difference": difference}
    return {**row, "low": difference - 0.05, "high": difference + 0.05}


def reading_sections(world, before, after):
    """Probes, dependence, wording and representation: what can be read of S from predictions and scores."""
    probes, dependence, representation = [], [], []
    chance = 1 / len(world.values)
    for stage, scores in (("before", before), ("after", after)):
        p = scores.argmax(axis=1)
        guess = [
            np.bincount(world.s[p == k], minlength=len(world.values)).argmax()
            for k in range(len(world.classes))
        ]
        right = np.array(guess)[p] == world.s
        value = float(np.mean([right[world.s == v].mean() for v in range(len(world.values))]))
        for probe, more in (("linear", 0.0), ("kernel", 0.02)):
            ends = {
                "value": min(1, value + more),
                "low": value + more - 0.03,
                "high": min(1, value + more + 0.03),
            }
            row = {"attribute": "background", "probe": probe, "stage": stage, **ends}
            probes.append({**row, "chance": chance, "n": world.n, "folds": 5})
        for given in (None, *world.classes[:2]):
            mask = slice(None) if given is None else world.y == world.classes.index(given)
            r2 = float(np.corrcoef(p[mask], world.s[mask])[0, 1] ** 2)
            row = {
                "stage": stage,
                "of": "predictions",
                "attribute": "background",
                "given": given,
                "measure": "dep",
            }
            ends = {"value": r2, "low": max(0.0, r2 - 0.01), "high": r2 + 0.01}
            dependence.append(
                {**row, **ends, "p_value": 0.005, "permutations": 199, "n": int(np.size(world.y[mask]))}
            )
        cell = {"value": value / 9, "low": value / 10, "high": value / 8, "p_value": 0.005}
        row = {"stage": stage, "space": "image embeddings" if stage == "before" else "learned space"}
        representation.append(
            {**row, **{name: dict(cell) for name in ("hsic_y", "hsic_s", "kcc_y", "kcc_s")}}
        )
    templates = []
    for i, words in enumerate(("a photo of a {}.", "a {} in the wild.", "an image of one {}.", "{}")):
        p = world.scores(0.9 + 0.1 * i).argmax(axis=1)
        found = figures(world.y, world.s, p, world, world.group_sizes())
        worst = min(
            report(world, p, world.group_sizes(), _no_draws(found))["groups"], key=lambda g: g["accuracy"]
        )
        values = {name: est(found[name], 0.03) for name in ("average", "worst_group", "eod")}
        templates.append({"template": words, **values, "worst_name": worst["name"]})
    wording = {"split": "test", "templates": templates, "used": 0}
    return {"probes": probes, "dependence": dependence, "wording": wording, "representation": representation}


def _no_draws(found):
    return {name: np.array([value]) for name, value in found.items()}
