"""How commands end when they fail: exit code, one line for people, a document for machines."""

import json

import pytest

from fairerclip.cli import app, options

MISSING = "gone.npz"


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (("audit", MISSING), "TaskFileError", MISSING),
        (("fit", MISSING, "-o", "model"), "TaskFileError", MISSING),
        (("fit", "simulated:nothing", "-o", "model"), None, "nothing"),
        (("path", MISSING), "TaskFileError", MISSING),
        (("apply", "no-model", "x.npy", "-o", "y.csv"), None, "no-model"),
        (("report", MISSING, "-o", "x.html"), None, MISSING),
        (("compare", "simulated:waterbirds", "--methods", "magic"), "ParameterError", "no method 'magic'"),
        (("reproduce", "magic"), "ParameterError", "no table or figure 'magic'"),
        (("audit", "--nonsense"), "NoSuchOption", "No such option: --nonsense"),
        (("fit", "simulated:waterbirds"), "MissingParameter", "--output"),
        (("nonsense",), None, "nonsense"),
    ],
)
def test_bad_input_is_a_document_for_machines(run, tmp_path, monkeypatch, arguments, kind, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    line = err.removeprefix("fairerclip: ").rstrip("\n")
    assert message in line
    assert "\n" not in line
    code, out, again = run(*arguments, "--json")
    assert (code, again) == (2, err)
    error = json.loads(out)["error"]
    assert set(error) == {"type", "message", "exit_code"}
    assert (error["message"], error["exit_code"]) == (line, 2)
    assert kind in (None, error["type"])


def test_memory_that_runs_out_is_failed_work(run, monkeypatch):
    def load(*arguments):
        raise MemoryError("Unable to allocate 9 TiB")

    monkeypatch.setattr(options, "load_experiment", load)
    code, out, err = run("audit", "simulated:waterbirds", "--json")
    assert code == 1
    assert err == "fairerclip: memory ran out: Unable to allocate 9 TiB\n"
    assert json.loads(out)["error"] == {
        "type": "MemoryError",
        "message": "memory ran out: Unable to allocate 9 TiB",
        "exit_code": 1,
    }


def test_a_fault_of_ours_keeps_its_traceback_and_is_a_document_too(run, monkeypatch, capsys):
    def load(*arguments):
        raise KeyError("oops")

    monkeypatch.setattr(options, "load_experiment", load)
    with pytest.raises(KeyError, match="oops"):
        run("audit", "simulated:waterbirds", "--json")
    assert json.loads(capsys.readouterr().out)["error"] == {
        "type": "KeyError",
        "message": "'oops'",
        "exit_code": 1,
    }


def test_an_interrupt_is_one_line_and_exit_code_130(run, monkeypatch):
    def interrupted(**options):
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "app", interrupted)
    assert run("audit") == (130, "", "fairerclip: interrupted\n")
    code, out, err = run("audit", "--json")
    assert (code, err) == (130, "fairerclip: interrupted\n")
    assert json.loads(out)["error"]["exit_code"] == 130
