"""What the answers on groups and on rankings share: what was evaluated, and how advice is worded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from fairerclip.auditing.finding_results import Recommendation
from fairerclip.auditing.model_facts import MITIGATOR, ZERO_SHOT, ModelFacts, is_baseline, subject
from fairerclip.auditing.model_results import ModelSection
from fairerclip.auditing.topical import MAX_LISTED

WANTED = 0.05
"""Half width of the interval that rows are collected for: 5 points of accuracy, or 0.05 of MaxSkew."""
GIVE_LABELS = "Give the class and the sensitive value of some rows of each group, and audit again."
MITIGATE = (
    "Fit a mitigated model and compare: on the command line with `--mitigate`, in Python with `model=`."
)


class Evaluated(NamedTuple):
    """What was measured and on which rows.

    ``model`` is None for zero-shot alone, ``given`` if the model was not fitted here. ``split`` has the rows,
    ``chosen_on`` is the split that the model was chosen on, and ``fitted_on`` are those that it was fitted on.
    """

    model: ModelSection | ModelFacts | None
    given: bool
    split: str | None
    chosen_on: str | None
    fitted_on: tuple[str, ...] = ("train",)

    @property
    def rows(self) -> str:
        """The rows in words, with their split if it is known."""
        return "rows" if self.split is None else f"{self.split} rows"

    @property
    def kept(self) -> bool:
        """Whether the model is zero-shot: a search kept it, or its parameters say so."""
        return self.model is not None and self.model.method == ZERO_SHOT

    @property
    def why_kept(self) -> str:
        """Why the model is zero-shot, if it is."""
        if self.model is None or self.model.tuning is None:
            return "By its parameters the model is zero-shot"
        return "Zero-shot is kept, because nothing was clearly better"

    @property
    def seen(self) -> str | None:
        """How the model used these rows before: "chosen" or "fitted" on them; None if it did not."""
        if self.model is None or self.given or self.split is None:
            return None
        if self.split in self.fitted_on:
            return "fitted"
        return "chosen" if self.split == self.chosen_on else None


def rows_to_collect(n: int, low: float | None, high: float | None) -> int:
    """Return about how many rows to add to ``n`` until an interval has the half width `WANTED`; 0 if it has it.

    The width of an interval falls with the square root of the number of rows. The number is rounded up to two digits.

    Examples
    --------
    >>> rows_to_collect(23, -0.042, 0.314), rows_to_collect(400, 0.0, 0.08)
    (270, 0)
    """
    missing = n * (_half_width(low, high) / WANTED) ** 2 - n
    if missing <= 0:
        return 0
    unit = int(10 ** max(0, math.floor(math.log10(missing)) - 1))
    return math.ceil(missing / unit - 1e-9) * unit  # 160.00000000000003 is 160


def _half_width(low: float | None, high: float | None) -> float:
    return 0.0 if low is None or high is None else (high - low) / 2


def listed_in_words(names: Sequence[str]) -> str:
    """Join names as in a sentence; of many, the first and the number of the others."""
    shown = list(names[:MAX_LISTED])
    if len(names) > MAX_LISTED:
        shown.append(f"{len(names) - MAX_LISTED} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def use(evaluated: Evaluated, losses: Sequence[str], loss: str) -> Recommendation:
    """Return the advice to use the model, or to measure it on rows that it was neither fitted nor chosen on.

    ``losses`` are the names of those that lose, and ``loss`` is what they get.
    """
    who = subject(evaluated.model)
    if evaluated.seen is not None:
        text = f"Measure {who} on other rows before you use it: it was {evaluated.seen} on these."
        return Recommendation(action="measure", sentence="", advice=text)
    if who == MITIGATOR or not is_baseline(evaluated.model):
        who = f"the mitigated model, {who}"
    price = f", if {loss} for {listed_in_words(losses)} can be accepted" if losses else ""
    return Recommendation(action="use", sentence="", advice=f"Use {who}{price}.")


def keep(reason: str) -> Recommendation:
    """Return the advice to keep what there is, which ``reason`` names first."""
    return Recommendation(action="keep", sentence="", advice=f"{reason}.")
