"""Kill every command that writes, at every system call that changes files, and see what is left.

``python tests/crash.py [NAME…]`` (``make crash``) runs each command in a fork, with strace attached, which kills it
(SIGKILL) as it enters such a call; then at random moments. After each kill the output must be as it was or as it should
be, whole, other files must be there, and the same command must succeed. Needs Linux and strace.
"""

from __future__ import annotations

import os
import pkgutil
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import fairerclip
from fairerclip import FairerCLIP
from fairerclip.auditing.run import AuditOptions, audit_task
from fairerclip.baselines import LinearProbe, load_baseline
from fairerclip.cli.main import main as command_line
from fairerclip.data import StoreWriter, load_task, save_task, simulate
from fairerclip.data.stores import open_store
from fairerclip.errors import FairerClipError, StoreError
from fairerclip.experiment import Experiment
from fairerclip.study import demo
from fairerclip.study.paper import task_source as source
from light import few_settings

NAMED = "rename renameat renameat2 unlink unlinkat rmdir mkdir mkdirat link linkat symlink symlinkat truncate chmod"
ON_HANDLES = "write pwrite64 writev ftruncate fsync fdatasync fchmod"
CALLS = [*NAMED.split(), *ON_HANDLES.split(), "openat"]
RANDOM = 3
"""Kills of each command at random moments."""
NOTE = "notes.txt"


@dataclass(frozen=True)
class Case:
    """What is run: its output, whether that is there before, and what reads it and says whether it is whole."""

    output: str
    action: Callable[[Path], None]
    whole: Callable[[Path], object]
    old: Callable[[Path], None] | None = None


def fork(action: Callable[[], None], started: Callable[[int], None] = lambda child: None) -> int:
    """Run an action in a fork, which waits until ``started`` returns; its exit code, negative for a signal."""
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(go)
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 1)
                os.dup2(nowhere.fileno(), 2)
            os.read(ready, 1)
            action()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        except FairerClipError:
            code = 2
        finally:
            os._exit(code)
    os.close(ready)
    try:
        started(child)
        os.write(go, b"x")
    finally:
        os.close(go)
        _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def traced(action: Callable[[], None], *options: str) -> int:
    """Run an action in a fork under strace."""
    tracers: list[subprocess.Popen[bytes]] = []

    def attach(child: int) -> None:
        tracers.append(subprocess.Popen(["strace", "-f", "-qq", *options, "-p", str(child)], stderr=-3))
        status = Path(f"/proc/{child}/status")
        while "TracerPid:\t0\n" in status.read_text():
            if tracers[0].poll() is not None:
                raise SystemExit("strace cannot trace a process here")
            time.sleep(0.002)

    code = fork(action, attach)
    tracers[0].wait()
    return code


def changes(action: Callable[[], None], folder: Path, log: Path) -> list[tuple[str, int]]:
    """System calls of an action that change files of a folder: name, and which of that name it is."""
    assert traced(action, "-y", "-o", str(log), "-e", f"trace={','.join(CALLS)}") == 0
    found, counts = [], Counter()
    for line in log.read_text(errors="replace").splitlines():
        if (match := re.match(r"(?:\d+ +)?(\w+)\((.*)", line)) is None:
            continue
        name, rest = match.groups()
        counts[name] += 1
        if str(folder) in rest and (name != "openat" or "O_CREAT" in rest or "O_TRUNC" in rest):
            found.append((name, counts[name]))
    return found


def content(folder: Path) -> dict[str, bytes]:
    """Files that can be seen; kept runs are judged by the command that is run again."""
    files = [file.relative_to(folder) for file in folder.rglob("*") if file.is_file()]
    seen = [file for file in files if not any(part.startswith(".") or part == "runs" for part in file.parts)]
    return {str(file): (folder / file).read_bytes() for file in seen}


def shape(found: dict[str, bytes]) -> dict[str, bytes]:
    """Contents without numbers and times, which differ from run to run."""
    return {
        name: text
        if name.endswith((".npz", ".npy", ".safetensors"))
        else re.sub(rb"[-+:.0-9eTZ]+", b"#", text)
        for name, text in found.items()
    }


