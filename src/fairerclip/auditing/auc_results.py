"""Results of an audit about the AUC of class scores in each group, as frozen objects."""

from __future__ import annotations

from fairerclip.auditing.group_results import Measured
from fairerclip.auditing.validation import ConsistentPart, Count, Many, Part, Problems, Share, Some, Text


class AucGroup(Part):
    """AUC of the ``n`` rows with sensitive value ``s``; ``name`` is for display."""

    s: Text
    name: Text
    n: Count
    auc: Measured


class AucStage(ConsistentPart):
    """AUC of class scores at one stage, as `fairerclip.metrics.auc_report` has it.

    ``overall`` is that of all rows together, and ``worst`` the name of the group with the lowest AUC; ``worst_auc`` has
    the interval of the lowest AUC of any group. ``auc_gap`` is None with one group only. ``positive`` is the positive
    class of two, None for the mean over ``classes``, each against the rest. ``left_out`` names the sensitive values
    that lack rows of a class.
    """

    groups: Some[AucGroup]
    overall: Measured
    worst: Text
    worst_auc: Measured
    auc_gap: Measured | None = None
    classes: Many[Text]
    positive: Text | None = None
    left_out: Many[Text]
    confidence: Share

    def problems(self) -> Problems:
        """Yield a problem if ``worst`` is none of the groups."""
        if self.worst not in [group.name for group in self.groups]:
            yield "worst", f"expected the name of one of {len(self.groups)} groups, got {self.worst[:40]!a}"


class AucSection(Part):
    """AUC before and after mitigation; figures of both stages are of the same rows."""

    before: AucStage | None = None
    after: AucStage | None = None
