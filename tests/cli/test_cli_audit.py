"""`fairerclip audit` and `report`: the results of Python, in every form, and of galleries."""

import json

import numpy as np
import pytest

import fairerclip
from fairerclip import FairerCLIP
from fairerclip.auditing.results import read_results, write_results
from fairerclip.baselines import ZeroShot
from fairerclip.cli.command_audit import FitChoices, full_audit
from fairerclip.cli.options import load_experiment
from fairerclip.data import load_task, save_task, simulate
from fairerclip.metrics import max_skew
from light import fewer_fits

pytestmark = pytest.mark.slow
QUICK = ("--permutations", 19)
few_fits = pytest.fixture(scope="module", autouse=True)(fewer_fits)


@pytest.fixture(scope="module")
def found(task):
    """What an audit with a mitigation finds."""
    fitting = FitChoices(parameters=["n_features=100"], seeds=1)
    experiment = load_experiment(task, None, None)
    return full_audit(experiment, fitting, source=str(task), mitigate=True, permutations=19)[0]


@pytest.fixture
def results(found, tmp_path):
    return write_results(found, tmp_path / "results.json")


def test_an_audit_writes_the_results_of_python(found, task, run, document, tmp_path):
    call = ("audit", task, "--mitigate", "--set", "n_features=100", *QUICK, "--seeds", 1)
    code, out, err = run(*call, "-o", tmp_path / "r.json")
    assert (code, err) == (0, "")
    assert found.recommendation.advice.split(".")[0] in " ".join(out.split())
    timeless = {"made": True, "model": {"seconds"}}
    written = read_results(tmp_path / "r.json")
    assert written.model_dump(exclude=timeless) == found.model_dump(exclude=timeless)


def test_an_audit_counts_zero_shot_and_fits_nothing_unless_asked(birds, task, document, monkeypatch):
    monkeypatch.setattr(FairerCLIP, "fit", lambda *a, **k: pytest.fail("a model was fitted"))
    found = document("audit", task, *QUICK)
    assert found["model"] is found["plane"] is found["groups"]["after"] is None
    assert (found["format"], found["recommendation"]["action"]) == ("fairerclip-results", "mitigate")
    X, text = (A / np.linalg.norm(A, axis=1, keepdims=True) for A in (birds.test.X, birds.text_target))
    right, s = (X @ text.T).argmax(1) == birds.test.y, birds.test.sensitive()
    cells = [right[(birds.test.y == c) & (s == v)].mean() for c in (0, 1) for v in np.unique(s)]
    assert found["groups"]["before"]["worst"]["accuracy"] == pytest.approx(min(cells))


def test_a_given_model_is_audited_if_it_has_the_classes_of_the_task(document, refused, birds, task, tmp_path):
    model = FairerCLIP(n_features=60, tau=0.3, random_state=0)
    names = np.array(birds.class_names)[birds.train.y]
    model.fit(birds.train.X, names, sensitive_features=birds.train.sensitive())
    model.save(tmp_path / "m")
    found = document("audit", task, "--after", tmp_path / "m", *QUICK)
    assert (found["model"]["tau"], found["model"]["source"]) == (0.3, "given")
    right, s = (
        model.predict(birds.test.X) == np.array(birds.class_names)[birds.test.y],
        birds.test.sensitive(),
    )
    cells = [right[(birds.test.y == c) & (s == v)].mean() for c in (0, 1) for v in np.unique(s)]
    assert found["groups"]["after"]["worst"]["accuracy"] == pytest.approx(min(cells))
    classes = dict(zip(("cat", "dog"), birds.text_target, strict=True))
    ZeroShot().fit(birds.train.X, text=classes).save(tmp_path / "other")
    refused(("audit", task, "--after", tmp_path / "other"), "fitted on cat, dog")


def test_mitigating_a_gallery_lowers_the_skew_of_its_rankings(run, tmp_path):
    gallery = save_task(simulate("gallery", seed=2, scale=0.3, width=48), tmp_path / "g.npz")
    code, out, err = run("audit", gallery, "--sensitive", "sex", "--mitigate", *QUICK, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    change = found["retrieval"]["mean"]["changes"]["max_skew"]
    assert change["after"] < 0.6 * change["before"]
    assert change["high"] < 0
    assert (found["model"]["method"], found["model"]["labels"]) == ("EmbeddingMitigator", "none")
    assert "EmbeddingMitigator" in found["recommendation"]["advice"]
    # The command on the page fits this very model.
    words = found["model"]["command"].replace("-o MODEL", f"-o {tmp_path / 'again'}").split()[1:]
    assert run(*[str(gallery) if word == "g.npz" else word for word in words])[0] == 0
    mitigator = fairerclip.load(tmp_path / "again")
    expected, after = audited(gallery, mitigator), found["retrieval"]["queries"]
    assert [query["after"]["max_skew"]["value"] for query in after] == pytest.approx(expected)


def audited(gallery, mitigator):
    """Return MaxSkew of the ranking by each class prompt after a mitigator."""
    faces = load_task(gallery)
    text = faces.text_target / np.linalg.norm(faces.text_target, axis=1, keepdims=True)
    scores = mitigator.transform(faces.test.X) @ text.T
    return max_skew(scores, faces.test.s["sex"], len(faces.test) // 4).tolist()


def test_a_gallery_is_fitted_by_the_mitigator_unless_another_method_is_named(gallery, run, tmp_path):
    some = ("--sensitive", "sex", "--classes", "good,evil")
    code, out, _ = run("fit", gallery, *some, "-o", tmp_path / "m", "--json")
    assert (code, json.loads(out)["key"]) == (0, "embedding")
    assert isinstance(fairerclip.load(tmp_path / "m"), fairerclip.EmbeddingMitigator)
    assert run("fit", gallery, *some, "--method", "fairerclip", "-o", tmp_path / "n")[0] == 0
    assert isinstance(fairerclip.load(tmp_path / "n"), FairerCLIP)


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


def test_what_is_there_is_not_replaced_unless_asked(results, run, tmp_path):
    page = tmp_path / "r.html"
    page.write_text("mine")
    code, _, err = run("report", results, "-o", page)
    assert code == 2
    assert "exists" in err
    assert page.read_text() == "mine"
    assert run("report", results, "-o", page, "--overwrite")[0] == 0
    assert run("audit", "simulated:waterbirds", "-o", results)[0] == 2


def test_csv_tables_are_replaced_as_a_whole_when_asked(results, run, tmp_path):
    given = ("report", results, "--format", "csv", "-o", tmp_path / "tables")
    assert run(*given)[0] == 0
    (tmp_path / "tables" / "groups.csv").write_text("old")
    (tmp_path / "tables" / "mine.txt").write_text("mine")
    assert run(*given)[0] == 2
    assert (tmp_path / "tables" / "groups.csv").read_text() == "old"
    code, _, err = run(*given, "--overwrite")
    assert code == 0, err
    assert (tmp_path / "tables" / "groups.csv").read_text().startswith("stage,")
    assert (tmp_path / "tables" / "mine.txt").read_text() == "mine"


def test_a_report_of_a_task_takes_the_options_of_an_audit(task, run, tmp_path):
    file = tmp_path / "r.json"
    code, _, err = run("report", task, "--split", "val", "--k", 40, "-o", file)
    assert code == 0, err
    found = read_results(file)
    assert (found.model, found.settings.split, found.retrieval.k) == (None, "val", 40)