class Trial:
    """One command, killed again and again in a folder of its own."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.before, self.folder = case, folder / "before", folder / "now"
        self.log = folder / "log"
        self.before.mkdir(parents=True)
        (self.before / NOTE).write_text("mine")
        if case.old is not None:
            case.old(self.before / case.output)
            if (self.before / case.output).is_dir():
                (self.before / case.output / NOTE).write_text("mine, too")
        self.old = content(self.before)
        self.reset()
        self.calls = changes(self.action, self.folder, self.log)
        self.new = shape(content(self.folder))
        self.counts: Counter[str] = Counter()

    def reset(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.before, self.folder)

    def action(self) -> None:
        self.case.action(self.folder / self.case.output)

    def judge(self, code: int) -> None:
        """See what a kill has left, and run the command again."""
        if code != -signal.SIGKILL:
            self.counts["done before the kill" if code == 0 else f"fault: ended with {code}"] += 1
            return
        self.counts["killed"] += 1
        found = content(self.folder)
        is_new = shape(found) == self.new
        if not is_new and found != self.old and not self._is_store():
            self.counts["fault: neither old nor new"] += 1
        if is_new:
            self.case.whole(self.folder / self.case.output)
        self.counts["new" if is_new else "old"] += 1
        again = fork(self.action)
        if again == 2 and is_new and self.case.old is None:
            return  # it is done, and was not told to overwrite
        self.counts["fault: the next run failed"] += again != 0
        self.counts["fault: the next run is not whole"] += shape(content(self.folder)) != self.new
        left = [file for file in self.folder.rglob(".*") if file.name != ".lock"]
        self.counts["fault: temporaries stay"] += bool(left)

    def _is_store(self) -> bool:
        """Whether it is a store, which grows shard by shard, and is refused until it holds every row."""
        if "store" not in self.case.output:
            return False
        try:
            check_store(self.folder / self.case.output)
        except StoreError:
            pass
        except AssertionError:
            return False
        return True

    def run(self, rng: random.Random) -> Counter[str]:
        for name, number in self.calls:
            self.reset()
            inject = f"inject={name}:signal=KILL:when={number}"
            self.judge(traced(self.action, "-o", os.devnull, "-e", f"trace={name}", "-e", inject))
        self.reset()
        started = time.monotonic()
        fork(self.action)
        usual = time.monotonic() - started
        for _ in range(RANDOM):
            self.reset()
            self.judge(fork(self.action, lambda child: self._kill_later(child, rng.uniform(0, usual))))
        return Counter({what: count for what, count in self.counts.items() if count})

    @staticmethod
    def _kill_later(child: int, seconds: float) -> None:
        """Have a process killed by another one, as we wait for it."""
        code = f"import os, time; time.sleep({seconds}); os.kill({child}, 9)"
        subprocess.Popen([sys.executable, "-S", "-c", code], stderr=subprocess.DEVNULL)


# The commands ---------------------------------------------------------------------------------------


def run(*arguments: object) -> None:
    """The command line, in this process."""
    sys.argv = ["fairerclip", *map(str, arguments)]
    command_line()


def write_store(path: Path, count: int = 9) -> None:
    rows = np.arange(4 * count, dtype=np.float32).reshape(count, 4) + 1
    with StoreWriter(path, width=4, provenance=None, shard_rows=3) as writer:
        todo = [n for n in range(count) if str(n) not in writer.done]
        if todo:
            writer.append([str(n) for n in todo], rows[todo])
        if "bad" not in writer.done:
            writer.skip("bad", "not an image")
        writer.finish()
        writer.write_text(["a", "b"], rows[:2])


def check_store(path: Path) -> None:
    assert len(open_store(path)) == 9


def cases(inputs: Path) -> dict[str, Case]:
    """Every command that writes, on a small task."""
    task = simulate("waterbirds", seed=1, scale=0.05, width=32)
    other = simulate("waterbirds", seed=2, scale=0.05, width=32)
    file, model = save_task(task, inputs / "t.npz"), inputs / "model"
    few = ("--set", "n_features=50")
    run_quietly("fit", file, "-o", model, *few, "--tau", "0.5")
    results = inputs / "results.json"
    run_quietly("audit", file, "--mitigate", "--permutations", "19", "--seeds", "1", *few, "-o", results)
    experiment = Experiment.of(task)
    fitted = FairerCLIP(n_features=50, random_state=0)
    found, chosen = audit_task(
        experiment, AuditOptions(labels="target", permutations=19, seeds=1), model=fitted, fitted=False
    )
    probe = LinearProbe().fit(task.train.X, task.train.y)
    fit = ("fit", file, *few, "--seed", "0")
    out = {
        "fit": Case("model", lambda o: run(*fit, "--tau", "0.5", "-o", o), FairerCLIP.load),
        "fit --overwrite": Case(
            "model",
            lambda o: run(*fit, "--tau", "0.5", "--overwrite", "-o", o),
            FairerCLIP.load,
            lambda o: run_quietly(*fit, "--tau", "0.1", "-o", o),
        ),
        "baseline, overwrite": Case(
            "model",
            lambda o: probe.save(o, overwrite=True),
            load_baseline,
            lambda o: LinearProbe(C=0.01).fit(task.train.X, task.train.y).save(o),
        ),
        "audit -o": Case("r.json", lambda o: run("audit", file, "--permutations", "19", "-o", o), Path.stat),
        "path -o": Case("p.csv", lambda o: run("path", file, "--taus", "0,0.5", *few, "-o", o), Path.stat),
        "apply -o": Case("a.npz", lambda o: run("apply", model, file, "-o", o), np.load),
        "task, .npz": Case("t.npz", lambda o: save_task(task, o), load_task),
        "task, .npz, overwrite": Case(
            "t.npz", lambda o: save_task(task, o, overwrite=True), load_task, lambda o: save_task(other, o)
        ),
        "task, folder": Case("t", lambda o: save_task(task, o), load_task),
        "embed (StoreWriter)": Case("store", write_store, check_store),
        "demo": Case(
            "demo",
            lambda o: demo._write(o, found, found.plane, chosen),
            lambda o: FairerCLIP.load(o / "model"),
            lambda o: demo._write(o, found, found.plane, FairerCLIP.load(model)),
        ),
        "compare -o": Case(
            "out",
            lambda o: run("compare", file, "--methods", "zero-shot,orth-proj", "-o", o),
            Path.stat,
            lambda o: run_quietly("compare", file, "--methods", "zero-shot", "-o", o),
        ),
        "reproduce -o": Case(
            "out",
            lambda o: run("reproduce", "heatmaps", "--quick", "--jobs", "1", "--overwrite", "-o", o),
            Path.stat,
            lambda o: run_quietly("reproduce", "implementation", "-o", o),
        ),
    }
    for kind in ("html", "md", "json", "card", "csv"):
        given = ("report", results, "--format", kind, "--overwrite", "-o")
        name = "tables" if kind == "csv" else f"r.{'md' if kind == 'card' else kind}"
        before = ("report", results, "--format", kind, "-o")
        out[f"report --overwrite, {kind}"] = Case(
            name,
            lambda o, given=given: run(*given, o),
            Path.stat,
            lambda o, before=before: (run_quietly(*before, o), spoil(o)),
        )
    return out


def run_quietly(*arguments: object) -> None:
    assert fork(lambda: run(*arguments)) == 0, arguments


def spoil(path: Path) -> None:
    """Make what is there differ from what will be."""
    for file in path.iterdir() if path.is_dir() else [path]:
        file.write_bytes(file.read_bytes() + b"<!-- old -->")


def main() -> int:
    """Kill commands; the exit code is 1 where one left what it should not."""
    if shutil.which("strace") is None or not sys.platform.startswith("linux"):
        print("crash: needs Linux and strace (install the package strace)")  # noqa: T201
        return 1
    patch = pytest.MonkeyPatch()
    patch.setattr(source, "SCALES", dict.fromkeys(source.SCALES, 0.03))
    patch.setattr(source, "WIDTH", 48)
    few_settings(patch)  # and no workers, which write no files
    for module in pkgutil.walk_packages(fairerclip.__path__, "fairerclip."):
        with suppress(ImportError):
            import_module(module.name)  # once for all forks
    rng, faults = random.Random(0), 0
    with tempfile.TemporaryDirectory() as folder:
        known = cases(Path(folder))
        for number, name in enumerate(sys.argv[1:] or known):
            started = time.monotonic()
            counts = Trial(known[name], Path(folder) / str(number)).run(rng)
            faults += sum(count for what, count in counts.items() if what.startswith("fault"))
            print(f"{name}: {dict(counts)}; {time.monotonic() - started:.0f} s", flush=True)  # noqa: T201
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
