"""Every method on the command line: trained, saved, applied, audited and reported."""

import csv
import json
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
from safetensors.numpy import save_file
from test_cli import refused

import fairerclip
from fairerclip.baselines import LEACE, LinearProbe, ZeroShot
from fairerclip.data import load_task, save_task, simulate
from fairerclip.data.io.parquet_table import write_parquet
from fairerclip.data.writer import StoreWriter
from fairerclip.experiment import Experiment
from fairerclip.study.methods import FITTABLE


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    return save_task(
        simulate("waterbirds", seed=1, scale=0.05, width=32), tmp_path_factory.mktemp("task") / "t.npz"
    )


def test_fit_trains_any_method_and_prints_what_it_prints_for_fairerclip(run, task, tmp_path):
    code, out, err = run("fit", task, "-o", tmp_path / "m", "--method", "orth-cali", "--seed", 3, "--verbose")
    assert (code, err) == (0, "")
    for words in (
        "labels used: none",
        "zero-shot",
        "Orth-Cali",
        "40 models",
        "Chosen: ",
        "lam=",
        "written to",
    ):
        assert words in out
    model = fairerclip.load(tmp_path / "m")
    assert type(model).__name__ == "OrthCali"


@pytest.mark.parametrize("key", ["clip-clip", "bend-vlm"])
def test_methods_for_images_and_for_queries_are_trained_and_applied(run, task, tmp_path, key):
    assert run("fit", task, "-o", tmp_path / "m", "--method", key)[0] == 0
    np.save(tmp_path / "rows.npy", load_task(task).test.X)
    code, _, err = run("apply", tmp_path / "m", tmp_path / "rows.npy", "-o", tmp_path / "out.npz")
    assert (code, err) == (0, "")
    model = fairerclip.load(tmp_path / "m")
    with np.load(tmp_path / "out.npz") as out:
        expected = model.scores(load_task(task).test.X)
        np.testing.assert_allclose(out["score"], expected, atol=1e-5)


def test_fit_prints_a_method_for_machines(run, task, tmp_path):
    code, out, _ = run("fit", task, "-o", tmp_path / "m", "--method", "leace", "--json")
    assert code == 0
    result = json.loads(out)
    assert (result["key"], result["labels"]) == ("leace", "none")
    assert set(result["reports"]) == {"zero-shot", result["method"]}
    model = fairerclip.load(tmp_path / "m")
    assert isinstance(model, LEACE)
    assert result["parameters"] == {"head": "zero-shot", "shrinkage": model.shrinkage}
    assert result["offsets"] == model.offsets_.tolist()
    right = (
        model.predict(load_task(task).test.X)
        == [load_task(task).class_names[y] for y in load_task(task).test.y]
    ).mean()
    assert result["reports"][result["method"]]["average"] == pytest.approx(right)


def test_an_alias_trains_the_method_it_names(run, task, tmp_path, monkeypatch):
    quick = replace(FITTABLE["probe-group"], candidates=[{"C": 1.0}, {"C": 0.01}])
    monkeypatch.setitem(FITTABLE, "probe-group", quick)
    code, out, _ = run("fit", task, "-o", tmp_path / "m", "--method", "group-balanced-probe", "--json")
    assert (code, json.loads(out)["key"]) == (0, "probe-group")
    model = fairerclip.load(tmp_path / "m")
    assert isinstance(model, LinearProbe)
    assert model.class_weight == "group"


