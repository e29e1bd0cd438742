"""`fairerclip path`: the points of a path, their figures and the file."""

import csv

import numpy as np
import pytest

from fairerclip import FairerCLIP
from fairerclip.experiment import Experiment


def test_a_path_has_the_figures_of_a_fit_at_each_point(run, document, birds, task, tmp_path):
    given = {"n_features": 150, "zero_shot": 0.3, "gamma": 1e-3, "guess_weight": 1.0}
    parameters = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
    call = ("path", task, *parameters, "--taus", "0:0.9:4", "--split", "test", "-o", tmp_path / "p.csv")
    points = document(*call)["points"]
    assert len(points) == 8
    e = Experiment.of(birds)
    for point in points:
        at = {"tau": point["tau"], "criterion": point["criterion"], "class_offsets": None}
        right = e.fit(FairerCLIP(**given, **at, random_state=0), "target").predict(birds.test.X)
        assert point["average"] == pytest.approx((right == e.target(birds.test)).mean())
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text().splitlines()))
    assert [float(row["average"]) for row in rows] == pytest.approx([p["average"] for p in points], abs=1e-4)
    code, out, err = run(*call, "--overwrite")
    assert (code, err) == (0, "")
    assert "→" in out


def test_a_plane_has_a_front_and_a_best_point(document, task):
    grid = ("--taus", "0:0.9:4", "--tau-zs", "0,0.5", "--criterion", "marginal")
    found = document("path", task, "--set", "n_features=150", *grid)
    points = found["points"]
    assert len(points) == 8
    assert found["best"] == int(np.argmax([point["worst_group"] for point in points]))
    averages = [points[g]["average"] for g in found["front"]]
    assert averages == sorted(averages)
    for point in points:  # none beats a point of the front in both figures
        assert not any(
            point["average"] > points[g]["average"] and point["worst_group"] > points[g]["worst_group"]
            for g in found["front"]
        )
