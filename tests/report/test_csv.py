import csv

import pytest
import sample
from forms import csv_rows, write_csv

from fairerclip.errors import OutputExistsError
from fairerclip.report.csv_tables import TABLES


def read(path):
    with path.open(newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


def same(text, value):
    """Whether a cell gives the value back exactly."""
    if value is None:
        return text == ""
    return float(text) == value if type(value) in (int, float) else text == str(value)


def test_what_is_written_reads_back_as_it_was(tmp_path):
    results = sample.every_section()
    files = write_csv(results, tmp_path / "tables")
    made = csv_rows(results)
    assert {file.stem for file in files} == set(made) == set(TABLES)
    for file in files:
        rows = read(file)
        assert len(rows) == len(made[file.stem])
        for row, expected in zip(rows, made[file.stem], strict=True):
            assert list(row) == list(expected)
            assert all(same(row[key], value) for key, value in expected.items())


def test_tables_hold_the_numbers_of_the_results(results):
    made = csv_rows(results)
    after = [row for row in made["groups"] if row["stage"] == "after"]
    for row, group in zip(after, results["groups"]["after"]["groups"], strict=True):
        assert row == {"stage": "after", **{key: group[key] for key in row if key != "stage"}}
    assert made["changes"] == results["groups"]["changes"]
    worst = next(r for r in made["figures"] if (r["stage"], r["figure"]) == ("before", "worst_group"))
    assert worst["value"] == results["groups"]["before"]["worst"]["accuracy"]
    assert [worst["low"], worst["high"]] == results["groups"]["before"]["intervals"]["worst_group"]
    for table in ("probes", "dependence"):
        rows = [{key: value for key, value in row.items() if key != "label"} for row in made[table]]
        assert rows == results[table]


def test_the_plane_has_a_row_per_point_and_one_for_zero_shot(results):
    plane, made = results["plane"], csv_rows(results)
    *points, zero = made["plane"]
    assert len(points) == len(plane["points"]) == 36
    assert [row["worst_group"] for row in points] == [point["worst_group"] for point in plane["points"]]
    assert [row["point"] for row in points if row["chosen"]] == [plane["chosen"]]
    assert {row["point"] for row in points if row["front"]} == set(plane["front"])
    assert zero["average"] == plane["baseline"]["average"]
    row = next(r for r in made["plane_groups"] if r["point"] == plane["chosen"])
    assert row["correct"] == plane["points"][plane["chosen"]]["correct"][0]
    assert [row["low"], row["high"]] == plane["intervals"][0][str(row["correct"])]


def test_retrieval_is_one_number_a_row(results):
    rows = csv_rows(results)["retrieval"]
    query = results["retrieval"]["queries"][1]
    found = {(r["query"], r["stage"], r["measure"]): r for r in rows}
    assert len(found) == len(rows)
    change = found[query["name"], "change", "ndkl"]
    assert change["value"] == query["changes"]["ndkl"]["difference"]
    assert found[query["name"], "drift", "overlap"]["value"] == query["drift"]["overlap"]["value"]
    assert (
        found["(mean over queries)", "after", "max_skew"]["low"]
        == (results["retrieval"]["mean"]["after"]["max_skew"]["low"])
    )


def test_changes_of_free_queries_are_those_of_the_results():
    results = sample.gallery()
    rows = csv_rows(results)["queries"]
    for query in results["queries"]["queries"]:
        found = next(r for r in rows if (r["query"], r["stage"]) == (query["prompt"], "change"))
        moved = query["change"]
        assert (found["value"], found["low"], found["high"]) == tuple(
            moved[key] for key in ("difference", "low", "high")
        )


def test_text_that_a_spreadsheet_would_run_is_quoted(results, tmp_path):
    bad = {**results, "probes": [{**results["probes"][0], "attribute": "=cmd|' /C calc'!A0"}]}
    write_csv(bad, tmp_path / "tables")
    (row,) = read(tmp_path / "tables" / "probes.csv")
    assert row["attribute"] == "'=cmd|' /C calc'!A0"


def test_overwriting_leaves_no_table_of_before_and_touches_no_other_file(results, tmp_path):
    folder = tmp_path / "tables"
    write_csv(results, folder)
    (folder / "notes.txt").write_text("mine")
    write_csv(sample.gallery(), folder, overwrite=True)
    made = {f"{name}.csv" for name in csv_rows(sample.gallery())}
    assert {file.name for file in folder.iterdir()} == made | {"notes.txt"}
    assert "groups.csv" not in made
    with pytest.raises(OutputExistsError, match="is a file"):
        write_csv(results, folder / "notes.txt", overwrite=True)
