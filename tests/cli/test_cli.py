"""Every command, in process: what it prints, what it writes, and what it says to bad input."""

import csv
import json

import numpy as np
import pytest

from fairerclip import FairerCLIP, __version__
from fairerclip.data import save_task, simulate
from fairerclip.experiment import Experiment
from fairerclip.model import estimator as model_module

FAST = ("--set", "n_features=150")


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    file = tmp_path_factory.mktemp("task") / "birds.npz"
    return save_task(simulate("waterbirds", scale=0.1, width=48), file)


@pytest.fixture(scope="module")
def gallery(tmp_path_factory):
    file = tmp_path_factory.mktemp("task") / "gallery.npz"
    return save_task(simulate("gallery", scale=0.2, width=48), file)


def refused(result, *words):
    code, out, err = result
    assert code == 2, (out, err)
    assert len(err.strip().splitlines()) == 1, err
    assert err.startswith("fairerclip: ")
    assert "Traceback" not in err
    for word in words:
        assert word in err
    return True


def test_version_and_help(run):
    assert run("--version")[1].strip() == f"fairerclip {__version__}"
    code, out, _ = run("--help")
    assert code == 0
    for command in ("demo", "fit", "path", "apply"):
        assert command in out
        assert "--json" in run(command, "--help")[1]


def test_fit_writes_a_model_and_compares_with_zero_shot(run, task, tmp_path):
    code, out, _ = run("fit", task, "-o", tmp_path / "m", *FAST, "--set", "class_weight=balanced")
    assert code == 0
    assert "zero-shot" in out
    assert "waterbird × land background, n=64" in out.replace("\n", " ")
    assert FairerCLIP.load(tmp_path / "m").classes_.tolist() == ["landbird", "waterbird"]


def test_fit_prints_json_for_machines(run, task, tmp_path):
    code, out, _ = run(
        "fit", task, "-o", tmp_path / "m", *FAST, "--labels", "none", "--json", "--set", "max_iter=1"
    )
    assert code == 0
    result = json.loads(out)
    assert result["labels"] == "none"
    assert result["simulated"] is True
    assert set(result["reports"]) == {"zero-shot", "FairerCLIP"}
    assert result["diagnostics"]["pseudo_labels"]["rows"] > 0


def test_fit_with_options_and_preset(run, task, tmp_path):
    run(
        "fit",
        task,
        "-o",
        tmp_path / "m",
        *FAST,
        "--tau",
        "0.4",
        "--tau-z",
        "0.2",
        "--criterion",
        "conditional",
    )
    model = FairerCLIP.load(tmp_path / "m")
    assert (model.tau, model.tau_z, model.criterion) == (0.4, 0.2, "conditional")
    arguments = ("fit", task, "-o", tmp_path / "p", "--preset", "waterbirds/released/RN50", *FAST)
    assert run(*arguments)[0] == 0
    preset = FairerCLIP.load(tmp_path / "p")
    assert preset.subsample == (0.9, 0.4)
    assert preset.classes_.tolist() == ["landbird", "waterbird"]
    assert (preset.tau, preset.tau_z, preset.n_features) == (0.7, 0.3, 150)
    assert run("fit", task, "-o", tmp_path / "q", "--preset", "waterbirds", *FAST)[0] == 0
    assert FairerCLIP.load(tmp_path / "q").scaling == "paper"


def test_the_method_as_published_has_a_name_of_its_own(run, task, tmp_path):
    code, out, _ = run(
        "fit", task, "-o", tmp_path / "m", "--preset", "paper", *FAST, "--tau", "0.3", "--json"
    )
    assert code == 0
    assert json.loads(out)["tuning"] is None
    expected = FairerCLIP.preset("paper").set_params(n_features=150, tau=0.3)
    assert FairerCLIP.load(tmp_path / "m").get_params() == expected.get_params()


@pytest.mark.parametrize(("more", "refined"), [((), True), (("--no-refine",), False)])
def test_a_path_refines_where_the_parameters_do(run, task, monkeypatch, more, refined):
    asked = []
    solve = model_module.solve_path

    def watched(*arguments, refine, **options):
        asked.append(refine)
        return solve(*arguments, refine=refine, **options)

    monkeypatch.setattr(model_module, "solve_path", watched)
    arguments = ("path", task, "--labels", "none", "--taus", "0.2", "--preset", "paper", *FAST, *more)
    assert run(*arguments)[0] == 0
    assert asked == [refined]


