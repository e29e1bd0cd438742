"""Results of an audit as frozen objects, and ``results.json``, the file they are written to and read from.

The models are pydantic's: a well-kept library that validates, makes immutable and publishes a JSON schema.
Fields stand in the order of the file. Shares are fractions, and what is not defined is None.
"""

from __future__ import annotations

import json
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError

from fairerclip import __version__
from fairerclip._util.files import atomic_file, reading
from fairerclip.auditing.group_results import (
    Command,
    GroupsSection,
    Measured,
    PictureSection,
    PlaneSection,
    ScoresSection,
    Stage,
    present_stages,
)
from fairerclip.auditing.validation import (
    Boolean,
    Called,
    ConsistentPart,
    Count,
    High,
    Integer,
    Keyed,
    Many,
    Number,
    Part,
    Problems,
    Scalar,
    Share,
    Text,
    refusal,
    same_length,
)
from fairerclip.data.io.strict_json import read_strict_json, strict_loads
from fairerclip.errors import ResultsFileError

FORMAT: Final = "fairerclip-results"
VERSION = 1
FILE_NAME = "results.json"
MAX_BYTES = 16 << 20
LINE = 160
"""What fits into this many characters stands on one line of the file."""

Known = Literal["known", "partly guessed", "guessed"]
Labels = Literal["none", "target", "all"]
Level = Literal["problem", "good", "caution", "note"]
Probe = Literal["linear", "kernel"]
Measure = Literal["dep", "hsic", "kcc"]
Method = Literal[
    "FairerCLIP",
    "zero-shot",
    "zero-shot with class offsets",
    "orthogonal prompts",
    "orthogonal prompts with class offsets",
]
"""What a fitted model is: learned encoders, or a zero-shot classifier that a search found no better than."""
Confidence = Annotated[float, Field(gt=0, lt=1), Called("a number between 0 and 1")]


class Tested(Part):
    """A figure, its interval, and the p-value of a permutation test."""

    value: Number | None = None
    p_value: Share | None = None
    low: Number | None = None
    high: High = None


class MeasuredChange(Part):
    """A figure before and after, and their difference with a paired interval."""

    before: Number | None = None
    after: Number | None = None
    difference: Number | None = None
    low: Number | None = None
    high: High = None


class MadeWith(Part):
    """Versions of what made the results, when (UTC) and in how many seconds."""

    fairerclip: Text
    python: Text
    numpy: Text
    scipy: Text
    scikit_learn: Text = Field(alias="scikit-learn")
    date: Text
    seconds: Number | None = None


def made() -> dict[str, str]:
    """Return the versions of what makes a result, and the date (UTC)."""
    return {
        "fairerclip": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "scipy", "scikit-learn")},
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


class GroupSize(Part):
    """How many rows have target ``y`` and sensitive value ``s``."""

    y: Text
    s: Text
    n: Count


class TaskSection(ConsistentPart):
    """The audited task.

    ``digest`` is a SHA-256 over embeddings and labels, ``width`` that of an embedding; ``rows`` and ``counts``
    are by split, ``sensitive_prompts`` by attribute; ``groups`` are the sensitive values that occur.
    """

    name: Text
    file: Text | None = None
    simulated: Boolean
    digest: Text
    width: Count
    rows: Keyed[Count]
    classes: Many[Text]
    sensitive: Many[Text]
    groups: Many[Text]
    target_prompts: Many[Text] | None = None
    sensitive_prompts: Keyed[Many[Text] | None] | None = None
    counts: Keyed[Many[GroupSize]]

    def problems(self) -> Problems:
        """Yield where there is not a prompt for each class."""
        if self.target_prompts:
            yield from same_length("target_prompts", self.target_prompts, len(self.classes), "texts")


class SettingsSection(Part):
    """What the audit was told; ``chosen_on`` is the split that chose the model, ``small`` the rows of a small group."""

    split: Text | None = None
    chosen_on: Text | None = None
    confidence: Confidence
    seed: Integer | None = None
    permutations: Count | None = None
    small: Count


class TrainingSection(Part):
    """Rows that a model was fitted on, and how many of their labels were guessed; sensitive ones by attribute."""

    rows: Count
    target: Known
    target_guessed: Count
    sensitive_guessed: Keyed[Count]


