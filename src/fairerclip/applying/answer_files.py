"""Files of a model's answers: everything as ``.npz``, or a table as ``.csv`` or ``.parquet``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.extras import require
from fairerclip._util.files import check_free
from fairerclip.applying.apply import TopRow
from fairerclip.data.io.csv_table import write_table
from fairerclip.data.io.parquet_table import write_parquet
from fairerclip.errors import ParameterError

ENDINGS = (".npz", ".csv", ".parquet")


def check_predictions_path(path: Path, overwrite: bool) -> None:
    """Raise for a file ending that is not written, a missing library for it, or a path that exists."""
    if path.suffix not in ENDINGS:
        raise ParameterError(f"the output must end in {' or '.join(ENDINGS)}; got {path.name!r}")
    if path.suffix == ".parquet":
        require("pyarrow.parquet", "parquet", "writing parquet")
    check_free(path, overwrite)


def answer_columns(
    answers: Mapping[str, NDArray[Any]], names: Iterable[str], start: int = 0
) -> dict[str, list[Any]]:
    """Return the columns of a table with a row per image, for the rows from number ``start`` on.

    ``answers`` holds ``score`` (b, c), ``prediction`` (b,) and, where rows have them, ``id`` (b,); ``names`` are the
    prompts of the columns of scores.
    """
    columns: dict[str, list[Any]] = {"row": list(range(start, start + len(answers["score"])))}
    if "id" in answers:
        columns["id"] = [str(i) for i in answers["id"]]
    columns["prediction"] = answers["prediction"].tolist()
    columns |= zip([f"score: {name}" for name in names], answers["score"].T.tolist(), strict=True)
    return columns


def example_columns(names: Sequence[str], classes: NDArray[Any], *, with_ids: bool) -> dict[str, list[Any]]:
    """Return the columns of such a table of predictions, with all types of their values."""
    answers = {"score": np.zeros((1, len(names))), "prediction": classes}
    if with_ids:
        answers["id"] = np.array([""])
    return answer_columns(answers, names)


def check_top_path(path: Path, overwrite: bool) -> None:
    """Raise as `check_predictions_path` does, and for ``.npz``, which holds no table."""
    check_predictions_path(path, overwrite)
    if path.suffix == ".npz":
        raise ParameterError(
            f"the best rows are a table: end the output in .csv or .parquet; got {path.name!r}"
        )


def write_top(
    rows: Sequence[TopRow], path: Path, *, overwrite: bool = False, about: Collection[str] | None = None
) -> None:
    """Write the best rows of each prompt as ``.csv`` or ``.parquet``: one row per prompt and rank.

    The columns are prompt, rank, id (the number of the row, called row, if there are no ids) and score. With
    ``about``, the queries that ask for a sensitive attribute, a column tells whether the ranking is mitigated.
    """
    check_top_path(path, overwrite)
    place = "row" if not rows or rows[0].id is None else "id"
    names = ("prompt", "rank", place, "score")
    columns = {name: [getattr(row, name) for row in rows] for name in names}
    if about is not None:
        columns["mitigated"] = [row.prompt not in about for row in rows]
    if path.suffix == ".parquet":
        write_parquet(columns, path, overwrite=overwrite)
    else:
        table = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
        write_table(table, path, overwrite=overwrite)
