"""Which tests are slow: those that slow.txt lists, by folder or by function; and the long ones of proofs.txt.

``python tests/slow.py OUTPUT [SECONDS]`` adds the functions whose cases together took longer, from what
``pytest --durations=0 --durations-min=0.05`` printed. Seconds are those of that run: give more on a busy machine.
"""

import re
import sys
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parent
LIST = TESTS / "slow.txt"
PROOFS = TESTS / "proofs.txt"


def listed(file=LIST):
    """Folders and functions of a list."""
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    return tuple(line for line in lines if line.endswith("/")), {line for line in lines if "::" in line}


def slow_functions(output, seconds):
    """Functions whose cases together took longer, setting up and ending included."""
    took = Counter()
    for time, name in re.findall(r"^([\d.]+)s (?:call|setup|teardown) +tests/(.+)$", output, re.MULTILINE):
        took[name.partition("[")[0]] += float(time)
    return {name for name, time in took.items() if time > seconds}


if __name__ == "__main__":
    folders, functions = listed()
    head = [line for line in LIST.read_text().splitlines() if line.startswith("#")]
    limit = float(sys.argv[2]) if len(sys.argv) > 2 else 0.5
    functions |= slow_functions(Path(sys.argv[1]).read_text(), limit)
    found = sorted(name for name in functions if not name.startswith(folders))
    LIST.write_text("\n".join([*head, *folders, *found]) + "\n")
