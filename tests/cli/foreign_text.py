"""Names that would move a cursor, set a title, turn text around or be read as markup, and tasks full of them."""

import unicodedata
from dataclasses import replace

import numpy as np

_MARKUP, _ESCAPES = "[b][red]:bug:", "\x1b]0;x\x07\x1b[2J\x9b31m\r"
_UNSEEN, _WIDE = "\u202e\u2067\u200f\u061c\u200b\u2028", "=e\u0301\U0001f469\u200d\U0001f52c"
FILE_NAME = _MARKUP + _ESCAPES + _UNSEEN + _WIDE
"""What a file may be called, too."""
NAME = f"[/b]\x00\nFAKE {FILE_NAME}[/]"
JOINERS = {"\u200c", "\u200d"}


def forbidden(text):
    """Characters of a text, but line ends, that a terminal obeys or that hide: none may be printed."""
    hidden = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}
    return {c for c in text if c != "\n" and unicodedata.category(c) in hidden and c not in JOINERS}


def renamed(task, name=NAME, attribute=FILE_NAME):
    """The task with foreign text wherever a file can have it; its attributes are called ``attribute`` and a number."""
    keys = {key: key if key == "s" else f"{attribute}{i}" for i, key in enumerate(task.sensitive)}
    sensitive = {
        keys[key]: replace(
            one,
            name=keys[key],
            names=tuple(f"{i}{name}v" for i in range(len(one.names))),
            prompts=tuple(f"{i}{name}p" for i in range(len(one.names))),
        )
        for key, one in task.sensitive.items()
    }
    splits = {
        key: replace(
            split,
            s={keys[attribute]: codes for attribute, codes in split.s.items()},
            ids=np.array([f"{i}{name[:100]}i" for i in range(len(split))]),
        )
        for key, split in task.splits.items()
    }
    return replace(
        task,
        name=f"{name}n",
        splits=splits,
        class_names=tuple(f"{i}{name}c" for i in range(task.n_classes)),
        target_prompts=tuple(f"{i}{name}t" for i in range(task.n_classes)),
        sensitive=sensitive,
    )
