"""Rate of predicting a million rows, over the rate of the bare product XΩ."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bare import BareFeatures
from harness import Benchmark, options
from simulated_rows import FIXED, SimulatedRows

from fairerclip import FairerCLIP

TRAIN_ROWS = 20_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure."""
    parser = options(repeats=3)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--features", type=int, default=1000)
    bench = Benchmark(parser, arguments)
    asked = bench.settings
    source = SimulatedRows(asked.width)
    train = source.draw(min(TRAIN_ROWS, asked.rows))
    model = FairerCLIP(n_features=asked.features, random_state=0, **FIXED)
    model.fit(train.X, train.y, **source.prompts)
    X = source.draw(asked.rows, first=10_000).X
    bare = BareFeatures.draw(asked.width, asked.features)
    bench.note(f"n={len(X)}, p={asked.width}, D={asked.features}, float32 rows in memory")
    model.predict(X[:1000])
    bench.in_turns({"product": lambda: bare.product(X), "predict": lambda: model.predict(X)}, warm_up=False)
    bench.ratio("rate of predict / rate of XΩ", "product", "predict", at_least=0.8)
    bench.figure("rows predicted", len(X) / bench.best("predict"), "per second", better="higher")
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
