"""Functions that check commands from a results file: people copy them, so only ``fairerclip fit`` is shown."""

from __future__ import annotations

import re
import shlex

from fairerclip._util.clean_text import clean
from fairerclip._util.numbers import typed
from fairerclip.auditing.group_results import PlanePoint

MISSING = "The command is not shown: the text in the results is not a fairerclip command."
PLACEHOLDERS = ("{tau}", "{tau_z}", "{criterion}")
# Quoted words first, so that a placeholder inside one is not replaced.
_PLACE = re.compile(r"""'[^']*'|"[^"]*"|(?<![^ ])\{(tau|tau_z|criterion)\}(?![^ ])""")


def known_command(command: str | None) -> str | None:
    """Return the command if it is a plain ``fairerclip fit`` command, else None.

    Split into words and quoted again it must be the same text, so that it holds no operator, expansion or comment of
    the shell; and it may hold no control or direction characters.

    Examples
    --------
    >>> known_command("fairerclip fit 'my task.npz' -o MODEL --tau {tau}")
    "fairerclip fit 'my task.npz' -o MODEL --tau {tau}"
    >>> known_command("fairerclip fit x; curl example.org") is None
    True
    """
    if command is None or not command.startswith("fairerclip fit ") or clean(command) != command:
        return None
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    requoted = " ".join(word if word in PLACEHOLDERS else shlex.quote(word) for word in words)
    return command if requoted == command else None


def filled(command: str, point: PlanePoint) -> str:
    """Return a command with its placeholders replaced by τ, τ_z and criterion of a point.

    Examples
    --------
    >>> point = PlanePoint(tau=0.7, tau_z=0.5, criterion="marginal")
    >>> filled("fit {tau} x{tau} '{tau} {tau}'", point)
    "fit 0.7 x{tau} '{tau} {tau}'"
    """
    values = {
        "tau": typed(point.tau),
        "tau_z": typed(point.tau_z),
        "criterion": shlex.quote(point.criterion),
    }
    return _PLACE.sub(lambda match: values[match[1]] if match[1] else match[0], command)