def test_fit_can_tune_on_the_validation_split(run, task, tmp_path):
    code, out, _ = run(
        "fit", task, "-o", tmp_path / "m", *FAST, "--set", "class_weight=balanced", "--tune", "--json"
    )
    assert code == 0
    reports = json.loads(out)["reports"]
    assert reports["FairerCLIP"]["worst"]["accuracy"] > reports["zero-shot"]["worst"]["accuracy"]


def test_fit_reports_skew_where_there_is_no_target(run, gallery, tmp_path):
    arguments = ("fit", gallery, "-o", tmp_path / "m", "--sensitive", "sex", "--classes", "good,evil", *FAST)
    arguments += ("--method", "fairerclip")
    code, out, _ = run(*arguments, "--set", "max_iter=1")
    assert code == 0
    assert "MaxSkew@" in out
    code, out, _ = run(*arguments, "--set", "max_iter=1", "--overwrite", "--json")
    assert [r["prompt"] for r in json.loads(out)["skews"]] == ["good", "evil"]


def test_path_shows_the_trade_off_and_marks_the_best(run, task, tmp_path):
    code, out, _ = run("path", task, *FAST, "--taus", "0:0.9:4", "-o", tmp_path / "p.csv")
    assert code == 0
    assert "→" in out
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text().splitlines()))
    assert len(rows) == 8
    assert {r["criterion"] for r in rows} == {"marginal", "conditional"}


def test_path_over_the_plane_shows_the_front_and_says_it_is_one_curve(run, task):
    code, out, _ = run(
        "path", task, *FAST, "--taus", "0:0.9:4", "--tau-zs", "0,0.5", "--criterion", "marginal"
    )
    assert code == 0
    assert "λ_eff" in out
    code, out, _ = run(
        "path", task, *FAST, "--taus", "0:0.9:4", "--tau-zs", "0,0.5", "--criterion", "marginal", "--json"
    )
    result = json.loads(out)
    assert len(result["points"]) == 8
    assert result["best"] in range(8)
    averages = [result["points"][g]["average"] for g in result["front"]]
    assert averages == sorted(averages)


def test_path_can_refine_pseudo_labels_at_every_point(run, task):
    code, out, _ = run("path", task, *FAST, "--labels", "none", "--taus", "0.2,0.6", "--refine", "--json")
    assert code == 0
    assert len(json.loads(out)["points"]) == 4


def test_apply_writes_predictions_for_each_kind_of_file(run, task, tmp_path):
    run("fit", task, "-o", tmp_path / "m", *FAST)
    X = simulate("waterbirds", scale=0.1, width=48).test.X
    np.save(tmp_path / "e.npy", X)
    np.savez(tmp_path / "e.npz", embeddings=X, ids=np.arange(len(X)))
    np.savez(tmp_path / "single.npz", whatever=X)
    expected = FairerCLIP.load(tmp_path / "m").predict(X)
    for name in (tmp_path / "e.npy", tmp_path / "e.npz", tmp_path / "single.npz", task):
        code, out, _ = run("apply", tmp_path / "m", name, "-o", tmp_path / "o.npz", "--overwrite", "--json")
        assert code == 0
        assert json.loads(out)["rows"] == len(X)
        with np.load(tmp_path / "o.npz") as written:
            np.testing.assert_array_equal(written["prediction"], expected)
    assert run("apply", tmp_path / "m", tmp_path / "e.npz", "-o", tmp_path / "o.csv")[0] == 0
    rows = list(csv.DictReader((tmp_path / "o.csv").read_text().splitlines()))
    assert [r["prediction"] for r in rows] == expected.tolist()
    assert [r["id"] for r in rows] == [str(i) for i in range(len(X))]
    scores = FairerCLIP.load(tmp_path / "m").scores(X)
    for column, name in enumerate(("landbird", "waterbird")):
        np.testing.assert_allclose([float(r[f"score: {name}"]) for r in rows], scores[:, column])


@pytest.fixture(scope="module")
def ranking(tmp_path_factory):
    """A model of prompts that rank, and the gallery it was fitted on, with ids."""
    folder = tmp_path_factory.mktemp("ranking")
    task = simulate("gallery", scale=0.2, width=48)
    experiment = Experiment.of(task, ["sex"], task.class_names[:4])
    model = experiment.fit(FairerCLIP(n_features=150, random_state=0), "none")
    model.save(folder / "m")
    ids = np.array([f"face {i}.jpg" for i in range(len(task.test))])
    ids[3] = "=cmd()"
    np.savez(folder / "faces.npz", embeddings=task.test.X, ids=ids)
    return folder, model, task.test.X, ids


