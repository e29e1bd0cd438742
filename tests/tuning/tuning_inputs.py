"""Small tasks and made-up scores for the tests of the search."""

from functools import cache

import numpy as np

from fairerclip import FairerCLIP
from fairerclip.data import simulate
from fairerclip.data.simulate import multiclass
from fairerclip.tuning.candidates import Candidate, Pool
from fairerclip.tuning.objectives import judge_scores
from small_models import tune

SEARCH = {
    "fits": [{"class_weight": "balanced"}, {"class_weight": "group"}],
    "taus": [0.0, 0.8],
    "zero_shots": [0.0, 0.5],
    "criteria": ["marginal", "conditional"],
}
"""A search of few points."""


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


def tuned(t, model=None, y=None, validation=None, search=SEARCH, **options):
    """A tuned model; with target labels and both kinds of prompts unless told otherwise."""
    arguments = {**prompts(t), **options}
    labels = t.train.y if y is None else y
    return tune(
        model or small(), t.train.X, labels, validation=validation or held(t), search=search, **arguments
    )


def labelled(seed, n, n_classes=2, n_groups=2):
    """Class and group codes, every cell with rows."""
    rng = np.random.default_rng(seed)
    cells = np.concatenate(
        [np.arange(n_classes * n_groups), rng.integers(n_classes * n_groups, size=n - n_classes * n_groups)]
    )
    return cells // n_groups, cells % n_groups


def noisy_scores(seed, y, n_classes, strength=1.0):
    """Scores (n, c) that are larger for the true class on average."""
    return np.random.default_rng(seed).normal(size=(len(y), n_classes)) + strength * np.eye(n_classes)[y]


def pool_of(scores, *, given=1, zero_shot=0):
    """A pool of candidates with scores (g, n, c); the first is the zero-shot classifier, the second the given model."""
    candidates = [Candidate({"tau": float(i)}, i, s.astype(np.float32)) for i, s in enumerate(scores)]
    n = len(candidates)
    return Pool(candidates, given, zero_shot, np.arange(scores[0].shape[1]), {}, n, n, 0.0, [])


def value_of(judge, objective, scores):
    """The objective's value for one model's scores (n, c)."""
    return float(judge_scores(judge, objective, scores[None])[0])


def worst_accuracy(y, s, predicted):
    """Least accuracy of any class × group, the obvious way."""
    return min(
        np.mean(predicted[(y == k) & (s == g)] == k)
        for k in np.unique(y)
        for g in np.unique(s)
        if np.any((y == k) & (s == g))
    )
