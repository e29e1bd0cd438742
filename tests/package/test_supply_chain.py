"""Locks, constraints, pyproject.toml and the targets of the Makefile agree."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAKEFILE = (ROOT / "Makefile").read_text()


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def versions(text):
    """Canonical name → version of every pin."""
    return {
        canonical(name): version for name, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE)
    }


PINNED = versions((ROOT / "constraints.txt").read_text())
LOCKS = {name: (ROOT / "requirements" / f"{name}.txt").read_text() for name in ("run", "build", "dev")}


def names(requirements):
    return {canonical(re.match(r"[\w.-]+", line)[0]) for line in requirements} - {"fairerclip"}


def test_locked_versions_are_those_of_the_constraints():
    for lock in LOCKS.values():
        locked = versions(lock)
        assert locked
        assert {name: PINNED.get(name) for name in locked} == locked


def test_every_constraint_is_locked_but_those_for_guided_fuzzing():
    assert set(PINNED) - set(versions(LOCKS["dev"])) == names(PROJECT["optional-dependencies"]["fuzz"])
    assert versions(LOCKS["run"]).items() | versions(LOCKS["build"]).items() <= versions(LOCKS["dev"]).items()


def test_every_dependency_has_a_pinned_version():
    extras = PROJECT["optional-dependencies"]
    assert names(PROJECT["dependencies"]) <= set(versions(LOCKS["run"]))
    assert names(line for lines in extras.values() for line in lines) <= set(PINNED)
    locked = names(line for key, lines in extras.items() if key != "fuzz" for line in lines)
    assert locked <= set(versions(LOCKS["dev"]))


def test_the_build_backend_is_locked():
    system = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]
    assert names(system["requires"]) <= set(versions(LOCKS["build"]))


def test_every_locked_archive_has_a_hash_and_no_address():
    for lock in LOCKS.values():
        entries = re.split(r"\n(?=\S)", lock.strip())[1:]
        assert len(entries) == len(versions(lock))
        for entry in entries:
            assert re.fullmatch(r"[a-z0-9-]+==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+", entry), (
                entry.splitlines()[0]
            )
        assert "://" not in lock


def test_the_demo_installs_archives_whose_hashes_are_known():
    recipe = re.search(r"^\$\(VENV\)/run\.done:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)[1]
    assert "--require-hashes -r requirements/run.txt -r requirements/build.txt" in recipe
    assert "--no-deps --no-build-isolation --editable ." in recipe


def test_tools_of_the_supply_chain_are_there():
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    assert {
        "lock",
        "install-locked",
        "audit-dependencies",
        "sbom",
        "wheel",
        "wheel-check",
        "properties",
    } <= targets
    for tool in re.findall(r"tools/\w+\.py", MAKEFILE):
        assert (ROOT / tool).is_file()
    assert {f"tools/{file.name}" for file in (ROOT / "tools").glob("*.py")} <= set(
        re.findall(r"tools/\w+\.py", MAKEFILE)
    )
    assert {"pip-audit", "cyclonedx-bom", "packaging"} <= set(
        versions((ROOT / "constraints-tools.txt").read_text())
    )
