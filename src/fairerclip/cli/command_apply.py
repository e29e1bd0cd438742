"""`fairerclip apply`: applies a saved model to new embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairerclip.cli import options

if TYPE_CHECKING:
    from fairerclip.applying.apply import TopRow

TOP = 10
"""Number of rows of each ranking that are printed by default."""
SHOWN = 20
"""Largest number of rows of each ranking that are printed; files and JSON have all that were asked for."""

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder that fit wrote.")]
Embeddings = Annotated[
    Path,
    typer.Argument(
        metavar="EMB",
        help="Image embeddings: any store (.npy, .npz, .safetensors, parquet, a folder that embed or clip-retrieval "
        "wrote), or a task file.",
    ),
]
Output = Annotated[
    Path,
    options.writes(
        "--output",
        "-o",
        help="Where to write: .npz (with embeddings), or .csv or .parquet (a row per image; with --top K, a row per "
        "prompt and rank).",
    ),
]
Split = Annotated[str, typer.Option(help="Which split of a task file to use.")]
Top = Annotated[
    int | None,
    typer.Option(
        metavar="K",
        help="Rank the images by each prompt, and write the K best of each with ids and scores; an .npz has the ranks "
        "of all images. A model fitted with --objective max_skew always ranks. "
        f"At most {SHOWN} of each are shown, by default {TOP}.",
    ),
]
Prompt = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME", help="Rank by this prompt (class) alone; may be repeated. Default: by each."
    ),
]


def apply(
    model: Model,
    embeddings: Embeddings,
    output: Output,
    split: Split = "test",
    top: Top = None,
    prompt: Prompt = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Apply any saved model: write predictions or rankings, scores and mitigated embeddings for new images."""
    from fairerclip.applying.answer_files import check_predictions_path, write_predictions, write_top
    from fairerclip.applying.apply import apply_model, is_ranking, top_rows
    from fairerclip.cli import show
    from fairerclip.data.embeddings import read_embeddings
    from fairerclip.errors import ParameterError, ShapeError
    from fairerclip.model.archive import load

    check_predictions_path(output, overwrite)
    fitted = load(model)
    rank = top is not None or is_ranking(fitted)
    if prompt and not rank:
        raise ParameterError(
            f"--prompt names what to rank by, but {model} predicts classes; give --top K to rank"
        )
    X, ids = read_embeddings(embeddings, split)
    if X.shape[1] != fitted.n_features_in_:
        raise ShapeError(
            f"{embeddings}: {X.shape[1]} wide, but {model} was fitted on embeddings {fitted.n_features_in_} wide; "
            "embed with the same CLIP model"
        )
    if top is not None and not 1 <= top <= len(X):
        raise ParameterError(f"--top must be between 1 and {len(X)}, the number of rows; got {top}")
    summary: dict[str, Any] = {"rows": len(X), "output": str(output)}
    with show.warnings_as_lines() as warned:
        if top is not None and output.suffix != ".npz":
            best = top_rows(fitted, X, top, ids, prompts=prompt or None)
            write_top(best, output, overwrite=overwrite)
            summary["top"] = _by_prompt(best)
        else:
            result = apply_model(fitted, X, ids, rank=rank, prompts=prompt or None)
            write_predictions(result, output, overwrite=overwrite)
            if rank:
                summary["top"] = _top(result, min(len(X), top or TOP))
            else:
                summary["predicted"] = {
                    str(c): int((result["prediction"] == c).sum()) for c in fitted.classes_
                }
    if json:
        show.print_json({**summary, "warnings": warned})
    else:
        _print(summary)


def _by_prompt(best: Sequence[TopRow]) -> dict[str, list[dict[str, Any]]]:
    """Return the best rows of each prompt for JSON; rows without an id have none."""
    top: dict[str, list[dict[str, Any]]] = {}
    for row in best:
        values = {
            name: value for name, value in row._asdict().items() if name != "prompt" and value is not None
        }
        top.setdefault(row.prompt, []).append(values)
    return top


def _top(result: Mapping[str, Any], k: int) -> dict[str, list[dict[str, Any]]]:
    """Return the first k rows of each prompt, best first, from the ranks of all rows."""
    top: dict[str, list[dict[str, Any]]] = {}
    for column, name in enumerate(result["names"].tolist()):
        rows = result["rank"][:, column].argsort()[:k].tolist()
        ids = {} if "id" not in result else {row: {"id": str(result["id"][row])} for row in rows}
        top[name] = [
            {"rank": place, "row": row, **ids.get(row, {}), "score": float(result["score"][row, column])}
            for place, row in enumerate(rows, 1)
        ]
    return top


def _print(summary: Mapping[str, Any]) -> None:
    """Print how many rows each class was predicted for, or the first rows of each ranking."""
    from fairerclip._util.numbers import number
    from fairerclip.cli import show

    n_rows, output = summary["rows"], summary["output"]
    if "predicted" in summary:
        counts = ", ".join(f"{name}: {n}" for name, n in summary["predicted"].items())
        show.say(f"{n_rows} rows; predicted {counts}; written to {output}")
        return
    for name, best in summary["top"].items():
        rows = best[:SHOWN]
        id_column = "id" if rows and "id" in rows[0] else "row"
        body = [[str(row["rank"]), str(row[id_column]), number(row["score"], 4)] for row in rows]
        # Printed as a line, because a narrow table would fold its title.
        show.say(f"{name}: the first {len(rows)} of {n_rows} rows")
        show.put(show.plain_table(None, ["rank", id_column, "score"], body))
    show.say(f"{n_rows} rows ranked by {len(summary['top'])} prompts; written to {output}")
