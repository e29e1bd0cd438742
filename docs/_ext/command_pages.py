"""Pages of the command line, written from the commands themselves: one per command, with its arguments and options."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer
from sphinx.application import Sphinx

from fairerclip.cli.app import app as commands

FOLDER = "reference/commands"


def escaped(text: str) -> str:
    """Return a help text as Markdown that shows it as it is; code stays code."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([\\*_\[\]<>{}$|])", r"\\\1", part) for part in parts
    )


def parameters(title: str, records: list[tuple[str, str]]) -> list[str]:
    """Return a section with a definition list."""
    if not records:
        return []
    lines = [f"## {title}", ""]
    for name, help_text in records:
        lines += [f"`{name}`", f": {escaped(' '.join(help_text.split()) or '–')}", ""]
    return lines


def page(name: str, command: Any) -> str:
    """Return the page of a command."""
    context = typer.Context(command, info_name=name)
    about = [escaped(part.replace("\n", " ")) for part in (command.help or "").split("\n\n")]
    usage = command.get_usage(context).removeprefix("Usage: ")
    lines = [f"# {name}", "", *(line for part in about for line in (part, "")), "```", usage, "```", ""]
    known = {"argument": [], "option": []}
    for parameter in command.params:
        if record := parameter.get_help_record(context):
            known[parameter.param_type_name].append(record)
    return "\n".join(
        [*lines, *parameters("Arguments", known["argument"]), *parameters("Options", known["option"])]
    )


def leaves(name: str, command: Any) -> dict[str, Any]:
    """Return all commands below one by their full name, in the order of the help."""
    if not hasattr(command, "commands"):
        return {name: command}
    return {
        full: leaf
        for key, sub in command.commands.items()
        for full, leaf in leaves(f"{name} {key}", sub).items()
    }


def pages() -> dict[str, str]:
    """Return the text of every page by the name of its file."""
    found = leaves("fairerclip", typer.main.get_command(commands))
    texts = {f"{name.replace(' ', '-')}.md": page(name, leaf) for name, leaf in found.items()}
    rows = []
    for name, (name_of_file, leaf) in zip(found, zip(texts, found.values(), strict=True), strict=True):
        first = escaped((leaf.help or "").split("\n\n")[0].replace("\n", " "))
        rows.append(f"| [`{name}`]({name_of_file}) | {first} |")
    contents = ["```{toctree}", ":hidden:", "", *(file.removesuffix(".md") for file in texts), "```", ""]
    head = ["# Commands", "", "| command | does |", "|---|---|", *rows, "", *contents]
    return {"index.md": "\n".join(head), **texts}


def write_pages(app: Sphinx) -> None:
    """Write pages whose text has changed, and remove those of commands that are gone."""
    folder = Path(app.srcdir) / FOLDER
    folder.mkdir(exist_ok=True)
    wanted = pages()
    for file in folder.glob("*.md"):
        if file.name not in wanted:
            file.unlink()
    for name, text in wanted.items():
        file = folder / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the pages before Sphinx looks for them."""
    app.connect("builder-inited", write_pages)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
