"""Agreement of exported models with the package on real tasks, and what half precision and int8 would cost.

``python benchmarks/exported.py DATA [--tasks celeba_blond,pacs]`` fits every kind of model on each task, writes it as
ONNX and for torch, and prints a line for each: largest difference of a score, share of equal labels over all rows,
sizes of the files, and the time of a prediction relative to the package. The last columns round the constants of
the same graph to float16, or to int8 by column, and compute in float32: the mildest form of either.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

from fairerclip import EmbeddingMitigator, FairerCLIP, load_task
from fairerclip.baselines import (
    DFR,
    LEACE,
    Adapter,
    ContrastiveAdapter,
    LinearProbe,
    OrthCali,
    OrthProj,
    WiSE,
    ZeroShot,
)
from fairerclip.experiment import Experiment
from fairerclip.export.computation import Computation
from fairerclip.export.model_computation import computation_of
from fairerclip.export.onnx_file import onnx_bytes
from fairerclip.export.torch_file import write_pt2

TASKS = ("celeba_blond", "celeba_cheekbones", "celeba_attractive", "pacs")
REPEATS = 20


def models() -> Iterator[tuple[str, Any]]:
    """Yield every kind of model, with the parameters that change its graph."""
    quick = {"epochs": 2, "random_state": 0}
    yield "FairerCLIP", FairerCLIP(random_state=0)
    yield "FairerCLIP, as published", FairerCLIP.preset("paper").set_params(random_state=0)
    yield "FairerCLIP, nystroem", FairerCLIP(kernel="nystroem", n_features=500, random_state=0)
    yield "FairerCLIP, linear", FairerCLIP(kernel="linear", random_state=0)
    yield "EmbeddingMitigator", EmbeddingMitigator()
    for model in (ZeroShot(), LinearProbe(), WiSE(), LEACE(), LEACE("probe"), OrthProj(), OrthCali()):
        yield model.title, model
    yield "DFR", DFR(random_state=0)
    yield "Adapter", Adapter(**quick)
    yield "Contrastive Adapter", ContrastiveAdapter(**quick)


def fitted(model: Any, experiment: Experiment) -> Any:
    """Fit a model on the training rows, with target labels; labels of validation rows where a baseline takes them."""
    given = experiment.arguments("target")
    X, y = given.pop("X"), given.pop("y")
    if isinstance(model, EmbeddingMitigator):
        return model.fit(X, sensitive_text=given["sensitive_text"])
    if not isinstance(model, FairerCLIP):
        task = experiment.task
        given["validation"] = (task.val.X, experiment.target(task.val), experiment.groups(task.val))
    return model.fit(X, y, **given)


def rounded(computation: Computation, how: Callable[[np.ndarray], np.ndarray]) -> Computation:
    """Return a computation whose arrays are rounded."""
    steps = [
        replace(
            step,
            **{f.name: how(v) for f in fields(step) if isinstance(v := getattr(step, f.name), np.ndarray)},
        )
        for step in computation.steps
    ]
    return replace(computation, steps=steps)


def to_half(array: np.ndarray) -> np.ndarray:
    """Round to float16."""
    return array.astype(np.float16).astype(np.float64)


def to_int8(array: np.ndarray) -> np.ndarray:
    """Round to 255 values in each column; vectors stay as they are."""
    if array.ndim < 2:
        return array
    scale = np.abs(array).max(axis=0) / 127
    return np.round(array / np.where(scale > 0, scale, 1)) * scale


def session(content: bytes) -> Any:
    """Return a session of onnxruntime, which uses all cores as the package does."""
    return onnxruntime.InferenceSession(content)


def compared(found: np.ndarray, true: np.ndarray, classifier: bool) -> tuple[float, float]:
    """Return the largest difference, and the share of rows with the same largest score."""
    same = float((found.argmax(axis=1) == true.argmax(axis=1)).mean()) if classifier else float("nan")
    return float(np.abs(found - true).max()), same


def seconds(function: Callable[[], Any]) -> float:
    """Return the shortest time of some calls."""
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return min(times)


def line(task: str, name: str, model: Any, X: np.ndarray, folder: Path) -> list[str]:
    """Return the cells of a model."""
    computation = computation_of(model)
    classifier = computation.part == "classifier"
    package = model.scores if classifier else model.transform
    output = "scores" if classifier else "mitigated"
    content, true = onnx_bytes(computation), package(X)
    run = session(content)
    onnx = run.run([output], {"embedding": X})[0]
    archive = write_pt2(model, folder / "model.pt2", overwrite=True)
    program = torch.export.load(archive).module()
    found = program(torch.from_numpy(X))
    in_torch = (found["scores"] if classifier else found).detach().numpy()
    ratios = [
        seconds(lambda rows=rows: run.run([output], {"embedding": rows}))
        / seconds(lambda rows=rows: package(rows))
        for rows in (X, X[:1])
    ]
    cells = [task, name]
    for values in (onnx, in_torch):
        worst, same = compared(values, true, classifier)
        cells += [f"{worst:.1e}", f"{100 * same:.3f}" if classifier else "–"]
    cells += [
        f"{len(content) / 1e6:.2f}",
        f"{archive.stat().st_size / 1e6:.2f}",
        *(f"{ratio:.2f}" for ratio in ratios),
    ]
    for how in (to_half, to_int8):
        values = session(onnx_bytes(rounded(computation, how))).run([output], {"embedding": X})[0]
        worst, same = compared(values, true, classifier)
        cells += [f"{worst:.1e}", f"{100 * same:.2f}" if classifier else "–"]
    return cells


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", default=",".join(TASKS))
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    head = "task, model, onnx Δ, onnx labels %, torch Δ, torch labels %, onnx MB, pt2 MB, "
    head += "onnx time / package, of one row, float16 Δ, float16 labels %, int8 Δ, int8 labels %"
    print(f"| {head.replace(', ', ' | ')} |\n|{'---|' * (head.count(', ') + 1)}")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in asked.tasks.split(","):
            task = load_task(asked.data / f"{name}.npz")
            X = np.concatenate([split.X for split in task.splits.values()]).astype(np.float32)
            for title, model in models():
                made = fitted(model, Experiment.of(task))
                print(f"| {' | '.join(line(name, title, made, X, Path(folder)))} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
