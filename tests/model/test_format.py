"""docs/reference/format.md: every refusal has its reason, schema and reader agree, weights can be mapped and halved."""

import json
import os
import random
import re
import struct
import tracemalloc
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import fairerclip
from fairerclip import EmbeddingMitigator, FairerCLIP, load
from fairerclip.baselines import LEACE, LinearProbe, ZeroShot
from fairerclip.errors import FairerClipError, ModelFileError, OutputExistsError, ParameterError
from fairerclip.model.details import ModelDetails, ModelMetric
from forged import MANIFEST, TENSORS, canonical, forge, tensors_of
from small_models import FIXED

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "reference" / "format.md").read_text(encoding="utf-8")
SCHEMA = json.loads((ROOT / "docs" / "reference" / "format.schema.json").read_text(encoding="utf-8"))
FILES = (TENSORS, MANIFEST, "README.md")


def small(**parameters):
    return FairerCLIP(**{**FIXED, "n_features": 20, "random_state": 0, **parameters})


@pytest.fixture
def fitted(embeddings):
    e = embeddings(n_classes=3, p=6)
    return small().fit(e.X, e.y, sensitive_features=e.s, text=e.text), e


@pytest.fixture
def folder(fitted, tmp_path):
    return fitted[0].save(tmp_path / "model")


def manifest_of(folder):
    return json.loads((folder / MANIFEST).read_bytes())


# Reasons --------------------------------------------------------------------------------------------


def documented():
    table = DOCS[DOCS.index("| reason |") :].split("\n\n")[0]
    return {name for row in table.splitlines()[2:] for name in re.findall(r"`([a-z-]+)`", row.split("|")[1])}