def test_the_top_of_a_ranking_is_as_long_as_asked_and_machines_get_it_too(run, ranking, tmp_path):
    folder, model, X, ids = ranking
    name = model.classes_[1]
    call = ("apply", folder / "m", folder / "faces.npz", "-o", tmp_path / "o.npz", "--json")
    code, out, _ = run(*call, "--top", "3", "--prompt", name)
    assert code == 0
    found = json.loads(out)
    assert set(found) == {"rows", "output", "top", "warnings"}
    expected = model.rank(name, X, 3)
    assert [row["row"] for row in found["top"][name]] == expected.indices.tolist()
    assert [row["id"] for row in found["top"][name]] == ids[expected.indices].tolist()
    assert [row["score"] for row in found["top"][name]] == pytest.approx(expected.scores)
    with np.load(tmp_path / "o.npz") as written:
        assert set(written) == {"id", "rank", "score", "names", "embedding"}
        assert written["names"].tolist() == [name]
        assert written["rank"].shape == (len(X), 1)


def test_a_classifier_ranks_when_it_is_asked_to(run, task, tmp_path):
    run("fit", task, "-o", tmp_path / "m", *FAST)
    model, X = FairerCLIP.load(tmp_path / "m"), simulate("waterbirds", scale=0.1, width=48).test.X
    code, out, _ = run("apply", tmp_path / "m", task, "-o", tmp_path / "o.csv", "--top", "5")
    assert code == 0
    assert "predict" not in out
    for name in ("landbird", "waterbird"):
        assert f"{name}: the first 5 of {len(X)} rows" in out
    rows = list(csv.DictReader((tmp_path / "o.csv").read_text().splitlines()))
    assert list(rows[0]) == ["prompt", "rank", "row", "score"]
    assert len(rows) == 2 * 5
    best = model.rank("waterbird", X, 5)
    assert [r["row"] for r in rows if r["prompt"] == "waterbird"] == [str(row) for row in best.indices]
    written = [float(r["score"]) for r in rows if r["prompt"] == "waterbird"]
    np.testing.assert_allclose(written, best.scores)
    code, out, _ = run("apply", tmp_path / "m", task, "-o", tmp_path / "p.csv", "--json")
    assert set(json.loads(out)["predicted"]) == {"landbird", "waterbird"}


def test_apply_refuses_rankings_that_cannot_be(run, task, ranking, tmp_path):
    folder, model, X, _ = ranking
    out = tmp_path / "o.csv"
    call = ("apply", folder / "m", folder / "faces.npz", "-o", out)
    assert refused(
        run(*call, "--top", 3, "--prompt", "a goose"), "'a goose' is not a prompt", model.classes_[0]
    )
    for top in (len(X) + 1, 0, -1):
        assert refused(run(*call, "--top", top), f"between 1 and {len(X)}", str(top))
    run("fit", task, "-o", tmp_path / "m", *FAST)
    assert refused(
        run("apply", tmp_path / "m", task, "-o", out, "--prompt", "waterbird"), "--prompt", "--top K"
    )
    assert not out.exists()


