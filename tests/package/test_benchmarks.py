"""Benchmarks run, keep what they measured by version, fail where a target is missed, and name what became slower."""

import contextlib
import importlib
import io
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import hadamard

import fairerclip
from fairerclip.study.methods import METHODS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "benchmarks"
TINY = {
    "closed_form": "--scale 0.02 --width 48 --features 40 --points 2 --repeats 1",
    "folds": "--scale 0.02 --width 48 --features 40 --repeats 1",
    "probe_path": "--rows 60 --width 12 --penalties 3 --repeats 1",
    "bootstrap": "--rows 500 --replicates 5 --repeats 1",
    "transform": "--rows 400 --width 48",
    "frequencies": "--rows 100 --widths 48 --features 40 --kernel-features 40 --seeds 1 --fit-rows 400 "
    "--fit-features 40 --repeats 1",
    "predict": "--rows 400 --width 48 --features 40 --repeats 1",
    "serve": "--rows 8 --requests 20 --connections 2 --width 48 --features 40 --repeats 1",
    "join": "--rows 300",
    "growth": "--rows 200,300 --width 48 --features 40 --repeats 1",
    "fit_large": "--rows 400 --width 48 --features 40 --covariance 40 --without-labels 40 --automatic 40 --repeats 1",
    "search": "--rows 300 --validation 100 --width 48 --features 40 --repeats 1",
    "out_of_core": "--rows 400 --width 48 --features 40",
    "peers": "--rows 400 --width 48 --features 40 --repeats 1",
    "paper_runtime": "--tasks waterbirds --scale 0.05 --width 48 --features 40",
    "imports": "--repeats 1",
}
"""Options of the smallest runs. `embed.py` and `index_recall.py` need optional libraries."""
FEW = ("zero-shot", "probe", "dfr-validation")
"""Methods that are timed here: one without labels, one with, one that needs validation rows."""


