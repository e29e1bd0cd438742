"""What the commands may be told: their options, from the functions behind them."""

import types
import typing


def commands(app, *before):
    """Every command's name, as it is typed, and its function."""
    for command in app.registered_commands:
        yield " ".join([*before, command.name or command.callback.__name__]), command.callback
    for group in app.registered_groups:
        yield from commands(group.typer_instance, *before, group.name)


def options(function):
    """Name, types and what typer was told of every option and argument."""
    for name, hint in typing.get_type_hints(function, include_extras=True).items():
        kind, *told = typing.get_args(hint) if typing.get_origin(hint) is typing.Annotated else (hint,)
        kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
        yield name, set(kinds), (told or [None])[0]
