"""Time of a cross-validation and of a fit with automatic parameters, as ratios to a fit timed in the same run.

At n=4795, p=768, D=1000 (Waterbirds, simulated): five folds for one γ, bandwidth and set of row weights, with the
scores of all held-out rows, over the fit; the whole fit with "auto" parameters over the fit. Prints JSON, and exits
with 1 if a target is missed.
"""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np
from closed_form import best_of

from fairerclip import FairerCLIP
from fairerclip.data.simulate import waterbirds
from fairerclip.judging.evidence import row_keys
from fairerclip.model.automatic import LABELLED, splits_of
from fairerclip.model.cross_validation import FoldedFits, deal_folds
from fairerclip.model.fit_data import read_inputs

P, REPEATS, FOLDS = 768, 7, 5
TARGETS = {"five_folds_over_fit": 1.6, "auto_over_fit": 4.0}


def main() -> int:
    """Measure, print and compare with the targets."""
    task = waterbirds(seed=0, width=P)
    X, y = task.train.X, task.train.y
    given = {"text": task.text_target, "sensitive_text": task.sensitive_attribute().text}
    fixed = FairerCLIP(random_state=0, **LABELLED)

    def cross_validate() -> None:
        data = read_inputs(fixed.get_params(), X, y, **given).data
        keys = row_keys(data.X)
        cells = data.y * 2 + data.groups
        splits = splits_of(deal_folds(keys, cells, FOLDS), np.arange(len(keys)), data.chosen)
        fits = FoldedFits(data, splits, by_group=False)
        for number, prepared in fits.prepare(fixed.class_weight, [fixed.gamma]):
            fits.scores(number, prepared, [prepared.setting(fixed.get_params())], refine=False)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = best_of(REPEATS, lambda: fixed.fit(X, y, **given))
        folds = best_of(REPEATS, cross_validate)
        auto = best_of(REPEATS, lambda: FairerCLIP(random_state=0).fit(X, y, **given))
    found = {"five_folds_over_fit": folds / fit, "auto_over_fit": auto / fit}
    missed = [name for name, most in TARGETS.items() if found[name] > most]
    print(
        json.dumps(
            {"n": len(X), "p": P, "D": fixed.n_features, "fit_seconds": fit, **found, "missed": missed}
        )
    )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
