"""Folders of saved models as a forger would write them: changed, with digests that fit."""

import hashlib
import json
import struct

from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

MANIFEST, TENSORS = "fairerclip.json", "model.safetensors"


def canonical(manifest):
    """The manifest as docs say it is written, with a digest that fits: what a forger would do."""
    body = {k: v for k, v in manifest.items() if k != "manifest_sha256"}
    digest = hashlib.sha256(json.dumps(body, indent=2).encode()).hexdigest()
    return json.dumps({**body, "manifest_sha256": digest}, indent=2).encode()


def described(blob, before):
    """Entries of the manifest for the tensors of a file, as far as its header can be read."""
    try:
        size = struct.unpack("<Q", blob[:8])[0]
        header = json.loads(blob[8 : 8 + size])
        return {
            name: {
                "dtype": entry["dtype"],
                "used_as": before.get(name, {}).get("used_as", entry["dtype"])
                if entry["dtype"] == "F16"
                else entry["dtype"],
                "shape": entry["shape"],
                "sha256": hashlib.sha256(
                    blob[8 + size + entry["data_offsets"][0] : 8 + size + entry["data_offsets"][1]]
                ).hexdigest(),
            }
            for name, entry in header.items()
            if name != "__metadata__"
        }
    except (AttributeError, KeyError, TypeError, ValueError, IndexError, struct.error, RecursionError):
        return before


def tensor_file(folder):
    """File of the arrays that the manifest names."""
    return folder / json.loads((folder / MANIFEST).read_bytes()).get("tensor_file", TENSORS)


def tensors_of(folder):
    """Arrays of a folder by name."""
    return dict(load_tensors(tensor_file(folder).read_bytes()))


def forge(folder, *, tensors=None, blob=None, state=None, entries=None, **changes):
    """Change a model, and make every digest fit again."""
    manifest = json.loads((folder / MANIFEST).read_bytes())
    if tensors is not None:
        blob = save_tensors(tensors)
    if blob is not None:
        tensor_file(folder).write_bytes(blob)
        manifest |= {"tensors": described(blob, manifest["tensors"]), "tensor_bytes": len(blob)}
    if state is not None:
        manifest["state"] = {**manifest["state"], **state}
    if entries is not None:
        manifest["tensors"] = entries
    manifest.update(changes)
    (folder / MANIFEST).write_bytes(canonical(manifest))
    return folder