class TuningSection(Part):
    """How a model was chosen, and its figures on the rows that chose it; ``held_out`` is by strategy."""

    objective: Text
    rows: Count
    groups: Text | None = None
    accuracy_floor: Number | None = None
    strategy: Text | None = None
    held_out: Keyed[Number] | None = None
    average: Share | None = None
    worst_group: Share | None = None
    eod: Number | None = None
    max_skew: Number | None = None
    strength: Number | None = None


class ModelSection(Part):
    """The model shown as after; ``labels`` and ``command`` are None for a model that was given.

    ``untuned`` says why rankings were not tuned, ``source`` where the model comes from.
    """

    labels: Labels | None = None
    tau: Number
    tau_z: Number
    criterion: Text
    n_iter: Count | None = None
    parameters: Keyed[Scalar]
    command: Command | None = None
    seconds: Number | None = None
    source: Text
    method: Method | None = None
    untuned: Text | None = None
    training: TrainingSection | None = None
    tuning: TuningSection | None = None


class Finding(Part):
    """A sentence on what was found, and how serious it is."""

    level: Level
    text: Text


class SkewFigures(Part):
    """Figures of the top of a ranking."""

    max_skew: Measured | None = None
    min_skew: Measured | None = None
    ndkl: Measured | None = None
    precision: Measured | None = None
    recall: Measured | None = None


class RankedStage(Part):
    """Expected rows of each group in the top of a ranking, and its figures."""

    counts: Many[Number]
    max_skew: Measured | None = None
    min_skew: Measured | None = None
    ndkl: Measured | None = None
    precision: Measured | None = None
    recall: Measured | None = None


class SkewChanges(Part):
    """Changes of the figures of a ranking."""

    max_skew: MeasuredChange | None = None
    min_skew: MeasuredChange | None = None
    ndkl: MeasuredChange | None = None
    precision: MeasuredChange | None = None
    recall: MeasuredChange | None = None


class DriftFigures(Part):
    """How far mitigation changed the order: rank correlation overall and inside groups, overlap of the top."""

    spearman: Measured | None = None
    spearman_within: Measured | None = None
    overlap: Measured | None = None


class RetrievalQuery(Part):
    """The ranking of one prompt; ``clear`` if MaxSkew changed beyond doubt for all queries together."""

    name: Text
    prompt: Text
    before: RankedStage | None = None
    after: RankedStage | None = None
    changes: SkewChanges | None = None
    drift: DriftFigures | None = None
    clear: Boolean | None = None


class RetrievalMean(Part):
    """Figures of rankings on average over the prompts."""

    before: SkewFigures | None = None
    after: SkewFigures | None = None
    changes: SkewChanges | None = None


class RetrievalSection(ConsistentPart):
    """The top ``k`` of ``n`` rows for each prompt; ``shares`` are those of the groups among all rows."""

    split: Text
    k: Count
    n: Count
    reference: Text
    ties: Text
    groups: Many[Text]
    shares: Many[Share]
    queries: Many[RetrievalQuery]
    mean: RetrievalMean

    def problems(self) -> Problems:
        """Yield shares and counts that are not one for each group."""
        yield from same_length("shares", self.shares, len(self.groups), "numbers")
        for i, query in enumerate(self.queries):
            for stage, ranked in present_stages(query).items():
                name = f"queries[{i}].{stage}.counts"
                yield from same_length(name, ranked.counts, len(self.groups), "numbers")


class ProbeRow(Part):
    """How well a probe reads an attribute from embeddings, out of fold; ``chance`` is what guessing gives."""

    attribute: Text
    probe: Probe
    stage: Stage
    value: Number | None = None
    chance: Share
    n: Count
    folds: Count
    low: Number | None = None
    high: High = None


class DependenceRow(Part):
    """Dependence of predictions or embeddings on an attribute, among the rows of class ``given`` if there is one."""

    stage: Stage
    of: Literal["predictions", "embeddings"]
    attribute: Text
    given: Text | None = None
    measure: Measure
    value: Number | None = None
    p_value: Share | None = None
    permutations: Count | None = None
    n: Count
    low: Number | None = None
    high: High = None


class WordingTemplate(Part):
    """Zero-shot with one wording of the prompts."""

    template: Text
    average: Measured
    worst_group: Measured
    worst_name: Text
    eod: Measured | None = None