def write(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def edit(name, change):
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def link(name):
    def act(folder):
        (folder / name).rename(folder / "elsewhere")
        (folder / name).symlink_to("elsewhere")

    return act


def pipe(name):
    def act(folder):
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return act


def blob(header, data):
    raw = json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def overlapping(folder):
    entry = {"dtype": "F64", "shape": [4], "data_offsets": [0, 32]}
    forge(folder, blob=blob({"mean_": entry, "zero_": {**entry, "data_offsets": [16, 48]}}, b"\0" * 48))


def with_entry(name, **changes):
    def act(folder):
        entries = manifest_of(folder)["tensors"]
        entries[name] |= changes
        forge(folder, entries=entries)

    return act


def tensor(name, change):
    return lambda folder: forge(
        folder, tensors={**tensors_of(folder), name: change(tensors_of(folder).get(name))}
    )


def metadata(folder):
    raw = (folder / TENSORS).read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = {**json.loads(raw[8 : 8 + size]), "__metadata__": {"a": "b"}}
    forge(folder, blob=blob(header, raw[8 + size :]))


def nan(array):
    array = array.copy()
    array.flat[0] = np.nan
    return array


HOSTILE = {
    "a missing manifest": ("missing-file", lambda f: (f / MANIFEST).unlink()),
    "missing tensors": ("missing-file", lambda f: (f / TENSORS).unlink()),
    "a linked manifest": ("link", link(MANIFEST)),
    "linked tensors": ("link", link(TENSORS)),
    "a pipe as manifest": ("not-plain", pipe(MANIFEST)),
    "a pipe as tensors": ("not-plain", pipe(TENSORS)),
    "a folder as tensors": ("not-plain", lambda f: ((f / TENSORS).unlink(), (f / TENSORS).mkdir())),
    "a large manifest": ("too-large", write(MANIFEST, b" " * (2 << 20) + b"{}")),
    "many values": ("too-large", write(MANIFEST, b"[" + b"0," * 400_000 + b"0]")),
    "a large header": ("too-large", lambda f: forge(f, blob=struct.pack("<Q", 1 << 40) + b"{}")),
    "no JSON": ("not-json", write(MANIFEST, b"{")),
    "no UTF-8": ("not-json", write(MANIFEST, b"\xff\xfe\x00")),
    "a long number": ("not-json", write(MANIFEST, b"1" * 10_000)),
    "deep JSON": ("too-deep", write(MANIFEST, b"[" * 100_000)),
    "a repeated key": ("repeated-key", edit(MANIFEST, lambda b: b.replace(b"{", b'{"kind": "LEACE",', 1))),
    "NaN in JSON": (
        "not-finite-json",
        edit(MANIFEST, lambda b: re.sub(rb'"gamma": [^,]+', b'"gamma": NaN', b)),
    ),
    "1e999 in JSON": (
        "not-finite-json",
        edit(MANIFEST, lambda b: re.sub(rb'"gamma": [^,]+', b'"gamma": 1e999', b)),
    ),
    "another format": ("format", lambda f: forge(f, format="other")),
    "a list as manifest": ("format", write(MANIFEST, b"[]")),
    "a later version": ("version", lambda f: forge(f, format_version=8)),
    "an unknown key": ("unknown-field", lambda f: forge(f, surprise=1)),
    "an unknown parameter": (
        "unknown-field",
        lambda f: forge(f, parameters={**manifest_of(f)["parameters"], "x": 1}),
    ),
    "an unknown key of the state": ("unknown-field", lambda f: forge(f, state={"x": 1})),
    "an unknown key of a tensor": ("unknown-field", with_entry("zero_", x=1)),
    "an unknown detail": ("unknown-field", lambda f: forge(f, details={**manifest_of(f)["details"], "x": 1})),
    "metadata of tensors": ("unknown-field", metadata),
    "a changed manifest": (
        "changed-manifest",
        edit(MANIFEST, lambda b: b.replace(b'"seed": 0', b'"seed": 1', 1)),
    ),
    "other spacing": ("changed-manifest", edit(MANIFEST, lambda b: json.dumps(json.loads(b)).encode())),
    "a line break at the end": ("changed-manifest", edit(MANIFEST, lambda b: b + b"\n")),
    "an impossible value": ("value", lambda f: forge(f, n_features_in=-6)),
    "details of another type": ("value", lambda f: forge(f, details=[])),
    "an unknown kind": ("kind", lambda f: forge(f, kind="os.system")),
    "another kind": ("kind", lambda f: forge(f, kind="EmbeddingMitigator")),
    "truncated tensors": ("size", edit(TENSORS, lambda b: b[:-1])),
    "bytes behind the tensors": ("size", edit(TENSORS, lambda b: b + b"\0")),
    "bytes behind, with a size that fits": (
        "size",
        lambda f: forge(f, blob=(f / TENSORS).read_bytes() + b"\0"),
    ),
    "a header that is none": ("header", lambda f: forge(f, blob=blob({"mean_": 3}, b""))),
    "tensors that overlap": ("overlap", overlapping),
    "a tensor of no manifest": (
        "unknown-tensor",
        lambda f: forge(
            f,
            entries={k: v for k, v in manifest_of(f)["tensors"].items() if k != "zero_"},
        ),
    ),
    "a tensor that the kind does not know": ("unknown-tensor", tensor("payload", lambda _: np.zeros(3))),
    "a tensor of the manifest alone": (
        "missing-tensor",
        lambda f: forge(
            f, entries={**manifest_of(f)["tensors"], "payload": manifest_of(f)["tensors"]["zero_"]}
        ),
    ),
    "a tensor that the kind needs": (
        "missing-tensor",
        lambda f: forge(f, tensors={k: v for k, v in tensors_of(f).items() if k != "zero_"}),
    ),
    "integers": ("dtype", tensor("zero_", lambda a: a.astype(np.int64))),
    "float32 where float64 is used": ("dtype", tensor("zero_", lambda a: a.astype(np.float32))),
    "another type than the manifest's": ("dtype", with_entry("zero_", dtype="F32", used_as="F32")),
    "another shape than the manifest's": ("shape", with_entry("zero_", shape=[1, 1])),
    "a changed tensor": ("changed-tensor", edit(TENSORS, lambda b: b[:-1] + bytes([b[-1] ^ 1]))),
    "another digest": ("changed-tensor", with_entry("zero_", sha256="0" * 64)),
    "NaN in a tensor": ("not-finite", tensor("mean_", nan)),
    "tensors that do not fit together": ("mismatch", tensor("mean_", lambda a: a[:-1])),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_every_fault_is_refused_with_its_reason_in_one_line(folder, name):
    reason, act = HOSTILE[name]
    act(folder)
    with pytest.raises(ModelFileError) as caught:
        FairerCLIP.load(folder)
    assert (caught.value.reason, "\n" in str(caught.value)) == (reason, False), caught.value
    with pytest.raises(FairerClipError) as again:
        load(folder, mapped=True)
    assert again.value.reason == reason or name == "another kind"


def test_a_path_that_is_no_folder_and_one_that_cannot_be_read(folder, monkeypatch):
    with pytest.raises(ModelFileError, match="snapshot_download") as caught:
        FairerCLIP.from_pretrained("user/name")
    assert caught.value.reason == "not-a-folder"

    def refuse(*given, **named):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ModelFileError, match="Permission denied") as caught:
        load(folder)
    assert caught.value.reason == "unreadable"


def test_the_documented_reasons_are_those_that_are_tested_and_raised():
    tested = {reason for reason, _ in HOSTILE.values()} | {"not-a-folder", "unreadable"}
    sources = [*(Path(fairerclip.__file__).parent / "model").glob("*.py")]
    sources += [
        Path(fairerclip.__file__).parent / "data" / "io" / name for name in ("strict_json.py", "tensors.py")
    ]
    text = "".join(file.read_text(encoding="utf-8") for file in sources)
    raised = set(re.findall(r'because\(\s*(?:error\.reason or )?"([a-z-]+)"', text)) | {"too-deep"}
    assert tested == documented()
    assert raised <= documented()


def test_every_truncation_is_refused_with_a_reason(folder):
    for name in (MANIFEST, TENSORS):
        whole = (folder / name).read_bytes()
        for size in range(0, len(whole), max(1, len(whole) // 150)):
            (folder / name).write_bytes(whole[:size])
            with pytest.raises(ModelFileError) as caught:
                load(folder)
            assert caught.value.reason in documented()
        (folder / name).write_bytes(whole)


def test_other_files_are_never_read(fitted, folder):
    (folder / "README.md").unlink()
    os.mkfifo(folder / "README.md")  # reading it would wait for ever
    (folder / ".git").mkdir()
    (folder / "pytorch_model.bin").symlink_to("/dev/zero")
    assert_array_equal(load(folder).scores(fitted[1].X), fitted[0].scores(fitted[1].X))


def test_a_link_to_a_folder_that_the_user_names_is_followed(fitted, folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    assert load(tmp_path / "link").classes_.tolist() == fitted[0].classes_.tolist()


# Models of three kinds -----------------------------------------------------------------------------


def models(e):
    given = {"sensitive_features": e.s, "text": e.text}
    return {
        "fourier": small().fit(e.X.astype(np.float32), e.y, **given),
        "nystroem": small(kernel="nystroem").fit(e.X, e.y, **given),
        "mitigator": EmbeddingMitigator(about=None).fit(e.X, sensitive_features=e.s),
        "leace": LEACE().fit(e.X, e.y, **given),
        "probe": LinearProbe().fit(e.X, e.y),
    }


def answers(model, X):
    return (
        [model.transform(X)]
        if isinstance(model, EmbeddingMitigator)
        else [model.transform(X), model.scores(X)]
    )


# Flips ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fourier", "mitigator", "leace"])
def test_a_flipped_byte_is_refused_or_changes_no_answer(embeddings, tmp_path, kind):
    e, rng = embeddings(n_classes=3, p=6), random.Random(1)
    folder = models(e)[kind].save(tmp_path / "model")
    whole = {name: (folder / name).read_bytes() for name in FILES}
    expected = answers(load(folder), e.X)
    for _ in range(50):
        (name,) = rng.choices(FILES, [len(whole[name]) for name in FILES])
        damaged = bytearray(whole[name])
        damaged[rng.randrange(len(damaged))] ^= rng.randrange(1, 256)
        (folder / name).write_bytes(damaged)
        if name == "README.md":
            for found, true in zip(answers(load(folder), e.X), expected, strict=True):
                assert_array_equal(found, true)
        else:
            with pytest.raises(ModelFileError):
                load(folder)
        (folder / name).write_bytes(whole[name])


# Schema ---------------------------------------------------------------------------------------------


def closed_places(value, where=()):
    """Places of the objects of a manifest to which a key can be added."""
    if isinstance(value, dict):
        yield where
        for key, item in value.items():
            yield from closed_places(item, (*where, key))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from closed_places(item, (*where, place))


OPEN = ("diagnostics", "prompts", "sensitive", "sensitive_prompts", "record", "tensors")
"""Objects whose keys are names, or free."""


@pytest.mark.parametrize("kind", ["fourier", "mitigator", "leace"])
def test_schema_and_reader_agree_on_unknown_and_missing_keys(embeddings, kind, tmp_path):
    good = manifest_of(models(embeddings(n_classes=3, p=6))[kind].save(tmp_path, overwrite=True))
    validator = jsonschema.Draft202012Validator(SCHEMA)
    validator.check_schema(SCHEMA)
    validator.validate(good)
    checked = 0
    for where in closed_places(good):
        if where and (where[-1] in OPEN or "diagnostics" in where or "record" in where):
            continue
        for change in ("add", "remove"):
            changed = json.loads(json.dumps(good))
            held = changed
            for key in where:
                held = held[key]
            if change == "add":
                held["surprise"] = 1
            else:
                held.pop(next(iter(held)), None)
            (tmp_path / MANIFEST).write_bytes(canonical(changed))
            with pytest.raises(ModelFileError):
                load(tmp_path)
            assert not validator.is_valid(json.loads(canonical(changed))), (where, change)
            checked += 1
    assert checked >= 20


# Mapped weights -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_models_answer_bit_for_bit_as_before_saving_read_or_mapped(embeddings, tmp_path, dtype):
    e = embeddings(n_classes=3, p=6)
    for name, model in models(e).items():
        folder = model.save(tmp_path / f"{name}")
        for back in (load(folder), load(folder, mapped=True), type(model).load(folder, mapped=True)):
            for found, expected in zip(
                answers(back, e.X.astype(dtype)), answers(model, e.X.astype(dtype)), strict=True
            ):
                assert_array_equal(found, expected, err_msg=name)


def test_mapped_weights_are_read_only_pages_of_the_file(embeddings, tmp_path):
    e = embeddings(n_classes=2, p=6)
    model = small(n_features=4000).fit(e.X.astype(np.float32), e.y, sensitive_features=e.s, text=e.text)
    folder = model.save(tmp_path / "model")
    back = load(folder, mapped=True)
    omega = back.features_.omega
    assert (omega.dtype, omega.flags.writeable, omega.flags.owndata) == (np.float32, False, False)
    back.predict(e.X.astype(np.float32))
    if Path("/proc/self/maps").is_file():
        maps = Path("/proc/self/maps").read_text().splitlines()
        assert any(line.endswith(str(folder / TENSORS)) and " r--s " in line for line in maps)


def test_a_mapped_model_answers_as_before_when_its_folder_is_replaced(fitted, folder):
    model, e = fitted
    mapped, expected = load(folder, mapped=True), model.scores(e.X)
    other = small(tau=0.1, random_state=1).fit(e.X, e.y, sensitive_features=e.s, text=e.text)
    other.save(folder, overwrite=True)
    assert_array_equal(mapped.scores(e.X), expected)
    assert_array_equal(load(folder, mapped=True).scores(e.X), other.scores(e.X))


# Sizes ----------------------------------------------------------------------------------------------


def test_a_model_of_float32_rows_takes_three_megabytes_and_half_of_it_in_float16(tmp_path):
    rng = np.random.default_rng(0)
    X, y, s = rng.normal(size=(200, 768)).astype(np.float32), np.arange(200) % 2, np.arange(200) // 2 % 2
    X[:, 0] += 20 * y
    model = small(n_features=1000, zero_shot=0.0).fit(X, y, sensitive_features=s)
    full, half = (model.save(tmp_path / name, precision=name) for name in ("full", "float16"))
    sizes = [sum(file.stat().st_size for file in folder.iterdir()) for folder in (full, half)]
    assert sizes[0] < 3.2e6
    assert sizes[1] < 0.52 * sizes[0]
    back = load(half)
    assert back.features_.omega.dtype == np.float32  # it computes in the precision that it had
    assert_array_equal(back.predict(X), model.predict(X))
    scores = model.scores(X)
    assert np.abs(back.scores(X) - scores).max() < 1e-3 * np.ptp(scores)
    again = load(back.save(tmp_path / "again", precision="float16"))
    assert_array_equal(again.scores(X), back.scores(X))


def test_tensors_that_float16_would_spoil_keep_their_type(fitted, tmp_path):
    model, e = fitted
    probe = LinearProbe().fit(e.X, e.y)
    probe.coef_ = probe.coef_ * 1e-9  # too small for float16
    entries = manifest_of(probe.save(tmp_path / "m", precision="float16"))["tensors"]
    assert entries["coef_"]["dtype"] == "F64"
    with pytest.raises(ParameterError, match="precision must be one of"):
        model.save(tmp_path / "n", precision="float8")
    assert not (tmp_path / "n").exists()


# Details --------------------------------------------------------------------------------------------


def test_details_are_kept_until_the_model_is_fitted_again(fitted, tmp_path):
    model, e = fitted
    known = ModelDetails(
        task="birds",
        prompts={"0": ["a"]},
        metrics=(ModelMetric("worst_group", "after", "test", 0.5, None, 0.4, 0.6, 0.95),),
    )
    back = load(model.save(tmp_path / "a", details=known))
    assert back.details_ == known
    assert load(back.save(tmp_path / "b")).details_ == known
    for name in FILES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    back.fit(e.X, e.y, sensitive_features=e.s, text=e.text)
    assert load(back.save(tmp_path / "c")).details_ == ModelDetails()
    for other in (
        LEACE().fit(e.X, e.y, sensitive_features=e.s, text=e.text),
        EmbeddingMitigator().fit(e.X, sensitive_features=e.s),
    ):
        read = load(other.save(tmp_path / type(other).__name__, details=known))
        read.fit(e.X, e.y, sensitive_features=e.s, **({"text": e.text} if isinstance(other, LEACE) else {}))
        assert not hasattr(read, "details_")


def test_details_that_are_none_are_refused(fitted, tmp_path):
    with pytest.raises(ParameterError, match="details must be ModelDetails"):
        fitted[0].save(tmp_path / "m", details={"task": "birds"})
    with pytest.raises(ParameterError, match="prompts"):
        ModelDetails(prompts={"a": "one text, and not a list"})
    with pytest.raises(ParameterError, match="finite numbers"):
        ModelMetric("worst_group", "after", "test", float("nan"))
    with pytest.raises(ParameterError, match="'before' or 'after'"):
        ModelMetric("worst_group", "during", "test", 0.5)


# What save leaves alone -----------------------------------------------------------------------------

FOREIGN = {
    "a model of Keras": {"model.json": b'{"class_name": "Sequential"}', "model.weights.h5": b"h5"},
    "another format of fairerclip.json": {MANIFEST: b'{"format": "other", "kind": "LinearProbe"}'},
    "a kind of a later version": {MANIFEST: b'{"format": "fairerclip", "kind": "FutureKind"}'},
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_folder_of_another_program_is_left_alone(fitted, tmp_path, name):
    e, folder = fitted[1], tmp_path / "foreign"
    folder.mkdir()
    files = {**FOREIGN[name], "README.md": b"mine", TENSORS: b"mine", "arrays.safetensors": b"mine"}
    for file, content in files.items():
        (folder / file).write_bytes(content)
    for model in (
        fitted[0],
        LinearProbe().fit(e.X, e.y),
        EmbeddingMitigator(about=None).fit(e.X, sensitive_features=e.s),
    ):
        with pytest.raises(OutputExistsError, match="left alone"):
            model.save_pretrained(folder)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == files


# Models that were changed after the fit -------------------------------------------------------------


@pytest.mark.parametrize("changed", [{"normalize": False}, {"decision": "prompts"}])
def test_a_parameter_that_was_set_after_the_fit_changes_no_answer(fitted, tmp_path, changed):
    model, e = fitted
    X = 3 * e.X
    expected = model.scores(X), model.fitted_.weighs_classes, model.at(tau=0.2).scores(X)
    adjusted = model.at(offsets=[0.1, 0.0, 0.0]).scores(X)
    model.set_params(**changed)
    back = load(model.save(tmp_path / "changed"))
    assert_array_equal(back.scores(X), expected[0])
    assert back.fitted_.weighs_classes == expected[1]
    if "normalize" in changed:
        assert_array_equal(model.at(tau=0.2).scores(X), expected[2])
        assert_array_equal(model.at(offsets=[0.1, 0.0, 0.0]).scores(X), adjusted)


def test_a_model_that_could_not_be_loaded_is_not_written(fitted, tmp_path):
    e = fitted[1]
    known = {"a": e.s, "b": e.y == 0}
    for changed in ({"sensitive_terms": "intersection"}, {"strength": 5.0}):
        mitigator = EmbeddingMitigator(about=None, sensitive_terms="each").fit(e.X, sensitive_features=known)
        mitigator.set_params(**changed)
        with pytest.raises(
            ModelFileError, match="could not be loaded again, so nothing is written"
        ) as caught:
            mitigator.save(tmp_path / "m")
        assert "\n" not in str(caught.value)
    probe = LinearProbe().fit(e.X, e.y)
    probe.coef_ = probe.coef_ * np.nan
    with pytest.raises(ModelFileError, match="NaN or infinity"):
        probe.save(tmp_path / "m")
    assert not (tmp_path / "m").exists()


# Forged folders, with digests that fit --------------------------------------------------------------


def with_parameter(**changes):
    return lambda folder: forge(folder, parameters={**manifest_of(folder)["parameters"], **changes})


def with_details(**changes):
    return lambda folder: forge(folder, details={**manifest_of(folder)["details"], **changes})


METRIC = {
    **dict.fromkeys(("attribute", "low", "high", "confidence")),
    "name": "a",
    "stage": "after",
    "split": "",
}
LONG = "x" * 500_000
FORGED = {
    "a huge figure": ("value", with_details(metrics=[{**METRIC, "value": 10**400}])),
    **{
        f"{odd!r} as attribute": ("value", with_details(metrics=[{**METRIC, "value": 1.0, "attribute": odd}]))
        for odd in (0, False, [])
    },
    "many prompts": ("value", with_details(prompts={"a": ["b"] * 10_001})),
    "prompts of many classes": ("value", with_details(prompts={str(k): [] for k in range(10_001)})),
    "a kernel that is none": ("mismatch", with_parameter(kernel="other")),
    "a strength out of range": ("mismatch", with_parameter(tau=5.0)),
    "huge weights": ("mismatch", tensor("score_weights_", lambda a: np.full_like(a, 1e308))),
    "an unknown array of the features": (
        "unknown-tensor",
        tensor("features.payload", lambda _: np.zeros(3)),
    ),
    "a long key": ("unknown-field", lambda f: forge(f, **{LONG: 1})),
    "a long key of the state": ("unknown-field", lambda f: forge(f, state={LONG: 1})),
    "a long detail": ("unknown-field", with_details(**{LONG: 1})),
    "a long parameter": ("unknown-field", with_parameter(**{LONG: 1})),
    "a long kind": ("kind", lambda f: forge(f, kind=LONG)),
    "a long name of a tensor": ("unknown-tensor", tensor(LONG, lambda _: np.zeros(3))),
    "a long name in the manifest": ("unknown-field", lambda f: forge(f, entries={LONG: {}})),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_folder_is_refused_in_a_short_line(folder, name):
    reason, act = FORGED[name]
    act(folder)
    with pytest.raises(ModelFileError) as caught:
        load(folder)
    assert caught.value.reason == reason, caught.value
    assert len(str(caught.value)) < 700
    assert "\n" not in str(caught.value)


def test_a_forged_bandwidth_is_refused(fitted, tmp_path):
    e = fitted[1]
    model = small(kernel="nystroem").fit(e.X, e.y, sensitive_features=e.s, text=e.text)
    for value in (1e-300, 1e300):
        folder = model.save(tmp_path / "m", overwrite=True)
        forge(folder, tensors={**tensors_of(folder), "features.bandwidth": np.array(value)})
        with pytest.raises(ModelFileError, match="bandwidth must be a number from"):
            load(folder)


def peak_of(action):
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_unknown_tensors_are_refused_before_they_are_read_and_others_are_read_once(embeddings, tmp_path):
    size, e = 8 << 20, embeddings(n_classes=3, p=6)
    for kind in ("fourier", "mitigator", "leace"):
        folder = models(e)[kind].save(tmp_path / kind)
        forge(folder, tensors={**tensors_of(folder), "payload": np.zeros(size // 8)})

        def refused(folder=folder):
            with pytest.raises(ModelFileError, match="unknown tensors") as caught:
                load(folder)
            assert caught.value.reason == "unknown-tensor"

        assert peak_of(refused) < size / 4
    rows = np.random.default_rng(0).normal(size=(20, 20_000))
    model = ZeroShot().fit(rows, text={str(k): row for k, row in enumerate(rows)})
    folder = model.save(tmp_path / "large")
    size = (folder / TENSORS).stat().st_size
    assert size < peak_of(lambda: load(folder)) < 1.9 * size


def test_tensors_that_do_not_fit_into_memory_are_refused(folder, monkeypatch):
    def full(*given, **named):
        raise MemoryError

    monkeypatch.setattr("fairerclip.model.folder_files._content", full)
    with pytest.raises(ModelFileError, match="do not fit into the memory") as caught:
        load(folder)
    assert caught.value.reason == "too-large"


def test_tensors_at_any_byte_of_the_file_are_read(fitted, folder):
    raw = (folder / TENSORS).read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = raw[8 : 8 + size] + b" "
    forge(folder, blob=struct.pack("<Q", len(header)) + header + raw[8 + size :])
    for mapped in (False, True):
        back = load(folder, mapped=mapped)
        assert_array_equal(back.scores(fitted[1].X), fitted[0].scores(fitted[1].X))
        assert back.components_.flags.aligned


def test_class_labels_of_several_types_keep_them(fitted, tmp_path):
    e = fitted[1]
    for labels in ([False, 2, 3], [0, 1.5, 2.0], ["a", 2, True]):
        model = LinearProbe().fit(e.X, e.y)
        model.classes_ = np.array(labels, dtype=object)
        back = load(model.save(tmp_path / "m", overwrite=True)).classes_.tolist()
        assert [(type(label), label) for label in back] == [(type(label), label) for label in labels]
