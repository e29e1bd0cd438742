"""Foreign text on a terminal: what is printed is read by a person and obeyed by nothing."""

import json
from pathlib import Path

import pytest
from foreign_text import FILE_NAME, NAME, forbidden, renamed

from fairerclip import FairerCLIP
from fairerclip.data import save_task, simulate
from fairerclip.experiment import Experiment
from light import few_settings

"""The modules that print: one draws, one writes, and one writes the log of a service."""
FAST = ("--set", "n_features=30")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with tasks and a model; names in it, its own and those of its files are foreign text."""
    birds = simulate("waterbirds", scale=0.03, width=48)
    folder = tmp_path_factory.mktemp("made") / FILE_NAME
    folder.mkdir()
    save_task(birds, folder.parent / TASK)
    task = renamed(birds)
    save_task(task, folder / f"{FILE_NAME}.npz")
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
    "fit, 5,000 characters": ("fit", "long.npz", "-o", "m", "--no-tune", *FAST),
    "fit, warned": ("fit", "{}.npz", "-o", "m", "--no-tune", "--set", "n_components=3", *FAST),
    "path": ("path", "{}.npz", "--taus", "0.2", "-o", "{}.csv", *FAST),
    "apply, ranks": ("apply", "{}.model", "{}.npz", "-o", "{}.csv", "--top", "3"),
    "audit, several": ("audit", "{}.npz", "{}.npz"),
    "compare": ("compare", "{}.npz", "--methods", "zero-shot", "-o", "{}.compared"),
}


def harmless(result):
    code, out, err = result
    assert code == 0, err
    assert out
    assert forbidden(out + err) == set()
    assert not [line for line in (out + err).splitlines() if line.startswith("FAKE")]  # no line of their own
    return out + err


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_print_foreign_names_harmlessly(home, run, monkeypatch, command):
    few_settings(monkeypatch)
    text = harmless(run(*(a.replace("{}", str(home / FILE_NAME)) for a in COMMANDS[command])))
    assert "[red]" in text


@pytest.mark.slow
def test_audits_and_reports_print_foreign_names_harmlessly(home, run):
    name = home / FILE_NAME
    assert "[/b]" in harmless(run("audit", f"{name}.npz", "-o", f"{name}.json", "--permutations", "19"))
    for form, ending in (("html", "html"), ("csv", "tables")):
        text = harmless(run("report", f"{name}.json", "--format", form, "-o", f"{name}.{ending}"))
        assert "[/b]" in text


@pytest.mark.slow
@pytest.mark.linux
def test_an_audit_of_a_file_whose_name_is_no_text_is_not_lost(home, made, run):
    try:
        Path("\udce9.npz").symlink_to(made.parent / TASK)
    except (OSError, UnicodeError):
        pytest.skip("names are text in this file system")
    harmless(run("audit", "\udce9.npz", "-o", "\udce9.json", "--permutations", "19"))
    assert json.loads(Path("\udce9.json").read_bytes())["task"]["file"] == "?.npz"


WORD = FILE_NAME
TASK = "birds.npz"
WRONG = (
    (WORD,),
    (f"--{WORD}",),
    ("fit", f"{WORD}.npz", "-o", "m"),
    ("fit", TASK, "-o", "m", "--tau", WORD),
    ("fit", TASK, "-o", "m", "--set", f"tau={WORD}"),
    ("fit", TASK, "-o", "m", "--classes", WORD),
    ("path", TASK, "--taus", WORD),
    ("apply", WORD, WORD, "-o", f"x.{WORD}"),
    ("embed", WORD, "--model", WORD, "-o", WORD),
    ("compare", TASK, "--methods", WORD),
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
