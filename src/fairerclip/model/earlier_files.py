"""Reading of models that were saved before format version 7: two layouts, which load for ever and answer as they did.

Each kind of model had files and a numbering of its own: `FairerCLIP` versions 2 to 6, baselines 1 to 5.
They have one digest of all tensors. They are read into the same `Contents` as present files, with the parameters
under their present names. Nothing of this is written any more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from fairerclip.data.io.tensors import Tensor
from fairerclip.errors import ModelFileError
from fairerclip.model.contents import MANIFEST, TENSORS, Check, Contents, Manifest, refuse
from fairerclip.model.details import ModelDetails
from fairerclip.model.fitted import USED
from fairerclip.model.folder_files import Hashed, check_digest, read_tensors
from fairerclip.model.parameters import LEARNED

SINCE_3 = {"n_rows": None, "prompt_classes": None, "seed": None}
"""Entries that version 2 of `FairerCLIP` did not have."""
PARAMETERS_SINCE_3 = {"normalize": False}
"""Parameters that version 2 did not have, with the values that it worked with."""
PARAMETERS_SINCE_6: Mapping[str, Any] = {"class_offsets": None, "guess_weight": 1.0}
"""Parameters that version 5 did not have, with the values that it worked with; none was "auto" then."""
FIRST_WITH_STEPS = 3
"""First version of baselines with a cap in steps; earlier ones capped training in seconds, which have no equivalent."""


@dataclass(frozen=True)
class Layout:
    """One layout of a folder.

    Attributes
    ----------
    noun : str
        Name of the content in messages.
    first, last : int
        Format versions.
    manifest, tensors : str
        Names of the two files.
    dtypes : tuple of str
        Accepted types of the tensors.
    state : tuple of str
        Keys of the manifest that belong to this kind of model.
    added : mapping from int to frozenset of str
        Keys that a version added.
    update : callable
        Brings parameters and state up to date, given kind and version.
    kind : str
        Kind of model; empty if the manifest names it as ``baseline``.
    """

    noun: str
    first: int
    last: int
    manifest: str
    tensors: str
    dtypes: tuple[str, ...]
    state: tuple[str, ...]
    added: Mapping[int, frozenset[str]]
    update: Callable[[str, int, Manifest, Manifest], tuple[Manifest, Manifest]]
    kind: str

    def keys(self, version: int) -> set[str]:
        """Return the keys of a manifest of a version."""
        shared = {"format", "format_version", "fairerclip_version", "parameters", "n_features_in", "sha256"}
        shared |= {"feature_names_in", "diagnostics", "tensor_bytes", "manifest_sha256"}
        shared |= {"classes"}
        shared |= set() if self.kind else {"baseline"}
        later = [names for since, names in self.added.items() if since > version]
        return (shared | {*self.state}).difference(*later)


def files_in(path: Path) -> tuple[str, ...]:
    """Return the names of manifest and tensors of a folder whose names are no longer written; else nothing."""
    if os.path.lexists(path / MANIFEST):
        return ()
    names = [(layout.manifest, layout.tensors) for layout in LAYOUTS.values()]
    return next((pair for pair in names if os.path.lexists(path / pair[0])), ())


def read(path: Path, raw: bytes, manifest: Manifest, check: Check, *, mapped: bool) -> Contents:
    """Return the contents of a folder of an earlier layout, whose manifest was read; ``check`` as in `archive.read`."""
    name = manifest.get("format")
    layout = LAYOUTS.get(name) if isinstance(name, str) else None
    if layout is None or not (path / layout.manifest).is_file():
        raise ModelFileError(f"{path} does not describe a fairerclip model").because("format")
    file, version = path / layout.manifest, manifest.get("format_version")
    if type(version) is not int or not layout.first <= version <= layout.last:
        raise ModelFileError(
            f"{path} has format version {version!r:.40}; this version of fairerclip reads {layout.first} to "
            f"{layout.last}"
        ).because("version")
    odd = sorted(set(manifest) ^ layout.keys(version))
    if odd:
        raise ModelFileError(f"{file} has missing or unknown keys: {odd[:5]!r:.200}").because("unknown-field")
    check_digest(file, raw, manifest)
    contents = _contents(path, manifest, layout, version)

    def hashes(tensors: Mapping[str, Tensor], _: Mapping[str, str], size: int) -> list[Hashed]:
        bad = [name for name, tensor in tensors.items() if tensor.kind not in layout.dtypes]
        if bad:
            raise ModelFileError(
                f"{path / layout.tensors}: {bad[:3]!r:.200} are not finite arrays of {' or '.join(layout.dtypes)}"
            ).because("dtype")
        check(contents, tensors.keys())
        return [Hashed("the whole", 0, size, manifest["sha256"])]

    tensors = read_tensors(path / layout.tensors, manifest.get("tensor_bytes"), hashes, mapped=mapped)
    return replace(contents, tensors=tensors)


def _contents(path: Path, manifest: Manifest, layout: Layout, version: int) -> Contents:
    """Return the contents of a manifest, brought up to date, without tensors."""
    kind = layout.kind or manifest["baseline"]
    valid = {"kind": isinstance(kind, str), "parameters": isinstance(manifest["parameters"], dict)}
    refuse(path, valid)
    state = {key: manifest[key] for key in layout.state if key in manifest}
    parameters, state = layout.update(kind, version, manifest["parameters"], state)
    return Contents(
        kind=kind,
        parameters=parameters,
        classes=manifest.get("classes", []),
        n_features_in=manifest["n_features_in"],
        feature_names_in=manifest["feature_names_in"],
        state=state,
        diagnostics=manifest["diagnostics"],
        details=ModelDetails(),
        tensors={},
    )


# What versions changed ------------------------------------------------------------------------------


def _update_model(kind: str, version: int, params: Manifest, state: Manifest) -> tuple[Manifest, Manifest]:
    if version == 2:
        state, params = {**state, **SINCE_3}, PARAMETERS_SINCE_3 | params
    if version < 5:
        params, learned = _renamed(params)
        state = {**state, "learned": learned}
    if version < 6:
        params = {**PARAMETERS_SINCE_6, **params}
        if isinstance(state["learned"], dict):
            used = {name: params.get(name) for name in USED}
            state = {**state, "learned": {**used, **state["learned"]}}
    return params, state


def _renamed(given: Manifest) -> tuple[Manifest, Manifest]:
    """Return the parameters of versions 2 to 4 under their present names, and the learned values among them."""
    params = dict(given)
    learned = {name: params.pop(name, None) for name in LEARNED}
    learned |= {"zero_shot": params.get("zero_shot"), "gamma": params.get("gamma")}
    weight = params.get("class_weight")
    if isinstance(weight, list):
        return {**params, "class_weight": None, "subsample": weight}, learned
    if isinstance(weight, str) and weight.startswith("subsample"):
        share = weight.replace("subsample", "balanced", 1)
        return {**params, "class_weight": None, "subsample": share}, learned
    return {**params, "subsample": None}, learned


def _update_baseline(kind: str, version: int, params: Manifest, state: Manifest) -> tuple[Manifest, Manifest]:
    state = {"normalize": False, "offsets": None, **state}
    if version >= FIRST_WITH_STEPS:
        return params, state
    added = import_module("fairerclip.baselines.file").class_of(kind).added
    return {**added, **_without_seconds(params)}, state


def _without_seconds(parameters: Manifest) -> Manifest:
    """Return the parameters of an older file without the cap in seconds of the model or its recipe."""
    kept = {name: value for name, value in parameters.items() if name != "max_seconds"}
    recipe = kept.get("recipe")
    if isinstance(recipe, dict) and isinstance(recipe.get("mapping"), dict):
        inner = {name: value for name, value in recipe["mapping"].items() if name != "max_seconds"}
        kept["recipe"] = {"mapping": inner}
    return kept


LAYOUTS = {
    "fairerclip-model": Layout(
        *("model", 2, 6, MANIFEST, TENSORS, ("F64",)),
        state=(
            *("n_iter", "n_rows", "prompt_classes", "seed", "temperature", "learned", "features"),
            "text_features",
        ),
        added={
            3: frozenset({"n_rows", "prompt_classes", "seed"}),
            4: frozenset({"tensor_bytes"}),
            5: frozenset({"learned"}),
        },
        update=_update_model,
        kind="FairerCLIP",
    ),
    "fairerclip-baseline": Layout(
        *("baseline", 1, 5, "model.json", "arrays.safetensors", ("F32", "F64")),
        state=("normalize", "offsets"),
        added={2: frozenset({"normalize"}), 4: frozenset({"tensor_bytes"}), 5: frozenset({"offsets"})},
        update=_update_baseline,
        kind="",
    ),
}
"""Value of ``format`` in a manifest → layout."""
