"""`fairerclip`: the command line's entry point."""

from __future__ import annotations

import sys

import typer

from fairerclip import __version__
from fairerclip.cli import apply, demo, fit, path
from fairerclip.errors import FairerClipError

app = typer.Typer(
    name="fairerclip",
    help="Measure and mitigate bias and spurious correlation in CLIP-like models.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("demo")(demo.demo)
app.command("fit")(fit.fit)
app.command("path")(path.path)
app.command("apply")(apply.apply)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"fairerclip {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
) -> None:
    """Measure and mitigate bias and spurious correlation in CLIP-like models."""


def main() -> None:
    """Run a command; bad input is one line on standard error and exit code 2."""
    try:
        app()
    except (FairerClipError, OSError, MemoryError) as error:
        message = " ".join(str(error).split()) or type(error).__name__
        typer.echo(f"fairerclip: {message}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("fairerclip: interrupted", err=True)
        sys.exit(130)
