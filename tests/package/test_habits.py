"""What contributors and hosted machines are told to run is there, and versions are said once."""

import re
import tomllib
from pathlib import Path

import pytest

import slow

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
STEPS = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]


def test_every_command_of_the_workflow_is_there():
    commands = [step["run"] for step in STEPS if "run" in step]
    assert ".ci/run" in commands
    for command in commands:
        if command.startswith("make "):
            assert command.split()[1] in TARGETS, command
        else:
            assert (ROOT / command).stat().st_mode & 0o111, command
    wanted = {"docs", "test-fast", "test-no-extras", "test-minimum"}
    assert wanted <= {command.split()[1] for command in commands if command.startswith("make ")}


def test_the_workflow_may_only_read_and_names_major_versions():
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert not [name for name, job in WORKFLOW["jobs"].items() if "permissions" in job]
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert used
    assert [name for name in used if not re.fullmatch(r"actions/[a-z-]+@v\d+", name)] == []


def test_the_versions_of_python_are_those_that_are_tested():
    said = {name for c in PROJECT["classifiers"] for name in re.findall(r":: (3\.\d+)$", c)}
    tested = WORKFLOW["jobs"]["python"]["strategy"]["matrix"]["python"]
    assert said == set(tested)
    assert PROJECT["requires-python"] == f">={tested[0]}"


def test_the_oldest_versions_that_are_tested_are_the_oldest_that_are_allowed():
    extras = PROJECT["optional-dependencies"]
    users = [
        name for key, names in extras.items() if key not in ("dev", "docs", "fuzz", "test") for name in names
    ]
    wanted = [name.replace(">=", "==") for name in [*PROJECT["dependencies"], *users] if "[" not in name]
    assert [name for name in wanted if "==" not in name] == []
    lines = (ROOT / "constraints-minimum.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == sorted(set(wanted), key=str.lower)


def test_every_tool_that_runs_before_a_commit_is_a_dependency_for_developers():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    entries = [hook["entry"] for repository in config["repos"] for hook in repository["hooks"]]
    tools = {re.match(r"\.venv/bin/(\w+)", entry)[1] for entry in entries}
    assert tools == {"ruff", "mypy", "codespell"}
    assert tools <= {re.match(r"\w+", name)[0] for name in PROJECT["optional-dependencies"]["dev"]}


def test_forms_of_issues_have_what_a_form_needs():
    for name in ("bug", "feature"):
        form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml").read_text())
        assert {"name", "description", "body"} <= set(form)
        ids = [part["id"] for part in form["body"]]
        assert len(ids) == len(set(ids)) > 1
        assert all(part["attributes"]["label"] for part in form["body"])


def test_what_contributors_are_told_to_run_and_to_edit_is_there():
    source = ROOT / "src" / "fairerclip"
    for page in ("CONTRIBUTING.md", "docs/development/releasing.md"):
        text = (ROOT / page).read_text()
        assert set(re.findall(r"make ([a-z-]+)", text)) <= TARGETS
        named = re.findall(r"`(?:python )?([\w.-]+(?:/[\w.-]+)+)/?(?: --\w+)?`", text)
        assert named
        assert [n for n in named if not any((home / n).exists() for home in (ROOT, source))] == []


@pytest.mark.parametrize("file", [slow.LIST, slow.PROOFS])
def test_every_test_of_a_list_is_there(file):
    folders, functions = slow.listed(file)
    assert [folder for folder in folders if not (slow.TESTS / folder).is_dir()] == []
    places = [place.split("::") for place in functions]
    gone = [
        place
        for place in places
        if not (slow.TESTS / place[0]).is_file()
        or f"def {place[1]}(" not in (slow.TESTS / place[0]).read_text()
    ]
    assert gone == []
