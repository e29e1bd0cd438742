"""Results of an audit as frozen objects, and ``results.json``, the file they are written to and read from.

The classes are pydantic models, which are validated, immutable, and give the JSON schema. Fields are in the order of
the file. Shares are fractions, and a figure that is not defined is None.
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
from fairerclip.auditing.auc_results import AucSection
from fairerclip.auditing.finding_results import Finding, Recommendation
from fairerclip.auditing.group_results import (
    GroupsSection,
    Measured,
    MeasuredChange,
    PictureSection,
    PlaneSection,
    ScoresSection,
    Stage,
)
from fairerclip.auditing.model_results import ModelSection
from fairerclip.auditing.query_results import QueriesSection, unequal_counts
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
"""Values of up to this many characters are written on one line of the file."""

Probe = Literal["linear", "kernel"]
Measure = Literal["dep", "hsic", "kcc"]
Confidence = Annotated[float, Field(gt=0, lt=1), Called("a number between 0 and 1")]


class Tested(Part):
    """A figure, its interval, and the p-value of a permutation test."""

    value: Number | None = None
    p_value: Share | None = None
    low: Number | None = None
    high: High = None


class MadeWith(Part):
    """Versions of the software that made the results, the date (UTC), and the time in seconds."""

    fairerclip: Text
    python: Text
    numpy: Text
    scipy: Text
    scikit_learn: Text = Field(alias="scikit-learn")
    date: Text
    seconds: Number | None = None


def made() -> dict[str, str]:
    """Return the versions of the running software, and the date (UTC)."""
    return {
        "fairerclip": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "scipy", "scikit-learn")},
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


class GroupSize(Part):
    """Number of rows with target ``y`` and sensitive value ``s``."""

    y: Text
    s: Text
    n: Count


class TaskSection(ConsistentPart):
    """The audited task.

    ``digest`` is a SHA-256 over embeddings and labels, and ``width`` is the length of an embedding. ``rows`` and
    ``counts`` are by split, ``sensitive_prompts`` by attribute. ``groups`` are the sensitive values that occur.
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
        """Yield a problem if the number of prompts is not the number of classes."""
        if self.target_prompts:
            yield from same_length("target_prompts", self.target_prompts, len(self.classes), "texts")


class SettingsSection(Part):
    """Options of the audit.

    ``chosen_on`` is the split that the model was chosen on; a group of fewer than ``small`` rows is marked as small.
    """

    split: Text | None = None
    chosen_on: Text | None = None
    confidence: Confidence
    seed: Integer | None = None
    permutations: Count | None = None
    small: Count


class SkewFigures(Part):
    """Figures of the top results of a ranking."""

    max_skew: Measured | None = None
    min_skew: Measured | None = None
    ndkl: Measured | None = None
    kl: Measured | None = None
    bias: Measured | None = None
    precision: Measured | None = None
    recall: Measured | None = None


class RankedStage(Part):
    """Expected number of rows of each group in the top results of a ranking, and the figures of these results."""

    counts: Many[Number]
    max_skew: Measured | None = None
    min_skew: Measured | None = None
    ndkl: Measured | None = None
    kl: Measured | None = None
    bias: Measured | None = None
    precision: Measured | None = None
    recall: Measured | None = None


class SkewChanges(Part):
    """Changes of the figures of a ranking from before to after mitigation."""

    max_skew: MeasuredChange | None = None
    min_skew: MeasuredChange | None = None
    ndkl: MeasuredChange | None = None
    kl: MeasuredChange | None = None
    bias: MeasuredChange | None = None
    precision: MeasuredChange | None = None
    recall: MeasuredChange | None = None


class DriftFigures(Part):
    """Similarity of the order before and after mitigation: rank correlation overall and inside groups, top overlap."""

    spearman: Measured | None = None
    spearman_within: Measured | None = None
    overlap: Measured | None = None


class RetrievalQuery(Part):
    """The ranking of one prompt; ``clear`` if MaxSkew changed significantly, corrected for the number of prompts."""

    name: Text
    prompt: Text
    before: RankedStage | None = None
    after: RankedStage | None = None
    changes: SkewChanges | None = None
    drift: DriftFigures | None = None
    clear: Boolean | None = None


class RetrievalMean(Part):
    """Mean figures of the rankings over the prompts."""

    before: SkewFigures | None = None
    after: SkewFigures | None = None
    changes: SkewChanges | None = None


