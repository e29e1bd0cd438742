"""Run entries and write what they found: JSON to run it again, Markdown and a page to read."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fairerclip._util.checks import check_range
from fairerclip._util.files import check_folder, check_free, sole_use, write_folder
from fairerclip._util.numbers import significant
from fairerclip.auditing.run import made
from fairerclip.data.io.strict_json import read_strict_json
from fairerclip.errors import ResultsFileError
from fairerclip.report.document import Document, DocumentTable
from fairerclip.study.paper.context import Context, Outcome, ReproduceOptions
from fairerclip.study.paper.entries import Entry
from fairerclip.study.paper.task_source import TaskSource

FORMAT, VERSION = "fairerclip-reproduction", 1
FORMS = ("md", "html", "json")
MAX_BYTES = 64 << 20


def reproduce(
    entries: Sequence[Entry],
    source: TaskSource,
    output: Path,
    options: ReproduceOptions | None = None,
    *,
    command: str = "",
    overwrite: bool = False,
    progress: Callable[[str], Callable[[int, int], None]] | None = None,
) -> list[dict[str, Any]]:
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
    list of dict
        What was written as JSON, per entry. ``failed`` says that it has no measured figure, and nothing was written;
        ``absent`` that the source has none of its datasets.
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


def run_entry(
    entry: Entry,
    source: TaskSource,
    options: ReproduceOptions,
    work: Path,
    command: str,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
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
    return {
        "source": source.sentence,
        "format": FORMAT,
        "version": VERSION,
        "name": entry.name,
        "title": entry.title,
        "where": entry.where,
        "kind": source.kind,
        "command": command,
        "settings": context.settings(),
        "tasks": [one.about() for one in context.used.values()],
        "made": {**made(), "cores": os.cpu_count()},
        "failed": failed,
        "absent": entry.absent(source),
        "failures": failures,
        "results": plain(outcome.results),
        "document": plain(page.as_dict()),
    }


def plain(value: Any) -> Any:
    """A copy that JSON can hold: numbers of numpy become Python's, what is not finite becomes None.

    Examples
    --------
    >>> plain({"a": (float("nan"), 1.5)})
    {'a': [None, 1.5]}
    """
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _document(entry: Entry, context: Context, outcome: Outcome, failures: list[str]) -> Document:
    settings = context.settings()
    notes = [
        f"{entry.where} of Dehdashtian et al. 2024 (arXiv:2403.15593).",
        *outcome.notes,
        f"Seeds: {settings['seeds']}; {settings['gradient_seeds']} for methods trained by gradient, whose training is "
        f"capped at {significant(settings['max_steps'], 6)} batches per setting."
        + (" Quick: few methods and settings." if settings["quick"] else ""),
        *dict.fromkeys(f"{one.dataset}: {note}" for one in context.used.values() for note in one.notes),
    ]
    tables = list(outcome.tables)
    if failures:
        tables.append(DocumentTable("What is missing or failed", ["what"], [[text] for text in failures]))
    if context.used:
        tables.append(_data_table(context))
    title = f"{entry.name}: {entry.title}"
    return Document(title, context.source.sentence, notes, tables, outcome.heatmaps, outcome.curves)


def _data_table(context: Context) -> DocumentTable:
    rows = []
    for one in context.used.values():
        about = one.about()
        counts = " / ".join(str(about["rows"].get(name, "–")) for name in ("train", "val", "test"))
        prompts = " | ".join(about["prompts"])
        rows.append(
            [
                about["name"],
                about["encoder"],
                counts,
                prompts,
                about["digest"].rpartition(":")[2][:16],
                one.note,
            ]
        )
    columns = ["task", "encoder", "train / val / test", "prompts", "digest", "note"]
    return DocumentTable("Data", columns, rows, left=len(columns))


def write(results: Sequence[Mapping[str, Any]], source: TaskSource, output: Path) -> None:
    """The last of the results in its three forms, with the index, in one step.

    Of one that failed there is none, as a page of an earlier run would read as this one's.
    """
    result, index = results[-1], index_page(output, source, results)
    texts = {"index.md": index.to_markdown(), "index.html": index.to_html()}
    names = [f"{result['name']}.{form}" for form in FORMS]
    if not result["failed"]:
        page = Document.from_dict(result["document"])
        content = json.dumps(result, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        texts |= zip(names, (page.to_markdown(), page.to_html(), content), strict=True)
    contents = {name: text.encode("utf-8", errors="replace") for name, text in texts.items()}
    write_folder(output, contents, overwrite=True, ours=names)


def read(path: Path) -> dict[str, Any]:
    """A result that `reproduce` wrote."""
    found = read_strict_json(path, ResultsFileError, limit=MAX_BYTES)
    if not isinstance(found, dict) or found.get("format") != FORMAT or found.get("version") != VERSION:
        raise ResultsFileError(f"{path} is not a {FORMAT} of version {VERSION}")
    for name, kind in {"failures": list, "made": dict, "document": dict}.items():
        if not isinstance(found.get(name), kind):
            raise ResultsFileError(f"{path}: expected {name!r} as this program writes it")
    return found


def first_reason(result: Mapping[str, Any]) -> str:
    """Why an entry has no measured figure, in a line; what a dataset should look like is left out."""
    lines = str(next(iter(result["failures"]), "nothing was measured")).splitlines()
    return lines[0] if lines else ""


def index_page(output: Path, source: TaskSource, results: Sequence[Mapping[str, Any]]) -> Document:
    """Which entries there are, with these results and in a folder from earlier, and which failed now."""
    from fairerclip.study.paper.entries import ENTRIES

    rows, now = [], {result["name"]: result for result in results}
    for entry in ENTRIES:
        file = output / f"{entry.name}.json"
        if now[entry.name]["failed"] if entry.name in now else not file.is_file():
            continue
        try:
            found = now.get(entry.name) or read(file)
        except ResultsFileError as error:
            rows.append([entry.name, entry.title, entry.where, str(error), "", ""])
            continue
        kind, failures = str(found.get("kind")), len(found["failures"])
        date = str(found["made"].get("date"))
        rows.append([entry.name, entry.title, entry.where, kind, str(failures), date])
    lost = [[result["name"], first_reason(result)] for result in results if result["failed"]]
    columns = ["name", "what", "in the paper", "source", "parts missing or failed", "made"]
    notes = ["Each is NAME.json (all numbers), NAME.md and NAME.html in this folder."]
    return Document(
        "Tables and figures of the FairerCLIP paper",
        source.sentence,
        notes,
        [
            DocumentTable("What was run", columns, rows, left=len(columns)),
            *([DocumentTable("Without a measured figure", ["name", "why"], lost, left=2)] if lost else []),
        ],
    )