@pytest.fixture(scope="module")
def script():
    """Import a script of the folder; afterwards its modules are forgotten, because their names are common words."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield importlib.import_module
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == FOLDER:
            del sys.modules[name]


def in_this_process(out_of_core, folder, features, rows, *, in_memory):
    """Stand in for a process of its own, which would take seconds to start."""
    printed = io.StringIO()
    words = [str(folder), "--features", str(features), "--rows", str(rows), *["--in-memory"] * in_memory]
    with contextlib.redirect_stdout(printed):
        assert out_of_core.child(words) == 0
    return json.loads(printed.getvalue())


def lightened(module, name, monkeypatch):
    """Leave out of a tiny run what takes long at any size."""
    if name == "out_of_core":
        monkeypatch.setattr(module, "run_child", lambda *a, **k: in_this_process(module, *a, **k))
    if name == "imports":
        short = {**dict.fromkeys(module.COMMANDS, "pass"), "import fairerclip": "import fairerclip"}
        monkeypatch.setattr(module, "COMMANDS", short)
        monkeypatch.setattr(module, "SLOW", dict.fromkeys(module.SLOW, "pass"))
    if name in ("peers", "paper_runtime"):
        times = sys.modules["paper_runtime"]
        monkeypatch.setattr(times, "METHODS", [m for m in METHODS if m.key in FEW])
        monkeypatch.setattr(times.FairerCLIP, "preset", lambda dataset: fairerclip.FairerCLIP(n_features=40))
        if name == "peers":
            monkeypatch.setattr(module, "OUR_LEACE", "Zero-shot")  # LEACE is not among the few


@pytest.mark.parametrize("name", TINY)
def test_a_benchmark_runs_keeps_its_result_and_says_whether_a_target_was_missed(
    script, name, tmp_path, monkeypatch, capsys
):
    module = script(name)
    lightened(module, name, monkeypatch)
    code = module.main([*TINY[name].split(), "--results", str(tmp_path), "--no-plot"])
    (file,) = (tmp_path / fairerclip.__version__).iterdir()
    text = file.read_text()
    result = json.loads(text)
    assert result["name"] == file.stem
    assert file.stem.split(".")[0] == name
    assert result["version"] == fairerclip.__version__
    assert result["figures"]
    for figure in result["figures"]:
        assert figure["value"] is not None, figure
        assert figure["better"] in ("lower", "higher")
        assert (figure["met"] is None) == (figure["at_most"] is figure["at_least"] is None)
    for timed in result["seconds"].values():
        assert timed["best"] == min(timed["all"]) > 0
    missed = [figure["name"] for figure in result["figures"] if figure["met"] is False]
    assert code == bool(missed)
    printed = capsys.readouterr().out
    assert ("targets missed" in printed) == bool(missed)
    assert {"cpu", "cores", "memory_gb", "blas", "load_before"} <= set(result["machine"])
    assert str(Path.home()) not in text
    assert str(tmp_path) not in text
    assert str(ROOT) not in text


@pytest.mark.parametrize(("shared", "own"), [(0, 3), (1, 1)])
@pytest.mark.parametrize("width", [9, 16])
def test_products_by_hadamard_matrices_are_those_of_the_matrix_written_out(script, width, shared, own):
    phi = script("frequencies").HadamardFeatures(width, 21, shared=shared, own=own)
    X = np.random.default_rng(0).normal(size=(70, width)).astype(np.float32)
    H = hadamard(16) / 4.0
    blocks = []
    for signs, lengths in zip(phi.signs, phi.lengths, strict=True):
        product = np.eye(16)
        for one in (*phi.first, *signs):
            product = H @ (one * product)
        assert np.abs(product @ product.T - np.eye(16)).max() <= 1e-12
        blocks.append((lengths * product)[:, :width])
    Omega = np.concatenate(blocks)[:21].T
    assert np.abs(phi.transform(X, cosines=False) - X @ Omega).max() <= 1e-4
    assert np.abs(phi.transform(X) - np.cos(X @ Omega + phi.b.ravel()[:21])).max() <= 1e-4


def a_run(harness, results, *figures, **options):
    """One run of a benchmark that measures nothing."""
    parser = harness.options(repeats=2)
    parser.add_argument("--rows", type=int, default=10)
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    bench = harness.Benchmark(parser, [*words, "--results", str(results), "--no-plot"])
    for figure in figures:
        bench.figure(**{"name": "f", **figure})
    return bench


@pytest.mark.parametrize(
    ("figure", "code"),
    [
        ({"value": 1.0, "at_most": 1.0}, 0),
        ({"value": 1.1, "at_most": 1.0}, 1),
        ({"value": 1.0, "at_least": 1.0}, 0),
        ({"value": 0.9, "at_least": 1.0}, 1),
        ({"value": float("nan"), "at_most": 1.0}, 1),
        ({"value": float("inf"), "at_least": 1.0}, 1),
        ({"value": 9.0}, 0),
    ],
)
def test_a_missed_target_gives_exit_code_1(script, tmp_path, figure, code):
    assert a_run(script("harness"), tmp_path, figure).finish() == code


def test_times_are_taken_in_turns_and_a_ratio_is_that_of_the_shortest(script, tmp_path):
    bench, called = a_run(script("harness"), tmp_path), []
    bench.in_turns({name: lambda name=name: called.append(name) for name in "ab"})
    assert called == list("ab" * 3)  # once without timing, then as often as asked for
    assert [len(times) for times in bench.seconds.values()] == [2, 2]
    bench.seconds = {"a": [4.0, 2.0], "b": [1.0, 3.0]}
    assert bench.ratio("a / b", "a", "b") == 2.0


def test_a_run_with_other_sizes_does_not_replace_the_usual_one(script, tmp_path):
    harness = script("harness")
    a_run(harness, tmp_path, {"value": 1.0}).finish()
    a_run(harness, tmp_path, {"value": 2.0}, rows=20).finish()
    names = {file.name for file in (tmp_path / fairerclip.__version__).iterdir()}
    assert names == {"test_benchmarks.json", "test_benchmarks.rows=20.json"}


def test_the_ratios_are_drawn_beside_the_result(script, tmp_path):
    pytest.importorskip("matplotlib")
    bench = a_run(script("harness"), tmp_path, {"value": 1.5, "at_most": 1.0, "name": "fit / bare"})
    bench.settings.no_plot = False
    bench.finish()
    drawing = (tmp_path / fairerclip.__version__ / "test_benchmarks.svg").read_text()
    assert "fit / bare" in drawing
    assert "mathdefault" not in drawing  # formulas of tick labels would be shown as they are
    bench.draw_lines("rows", "seconds", {"fit": ([1e3, 1e5], [0.1, 20.0])})
    bench.finish()
    drawing = (tmp_path / fairerclip.__version__ / "test_benchmarks.svg").read_text()
    assert ">10000<" in drawing
    assert "mathdefault" not in drawing


def kept(harness, results, version, monkeypatch, cpu="A", **figure):
    """Keep a result under another version."""
    monkeypatch.setattr(fairerclip, "__version__", version)
    bench = a_run(harness, results, figure)
    bench.machine["cpu"] = cpu
    bench.finish()


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ({"value": 1.0}, {"value": 1.19}, "fine"),
        ({"value": 1.0}, {"value": 1.21}, "worse"),
        ({"value": 1.0, "at_least": 0.1}, {"value": 0.9, "at_least": 0.1}, "fine"),
        ({"value": 1.0, "at_least": 0.1}, {"value": 0.8, "at_least": 0.1}, "worse"),
        ({"value": 1.0}, {"value": 1.0, "name": "another"}, "worse"),  # it is no longer measured
        ({"value": 1.0, "unit": "s"}, {"value": 2.0, "unit": "s"}, "worse"),
        ({"value": 1.0, "unit": "s", "cpu": "B"}, {"value": 2.0, "unit": "s"}, "not compared"),
        ({"value": 1.0, "cpu": "B"}, {"value": 2.0}, "worse"),
    ],
)
def test_what_became_worse_by_more_than_a_fifth_is_named(
    script, tmp_path, monkeypatch, before, after, verdict, capsys
):
    harness, compare = script("harness"), script("compare")
    kept(harness, tmp_path, "0.2.0", monkeypatch, value=99.0)  # not the latest earlier one
    kept(harness, tmp_path, "0.9.0", monkeypatch, **before)
    kept(harness, tmp_path, "0.10.0", monkeypatch, **after)
    capsys.readouterr()
    worse, compared = int(verdict == "worse"), int(verdict != "not compared")
    assert compare.main(["--results", str(tmp_path), "--version", "0.10.0"]) == worse
    assert f"{compared} figures compared, {worse} worse" in capsys.readouterr().out


def test_versions_are_compared_by_number_and_a_candidate_comes_before_its_release(script):
    key = script("compare").version_key
    names = ["1.0", "0.10.0", "0.9", "1.0rc1", "1.0.1"]
    assert sorted(names, key=key) == ["0.9", "0.10.0", "1.0rc1", "1.0", "1.0.1"]
    assert key("1.0") == key("1.0.0")


def test_the_page_has_the_results_that_are_kept(script):
    assert script("table").main(["--check"]) == 0


def test_the_table_of_the_page_is_made_from_the_files(script, tmp_path):
    harness, table = script("harness"), script("table")
    bench = a_run(harness, tmp_path, {"value": 1.2345, "at_most": 1.25, "name": "fit / bare"})
    bench.name = "closed_form"
    bench.table("by size", ["n", "seconds"], [["10", 0.25]])
    bench.note("a note on the run")
    bench.finish()
    page = tmp_path / "page.md"
    page.write_text(f"before\n{table.BEGIN}old\n{table.END}after\n")
    words = ["--results", str(tmp_path), "--page", str(page)]
    assert table.main([*words, "--check"]) == 1
    assert table.main(words) == 0
    assert table.main([*words, "--check"]) == 0
    text = page.read_text()
    assert "| fit / bare | 1.23 | – | at most 1.25 | met |" in text
    assert "| 10 | 0.25 |" in text
    assert "a note on the run. 2" in text
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")


def test_the_page_names_every_script_that_is_run(script):
    run = script("run")
    page = (ROOT / "docs" / "benchmarks" / "speed.md").read_text()
    there = {
        line.split()[0] for line in (*run.QUICK, *run.FULL) if (FOLDER / f"{line.split()[0]}.py").exists()
    }
    assert there <= set(re.findall(r"`(\w+)\.py`", page))
    assert set(TINY) | {"embed"} == there - {"cluster"}


def test_a_benchmark_that_fails_does_not_stop_the_others(script, tmp_path, monkeypatch, capsys):
    run = script("run")
    monkeypatch.setattr(run, "QUICK", ("imports", "cluster-of-none", "join"))
    ends = iter([2, 0])
    done = type("Done", (), {})
    monkeypatch.setattr(
        run.subprocess, "run", lambda *a, **k: (setattr(done, "returncode", next(ends)), done)[1]
    )
    assert run.main(["quick", "--results", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert re.search(r"imports +failed", printed)
    assert re.search(r"cluster-of-none +not there", printed)
    assert re.search(r"join +no target missed", printed)
