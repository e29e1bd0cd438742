"""`fairerclip check`: what a store or a task holds, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairerclip.cli import options

Checked = Annotated[
    Path,
    typer.Argument(
        parser=options.store_path,
        metavar="STORE|TASK",
        help="Embeddings (store, clip-retrieval folder, parquet, .npy …), or a task (file, simulated:NAME).",
    ),
]


def check(path: Checked, json: options.Json = False) -> None:
    """Say what is in a store or a task, what is wrong with it, and which commands can use it."""
    from fairerclip.auditing.input_check import check as check_input
    from fairerclip.cli import show
    from fairerclip.errors import WorkFailedError

    found = check_input(path)
    if not json:
        for line in found.lines():
            show.say(line)
    if not found.usable:
        raise WorkFailedError(f"{path} cannot be used: {'; '.join(found.problems)}", found.as_dict())
    if json:
        show.print_json(found.as_dict())
