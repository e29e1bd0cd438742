"""Which tests are slow: those that slow.txt lists, by folder or by function.

``python tests/slow.py OUTPUT`` writes the functions anew from what ``pytest --durations=0 --durations-min=0.05 -n 2``
printed, of which the limit is for a machine that does nothing else; the folders are kept.
"""

import re
import sys
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parent
LIST = TESTS / "slow.txt"
SECONDS = 0.5


def listed():
    """Folders and functions of the list."""
    lines = [line for line in LIST.read_text().splitlines() if not line.startswith("#")]
    return tuple(line for line in lines if line.endswith("/")), {line for line in lines if "::" in line}


def slow_functions(output, seconds=SECONDS):
    """Functions with a case that took longer, setting up and ending included."""
    took = Counter()
    for time, name in re.findall(r"^([\d.]+)s (?:call|setup|teardown) +tests/(.+)$", output, re.MULTILINE):
        took[name] += float(time)
    return sorted({name.partition("[")[0] for name, time in took.items() if time > seconds})


if __name__ == "__main__":
    folders, _ = listed()
    head = [line for line in LIST.read_text().splitlines() if line.startswith("#")]
    found = [name for name in slow_functions(Path(sys.argv[1]).read_text()) if not name.startswith(folders)]
    LIST.write_text("\n".join([*head, *folders, *found]) + "\n")
