"""Stop the real command line at chosen or random moments and see how it ends.

``python tests/interrupts.py [TIMES]`` (``make interrupts``) stops some commands so often, at random moments, and prints
how they ended. Needs /proc.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
SCRIPT = Path(sys.executable).with_name("fairerclip")
PATIENCE = 120.0
"""Seconds for a command to come to a moment; a busy machine takes long to import."""
PROMPT = 2.0
"""Seconds in which workers are to be gone."""
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@dataclass(frozen=True)
class End:
    """How a command ended: exit code, what it said, seconds until its workers and all its processes were gone.

    None is not at all.
    """

    code: int
    out: str
    err: str
    workers: float | None = None
    all: float | None = None

    def faults(self, code: int) -> list[str]:
        """What is not as it should be after a signal that leads to an exit code."""
        lines = self.err.splitlines()
        checks = {
            f"exit code {self.code}": self.code != code,
            "traceback": "Traceback" in self.err,
            f"{len(lines)} lines: {self.err[:2000]}": len(lines) != 1,
            "processes stay": self.all is None or self.workers is None,
        }
        return [name for name, wrong in checks.items() if wrong]


class Command:
    """A command in a session of its own, so that its processes are known even when their parent is gone."""

    def __init__(self, *arguments: object, program: str | Path = SCRIPT) -> None:
        self.process = subprocess.Popen(
            [program, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # Of a parent that ignores Ctrl-C, as a shell's background job does, it would inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
        )

    def processes(self) -> dict[int, str]:
        """Process ids of the command and all that it started, with their command lines; no zombies."""
        found = {}
        for folder in PROC.iterdir():
            if not folder.name.isdigit():
                continue
            try:
                state, _, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(session) == self.process.pid and state != "Z":
                    found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue  # gone in the meantime
        return found

    def workers(self) -> int:
        """How many processes work for it."""
        return sum("spawn_main" in line for line in self.processes().values())

    def heeds(self) -> bool:
        """Whether its own code runs and handles SIGTERM; Python alone does not."""
        status = (PROC / str(self.process.pid) / "status").read_text().splitlines()
        caught = next((int(line.split()[1], 16) for line in status if line.startswith("SigCgt")), 0)
        return bool(caught & 1 << (signal.SIGTERM - 1))

    def until(self, moment) -> None:
        """Wait for a moment of the running command."""
        deadline = time.monotonic() + PATIENCE
        while not moment():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the moment did not come: {self.process.communicate()}")
            time.sleep(0.01)

    def stop(self, number: int = signal.SIGINT, *, group: bool = False) -> End:
        """Send a signal, to the process alone or to all of them, and wait for the end."""
        sent = time.monotonic()
        (os.killpg if group else os.kill)(self.process.pid, number)
        gone: dict[str, float] = {}
        while len(gone) < 2 and time.monotonic() < sent + 20:
            self.process.poll()  # takes the zombie away
            left = self.processes()
            kinds = {"workers": any("spawn_main" in line for line in left.values()), "all": bool(left)}
            gone |= {kind: time.monotonic() - sent for kind in kinds if not kinds[kind] and kind not in gone}
            time.sleep(0.01)
        self.kill()
        out, err = self.process.communicate()
        return End(self.process.returncode, out, err, gone.get("workers"), gone.get("all"))

    def finish(self) -> End:
        """Wait for it to be done."""
        out, err = self.process.communicate(timeout=PATIENCE)
        return End(self.process.returncode, out, err)

    def kill(self) -> None:
        """Leave nothing of it behind."""
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def times_of(folder: Path) -> dict[Path, int]:
    """When each file of finished runs was written; every one must be whole."""
    files = [*folder.rglob("*.json")]
    for file in files:
        json.loads(file.read_text())
    return {file: file.stat().st_mtime_ns for file in files}


def half_written(folder: Path) -> list[Path]:
    """Files that were begun and not finished."""
    return [*folder.rglob("*.tmp")]


COMMANDS = {
    "compare": "simulated:waterbirds --methods zero-shot,orth-proj,leace,wise --jobs 2 -o {}",
    "reproduce": "ablation-no-labels heatmaps --quick --jobs 2 --overwrite -o {}",
    "fit": "simulated:waterbirds -o {}/model --overwrite",
    "audit": "simulated:waterbirds --json -o {}/results.json --overwrite",
}


def at_random(name: str, output: Path, times: int, rng: random.Random) -> Counter[str]:
    """Stop a command so often, each time in the same folder until it is done there; count how it ended."""
    counts: Counter[str] = Counter()
    slowest = dict.fromkeys(("workers", "all"), 0.0)
    usual: float | None = None  # the first is let run, to know how long it takes
    while counts["stopped"] < times:
        folder = output / str(counts["done before the signal"])
        before = times_of(folder / "runs")
        command = Command(name, *COMMANDS[name].format(folder).split())
        command.until(command.heeds)
        started = time.monotonic()
        moment = started + (PATIENCE if usual is None else rng.uniform(0, usual))
        while time.monotonic() < moment and command.process.poll() is None:
            time.sleep(0.01)
        if command.process.poll() is not None:
            end = command.finish()
            counts["done before the signal"] += 1
            counts[f"failed: {end.err}"] += end.code != 0
        else:
            number = rng.choice([signal.SIGINT, signal.SIGINT, signal.SIGTERM])
            end = command.stop(number, group=rng.random() < 0.5)
            counts["stopped"] += 1
            counts.update(end.faults(CODES[number]))
            counts[f"workers stay longer than {PROMPT:g} s"] += (end.workers or 0.0) > PROMPT
            slowest = {kind: max(slowest[kind], getattr(end, kind) or 0.0) for kind in slowest}
        usual = usual or time.monotonic() - started
        after = times_of(folder / "runs")
        counts["runs taken over"] += len(before)
        counts["runs repeated"] += sum(after.get(file) != written for file, written in before.items())
        counts["files half-written"] += len(half_written(folder))
    counts = Counter({what: count for what, count in counts.items() if count})
    times_told = ", ".join(f"{kind} {seconds:.2f} s" for kind, seconds in slowest.items())
    print(f"{name}: {dict(counts)}; slowest to be gone: {times_told}", flush=True)  # noqa: T201
    return counts


def main() -> int:
    """Stop commands at random moments; the exit code is 1 where one did not end as it should."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    names = sys.argv[2:] or COMMANDS
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        found = [at_random(name, Path(folder) / name, times, rng) for name in names]
    return int(any({*counts} - {"stopped", "done before the signal", "runs taken over"} for counts in found))


if __name__ == "__main__":
    sys.exit(main())
