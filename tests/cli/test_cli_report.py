"""`fairerclip audit`, `report` and `demo` from the command line, for good input and bad."""

import json

import pytest

from fairerclip.auditing.results import read_results, write_results
from fairerclip.cli.command_audit import FitChoices, full_audit
from fairerclip.cli.options import load_experiment
from fairerclip.data import save_task, simulate
from light import fewer_fits

QUICK = ["--permutations", 19]
FAST = ["--mitigate", "--set", "n_features=100", *QUICK, "--seeds", 1]

few_fits = pytest.fixture(scope="module", autouse=True)(fewer_fits)


@pytest.fixture(scope="module")
def gallery(tmp_path_factory):
    return save_task(
        simulate("gallery", seed=1, scale=0.1, width=48), tmp_path_factory.mktemp("task") / "g.npz"
    )


@pytest.fixture(scope="module")
def audited(task):
    """What `audit` finds, once for all tests that only look at it."""
    fitting = FitChoices(parameters=["n_features=100"], seeds=1)
    experiment = load_experiment(task, None, None)
    return full_audit(experiment, fitting, source=str(task), mitigate=True, permutations=19)[0]


@pytest.fixture
def results(audited, tmp_path):
    return write_results(audited, tmp_path / "results.json")


def test_an_audit_writes_its_results(audited, task, run, tmp_path):
    code, _, err = run("audit", task, *FAST, "-o", tmp_path / "r.json")
    assert code == 0, err
    written = read_results(tmp_path / "r.json")
    timeless = {"made": True, "model": {"seconds"}}
    assert written.model_dump(exclude=timeless) == audited.model_dump(exclude=timeless)


def test_an_audit_says_its_answer_one_table_and_where_the_rest_is(task, run):
    code, out, err = run("audit", task, *FAST)
    assert (code, err) == (0, "")
    answer, advice, table = (
        out.index("FairerCLIP is clearly better for"),
        out.index("→ Use the mitigated model"),
        out.index("Accuracy by"),
    )
    assert answer < advice < table
    assert "problem: " not in out
    assert "Figures [interval]" not in out
    assert "--verbose prints" in out


def test_a_verbose_audit_says_findings_first_and_tables_after(task, run):
    code, out, err = run("audit", task, "--verbose", *FAST)
    assert (code, err) == (0, "")
    finding, table = out.index("problem: Zero-shot is right for"), out.index("Accuracy by group")
    assert finding < table
    for title in (
        "Figures [interval]",
        "Top 145 of",
        "Balanced",
        "Dependence on",
        "Representation",
        "wordings",
    ):
        assert title in out
    assert "Traceback" not in out


def test_an_audit_is_json_for_machines(task, run):
    code, out, _ = run("audit", task, *QUICK, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["format"] == "fairerclip-results"
    assert found["model"] is None
    assert found["warnings"] == []


def test_a_gallery_is_audited_for_one_attribute(gallery, run):
    code, out, _ = run("audit", gallery, *QUICK, "--sensitive", "sex", "--classes", "good,evil", "--k", 50)
    assert code == 0
    assert "Top 50 of" in out
    assert "Accuracy by group" not in out


def test_a_fitted_model_may_be_audited(task, run, tmp_path):
    assert run("fit", task, "-o", tmp_path / "m", "--set", "n_features=100", "--tau", 0.3)[0] == 0
    code, out, err = run("audit", task, "--after", tmp_path / "m", "--permutations", 19, "--json")
    assert code == 0, err
    assert json.loads(out)["model"]["tau"] == 0.3
    assert json.loads(out)["model"]["source"] == "given"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--after", "m", "--set", "tau=0.1"], "--after gives a fitted one"),
        (["--templates", "t.txt"], "needs --encoder"),
        (["--split", "nowhere"], "has no split 'nowhere'"),
        (["--k", "0"], "k must"),
        (["--k", "100000"], "k must"),
        (["--permutations", "0"], "--permutations must be a whole number from 19 to 100,000; got 0"),
        (["--mitigate", "--seeds", "0"], "--seeds must be a whole number from 1 to 1,000; got 0"),
        (["--mitigate", "--labels", "some"], "labels must be one of"),
        (["--sensitive", "colour"], "no sensitive attribute 'colour'"),
        (["--mitigate", "--set", "tau=2"], "tau"),
        (["--model", "ViT-B-32"], "go with --dataset"),
    ],
)
def test_a_bad_audit_is_one_line(options, message, task, run):
    code, out, err = run("audit", task, *options)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_options_of_one_task_are_refused_for_several(task, run, tmp_path):
    code, _, err = run("audit", task, task, "-o", tmp_path / "r.json")
    assert code == 2
    assert "goes with one task" in err


def test_simulated_tasks_have_names(run):
    code, out, _ = run("audit", "simulated:cheekbones@2", *QUICK, "--json")
    assert code == 0
    assert json.loads(out)["task"]["simulated"] is True
    for name, message in (
        ("simulated:moon", "no simulated task 'moon'"),
        ("simulated:celeba@x", "NAME@SEED"),
    ):
        code, _, err = run("audit", name)
        assert code == 2
        assert message in err