def test_a_gallery_is_ranked_by_methods_without_labels(run, tmp_path):
    file = save_task(simulate("gallery", scale=0.1, width=48), tmp_path / "g.npz")
    code, out, _ = run(
        "fit", file, "-o", tmp_path / "m", "--method", "leace", "--sensitive", "sex", "--verbose"
    )
    assert code == 0
    assert "MaxSkew" in out
    assert "No labelled rows can choose" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("--method", "zeroshot"),
            ["no method 'zeroshot'; did you mean 'zero-shot'?", "there are fairerclip, "],
        ),
        (("--method", "fairerclip-all"), ["use fairerclip with labels all"]),
        (("--method", "leace", "--tau", 0.5), ["--tau: for fairerclip only, but the method is leace"]),
        (
            ("--method", "leace", "--preset", "paper", "--cv", 3, "--offsets", "0,1", "--no-tune"),
            ["--preset, --offsets, --no-tune, --cv: for fairerclip only"],
        ),
        (("--method", "leace", "--objective", "max_skew"), ["--objective: for fairerclip only"]),
        (("--method", "leace", "--set", "tau=0"), ["--set: for fairerclip only"]),
        (("--method", "wise", "--labels", "none"), ["wise learns from target labels", "orth-proj"]),
        (("--method", "wise", "--max-steps", 3), ["wise is not trained by gradient"]),
        (("--max-steps", 3), ["--max-steps", "fairerclip"]),
    ],
)
def test_fit_refuses_what_a_method_does_not_have(run, task, tmp_path, arguments, words):
    assert refused(run("fit", task, "-o", tmp_path / "m", *arguments), *words)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("method", ["fairerclip", "leace", "embedding"])
def test_fit_writes_what_it_knows_into_the_manifest_and_the_card(run, task, tmp_path, method):
    given = ("--tau", 0.5, "--set", "n_features=50") if method == "fairerclip" else ("--method", method)
    code, out, _ = run("fit", task, "-o", tmp_path / "m", *given, "--precision", "float16", "--json")
    assert code == 0
    birds, known = load_task(task), fairerclip.load(tmp_path / "m").details_
    assert (known.task, known.simulated) == (birds.name, True)
    assert list(known.prompts) == list(birds.class_names)
    assert list(known.prompts.values()) == [[prompt] for prompt in birds.target_prompts]
    assert sum(group.n for group in known.groups) == len(birds.train)
    report = json.loads(out)["reports"]
    before, after = report.values()
    found = {(m.name, m.stage): m for m in known.metrics}
    for stage, figures in (("before", before), ("after", after)):
        metric = found["worst_group", stage]
        assert metric.value == figures["worst"]["accuracy"]
        assert [metric.low, metric.high] == figures["intervals"]["worst_group"]
    card = (tmp_path / "m" / "README.md").read_text(encoding="utf-8")
    assert "Worst-group accuracy, this model" in card
    entries = json.loads((tmp_path / "m" / "fairerclip.json").read_bytes())["tensors"].values()
    assert "F16" in {entry["dtype"] for entry in entries}


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        (("--method", "bend-vlm"), None),
        (("--method", "embedding", "--set", "features=nystroem", "--set", "n_features=50"), 50),
        (("--tau", 0.5, "--set", "kernel=nystroem", "--set", "n_features=50"), 50),
    ],
)
def test_fit_and_the_card_say_that_a_model_holds_rows_of_training_images(run, task, tmp_path, options, rows):
    code, out, _ = run("fit", task, "-o", tmp_path / "m", *options)
    assert code == 0
    model = fairerclip.load(tmp_path / "m")
    rows = len(model.reference_) if rows is None else rows
    words = f"It holds embeddings of {rows:,} training images"
    assert words in " ".join(out.split())
    assert words in (tmp_path / "m" / "README.md").read_text(encoding="utf-8")
    code, out, _ = run("fit", task, "--method", "orth-proj", "-o", tmp_path / "other")
    assert "It holds" not in out
    assert "It holds" not in (tmp_path / "other" / "README.md").read_text(encoding="utf-8")


def test_settings_that_are_not_chosen_warn_of_nothing(run, task, tmp_path):
    birds = load_task(task)
    place = birds.sensitive_attribute()
    same = replace(birds, sensitive={place.name: replace(place, text=birds.text_target)})
    file = save_task(same, tmp_path / "same.npz")
    code, out, _ = run("fit", file, "--method", "roboshot", "-o", tmp_path / "m", "--json")
    assert code == 0
    assert fairerclip.load(tmp_path / "m").remove != 1.0
    assert not any("scores are equal" in line for line in json.loads(out)["warnings"])


