"""Manifests of saved models as a forger would write them."""

import hashlib
import json


def canonical(manifest):
    """The manifest as docs say it is written, with a digest that fits: what a forger would do."""
    body = {k: v for k, v in manifest.items() if k != "manifest_sha256"}
    digest = hashlib.sha256(json.dumps(body, indent=2).encode()).hexdigest()
    return json.dumps({**body, "manifest_sha256": digest}, indent=2).encode()
