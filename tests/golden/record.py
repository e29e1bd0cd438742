"""Record saved models of the present version with the answers that they give.

``python tests/golden/record.py`` writes below ``model-N``, ``baseline-N`` and ``mitigator-N``, for the format
version N of the code it runs on, one folder per model: the model as `save` writes it, and ``answers.safetensors``
with what the saved model says of the rows and prompts in ``questions.safetensors``. A model is recorded once for each
version; its files must load and answer the same for ever.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from fairerclip import EmbeddingMitigator, FairerCLIP, FairerCLIPSearch, load
from fairerclip.baselines import (
    AFR,
    DFR,
    JTT,
    LEACE,
    PPA,
    PRISM,
    SFID,
    SPD,
    TIE,
    Adapter,
    BendVLM,
    CLIPClip,
    ContrastiveAdapter,
    DeAR,
    LinearProbe,
    NeutralRepresentation,
    OrthCali,
    OrthProj,
    PerceptionCLIP,
    PromptDebiasing,
    RoboShot,
    Rotation,
    WiSE,
    ZeroShot,
)
from fairerclip.baselines.baseline import Baseline
from fairerclip.data import Provenance
from fairerclip.model.archive import VERSION
from fairerclip.model.details import GroupCount, ModelDetails, ModelMetric

WIDTH, N_FEATURES = 6, 12
NAMES = np.array(["cat", "dog", "bird"])
DETAILS = ModelDetails(
    task="golden",
    simulated=True,
    labels="all",
    prompts={"cat": ["a photo of a cat"], "dog": ["a photo of a dog", "a dog"], "bird": ["<b>|a bird|</b>"]},
    sensitive={"group": ["a", "b"]},
    sensitive_prompts={"group": ["first", "second"]},
    groups=(GroupCount("cat", "a", 7), GroupCount("cat", "b", 13)),
    provenance=Provenance("ViT-B-32", None, "resize 224", "open_clip", True, WIDTH),
    metrics=(
        ModelMetric("worst_group", "before", "test", 0.5, None, 0.4, 0.6, 0.95),
        ModelMetric("worst_group", "after", "test", 0.75, None, 0.7, 0.8, 0.95),
    ),
)
OPTIONS = {"named": {"details": DETAILS}, "float16": {"precision": "float16"}}
"""Options of `save` of some models."""


class World:
    """Rows that depend on a class and a group, with prompts of both; everything from one seed."""

    def __init__(self, n_classes: int, seed: int = 0, n: int = 60) -> None:
        rng = np.random.default_rng(seed)
        self.text, self.sensitive_text = rng.normal(size=(n_classes, WIDTH)), rng.normal(size=(2, WIDTH))
        self.y = np.arange(n) % n_classes
        self.s = np.where(rng.random(n) < 0.7, self.y % 2, rng.integers(2, size=n))
        noise = 0.6 * rng.normal(size=(n, WIDTH))
        self.X = unit(self.text[self.y] + self.sensitive_text[self.s] + noise)
        self.text, self.sensitive_text = unit(self.text), unit(self.sensitive_text)

    def prompts(self) -> dict[str, np.ndarray]:
        return {"text": self.text, "sensitive_text": self.sensitive_text}


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def models() -> dict[str, object]:
    """Name → fitted model."""
    two, three = World(2), World(3)
    small = {"n_features": N_FEATURES, "random_state": 0}
    out: dict[str, object] = {}

    def add(name: str, model: object, world: World, y: object = None, **given: object) -> None:
        out[name] = model.fit(world.X, y, **{**world.prompts(), **given})

    add("defaults", FairerCLIP(**small), two, two.y)
    out["float16"] = out["defaults"]
    out["float32-rows"] = FairerCLIP(**small).fit(two.X.astype(np.float32), two.y, **two.prompts())
    large = World(2, n=300)  # enough rows of each group to choose by
    add("automatic", FairerCLIP(**small), large, large.y)
    add("no-labels", FairerCLIP(**small, refine=True), three)
    add("cosines", FairerCLIP(**small, decision="prompts", decision_zero="mean"), three, three.y)
    add("named", FairerCLIP(**small), three, NAMES[three.y], text=dict(zip(NAMES, three.text, strict=True)))
    for kernel in ("linear", "nystroem", "orthogonal", "exact"):
        add(f"kernel-{kernel}", FairerCLIP(**small, kernel=kernel), two, two.y)
    add("offsets", FairerCLIP(**small), two, two.y)
    out["offsets"] = out["offsets"].at(offsets=[0.1, -0.1])
    add("shares-kept", FairerCLIP(**small, class_weight=None, subsample={0: 0.5, 1: 1.0}), two, two.y)
    partly = np.where(np.arange(60) % 3 > 0, three.y, np.nan)
    add("partly-labelled", FairerCLIP(**small, tau=0.5, guess_weight=0.1), three, partly)
    add("class-weights", FairerCLIP(**small, class_weight={0: 0.5, 1: 2.0}), two, two.y)
    search = FairerCLIPSearch(FairerCLIP(**small))
    search.fit(two.X, two.y, validation=(two.X, two.y, two.s), **two.prompts())
    out["tuned"] = search.best_estimator_
    search = FairerCLIPSearch(FairerCLIP(**small), objective="max_skew")
    search.fit(three.X, validation=(three.X, None, three.s), **three.prompts())
    out["ranking"] = search.best_estimator_
    validation = (three.X, three.y, three.s)
    prompted = (PRISM("mini"), PerceptionCLIP(), RoboShot(), Rotation(), TIE())
    plain = (ZeroShot(), LinearProbe(), OrthProj(), OrthCali(), LEACE(), LEACE("probe"), WiSE(0.3))
    for model in (*plain, *prompted):
        name = type(model).__name__.lower() + ("-probe" if getattr(model, "head", None) == "probe" else "")
        add(f"baseline-{name}", model, three, three.y)
    for model in (JTT(5.0), AFR(2.0, random_state=0), PPA(random_state=0)):
        add(f"baseline-{type(model).__name__.lower()}", model, three, three.y)
    for model in (DFR(random_state=0), Adapter(random_state=0), ContrastiveAdapter(random_state=0)):
        add(f"baseline-{type(model).__name__.lower()}", model, three, three.y, validation=validation)
    for model in (
        CLIPClip(),
        SFID(0.3, random_state=0),
        SPD(2, random_state=0),
        BendVLM(5, max_reference=8, random_state=0),
        NeutralRepresentation(),
        DeAR(epochs=3, random_state=0),
        PromptDebiasing(epochs=3, rank=2, random_state=0),
    ):
        add(f"baseline-{type(model).__name__.lower()}", model, three)
    return out


def mitigators() -> dict[str, EmbeddingMitigator]:
    """Name → fitted mitigator."""
    world = World(3)
    y, s = NAMES[world.y], np.array(["a", "b"])[world.s]
    text = dict(zip("ab", world.sensitive_text, strict=True))
    return {
        "prompts": EmbeddingMitigator().fit(world.X, sensitive_text={"group": text}),
        "labels": EmbeddingMitigator(0.8, unit=True, about=None).fit(
            world.X, sensitive_features={"group": s}
        ),
        "labelled": EmbeddingMitigator().fit(
            world.X, sensitive_text={"group": text}, labelled=(world.X[:30], {"group": s[:30]})
        ),
        "quantity": EmbeddingMitigator().fit(world.X, sensitive_features={"amount": world.X[:, 0]}),
        "each": EmbeddingMitigator({"group": 0.5, "kind": 1.0}).fit(
            world.X, sensitive_features={"group": s, "kind": y}, sensitive_text={"group": text}
        ),
        "intersection": EmbeddingMitigator(sensitive_terms="intersection").fit(
            world.X, sensitive_features={"group": s, "kind": y}
        ),
        "nothing": EmbeddingMitigator().fit(world.X),
    }


def answers(model: object, rows: np.ndarray, text: np.ndarray) -> dict[str, np.ndarray]:
    """What a model says of rows and prompts: places of the predicted classes, scores and embeddings."""
    if isinstance(model, EmbeddingMitigator):
        return mitigated_answers(model, rows, text)
    place = {label: k for k, label in enumerate(model.classes_.tolist())}
    found = {
        "predicted": np.array([place[label] for label in model.predict(rows).tolist()]),
        "scores": model.scores(rows),
        "decision": model.decision_function(rows),
        "embedding": model.transform(rows),
    }
    if isinstance(model, FairerCLIP):
        found["probabilities"] = model.predict_proba(rows)
        found["cosines"] = model.cosines(rows)
        found["text"] = model.transform_text(asked(model, text))
    return {name: np.ascontiguousarray(value) for name, value in found.items()}


def mitigated_answers(model: EmbeddingMitigator, rows: np.ndarray, text: np.ndarray) -> dict[str, np.ndarray]:
    """What a mitigator says of rows and queries."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of the queries may be about S
        scores = model.scores(rows, text)
    meaning, drift = model.query_meaning(text), model.drift(rows)
    shares = [pair for values in drift.shares.values() for pair in values.values()]
    found = {
        "embedding": model.transform(rows),
        "scores": scores,
        "meaning": meaning.shares,
        "drift": np.array([drift.mean_shift, drift.variance_kept, *np.ravel(shares)]),
    }
    return {name: np.ascontiguousarray(value) for name, value in found.items() if value.size}


def asked(model: FairerCLIP, text: np.ndarray) -> np.ndarray:
    """Prompts that a model answers for: its own where it takes no others."""
    return text if model.prompts_ is None or model.decision == "prompts" else model.prompts_


def main() -> None:
    """Write the models that are not there yet, and their answers, in the format of the present version."""
    rng = np.random.default_rng(1)
    questions = {"rows": unit(rng.normal(size=(25, WIDTH))), "text": unit(rng.normal(size=(4, WIDTH)))}
    here = Path(__file__).parent
    homes = {
        FairerCLIP: here / f"model-{VERSION}",
        EmbeddingMitigator: here / f"mitigator-{VERSION}",
        Baseline: here / f"baseline-{VERSION}",
    }
    for home in homes.values():
        if not home.exists():
            home.mkdir()
            save_file(questions, home / "questions.safetensors")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, model in {**models(), **mitigators()}.items():
            for home in (home for kind, home in homes.items() if isinstance(model, kind)):
                folder = home / name.removeprefix("baseline-")
                if folder.exists():
                    continue
                model.save(folder, **OPTIONS.get(name, {}))
                save_file(answers(load(folder), **questions), folder / "answers.safetensors")


if __name__ == "__main__":
    main()