def test_results_become_every_form(results, run, tmp_path):
    for kind, name in (
        ("html", "r.html"),
        ("md", "r.md"),
        ("json", "r.json"),
        ("csv", "tables"),
        ("card", "card.md"),
    ):
        code, out, err = run("report", results, "--format", kind, "-o", tmp_path / name)
        assert code == 0, err
        assert f"report written to {tmp_path / name}" in out
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert (tmp_path / "card.md").read_text().startswith("---\n")
    assert read_results(tmp_path / "r.json") == read_results(results)
    assert (tmp_path / "tables" / "groups.csv").is_file()


def test_the_form_follows_from_the_ending_and_the_default_is_a_page(results, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("report", results, "-o", "r.md")[0] == 0
    assert (tmp_path / "r.md").read_text().startswith("#")
    code, out, _ = run("report", results.parent, "--json")
    assert code == 0
    assert json.loads(out)["report"] == "report.html"
    assert (tmp_path / "report.html").is_file()


def test_figures_are_drawn_beside(results, run, tmp_path):
    pytest.importorskip("matplotlib")
    code, out, err = run(
        "report", results, "-o", tmp_path / "r.html", "--figures", tmp_path / "figures", "--json"
    )
    assert code == 0, err
    drawn = json.loads(out)["figures"]
    assert len(drawn) == len(list((tmp_path / "figures").iterdir()))
    assert any(name.endswith("plane.pdf") for name in drawn)


def test_a_task_is_audited_and_reported_at_once(gallery, run, tmp_path):
    page = tmp_path / "page.html"
    some = ("--sensitive", "sex", "--classes", "good,evil")
    code, out, err = run("report", gallery, *some, "--mitigate", "-o", page)
    assert code == 0, err
    assert "over-represented group" in out
    assert page.is_file()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[: len(text) // 2], "JSON"),
        (lambda text: text.replace('"fairerclip-results"', '"something else"'), "format"),
        (lambda text: text.replace('"version": 1', '"version": 7'), "version"),
        (lambda text: text.replace('"verdict": [', '"verdict": [3, '), "verdict[0]"),
    ],
)
def test_damaged_results_are_one_line(change, message, results, run, tmp_path):
    results.write_text(change(results.read_text()))
    code, out, err = run("report", results, "-o", tmp_path / "r.html")
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "r.html").exists()


def test_what_is_there_is_not_replaced_unless_asked(results, run, tmp_path):
    page = tmp_path / "r.html"
    page.write_text("mine")
    code, _, err = run("report", results, "-o", page)
    assert code == 2
    assert "exists" in err
    assert page.read_text() == "mine"
    assert run("report", results, "-o", page, "--overwrite")[0] == 0
    assert run("audit", "simulated:waterbirds", "-o", results)[0] == 2


@pytest.mark.parametrize("name", ["r.csv", "r.pdf", "r.txt", "r"])
def test_an_ending_that_says_nothing_is_refused(name, results, run, tmp_path):
    code, _, err = run("report", results, "-o", tmp_path / name)
    assert code == 2
    assert "ends in .html, .md or .json; csv is a folder: --format csv -o FOLDER" in err
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize(
    ("kind", "name"), [("md", "r.html"), ("html", "r.JSON"), ("csv", "r.md"), ("html", "r.pdf")]
)
def test_an_ending_that_contradicts_the_format_is_refused(kind, name, results, run, tmp_path):
    code, _, err = run("report", results, "--format", kind, "-o", tmp_path / name)
    assert code == 2
    assert f"which --format {kind} does not make" in err
    assert not (tmp_path / name).exists()


def test_a_report_of_a_task_takes_the_options_of_an_audit(task, run, tmp_path):
    file = tmp_path / "r.json"
    code, _, err = run("report", task, "--split", "val", "--k", 40, "-o", file)
    assert code == 0, err
    found = read_results(file)
    assert (found.model, found.settings.split, found.retrieval.k) == (None, "val", 40)


@pytest.mark.parametrize(
    "option", [["--split", "val"], ["--k", 9], ["--after", "m"], ["--mitigate"], ["--seed", 1]]
)
def test_options_of_an_audit_are_refused_for_results(option, results, run, tmp_path):
    code, _, err = run("report", results, *option, "-o", tmp_path / "x.html")
    assert code == 2
    assert f"{option[0]}: these go with a task" in err


def test_report_refuses_what_it_cannot_do(results, run, tmp_path):
    for words, message in (
        (("report", results, "--format", "pdf"), "format must be one of"),
        (("report", results, "--labels", "none", "-o", tmp_path / "x.html"), "go with a task"),
        (("report", tmp_path / "absent.json"), "absent.json"),
        (("report", tmp_path / "absent.npz"), "absent.npz"),
    ):
        code, _, err = run(*words)
        assert code == 2
        assert message in err
        assert err.count("\n") == 1
