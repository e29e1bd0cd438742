"""Small tasks and searches for the tests of the search."""

from functools import cache

import numpy as np

from fairerclip import FairerCLIP, FairerCLIPSearch
from fairerclip.data import simulate
from fairerclip.data.simulate import multiclass
from fairerclip.tuning import search as module

SEARCH = {
    "fits": [{"class_weight": "balanced"}, {"class_weight": "group"}],
    "taus": [0.0, 0.8],
    "zero_shots": [0.0, 0.5],
    "criteria": ["marginal", "conditional"],
}
"""A search of few points."""
TINY = {
    "fits": [{"class_weight": "balanced"}],
    "taus": [0.0, 0.8],
    "zero_shots": [0.5],
    "criteria": ["marginal"],
}
START = {
    "tau": 0.8,
    "zero_shot": 0.5,
    "gamma": 1e-3,
    "criterion": "marginal",
    "guess_weight": 1.0,
    "class_offsets": None,
}
"""Values that a search puts in the place of "auto" where rows have labels."""


@cache
def task(name="waterbirds", seed=5, scale=0.1, width=64):
    if name == "multiclass":  # offsets of many classes in many cells take long to learn
        return multiclass(seed, n_classes=3, n_sensitive=2, scale=scale, width=width)
    return simulate(name, seed=seed, scale=scale, width=width)


def small(**parameters):
    return FairerCLIP(**{"n_features": 80, "random_state": 0, **parameters})


def prompts(t):
    return {"text": t.text_target, "sensitive_text": t.sensitive_attribute().text}


def held(t, split="val"):
    rows = t.split(split)
    return rows.X, rows.y, rows.sensitive()


def searched(t, model=None, y="train", validation="val", search=SEARCH, options=None, **fit_arguments):
    """A fitted search on labels, validation rows and both kinds of prompts, unless told otherwise."""
    labels = t.train.y if isinstance(y, str) else y
    rows = held(t) if isinstance(validation, str) else validation
    found = FairerCLIPSearch(model or small(), search_space=search, **(options or {}))
    return found.fit(t.train.X, labels, validation=rows, **{**prompts(t), **fit_arguments})


def tuned(t, model=None, *, objective="worst_group", accuracy_floor=None, max_seconds=None, **given):
    """The model that `searched` finds."""
    options = {"objective": objective, "accuracy_floor": accuracy_floor, "max_seconds": max_seconds}
    return searched(t, model, options={**options, **given.pop("options", {})}, **given).best_estimator_


def figures(model):
    """The record of a search, without its time."""
    return {name: v for name, v in model.diagnostics_["tuning"].items() if name != "seconds"}


def all_rows(t):
    """X, y and s of the rows that judge: training rows, then validation rows."""
    train = (t.train.X, t.train.y, t.train.sensitive())
    return tuple(np.concatenate(parts) for parts in zip(train, held(t), strict=True))


def remember(monkeypatch):
    """Keep what the latest search found: its rows (`FoundRows`) and its candidates (`Pool`)."""
    kept = {}

    def keep(name, function):
        def call(*args, **options):
            kept[name] = function(*args, **options)
            return kept[name]

        return call

    monkeypatch.setattr(module, "find_rows", keep("found", module.find_rows))
    monkeypatch.setattr(module, "gather", keep("pool", module.gather))
    return kept


def worst_accuracy(y, s, predicted):
    """Least accuracy of any class × group, the obvious way."""
    return min(
        np.mean(predicted[(y == k) & (s == g)] == k)
        for k in np.unique(y)
        for g in np.unique(s)
        if np.any((y == k) & (s == g))
    )