def test_fit_refuses_an_unknown_precision_before_the_work(run, task, tmp_path):
    assert refused(
        run("fit", task, "-o", tmp_path / "m", "--precision", "float8"), "precision must be one of"
    )
    assert not (tmp_path / "m").exists()


def test_a_model_of_another_kind_is_left_alone(run, task, tmp_path):
    model, birds = ZeroShot(), load_task(task)
    model.fit(birds.train.X, text=birds.text_target).save(tmp_path / "m")
    before = (tmp_path / "m" / "fairerclip.json").read_bytes()
    assert refused(run("fit", task, "-o", tmp_path / "m", "--overwrite", "--tau", 0.5), "is left alone")
    assert (tmp_path / "m" / "fairerclip.json").read_bytes() == before


def test_a_baseline_takes_the_place_of_a_baseline_and_of_no_other_model(run, task, tmp_path):
    for method in ("zero-shot", "zero-shot", "orth-proj"):
        assert run("fit", task, "--method", method, "-o", tmp_path / "m", "--overwrite")[0] == 0
    assert fairerclip.load(tmp_path / "m").title == "Orth-Proj"
    fitted = ("fit", task, "--tau", 0.5, "--set", "n_features=50", "-o", tmp_path / "own")
    assert run(*fitted)[0] == 0
    answer = run("fit", task, "--method", "orth-proj", "-o", tmp_path / "own", "--overwrite")
    assert refused(answer, "holds a FairerCLIP, not a OrthProj; it is left alone")


@pytest.fixture(scope="module")
def birds(task):
    return load_task(task)


@pytest.fixture(scope="module")
def leace(birds, tmp_path_factory):
    """A saved LEACE of the task, with offsets."""
    arguments = Experiment.of(birds).arguments("none")
    model = LEACE().fit(arguments.pop("X"), arguments.pop("y"), **arguments).at(offsets=[0.01, -0.01])
    return model.save(tmp_path_factory.mktemp("model") / "leace")


def stores(folder, X, ids):
    """The same rows in every layout that is read, with ids."""
    np.savez(folder / "e.npz", embeddings=X, ids=ids)
    save_file({"embeddings": X}, folder / "e.safetensors", metadata={"ids": json.dumps(ids.tolist())})
    with StoreWriter(folder / "store", width=X.shape[1], provenance=None) as writer:
        writer.append(ids.tolist(), X)
        writer.finish()
    found = [folder / "e.npz", folder / "e.safetensors", folder / "store"]
    if find_spec("pyarrow") is None:
        return found
    write_parquet({"id": ids.tolist(), "embedding": X.tolist()}, folder / "e.parquet")
    for name in ("img_emb", "metadata"):
        (folder / "retrieval" / name).mkdir(parents=True)
    np.save(folder / "retrieval" / "img_emb" / "img_emb_0.npy", X)
    write_parquet({"image_path": ids.tolist()}, folder / "retrieval" / "metadata" / "metadata_0.parquet")
    return [*found, folder / "e.parquet", folder / "retrieval"]


def test_apply_takes_any_model_and_any_store_and_keeps_the_ids(run, birds, leace, tmp_path):
    X, model = birds.test.X[:40], fairerclip.load(leace)
    ids = np.array([f"{row}.jpg" for row in range(40)])
    for number, store in enumerate(stores(tmp_path, X, ids)):
        out = tmp_path / f"{number}.npz"
        assert run("apply", leace, store, "-o", out)[0] == 0
        with np.load(out) as written:
            assert written["id"].tolist() == ids.tolist()
            assert written["prediction"].tolist() == model.predict(X).tolist()
            np.testing.assert_allclose(written["score"], model.scores(X), rtol=1e-6)
            np.testing.assert_allclose(written["embedding"], model.transform(X), rtol=1e-5, atol=1e-7)
        table = tmp_path / f"{number}.csv"
        code, out, _ = run("apply", leace, store, "-o", table, "--top", 7, "--json")
        assert code == 0
        rows = list(csv.DictReader(table.read_text().splitlines()))
        assert list(rows[0]) == ["prompt", "rank", "id", "score"]
        assert len(rows) == 7 * 2
        for name, best in json.loads(out)["top"].items():
            column = model.classes_.tolist().index(name)
            order = np.argsort(-model.scores(X)[:, column], kind="stable")[:7]
            assert [row["id"] for row in best] == ids[order].tolist()
            assert [row["id"] for row in rows if row["prompt"] == name] == ids[order].tolist()


