"""Small simulated tasks, few settings, and everything in this process."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

import pytest

from fairerclip.compare import methods, study
from fairerclip.reproduce import context, source
from fairerclip.tuning import search


class Inline:
    """An executor that does the work where it is asked for."""

    def __init__(self, *arguments, **options):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def submit(self, call, *arguments):
        future = Future()
        future.set_result(call(*arguments))
        return future


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
    monkeypatch.setattr(study, "ProcessPoolExecutor", Inline)
