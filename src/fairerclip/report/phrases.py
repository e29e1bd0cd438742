"""Phrases about results that every form of report shares, and results prepared for display."""

from __future__ import annotations

from fairerclip._util.clean_text import cleaned, with_short_names
from fairerclip._util.numbers import significant
from fairerclip.auditing import model_facts
from fairerclip.auditing.group_results import Stage, present_stages
from fairerclip.auditing.mitigator_facts import source_sentences
from fairerclip.auditing.results import AuditResults, RetrievalSection, check_results

ZERO_SHOT = "zero-shot"
EMBEDDINGS: dict[Stage, str] = {"before": "image embeddings", "after": "mitigated embeddings"}
"""Name of the embeddings at each stage."""
SIMULATED = "The embeddings are simulated: these figures say nothing about any real model."
HOW_CHOSEN = {
    "expected worst group": "groups are compared by a posterior over their accuracies instead of raw shares, and the "
    "search is taken only where it is best on held-out halves of the rows. It covers more than this plane (weights, "
    "kernel, ridge, zero-shot share, class offsets), so that another point of the plane may look better here",
    "shrunken_worst_group": "a few rows with the average accuracy are added to each group before groups are compared, "
    "so that a single row does not decide",
}
"""Explanation of each way of choosing a point, by its name in the results; other names get no explanation."""


SUMS_ONLY = (
    "To map a row, the probability of each sensitive value may be computed from its embedding; it is not kept. The "
    "saved mitigator holds sums over all rows of its fit: no value, score or embedding of a single person."
)
PEOPLE = (
    "A value that is read from an embedding is a guess about how a person looks. It may be wrong, most often for "
    "people whom the labels or prompts describe badly. Do not use it as a fact about anyone.",
    "Labels and guesses of sex, race, age or religion are protected in many countries (in the European Union by "
    "Article 9 of the GDPR). Before you label or infer them, make sure that you have consent or another legal ground, "
    "also if the purpose is to lower bias.",
)
"""What the people in the images may expect of an audit of a mitigator."""


def presentable(results: AuditResults) -> AuditResults:
    """Return a copy of the results for display, with clean text and long names shortened; O(size of the results).

    Commands are not cleaned: `fairerclip.report.command.known_command` has to see hidden characters in them.
    """
    document = with_short_names(cleaned(results.model_dump(by_alias=True)))
    for name, section in (("plane", results.plane), ("model", results.model)):
        if section is not None:
            document[name]["command"] = section.command
    return check_results(document)


def stage_names(results: AuditResults) -> dict[Stage, str]:
    """Return the headings of before and after; after may be a zero-shot classifier, and is then named so."""
    return {"before": ZERO_SHOT, "after": model_facts.after_name(results.model)}


def about_model(results: AuditResults) -> list[str]:
    """Return sentences on how the model was made; none without a model."""
    return [] if results.model is None else model_facts.about_model(results.model)


def about_auc(results: AuditResults) -> str:
    """Return sentences on what the AUC of the results is, and on the groups that have none; empty without AUC."""
    report = next(iter(present_stages(results.auc).values()), None)
    if report is None:
        return ""
    of = f"of class {report.positive}" if report.positive else "mean over classes, each against the others"
    missing = ", ".join(report.left_out)
    return f"AUC of the scores, {of}; 50 % is chance." + (
        f" Left out, because they lack rows of a class: {missing}." if missing else ""
    )


def about_bias(section: RetrievalSection) -> str | None:
    """Return a sentence on the sign of Bias@k of a section; None without a pair."""
    if section.pair is None:
        return None
    first, second = section.pair
    return (
        f"Bias@k is from −1 to 1: positive if more rows of {first} than of {second} are among them, whatever their "
        "shares of all rows."
    )


def people(results: AuditResults) -> list[str]:
    """Return sentences on the people in the images; none without a mitigator, which infers sensitive values."""
    mitigator = None if results.model is None else results.model.mitigator
    if mitigator is None:
        return []
    return [*source_sentences(mitigator), SUMS_ONLY, *PEOPLE]


def is_learned(results: AuditResults) -> bool:
    """Return whether the model has learned encoders, i.e. is not a zero-shot classifier."""
    return results.model is not None and results.model.method in (None, "FairerCLIP")


def is_baseline(results: AuditResults) -> bool:
    """Return whether the model is of another method than FairerCLIP."""
    return model_facts.is_baseline(results.model)


def is_given(results: AuditResults) -> bool:
    """Return whether the model was given, i.e. not fitted by the audit."""
    model = results.model
    return model is not None and (model.source == "given" or model.labels is None)


def versions(results: AuditResults) -> dict[str, str]:
    """Return the versions of the software that made the results, by name."""
    return results.made.model_dump(by_alias=True, exclude={"date", "seconds"})


def confidence(results: AuditResults) -> str:
    """Return the confidence level of the intervals as text."""
    return f"{significant(100 * results.settings.confidence, 6)} %"


def how_chosen(results: AuditResults) -> str | None:
    """Return how the point of the plane was chosen, with an explanation; None where the parameters were given."""
    plane = results.plane
    if plane is None or plane.chosen_by == "given":
        return None
    name = plane.chosen_by
    meaning = f": {HOW_CHOSEN[name]}" if name in HOW_CHOSEN else ""
    return f"by the {name.replace('_', ' ')} on the {plane.split} rows{meaning}"


def fewest_rows(results: AuditResults) -> int | None:
    """Return the number of rows of the smallest group of the plane if it is small, else None."""
    sizes = [group.n for group in results.plane.groups] if results.plane else []
    return min((n for n in sizes if n < results.settings.small), default=None)
