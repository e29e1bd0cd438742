"""Foreign text on a terminal: what is printed is read by a person and obeyed by nothing."""

import ast
import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from foreign_text import FILE_NAME, NAME, forbidden, renamed

import fairerclip
from fairerclip import FairerCLIP
from fairerclip.data import save_task, simulate
from fairerclip.experiment import Experiment
from light import few_settings

SOURCE = Path(fairerclip.__file__).parent
WRITERS = {"cli/show.py", "cli/streams.py", "serving/service_log.py"}
"""The modules that print: one draws, one writes, and one writes the log of a service."""
FAST = ("--set", "n_features=30")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with tasks and a model; names in it, its own and those of its files are foreign text."""
    birds, gallery = simulate("waterbirds", scale=0.03, width=48), simulate("gallery", scale=0.03, width=48)
    folder = tmp_path_factory.mktemp("made") / FILE_NAME
    folder.mkdir()
    save_task(birds, folder.parent / TASK)
    task = renamed(birds)
    save_task(task, folder / f"{FILE_NAME}.npz")
    save_task(renamed(gallery), folder / f"{FILE_NAME}.safetensors")
    save_task(renamed(birds, NAME + "x" * 5000), folder / "long.npz")
    experiment = Experiment.of(task, None, None)
    model = experiment.fit(FairerCLIP(n_features=30, random_state=0), "target")
    model.save(folder / f"{FILE_NAME}.model")
    return folder


@pytest.fixture
def home(made, tmp_path, monkeypatch):
    """A fresh folder with the same, to run in."""
    home = tmp_path / FILE_NAME
    home.mkdir()
    for file in made.iterdir():
        (home / file.name).symlink_to(file)
    monkeypatch.chdir(home)
    return home


COMMANDS = {
    "fit": ("fit", "{}.npz", "-o", "m", "--no-tune", *FAST),
    "fit, tuned": ("fit", "{}.npz", "-o", "m", "--tune", *FAST),
    "fit, 5,000 characters": ("fit", "long.npz", "-o", "m", "--no-tune", *FAST),
    "fit, no target": (
        "fit",
        "{}.safetensors",
        "-o",
        "m",
        "--no-tune",
        "--sensitive",
        f"{FILE_NAME}0",
        *FAST,
    ),
    "fit, warned": ("fit", "{}.npz", "-o", "m", "--no-tune", "--set", "n_components=3", *FAST),
    "path": ("path", "{}.npz", "--taus", "0.2", "-o", "{}.csv", *FAST),
    "plane": ("path", "{}.npz", "--taus", "0.2,0.7", "--tau-zs", "0.1,0.2", *FAST),
    "apply": ("apply", "{}.model", "{}.npz", "-o", "{}.csv"),
    "apply, ranks": ("apply", "{}.model", "{}.npz", "-o", "{}.csv", "--top", "3"),
    "audit, several": ("audit", "{}.npz", "{}.npz"),
    "compare": ("compare", "{}.npz", "--methods", "zero-shot", "-o", "{}.compared"),
    "reproduce": ("reproduce", "list", "--tasks", "."),
}


def harmless(result):
    code, out, err = result
    assert code == 0, err
    assert out
    assert forbidden(out + err) == set()
    assert not [line for line in (out + err).splitlines() if line.startswith("FAKE")]  # no line of their own
    return out + err


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_print_foreign_names_harmlessly(home, run, monkeypatch, command):
    few_settings(monkeypatch)
    text = harmless(run(*(a.replace("{}", str(home / FILE_NAME)) for a in COMMANDS[command])))
    assert "[red]" in text or command == "reproduce"


def test_audits_and_reports_print_foreign_names_harmlessly(home, run):
    name = home / FILE_NAME
    assert "[/b]" in harmless(run("audit", f"{name}.npz", "-o", f"{name}.json", "--permutations", "19"))
    for form, ending in (("html", "html"), ("csv", "tables")):
        text = harmless(run("report", f"{name}.json", "--format", form, "-o", f"{name}.{ending}"))
        assert "[/b]" in text


def test_a_task_of_foreign_labels_is_made_harmlessly(home, run):
    """Prompt sets take printable names alone; ids and files may be called anything."""
    rng, name, word = np.random.default_rng(0), FILE_NAME, "[/b][red]:bug:"
    ids = [f"{name}{i}" for i in range(24)]
    X = rng.normal(size=(24, 8)).astype(np.float32)
    np.savez(f"{name}.store.npz", embeddings=X, ids=np.array([*ids[:-1], f"{name}unmatched"]))
    with open(f"{name}.csv", "w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle)
        writer.writerow([f"{name}i", f"{name}y", f"{word}s"])
        writer.writerows([i, f"{word}{n % 2}", f"{word}{n // 2 % 2}"] for n, i in enumerate(ids))
    values = {f"{word}{n}": [f"{word}, {n}"] for n in range(2)}
    about = {"version": 1, "name": "mine", "source": {"kind": "ours", "citation": "ours", "note": "none"}}
    words = {"classes": values, "sensitive": {f"{word}s": {key: [f"of {key}"] for key in values}}}
    Path(f"{name}.json").write_text(json.dumps({**about, **words}), encoding="utf-8")
    np.save(f"{name}.npy", rng.normal(size=(4, 8)).astype(np.float32))
    options = ("--id", f"{name}i", "--target", f"{name}y", "--sensitive", f"{word}s", "--text", f"{name}.npy")
    files = ("--labels", f"{name}.csv", "--prompts", f"{name}.json", "-o", f"{name}-made.safetensors")
    assert "[/b][red]:bug:" in harmless(run("task", "embeddings", f"{name}.store.npz", *files, *options))


@pytest.mark.linux
def test_an_audit_of_a_file_whose_name_is_no_text_is_not_lost(home, made, run):
    try:
        Path("\udce9.npz").symlink_to(made.parent / TASK)
    except (OSError, UnicodeError):
        pytest.skip("names are text in this file system")
    harmless(run("audit", "\udce9.npz", "-o", "\udce9.json", "--permutations", "19"))
    assert json.loads(Path("\udce9.json").read_bytes())["task"]["file"] == "?.npz"


def test_documents_for_machines_escape_foreign_names(home, run):
    code, out, err = run(*(a.replace("{}", str(home / FILE_NAME)) for a in COMMANDS["path"]), "--json")
    assert code == 0, err
    assert out.isascii()
    assert json.loads(out)["task"] == f"{NAME}n"


WORD = FILE_NAME
TASK = "birds.npz"
WRONG = (
    (WORD,),
    (f"--{WORD}",),
    ("task", WORD),
    ("fit", WORD, "-o", "m"),
    ("fit", f"{WORD}.npz", "-o", "m"),
    ("fit", f"simulated:{WORD}", "-o", "m"),
    ("fit", TASK, "-o", "m", "--tau", WORD),
    ("fit", TASK, "-o", "m", "--set", WORD),
    ("fit", TASK, "-o", "m", "--set", f"tau={WORD}"),
    ("fit", TASK, "-o", "m", "--preset", WORD),
    ("fit", TASK, "-o", "m", "--labels", WORD),
    ("fit", TASK, "-o", "m", "--sensitive", WORD),
    ("fit", TASK, "-o", "m", "--classes", WORD),
    ("fit", TASK, "-o", "m", "--objective", WORD),
    ("path", TASK, "--by", WORD),
    ("path", TASK, "--taus", WORD),
    ("path", TASK, "--split", WORD),
    ("apply", WORD, WORD, "-o", "x.csv"),
    ("apply", WORD, WORD, "-o", f"x.{WORD}"),
    ("report", f"{WORD}.json"),
    ("report", "x.json", "--format", WORD),
    ("audit", "--dataset", WORD, "--root", WORD, "--work", WORD, "--model", WORD),
    ("embed", WORD, "--model", WORD, "-o", WORD),
    ("compare", TASK, "--methods", WORD),
    ("reproduce", WORD),
    ("task", "waterbirds", WORD, "-o", "x.npz"),
    (
        "task",
        "embeddings",
        WORD,
        "--labels",
        WORD,
        "--id",
        "i",
        "--sensitive",
        "s",
        "--prompts",
        WORD,
        "-o",
        "x",
    ),
)


@pytest.mark.parametrize(
    "arguments", WRONG, ids=lambda arguments: " ".join(a for a in arguments if WORD not in a)[:40] or "word"
)
def test_an_error_names_foreign_text_in_one_harmless_line(made, run, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*(made.parent / TASK if a == TASK else a for a in arguments), "--json")
    assert code == 2
    assert err.startswith("fairerclip: ")
    assert err.count("\n") == 1
    assert forbidden(err) == set()
    assert out.isascii()
    assert json.loads(out)["error"]["message"] == err.removeprefix("fairerclip: ").rstrip("\n")
    assert list(tmp_path.iterdir()) == []


def test_a_fault_of_ours_is_told_harmlessly(capsys):
    from fairerclip.cli.streams import show_traceback

    error = ValueError(NAME)
    show_traceback(ValueError, error, None)
    err = capsys.readouterr().err
    assert "ValueError: [/b]" in err
    assert forbidden(err) == set()


def test_a_warning_that_nobody_waits_for_is_one_harmless_line(run, monkeypatch):
    import warnings

    from fairerclip.cli import app

    def warned(**options):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(NAME, UserWarning, stacklevel=1)

    monkeypatch.setattr(app, "app", warned)
    code, _, err = run("fit")
    assert code == 0
    assert err.startswith("warning: UserWarning: [/b]")
    assert err.count("\n") == 1
    assert forbidden(err) == set()


def test_a_line_has_an_end(capsys):
    from fairerclip.cli import show, streams

    show.say("x" * 10**6)
    streams.print_error("x" * 10**6)
    assert [len(text) for text in capsys.readouterr()] == [8001, 8013]


def test_a_bar_is_named_harmlessly(monkeypatch):
    import io

    from rich.console import Console

    from fairerclip.cli import show

    screen = io.StringIO()
    monkeypatch.setattr(show, "err", Console(file=screen, force_terminal=True, width=200, color_system=None))
    with show.progress(NAME, rate=True) as advance:
        advance(1, 2, f"other{NAME}")
    text = screen.getvalue()
    assert "[/b]" in text
    assert not set(text) & {"\x07", "\x9b", "\u202e", "\u2067", "\u200f", "\u061c", "\u200b", "\u2028"}
    assert "\x1b]" not in text


def writes(tree):
    """What in a module prints, or could: line and words."""
    calls = {
        "print",
        "echo",
        "secho",
        "print_exc",
        "print_exception",
        "pprint",
        "add_row",
        "add_column",
        "add_task",
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            found = [
                name for name in names if name.partition(".")[0] in ("rich", "click", "logging", "pprint")
            ]
        elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") in ("sys", "os"):
            streams = {"stdout", "stderr", "__stdout__", "__stderr__", "write", "excepthook"}
            found = [ast.unparse(node)] if node.attr in streams else []
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            found = [name] if name in calls else []
        else:
            found = []
        yield from ((node.lineno, words) for words in found)


WORDS = re.compile(
    "rich|click|logging|print|echo|sys.std|sys.__std|excepthook|os.write|add_(row|column|task)"
)


def test_only_two_modules_print():
    found = {
        name: told
        for file in SOURCE.rglob("*.py")
        if (name := file.relative_to(SOURCE).as_posix()) not in WRITERS
        and WORDS.search(text := file.read_text(encoding="utf-8"))  # most modules need not be parsed
        and (told := list(writes(ast.parse(text))))
    }
    (hook,) = found.pop("cli/main.py")
    assert hook[1] == "sys.excepthook"
    # One sets how much Dask logs; a service has a log.
    logs = {
        name: told for name, told in found.items() if name.startswith(("data/cluster_client", "serving/"))
    }
    assert {words for told in logs.values() for _, words in told} == {"logging"}
    found = {name: told for name, told in found.items() if name not in logs}
    assert found == {}


@pytest.mark.parametrize(
    "code",
    [
        *("print(x)", "typer.echo(x)", "sys.stderr.write(x)", "sys.stdout.flush()", "os.write(1, x)"),
        *(
            "show.out.print(x)",
            "from rich.table import Table",
            "import rich",
            "t.add_row(x)",
            "import logging",
        ),
        *("t.add_column(x)", "bar.add_task(x)", "traceback.print_exc()", "typer.secho(x)"),
    ],
)
def test_what_prints_is_found(code):
    assert WORDS.search(code)
    assert list(writes(ast.parse(code)))


def drawn(tree):
    """Every value that the module hands to what draws, and whether it was cleaned."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
        words = [
            k.value for k in node.keywords if k.arg in ("title", "description", "caption", "header", "footer")
        ]
        if name in ("print", "add_column", "add_row", "add_task"):
            words += node.args
        yield from ((ast.unparse(node), _clean(word)) for word in words)
        if name in ("from_markup", "render_str", "from_ansi", "escape", "log", "rule", "print_json", "input"):
            yield ast.unparse(node), False


def _clean(value):
    if isinstance(value, ast.Starred):
        return isinstance(value.value, ast.GeneratorExp) and _clean(value.value.elt)
    if isinstance(value, ast.IfExp):
        return _clean(value.body) and _clean(value.orelse)
    if isinstance(value, ast.Constant):
        return value.value is None
    if isinstance(value, ast.Call):
        return ast.unparse(value.func) in ("_cell", "_line", "_title", "clean")
    return ast.unparse(value) == "table"


def test_what_draws_is_given_clean_text_alone():
    told = list(drawn(ast.parse((SOURCE / "cli" / "show.py").read_text(encoding="utf-8"))))
    assert len(told) >= 9
    assert [words for words, clean in told if not clean] == []
    for code in (
        "out.print(text)",
        "Table(title=title)",
        "t.add_row(*row)",
        "t.add_column('a')",
        "b.add_task(x)",
    ):
        assert [clean for _, clean in drawn(ast.parse(code))] == [False]
