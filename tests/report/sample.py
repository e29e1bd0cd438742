"""Results for the reports: audits of small simulated tasks, each made once, and changes to their JSON."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from unittest.mock import patch

from fairerclip import EmbeddingMitigator
from fairerclip.auditing import AuditOptions, audit_task
from fairerclip.auditing.sections import mitigation
from fairerclip.data import simulate
from fairerclip.data.task import Sentences
from fairerclip.experiment import Experiment
from light import lighter_audits
from small_models import small

TAUS, TAU_ZS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.95), (0.0, 0.4, 0.8)


@cache
def _audited(name, scale, width):
    task, attributes, model = simulate(name, seed=1, scale=scale, width=width), None, small(tau_z=0.4)
    if name == "gallery":
        queries = Sentences(task.text_target[:3], ("calm", "keen", "odd"))
        task, attributes, model = replace(task, queries=queries), ["sex"], EmbeddingMitigator()
    options = AuditOptions(permutations=19, seeds=2, tune=False)
    grid = patch.multiple(mitigation, DEFAULT_TAUS=TAUS, TAU_ZS=TAU_ZS)
    with contextmanager(lighter_audits)(), grid:
        results, _ = audit_task(Experiment.of(task, attributes), options, model=model)
    return results.model_dump(mode="json", by_alias=True)


def _with_a_failure(results):
    """One point of the plane, which no other place names, has no solution."""
    plane = results["plane"]
    free = set(range(len(plane["points"]))) - {plane["chosen"], *plane["front"]}
    empty = ("correct", "average", "worst_group", "shrunken_worst_group", "gap", "eod")
    plane["points"][max(free)] |= {**dict.fromkeys(empty), "failure": "NoSolutionError: tau is too large"}
    return results


def two_class():
    """Two classes and two places, every section but free queries."""
    return _with_a_failure(copy.deepcopy(_audited("waterbirds", 0.05, 32)))


def many_classes():
    """Five classes and three groups, some of them small."""
    return copy.deepcopy(_audited("multiclass", 0.05, 48))


def gallery():
    """Rankings before and after a mitigator, and free queries, without classes."""
    return copy.deepcopy(_audited("gallery", 0.05, 48))


def every_section():
    """Two classes, with the free queries of the gallery."""
    return {**two_class(), "queries": gallery()["queries"]}


def minimal():
    """Nothing but the envelope: every section null, no model."""
    results = two_class()
    kept = ("format", "version", "made", "task", "settings", "verdict", "findings", "limits")
    return {key: value if key in kept else None for key, value in results.items()}


def before_only():
    """An audit without a model: zero-shot alone, everywhere."""
    results = two_class()
    results["model"] = results["plane"] = None
    results["groups"] |= dict.fromkeys(("after", "changes", "group_changes", "seeds"))
    for section in (results["scores"], results["picture"], results["auc"]):
        section["after"] = None
    results["retrieval"]["mean"] |= {"after": None, "changes": None}
    for query in results["retrieval"]["queries"]:
        query |= dict.fromkeys(("after", "changes", "drift", "clear"))
    for section in ("probes", "dependence", "representation"):
        results[section] = [row for row in results[section] if row["stage"] == "before"]
    return results


VARIANTS = {
    made.__name__: made for made in (two_class, many_classes, gallery, every_section, minimal, before_only)
}

# Text that would run, move or hide if it were not escaped

ATTACK = (
    "</script><script>window.pwned=1;alert(1)</script><img src=x onerror='window.pwned=1'>"
    '" onfocus="window.pwned=1" autofocus=\'\' {{7*7}} {% raw %} <!-- ]]> \u2028\u2029 &lt;b&gt; ${1} `x`'
)
BIDI = "\u202egnp.exe\u2066 \u0007\u001b[31m"
LONG = "W" * 300
KEPT = """
format date level action figure better stage of measure probe labels method target intervals digest command
"""
"""Words of the contract itself, and keys of lookups, stay as they are; all other text is changed."""


def _poison(value, bad):
    if isinstance(value, dict):
        return {key: item if key in KEPT.split() else _poison(item, bad) for key, item in value.items()}
    if isinstance(value, list):
        return [_poison(item, bad) for item in value]
    return value + bad if isinstance(value, str) else value


def hostile():
    """Results of every section with markup, control characters and long words in every free text."""
    results = _poison(every_section(), ATTACK)
    task = results["task"]
    task["name"] += BIDI + LONG
    task["target_prompts"][0] += BIDI + LONG
    task["groups"][0] += BIDI
    results["verdict"][0] += LONG
    for part in (results["plane"]["groups"], results["groups"]["before"]["groups"]):
        part[0]["name"] += LONG + BIDI
    task["sensitive_prompts"] = {key + ATTACK: prompts for key, prompts in task["sensitive_prompts"].items()}
    results["model"]["parameters"] |= {"constructor" + ATTACK: LONG, "__proto__": "x"}
    return results
