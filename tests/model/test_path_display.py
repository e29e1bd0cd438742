"""Paths in notebooks: a drawing without a plotting library."""

import re

import pytest

from fairerclip import FairerCLIP
from fairerclip.data import simulate
from fairerclip.model.path_display import HEIGHT, WIDTH, draw_front
from notebook_html import paragraphs, shown, tables

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def task():
    return simulate("waterbirds", seed=0, scale=0.05, width=32)


@pytest.fixture
def path(task):
    model = FairerCLIP(
        n_features=50, tau=0.5, gamma=1e-3, zero_shot=0.5, criterion="marginal", random_state=0
    )
    s_text = task.sensitive_attribute().text
    model.fit(task.train.X, task.train.y, text=task.text_target, sensitive_text=s_text)
    return model.path([0.0, 0.5, 0.9], criterion=["marginal", "conditional"])


def test_a_path_says_whether_it_was_evaluated(path):
    root = shown(path)
    assert paragraphs(root) == [
        "TauPath: 6 points, τ from 0 to 0.9; not evaluated",
        "evaluate(X_val, y_val, s_val) measures every point on labelled rows.",
    ]
    assert repr(path) == "<TauPath: 6 points, τ from 0 to 0.9; not evaluated>"


def test_an_evaluated_path_draws_its_points_and_names_the_best(path, task):
    path.evaluate(task.val.X, task.val.y, task.val.sensitive())
    root = shown(path)
    assert paragraphs(root) == [f"TauPath: 6 points, τ from 0 to 0.9; evaluated on {len(task.val)} rows"]
    drawn = root.findall(f".//{SVG}path")
    places = {(row["average"], row["worst_group"]) for row in path.table}
    assert len(re.findall("M", drawn[1].get("d"))) == len(places)
    assert len(re.findall("[ML]", drawn[2].get("d"))) == len(path.front())
    [table] = tables(root)
    best = path.table[path.best_index("worst_group")]
    assert table[1][0] == 'best(by="worst_group")'
    assert table[1][1] == str(best["tau"]).removesuffix(".0")
    assert table[1][3] == best["criterion"]
    assert table[1][5] == f"{100 * best['worst_group']:.1f}\u00a0%"


def test_drawn_places_are_inside_and_in_order():
    points = [(0.5, 0.2), (0.75, 0.9), (1.0, 0.4)]
    drawing = draw_front(points, points[1:])
    dots = [tuple(map(int, p)) for p in re.findall(r"M(\d+) (\d+)h0", drawing)]
    assert dots[0][0] < dots[1][0] < dots[2][0]
    assert dots[1][1] < dots[2][1] < dots[0][1]
    assert dots[1][0] - dots[0][0] == pytest.approx(dots[2][0] - dots[1][0], abs=1)
    assert all(0 < x < WIDTH and 0 < y < HEIGHT for x, y in dots)


def test_one_point_and_many_equal_points_are_drawn():
    assert draw_front([(0.5, 0.5)], [(0.5, 0.5)]).count("h0") == 1
    assert draw_front([(0.5, 0.5)] * 100_000, [(0.5, 0.5)]).count("h0") == 1
