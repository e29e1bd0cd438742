"""Estimators that are quick to fit."""

from fairerclip import FairerCLIP


def small(**parameters):
    return FairerCLIP(**{"n_features": 40, "dtype": "float64", "random_state": 0, **parameters})
