"""`fairerclip embed`: images and prompts into an embedding store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairerclip._util.numbers import number
from fairerclip.cli import options


def embed(
    images: Annotated[
        Path,
        typer.Argument(metavar="IMAGES", help="Folder, list of paths, .csv table or webdataset .tar."),
    ],
    model: Annotated[str, typer.Option(help=f"CLIP model: {options.MODELS}.")],
    output: Annotated[Path, options.writes("--output", "-o", help="Folder of the store; resumed if begun.")],
    weights: options.Weights = None,
    preprocessing: options.Preprocessing = None,
    prompts: Annotated[
        str | None, typer.Option(metavar="NAME_OR_FILE", help="Prompt set to embed as well.")
    ] = None,
    batch_size: Annotated[
        int, typer.Option(callback=options.in_range, help="Images per pass of the encoder.")
    ] = 64,
    workers: options.Workers = 2,
    path_column: Annotated[
        str | None, typer.Option(help="Column of a table with the paths. Default: path.")
    ] = None,
    id_column: Annotated[
        str | None, typer.Option(help="Column of a table with the ids. Default: the paths.")
    ] = None,
    device: options.Device = "cpu",
    download: options.Download = False,
    json: options.Json = False,
) -> None:
    """Embed images (and prompts) with a CLIP-like model; a run that was stopped goes on where it was."""
    from dataclasses import asdict

    from fairerclip._util.files import check_folder
    from fairerclip.cli import show
    from fairerclip.data.prompts import load_prompts
    from fairerclip.encoders.choice import ModelChoice
    from fairerclip.encoders.embed import embed_images, embed_prompts
    from fairerclip.encoders.images import open_source

    # Bad input is said before the work. A store is never replaced, so that it may be a link to another disk.
    check_folder(output.resolve() if output.is_symlink() else output, overwrite=True)
    source = open_source(images, path_column=path_column, id_column=id_column)
    prompt_set = None if prompts is None else load_prompts(prompts)
    with show.warnings_as_lines() as warned:
        encoder = ModelChoice(model, weights, preprocessing, device, download).load()
        with show.progress("embedding", rate=True) as advance:
            report = embed_images(
                source, encoder, output, batch_size=batch_size, workers=workers, progress=advance
            )
        if prompt_set is not None:
            embed_prompts(prompt_set, encoder, output)
    n_prompts = 0 if prompt_set is None else len(prompt_set.all_prompts())
    if json:
        show.print_json(
            {
                "store": str(output),
                **asdict(report),
                "prompts": n_prompts,
                "provenance": encoder.provenance.to_dict(),
                "warnings": warned,
            }
        )
        return
    parts = [f"{report.done} images embedded ({number(report.rate, 1)} per second)"]
    parts += [f"{report.already} done earlier"] * (report.already > 0)
    parts += [f"{report.skipped} skipped, listed in {output / 'skipped.jsonl'}"] * (report.skipped > 0)
    if report.not_read:
        parts.append(
            f"of these not read: {', '.join(f'{n} {ending}' for ending, n in report.not_read.items())}"
        )
    parts += [f"{n_prompts} prompts"] * (n_prompts > 0)
    show.say("; ".join(parts) + f"; written to {output}")
