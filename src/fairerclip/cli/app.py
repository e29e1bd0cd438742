"""The typer application with all commands of `fairerclip`."""

from __future__ import annotations

import typer

from fairerclip import __version__
from fairerclip.cli import command_apply as apply
from fairerclip.cli import command_audit as audit
from fairerclip.cli import command_check as check
from fairerclip.cli import command_compare as compare
from fairerclip.cli import command_demo as demo
from fairerclip.cli import command_embed as embed
from fairerclip.cli import command_export as export
from fairerclip.cli import command_fit as fit
from fairerclip.cli import command_path as path
from fairerclip.cli import command_report as report
from fairerclip.cli import command_reproduce as reproduce
from fairerclip.cli import command_serve as serve
from fairerclip.cli import command_task as task
from fairerclip.cli import streams

UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""Base class of errors on options and arguments; taken from typer, which has its own copy of click."""

app = typer.Typer(
    name="fairerclip",
    help="Measure and mitigate bias and spurious correlation in CLIP-like models.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("demo")(demo.demo)
app.command("embed")(embed.embed)
app.add_typer(task.app, name="task")
app.command("check")(check.check)
app.command("audit")(audit.audit)
app.command("fit")(fit.fit)
app.command("path")(path.path)
app.command("apply")(apply.apply)
app.command("export")(export.export)
app.command("serve")(serve.serve)
app.command("compare")(compare.compare)
app.command("report")(report.report)
app.command("reproduce")(reproduce.reproduce)


def _version(value: bool) -> None:
    if value:
        streams.write(f"fairerclip {__version__}")
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
        streams.write(context.get_help())
