"""Options that several commands share, and the objects that are made from them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairerclip._util.checks import check_range
from fairerclip._util.files import check_name, is_url, local_output

if TYPE_CHECKING:
    from fairerclip.data.datasets.common import DatasetIndex
    from fairerclip.embedding.mitigator import EmbeddingMitigator
    from fairerclip.encoders.choice import ModelChoice
    from fairerclip.experiment import Experiment
    from fairerclip.model.estimator import FairerCLIP

GRID_VALUES = 10_000
"""Largest number of values of a grid."""


def in_range(option: typer.CallbackParam, value: int | None) -> int | None:
    """Return the value of a numeric option; raise before any work if it is out of range."""
    if value is not None:
        check_range(str(option.name), value, f"--{option.name}".replace("_", "-"))
    return value


def output_path(text: str | Path) -> Path:
    """Return a path to write to; raise before any work if it cannot be the name of a file."""
    if not str(text):  # Path("") would mean the current folder
        raise typer.BadParameter("expected the name of a file or folder; got ''")
    path = local_output(text)
    check_name(path)
    return path


def store_path(text: str | Path) -> Any:
    """Return the place of a store: a path, or what a URL such as ``s3://bucket/folder`` leads to.

    Arguments of type Path would lose one of the slashes.
    """
    if not is_url(str(text)):
        return Path(text)
    from fairerclip.data.io.remote_path import as_location

    return as_location(text)


def as_text(path: Path) -> str:
    """Return a path as text, with ? for each byte of its name that is not valid text."""
    return str(path).encode(errors="replace").decode()


def writes(*names: str, help: str) -> Any:  # noqa: A002 - as typer calls it
    """Return an option whose value is a path to write to."""
    return typer.Option(*names, parser=output_path, metavar="PATH", help=help)


_TASK = typer.Argument(
    metavar="TASK",
    help="Task file (.npz or .safetensors), or simulated:NAME for a simulated one (waterbirds, celeba, "
    "cheekbones, multiclass, gallery).",
)
TaskFile = Annotated[Path, _TASK]
TaskFileOrNone = Annotated[Path | None, _TASK]
Labels = Annotated[
    str | None,
    typer.Option(
        help="Labels that training may use: none, target (y) or all (y and s). Default: target where the "
        "task has y, else none. EmbeddingMitigator learns from no y.",
    ),
]
SensitiveNames = Annotated[
    str | None,
    typer.Option("--sensitive", help="Sensitive attributes, comma-separated. Default: the task's only one."),
]
ClassNames = Annotated[
    str | None,
    typer.Option("--classes", help="Classes to use, comma-separated, e.g. a pair of prompts. Default: all."),
]
Mitigate = Annotated[
    bool,
    typer.Option(
        "--mitigate",
        help="Fit a model on the training split, and show it as after: FairerCLIP, tuned on the validation split, or "
        "EmbeddingMitigator where no row has a target label.",
    ),
]
After = Annotated[
    Path | None, typer.Option(help="Folder of a fitted model to show as after; nothing is fitted.")
]
Tau = Annotated[float | None, typer.Option(help="Weight of the dependence on S, image side; in [0, 1).")]
TauZ = Annotated[
    float | None, typer.Option(help="Weight of the image-text alignment, image side; in [0, 1).")
]
Parameters = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any parameter of FairerCLIP, or of the method embedding; may be repeated.",
    ),
]
Offsets = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBERS",
        help="Numbers to add to the class scores, comma-separated, one per class: those that an earlier search "
        "learned. Nothing is tuned.",
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        metavar="paper|DATASET/SOURCE[/BACKBONE]",
        help="Published parameters: paper for the method as published, or those of a dataset, e.g. waterbirds/paper, "
        "celeba/released/RN50. With a preset nothing is tuned by default.",
    ),
]
Criterion = Annotated[
    str | None, typer.Option(help="Dependence on S to reduce: marginal, or conditional (inside each class).")
]
Seed = Annotated[
    int | None,
    typer.Option(callback=in_range, help="Random seed. Default: the preset's, else 0."),
]
Jobs = Annotated[
    int | None,
    typer.Option(callback=in_range, help="Processes that run at the same time. Default: one per core."),
]
AuditedSplit = Annotated[
    str | None, typer.Option("--split", help="Split to audit. Default: test, else val, else train.")
]
ResultsShown = Annotated[
    int | None,
    typer.Option("--k", help="Number of results of a search. Default: 1000, or a quarter of the rows."),
]
Pair = Annotated[
    str | None,
    typer.Option(
        metavar="A,B",
        help="The two groups of Bias@k, comma-separated: positive if A is shown more often. Crossed values have their "
        "commas, e.g. 'female, old, male, old'. Default: both groups where there are two.",
    ),
]
Prompts = Annotated[
    str | None,
    typer.Option("--prompts", metavar="NAME_OR_FILE", help="Prompt set. Default: the dataset's own."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables; errors too.")]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", help="Print everything that was measured, not only the answer and one table."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the output if it exists.")]

MODELS = "RN50, ViT-B/32, ViT-B/16, ViT-L/14 (OpenAI's), open_clip:ARCHITECTURE, transformers:FOLDER or onnx:FOLDER"
WEIGHTS = "for open_clip: .safetensors file, model folder, or pretrained tag in the cache"
PREPROCESSING = (
    "for weights that do not name theirs: JSON file, or a pretrained tag whose preprocessing is used"
)
EACH = "Give it once per --model, in the same order, with - for none"
Model = Annotated[str | None, typer.Option(help=f"CLIP model: {MODELS}.")]
Models = Annotated[list[str] | None, typer.Option(help=f"CLIP model, may be repeated: {MODELS}.")]
Weights = Annotated[str | None, typer.Option(help=f"Weights, {WEIGHTS}.")]
WeightsOfEach = Annotated[list[str] | None, typer.Option("--weights", help=f"Weights, {WEIGHTS}. {EACH}.")]
Preprocessing = Annotated[str | None, typer.Option(help=f"Preprocessing, {PREPROCESSING}.")]
PreprocessingOfEach = Annotated[
    list[str] | None, typer.Option("--preprocessing", help=f"Preprocessing, {PREPROCESSING}. {EACH}.")
]
Device = Annotated[str, typer.Option(help="Device of torch: cpu, cuda or mps.")]
Download = Annotated[bool, typer.Option("--download", help="Download missing weights from the model hub.")]
Workers = Annotated[int, typer.Option(callback=in_range, help="Threads that decode images.")]
Margin = Annotated[
    str | None,
    typer.Option(help="Margin of FairFace's images, 0.25 or 1.25; needed where the folder has both."),
]


def chosen_model(
    model: str | None, weights: str | None, preprocessing: str | None, device: str, download: bool
) -> ModelChoice | None:
    """Return the CLIP model that these options name, None without ``--model``; raise if only the others are given."""
    from fairerclip.encoders.choice import ModelChoice
    from fairerclip.errors import ParameterError

    if model is not None:
        return ModelChoice(model, weights, preprocessing, device, download)
    if weights is not None or preprocessing is not None or download:
        raise ParameterError(
            "--weights, --preprocessing and --download set how --model is loaded; give --model too"
        )
    return None


def parse_grid(text: str | None, name: str) -> list[float] | None:
    """Read a grid of numbers, ``START:STOP:COUNT`` or comma-separated.

    Examples
    --------
    >>> parse_grid("0:1:3", "taus")
    [0.0, 0.5, 1.0]
    >>> parse_grid("0.2,0.7", "taus")
    [0.2, 0.7]
    """
    import numpy as np

    from fairerclip.errors import ParameterError

    if text is None:
        return None
    try:
        if ":" in text:
            start, stop, count = text.split(":")
            values = np.linspace(float(start), float(stop), min(int(count), GRID_VALUES + 1)).tolist()
        else:
            values = [float(v) for v in text.split(",")]
    except ValueError:
        values = []
    if not values:
        raise ParameterError(f"{name} expects START:STOP:COUNT or comma-separated numbers; got {text!r:.60}")
    if len(values) > GRID_VALUES:
        raise ParameterError(f"{name} expects at most {GRID_VALUES:,} values; got {text!r:.60}")
    return [float(v) for v in values]


def split_names(value: str | None) -> list[str] | None:
    """Split comma-separated names into a list; None stays None."""
    return None if value is None else [name.strip() for name in value.split(",") if name.strip()]


def parse_pair(text: str) -> tuple[str, ...]:
    """Split the two groups of ``--pair`` at the comma in the middle, for crossed values have commas of their own.

    Without such a comma the text stays whole, and is refused where the groups are known.

    Examples
    --------
    >>> parse_pair("female,male"), parse_pair("female, old, male, old"), parse_pair("female")
    (('female', 'male'), ('female, old', 'male, old'), ('female',))
    """
    commas = [place for place, letter in enumerate(text) if letter == ","]
    if len(commas) % 2 == 0:
        return (text,)
    middle = commas[len(commas) // 2]
    return text[:middle].strip(), text[middle + 1 :].strip()


def load_experiment(task: Path, sensitive: str | None, classes: str | None) -> Experiment:
    """Read a task and select its sensitive attributes and classes."""
    from fairerclip.data import open_task
    from fairerclip.experiment import Experiment

    return Experiment.of(open_task(task), split_names(sensitive), split_names(classes))


def default_labels(labels: str | None, experiment: Experiment) -> str:
    """Return ``--labels``, by default target where the training split has target labels, else none."""
    if labels is not None:
        return labels
    train = experiment.task.splits.get("train")
    known = train is None or (train.y is not None and (train.y >= 0).any())
    return "target" if known else "none"  # without a training split the fit raises its own error


def _value(text: str) -> Any:
    """Parse the value of ``--set``: None, True, False, a number, a list or mapping as JSON, or else a string."""
    if text in ("None", "none"):
        return None
    if text in ("True", "False"):
        return text == "True"
    if text.startswith(("[", "{")):
        import json

        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    for number_type in (int, float):
        try:
            return number_type(text)
        except ValueError:
            continue
    return text


def parse_offsets(text: str) -> list[float]:
    """Return the numbers of ``--offsets``."""
    from fairerclip.errors import ParameterError

    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise ParameterError(f"--offsets expects numbers such as 0.1,-0.1; got {text!r:.200}") from None


def prompts_for(index: DatasetIndex, given: str | None) -> str:
    """Return the prompts that were given for a data set, or those of the package; raise if there are neither."""
    from fairerclip.errors import ParameterError

    source = given or index.prompts
    if source is None:
        raise ParameterError(
            f"no prompts are shipped for {index.name}; give --prompts with your own file, or with a set of the package "
            "that has names for its classes and its --sensitive attributes (docs/how-to/datasets.md)"
        )
    return source


def parse_parameters(items: list[str] | None, known: Collection[str]) -> dict[str, Any]:
    """Return the values of ``--set`` by name; raise for a name that is not known."""
    from fairerclip.errors import ParameterError

    given: dict[str, Any] = {}
    for item in items or []:
        name, equals, text = item.partition("=")
        if not equals or name.strip() not in known:
            names = ", ".join(sorted(known))
            raise ParameterError(f"--set expects NAME=VALUE with NAME one of {names}; got {item!r}")
        given[name.strip()] = _value(text.strip())
    return given


def build_model(
    preset: str | None,
    parameters: list[str] | None,
    seed: int | None,
    **named: Any,
) -> FairerCLIP:
    """Make an unfitted model from a preset, ``--set`` and named options; the later of these take precedence."""
    from fairerclip.model.estimator import FairerCLIP

    model = FairerCLIP(random_state=0)
    if preset is not None:
        dataset, source, *backbone = [*preset.split("/", 2), "paper"][: max(2, preset.count("/") + 1)]
        model = FairerCLIP.preset(dataset, source=source, **({"backbone": backbone[0]} if backbone else {}))
    given: dict[str, Any] = {"random_state": model.random_state if seed is None else seed}
    given |= parse_parameters(parameters, model.get_params())
    given |= {name: value for name, value in named.items() if value is not None}
    model.set_params(**given)
    return model


def build_mitigator(parameters: list[str] | None, **named: Any) -> EmbeddingMitigator:
    """Make an unfitted `EmbeddingMitigator` from ``--set`` and named options; the later of these take precedence."""
    from fairerclip.embedding.mitigator import EmbeddingMitigator

    given = parse_parameters(parameters, EmbeddingMitigator().get_params())
    given |= {name: value for name, value in named.items() if value is not None}
    return EmbeddingMitigator(**given)
