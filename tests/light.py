"""Comparisons in this process with few settings: what is tested is that they run, not what they find."""

from dataclasses import replace
from functools import partial

import pytest

from fairerclip.auditing import run
from fairerclip.auditing.sections import probes
from fairerclip.baselines import sensitive_forest
from fairerclip.metrics.retrieval import gallery
from fairerclip.study import jobs, methods
from fairerclip.study.paper import context
from fairerclip.study.workers import guarded
from fairerclip.tuning import candidates


def inline(calls, answered, **options):
    """Calls in this process, which sees what a test has replaced."""
    for number, call in enumerate(calls):
        answered(number, guarded(call))


def lighter(method):
    fixed = dict(method.fixed) | ({"n_features": 100} if method.home == "FairerCLIP" else {})
    return replace(method, fixed=fixed, candidates=method.candidates[:1])


def few_settings(monkeypatch):
    monkeypatch.setattr(candidates, "FITS", candidates.FITS[:1])
    few = tuple(lighter(method) for method in methods.METHODS)
    monkeypatch.setattr(methods, "METHODS", few)
    monkeypatch.setattr(context, "METHODS", few)
    monkeypatch.setattr(jobs, "run_calls", inline)


def lighter_audits():
    """Yield while audits take less: the body of a fixture for a whole module.

    Probes have few features and one penalty, which need not be chosen; representations are of few rows; rankings are
    resampled seldom.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probes, "LANDMARKS", 40)
        patch.setattr(probes, "PENALTIES", probes.PENALTIES[:1])
        patch.setattr(probes, "_choose_penalty", lambda *rows: probes.PENALTIES[0])
        patch.setattr(run, "audit_representation", partial(run.audit_representation, max_rows=200))
        patch.setattr(gallery, "HALF_SAMPLES", 20)
        yield


def fewer_fits():
    """Yield while a search makes two fits of its own instead of six: the body of a fixture for a whole module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "FITS", candidates.FITS[:2])
        yield


def smaller_forests():
    """Yield while forests that predict S have thirty trees, not a hundred: the body of a fixture for a whole module.

    With fewer, some row would be in the sample of every tree.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sensitive_forest, "N_TREES", 30)
        yield
