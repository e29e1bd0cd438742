"""The result of a reproduced table or figure as a frozen object, stored in ``NAME.json``.

`fairerclip.study.jobs.read_stored` reads an `EntryResult`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from pydantic import JsonValue

from fairerclip.auditing.validation import Boolean, Count, Keyed, Many, Number, Part
from fairerclip.report.document import Document
from fairerclip.study.comparison import StudySoftware
from fairerclip.study.jobs import Words
from fairerclip.study.workers import Failure

FORMAT: Final = "fairerclip-reproduction"
VERSION: Final = 1
Found = Part | Failure | str | Sequence["Found"] | Mapping[str, "Found"]
"""Numbers behind tables: objects, in lists and by name."""


class EntrySettings(Part):
    """Settings that a repetition of an entry needs besides the data; ``max_seconds`` is of early versions."""

    seeds: Count
    gradient_seeds: Count
    max_steps: Count | None = None
    max_seconds: Number | None = None
    quick: Boolean
    chosen_by: Words | None = None


class PromptedValues(Part):
    """Values of a sensitive attribute, and their prompts."""

    values: Many[Words]
    prompts: Many[Words]


class EntryTask(Part):
    """Identification of the data of an entry; ``rows`` are by split."""

    dataset: Words
    name: Words
    encoder: Words
    digest: Words
    rows: Keyed[Count]
    prompts: Many[Words]
    sensitive: Keyed[PromptedValues]
    note: Words
    notes: Many[Words] = ()


class EntryResult(Part):
    """A table or figure that was run.

    ``failed`` is true if it has no measured figure, and then no file is written; ``absent`` is true if the source has
    none of its datasets. ``results`` are the numbers behind the tables of ``document``, by task or setting.
    """

    source: Words
    format: Literal["fairerclip-reproduction"]
    version: Literal[1]
    name: Words
    title: Words
    where: Words
    kind: Words
    command: Words
    settings: EntrySettings
    tasks: Many[EntryTask]
    made: StudySoftware
    failed: Boolean = False
    absent: Boolean = False
    failures: Many[Words]
    results: Keyed[JsonValue]
    document: Document

    def as_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def as_json(self) -> str:
        """Return the content of its file."""
        return json.dumps(self.as_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @property
    def first_reason(self) -> str:
        """Reason why it has no measured figure, in one line, without the description of the expected layout."""
        lines = next(iter(self.failures), "nothing was measured").splitlines()
        return lines[0] if lines else ""


def plain(found: Found) -> JsonValue:
    """Return a copy as JSON values, without fields that were not set."""
    if isinstance(found, Part):
        return found.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if isinstance(found, Failure):
        return {"error": found.error}
    if isinstance(found, str):
        return found
    if isinstance(found, Mapping):
        return {name: plain(item) for name, item in found.items()}
    return [plain(item) for item in found]
