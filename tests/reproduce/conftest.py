"""Small simulated tasks, few settings, and everything in this process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairerclip.compare import methods, study
from fairerclip.compare.workers import guarded
from fairerclip.reproduce import context, source
from fairerclip.tuning import search


def inline(calls, answered, **options):
    """Calls in this process, which sees what a test has replaced."""
    for number, call in enumerate(calls):
        answered(number, guarded(call))


def lighter(method):
    fixed = dict(method.fixed) | ({"n_features": 100} if method.home == "FairerCLIP" else {})
    return replace(method, fixed=fixed, candidates=method.candidates[:1])


@pytest.fixture
def small(monkeypatch):
    scales = {"waterbirds": 0.03, "celeba": 0.002, "cheekbones": 0.002, "gallery": 0.05}
    monkeypatch.setattr(source, "SCALES", scales)
    monkeypatch.setattr(source, "WIDTH", 48)
    monkeypatch.setattr(search, "FITS", search.FITS[:1])
    few = tuple(lighter(method) for method in methods.METHODS)
    monkeypatch.setattr(methods, "METHODS", few)
    monkeypatch.setattr(context, "METHODS", few)
    monkeypatch.setattr(study, "run_calls", inline)
