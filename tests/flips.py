"""Byte flips over the whole folder of a saved model: each is refused, or changes no answer.

``python tests/flips.py [--count 2000] [--json]`` (``make flips``) flips a random byte of a random file, weighted by
size, of one saved model of every kind, the card among the files. Exit code 1 if a flip was taken that changes an
answer, or ended in another error than `ModelFileError`.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

GOLDEN = Path(__file__).parent / "golden"
sys.path.append(str(GOLDEN))
KINDS = {
    "FairerCLIP": "model-7/defaults",
    "FairerCLIP, float16": "model-7/float16",
    "EmbeddingMitigator": "mitigator-7/prompts",
    **{
        f"baseline {name}": f"baseline-7/{name}" for name in ("adapter", "contrastiveadapter", "dfr", "leace")
    },
    **{f"baseline {name}": f"baseline-7/{name}" for name in ("linearprobe", "orthcali", "orthproj", "wise")},
    **{f"baseline {name}": f"baseline-7/{name}" for name in ("afr", "jtt", "ppa")},
    **{
        f"baseline {name}": f"baseline-7/{name}"
        for name in ("perceptionclip", "prism", "roboshot", "rotation", "tie")
    },
    "baseline zeroshot": "baseline-7/zeroshot",
    **{f"baseline {name}": f"baseline-7/{name}" for name in ("bendvlm", "clipclip", "dear", "sfid", "spd")},
    **{f"baseline {name}": f"baseline-7/{name}" for name in ("neutralrepresentation", "promptdebiasing")},
}
FILES = ("model.safetensors", "fairerclip.json", "README.md")


def flips(home: str, count: int, seed: int = 0) -> Counter[str]:
    """How flips of a recorded model ended: refused or harmless by file, and faults."""
    from record import answers

    from fairerclip import load
    from fairerclip.errors import ModelFileError

    rng, ends = random.Random(seed), Counter()
    questions = load_file(GOLDEN / home / ".." / "questions.safetensors")

    def answered(folder: Path) -> dict[str, Any]:
        return answers(load(folder), **questions)

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        shutil.copytree(GOLDEN / home, folder)
        whole = {name: (folder / name).read_bytes() for name in FILES}
        expected = answered(folder)
        for _ in range(count):
            (name,) = rng.choices(FILES, [len(whole[name]) for name in FILES])
            damaged = bytearray(whole[name])
            damaged[rng.randrange(len(damaged))] ^= rng.randrange(1, 256)
            (folder / name).write_bytes(damaged)
            ends[f"{name}: {_end(folder, answered, expected, ModelFileError)}"] += 1
            (folder / name).write_bytes(whole[name])
    return ends


def _end(folder: Path, answered: Any, expected: dict[str, Any], refusal: type[Exception]) -> str:
    try:
        found = answered(folder)
    except refusal:
        return "refused"
    except Exception as error:  # noqa: BLE001 - counted as a fault
        return f"fault, {type(error).__name__}"
    same = set(found) == set(expected) and all(np.array_equal(found[key], expected[key]) for key in expected)
    return "the same answers" if same else "fault, other answers"


def main() -> int:
    """Flip bytes of every kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="Flips of each kind.")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    out: dict[str, dict[str, int]] = {}
    for kind, home in KINDS.items():
        started = time.monotonic()
        out[kind] = dict(sorted(flips(home, chosen.count).items()))
        if not chosen.json:
            print(f"{kind}: {out[kind]}; {time.monotonic() - started:.0f} s", flush=True)  # noqa: T201
    if chosen.json:
        print(json.dumps(out, indent=1))  # noqa: T201
    return int(any("fault" in end for ends in out.values() for end in ends))


if __name__ == "__main__":
    sys.exit(main())
