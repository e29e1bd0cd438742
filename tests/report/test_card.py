import pytest
import sample
from forms import metadata, render_card
from rendered import foreign, render, table_with

from fairerclip._util.numbers import with_interval
from fairerclip.report.card import front_matter


def body(card):
    front, _, text = card.removeprefix("---\n").partition("\n---\n")
    assert card.startswith("---\n")
    return front, text


def test_the_hub_reads_the_metadata(results):
    hub = pytest.importorskip("huggingface_hub")
    data = hub.ModelCard(render_card(results, license_id="apache-2.0")).data
    assert (data.library_name, data.license, data.language) == ("fairerclip", "apache-2.0", "en")
    assert data.model_name == f"FairerCLIP on {results['task']['name']}"
    found = {(r.metric_name.split(", 95 %")[0], r.dataset_split): r.metric_value for r in data.eval_results}
    for stage, name in (("before", "zero-shot"), ("after", "FairerCLIP")):
        report = results["groups"][stage]
        assert found[f"Average accuracy, {name}", "test"] == report["average"]
        assert found[f"Worst-group accuracy, {name}", "test"] == report["worst"]["accuracy"]
        assert found[f"Equal opportunity difference (EOD), {name}", "test"] == report["eod"]
        skew = results["retrieval"]["mean"][stage]["max_skew"]
        assert (
            found[f"MaxSkew@{results['retrieval']['k']}, mean over prompts, {name}", "test"] == skew["value"]
        )


def test_the_front_matter_gives_back_what_was_meant(results):
    yaml = pytest.importorskip("yaml")
    for document in (results, sample.hostile(), sample.minimal()):
        front, _ = body(render_card(document, license_id="no"))
        expected = metadata(document, license_id="no")
        assert yaml.safe_load(front) == expected


@pytest.mark.parametrize(
    "value",
    [
        "no",
        "- x",
        "a: b #c",
        '"\\',
        "\n---\n",
        "\x00\x07\x7f\x85\xad\u2028\ufeff\uffff\U000e0001",
        "😀 é",
        "1e-7",
        "!!python/x",
    ],
)
def test_any_text_is_text_in_yaml(value):
    yaml = pytest.importorskip("yaml")
    data = {"a": [{"b": value, "c": [value]}, value]}
    written = front_matter(data)
    assert yaml.safe_load(written) == data
    assert written.count("\n") == front_matter({"a": [{"b": "", "c": [""]}, ""]}).count("\n")


def test_evaluation_is_by_group_with_intervals(results):
    page = render(body(render_card(results))[1])
    (rows,) = table_with(page, "group", "n", "zero-shot")
    for row, group in zip(rows, results["groups"]["after"]["groups"], strict=True):
        assert row[3].strip() == with_interval(group["accuracy"], group["low"], group["high"])
    (train,) = table_with(page, "class", "value", "rows")
    assert [int(row[2]) for row in train] == [cell["n"] for cell in results["task"]["counts"]["train"]]


def test_hostile_text_stays_text():
    front, text = body(render_card(sample.hostile()))
    page = render(text)
    assert foreign(page) == (set(), 0)
    assert "\n---" not in front
