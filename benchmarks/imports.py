"""Time of ``import fairerclip`` and of ``fairerclip --help``, over ``import numpy``, each in a process of its own.

Processes find compiled modules, as after the first use of an installed package.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from harness import ROOT, Benchmark, options

HELP = "import sys; sys.argv = ['fairerclip', {}'--help']; from fairerclip.cli.main import main; main()"
COMMANDS = {
    "bare Python": "pass",
    "import numpy": "import numpy",
    "import fairerclip": "import fairerclip",
    "fairerclip --help": HELP.format(""),
    "fairerclip fit --help": HELP.format("'fit', "),
}
SLOW = {
    "from fairerclip import FairerCLIP": "from fairerclip import FairerCLIP",
    "import sklearn.base": "import sklearn.base",
}
"""For information; timed a few times only."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure."""
    bench = Benchmark(options(repeats=15), arguments)
    with tempfile.TemporaryDirectory() as compiled:
        paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled, "PYTHONPATH": os.pathsep.join(paths)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)

        def run(code: str) -> None:
            words = [sys.executable, "-c", code]
            subprocess.run(words, env=environment, check=True, stdout=subprocess.DEVNULL)

        bench.in_turns({name: lambda code=code: run(code) for name, code in COMMANDS.items()})
        bench.in_turns({name: lambda code=code: run(code) for name, code in SLOW.items()}, most=3)
    for name in ("import fairerclip", "fairerclip --help"):
        bench.ratio(f"{name} / import numpy", name, "import numpy", at_most=2.0)
    bench.ratio("fairerclip fit --help / import numpy", "fairerclip fit --help", "import numpy")
    # An estimator is a class below one of scikit-learn, whose import is nearly all of this.
    estimator = "from fairerclip import FairerCLIP"
    bench.ratio(f"{estimator} / import sklearn.base", estimator, "import sklearn.base")
    bench.figure("import numpy", bench.best("import numpy"), "s")
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
