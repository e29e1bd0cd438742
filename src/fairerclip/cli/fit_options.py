"""Options of `fairerclip fit`, as they were given, and which of them each kind of method has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fairerclip.cli import options

OWN = "fairerclip"
"""FairerCLIP among the methods, the default."""
EMBEDDING = "embedding"
"""EmbeddingMitigator among the methods."""
WITH_TOKENS = "prompt-debiasing"
"""Method that may learn through a text encoder."""

MethodName = Annotated[
    str | None,
    typer.Option(
        "--method",
        metavar="NAME",
        help="Method to train: fairerclip; embedding, which mitigates the embeddings for any query; or a method of the "
        "package with the setting that compare chooses, such as zero-shot, orth-proj, orth-cali, leace, probe, "
        "probe-group or wise; `compare --methods list` prints all. Default: fairerclip, or embedding where no row has "
        "a target label.",
    ),
]
MaxSteps = Annotated[
    int | None,
    typer.Option(
        callback=options.in_range,
        help="Largest number of batches of one training by gradient, for methods that are trained by it. "
        "Default: that of compare.",
    ),
]
Encoder = Annotated[
    str | None,
    typer.Option(
        help="With --method prompt-debiasing: CLIP model that embedded the task, open_clip or transformers. Tokens are "
        "then learned through its text encoder. Default: an addition in embedding space.",
    ),
]
Tune = Annotated[
    bool | None,
    typer.Option(
        "--tune/--no-tune",
        help="Search weights, ridge, τ, criterion, zero-shot share and class offsets on the validation split. "
        "Default: where one of --objective, --accuracy-floor, --max-seconds and --cv is given; or where no strength, "
        "criterion, offset, preset or parameter is given and that split has the labels that tuning needs.",
    ),
]
Objective = Annotated[
    str | None,
    typer.Option(
        help="What --tune optimises: worst_group (the default), worst_class, eod, equalized_odds or average. With "
        "--method embedding only max_skew, which chooses --strength.",
    ),
]
AccuracyFloor = Annotated[
    float | None,
    typer.Option(
        help="Smallest share of right predictions on the validation split, 0 to 1, that a model may have. If none "
        "reaches it, the most accurate one is taken, with a warning."
    ),
]
Folds = Annotated[
    int | None,
    typer.Option(
        "--cv",
        min=2,
        metavar="FOLDS",
        help="Tune by cross-validation on the training split, with this number of folds, instead of the validation "
        "split. Needs target labels.",
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(
        "--precision",
        metavar="full|float16",
        help="Precision of the written weights: full, which answers as the fitted model bit for bit, or float16, half "
        "the size and nearly the same answers (docs/reference/format.md). Default: full.",
    ),
]
MaxSeconds = Annotated[
    float | None, typer.Option(help="Time limit of --tune: no fit is started that would end later.")
]
Strength = Annotated[
    float | None,
    typer.Option(
        help="With --method embedding: strength of the mitigation, from 0 (nothing changes) to 1. Default: 0.93."
    ),
]
Collection = Annotated[
    Path | None,
    typer.Option(
        parser=options.store_path,
        metavar="STORE",
        help="With --method embedding: collection to fit on, which will be searched; it needs no labels. Sensitive "
        "values are read from the prompts and the labelled rows of the task. Default: the training split.",
    ),
]
Floor = Annotated[
    float | None,
    typer.Option(
        help="With --method embedding --objective max_skew: smallest mean rank correlation inside groups with the "
        "original rankings. Default: 0.9.",
    ),
]
MemoryBudget = Annotated[
    str | None,
    typer.Option(
        "--memory-budget",
        metavar="SIZE",
        help="Memory for features and sums besides rows and labels, e.g. 512MB or 2GB. Default: what is free.",
    ),
]


@dataclass(frozen=True)
class SearchOptions:
    """Options of FairerCLIP's search."""

    tune: bool | None = None
    objective: str | None = None
    accuracy_floor: float | None = None
    max_seconds: float | None = None
    cv: int | None = None

    def asked(self) -> dict[str, object]:
        """Return the options that ask for a search, by name."""
        names = ("objective", "accuracy_floor", "max_seconds", "cv")
        return {f"--{name.replace('_', '-')}": getattr(self, name) for name in names}


@dataclass(frozen=True)
class FitOptions:
    """Options of a fit, as they were given."""

    labels: str | None = None
    seed: int | None = None
    max_steps: int | None = None
    tau: float | None = None
    tau_z: float | None = None
    criterion: str | None = None
    preset: str | None = None
    parameters: list[str] | None = None
    offsets: str | None = None
    search: SearchOptions = SearchOptions()
    strength: float | None = None
    floor: float | None = None
    collection: Path | None = None
    memory_budget: str | None = None
    cluster: str | None = None
    encoder: str | None = None

    def check(self, key: str) -> None:
        """Raise if options are given that the method does not have."""
        from fairerclip.errors import ParameterError

        of_embedding = {
            "--strength": self.strength,
            "--floor": self.floor,
            "--collection": self.collection,
        }
        if self.encoder is not None and key != WITH_TOKENS:
            raise ParameterError(
                f"--encoder is for {WITH_TOKENS}, which learns tokens through it, but the method is {key}: leave it out"
            )
        tune = {True: "--tune", False: "--no-tune", None: ""}[self.search.tune]
        own = {**self._own(), tune: tune or None, **self.search.asked()}
        if key == EMBEDDING:
            self._check_embedding(own)
            return
        _refuse(of_embedding, EMBEDDING, key)
        if key == OWN:
            if self.max_steps is not None:
                raise ParameterError(
                    "--max-steps limits training by gradient; fairerclip has none: leave it out"
                )
            return
        scale = {
            "--memory-budget": self.memory_budget,
            "--cluster": self.cluster,
        }
        _refuse({**own, **scale}, OWN, key)

    def _check_embedding(self, own: dict[str, object]) -> None:
        from fairerclip.errors import ParameterError

        _refuse({name: own[name] for name in own if name not in ("--set", "--objective")}, OWN, EMBEDDING)
        if self.max_steps is not None:
            raise ParameterError("--max-steps limits training by gradient; embedding has none: leave it out")
        objective = self.search.objective
        if objective not in (None, "max_skew"):
            raise ParameterError(
                f"--objective of embedding is max_skew, which chooses its strength; got {objective!r}"
            )
        if self.floor is not None and objective is None:
            raise ParameterError(
                "--floor limits the choice by --objective max_skew: add that, or leave it out"
            )
        by_hand = any(item.partition("=")[0].strip() == "strength" for item in self.parameters or ())
        if (self.strength is not None or by_hand) and objective is not None:
            raise ParameterError("--strength sets what --objective max_skew chooses: leave one of them out")

    def by_hand(self) -> bool:
        """Return whether parameters or offsets of FairerCLIP were given."""
        return any(value is not None for value in self._own().values())

    def _own(self) -> dict[str, object]:
        return {
            **{
                "--tau": self.tau,
                "--tau-z": self.tau_z,
                "--criterion": self.criterion,
                "--preset": self.preset,
            },
            **{"--set": self.parameters, "--offsets": self.offsets},
        }


def _refuse(options_of: Mapping[str, object], owner: str, key: str) -> None:
    """Raise if one of the options that only ``owner`` has was given for another method."""
    from fairerclip.errors import ParameterError

    given = [name for name, value in options_of.items() if value is not None]
    if given:
        raise ParameterError(
            f"{', '.join(given)}: for {owner} only, but the method is {key}: leave "
            f"{'it' if len(given) == 1 else 'them'} out"
        )
