"""Synthetic results for the reports: simulated rows, every figure counted from them, so that all agree."""

from __future__ import annotations

import copy
from functools import cache

import numpy as np
from sample_sections import (
    auc_section,
    histogram,
    picture,
    plane_section,
    queries_section,
    reading_sections,
    retrieval_section,
)
from sample_world import CONFIDENCE, SMALL, World, groups_section, plain


def _task(name, world, splits):
    counts = {
        split: [{"y": g["y"], "s": g["s"], "n": g["n"]} for g in part.groups()]
        for split, part in splits.items()
    }
    return {
        "name": name,
        "file": f"{name}.npz",
        "simulated": True,
        "digest": "sha256:" + "0123456789abcdef" * 4,
        "width": 512,
        "rows": {split: part.n for split, part in splits.items()},
        "classes": world.classes,
        "sensitive": ["background"],
        "groups": world.values,
        "target_prompts": [f"a photo of a {c}." for c in world.classes],
        "sensitive_prompts": {"background": [f"a photo with {v}." for v in world.values]},
        "counts": counts,
    }


def _envelope(task, model):
    made = {
        "fairerclip": "0.1.0",
        "python": "3.11.7",
        "numpy": "2.1.0",
        "scipy": "1.14.0",
        "scikit-learn": "1.6.0",
    }
    return {
        "format": "fairerclip-results",
        "version": 1,
        "made": {**made, "date": "2026-11-16T08:00:00Z", "seconds": 3.2},
        "task": task,
        "settings": {
            "split": "test",
            "chosen_on": "val",
            "confidence": CONFIDENCE,
            "seed": 0,
            "permutations": 199,
            "small": SMALL,
        },
        "model": model,
        "verdict": [],
        "recommendation": None,
        "findings": [],
        **dict.fromkeys(
            (
                "groups",
                "scores",
                "auc",
                "picture",
                "plane",
                "retrieval",
                "queries",
                "probes",
                "dependence",
                "wording",
                "representation",
            )
        ),
        "limits": [
            "The rows are simulated; nothing here says anything about a real model.",
            "An interval covers the sampling of test rows, not a shift to other images.",
            "Groups that are not labelled are not seen.",
        ],
    }


def _model(point):
    keep = {key: point[key] for key in ("tau", "tau_z", "criterion")}
    command = (
        "fairerclip fit TASK.npz -o MODEL --labels target --tau {tau} --tau-z {tau_z} --criterion {criterion}"
    )
    parameters = {"class_weight": "balanced", "gamma": 0.001, "n_components": None, "random_state": 0, **keep}
    rest = {
        "parameters": parameters,
        "command": command.format(**keep),
        "seconds": 1.4,
        "source": "fitted here",
    }
    facts = {
        "method": "FairerCLIP",
        "paper": None,
        "training": {
            "rows": 3000,
            "target": "known",
            "target_guessed": 0,
            "sensitive_guessed": {"place": 3000},
        },
        "tuning": None,
        "mitigator": None,
    }
    return {"labels": "target", **keep, "n_iter": 1, **rest, **facts}


def _per_cent(x):
    return f"{100 * x:.1f}%"


def _points(x):
    return f"{100 * x:.1f} points"


def _words(results):
    one, two = results["groups"]["before"], results["groups"]["after"]
    worst = two["worst"]
    results["verdict"] = [
        f"Zero-shot is right for {_per_cent(one['worst']['accuracy'])} of its worst group, {one['worst']['name']}, "
        f"against {_per_cent(one['average'])} on average.",
        f"With FairerCLIP the worst group, {worst['name']}, is at {_per_cent(worst['accuracy'])} "
        f"[{_per_cent(worst['low'])}, {_per_cent(worst['high'])}] and the average at {_per_cent(two['average'])}.",
        "Some dependence on the background is left; look at the groups with few rows before you rely on it.",
    ]
    results["findings"] = [
        {
            "level": "problem",
            "text": f"Zero-shot fails for {one['worst']['name']}: the gap is {_points(one['gap'])}.",
        },
        {
            "level": "good",
            "text": f"The gap between average and worst group is {_points(two['gap'])} after mitigation.",
        },
        {"level": "caution", "text": "Some groups have fewer than 30 rows: their intervals are wide."},
        {
            "level": "note",
            "text": "The point was chosen on the validation rows; the figures are of the test rows.",
        },
    ]


@cache
def _full(classes, values, taus, tau_zs, criteria):
    classes, values = list(classes), list(values)
    train, val, test = (
        World(seed, n, classes, values, 0.8 if len(classes) == 2 else 0.5)
        for seed, n in ((21, 3000), (22, 700 + 60 * len(classes)), (23, 2400))
    )
    before, after = test.scores(0.9), test.scores(0.15)
    plane = plane_section(val, list(taus), list(tau_zs), list(criteria))
    splits = {"train": train, "val": val, "test": test}
    results = _envelope(_task("simulated birds", test, splits), _model(plane["points"][plane["chosen"]]))
    results |= {
        "groups": groups_section(test, train, before.argmax(axis=1), after.argmax(axis=1)),
        "plane": plane,
        "retrieval": retrieval_section(test, before, after, 200),
        **reading_sections(test, before, after),
    }
    two = len(classes) == 2
    label = f"score of {classes[1]} minus score of {classes[0]}" if two else "margin of the true class"
    results["scores"] = {"label": label, "before": histogram(test, before), "after": histogram(test, after)}
    results["auc"] = auc_section(test, before, after)
    results["picture"] = {
        "groups": [{key: g[key] for key in ("name", "y", "s", "n")} for g in test.groups()],
        "before": picture(test, 0.9, None),
        "after": picture(
            test, 0.15, "The learned space has one dimension; the second axis is random." if two else None
        ),
    }
    _words(results)
    return plain(results)


