"""`fairerclip`: the command line's entry point."""

from __future__ import annotations

import sys

import typer

from fairerclip import __version__
from fairerclip.cli import apply, audit, compare, demo, embed, fit, path, report, reproduce, task
from fairerclip.errors import FairerClipError

UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""What a wrong option or argument raises; typer brings its own click, so it is reached through typer."""

app = typer.Typer(
    name="fairerclip",
    help="Measure and mitigate bias and spurious correlation in CLIP-like models.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("demo")(demo.demo)
app.command("embed")(embed.embed)
app.add_typer(task.app, name="task")
app.command("audit")(audit.audit)
app.command("fit")(fit.fit)
app.command("path")(path.path)
app.command("apply")(apply.apply)
app.command("compare")(compare.compare)
app.command("report")(report.report)
app.command("reproduce")(reproduce.reproduce)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"fairerclip {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
) -> None:
    """Measure and mitigate bias and spurious correlation in CLIP-like models."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Run a command; bad input is one line on standard error and exit code 2."""
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except UsageError as error:
        _fail(f"{getattr(error, 'format_message', error.__str__)()} (--help shows how it is called)")
    except (FairerClipError, OSError, MemoryError) as error:
        _fail(str(error) or type(error).__name__)
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("fairerclip: interrupted", err=True)
        sys.exit(130)


def _fail(message: str) -> None:
    typer.echo(f"fairerclip: {' '.join(message.split())}", err=True)
    sys.exit(2)
