"""What `audit`, `report` and `fit` do unasked: nothing, the rankings of a gallery, or zero-shot itself."""

import json
from dataclasses import replace

import numpy as np
import pytest

import fairerclip
from fairerclip import FairerCLIP
from fairerclip.auditing.model_facts import model_facts
from fairerclip.auditing.results import read_results
from fairerclip.data import Sensitive, Split, Task, load_task, save_task, simulate
from fairerclip.metrics import max_skew
from light import fewer_fits

QUICK = ("--permutations", 19)


def one_line(answer, *words):
    code, out, err = answer
    assert (code, out, err.count("\n")) == (2, "", 1)
    for word in words:
        assert word in err


few_fits = pytest.fixture(scope="module", autouse=True)(fewer_fits)


@pytest.fixture(scope="module")
def birds():
    return simulate("waterbirds", seed=1, scale=0.1, width=48)


@pytest.fixture(scope="module")
def task(birds, tmp_path_factory):
    return save_task(birds, tmp_path_factory.mktemp("task") / "t.npz")


@pytest.fixture(scope="module")
def gallery(tmp_path_factory):
    faces = simulate("gallery", seed=2, scale=0.15, width=48)
    return save_task(faces, tmp_path_factory.mktemp("task") / "g.npz")


def with_splits(task, path, *kept, **others):
    """A copy of a task with some of its splits, and others in their place."""
    return save_task(replace(task, splits={name: task.splits[name] for name in kept} | others), path)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def mislabelled(leak):
    """A task whose prompts are right but for a ``leak`` of S, and whose training labels are few, and noise."""
    rng = np.random.default_rng(0)
    classes, values = np.eye(16)[:2], np.eye(16)[2:4]
    splits = {}
    for name, n in (("train", 24), ("val", 400), ("test", 200)):
        y, s = rng.integers(2, size=n), rng.integers(2, size=n)
        X = unit(classes[y] + values[s] + 0.4 * rng.normal(size=(n, 16)))
        splits[name] = Split(X, rng.permutation(y) if name == "train" else y, {"s": s})
    text = unit(classes + leak * values)
    place = Sensitive("s", ("land", "water"), ("land", "water"), values)
    return Task("birds", splits, text, ("a gull", "a wren"), ("gull", "wren"), {"s": place})


@pytest.mark.parametrize("split", ["test", "val"])
def test_a_task_with_one_split_is_audited_and_shown_a_model(split, birds, task, run, tmp_path):
    alone = with_splits(birds, tmp_path / "alone.npz", split)
    fitted = ("fit", task, "-o", tmp_path / "m", "--set", "n_features=100")
    assert run(*fitted)[0] == 0
    for options, after in (((), False), (("--after", tmp_path / "m"), True)):
        code, out, err = run("audit", alone, *options, *QUICK, "--json")
        assert code == 0, err
        found = json.loads(out)
        assert (found["settings"]["split"], found["groups"]["after"] is not None) == (split, after)
        assert found["probes"]
        page = tmp_path / f"{after}.html"
        code, _, err = run("report", alone, *options, "-o", page)
        assert code == 0, err
    for command in ("audit", "report"):
        one_line(run(command, alone, "--mitigate"), "no training split", "--after")


