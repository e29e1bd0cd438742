"""What importing, installing and the import contract promise."""

import json
import socket
import subprocess
import sys

import pytest

import fairerclip
from fairerclip.data import save_task, simulate


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


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_public_names_exist():
    for name in fairerclip.__all__:
        assert getattr(fairerclip, name) is not None
    with pytest.raises(AttributeError):
        _ = fairerclip.nonsense


def test_the_suite_cannot_open_connections():
    with pytest.raises(AssertionError, match="nothing here may open a connection"):
        socket.create_connection(("192.0.2.1", 80), timeout=0.1)
