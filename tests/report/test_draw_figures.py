import copy

import pytest
import sample

from fairerclip.errors import MissingExtraError, OutputExistsError, ParameterError

matplotlib = pytest.importorskip("matplotlib")

from forms import DRAWINGS, draw_figures  # noqa: E402 - after matplotlib is known to be there

from fairerclip.auditing.results import check_results  # noqa: E402
from fairerclip.report.figures.draw import STYLE  # noqa: E402
from fairerclip.report.figures.drawings_picture import smoothed  # noqa: E402
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


def test_each_section_has_a_figure_in_each_format(results, tmp_path):
    files = draw_figures(results, tmp_path / "figures", formats=("pdf", "png", "svg"))
    assert {file.stem for file in files} == set(DRAWINGS)
    starts = {".pdf": b"%PDF", ".png": b"\x89PNG", ".svg": b"<?xml"}
    assert all(file.read_bytes().startswith(starts[file.suffix]) for file in files)


def test_the_same_results_give_the_same_bytes(results, tmp_path):
    part = {**sample.minimal(), "groups": results["groups"], "plane": results["plane"]}
    once, again = (
        draw_figures(part, tmp_path / name, formats=("pdf", "png", "svg")) for name in ("once", "again")
    )
    assert [f.name for f in once] == [f.name for f in again]
    assert len(once) == 9
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


def test_one_tau_z_gives_curves_with_bands():
    results = sample.two_class(taus=6, tau_zs=1)
    (axes,) = drawn("plane", results).axes
    plane = results["plane"]
    curve = next(line for line in axes.lines if len(line.get_xdata()) > 2)
    solved = [p for p in plane["points"][:6] if p["failure"] is None]
    assert list(curve.get_ydata()) == pytest.approx([100 * p["worst_group"] for p in solved])
    assert len(axes.collections) == 2


def test_bars_show_the_composition_of_the_first_hits(results):
    (axes,) = drawn("retrieval", results).axes
    section = results["retrieval"]
    counts = [q[stage]["counts"] for q in section["queries"] for stage in ("before", "after")]
    shares = [100 * share for share in section["shares"]]
    expected = [*shares, *(100 * n / section["k"] for row in counts for n in row)]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx(expected)


def test_scores_are_shares_of_each_group(results):
    figure = drawn("scores", results)
    assert len(figure.axes) == 4
    outlines = [p for p in figure.axes[0].patches if not p.get_fill()]
    assert [sum(p.get_data().values) for p in outlines] == pytest.approx([1, 1])


def test_lines_of_the_picture_enclose_half_and_nine_tenths(results):
    section = results["picture"]
    picture = drawn("picture", results)
    assert len(picture.axes) == 2
    for stage, axes in zip(("before", "after"), picture.axes, strict=True):
        lines = [c for c in axes.collections if not c.filled]
        assert len(lines) == len(section["groups"])
        for g, contour in enumerate(lines):
            own = [cell for cell in section[stage]["cells"] if cell[2] == g]
            density = smoothed(own, (18, 18))
            for level, share in zip(contour.levels, (0.9, 0.5), strict=True):
                inside = density[density >= level].sum()
                assert share <= inside + 1e-9
                assert inside - density[density == level].sum() < share


def test_a_small_group_is_drawn_as_dots(results):
    few = copy.deepcopy(results)
    few["settings"]["small"] = 130  # between the two small groups
    (before, _) = drawn("picture", few).axes
    (dots,) = [c for c in before.collections if type(c).__name__ == "PathCollection"]
    (g,) = [g for g, group in enumerate(few["picture"]["groups"]) if group["n"] < 130]
    assert len(dots.get_offsets()) == sum(cell[2] == g for cell in few["picture"]["before"]["cells"])


def test_more_groups_than_colours_share_those_of_their_sensitive_value():
    figure = drawn("picture", sample.seven_class())
    (legend,) = figure.legends
    assert [t.get_text() for t in legend.get_texts()] == sample.seven_class()["task"]["groups"]


def test_probes_stand_at_their_values(results):
    (axes,) = drawn("probes", results).axes
    by_probe = sorted(results["probes"], key=lambda p: (p["probe"] != "linear", p["stage"] != "before"))
    assert dot_values(axes) == pytest.approx([100 * p["value"] for p in by_probe])


def test_sections_that_are_null_are_not_drawn(tmp_path):
    assert draw_figures(sample.minimal(), tmp_path / "none") == []
    files = draw_figures(sample.retrieval_only(), tmp_path / "one", formats=["svg"])
    assert [file.name for file in files] == ["retrieval.svg"]


def test_more_groups_than_there_is_room_for_are_counted(results):
    many = copy.deepcopy(sample.seven_class())
    extra = [{**g, "s": f"other {g['s']}"} for g in many["groups"]["after"]["groups"]]
    many["groups"]["after"]["groups"] += extra
    figure = drawn("groups", many)
    assert "30 of 56 groups, those of lowest accuracy" in texts(figure)
    assert len(figure.axes[0].get_yticks()) == 30


def test_hostile_text_is_drawn_as_text(tmp_path):
    results = sample.hostile()
    results["groups"]["before"]["groups"][1]["name"] = "$\\frac{1}{0}$ _x"
    results["retrieval"] |= {key: ["_under", "$\\bad$"] for key in ("groups", "pair")}
    files = draw_figures(results, tmp_path / "figures", formats=("svg", "png"))
    for file in files:
        assert b"<script" not in file.read_bytes()
    assert "_under" in (tmp_path / "figures" / "retrieval.svg").read_text()
    assert "\\frac{1}{0}" in (tmp_path / "figures" / "groups.svg").read_text()


def test_settings_of_the_user_do_not_change_the_figures(results, tmp_path):
    part = {**sample.minimal(), "probes": results["probes"]}
    (plain,) = draw_figures(part, tmp_path / "plain", formats=["png"])
    with matplotlib.rc_context({"text.usetex": True, "font.size": 30, "savefig.bbox": "tight"}):
        (other,) = draw_figures(part, tmp_path / "other", formats=["png"])
    assert plain.read_bytes() == other.read_bytes()


def test_what_cannot_be_drawn_is_said_before_anything_is(results, tmp_path, monkeypatch):
    with pytest.raises(ParameterError, match="got bmp"):
        draw_figures(results, tmp_path / "x", formats=("bmp",))
    with pytest.raises(ParameterError, match="no format"):
        draw_figures(results, tmp_path / "x", formats=())
    (tmp_path / "taken").mkdir()
    with pytest.raises(OutputExistsError):
        draw_figures(results, tmp_path / "taken")
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"\[plots\]"):
        draw_figures(results, tmp_path / "x")
    assert not (tmp_path / "x").exists()
