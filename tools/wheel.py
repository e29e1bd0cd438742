"""Build the wheel twice, as two people would, and compare the bytes: ``python tools/wheel.py FOLDER``.

The two builds have other folders, other times and permissions of the files, another umask, time zone and language. The
wheel is written to FOLDER if they agree.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("src", "pyproject.toml", "README.md", "LICENSE")
"""What a wheel is made of."""
BUILDS = (
    {"folder": "first", "umask": 0o022, "mode": 0o644, "time": 1_000_000_000, "TZ": "UTC", "LC_ALL": "C"},
    {
        "folder": "second/below",
        "umask": 0o077,
        "mode": 0o600,
        "time": 1_700_000_000,
        "TZ": "Asia/Tokyo",
        "LC_ALL": "C.UTF-8",
    },
)


def built(place: Path, build: dict[str, object]) -> Path:
    """Copy the sources to a folder, build the wheel there, and return its file."""
    source = place / str(build["folder"])
    source.mkdir(parents=True)
    for name in SOURCES:
        whole = ROOT / name
        ignored = shutil.ignore_patterns("__pycache__")
        _ = (
            shutil.copytree(whole, source / name, ignore=ignored)
            if whole.is_dir()
            else shutil.copy(whole, source / name)
        )
    for file in source.rglob("*"):
        if file.is_file():
            file.chmod(int(str(build["mode"])))
        os.utime(file, (int(str(build["time"])),) * 2)
    environment = {**os.environ, "TZ": str(build["TZ"]), "LC_ALL": str(build["LC_ALL"])}
    environment.pop("SOURCE_DATE_EPOCH", None)
    subprocess.run(
        [
            sys.executable,
            "-m",
            "hatchling",
            "build",
            "--target",
            "wheel",
            "--directory",
            str(source / "dist"),
        ],
        cwd=source,
        env=environment,
        umask=int(str(build["umask"])),
        check=True,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    (wheel,) = (source / "dist").glob("*.whl")
    return wheel


def main() -> None:
    """Build twice, compare, and keep the wheel."""
    target = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        first, second = (built(Path(folder), build) for build in BUILDS)
        digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in (first, second)]
        if digests[0] != digests[1] or first.name != second.name:
            raise SystemExit(f"two builds differ: {first.name} {digests[0]} and {second.name} {digests[1]}")
        target.mkdir(parents=True, exist_ok=True)
        kept = Path(shutil.copy(first, target))
    print(f"{kept}: {kept.stat().st_size:,} bytes, equal in {len(BUILDS)} builds\nsha256 {digests[0]}")


if __name__ == "__main__":
    main()
