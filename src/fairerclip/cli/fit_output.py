"""What `fairerclip fit` prints: the answer and one table, everything with --verbose, or JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairerclip.cli import show

if TYPE_CHECKING:
    from fairerclip.applying.apply import AnyModel
    from fairerclip.auditing.finding_results import Recommendation
    from fairerclip.cli.store_options import Read
    from fairerclip.experiment import Experiment
    from fairerclip.study.fit_mitigator import MitigatorResult

NOTHING_TO_EVALUATE = "No split has sensitive labels: nothing to evaluate on."
REST = "More: --verbose, or `fairerclip audit TASK --after MODEL`"


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model and what is printed of it besides its figures."""

    model: AnyModel
    labels: str
    values: Mapping[str, Any]
    """Values for JSON that this kind of method has."""
    sentences: Sequence[str]
    """How it was chosen; the last one is about its setting and has no full stop."""

    @property
    def is_own(self) -> bool:
        """Whether it is FairerCLIP."""
        return "tau" in self.values


def classifier_result(experiment: Experiment, trained: Trained) -> dict[str, Any]:
    """Evaluate a classifier, and return the result that is printed."""
    from fairerclip.auditing.fit_answer import classifier_answer, named_reports
    from fairerclip.auditing.model_facts import model_facts

    model = trained.model
    diagnostics = getattr(model, "diagnostics_", None) or {}
    tuning, method = diagnostics.get("tuning"), model_facts(model).method
    split = experiment.evaluation_split()
    ranked = experiment.ranked_split() if split is None else None
    name = "FairerCLIP" if trained.is_own else method
    measured = experiment.before_after(model, split) if split else None
    shown = split or ranked
    return {
        "task": experiment.task.name,
        "simulated": experiment.task.simulated,
        "labels": trained.labels,
        **trained.values,
        "split": shown,
        "recommendation": classifier_answer(experiment, model, measured, shown) if shown else None,
        "reports": {} if measured is None else named_reports(measured, name),
        "skews": experiment.skews(model, ranked) if ranked else [],
        "method": method,
        "tuning": tuning,
        "diagnostics": diagnostics,
    }


def held_rows(model: AnyModel) -> list[str]:
    """Return a sentence if the file of a model holds embeddings of training images."""
    from fairerclip.model.kinds import contents_of
    from fairerclip.model.saved_card import held_rows_words

    held = contents_of(model).held_rows
    return [held_rows_words(held)] if held else []


@dataclass(frozen=True)
class Printing:
    """How and where the result of a fit is printed: ``output`` is the model's folder."""

    output: Path
    read: Read
    verbose: bool
    json: bool

    def classifier(self, result: dict[str, Any], trained: Trained, warned: Sequence[str]) -> None:
        """Print the result of a classifier."""
        notes = held_rows(trained.model)
        if self.json:
            answer: Recommendation | None = result["recommendation"]
            about = (
                {} if self.read.notes is None and not notes else {"notes": [*(self.read.notes or ()), *notes]}
            )
            document = {
                **result,
                "model": str(self.output),
                "recommendation": None if answer is None else answer.model_dump(),
                "reports": {name: report.as_dict() for name, report in result["reports"].items()},
                "skews": [asdict(skew) for skew in result["skews"]],
            }
            show.print_json({**document, **about, "warnings": [*self.read.warnings, *warned]})
            return
        self._notes()
        self._answer(result["recommendation"])
        self._classifier_tables(result, trained)
        *sentences, setting = trained.sentences
        # Harms and limits are always printed.
        for sentence in (*notes, *(sentences if self.verbose else ())):
            show.say(sentence)
        show.say(f"{setting}; written to {self.output}")
        self._rest()

    def mitigator(self, result: MitigatorResult, warned: Sequence[str]) -> None:
        """Print the result of an `EmbeddingMitigator`."""
        from fairerclip.auditing.fit_answer import mitigator_answer
        from fairerclip.report.fit_tables import rankings_table, strength_table

        trained, split = result.trained, result.split
        answer = None
        if result.rankings and split:
            answer = mitigator_answer(result.rankings, split, chosen=trained.path is not None)
        if self.json:
            values = result.as_dict()
            values["notes"] = [*(self.read.notes or ()), *values["notes"]]
            values["recommendation"] = None if answer is None else answer.model_dump()
            show.print_json({**values, "model": str(self.output), "warnings": [*self.read.warnings, *warned]})
            return
        self._notes()
        self._answer(answer)
        title = f"{result.task}, {split} split"
        if result.rankings:
            show.put(show.rendered(rankings_table(title, result.rankings)))
        if result.reports and (self.verbose or not result.rankings):
            show.put(show.report_table(f"{title}, per cent; zero-shot of both", list(result.reports.items())))
        if trained.path is not None and self.verbose:
            show.put(show.rendered(strength_table(trained.path, trained.mitigator.strength)))
        # Harms and limits are always printed.
        for sentence in (*result.notes, *(trained.sentences if self.verbose else ())):
            show.say(sentence)
        show.say(f"EmbeddingMitigator: strength {trained.strength_text}; written to {self.output}")
        self._rest()

    def _notes(self) -> None:
        for note in self.read.notes or ():
            show.say(note)

    def _answer(self, answer: Recommendation | None) -> None:
        if answer is not None:
            show.answer((answer.sentence, answer.advice))

    def _rest(self) -> None:
        if not self.verbose:
            show.say(REST)

    def _classifier_tables(self, result: dict[str, Any], trained: Trained) -> None:
        from fairerclip.auditing.model_facts import after_name, model_facts
        from fairerclip.report.fit_tables import choice_table, skew_table, tuning_table

        after = after_name(model_facts(trained.model))
        training = " (the rows it was fitted on)" if result["split"] == "train" else ""
        title = f"{result['task']}, {result['split']} split{training}"
        if result["reports"]:
            rows = [(name if name == "zero-shot" else after, r) for name, r in result["reports"].items()]
            show.put(show.report_table(f"{title}, per cent; labels used: {result['labels']}", rows))
        elif result["skews"]:
            show.put(show.rendered(skew_table(title, result["skews"], after)))
        else:
            show.say(NOTHING_TO_EVALUATE)
        if result["tuning"] and self.verbose:
            table = tuning_table if trained.is_own else choice_table
            show.put(show.rendered(table(result["tuning"])))