def test_a_long_ranking_is_written_whole_and_shown_in_part(run, task, leace, tmp_path):
    code, out, _ = run("apply", leace, task, "-o", tmp_path / "o.csv", "--top", 50)
    assert code == 0
    assert "the first 20 of" in out
    assert len((tmp_path / "o.csv").read_text().splitlines()) == 1 + 50 * 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-o", "o.txt"), ["must end in .npz or .csv or .parquet", "o.txt"]),
        (("-o", "o.csv", "--top", 0), ["--top must be between 1 and"]),
        (("-o", "o.csv", "--prompt", "landbird"), ["--prompt", "--top K"]),
        (("-o", "o.csv", "--top", 2, "--prompt", "goose"), ["'goose' is not a prompt"]),
    ],
)
def test_apply_refuses_what_cannot_be_written(run, task, leace, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert refused(run("apply", leace, task, *arguments), *words)
    assert list(tmp_path.iterdir()) == []


def test_audit_and_report_name_the_method_of_any_model(run, task, leace, tmp_path):
    file = tmp_path / "results.json"
    code, out, _ = run("audit", task, "--after", leace, "--permutations", 19, "-o", file, "--verbose")
    assert code == 0
    method = "LEACE (zero-shot head) with class offsets"
    assert f"Predictions of {method}" in out
    assert "There is no trade-off of τ and τ_z" in out
    model = json.loads(file.read_text())["model"]
    assert (model["method"], model["tau"], model["source"]) == (method, None, "given")
    assert "Belrose" in model["paper"]
    for form, name in (("html", "page.html"), ("md", "report.md"), ("card", "card.md"), ("csv", "tables")):
        assert run("report", file, "-o", tmp_path / name, "--format", form)[0] == 0
    page, markdown = (tmp_path / "page.html").read_text(), (tmp_path / "report.md").read_text()
    card, table = (tmp_path / "card.md").read_text(), (tmp_path / "tables" / "model.csv").read_text()
    for text in (page, markdown, card, table):
        assert method in text
    for text in (page, card, table):
        assert "Belrose et al. 2023" in text
    assert 'id="explorer"' not in page
    assert 'fairerclip.load("MODEL")' in card
    assert "in closed form" not in card
    assert "It learns from no labels." in markdown


def test_a_model_of_other_classes_is_refused(run, task, birds, tmp_path):
    classes = ["cat", "dog"]
    ZeroShot().fit(birds.train.X, text=dict(zip(classes, birds.text_target, strict=True))).save(
        tmp_path / "m"
    )
    assert refused(run("audit", task, "--after", tmp_path / "m"), "fitted on cat, dog", "landbird")


@pytest.mark.usefixtures("inline_jobs")
def test_compare_saves_the_winner_and_says_which_it_is(run, task, birds, tmp_path):
    call = ("compare", task, "--methods", "zero-shot,leace", "--seeds", 1, "-o", tmp_path / "out")
    code, out, _ = run(*call, "--save-best", tmp_path / "m")
    assert code == 0
    assert "Best worst group: " in out
    model = fairerclip.load(tmp_path / "m")
    code, out, _ = run(*call, "--save-best", tmp_path / "again", "--json")
    saved = json.loads(out)["saved"]
    assert {"zero-shot": ZeroShot, "leace": LEACE}[saved["method"]] is type(model)
    assert (saved["seed"], saved["offsets"]) == (0, model.offsets_.tolist())
    again = fairerclip.load(saved["model"])
    np.testing.assert_array_equal(again.scores(birds.test.X), model.scores(birds.test.X))
    assert refused(run(*call, "--save-best", tmp_path / "m", "--overwrite"), "--save-best does not replace")
