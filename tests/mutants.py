"""Change one thing in the source at a time and see whether a test notices.

``python tests/mutants.py [ROOM ...]`` (``make mutants``) draws mutants of each room, runs the tests that call the
changed function, and prints the share that was caught and every mutant that was not. Sources stay as they are: each
mutant lives in a forked process whose import of one module is replaced. Needs Linux.

Mutants that no test can catch are listed with the reason in ``mutants_equivalent.json`` and are not drawn.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
EQUIVALENT = Path(__file__).with_name("mutants_equivalent.json")
ROOMS = {
    "solver": (),
    "features": (),
    "metrics": (),
    "inputs": ("tests/model/test_degenerate.py", "tests/model/test_zero_shot_share.py"),
    "embedding": (),
    "tuning": ("tests/model/test_offsets.py",),
}
"""Each room with the tests of it that are not in its own folder of tests."""
WARM = (
    "pytest",
    "hypothesis",
    "scipy.stats",
    "scipy.optimize",
    "sklearn.linear_model",
    "typer",
    "fairlearn.metrics",
)
"""Imported once, before processes are forked: most of the time of a short test run is spent on them."""
SHORT = 0.5
"""Seconds of a test that is run before longer ones."""
BROKEN = 70
"""Exit code of a process in which not a test, but this script failed."""
MEMORY = 12 << 30
"""Bytes of address space for a mutant: one that asks for far too much is to fail, not to fill the machine."""

SWAPPED_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
SWAPPED_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
PAIRS = (
    "min max",
    "any all",
    "minimum maximum",
    "argmin argmax",
    "floor ceil",
    "zeros ones",
    "nanmin nanmax",
)
SWAPPED_NAMES = {a: b for pair in PAIRS for a, b in (pair.split(), pair.split()[::-1])}
SYMMETRIC = {"isinstance", "dot", *SWAPPED_NAMES}
UNSEEN_KEYWORDS = {"strict", "check_finite", "copy", "repr"}
"""Arguments that change nothing as long as the caller is right."""
Place = tuple[ast.AST, str, int | None]
"""Parent of a node, its field, and the place in the field where that is a list."""


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    file: str
    function: str
    """Outermost function that holds it; empty for the module itself and for class bodies."""
    change: str
    line: int
    node: int
    """Which of the nodes of the module, in the order of `nodes`, is replaced."""
    variant: int

    @property
    def key(self) -> str:
        return f"{self.file} · {self.function or 'module'} · {self.change}"

    @property
    def module(self) -> str:
        return ".".join(Path(self.file).with_suffix("").parts)

    def tree(self) -> ast.Module:
        """The module with the change in it."""
        tree = ast.parse((SOURCE / self.file).read_text())
        node, place, _ = list(nodes(tree))[self.node]
        put(place, replacements(node, place)[self.variant])
        return ast.fix_missing_locations(tree)


def nodes(tree: ast.Module) -> Iterator[tuple[ast.AST, Place, tuple[ast.AST, ...]]]:
    """Every node that may be changed, with its place and its ancestors; no annotations and no decorators."""

    def below(
        node: ast.AST, ancestors: tuple[ast.AST, ...]
    ) -> Iterator[tuple[ast.AST, Place, tuple[ast.AST, ...]]]:
        for field, value in ast.iter_fields(node):
            if field in {"annotation", "returns", "decorator_list", "format_spec", "ops", "op"}:
                continue
            for place, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if not isinstance(child, ast.AST) or unseen(child):
                    continue
                yield child, (node, field, place), (*ancestors, node)
                yield from below(child, (*ancestors, node))

    yield from below(tree, ())


def unseen(node: ast.AST) -> bool:
    """Whether what is below a node says nothing of results."""
    if isinstance(node, ast.keyword):
        return node.arg in UNSEEN_KEYWORDS
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith("__")


def put(place: Place, node: ast.AST) -> None:
    parent, field, index = place
    if index is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[index] = node


def replacements(node: ast.AST, place: Place) -> list[ast.AST]:
    """Build the nodes that may stand in the place of a node."""
    parent, field, _ = place
    found: list[ast.AST] = []
    match node:
        case ast.Compare(left, ops, comparators):
            for at, operator in enumerate(ops):
                for other in SWAPPED_COMPARISONS[type(operator)]:
                    found.append(ast.Compare(left, [*ops[:at], other(), *ops[at + 1 :]], comparators))
        case ast.BinOp(left, operator, right) if type(operator) in SWAPPED_OPERATORS:
            found.append(ast.BinOp(left, SWAPPED_OPERATORS[type(operator)](), right))
        case ast.AugAssign(target, operator, value) if type(operator) in SWAPPED_OPERATORS:
            found.append(ast.AugAssign(target, SWAPPED_OPERATORS[type(operator)](), value))
        case ast.BoolOp(operator, values):
            found.append(ast.BoolOp(ast.And() if isinstance(operator, ast.Or) else ast.Or(), values))
        case ast.UnaryOp(ast.Not() | ast.USub() | ast.Invert(), operand):
            found.append(operand)
        case ast.Constant(bool() as value):
            found.append(ast.Constant(not value))
        case ast.Constant(int() as value):
            on_axis = isinstance(parent, ast.keyword) and parent.arg == "axis"
            found.append(ast.Constant(1 - value if on_axis else value + 1))
        case ast.Constant(float() as value):
            found.append(ast.Constant(2 * value or 1.0))
            if isinstance(parent, ast.Assign | ast.Tuple) and value:
                found.append(ast.Constant(1000 * value))
        case ast.Expr(ast.Call()):
            found.append(ast.Pass())
        case ast.Call(ast.Name(name) as callee, arguments, keywords) if name in SWAPPED_NAMES:
            found.append(ast.Call(ast.Name(SWAPPED_NAMES[name], callee.ctx), arguments, keywords))
        case ast.Call(ast.Attribute(value, name) as callee, arguments, keywords) if name in SWAPPED_NAMES:
            found.append(ast.Call(ast.Attribute(value, SWAPPED_NAMES[name], callee.ctx), arguments, keywords))
        case ast.Call(callee, [ast.Name() as first, ast.Name() as second], keywords):
            if first.id != second.id and ast.unparse(callee).rpartition(".")[2] not in SYMMETRIC:
                found.append(ast.Call(callee, [second, first], keywords))
    compared = ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant
    if field in {"test", "ifs"} and isinstance(node, ast.expr) and not isinstance(node, compared):
        found.append(ast.UnaryOp(ast.Not(), node))
    return found


def mutants_of(file: Path) -> list[Mutant]:
    """List every mutant of a module, each with a key of its own."""
    tree, found, seen = ast.parse(file.read_text()), [], dict[tuple[str, str], int]()
    name = str(file.relative_to(SOURCE))
    for number, (node, place, ancestors) in enumerate(nodes(tree)):
        function = outermost(ancestors)
        shown = smallest_readable((*ancestors, node))
        before = named(place) + readable(shown)
        for variant, other in enumerate(replacements(node, place)):
            put(place, other)
            change = f"{before} → {named(place)}{readable(other if shown is node else shown)}"
            put(place, node)
            times = seen[function, change] = seen.get((function, change), 0) + 1
            change += f" (no. {times})" if times > 1 else ""
            line = getattr(node, "lineno", 0)
            found.append(Mutant(name, function, change, line, number, variant))
    return found


def outermost(ancestors: tuple[ast.AST, ...]) -> str:
    """Qualified name of the function that holds all others, as code objects call it; empty outside of functions."""
    names = []
    for node in ancestors:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.append(node.name)
        if isinstance(node, ast.FunctionDef):
            return ".".join(names)
    return ""


def smallest_readable(path: tuple[ast.AST, ...]) -> ast.AST:
    """The smallest part of the source around a node that can be recognised by itself."""
    for parent, node in zip(path[-2::-1], path[:0:-1], strict=True):
        if isinstance(node, ast.stmt) or isinstance(parent, ast.arguments):
            return node
        if isinstance(node, ast.expr) and len(ast.unparse(node)) >= 24:
            return node
    raise ValueError("a node outside of any statement")


def named(place: Place) -> str:
    """The parameter whose default stands in a place, as it is written before the default."""
    parent, field, index = place
    if field not in {"defaults", "kw_defaults"} or index is None:
        return ""
    optional = parent.kwonlyargs if field == "kw_defaults" else [*parent.posonlyargs, *parent.args]
    return f"{optional[index if field == 'kw_defaults' else index - len(parent.defaults)].arg}="


def readable(node: ast.AST) -> str:
    """First line of a node, without the block under it."""
    return " ".join(ast.unparse(node).partition("\n")[0].split())


class Mutated(importlib.abc.MetaPathFinder):
    """Import one module from a changed tree."""

    def __init__(self, module: str, tree: ast.Module) -> None:
        self.module, self.tree = module, tree

    def find_spec(self, name, path, target=None):
        if name != self.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        tree = self.tree

        class Loader(importlib.machinery.SourceFileLoader):
            def get_code(self, fullname):
                return compile(tree, self.path, "exec", dont_inherit=True)

        spec.loader = Loader(name, spec.origin)
        return spec


PACKAGE = str(SOURCE) + os.sep


class Recorder:
    """A pytest plugin: which functions of the package each test calls, and how long it takes.

    What a fixture of several tests calls counts for each of them.
    """

    def __init__(self) -> None:
        self.tests: dict[str, dict] = {}
        self.called: set[str] = set()
        self.shared: dict[str, set[str]] = {}
        self.failed: list[str] = []

    def _trace(self, frame, event, argument):
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE):
            self.called.add(
                f"{code.co_filename[len(PACKAGE) :]}:{code.co_qualname.partition('.<locals>')[0]}"
            )

    def pytest_runtest_protocol(self, item):
        self.called = set()
        self.tests[item.nodeid] = {
            "seconds": 0.0,
            "fixtures": [f"{item.path}:{f}" for f in item.fixturenames],
        }
        threading.settrace(self._trace)
        sys.settrace(self._trace)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef, request):
        outer, self.called = self.called, set()
        result = yield
        if fixturedef.scope != "function":
            self.shared[f"{request.node.path}:{fixturedef.argname}"] = self.called
        self.called |= outer
        return result

    def pytest_runtest_logreport(self, report):
        facts = self.tests[report.nodeid]
        facts["seconds"] += report.duration
        facts["calls"] = sorted(self.called.union(*(self.shared.get(f, ()) for f in facts["fixtures"])))
        if report.failed:
            self.failed.append(report.nodeid)


class Chosen:
    """A pytest plugin: run some tests in a given order, and keep the first that fails."""

    def __init__(self, tests: list[str]) -> None:
        self.order = {test: place for place, test in enumerate(tests)}
        self.failed: list[str] = []

    def pytest_collection_modifyitems(self, items):
        items[:] = sorted((i for i in items if i.nodeid in self.order), key=lambda i: self.order[i.nodeid])

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.append(report.nodeid)


def forked(call: Callable[[], object], patience: float) -> tuple[int | None, object]:
    """Call a function in a forked process: its exit code (None: not in time) and what it gave."""
    with tempfile.TemporaryFile() as answer:
        process = os.fork()
        if process == 0:
            os.setsid()
            code, given = BROKEN, None
            try:
                nowhere = os.open(os.devnull, os.O_RDWR)
                for stream in (0, 1, 2):
                    os.dup2(nowhere, stream)
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
                code, given = call()
            except BaseException:  # noqa: BLE001 - told by the parent, for this process has no terminal
                given = traceback.format_exc()
            answer.write(json.dumps(given).encode())
            answer.flush()
            os._exit(code)
        deadline = time.monotonic() + patience
        try:
            while (ended := os.waitpid(process, os.WNOHANG))[0] == 0:
                if time.monotonic() > deadline:
                    return None, None
                time.sleep(0.02)
        finally:  # its own processes, too; on Ctrl-C, itself
            with suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(process, 0)
        answer.seek(0)
        code, given = os.waitstatus_to_exitcode(ended[1]), json.loads(answer.read() or "null")
        if code == BROKEN:
            raise SystemExit(f"the run itself failed:\n{given}")
        return code, given


def run_pytest(files: list[str], plugin: Recorder | Chosen, *options: str) -> int:
    """Run pytest in this process, without what would make a run differ from the next."""
    import hypothesis

    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("mutants", database=None, derandomize=True, phases=phases)
    hypothesis.settings.load_profile("mutants")
    folder = tempfile.mkdtemp(prefix="mutants-")
    plain = ["-o", "addopts=", "-q", "-p", "no:randomly", "-p", "no:xdist", "-p", "no:cacheprovider"]
    plain += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # plugins are imported before the fork
    try:
        return int(pytest.main([*files, *plain, *options, "--basetemp", folder], plugins=[plugin]))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def record(files: list[str]) -> dict[str, dict]:
    """Run the tests of a room as they are: what each calls, and its seconds."""

    def call():
        recorder = Recorder()
        code = run_pytest(files, recorder)
        return code, {"tests": recorder.tests, "failed": recorder.failed}

    code, given = forked(call, patience=3600)
    if code not in (0, 1):
        raise SystemExit(f"the tests of the source as it is cannot be run: exit code {code} of pytest")
    for test in given["failed"]:
        show(f"left out, for it fails without any change: {test}")
        given["tests"].pop(test, None)
    return given["tests"]


def tests_for(mutant: Mutant, tests: dict[str, dict]) -> list[str]:
    """Tests that call the changed function; short ones first.

    Where a constant of the module is changed, every test of the files that call the module: a test may read it alone.
    """
    calls = f"{mutant.file}:{mutant.function}"
    if mutant.function:
        found = [test for test, facts in tests.items() if calls in facts["calls"]]
    else:
        callers = (test for test, facts in tests.items() if any(c.startswith(calls) for c in facts["calls"]))
        files = {test.partition("::")[0] for test in callers}
        found = [test for test in tests if test.partition("::")[0] in files]

    def order(test: str) -> tuple:
        seconds = tests[test]["seconds"]
        return seconds > SHORT, test.partition("::")[0] if seconds <= SHORT else "", seconds

    return sorted(found, key=order)


def judge(mutant: Mutant | None, chosen: list[str], tests: dict[str, dict]) -> tuple[str, str]:
    """Run a mutant: ("caught", the test), ("timeout", "") or ("survived", ""); None is the source as it is."""

    def call():
        if mutant is not None:
            sys.meta_path.insert(0, Mutated(mutant.module, mutant.tree()))
        plugin = Chosen(chosen)
        code = run_pytest(sorted({test.partition("::")[0] for test in chosen}), plugin, "-x")
        return code, plugin.failed[:1]

    if not chosen:
        return "survived", "no test calls it"
    seconds = sum(tests[test]["seconds"] for test in chosen)
    code, failed = forked(call, patience=60 + 5 * seconds)
    if code is None:
        return "timeout", ""
    return ("survived", "") if code == 0 else ("caught", failed[0] if failed else f"exit code {code}")


def fingerprint(files: list[str]) -> str:
    """What the verdicts of a room depend on: the source, its test files, and what tests share."""
    shared = sorted((ROOT / "tests").glob("*.py"))
    read = [*sorted((SOURCE / "fairerclip").rglob("*.py")), *shared, *(ROOT / file for file in files)]
    return hashlib.sha256(b"".join(hashlib.sha256(path.read_bytes()).digest() for path in read)).hexdigest()


def test_files(room: str) -> list[str]:
    """Test files of a room: those of its folder, then those named in ROOMS."""
    own = sorted((ROOT / "tests" / room).rglob("test_*.py"))
    return [*(str(path.relative_to(ROOT)) for path in own), *ROOMS[room]]


def drawn(room: str, seed: int, count: int, without: set[str]) -> tuple[list[Mutant], int]:
    """Mutants of a room in an order that depends on the seed and on their keys alone, and how many there are."""
    folder = SOURCE / "fairerclip" / room
    found = [m for file in sorted(folder.rglob("*.py")) for m in mutants_of(file) if m.key not in without]
    found.sort(key=lambda m: hashlib.sha256(f"{seed} {m.key}".encode()).digest())
    return found[:count], len(found)


def share(caught: int, count: int) -> str:
    """Share with its 95 % Wilson interval."""
    from scipy.stats import binomtest

    interval = binomtest(caught, count).proportion_ci(method="wilson")
    return f"{100 * caught / count:.0f} % [{100 * interval.low:.0f}, {100 * interval.high:.0f}]"


def survey(room: str, options: argparse.Namespace, kept: dict) -> None:
    """Judge the sample of a room, going on from what is kept, and print what was found."""
    files = test_files(room)
    state = kept.setdefault(room, {})
    if state.get("fingerprint") != (now := fingerprint(files)):
        state.clear()
        state.update(fingerprint=now, tests=record(files), verdicts={})
        seconds = {test: facts["seconds"] for test, facts in state["tests"].items()}
        short = sorted((test for test in seconds if seconds[test] <= SHORT), key=lambda test: seconds[test])
        verdict = judge(None, short, state["tests"])
        if verdict[0] != "survived":
            raise SystemExit(
                f"{room}: the source as it is must pass in another order of tests, too: {verdict}"
            )
    equivalent = {entry["mutant"] for entry in json.loads(EQUIVALENT.read_text())}
    sample, population = drawn(room, options.seed, options.count, equivalent)
    for number, mutant in enumerate(sample, 1):
        if mutant.key in state["verdicts"]:
            continue
        started = time.monotonic()
        verdict, by = judge(mutant, tests_for(mutant, state["tests"]), state["tests"])
        seconds = round(time.monotonic() - started, 1)
        state["verdicts"][mutant.key] = {
            "verdict": verdict,
            "by": by,
            "line": mutant.line,
            "seconds": seconds,
        }
        save(options.results, kept)
        show(f"{room} {number}/{len(sample)} {verdict} ({seconds} s): {mutant.key}")
    verdicts = [(mutant, state["verdicts"][mutant.key]) for mutant in sample]
    survivors = [(mutant, found) for mutant, found in verdicts if found["verdict"] == "survived"]
    timeouts = sum(found["verdict"] == "timeout" for _, found in verdicts)
    caught = len(verdicts) - len(survivors)
    show(
        f"\n{room}: {caught} of {len(verdicts)} mutants caught, {share(caught, len(verdicts))}; {timeouts} of them by "
        f"taking too long; drawn from {population}"
    )
    for mutant, found in survivors:
        show(f"  src/{mutant.file}:{mutant.line} {mutant.function}: {mutant.change} {found['by']}")


def save(path: Path, kept: dict) -> None:
    written = path.with_suffix(".part")
    written.write_text(json.dumps(kept, indent=1, ensure_ascii=False))
    written.replace(path)


def show(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rooms", nargs="*", default=list(ROOMS), help=f"any of {', '.join(ROOMS)}")
    parser.add_argument("--count", type=int, default=40, help="mutants that are drawn from each room")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=Path("mutants.json"), help="verdicts; taken up again")
    options = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(SOURCE))
    os.environ["PYTHONPATH"] = str(SOURCE)  # for the processes that tests start
    for module in WARM:
        importlib.import_module(module)
    kept = json.loads(options.results.read_text()) if options.results.exists() else {}
    for room in options.rooms:
        survey(room, options, kept)


if __name__ == "__main__":
    main()
