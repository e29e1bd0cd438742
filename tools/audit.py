"""Look up every version of requirements/dev.txt in a vulnerability service: ``python tools/audit.py``, with pip-audit.

A service that knows nothing finds nothing. So a version with a known vulnerability is looked up first and must be
found, and every version of the lock must be answered.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KNOWN = "jinja2==2.4.1"
"""A version with known vulnerabilities."""


def audited(requirements: Path) -> list[dict[str, Any]]:
    """Return what pip-audit says of each version of a file; exit if it says nothing."""
    command = [
        sys.executable,
        "-m",
        "pip_audit",
        "--requirement",
        str(requirements),
        "--disable-pip",
        "--no-deps",
    ]
    answer = subprocess.run(
        [*command, "--format", "json", "--progress-spinner", "off"],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        found: list[dict[str, Any]] = json.loads(answer.stdout)["dependencies"]
    except (ValueError, KeyError):
        last = (answer.stderr.strip().splitlines() or ["no message"])[-1]
        raise SystemExit(
            f"nothing was audited: pip-audit ended with code {answer.returncode}: {last}"
        ) from None
    return found


def main() -> None:
    """Audit, and exit with 1 for a vulnerability or a version without an answer."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "known.txt"
        file.write_text(KNOWN + "\n", encoding="utf-8")
        if not any(entry.get("vulns") for entry in audited(file)):
            raise SystemExit(
                f"nothing was audited: the service knows no vulnerability of {KNOWN}, which has several"
            )
    found = audited(ROOT / "requirements" / "dev.txt")
    skipped = [entry for entry in found if "skip_reason" in entry]
    vulnerable = [entry for entry in found if entry.get("vulns")]
    for entry in skipped:
        print(f"{entry['name']}: no answer ({entry['skip_reason']})")
    for entry in vulnerable:
        print(f"{entry['name']} {entry['version']}: {', '.join(v['id'] for v in entry['vulns'])}")
    print(
        f"{len(found)} versions, {len(vulnerable)} with known vulnerabilities, {len(skipped)} without an answer"
    )
    if skipped or vulnerable:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
