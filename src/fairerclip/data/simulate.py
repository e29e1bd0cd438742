"""Simulated tasks that resemble CLIP embeddings of the paper's data sets.

Row counts are those of the real data sets; the rows are random (see `geometry`) and show no real person. Strengths
are chosen so that zero-shot prediction, a plain probe, and prediction of the sensitive attribute from its prompts
have about the error rates of real embeddings. Results on these tasks reproduce no published number.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fairerclip._util.checks import check_range
from fairerclip._util.types import Ints
from fairerclip.data.geometry import Floats, Geometry, Space
from fairerclip.data.simulated_queries import free_queries
from fairerclip.data.task import Sensitive, Split, Task, Variants, load_task
from fairerclip.data.task_fields import UNNAMED
from fairerclip.errors import ParameterError

Counts = Mapping[tuple[int, int], float]  # (class, sensitive value) -> rows

WIDTH = 512
MIN_CELL = 4  # smallest number of rows of a cell at small scale, so that every group can be measured

BIRDS = ("landbird", "waterbird")
BIRD_PROMPTS = tuple(f"This is a picture of a {bird}." for bird in BIRDS)
PLACES = ("land background", "water background")
PLACE_PROMPTS = ("This is a land background.", "This is a water background.")
HAIR = ("dark hair", "blond hair")
HAIR_PROMPTS = tuple(f"A photo of a celebrity with {hair}." for hair in HAIR)
CHEEKBONES = ("low cheekbones", "high cheekbones")
CHEEKBONE_PROMPTS = tuple(f"A photo of a celebrity with {cheekbones}." for cheekbones in CHEEKBONES)
SEXES = ("female", "male")
SEX_PROMPTS = tuple(f"A photo of a {sex}." for sex in SEXES)
RACES = ("White", "Black", "East Asian", "Southeast Asian", "Indian", "Middle Eastern", "Latino")
RACE_PROMPTS = tuple(f"A photo of a {race} person." for race in RACES)
OBJECT_PROMPT = "A picture of object {}."
STYLE_PROMPT = "A picture in style {}."
ADJECTIVES = (
    *("good", "evil", "smart", "dumb", "attractive", "unattractive"),
    *("lawful", "criminal", "friendly", "unfriendly"),
)
ADJECTIVE_PROMPTS = tuple(f"This is a photo of a person who is {adjective}." for adjective in ADJECTIVES)

WORDINGS = 5
WORDING = "wording {} (simulated)"

CELLS = ((0, 0), (0, 1), (1, 0), (1, 1))
WATERBIRDS_ROWS = {
    "train": (3498, 184, 56, 1057),
    "val": (467, 466, 133, 133),
    "test": (2255, 2255, 642, 642),
}
CELEBA_ROWS = {
    "train": (71629, 66874, 22880, 1387),
    "val": (8535, 8276, 2874, 182),
    "test": (9767, 7535, 2480, 180),
}
FEMALE_SHARE = 0.58
HIGH_CHEEKBONES = (0.55, 0.35)  # P(high | female), P(high | male)
MULTICLASS_ROWS = {"train": 3000, "val": 1200, "test": 3000}
GALLERY_ROWS = {"train": 6000, "val": 1200, "test": 5000}
SEX_SHARES = (0.47, 0.53)
RACE_SHARES = (0.19, 0.14, 0.14, 0.125, 0.14, 0.11, 0.155)

WATERBIRDS = Geometry(target=1.5, hidden=0.6, sensitive=1.8, leak=0.62, offset=0.9)
CELEBA = Geometry(target=1.12, hidden=0.0, sensitive=1.7, leak=-0.18, offset=0.5, prompt_noise=0.3)
CHEEKBONE = Geometry(target=0.75, hidden=0.2, sensitive=1.7, leak=-0.08, evidence_gap=0.1)
MULTICLASS = Geometry(target=2.5, hidden=0.0, sensitive=2.4, leak=0.38, offset=0.5, prompt_noise=0.3)
GALLERY = Geometry(sensitive=1.7)
# Leak of each adjective toward male (negative: female), and the race toward which it leaks.
ADJECTIVE_LEAKS = (
    *((-0.15, 0), (0.25, 5), (0.2, 2), (0.15, 1), (-0.35, 6)),
    *((0.25, 4), (-0.15, 2), (0.35, 1), (-0.3, 3), (0.3, 5)),
)
ADJECTIVE_RACE_LEAK = 0.4


def waterbirds(seed: int = 0, width: int = WIDTH, scale: float = 1.0) -> Task:
    """Draw birds on backgrounds: 95 % agree in train, half do in val and test (a spurious correlation).

    Parameters
    ----------
    seed : int
        Equal seeds give equal tasks.
    width : int
        Width p of the embeddings.
    scale : float
        Share of the rows of the real data set; each of the four groups has at least `MIN_CELL`.

    Returns
    -------
    Task
        4795 / 1199 / 5794 rows at scale 1.

    Examples
    --------
    >>> task = waterbirds(scale=0.1, width=64)
    >>> task.name, task.train.X.shape
    ('waterbirds (simulated)', (480, 64))
    """
    counts = {split: dict(zip(CELLS, rows, strict=True)) for split, rows in WATERBIRDS_ROWS.items()}
    place = (PLACES, PLACE_PROMPTS)
    return _classified("waterbirds", WATERBIRDS, counts, (BIRDS, BIRD_PROMPTS), place, seed, width, scale)


def celeba(seed: int = 0, scale: float = 0.05, width: int = WIDTH) -> Task:
    """Draw faces with hair colour and sex: blond men are rare in every split.

    Parameters
    ----------
    seed, width : int
        As for `waterbirds`.
    scale : float
        Share of CelebA's 162,770 / 19,867 / 19,962 rows. By default there are 9 blond men in test.

    Returns
    -------
    Task
        8138 / 994 / 998 rows at the default scale.

    Examples
    --------
    >>> celeba(scale=0.002, width=64).class_names
    ('dark hair', 'blond hair')
    """
    counts = {split: dict(zip(CELLS, rows, strict=True)) for split, rows in CELEBA_ROWS.items()}
    return _classified(
        "celeba", CELEBA, counts, (HAIR, HAIR_PROMPTS), (SEXES, SEX_PROMPTS), seed, width, scale
    )


def cheekbones(seed: int = 0, scale: float = 0.05, width: int = WIDTH) -> Task:
    """Draw faces with high or low cheekbones and sex, which depend on each other in every split.

    The embedding also gives more evidence of the cheekbones for women than for men.

    Parameters
    ----------
    seed, width : int
        As for `celeba`.
    scale : float
        As for `celeba`.

    Returns
    -------
    Task
        As many rows as for `celeba`, but for rounding.

    Examples
    --------
    >>> cheekbones(scale=0.002, width=64).sensitive_attribute().names
    ('female', 'male')
    """
    high_f, high_m = HIGH_CHEEKBONES
    shares = (
        *(FEMALE_SHARE * (1 - high_f), (1 - FEMALE_SHARE) * (1 - high_m)),
        *(FEMALE_SHARE * high_f, (1 - FEMALE_SHARE) * high_m),
    )
    counts = {
        split: {cell: sum(rows) * share for cell, share in zip(CELLS, shares, strict=True)}
        for split, rows in CELEBA_ROWS.items()
    }
    target, sex = (CHEEKBONES, CHEEKBONE_PROMPTS), (SEXES, SEX_PROMPTS)
    return _classified("cheekbones", CHEEKBONE, counts, target, sex, seed, width, scale)


def multiclass(
    seed: int = 0,
    n_classes: int = 5,
    n_sensitive: int = 3,
    correlation: float = 0.9,
    *,
    scale: float = 1.0,
    width: int = WIDTH,
) -> Task:
    """Draw several objects in several styles: each object is correlated with one style in train only.

    Parameters
    ----------
    seed, width : int
        As for `waterbirds`.
    scale : float
        As for `waterbirds`.
    n_classes, n_sensitive : int
        Numbers of objects and of styles, at least two each.
    correlation : float
        Share of a class's training rows that have its style, in [1 / n_sensitive, 1].

    Returns
    -------
    Task
        3000 / 1200 / 3000 rows at scale 1.

    Examples
    --------
    >>> multiclass(scale=0.05, width=64).n_classes
    5
    """
    if min(n_classes, n_sensitive) < 2:
        raise ParameterError(f"expected at least 2 classes and 2 styles, got {n_classes} and {n_sensitive}")
    if not 1 / n_sensitive <= correlation <= 1:
        raise ParameterError(f"correlation must be in [1/{n_sensitive}, 1], got {correlation}")
    cells = [(c, k) for c in range(n_classes) for k in range(n_sensitive)]
    rest = (1 - correlation) / (n_sensitive - 1)
    counts = {split: dict.fromkeys(cells, rows / len(cells)) for split, rows in MULTICLASS_ROWS.items()}
    per_class = MULTICLASS_ROWS["train"] / n_classes
    counts["train"] = {(c, k): per_class * (correlation if k == c % n_sensitive else rest) for c, k in cells}
    objects, styles = (
        (tuple(f"{stem} {i}" for i in range(n)), tuple(prompt.format(i) for i in range(n)))
        for stem, prompt, n in (("object", OBJECT_PROMPT, n_classes), ("style", STYLE_PROMPT, n_sensitive))
    )
    return _classified("multiclass", MULTICLASS, counts, objects, styles, seed, width, scale)


def gallery(seed: int = 0, scale: float = 1.0, width: int = WIDTH) -> Task:
    """Draw portraits without class labels, for retrieval by ten adjectives whose prompts leak sex and race.

    Free queries are six occupations, which leak too, and one that asks for a sex.

    Parameters
    ----------
    seed, width : int
        As for `waterbirds`.
    scale : float
        As for `waterbirds`.

    Returns
    -------
    Task
        6000 / 1200 / 5000 rows at scale 1, sensitive attributes ``sex`` and ``race``.

    Examples
    --------
    >>> task = gallery(scale=0.02, width=64)
    >>> sorted(task.sensitive), task.train.y is None
    (['race', 'sex'], True)
    """
    rng = _rng("gallery", seed, scale)
    n_pairs = len(ADJECTIVES) // 2
    space = Space(GALLERY, n_pairs, (len(SEXES), len(RACES)), width, rng, traits=True)
    sex_code, race_codes = space.sensitive_codes[0][1], space.sensitive_codes[1]
    directions = [
        space.direction(
            (1 - 2 * (j % 2)) * space.class_codes[j // 2],
            [to_male * sex_code, ADJECTIVE_RACE_LEAK * race_codes[race]],
        )
        for j, (to_male, race) in enumerate(ADJECTIVE_LEAKS)
    ]
    text = space.texts(np.stack(directions))
    sensitive = {
        "sex": Sensitive("sex", SEXES, SEX_PROMPTS, space.sensitive_texts(0)),
        "race": Sensitive("race", RACES, RACE_PROMPTS, space.sensitive_texts(1)),
    }
    splits = {}
    for (split, rows), child in zip(GALLERY_ROWS.items(), rng.spawn(len(GALLERY_ROWS)), strict=True):
        n = max(MIN_CELL * len(RACES), round(rows * scale))
        s: dict[str, Ints] = {
            name: child.choice(len(shares), size=n, p=shares).astype(np.int64)
            for name, shares in (("sex", SEX_SHARES), ("race", RACE_SHARES))
        }
        splits[split] = Split(space.images(None, list(s.values()), child), None, s)
    words = _wordings("gallery", seed, scale, lambda other: space.texts(np.stack(directions), rng=other))
    return Task(
        _title("gallery"),
        splits,
        text,
        ADJECTIVE_PROMPTS,
        ADJECTIVES,
        sensitive,
        simulated=True,
        variants=words,
        queries=free_queries(space, _rng("gallery queries", seed, scale)),
    )


GENERATORS: dict[str, Callable[..., Task]] = {
    "waterbirds": waterbirds,
    "celeba": celeba,
    "cheekbones": cheekbones,
    "multiclass": multiclass,
    "gallery": gallery,
}


def simulate(name: str, *, seed: int = 0, scale: float | None = None, width: int | None = None) -> Task:
    """Draw one of the simulated tasks by name.

    Parameters
    ----------
    name : {"waterbirds", "celeba", "cheekbones", "multiclass", "gallery"}
        Name of the task.
    seed : int
        Equal seeds give equal tasks.
    scale : float, optional
        Share of the rows; by default 0.05 for ``celeba`` and ``cheekbones``, and 1 for the others.
    width : int, optional
        Width p of the embeddings; by default 512.

    Returns
    -------
    Task
        With ``simulated=True``. Time and memory are those of two arrays of its rows.

    Raises
    ------
    ParameterError
        The name is not one of these, or a number is out of range.

    Examples
    --------
    >>> simulate("waterbirds", scale=0.05, width=64).simulated
    True
    """
    if name not in GENERATORS:
        raise ParameterError(f"no simulated task {name!r}; there are {', '.join(GENERATORS)}")
    options: dict[str, Any] = {"scale": scale, "width": width}
    return GENERATORS[name](seed=seed, **{key: value for key, value in options.items() if value is not None})


LONGEST_SEED = 20
"""Most digits of a seed: Python refuses to parse numbers of thousands of digits."""


def is_simulated(source: str | os.PathLike[str]) -> bool:
    """Return whether a task is named as ``simulated:NAME`` and not as a file."""
    return os.fspath(source).startswith("simulated:")


def open_task(source: str | os.PathLike[str]) -> Task:
    """Read a task file, or draw a simulated task given as ``simulated:NAME`` or ``simulated:NAME@SEED``.

    Examples
    --------
    >>> open_task("simulated:waterbirds@3").name
    'waterbirds (simulated)'
    """
    if not is_simulated(source):
        return load_task(source)
    rest = os.fspath(source).partition(":")[2]
    name, _, seed = rest.partition("@")
    if seed and not (seed.isascii() and seed.isdigit() and len(seed) <= LONGEST_SEED):
        raise ParameterError(f"a simulated task is simulated:NAME or simulated:NAME@SEED; got {source!s}")
    return simulate(name, seed=int(seed or 0))


def _title(name: str) -> str:
    return f"{name} (simulated)"


def _rng(name: str, seed: int, scale: float) -> np.random.Generator:
    check_range("seed", seed)
    if not (0 < scale < np.inf):
        raise ParameterError(f"scale must be a positive number, got {scale!r}")
    return np.random.default_rng(
        [seed, *name.encode()]
    )  # with the name, so that tasks have different rotations


def _wordings(
    name: str, seed: int, scale: float, reworded: Callable[[np.random.Generator], Floats]
) -> Variants:
    """Draw other wordings of the class prompts, with a generator of their own: no image or prompt depends on them."""
    rng = _rng(f"{name} wordings", seed, scale)
    text = np.stack([reworded(rng) for _ in range(WORDINGS)])
    return Variants(text, tuple(WORDING.format(i + 1) for i in range(WORDINGS)))


def _rows(counts: Counts, scale: float, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Return classes and sensitive values (n,) with exact counts, in random order."""
    sizes = [0 if n == 0 else max(MIN_CELL, round(n * scale)) for n in counts.values()]
    cells = np.repeat(np.array(list(counts), dtype=np.int64), sizes, axis=0)  # (n, 2)
    cells = cells[rng.permutation(len(cells))]
    return np.ascontiguousarray(cells[:, 0]), np.ascontiguousarray(cells[:, 1])


def _classified(
    name: str,
    geometry: Geometry,
    counts: Mapping[str, Counts],
    target: Sequence[tuple[str, ...]],
    sensitive: Sequence[tuple[str, ...]],
    seed: int,
    width: int,
    scale: float,
) -> Task:
    """Draw a task with classes and one sensitive attribute, each given as (names, prompts)."""
    rng = _rng(name, seed, scale)
    space = Space(geometry, len(target[0]), (len(sensitive[0]),), width, rng)
    text: Floats = space.class_texts()
    attribute = Sensitive(UNNAMED, sensitive[0], sensitive[1], space.sensitive_texts())
    splits = {}
    for (split, cells), child in zip(counts.items(), rng.spawn(len(counts)), strict=True):
        y, s = _rows(cells, scale, child)
        splits[split] = Split(space.images(y, [s], child), y, {UNNAMED: s})
    words = _wordings(name, seed, scale, space.reworded)
    attributes = {UNNAMED: attribute}
    return Task(_title(name), splits, text, target[1], target[0], attributes, simulated=True, variants=words)
