"""Options of each dataset of `fairerclip task`, as arguments of its reader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fairerclip.cli import options

ReaderOptions = Callable[..., dict[str, Any]]
"""Function with the name of a dataset, whose parameters are the options of the command."""

Target = Annotated[str, typer.Option(help="blond, cheekbones, attractive, or any attribute of CelebA.")]
Sensitive = Annotated[str, typer.Option(help="Sensitive attributes, comma-separated.")]
SplitSeed = Annotated[
    int, typer.Option("--seed", callback=options.in_range, help="Seed of the random split.")
]
SHARES = "0.5,0.1,0.4"
"""Shares of train, val and test of a random split, unless others are given."""
SplitShares = Annotated[
    str | None,
    typer.Option(
        "--shares",
        help=f"Shares of train, val and test of the random split, such as 0,0,1 for test alone. Default: {SHARES}.",
    ),
]
FaceAttributes = Annotated[
    str, typer.Option("--sensitive", help="Any of sex, race and age, comma-separated.")
]
Perceived = Annotated[
    str, typer.Option("--sensitive", help="Any of gender, age and skin_tone as perceived, comma-separated.")
]
ListFile = Annotated[
    Path | None, typer.Option("--file", help="The list below ROOT. Default: metadata.csv or metadata_*.csv.")
]
ImageFolder = Annotated[
    Path | None, typer.Option("--images", help="Folder of the images below ROOT. Default: ROOT.")
]
PathColumn = Annotated[str, typer.Option("--filename", help="Column of image paths.")]
ListSplit = Annotated[
    str | None, typer.Option("--split", help="Column of splits; 'none' for a random split by --seed.")
]
SplitNames = Annotated[
    str | None,
    typer.Option(
        "--split-names",
        help="Split of values of the column of splits that have other names, comma-separated, such as "
        "id_val=val,id_test=none; 'none' leaves rows out.",
    ),
]
ListTarget = Annotated[str, typer.Option("--target", help="Column of the target; 'none' for a gallery.")]
ListSensitive = Annotated[
    str,
    typer.Option(
        "--sensitive", help="Columns of sensitive attributes, comma-separated: COLUMN or NAME=COLUMN."
    ),
]
ClassNames = Annotated[
    str | None, typer.Option("--classes", help="Names of the classes 0, 1 …, comma-separated.")
]
ValueNames = Annotated[
    list[str] | None,
    typer.Option("--values", help="ATTRIBUTE=NAME,NAME …: names of the values 0, 1 …; once per attribute."),
]


def waterbirds() -> dict[str, Any]:
    """Waterbirds: bird by background, with metadata.csv and its splits."""
    return {}


def celeba(target: Target = "blond", sensitive: Sensitive = "Male") -> dict[str, Any]:
    """CelebA in the MMLAB or the Kaggle layout, with its official splits."""
    return {"target": target, "sensitive": options.split_names(sensitive)}


def fairface(margin: options.Margin = None) -> dict[str, Any]:
    """FairFace: sex, race and age; no target, so prompts are queries."""
    return {"margin": margin}


def cfd(shares: SplitShares = None, seed: SplitSeed = 0) -> dict[str, Any]:
    """Chicago Face Database: neutral faces, attractiveness above its mean by sex; split at random."""
    return _random_split(shares, seed)


def utkface(
    sensitive: FaceAttributes = "sex,race,age", shares: SplitShares = None, seed: SplitSeed = 0
) -> dict[str, Any]:
    """UTKFace: sex, race and age from file names; no target, so prompts are queries; split at random."""
    return {"sensitive": _names_of(sensitive), **_random_split(shares, seed)}


def facet(
    sensitive: Perceived = "gender,age,skin_tone", shares: SplitShares = None, seed: SplitSeed = 0
) -> dict[str, Any]:
    """FACET: occupations by perceived gender, age and skin tone, of images with one person; split at random."""
    return {"sensitive": _names_of(sensitive), **_random_split(shares, seed)}


def metadata(
    file: ListFile = None,
    images: ImageFolder = None,
    filename: PathColumn = "filename",
    split: ListSplit = "split",
    target: ListTarget = "y",
    sensitive: ListSensitive = "a",
    classes: ClassNames = None,
    values: ValueNames = None,
    split_names: SplitNames = None,
    shares: SplitShares = None,
    seed: SplitSeed = 0,
) -> dict[str, Any]:
    """Any list of images in CSV with splits, classes and sensitive values, as of WILDS or SubpopBench."""
    from fairerclip.errors import ParameterError

    drawn = split == "none"
    if shares is not None and not drawn:
        raise ParameterError("--shares is for a random split: give --split none too, or leave it out")
    if split_names is not None and drawn:
        raise ParameterError("--split-names is for a column of splits: leave it out, or --split none")
    return {
        "file": file,
        "images": "" if images is None else images,
        "filename": filename,
        "split": None if drawn else split,
        "target": None if target == "none" else target,
        "sensitive": _attribute_columns(sensitive),
        "class_names": options.split_names(classes),
        "value_names": _value_names(values or []),
        "split_names": None if split_names is None else _split_names(split_names),
        **_random_split(shares, seed),
    }


def split_shares(text: str) -> tuple[float, float, float]:
    """Parse the value of --shares."""
    from fairerclip.errors import ParameterError

    try:
        train, val, test = (float(v) for v in text.split(","))
    except ValueError:
        raise ParameterError(f"--shares expects three numbers, e.g. {SHARES}; got {text!r:.80}") from None
    return train, val, test


def _random_split(shares: str | None, seed: int) -> dict[str, Any]:
    """Return the arguments of a random split; without shares a reader has its own."""
    from fairerclip.data.stratified_split import check_shares

    if shares is None:
        return {"seed": seed}
    drawn = split_shares(shares)
    check_shares(drawn, seed)
    return {"shares": drawn, "seed": seed}


def _split_names(text: str) -> dict[str, str | None]:
    """Parse the value of --split-names: VALUE=SPLIT, comma-separated; the split 'none' leaves rows out."""
    from fairerclip.errors import ParameterError

    found: dict[str, str | None] = {}
    for part in _names_of(text):
        value, equals, name = (piece.strip() for piece in part.partition("="))
        if not (equals and value and name) or value in found:
            raise ParameterError(
                f"--split-names expects VALUE=train, val, test or none, each value once; got {text!r:.80}"
            )
        found[value] = None if name == "none" else name
    return found


def _names_of(text: str) -> tuple[str, ...]:
    return tuple(options.split_names(text) or ())


def _attribute_columns(text: str) -> dict[str, str]:
    """Parse the value of --sensitive: COLUMN or NAME=COLUMN, comma-separated."""
    from fairerclip.errors import ParameterError

    found: dict[str, str] = {}
    for part in _names_of(text):
        name, _, column = (piece.strip() for piece in part.partition("="))
        if not name or name in found or ("=" in part and not column):
            raise ParameterError(f"--sensitive expects different COLUMN or NAME=COLUMN; got {text!r:.80}")
        found[name] = column or name
    return found


def _value_names(given: Sequence[str]) -> dict[str, list[str]]:
    """Parse the values of --values: ATTRIBUTE=NAME,NAME."""
    from fairerclip.errors import ParameterError

    found: dict[str, list[str]] = {}
    for text in given:
        attribute, equals, names = text.partition("=")
        if not equals or not attribute.strip() or attribute.strip() in found:
            raise ParameterError(f"--values expects ATTRIBUTE=NAME,NAME once per attribute; got {text!r:.80}")
        found[attribute.strip()] = options.split_names(names) or []
    return found


COMMANDS: tuple[ReaderOptions, ...] = (waterbirds, celeba, fairface, cfd, utkface, facet, metadata)
"""One function per command, in the order of the help text."""
