"""Check a CycloneDX file: valid by the schema, and the packages of requirements/run.txt and no others.

``python tools/check_sbom.py FILE``, with cyclonedx-python-lib.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Validate, and compare with the lock."""
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    document = json.loads(text)
    version = SchemaVersion.from_version(document["specVersion"])
    if error := JsonStrictValidator(version).validate_str(text):
        raise SystemExit(f"{sys.argv[1]} is no valid CycloneDX {document['specVersion']}: {error}")
    components = document["components"]
    listed = {str(canonicalize_name(c["name"])): c["version"] for c in components}
    listed.pop("fairerclip", None)
    lock = (ROOT / "requirements" / "run.txt").read_text(encoding="utf-8")
    locked = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", lock, re.MULTILINE))
    if listed != locked:
        differing = sorted(set(listed.items()) ^ set(locked.items()))
        raise SystemExit(f"{sys.argv[1]} differs from requirements/run.txt in {differing}")
    print(
        f"{sys.argv[1]}: valid CycloneDX {document['specVersion']}, {len(locked)} packages of requirements/run.txt"
    )


if __name__ == "__main__":
    main()
