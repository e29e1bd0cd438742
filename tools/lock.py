"""Write requirements/*.txt: the versions of constraints.txt with the SHA-256 of every archive that pip may install.

``python tools/lock.py SITE_PACKAGES`` is run by ``make lock``, in an environment with pip and packaging. Requirements
are read from the metadata of the packages that are installed in SITE_PACKAGES, hashes from the index that pip is set up
to use, and those of builds that have a local version (``2.13.0+cpu``) from the archive that pip finds.
"""

from __future__ import annotations

import hashlib
import html
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import Distribution, distributions
from itertools import product
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
"""Minor versions whose wheels are in the lock."""
MACHINES = (("linux", "Linux", "x86_64"), ("linux", "Linux", "aarch64"), ("darwin", "Darwin", "arm64"))
"""Systems whose requirements are in the lock: sys_platform, platform_system, platform_machine."""
LOCKS = {
    "run": (["fairerclip"], "what the package needs to run, without extras"),
    "build": (["hatchling"], "what builds the package"),
    "dev": (["fairerclip[dev,all]"], "the tests, the linters and every extra"),
}
"""File → what is asked for, and what for."""


def pinned() -> dict[str, str]:
    """Return the versions of constraints.txt by canonical name."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    return {
        str(canonicalize_name(name)): version for name, _, version in (line.partition("==") for line in lines)
    }


def environments() -> list[dict[str, str]]:
    """Return the values of markers for each Python and system of the lock."""
    return [
        {
            "python_version": python,
            "python_full_version": f"{python}.0",
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
            "os_name": "posix",
            "sys_platform": platform,
            "platform_system": system,
            "platform_machine": machine,
        }
        for python, (platform, system, machine) in product(PYTHONS, MACHINES)
    ]


def own_requirements(extras: set[str]) -> list[Requirement]:
    """Return the requirements of this project, with those of some extras, from pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for extra in sorted(extras) for line in optional[extra])]
    return [Requirement(line) for line in lines]


def closure(asked: list[str], installed: dict[str, Distribution]) -> set[str]:
    """Return the names of all packages that are needed for some requirements, on any system of the lock."""
    done: set[tuple[str, str]] = set()
    todo = [Requirement(line) for line in asked]
    while todo:
        requirement = todo.pop()
        name = str(canonicalize_name(requirement.name))
        new = {(name, extra) for extra in ("", *requirement.extras)} - done
        done |= new
        for extra in {extra for _, extra in new}:
            if name == "fairerclip":
                todo += own_requirements({extra} - {""})
                continue
            if name not in installed:
                raise SystemExit(f"{name} is needed and not installed: run make lock after make test")
            for line in installed[name].requires or []:
                other = Requirement(line)
                places = ({**environment, "extra": extra} for environment in environments())
                if other.marker is None or any(other.marker.evaluate(place) for place in places):
                    todo.append(other)
    return {name for name, _ in done} - {"fairerclip"}


def index_url() -> str:
    """Return the address of the index that pip reads."""
    if given := os.environ.get("PIP_INDEX_URL"):
        return given.rstrip("/")
    asked = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"],
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode == 0:
        return asked.stdout.strip().rstrip("/")
    from pip._internal.models.index import PyPI

    return str(PyPI.simple_url).rstrip("/")


def usable(wheel: str, *, linux: bool) -> bool:
    """Return whether a wheel is for a Python of the lock, on any system or any but Linux."""
    tags: frozenset[Tag] = parse_wheel_filename(wheel)[3]
    if not linux and any("linux" in tag.platform for tag in tags):
        return False
    own = {f"cp{python.replace('.', '')}" for python in PYTHONS}
    return any(
        tag.interpreter in own or tag.abi == "abi3" or tag.interpreter.startswith("py3") for tag in tags
    )


def hashes(name: str, version: str, index: str, *, linux: bool) -> list[str]:
    """Return the SHA-256 of all archives of a version that a Python of the lock may install."""
    with urllib.request.urlopen(f"{index}/{name}/", timeout=120) as answer:  # noqa: S310 - the address is pip's
        page = answer.read().decode()
    found = []
    for address, file in re.findall(r'<a\b[^>]*\bhref="([^"]*)"[^>]*>\s*([^<]*?)\s*</a>', page):
        digest = re.search(r"#sha256=([0-9a-f]{64})", html.unescape(address))
        stem = re.match(
            rf"{re.escape(name).replace(re.escape('-'), '[-_.]')}-(.+)", html.unescape(file), re.IGNORECASE
        )
        if not digest or not stem:
            continue
        wheel = file.endswith(".whl") and Version(stem[1].split("-")[0]) == Version(version)
        if (wheel and usable(file, linux=linux)) or stem[1] == f"{version}.tar.gz":
            found.append(digest[1])
    if not found:
        raise SystemExit(f"the index has no archive of {name} {version} with a SHA-256")
    return sorted(found)


def local_build(name: str, version: str) -> str:
    """Return the SHA-256 of the archive that pip finds here for a version."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
        subprocess.run([*command, f"{name}=={version}"], check=True)
        (file,) = Path(folder).iterdir()
        return hashlib.sha256(file.read_bytes()).hexdigest()


def main() -> None:
    """Write the locks."""
    installed = {str(canonicalize_name(d.name)): d for d in distributions(path=[sys.argv[1]])}
    versions, index = pinned(), index_url()
    needed = {lock: sorted(closure(asked, installed)) for lock, (asked, _) in LOCKS.items()}
    names = sorted(set().union(*needed.values()))
    if unpinned := [name for name in names if name not in versions]:
        raise SystemExit(f"constraints.txt has no version of {', '.join(unpinned)}")
    # Of torch, the index has builds for CUDA on Linux, which need gigabytes of further packages: pip would prefer them.
    local = {name for name in names if "+" in installed[name].version}
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(hashes, name, versions[name], index, linux=name not in local) for name in names]
    found = {name: answer.result() for name, answer in zip(names, asked, strict=True)}
    for name in local:
        found[name].append(local_build(name, versions[name]))
    for lock, (_, purpose) in LOCKS.items():
        lines = [f"# Made by `make lock` from constraints.txt: {purpose}."]
        for name in needed[lock]:
            lines += [
                " \\\n    ".join([f"{name}=={versions[name]}", *(f"--hash=sha256:{h}" for h in found[name])])
            ]
        (ROOT / "requirements" / f"{lock}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"requirements/{lock}.txt: {len(needed[lock])} packages")


if __name__ == "__main__":
    main()
