"""Estimators that are quick to fit."""

from fairerclip import FairerCLIP, FairerCLIPSearch

FIXED = {
    "tau": 0.8,
    "zero_shot": None,
    "gamma": 1e-3,
    "criterion": "marginal",
    "guess_weight": 1.0,
    "class_offsets": None,
}
"""Values of all parameters that may be "auto": with them a fit is the closed form alone and chooses nothing."""
AUTO = dict.fromkeys(FIXED, "auto")
"""The defaults of these parameters."""


def small(**parameters):
    return FairerCLIP(**{**FIXED, "n_features": 40, "dtype": "float64", "random_state": 0, **parameters})


def tune(
    model,
    X,
    y=None,
    *,
    validation=None,
    objective="worst_group",
    accuracy_floor=None,
    search=None,
    max_seconds=None,
    **fit_arguments,
):
    """Return the model that a search finds, starting from a model's parameters."""
    found = FairerCLIPSearch(
        model,
        objective=objective,
        accuracy_floor=accuracy_floor,
        search_space=search,
        max_seconds=max_seconds,
    )
    return found.fit(X, y, validation=validation, **fit_arguments).best_estimator_