def test_demo_tells_the_whole_story_and_leaves_a_model_and_a_page(run, tmp_path, monkeypatch):
    small = simulate("waterbirds", seed=1, scale=0.1, width=48)
    monkeypatch.setattr("fairerclip.study.demo.open_task", lambda source: small)
    code, out, _ = run("demo", "-o", tmp_path / "d")
    assert code == 0
    assert "Simulated" in out
    assert "zero-shot" in out
    page = tmp_path / "d" / "report.html"
    assert page.as_uri() in out.replace("\n", "")
    assert page.stat().st_size < 1_000_000
    result = json.loads((tmp_path / "d" / "results.json").read_text())
    assert result["task"]["simulated"] is True
    worst = [result["groups"][stage]["worst"]["accuracy"] for stage in ("before", "after")]
    assert worst[1] > worst[0] + 0.1
    model = FairerCLIP.load(tmp_path / "d" / "model")
    assert model.n_features == FairerCLIP().n_features
    assert (model.tau, model.criterion) == (result["model"]["tau"], result["model"]["criterion"])
    table = list(csv.DictReader((tmp_path / "d" / "path.csv").read_text().splitlines()))
    assert len(table) == len(result["plane"]["points"])
    code, out, _ = run("demo", "-o", tmp_path / "d", "--json")  # an earlier demo's folder is replaced
    assert code == 0
    again = json.loads(out)
    assert {**again["results"], "made": 0, "model": 0} == {**result, "made": 0, "model": 0}
    assert list(again["variants"]) == [
        "zero-shot",
        "no labels, as it comes",
        "labels, as it comes",
        "labels, tuned on validation rows",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--tau", "1.5"), ["tau must be a number in [0, 1)", "1.5"]),
        (("--criterion", "fair"), ["criterion must be one of", "fair"]),
        (("--labels", "some"), ["none, target, all", "some"]),
        (("--set", "colour=red"), ["NAME=VALUE", "colour=red"]),
        (("--set", "tau"), ["NAME=VALUE"]),
        (("--preset", "imagenet/paper"), ["no preset imagenet/paper", "there are: paper, waterbirds/paper"]),
        (("--preset", "paper/released"), ["no preset paper/released", "there are: paper, waterbirds/paper"]),
        (("--classes", "penguin,landbird"), ["penguin", "landbird, waterbird"]),
        (("--sensitive", "age"), ["age"]),
        (("--set", "kernel=cubic"), ["kernel must be one of", "cubic"]),
        (("--set", "bandwidth=wide"), ["bandwidth", "wide"]),
        (("--set", "tau_text=0.95", "--set", "tau_z_text=0"), ["collapses", "Lower tau_text"]),
    ],
)
def test_fit_refuses_bad_options_in_one_line(run, task, tmp_path, arguments, words):
    assert refused(run("fit", task, "-o", tmp_path / "m", *arguments), *words)
    assert not (tmp_path / "m").exists()


def test_an_existing_model_is_not_overwritten_unasked(run, task, tmp_path):
    run("fit", task, "-o", tmp_path / "m", *FAST)
    before = (tmp_path / "m" / "fairerclip.json").read_bytes()
    assert refused(run("fit", task, "-o", tmp_path / "m", *FAST, "--tau", "0.2"), "exists", "--overwrite")
    assert (tmp_path / "m" / "fairerclip.json").read_bytes() == before
    assert run("fit", task, "-o", tmp_path / "m", *FAST, "--tau", "0.2", "--overwrite")[0] == 0
    assert FairerCLIP.load(tmp_path / "m").tau == 0.2


def test_bad_files_are_refused_in_one_line(run, task, tmp_path):
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 not a zip")
    (tmp_path / "note.txt").write_text("hello")
    np.save(tmp_path / "line.npy", np.arange(5.0))
    np.savez(tmp_path / "two.npz", a=np.ones((3, 48)), b=np.ones((3, 48)))
    np.savez(tmp_path / "ids.npz", embeddings=np.ones((3, 48)), ids=np.arange(2))
    np.save(tmp_path / "narrow.npy", np.ones((3, 7)))
    nan = np.ones((3, 48))
    nan[1, 0] = np.nan
    np.save(tmp_path / "nan.npy", nan)
    out = tmp_path / "o.npz"
    assert refused(run("fit", tmp_path / "missing.npz", "-o", out), "missing.npz")
    assert refused(run("fit", tmp_path / "broken.npz", "-o", out), "broken.npz")
    assert refused(run("path", tmp_path / "note.txt"), "note.txt")
    assert refused(run("path", task, "--split", "holdout"), "holdout")
    assert refused(run("path", task, "--taus", "a:b:c"), "--taus expects")
    assert refused(run("path", task, *FAST, "--taus", "0.5", "--by", "beauty"), "worst_group")
    assert refused(run("apply", tmp_path / "nowhere", task, "-o", out), "nowhere", "not a model folder")
    run("fit", task, "-o", tmp_path / "m", *FAST)
    model = tmp_path / "m"
    assert refused(run("apply", model, tmp_path / "note.txt", "-o", out), ".npy, .npz")
    assert refused(run("apply", model, tmp_path / "line.npy", "-o", out), "line.npy", "(5,)")
    assert refused(run("apply", model, tmp_path / "two.npz", "-o", out), "one matrix")
    assert refused(run("apply", model, tmp_path / "ids.npz", "-o", out), "ids of shape (2,)")
    assert refused(run("apply", model, tmp_path / "narrow.npy", "-o", out), "7 wide", "narrow.npy")
    assert refused(run("apply", model, tmp_path / "nan.npy", "-o", out), "row 1")
    assert refused(run("apply", model, task, "-o", tmp_path / "o.txt"), ".npz or .csv")
    assert not out.exists()


