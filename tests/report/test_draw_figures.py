import pytest
import sample

matplotlib = pytest.importorskip("matplotlib")

from forms import DRAWINGS, draw_figures  # noqa: E402 - after matplotlib is known to be there

from fairerclip.auditing.results import check_results  # noqa: E402
from fairerclip.report.figures.draw import STYLE  # noqa: E402
from fairerclip.report.figures.drawings_plane import average_at  # noqa: E402


def drawn(name, results):
    with matplotlib.rc_context(STYLE):
        return DRAWINGS[name](results)


def texts(figure):
    from matplotlib.text import Text

    figure.draw_without_rendering()
    return [found.get_text() for found in figure.findobj(Text)]


def dot_values(axes):
    """x of every single dot, in the order of drawing."""
    return [line.get_xdata()[0] for line in axes.lines if len(line.get_xdata()) == 1]


def whisker_ends(axes):
    lines = [line.get_xdata() for line in axes.lines if line.get_linestyle() == "-"]
    return [list(x) for x in lines if len(x) == 2]


@pytest.mark.slow
def test_the_same_results_give_the_same_bytes(results, tmp_path):
    part = {**sample.minimal(), "groups": results["groups"]}
    once, again = (
        draw_figures(part, tmp_path / name, formats=("pdf", "png", "svg")) for name in ("once", "again")
    )
    assert [f.name for f in once] == [f.name for f in again]
    assert {f.suffix for f in once} == {".pdf", ".png", ".svg"}
    assert all(a.read_bytes() == b.read_bytes() for a, b in zip(once, again, strict=True))


def test_groups_stand_at_their_accuracies_with_their_intervals(results):
    (axes,) = drawn("groups", results).axes
    pairs = zip(results["groups"]["before"]["groups"], results["groups"]["after"]["groups"], strict=True)
    groups = [group for pair in pairs for group in pair]
    assert dot_values(axes) == pytest.approx([100 * g["accuracy"] for g in groups])
    ends = [end for g in groups for end in (100 * g["low"], 100 * g["high"])]
    assert [end for pair in whisker_ends(axes) for end in pair] == pytest.approx(ends)


def test_the_front_shows_chosen_point_and_zero_shot_with_both_intervals(results):
    (axes,) = drawn("front", results).axes
    plane = results["plane"]
    stars = {line.get_marker(): line for line in axes.lines if line.get_marker() in ("*", "D")}
    chosen = plane["points"][plane["chosen"]]
    assert stars["*"].get_xydata()[0] == pytest.approx([100 * chosen["average"], 100 * chosen["worst_group"]])
    zero = plane["baseline"]
    assert stars["D"].get_xydata()[0] == pytest.approx([100 * zero["average"], 100 * zero["worst_group"]])
    typed = check_results(results)
    average = average_at(typed.plane, typed.plane.points[typed.plane.chosen], typed.settings.confidence)
    assert average.low < chosen["average"] < average.high
    assert [100 * average.low, 100 * average.high] in [pytest.approx(e) for e in whisker_ends(axes)]


def test_the_heat_map_has_every_point_in_its_place(results):
    figure = drawn("plane", results)
    plane = results["plane"]
    for c, criterion in enumerate(plane["criteria"]):
        cells = figure.axes[c].images[0].get_array().filled(-1)
        assert cells.shape == (3, 6)
        for point in plane["points"]:
            if point["criterion"] == criterion:
                row, column = plane["tau_zs"].index(point["tau_z"]), plane["taus"].index(point["tau"])
                expected = -1 if point["failure"] else 100 * point["worst_group"]
                assert cells[row, column] == pytest.approx(expected)


def test_one_tau_z_gives_curves_with_bands(results):
    plane = results["plane"]
    plane["points"], plane["tau_zs"], plane["criteria"] = (
        plane["points"][:6],
        plane["tau_zs"][:1],
        plane["criteria"][:1],
    )
    plane["chosen"], plane["front"] = 2, [3]
    (axes,) = drawn("plane", results).axes
    curve = next(line for line in axes.lines if len(line.get_xdata()) > 2)
    solved = [p for p in plane["points"][:6] if p["failure"] is None]
    assert list(curve.get_ydata()) == pytest.approx([100 * p["worst_group"] for p in solved])
    assert len(axes.collections) == 1


@pytest.mark.slow
def test_hostile_text_is_drawn_as_text(tmp_path):
    results = sample.hostile()
    results["groups"]["before"]["groups"][1]["name"] = "$\\frac{1}{0}$ _x"
    results["retrieval"] |= {key: ["_under", "$\\bad$"] for key in ("groups", "pair")}
    files = draw_figures(results, tmp_path / "figures", formats=("svg",))
    for file in files:
        assert b"<script" not in file.read_bytes()
    assert "_under" in (tmp_path / "figures" / "retrieval.svg").read_text()
    assert "\\frac{1}{0}" in (tmp_path / "figures" / "groups.svg").read_text()