def test_an_audit_fits_nothing_unless_asked(task, run, tmp_path, monkeypatch):
    monkeypatch.setattr(FairerCLIP, "fit", lambda *a, **k: pytest.fail("a model was fitted"))
    code, out, err = run("audit", task, *QUICK, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["model"] is found["plane"] is found["groups"]["after"] is None
    assert "`--mitigate`" in found["verdict"][1]
    assert found["recommendation"]["action"] == "mitigate"
    for ending in ("html", "md"):
        assert run("report", task, "-o", tmp_path / f"r.{ending}")[0] == 0
    page = (tmp_path / "r.html").read_text()
    assert "After is" not in page
    assert "Before and after" not in page
    assert "FairerCLIP" not in (tmp_path / "r.md").read_text()


@pytest.mark.parametrize(
    "option",
    [("--labels", "none"), ("--preset", "waterbirds/paper"), ("--set", "tau=0.1"), ("--seeds", 2)],
    ids=lambda option: option[0],
)
def test_options_of_a_fit_are_refused_where_nothing_is_fitted(option, task, run):
    one_line(run("audit", task, *option), option[0], "--mitigate")
    one_line(run("audit", task, *option, "--after", "m"), option[0], "--after gives a fitted one")
    one_line(run("audit", task, task, *option), option[0], "goes with one task")


def test_a_bad_pair_is_refused_before_any_work_with_the_values_that_exist(task, run, tmp_path):
    for pair in ("land background,sea", "land background", "sea,sea", ","):
        for command in (("audit", task), ("report", task, "-o", tmp_path / "r.md")):
            one_line(run(*command, "--pair", pair), "pair", "['land background', 'water background']")
    one_line(run("audit", task, task, "--pair", "land,water"), "--pair", "goes with one task")


def test_a_report_refuses_labels_without_a_fit(task, run, tmp_path):
    one_line(run("report", task, "--labels", "none", "-o", tmp_path / "r.html"), "--labels", "--mitigate")


def test_a_fit_and_a_given_model_exclude_each_other(task, run, tmp_path):
    for command in (("audit", task), ("report", task, "-o", tmp_path / "r.html")):
        one_line(run(*command, "--mitigate", "--after", "m"), "--mitigate and --after exclude each other")


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
    one_line(run("fit", gallery, *some, "--tau", "0.5", "-o", tmp_path / "o"), "--tau: for fairerclip only")
    one_line(run("audit", gallery, *some, "--mitigate", "--preset", "celeba"), "--preset")


@pytest.mark.parametrize("form", ["html", "md", "card", "csv"])
def test_every_form_of_a_report_names_the_mitigator_of_a_gallery(form, gallery, run, tmp_path):
    some = ("--sensitive", "sex", "--classes", "good,evil", "--mitigate")
    made = tmp_path / "made"
    assert run("report", gallery, *some, "-o", made, "--format", form)[0] == 0
    text = (made / "model.csv" if form == "csv" else made).read_text()
    assert "EmbeddingMitigator" in text
    assert "With FairerCLIP" not in text


@pytest.mark.real
def test_mitigating_real_faces_lowers_the_skew_of_their_rankings(real_data, run):
    faces = real_data / "fairface.npz"
    code, out, err = run("audit", faces, "--sensitive", "sex", "--mitigate", *QUICK, "--json")
    assert (code, err) == (0, "")
    change = json.loads(out)["retrieval"]["mean"]["changes"]["max_skew"]
    assert change["before"] > 0.14
    assert change["after"] < 0.05
    assert change["high"] < 0


@pytest.mark.parametrize(("leak", "name"), [(0.0, "zero-shot, kept"), (1.0, "orthogonal prompts")])
def test_a_kept_zero_shot_classifier_is_called_that(leak, name, run, tmp_path):
    task = save_task(mislabelled(leak), tmp_path / "t.npz")
    code, out, _ = run("fit", task, "-o", tmp_path / "m", "--verbose")
    assert code == 0
    told = {
        "zero-shot, kept": "Nothing was better than zero-shot",
        "orthogonal prompts": "No encoder was better",
    }
    said = {key: f"{words} on the rows used for choosing" for key, words in told.items()}
    assert said[name] in out
    assert name in out
    assert "FairerCLIP" not in out
    audit = ("audit", task, "--mitigate", *QUICK, "--seeds", 1, "-o", tmp_path / "r.json")
    code, out, _ = run(*audit)
    assert code == 0
    assert name in out
    assert "FairerCLIP" not in out
    results = read_results(tmp_path / "r.json")
    assert results.model.method == name.removesuffix(", kept")
    assert any(said[name] in finding.text for finding in results.findings)
    kept = "Zero-shot is kept, because nothing was clearly better."
    assert results.verdict[0].startswith(kept) == (name == "zero-shot, kept")
    for form, ending in (("html", "html"), ("md", "md"), ("card", "md")):
        file = tmp_path / f"{form}.{ending}"
        assert run("report", tmp_path / "r.json", "--format", form, "-o", file)[0] == 0
        text = file.read_text().split('<script type="application/json"')[0]
        assert said[name] in text
        assert name in text
        assert "FairerCLIP raises" not in text
    assert "Zero-shot with orthogonal" in out or name == "zero-shot, kept"


def test_a_given_model_tells_what_its_file_knows(task, run, tmp_path):
    for labels, known in (
        ("target", "class labels were known"),
        ("none", "classes were predicted from the prompts"),
    ):
        model = tmp_path / labels
        fit = ("fit", task, "-o", model, "--labels", labels, "--tune", "--set", "n_features=60")
        assert run(*fit)[0] == 0
        saved = ("audit", task, "--after", model, *QUICK, "-o", tmp_path / f"{labels}.json")
        assert run(*saved)[0] == 0
        for form in ("html", "md", "card"):
            file = tmp_path / f"{labels}-{form}.{'html' if form == 'html' else 'md'}"
            assert run("report", tmp_path / f"{labels}.json", "--format", form, "-o", file)[0] == 0
            text = file.read_text().replace("\\", "")
            assert known in text
            assert "sensitive values were predicted from the prompts (480 rows)" in text
            assert "120 validation rows" in text
            assert "by the objective worst" in text
            assert "does not say which task it was fitted on" in text
            assert "how it was fitted is not known" not in text


@pytest.mark.parametrize(
    "diagnostics",
    [
        {},
        {"tuning": 3, "rows": "many", "pseudo_labels": 1, "pseudo_sensitive": []},
        {"tuning": {"objective": 1}, "rows": 4, "pseudo_labels": {"rows": -1}, "pseudo_sensitive": {"s": 2}},
        {"tuning": {"objective": "eod", "rows": 9, "gain": "x"}},
    ],
)
def test_diagnostics_that_are_not_ours_are_not_known(diagnostics, birds):
    model = FairerCLIP(n_features=50, random_state=0)
    model.fit(
        birds.train.X, birds.train.y, text=birds.text_target, sensitive_features=birds.train.sensitive()
    )
    model.diagnostics_ = diagnostics
    assert model_facts(model) == ("FairerCLIP", None, None)


def test_results_that_hold_a_parameter_out_of_bounds_are_refused(run, task):
    options = ("--mitigate", "--set", "n_features=20", "--set", "gamma=1e20", "--seeds", "1")
    code, _, err = run("audit", task, *options, *QUICK)
    assert code == 2
    assert err.splitlines()[-1].startswith("fairerclip: parameters.gamma: expected")