def test_a_folder_that_is_not_a_demo_is_left_alone(run, tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    assert refused(run("demo", "-o", tmp_path), "not the folder of an earlier demo")
    assert refused(run("demo", "-o", tmp_path / "precious.txt"), "not the folder of an earlier demo")
    assert (tmp_path / "precious.txt").read_text() == "mine"


def test_an_unwritable_place_is_one_line(run, task, tmp_path):
    (tmp_path / "file").write_text("")
    assert refused(run("fit", task, "-o", tmp_path / "file" / "m", *FAST))


def test_usage_errors_are_one_line_and_exit_with_two(run, task, tmp_path):
    assert refused(run("fit", task), "Missing option", "output")
    assert refused(run("nonsense"), "No such command", "nonsense")
    assert refused(run("fit", task, "-o", tmp_path / "m", "--tau", "much"), "--tau")
    assert refused(run("fit", task, "-o", tmp_path / "m", "--bogus"), "--bogus")


def test_no_command_shows_the_help(run):
    code, out, _ = run()
    assert code == 0
    assert "Commands" in out


def test_what_would_fail_after_the_work_is_said_before_it(run, task, tmp_path, monkeypatch):
    monkeypatch.setattr(FairerCLIP, "fit", lambda *a, **k: pytest.fail("the work was begun"))
    (tmp_path / "taken").write_text("mine")
    no_val = tmp_path / "no_val.npz"
    with np.load(task) as arrays:
        np.savez(no_val, **{k: v for k, v in arrays.items() if not k.endswith("_val")})
    assert refused(run("path", task, "--by", "beauty"), "worst_group")
    assert refused(run("path", no_val), "val")
    assert refused(run("fit", no_val, "-o", tmp_path / "m", "--tune"), "val")
    assert refused(run("fit", task, "-o", tmp_path / "taken", "--overwrite"), "give the name of a folder")
    assert (tmp_path / "taken").read_text() == "mine"


def test_a_preset_keeps_its_seed_unless_another_is_given(run, task, tmp_path):
    run("fit", task, "-o", tmp_path / "a", "--preset", "waterbirds/released", *FAST)
    run("fit", task, "-o", tmp_path / "b", "--preset", "waterbirds/released", *FAST, "--seed", "5")
    run("fit", task, "-o", tmp_path / "c", *FAST)
    assert [FairerCLIP.load(tmp_path / n).random_state for n in "abc"] == [2, 5, 0]


def test_unknown_sensitive_labels_are_read_from_the_prompts(run, task, tmp_path):
    with np.load(task) as arrays:
        changed = dict(arrays)
    changed["s_train"] = np.where(np.arange(len(changed["s_train"])) % 3 == 0, -1, changed["s_train"])
    np.savez(tmp_path / "partly.npz", **changed)
    code, out, err = run(
        "fit", tmp_path / "partly.npz", "-o", tmp_path / "m", *FAST, "--labels", "all", "--json"
    )
    assert code == 0, err
    guessed = json.loads(out)["diagnostics"]["pseudo_sensitive"]["s"]
    assert guessed["rows"] == (changed["s_train"] < 0).sum()
    assert set(guessed["counts"]) == {"land background", "water background"}


def test_tables_fit_a_narrow_terminal(run, task, tmp_path, monkeypatch):
    from fairerclip.cli import show

    monkeypatch.setattr(show.out, "_width", 80)
    for arguments in (("fit", task, "-o", tmp_path / "m"), ("path", task, "--taus", "0.2,0.7")):
        code, out, _ = run(*arguments, *FAST)
        assert code == 0
        assert max(len(line) for line in out.splitlines() if "written to" not in line) <= 80
        assert "…" not in out


def test_warnings_are_lines_on_standard_error(run, task, tmp_path):
    code, out, err = run("fit", task, "-o", tmp_path / "m", *FAST, "--set", "n_components=3", "--json")
    assert code == 0
    assert "warning: RankWarning" in err
    assert any("RankWarning" in w for w in json.loads(out)["warnings"])
