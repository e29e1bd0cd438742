"""What importing, installing and the import contract promise."""

import ast
import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import fairerclip
from fairerclip.data import save_task, simulate

ROOT = Path(__file__).resolve().parents[2]


def modules_after(code, parts=False, given="pass"):
    """Names of the modules that the code loads beside those of other code: of packages, or of their parts, too."""
    script = (
        f"import sys, json\n{given}\nbefore = set(sys.modules)\n{code}\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {name for name in json.loads(done.stdout.splitlines()[-1]) if parts or "." not in name}


def test_importing_the_package_loads_nothing_heavy():
    assert not modules_after("import fairerclip") & {"numpy", "scipy", "sklearn", "torch", "pandas", "rich"}


def test_importing_the_package_loads_the_standard_library_only():
    added = modules_after("import fairerclip") - set(sys.stdlib_module_names)
    assert added == {"fairerclip"}


def test_the_estimator_loads_neither_torch_nor_pandas_nor_a_plotting_library():
    # It takes pandas along if it is there.
    given = "import sklearn.base, sklearn.utils.validation"
    loaded = modules_after("from fairerclip import FairerCLIP", parts=True, given=given)
    assert "fairerclip.model.estimator" in loaded
    assert not loaded & {"torch", "pandas", "matplotlib", "typer", "rich"}


def test_help_loads_no_numerical_library():
    code = (
        "sys.argv = ['fairerclip', '--help']\n"
        "from fairerclip.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass"
    )
    assert not modules_after(code) & {"numpy", "scipy", "sklearn", "rich", "pydantic", "jinja2"}


def test_the_help_of_commands_loads_no_numerical_library():
    code = (
        "from fairerclip.cli.main import main\n"
        "for command in ('demo', 'embed', 'task', 'audit', 'fit', 'path', 'apply'):\n"
        "    sys.argv = ['fairerclip', command, '--help']\n"
        "    try:\n        main()\n"
        "    except SystemExit as done:\n        assert not done.code\n"
    )
    assert not modules_after(code) & {"numpy", "scipy", "sklearn"}


def test_the_audit_of_a_finished_task_loads_nothing_that_embeds_or_builds_tasks(tmp_path):
    task = save_task(simulate("waterbirds", scale=0.02, width=32), tmp_path / "t.npz")
    code = (
        "from fairerclip.auditing import run\n"
        "run.audit_task = lambda *given, **more: sys.exit()  # what it may import is in the import contract\n"
        f"sys.argv = ['fairerclip', 'audit', {str(task)!r}]\n"
        "from fairerclip.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as done:\n    assert done.code is None"
    )
    unneeded = ("encoders", "data.build", "data.datasets", "data.prompts", "auditing.many_models")
    loaded = modules_after(code, parts=True)
    assert "fairerclip.auditing.run" in loaded
    assert not [m for m in loaded if m.startswith(tuple(f"fairerclip.{part}" for part in unneeded))]


def test_public_names_exist_and_are_sorted():
    assert fairerclip.__all__ == sorted(fairerclip.__all__)
    for name in fairerclip.__all__:
        assert getattr(fairerclip, name) is not None
    assert dir(fairerclip) == sorted(fairerclip.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = fairerclip.nonsense


MODULE_LINES, FUNCTION_LINES = 400, 60
LONGER = {
    "auditing/sections/probes.py probe_sensitive": "most of it is the docstring, with an entry per parameter",
    "data/datasets/metadata.py read": "most of it is the docstring, with an entry per column and name",
}
"""Modules and functions that may be longer, and why."""


def functions(node, prefix=""):
    """Names and lengths of all functions below a node of a syntax tree, methods as `Class.method`."""
    for child in ast.iter_child_nodes(node):
        named = isinstance(child, ast.FunctionDef | ast.ClassDef)
        if isinstance(child, ast.FunctionDef):
            yield prefix + child.name, child.end_lineno - child.lineno + 1
        yield from functions(child, f"{prefix}{child.name}." if named else prefix)


def test_modules_and_functions_stay_small():
    source, longer = ROOT / "src" / "fairerclip", set()
    for file in source.rglob("*.py"):
        text, place = file.read_text(), file.relative_to(source).as_posix()
        if len(text.splitlines()) > MODULE_LINES:
            longer.add(place)
        longer |= {f"{place} {name}" for name, lines in functions(ast.parse(text)) if lines > FUNCTION_LINES}
    assert longer == set(LONGER)


def test_every_module_and_every_class_has_a_name_of_its_own():
    files, classes = {}, {}
    for file in (ROOT / "src").rglob("*.py"):
        place = file.relative_to(ROOT / "src").as_posix()
        if file.name != "__init__.py":
            files.setdefault(file.name, []).append(place)
        for name in re.findall(r"^class (\w+)", file.read_text(), re.MULTILINE):
            classes.setdefault(name, []).append(place)
    assert {name: places for name, places in (files | classes).items() if len(places) > 1} == {}


def test_the_page_on_architecture_names_files_that_are_there_and_every_room():
    page, source = (
        (ROOT / "docs" / "development" / "architecture.md").read_text(),
        ROOT / "src" / "fairerclip",
    )
    named = re.findall(r"`([a-z_]+(?:/[a-z_A-Z.]+)+\.(?:py|json|js))`", page)
    assert len(named) > 40
    assert [
        f for f in named if "NAME" not in f and not any((home / f).is_file() for home in (ROOT, source))
    ] == []
    rooms = {f.name for f in source.iterdir() if f.is_dir() and f.name != "__pycache__"}
    assert rooms <= set(re.findall(r"^ ?(\w+)  ", page, re.MULTILINE))


def test_tests_are_in_folders_with_the_names_of_the_rooms():
    rooms = {f.name for f in (ROOT / "src" / "fairerclip").iterdir() if f.is_dir()}
    folders = {f.parent.name for f in (ROOT / "tests").glob("*/test_*.py")}
    assert folders - rooms == {"package", "golden", "browser", "hostile", "properties"}
    assert rooms - folders <= {"__pycache__"}
    names = [f.name for f in (ROOT / "tests").rglob("*.py") if f.name != "conftest.py"]
    assert sorted(names) == sorted(set(names))


def test_the_project_speaks_of_itself_alone():
    words = ("/" + "work/", "/" + "tmp/", "TODO", "FIXME", "issue #")
    for file in [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]:
        text = file.read_text()
        assert not [w for w in words if w in text], file


def test_the_suite_cannot_open_connections():
    with pytest.raises(AssertionError, match="nothing here may open a connection"):
        socket.create_connection(("192.0.2.1", 80), timeout=0.1)


def test_every_promise_of_security_names_tests_that_are_there():
    rows = [line for line in (ROOT / "SECURITY.md").read_text().splitlines() if line.startswith("| **")]
    targets = (ROOT / "Makefile").read_text()
    assert len(rows) >= 8
    for row in rows:
        named = re.findall(r"`(tests/[^`]+)`", row)
        assert named
        assert all((ROOT / file).is_file() for file in named), row
        assert all(f"\n{target}:" in targets for target in re.findall(r"`make ([a-z-]+)`", row)), row
