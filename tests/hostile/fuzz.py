"""Damage good files at random and see that readers refuse them in order.

``python tests/hostile/fuzz.py run --cases N`` (``make fuzz``) gives every reader N damaged files each, in this process:
bytes flipped, cut, doubled and spliced, and where a file is text also its numbers, names and nesting. It prints what
escaped, what took long, and the peak memory, and exits with 1 if anything did.

``python tests/hostile/fuzz.py guided [READER…] --cases N`` (``make fuzz-guided``) lets atheris choose the bytes by the
branches that they reach; what reaches new ones is kept in tests/hostile/corpus and is the start of every run. Needs
Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).parent / "corpus"
SECONDS, MEGABYTES = 1.0, 200
"""What refusing a file may take, and how much memory beyond that of the imported package."""
HANG = 20
KEPT_BYTES = 8192
"""Of a file in the corpus."""
INSTRUMENTED = (
    "data",
    "auditing",
    "model",
    "baselines.file",
    "_util.files",
    "encoders",
    "study.jobs",
    "export",
)
HEADROOM = 1 << 30
NUMBERS = (
    "0",
    "-1",
    "1e999",
    "1e-999",
    "NaN",
    "9" * 5000,
    "2147483648",
    "18446744073709551616",
    "0.5",
    "1_0",
)
TEXTS = (
    "",
    "\0",
    "\ud800",
    "\u202e",
    "a" * 300,
    "../../etc/passwd",
    "/dev/zero",
    "[/b]",
    "{}",
    "=1",
    "\r\n",
    "é" * 9,
)
JSON_VALUES = (
    None,
    True,
    -1,
    0,
    2**63,
    10**400,
    1.5,
    1e308,
    "",
    "x",
    [],
    {},
    [[]],
    [None],
    {"a": {}},
    "9" * 400,
)


def damaged(good: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """One damaged version of a file."""
    raw = _changed_json(good, rng) if rng.random() < 0.35 else None
    if raw is None:
        raw = _changed_text(good, rng) if rng.random() < 0.3 else None
    raw = bytearray(good if raw is None else raw)
    for _ in range(rng.choice((0, 1, 1, 2, 4)) if raw != good else rng.choice((1, 1, 2, 4, 8))):
        _changed_bytes(raw, rng, others)
    return bytes(raw)


def _changed_bytes(raw: bytearray, rng: random.Random, others: list[bytes]) -> None:
    at = rng.randrange(len(raw) + 1)
    length = min(rng.choice((1, 1, 2, 4, 8, 64, 1024)), len(raw) - at)
    kind = rng.randrange(8)
    if kind == 0 and at < len(raw):
        raw[at] ^= 1 << rng.randrange(8)
    elif kind == 1 and at < len(raw):
        raw[at] = rng.choice((0, 1, 9, 10, 32, 44, 127, 128, 254, 255))
    elif kind == 2:
        del raw[at:]
    elif kind == 3:
        del raw[at : at + length]
    elif kind == 4:
        raw[at:at] = raw[at : at + length] * rng.choice((1, 2, 100))
    elif kind == 5:
        raw[at : at + 8] = rng.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)).to_bytes(
            8, "little"
        )
    elif kind == 6:
        raw[at:at] = rng.choice(NUMBERS + TEXTS).encode("utf-8", "surrogatepass")
    else:
        other = rng.choice(others)
        cut = rng.randrange(len(other) + 1)
        raw[at:] = other[cut : cut + 4096]
    del raw[1 << 20 :]


def _changed_text(good: bytes, rng: random.Random) -> bytes | None:
    """A number or a word of a text file replaced, or a line doubled, dropped or moved."""
    try:
        lines = good.decode().split("\n")
    except UnicodeDecodeError:
        return None
    at = rng.randrange(len(lines))
    kind = rng.randrange(4)
    if kind == 0:
        lines.insert(rng.randrange(len(lines)), lines[at])
    elif kind == 1:
        del lines[at]
    else:
        mark = rng.choice((",", " ", '"', "=", ".", "\t"))
        words = lines[at].split(mark)
        words[rng.randrange(len(words))] = rng.choice(NUMBERS + TEXTS)
        lines[at] = mark.join(words)
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _changed_json(good: bytes, rng: random.Random) -> bytes | None:
    """A value of a JSON document replaced, a key renamed, doubled or dropped; also of the header of safetensors."""
    header = good[8 : 8 + int.from_bytes(good[:8], "little")] if len(good) > 8 else b""
    for prefix, raw, rest in ((None, good, b""), (8, header, good[8 + len(header) :])):
        try:
            document = json.loads(raw)
        except (ValueError, RecursionError):
            continue
        places = list(_places(document))
        if not places:
            continue
        for _ in range(rng.choice((1, 1, 2))):
            holder, key = rng.choice(places)
            kind = rng.randrange(4)
            if kind == 0 and isinstance(holder, dict):
                holder.pop(key, None)
            elif kind == 1 and isinstance(holder, dict):
                holder[rng.choice(TEXTS)] = rng.choice(JSON_VALUES)
            else:
                deep: Any = []
                for _ in range(rng.choice((0, 0, 0, 900, 5000))):
                    deep = [deep]
                value = rng.choice((*JSON_VALUES, deep))
                if isinstance(holder, dict) or key < len(holder):
                    holder[key] = value
        try:
            text = json.dumps(document, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
        except RecursionError:
            return b"[" * 100_000
        return text if prefix is None else len(text).to_bytes(8, "little") + text + rest
    return None


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield value, key
            yield from _places(inner)


@dataclass
class Found:
    """What came of the cases of one reader."""

    cases: int = 0
    refused: int = 0
    escapes: Counter[str] = field(default_factory=Counter)
    slow: list[float] = field(default_factory=list)
    hangs: int = 0
    megabytes: float = 0.0


class _Hang(BaseException):
    pass


def _alarm(number: int, frame: Any) -> None:
    raise _Hang


def try_case(reader: Any, folder: Path, content: bytes, found: Found) -> None:
    """Let a reader read a content, and count what comes."""
    from fairerclip.errors import FairerClipError

    (folder / reader.file).write_bytes(content)
    found.cases += 1
    began = time.perf_counter()
    signal.setitimer(signal.ITIMER_REAL, HANG)
    try:
        reader.read(folder)
    except FairerClipError as error:
        found.refused += 1
        if len(str(error)) > 20_000:
            found.escapes["a message of more than 20,000 characters"] += 1
    except _Hang:
        found.hangs += 1
    except Exception as error:  # noqa: BLE001 - what escapes is what is looked for
        frame = traceback.extract_tb(error.__traceback__)[-1]
        found.escapes[
            f"{type(error).__name__} in {Path(frame.filename).name}:{frame.lineno}: {error!s:.100}"
        ] += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    seconds = time.perf_counter() - began
    if seconds > SECONDS:
        found.slow.append(seconds)


def run(names: list[str], cases: int, seed: int) -> dict[str, Found]:
    """What came of damaged files of each reader, each in a process of its own: some libraries end it when they fail."""
    from readers import READERS

    results = {}
    for name in names:
        with tempfile.TemporaryDirectory() as place:
            note = Path(place) / "case"
            ours, theirs = os.pipe()
            child = os.fork()
            if not child:
                os.close(ours)
                os.write(
                    theirs,
                    json.dumps(vars(_run_one(name, READERS[name], cases, seed, Path(place), note))).encode(),
                )
                os._exit(0)
            os.close(theirs)
            with os.fdopen(ours, "rb") as handle:
                told = handle.read()
            os.waitpid(child, 0)
            if told:
                values = json.loads(told)
                results[name] = Found(**values | {"escapes": Counter(values["escapes"])})
            else:
                last = int(note.read_text())
                results[name] = Found(last + 1, escapes=Counter({f"the process ended at case {last}": 1}))
    return results


def _run_one(name: str, reader: Any, cases: int, seed: int, place: Path, note: Path) -> Found:
    signal.signal(signal.SIGALRM, _alarm)
    warnings.simplefilter("ignore")
    found = Found()
    made = place / "made"
    made.mkdir()
    reader.make(made)
    reader.read(made)  # what is imported where it is used
    good = (made / reader.file).read_bytes()
    start = [good, *kept(name)]
    before = resident()
    resource.setrlimit(resource.RLIMIT_AS, (address_space() + HEADROOM, resource.RLIM_INFINITY))
    for number in range(cases):
        rng = random.Random(f"{seed} {name} {number}")
        if reader.changes and number % 50 == 0:  # a reader that mends or writes is given a new folder
            shutil.rmtree(made)
            made.mkdir()
            reader.make(made)
        content = start[number] if number < len(start) else damaged(rng.choice(start), rng, start)
        note.write_text(str(number))
        try_case(reader, made, content, found)
    found.megabytes = max(0.0, peak() - before)
    return found


def _status(key: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1])


def resident() -> float:
    """Megabytes that this process holds now."""
    return _status("VmRSS") / 1024


def peak() -> float:
    """Megabytes that this process held at most."""
    return _status("VmHWM") / 1024


def address_space() -> int:
    """Bytes of address space that this process has."""
    return _status("VmSize") * 1024


def guided(name: str, cases: int, seed: int, place: Path) -> None:
    """Let atheris look for bytes that reach new branches, and keep those; it ends the process."""
    import atheris

    with atheris.instrument_imports(include=[f"fairerclip.{part}" for part in INSTRUMENTED]):
        from readers import READERS

        from fairerclip.errors import FairerClipError

    reader = READERS[name]
    folder = Path(tempfile.mkdtemp())
    reader.make(folder)
    reader.read(folder)
    good = (folder / reader.file).read_bytes()
    place.joinpath("good").write_bytes(good)
    warnings.simplefilter("ignore")

    def one(content: bytes) -> None:
        (folder / reader.file).write_bytes(content)
        with suppress(FairerClipError):
            reader.read(folder)

    options = [
        f"-runs={cases}",
        f"-seed={seed}",
        f"-max_len={max(4096, 2 * len(good))}",
        "-rss_limit_mb=1500",
    ]
    atheris.Setup([sys.argv[0], str(place), *options, "-timeout=20"], one)
    atheris.Fuzz()


def kept(name: str) -> list[bytes]:
    """Contents that once reached new branches of a reader."""
    file = CORPUS / f"{name}.zip"
    if not file.is_file():
        return []
    with zipfile.ZipFile(file) as archive:
        return [archive.read(member) for member in archive.namelist()]


def keep(name: str, contents: set[bytes]) -> None:
    """Keep the small ones of these contents for later runs."""
    CORPUS.mkdir(exist_ok=True)
    with zipfile.ZipFile(CORPUS / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for number, content in enumerate(sorted(c for c in contents if len(c) <= KEPT_BYTES)):
            archive.writestr(zipfile.ZipInfo(f"{number:04d}"), content, zipfile.ZIP_DEFLATED)


def guided_all(names: list[str], cases: int, seed: int) -> int:
    """A process for each reader; how many found something that escapes, hangs or fills the memory."""
    failed = []
    for name in names:
        with tempfile.TemporaryDirectory() as place:
            for number, content in enumerate(kept(name)):
                (Path(place) / str(number)).write_bytes(content)
            again = [sys.executable, __file__, "guided", name, "--cases", str(cases), "--seed", str(seed)]
            done = subprocess.run([*again, "--here", place], capture_output=True, text=True, check=False)
            keep(name, {file.read_bytes() for file in Path(place).iterdir()})
        reached = [line for line in done.stderr.splitlines() if " cov: " in line]
        print(
            f"{name}: {'FAILED' if done.returncode else 'nothing escaped'}; {(reached or [''])[-1]}",
            flush=True,
        )
        if done.returncode:
            failed.append(name)
            print("\n".join(done.stderr.splitlines()[-30:]), flush=True)
    print(f"{len(names)} readers, {cases} runs each: {len(failed)} failed")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "guided"))
    parser.add_argument("reader", nargs="*")
    parser.add_argument("--cases", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--here", type=Path, help="guide one reader in this process, with the contents of a folder"
    )
    options = parser.parse_args()
    if options.here:
        guided(options.reader[0], options.cases, options.seed, options.here)
    from readers import READERS

    if options.what == "guided":
        return guided_all(options.reader or list(READERS), options.cases, options.seed)

    began = time.perf_counter()
    results = run(options.reader or list(READERS), options.cases, options.seed)
    for name, found in results.items():
        print(
            f"{name}: {found.cases} cases, {found.refused} refused, {found.escapes.total()} escaped, "
            f"{found.hangs} hung, {found.megabytes:.0f} MB, slowest {max(found.slow, default=0):.1f} s"
        )
        for text, count in found.escapes.most_common(8):
            print(f"    {count} × {text}")
    total = sum(found.cases for found in results.values())
    escaped = sum(found.escapes.total() for found in results.values())
    hung = sum(found.hangs for found in results.values())
    taken = max(found.megabytes for found in results.values())
    print(
        f"{total} cases over {len(results)} readers in {time.perf_counter() - began:.0f} s: "
        f"{escaped} escaped, {hung} hung, at most {taken:.0f} MB beyond the start"
    )
    return 1 if escaped or hung or taken > MEGABYTES else 0


if __name__ == "__main__":
    sys.exit(main())
