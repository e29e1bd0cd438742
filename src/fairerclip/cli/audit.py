"""`fairerclip audit`: how models treat groups, before any mitigation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairerclip.cli import options


def audit(
    tasks: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[TASK]…", help="Task files of one dataset, one per model; or a folder of them."
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="Instead of tasks: waterbirds, celeba or cfd, with --root, --work and models."),
    ] = None,
    root: Annotated[Path | None, typer.Option(help="The dataset's folder, in its official layout.")] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="CLIP model to embed it with; may be repeated.")
    ] = None,
    stores: Annotated[
        Path | None, typer.Option(help="Folder of embedding stores of the dataset, with its prompts.")
    ] = None,
    work: Annotated[
        Path | None, typer.Option(help="Folder for the tasks made on the way; used again.")
    ] = None,
    prompts: Annotated[
        str | None, typer.Option(metavar="NAME_OR_FILE", help="Prompt set. Default: the dataset's own.")
    ] = None,
    sensitive: options.SensitiveNames = None,
    split: Annotated[
        str | None, typer.Option(help="Split to audit. Default: test, else val, else train.")
    ] = None,
    about: Annotated[
        Path | None,
        typer.Option(help="JSON: task name → {label, parameters, data}, for the plot's sizes and colours."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw worst group against average (.png, .svg or .pdf).")
    ] = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Zero-shot accuracy by group, of one model or of many side by side."""
    from fairerclip.audit.models import audit_tasks, check_plot, draw, read_models, task_files
    from fairerclip.cli import show
    from fairerclip.errors import ParameterError

    if plot is not None:
        check_plot(plot, overwrite)
    known = {} if about is None else read_models(about)
    if bool(tasks) == (dataset is not None):
        raise ParameterError(
            "audit expects task files, or --dataset with --root, --work and --model or --stores"
        )
    if tasks and any((root, model, stores, work, prompts)):
        raise ParameterError(
            "--root, --model, --stores, --work and --prompts go with --dataset, not with task files"
        )
    files = task_files(tasks) if tasks else _made(dataset or "", root, model, stores, work, prompts)
    with show.progress("audit") as advance:
        rows = audit_tasks(files, options.split_names(sensitive), split, known, progress=advance)
    if plot is not None:
        draw(rows, plot, overwrite=overwrite)
    if json:
        show.print_json({"models": [row.as_dict() for row in rows]})
        return
    title = f"Zero-shot by group, {rows[0].split} split, per cent; best worst group first"
    show.out.print(show.report_table(title, [(row.label, row.report) for row in rows]))
    if plot is not None:
        show.say(f"plot written to {plot}")


def _made(
    dataset: str,
    root: Path | None,
    models: list[str] | None,
    stores: Path | None,
    work: Path | None,
    prompts: str | None,
) -> list[Path]:
    """Tasks of a dataset through several models, or from several stores."""
    from fairerclip.audit.models import tasks_of_models, tasks_of_stores
    from fairerclip.cli import show
    from fairerclip.data.datasets import read_dataset
    from fairerclip.data.prompts import load_prompts
    from fairerclip.errors import ParameterError

    if root is None or work is None or bool(models) == (stores is not None):
        raise ParameterError("--dataset expects --root, --work, and either --model (repeated) or --stores")
    index = read_dataset(dataset, root)
    source = prompts or index.prompts
    if source is None:
        raise ParameterError(f"no prompts are shipped for {index.name}; give --prompts")
    for note in index.notes:
        show.err.print(f"note: {note}", markup=False, soft_wrap=True)
    if stores is not None:
        return tasks_of_stores(index, load_prompts(source), stores, work)
    with show.progress("embedding") as advance:
        return tasks_of_models(index, load_prompts(source), models or [], work, advance)
