"""Facts about an `EmbeddingMitigator` for results, and sentences on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairerclip._util.numbers import number, setting
from fairerclip.auditing.model_results import MitigatorSection, SensitiveSource
from fairerclip.data.task_fields import UNNAMED
from fairerclip.embedding.mitigator import EmbeddingMitigator

READERS = ("prompts", "labelled rows", "prompts and labelled rows")
"""What a reader of sensitive values can be learned from."""


def mitigator_section(mitigator: EmbeddingMitigator, X: Any = None) -> MitigatorSection:
    """Describe a fitted mitigator, and how rows X (n, p) differ from those of its fit; its file is not trusted."""
    fitted, diagnostics = mitigator.fitted_, mitigator.diagnostics_
    terms = diagnostics["remaining"]
    names = list(terms) if isinstance(terms, Mapping) else []
    if len(names) != len(fitted.strengths):
        names = [f"term {place}" for place in range(1, len(fitted.strengths) + 1)]
    drift = () if X is None else tuple(message for _, message in mitigator.drift(X).warnings)
    return MitigatorSection(
        rows=fitted.summary.rows.rows,
        attributes={attribute.name: _source(attribute.record) for attribute in fitted.attributes},
        strengths=dict(zip(names, fitted.strengths, strict=True)),
        remaining={
            name: min(max(share, 0.0), 1.0) for name, share in zip(names, fitted.remaining, strict=True)
        },
        drift=drift,
    )


def _source(record: Mapping[str, Any]) -> SensitiveSource:
    reader, rows = record.get("reader"), record.get("labelled_rows")
    return SensitiveSource(
        given=record.get("source") == "given",
        reader=reader if reader in READERS else None,
        labelled_rows=rows if type(rows) is int and rows >= 0 else None,
    )


def strength_text(section: MitigatorSection) -> str:
    """Return the strength, or that of each attribute if they differ, as text.

    Examples
    --------
    >>> strength_text(MitigatorSection(rows=9, attributes={}, strengths={"sex": 1.0}, remaining={}))
    '1'
    """
    strengths = section.strengths
    if len(set(strengths.values())) == 1:
        return setting(next(iter(strengths.values())))
    return ", ".join(f"{name} {setting(value)}" for name, value in strengths.items()) or "none"


def source_sentences(section: MitigatorSection) -> list[str]:
    """Return a sentence per attribute on where its values come from."""
    return [_from(name, source) for name, source in section.attributes.items()]


def _from(attribute: str, source: SensitiveSource) -> str:
    name = "S" if attribute == UNNAMED else attribute
    learned = "" if source.reader is None else source.reader
    if source.labelled_rows is not None:
        learned = learned.replace("labelled rows", f"{source.labelled_rows} labelled rows")
    if source.given:
        return f"{name}: the values of the rows of the fit were given."
    how = f"by a reader learned from {learned.replace('prompts', 'its prompts')}" if learned else ""
    return f"{name}: values are read {how or 'in a way that is not recorded'}."


def remaining_sentence(section: MitigatorSection) -> str:
    """Return a sentence on the dependence that is left on the rows of the fit."""
    if not section.remaining:
        return "No attribute varied in the rows of the fit, so nothing is mitigated."
    left = ", ".join(
        f"{'S' if name == UNNAMED else name} {number(s)}" for name, s in section.remaining.items()
    )
    return f"Share of the dependence on S that is left on the {section.rows} rows of the fit: {left}."


def mitigator_sentences(section: MitigatorSection) -> list[str]:
    """Return sentences on what a mitigator is: rows, strength, sources of S, dependence left."""
    about = (
        f"It maps embeddings into their own space, for any query: strength {strength_text(section)}, fitted on "
        f"{section.rows} rows."
    )
    return [about, *source_sentences(section), remaining_sentence(section)]