class WordingSection(ConsistentPart):
    """Wordings of the prompts; ``used`` is the index of the one that the task uses."""

    split: Text
    templates: Many[WordingTemplate]
    used: Count | None = None

    def problems(self) -> Problems:
        """Yield a used template that is not there."""
        if self.used is not None and self.used >= len(self.templates):
            yield "used", f"expected one of {len(self.templates)} templates, got {self.used}"


class RepresentationRow(Part):
    """Dependence of a space of embeddings on target and sensitive attribute."""

    stage: Stage
    space: Text
    hsic_y: Tested | None = None
    hsic_s: Tested | None = None
    kcc_y: Tested | None = None
    kcc_s: Tested | None = None


class AuditResults(Part):
    """Everything that an audit found; a section that the task's labels do not allow is None."""

    format: Literal["fairerclip-results"]
    version: Integer
    made: MadeWith
    task: TaskSection
    settings: SettingsSection
    model: ModelSection | None = None
    verdict: Many[Text]
    findings: Many[Finding]
    groups: GroupsSection | None = None
    scores: ScoresSection | None = None
    picture: PictureSection | None = None
    plane: PlaneSection | None = None
    retrieval: RetrievalSection | None = None
    probes: Many[ProbeRow] | None = None
    dependence: Many[DependenceRow] | None = None
    wording: WordingSection | None = None
    representation: Many[RepresentationRow] | None = None
    limits: Many[Text]


@reading(ResultsFileError)
def read_results(path: str | Path) -> AuditResults:
    """Return what a file of results, or a folder with ``results.json``, holds.

    The file is not trusted: its size is limited, its JSON read strictly, and everything in it validated. Keys
    that the format does not know are left out. O(size of the file).

    Raises
    ------
    ResultsFileError
        With the path of the file and the place inside the document.
    """
    path = Path(path)
    file = path / FILE_NAME if path.is_dir() else path
    if not file.exists():
        raise ResultsFileError(
            f"{file}: expected a file of results or a folder with {FILE_NAME}; got neither"
        )
    document = read_strict_json(file, ResultsFileError, limit=MAX_BYTES)
    try:
        return check_results(document)
    except ResultsFileError as error:
        raise ResultsFileError(f"{file}: {error}") from None


def write_results(results: AuditResults, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write results as JSON with short lines that can be compared; returns the path."""
    path = Path(path)
    document = results.model_dump(by_alias=True, warnings=False)
    check_results(document)  # a copy with other values (`model_copy`) is not validated
    raw = (_lines(document, 0) + "\n").encode()
    if len(raw) > MAX_BYTES:
        raise ResultsFileError(
            f"{path}: expected results of at most {MAX_BYTES} bytes, got {len(raw)}; audit fewer groups or τ"
        )
    strict_loads(raw, str(path), ResultsFileError, limit=MAX_BYTES)  # nothing is written that cannot be read
    with atomic_file(path, overwrite=overwrite) as handle:
        handle.write(raw)
    return path


def check_results(document: Any, *, exact: bool = False) -> AuditResults:
    """Return a document as results; a key that the format does not know is left out, or refused if ``exact``."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ResultsFileError(f"expected results that `fairerclip audit` wrote (format {FORMAT!r})")
    version = document.get("version")
    if isinstance(version, int) and version > VERSION:
        raise ResultsFileError(
            f"expected version {VERSION} or older, got a later one: made by a newer fairerclip; update yours"
        )
    try:
        return AuditResults.model_validate(document, extra="forbid" if exact else "ignore")
    except ValidationError as error:
        raise ResultsFileError(refusal(error)) from None


def _lines(value: Any, depth: int) -> str:
    """JSON in which what is short stands on one line and what is long is broken up by one level."""
    short = json.dumps(value, allow_nan=False, ensure_ascii=False)
    if len(short) <= LINE or not isinstance(value, dict | tuple):
        return short
    inner = "\n" + " " * (depth + 1)
    if isinstance(value, dict):
        items = [f"{json.dumps(k, ensure_ascii=False)}: {_lines(v, depth + 1)}" for k, v in value.items()]
        opening, closing = "{}"
    else:
        items = [_lines(item, depth + 1) for item in value]
        opening, closing = "[]"
    return f"{opening}{inner}{f',{inner}'.join(items)}\n{' ' * depth}{closing}"
