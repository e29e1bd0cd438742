"""`fairerclip embed`: embeds images and prompts into an embedding store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairerclip._util.numbers import number
from fairerclip.cli import options

if TYPE_CHECKING:
    from fairerclip.encoders.embed import EmbedReport


Images = Annotated[
    Path,
    typer.Argument(metavar="IMAGES", help="Folder, list of paths, .csv table or webdataset .tar."),
]
Model = Annotated[str, typer.Option(help=f"CLIP model: {options.MODELS}.")]
Output = Annotated[
    Path, options.writes("--output", "-o", help="Folder of the store; an unfinished one is continued.")
]
Prompts = Annotated[str | None, typer.Option(metavar="NAME_OR_FILE", help="Prompt set to embed as well.")]
BatchSize = Annotated[int, typer.Option(callback=options.in_range, help="Images per pass of the encoder.")]
PathColumn = Annotated[str | None, typer.Option(help="Column of a table with the paths. Default: path.")]
IdColumn = Annotated[str | None, typer.Option(help="Column of a table with the ids. Default: the paths.")]


def embed(
    images: Images,
    model: Model,
    output: Output,
    weights: options.Weights = None,
    preprocessing: options.Preprocessing = None,
    prompts: Prompts = None,
    batch_size: BatchSize = 64,
    workers: options.Workers = 2,
    path_column: PathColumn = None,
    id_column: IdColumn = None,
    device: options.Device = "cpu",
    download: options.Download = False,
    json: options.Json = False,
) -> None:
    """Embed images (and prompts) with a CLIP-like model; an unfinished run is continued."""
    from dataclasses import asdict

    from fairerclip._util.files import check_folder
    from fairerclip.cli import show
    from fairerclip.data.prompts import load_prompts
    from fairerclip.encoders.choice import ModelChoice
    from fairerclip.encoders.embed import embed_images, embed_prompts
    from fairerclip.encoders.images import open_source

    # Checked before the work. A store is never replaced, so it may be a link to another disk.
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
    _print(report, output, n_prompts)


def _print(report: EmbedReport, output: Path, n_prompts: int) -> None:
    """Print how many images were embedded, found finished, and skipped."""
    from fairerclip.cli import show

    parts = [f"{report.done} images embedded ({number(report.rate, 1)} per second)"]
    parts += [f"{report.already} done earlier"] * (report.already > 0)
    parts += [f"{report.skipped} skipped, listed in {output / 'skipped.jsonl'}"] * (report.skipped > 0)
    if report.not_read:
        parts.append(
            f"of these not read: {', '.join(f'{n} {ending}' for ending, n in report.not_read.items())}"
        )
    parts += [f"{n_prompts} prompts"] * (n_prompts > 0)
    show.say("; ".join(parts) + f"; written to {output}")
