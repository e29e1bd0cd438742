"""Running entries and writing their results as JSON, Markdown and HTML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fairerclip._util.checks import check_range
from fairerclip._util.files import check_folder, check_free, write_folder
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
    """Run entries one after the other and write each when it is done; single runs are kept in ``output/runs``.

    An entry without a measured figure is not written: a page with only published figures would look like a result.

    Parameters
    ----------
    entries : sequence of Entry
        Tables and figures to run.
    source : TaskSource
        Where the tasks come from.
    output : Path
        Folder of the results.
    options : ReproduceOptions, optional
        Seeds, processes and limits.
    command : str
        The command line of this run.
    overwrite : bool, default=False
        Whether to replace earlier results; kept runs are used again in any case.
    progress : callable, optional
        Called with the name of an entry; returns what to call with (runs done, number of runs).

    Returns
    -------
    list of EntryResult
        One per entry; those that ``failed`` were not written.
    """
    options = options or ReproduceOptions()
    for name in ("seeds", "jobs", "max_steps"):
        if getattr(options, name) is not None:
            check_range(name, getattr(options, name))
    check_output(entries, output, overwrite)
    source.check({dataset for entry in entries for dataset in entry.needs})
    done = []
    for entry in entries:
        report = progress(entry.name) if progress is not None else lambda done, total: None
        done.append(run_entry(entry, source, options, output / "runs", command, report))
        write(done, source, output)
    return done


def check_output(entries: Sequence[Entry], output: Path, overwrite: bool) -> None:
    """Raise before anything runs if a folder cannot be written, or if outputs exist unless ``overwrite``."""
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
    """Run one entry; its result has the failures, and ``failed`` is true if no part has a figure."""
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
        tasks=tuple(source_task.about() for source_task in context.used.values()),
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
        *dict.fromkeys(
            f"{source_task.dataset}: {note}"
            for source_task in context.used.values()
            for note in source_task.notes
        ),
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
    for source_task in context.used.values():
        about = source_task.about()
        counts = " / ".join(str(about.rows.get(name, NOTHING)) for name in ("train", "val", "test"))
        digest = about.digest.rpartition(":")[2][:16]
        rows.append([about.name, about.encoder, counts, " | ".join(about.prompts), digest, source_task.note])
    columns = ["task", "encoder", "train / val / test", "prompts", "digest", "note"]
    return ResultTable("Data", columns, rows, left=len(columns))


def write(results: Sequence[EntryResult], source: TaskSource, output: Path) -> None:
    """Write the last of the results in its three forms, and the index.

    If it failed, its files of an earlier run are removed: they would look like results of this run.
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
    """Make the page that lists the entries of these results and of earlier runs, and the entries that failed now."""
    rows: list[list[Content]] = []
    now = {result.name: result for result in results}
    for entry in ENTRIES:
        file = output / f"{entry.name}.json"
        if now[entry.name].failed if entry.name in now else not file.is_file():
            continue
        try:
            result = now.get(entry.name) or read_stored(file, EntryResult)
        except ResultsFileError as error:
            rows.append([entry.name, entry.title, entry.where, str(error), "", ""])
            continue
        made = [result.kind, str(len(result.failures)), result.made.date]
        rows.append([entry.name, entry.title, entry.where, *made])
    failed = [[result.name, result.first_reason] for result in results if result.failed]
    columns = ["name", "what", "in the paper", "source", "parts missing or failed", "made"]
    notes = ["Each is NAME.json (all numbers), NAME.md and NAME.html in this folder."]
    return Document(
        "Tables and figures of the FairerCLIP paper",
        source.sentence,
        notes,
        [
            ResultTable("What was run", columns, rows, left=len(columns)),
            *([ResultTable("Without a measured figure", ["name", "why"], failed, left=2)] if failed else []),
        ],
    )