def _grid(n):
    return tuple(np.linspace(0, 0.95, n).tolist())


def two_class(taus=21, tau_zs=21, criteria=("marginal", "conditional")):
    """Two classes and two backgrounds, every section."""
    return copy.deepcopy(
        _full(
            ("landbird", "waterbird"),
            ("land background", "water background"),
            _grid(taus),
            _grid(tau_zs) if tau_zs > 1 else (0.7,),
            tuple(criteria),
        )
    )


def with_queries(taus=3, tau_zs=2):
    """Two classes, every section, free queries, and a mitigator as the model."""
    results = two_class(taus, tau_zs)
    source = {"given": False, "reader": "prompts and labelled rows", "labelled_rows": 40}
    mitigator = {
        "rows": 3000,
        "attributes": {"background": source},
        "strengths": {"background": 0.9},
        "remaining": {"background": 0.01},
        "drift": ["these rows differ from the collection of the fit"],
    }
    results["model"] |= {"method": "EmbeddingMitigator", "mitigator": mitigator, "source": "given"}
    return {**results, "queries": queries_section(results["retrieval"])}


def seven_class(taus=11, tau_zs=6):
    """Seven classes and four groups, some of them small."""
    classes = ("artist", "doctor", "engineer", "farmer", "lawyer", "nurse", "primary school teacher")
    return copy.deepcopy(
        _full(
            classes,
            ("female, 20–39", "female, 40–59", "male, 20–39", "male, 40–59"),
            _grid(taus),
            _grid(tau_zs),
            ("marginal",),
        )
    )


def retrieval_only():
    """A gallery with sensitive labels but no classes: every section by group is null."""
    world = World(31, 2000, ["a good person", "a criminal"], ["female", "male", "unknown"], 0.5)
    task = _task("simulated gallery", world, {"test": world})
    results = _envelope(task, _model({"tau": 0.6, "tau_z": 0.3, "criterion": "marginal"}))
    results["retrieval"] = retrieval_section(world, world.scores(0.9), world.scores(0.1), 100, labels=False)
    results["settings"]["chosen_on"] = None
    results["verdict"] = [
        "The first 100 hits lean towards one group.",
        "They lean less after.",
        "Ranks moved.",
    ]
    results["findings"] = [
        {"level": "note", "text": "There are no class labels, so accuracy by group is unknown."}
    ]
    return plain(results)


def minimal():
    """Nothing but the envelope: every section null, no model."""
    world = World(31, 40, ["cat", "dog"], ["day", "night"], 0.5)
    results = _envelope(_task("smallest", world, {"test": world}), None)
    results["settings"]["chosen_on"] = None
    results["verdict"] = ["There are no labels.", "Nothing could be measured.", "Give labels for a few rows."]
    return plain(results)


def before_only():
    """An audit without a model: zero-shot alone, everywhere."""
    results = two_class(taus=3, tau_zs=2)
    results["model"] = results["plane"] = None
    results["groups"] |= {"after": None, "changes": None, "group_changes": None, "seeds": None}
    results["scores"]["after"] = results["picture"]["after"] = results["auc"]["after"] = None
    results["retrieval"]["mean"] |= {"after": None, "changes": None}
    for query in results["retrieval"]["queries"]:
        query |= {"after": None, "changes": None, "drift": None, "clear": None}
    for section in ("probes", "dependence", "representation"):
        results[section] = [row for row in results[section] if row["stage"] == "before"]
    return results


ATTACK = (
    "</script><script>window.pwned=1;alert(1)</script><img src=x onerror='window.pwned=1'>"
    '" onfocus="window.pwned=1" autofocus=\'\' {{7*7}} {% raw %} <!-- ]]> \u2028\u2029 &lt;b&gt; ${1} `x`'
)
BIDI = "\u202egnp.exe\u2066 \u0007\u001b[31m"
LONG = "W" * 300


def _poison(value, bad):
    if isinstance(value, dict):
        return {key: item if key in KEPT else _poison(item, bad) for key, item in value.items()}
    if isinstance(value, list):
        return [_poison(item, bad) for item in value]
    return value + bad if isinstance(value, str) else value


# Words of the contract itself, and keys of lookups, stay as they are; all other text is poisoned.
KEPT = {
    "format",
    "date",
    "level",
    "figure",
    "better",
    "stage",
    "of",
    "measure",
    "probe",
    "labels",
    "method",
    "target",
    "intervals",
    "digest",
    "command",
}


def hostile():
    """The two-class results with markup, control characters and long words in every free text."""
    results = _poison(two_class(taus=6, tau_zs=3), ATTACK)
    names = results["task"]
    names["name"] += BIDI + LONG
    names["target_prompts"][0] += BIDI + LONG
    names["groups"][0] += BIDI
    results["verdict"][0] += LONG
    for part in (results["plane"]["groups"], results["groups"]["before"]["groups"]):
        part[0]["name"] += LONG + BIDI
    for side in ("sensitive_prompts",):
        names[side] = {key + ATTACK: prompts for key, prompts in names[side].items()}
    results["model"]["parameters"] |= {"constructor" + ATTACK: LONG, "__proto__": "x"}
    return results
