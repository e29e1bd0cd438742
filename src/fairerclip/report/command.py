"""Commands from a file, which people copy into a shell: shown only where they can be nothing but a fit."""

from __future__ import annotations

import re
import shlex

from fairerclip._util.numbers import typed
from fairerclip.auditing.group_results import PlanePoint
from fairerclip.report.clean_text import clean

MISSING = "The command is missing: what the results hold in its place is not a fairerclip command."
PLACEHOLDERS = ("{tau}", "{tau_z}", "{criterion}")
# Quoted words first, so that a placeholder inside one is left alone.
_PLACE = re.compile(r"""'[^']*'|"[^"]*"|(?<![^ ])\{(tau|tau_z|criterion)\}(?![^ ])""")


def known_command(command: str | None) -> str | None:
    """The command if it is plain words of ``fairerclip fit``, else None.

    Written back word by word it must be the same text, so that nothing in it is an operator, an expansion or
    a comment of the shell; and it holds no control or direction characters.

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
    again = " ".join(word if word in PLACEHOLDERS else shlex.quote(word) for word in words)
    return command if again == command else None


def filled(command: str, point: PlanePoint) -> str:
    """A command with a point's τ, τ_z and criterion in place of the words that stand for them.

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
    return _PLACE.sub(lambda found: values[found[1]] if found[1] else found[0], command)
