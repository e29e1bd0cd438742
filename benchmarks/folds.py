"""Time of a cross-validation and of a fit with automatic parameters, over a fit with fixed ones (Waterbirds).

Five folds for one γ, bandwidth and set of row weights, with the scores of all held-out rows; and the whole fit with
"auto" parameters.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from harness import Benchmark, options
from simulated_rows import FIXED

from fairerclip import FairerCLIP
from fairerclip.data.simulate import waterbirds
from fairerclip.judging.evidence import row_keys
from fairerclip.model.automatic import splits_of
from fairerclip.model.cross_validation import FoldedFits, deal_folds
from fairerclip.model.fit_data import read_inputs

FOLDS = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure."""
    parser = options(repeats=7)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the 4,795 rows")
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--features", type=int, default=1000)
    bench = Benchmark(parser, arguments)
    asked = bench.settings
    task = waterbirds(seed=0, width=asked.width, scale=asked.scale)
    X, y = task.train.X, task.train.y
    given = {"text": task.text_target, "sensitive_text": task.sensitive_attribute().text}
    fixed = FairerCLIP(n_features=asked.features, random_state=0, **FIXED)
    automatic = FairerCLIP(n_features=asked.features, random_state=0)

    def cross_validate() -> None:
        data = read_inputs(fixed.get_params(), X, y, **given).data
        keys = row_keys(data.X)
        cells = data.y * 2 + data.groups
        splits = splits_of(deal_folds(keys, cells, FOLDS), np.arange(len(keys)), data.chosen)
        fits = FoldedFits(data, splits, by_group=False)
        for number, prepared in fits.prepare(fixed.class_weight, [fixed.gamma]):
            fits.scores(number, prepared, [prepared.setting(fixed.get_params())], refine=False)

    bench.note(f"n={len(X)}, p={asked.width}, D={asked.features}")
    bench.in_turns(
        {
            "fit": lambda: fixed.fit(X, y, **given),
            "five folds": cross_validate,
            "fit, parameters auto": lambda: automatic.fit(X, y, **given),
        }
    )
    bench.ratio("five folds / fit", "five folds", "fit", at_most=1.6)
    bench.ratio("fit with parameters auto / fit", "fit, parameters auto", "fit", at_most=4.0)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