class RetrievalSection(ConsistentPart):
    """The top ``k`` of ``n`` rows for each prompt; ``shares`` are the groups' shares of all rows.

    ``pair`` are the two groups of ``bias`` (Bias@k), which is positive if the first is shown more often.
    """

    split: Text
    k: Count
    n: Count
    reference: Text
    ties: Text
    groups: Many[Text]
    shares: Many[Share]
    pair: Many[Text] | None = None
    queries: Many[RetrievalQuery]
    mean: RetrievalMean

    def problems(self) -> Problems:
        """Yield a problem for each list that has not one number per group, and if ``pair`` is not two groups."""
        yield from unequal_counts(self)
        if self.pair is not None and not (len(self.pair) == 2 and {*self.pair} <= {*self.groups}):
            yield "pair", "expected two of the groups, got others"


class ProbeRow(Part):
    """Balanced accuracy, out of fold, of a probe that predicts an attribute; ``chance`` is that of guessing."""

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
    """Dependence of predictions or embeddings on an attribute, within the rows of class ``given`` if it is not None."""

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
    """Zero-shot figures with one wording of the prompts."""

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
        """Yield a problem if ``used`` is not the index of a template."""
        if self.used is not None and self.used >= len(self.templates):
            yield "used", f"expected one of {len(self.templates)} templates, got {self.used}"


class RepresentationRow(Part):
    """Dependence of embeddings on the target (``_y``) and on the sensitive attribute (``_s``)."""

    stage: Stage
    space: Text
    hsic_y: Tested | None = None
    hsic_s: Tested | None = None
    kcc_y: Tested | None = None
    kcc_s: Tested | None = None


class AuditResults(Part):
    """All results of an audit; a section for which the task has no labels is None."""

    format: Literal["fairerclip-results"]
    version: Integer
    made: MadeWith
    task: TaskSection
    settings: SettingsSection
    model: ModelSection | None = None
    verdict: Many[Text]
    recommendation: Recommendation | None = None
    findings: Many[Finding]
    groups: GroupsSection | None = None
    scores: ScoresSection | None = None
    auc: AucSection | None = None
    picture: PictureSection | None = None
    plane: PlaneSection | None = None
    retrieval: RetrievalSection | None = None
    queries: QueriesSection | None = None
    probes: Many[ProbeRow] | None = None
    dependence: Many[DependenceRow] | None = None
    wording: WordingSection | None = None
    representation: Many[RepresentationRow] | None = None
    limits: Many[Text]

    def _repr_html_(self) -> str:
        from fairerclip.auditing.results_display import results_html

        return results_html(self)


@reading(ResultsFileError)
def read_results(path: str | Path) -> AuditResults:
    """Read results from a file, or from ``results.json`` in a folder.

    The file is not trusted: its size is limited, its JSON is read strictly, and every value is validated. Keys that
    the format does not know are left out. O(size of the file).

    Raises
    ------
    ResultsFileError
        The file is missing, damaged or of another format; the message has its path and the place inside it.
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
    """Write results as JSON with short lines, so that two files can be compared, and return the path."""
    path = Path(path)
    document = results.model_dump(by_alias=True, warnings=False)
    check_results(document)  # `model_copy` does not validate
    raw = (_lines(document, 0) + "\n").encode()
    if len(raw) > MAX_BYTES:
        raise ResultsFileError(
            f"{path}: expected results of at most {MAX_BYTES} bytes, got {len(raw)}; audit fewer groups or τ"
        )
    strict_loads(raw, str(path), ResultsFileError, limit=MAX_BYTES)  # do not write what cannot be read
    with atomic_file(path, overwrite=overwrite) as handle:
        handle.write(raw)
    return path


def check_results(document: Any, *, exact: bool = False) -> AuditResults:
    """Validate a document and return it as results.

    A key that the format does not know is left out; with ``exact`` it is an error.
    """
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ResultsFileError(f"expected results that `fairerclip audit` wrote (format {FORMAT!r})")
    version = document.get("version")
    if version != VERSION:
        raise ResultsFileError(
            f"expected version {VERSION}, got {version!r:.40}: made by another version of fairerclip"
        )
    try:
        return AuditResults.model_validate(document, extra="forbid" if exact else "ignore")
    except ValidationError as error:
        raise ResultsFileError(refusal(error)) from None


def _lines(value: Any, depth: int) -> str:
    """Return JSON with short values on one line; longer ones have one item per line."""
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
