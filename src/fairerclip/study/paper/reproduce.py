"""Run entries and write what they found: JSON to run it again, Markdown and a page to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fairerclip._util.checks import check_range
from fairerclip._util.files import check_folder, check_free, sole_use, write_folder
from fairerclip._util.numbers import NOTHING, significant
from fairerclip.auditing.validation import refusing
from fairerclip.errors import ResultsFileError
from fairerclip.report.document import Document
from fairerclip.report.result_table import Content, ResultTable
from fairerclip.study.comparison import StudySoftware
from fairerclip.study.jobs import read_stored
from fairerclip.study.paper.context import Context, Outcome, ReproduceOptions
from fairerclip.study.paper.entries import ENTRIES, Entry
from fairerclip.study.paper.entry_result import FORMAT, VERSION, EntryResult, plain
from fairerclip.study.paper.task_source import TaskSource

FORMS = ("md", "html", "json")


def reproduce(
    entries: Sequence[Entry],
    source: TaskSource,
    output: Path,
    options: ReproduceOptions | None = None,
    *,
    command: str = "",
    overwrite: bool = False,
    progress: Callable[[str], Callable[[int, int], None]] | None = None,
) -> list[EntryResult]:
    """Run entries one after the other, writing each as it is done; single runs are kept in ``output/runs``.

    An entry without a measured figure writes nothing: a page of published figures alone would read as a result.

    Parameters
    ----------
    entries : what to run.
    source : where the tasks come from.
    output : folder to write into.
    options : seeds, processes, caps.
    command : what to type to run it again.
    overwrite : replace what was written before; kept runs are used again all the same.
    progress : given an entry's name, what to call with (runs done, runs in all).

    Returns
    -------
    list of EntryResult
        What was written as JSON, per entry; of one that ``failed`` nothing was.
    """
    options = options or ReproduceOptions()
    for name in ("seeds", "jobs", "max_steps"):
        if getattr(options, name) is not None:
            check_range(name, getattr(options, name))
    check_output(entries, output, overwrite)
    source.check({dataset for entry in entries for dataset in entry.needs})
    done = []
    with sole_use(output / "runs"):
        for entry in entries:
            told = progress(entry.name) if progress is not None else lambda done, total: None
            done.append(run_entry(entry, source, options, output / "runs", command, told))
            write(done, source, output)
    return done


def check_output(entries: Sequence[Entry], output: Path, overwrite: bool) -> None:
    """Refuse a folder that could not be written, and outputs that are taken, before anything runs."""
    check_folder(output, overwrite=True)
    for entry in entries:
        for form in FORMS:
            check_free(output / f"{entry.name}.{form}", overwrite)


@refusing()
def run_entry(
    entry: Entry,
    source: TaskSource,
    options: ReproduceOptions,
    work: Path,
    command: str,
    progress: Callable[[int, int], None],
) -> EntryResult:
    """Run one entry; what fails is told in the result, as is whether no part has a figure (``failed``)."""
    context = Context(source, options, work, progress)
    reason = entry.why_not(source)
    if reason is not None:
        outcome = Outcome()
        context.failures.append(f"cannot run on this source: {reason}")
    else:
        try:
            outcome = entry.run(context)
        except Exception as error:  # noqa: BLE001 - one failing entry does not stop the rest
            outcome = Outcome()
            context.failures.append(f"{type(error).__name__}: {error}")
    failures = list(dict.fromkeys(context.failures))
    failed = not any(outcome.results.values()) or 0 == context.answered < context.asked
    page = _document(entry, context, outcome, failures)
    return EntryResult(
        source=source.sentence,
        format=FORMAT,
        version=VERSION,
        name=entry.name,
        title=entry.title,
        where=entry.where,
        kind=source.kind,
        command=command,
        settings=context.settings(),
        tasks=tuple(one.about() for one in context.used.values()),
        made=StudySoftware.now(),
        failed=failed,
        absent=entry.absent(source),
        failures=tuple(failures),
        results={name: plain(found) for name, found in outcome.results.items()},
        document=page,
    )


def _document(entry: Entry, context: Context, outcome: Outcome, failures: list[str]) -> Document:
    settings = context.settings()
    notes = [
        f"{entry.where} of Dehdashtian et al. 2024 (arXiv:2403.15593).",
        *outcome.notes,
        f"Seeds: {settings.seeds}; {settings.gradient_seeds} for methods trained by gradient, whose training is "
        f"capped at {significant(settings.max_steps, 6)} batches per setting."
        + (" Quick: few methods and settings." if settings.quick else ""),
        *dict.fromkeys(f"{one.dataset}: {note}" for one in context.used.values() for note in one.notes),
    ]
    tables = list(outcome.tables)
    if failures:
        tables.append(ResultTable("What is missing or failed", ["what"], [[text] for text in failures]))
    if context.used:
        tables.append(_data_table(context))
    title = f"{entry.name}: {entry.title}"
    return Document(title, context.source.sentence, notes, tables, outcome.heatmaps, outcome.curves)


def _data_table(context: Context) -> ResultTable:
    rows = []
    for one in context.used.values():
        about = one.about()
        counts = " / ".join(str(about.rows.get(name, NOTHING)) for name in ("train", "val", "test"))
        digest = about.digest.rpartition(":")[2][:16]
        rows.append([about.name, about.encoder, counts, " | ".join(about.prompts), digest, one.note])
    columns = ["task", "encoder", "train / val / test", "prompts", "digest", "note"]
    return ResultTable("Data", columns, rows, left=len(columns))


def write(results: Sequence[EntryResult], source: TaskSource, output: Path) -> None:
    """Write the last of the results in its three forms, with the index, in one step.

    Of one that failed there is none, as a page of an earlier run would read as this one's.
    """
    result, index = results[-1], index_page(output, source, results)
    texts = {"index.md": index.to_markdown(), "index.html": index.to_html()}
    names = [f"{result.name}.{form}" for form in FORMS]
    if not result.failed:
        page = result.document
        texts |= zip(names, (page.to_markdown(), page.to_html(), result.as_json()), strict=True)
    contents = {name: text.encode("utf-8", errors="replace") for name, text in texts.items()}
    write_folder(output, contents, overwrite=True, ours=names)


def index_page(output: Path, source: TaskSource, results: Sequence[EntryResult]) -> Document:
    """Which entries there are, with these results and in a folder from earlier, and which failed now."""
    rows: list[list[Content]] = []
    now = {result.name: result for result in results}
    for entry in ENTRIES:
        file = output / f"{entry.name}.json"
        if now[entry.name].failed if entry.name in now else not file.is_file():
            continue
        try:
            found = now.get(entry.name) or read_stored(file, EntryResult)
        except ResultsFileError as error:
            rows.append([entry.name, entry.title, entry.where, str(error), "", ""])
            continue
        made = [found.kind, str(len(found.failures)), found.made.date]
        rows.append([entry.name, entry.title, entry.where, *made])
    lost = [[result.name, result.first_reason] for result in results if result.failed]
    columns = ["name", "what", "in the paper", "source", "parts missing or failed", "made"]
    notes = ["Each is NAME.json (all numbers), NAME.md and NAME.html in this folder."]
    return Document(
        "Tables and figures of the FairerCLIP paper",
        source.sentence,
        notes,
        [
            ResultTable("What was run", columns, rows, left=len(columns)),
            *([ResultTable("Without a measured figure", ["name", "why"], lost, left=2)] if lost else []),
        ],
    )
