"""`fairerclip apply`: a saved model on new embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairerclip.cli import options


def apply(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder that fit wrote.")],
    embeddings: Annotated[
        Path,
        typer.Argument(metavar="EMB", help="Image embeddings: .npy, .npz with one matrix, or a task file."),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where to write: .npz (everything) or .csv (predictions).")
    ],
    split: Annotated[str, typer.Option(help="Which split of a task file to use.")] = "test",
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Write predictions, scores and mitigated embeddings for new images."""
    from fairerclip.cli import show
    from fairerclip.data.embeddings import read_embeddings
    from fairerclip.errors import ShapeError
    from fairerclip.model import FairerCLIP
    from fairerclip.tables import check_predictions_path, write_predictions
    from fairerclip.workflow import apply_model

    check_predictions_path(output, overwrite)
    fitted = FairerCLIP.load(model)
    X, ids = read_embeddings(embeddings, split)
    if X.shape[1] != fitted.n_features_in_:
        raise ShapeError(
            f"{embeddings}: {X.shape[1]} wide, but {model} was fitted on embeddings {fitted.n_features_in_} wide; "
            "embed with the same CLIP model"
        )
    with show.warnings_as_lines() as warned:
        result = apply_model(fitted, X, ids)
    write_predictions(result, output, overwrite=overwrite)
    counts = {str(c): int((result["prediction"] == c).sum()) for c in fitted.classes_}
    if json:
        show.print_json({"rows": len(X), "predicted": counts, "output": str(output), "warnings": warned})
        return
    shown = ", ".join(f"{name}: {n}" for name, n in counts.items())
    show.say(f"{len(X)} rows; predicted {shown}; written to {output}")
