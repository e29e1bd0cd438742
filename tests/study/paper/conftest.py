"""Small simulated tasks, few settings, and everything in this process."""

from __future__ import annotations

import pytest

from fairerclip.study.paper import task_source as source
from light import few_settings


@pytest.fixture
def small(monkeypatch):
    scales = {"waterbirds": 0.03, "celeba": 0.002, "cheekbones": 0.002, "gallery": 0.05}
    monkeypatch.setattr(source, "SCALES", scales)
    monkeypatch.setattr(source, "WIDTH", 48)
    few_settings(monkeypatch)
