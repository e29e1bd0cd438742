"""Shipped prompts do not change by accident; users' files are checked; embeddings are averaged as CLIP does."""

import hashlib
import json
from importlib.resources import files

import numpy as np
import pytest

from fairerclip.data.prompts import available_prompts, encode_prompts, load_prompts, read_templates
from fairerclip.errors import NonFiniteError, PromptFileError, ShapeError, ZeroRowError


def good():
    return {
        "version": 1,
        "name": "pets",
        "source": {"kind": "ours", "citation": "a test"},
        "classes": {"cat": ["a cat", "a kitten"], "dog": ["a dog"]},
        "sensitive": {"place": {"home": ["at home"], "street": ["in the street"]}},
        "counterfactual": [{"class": "cat", "sensitive": {"place": "home"}, "prompt": "a cat at home"}],
    }


def write(tmp_path, data):
    file = tmp_path / "pets.json"
    file.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return file


def test_toml_says_the_same_as_json(tmp_path):
    file = tmp_path / "pets.toml"
    file.write_text(
        'version = 1\nname = "pets"\ntemplates = ["a photo of a {}."]\n'
        '[source]\nkind = "ours"\ncitation = "a test"\n'
        '[classes]\ndog = {names = ["dog", "puppy"]}\ncat = ["a cat"]\n'
        '[[counterfactual]]\nclass = "dog"\nprompt = "a dog at home"\n[counterfactual.sensitive]\nplace = "home"\n'
        '[sensitive.place]\nhome = ["at home"]\nstreet = ["in the street"]\n'
    )
    prompts = load_prompts(file)
    assert prompts.class_names == ("dog", "cat")
    assert prompts.classes["dog"] == ("a photo of a dog.", "a photo of a puppy.")
    assert prompts.counterfactual[0].sensitive == {"place": "home"}


class Encoder:
    """Random rows that depend on the sentence alone, of any length; counts its calls."""

    def __init__(self, width=16):
        self.width, self.calls = width, []

    def __call__(self, prompts):
        self.calls.append(prompts)
        return np.stack([self.row(p) for p in prompts])

    def row(self, prompt):
        seed = int.from_bytes(hashlib.sha256(prompt.encode()).digest()[:4], "big")
        rng = np.random.default_rng(seed)
        return (rng.normal(size=self.width) * rng.uniform(1, 9)).astype(np.float32)


def unit(v):
    return v / np.linalg.norm(v, axis=-1, keepdims=True)


def test_averages_are_those_of_unit_rows_brought_to_unit_length(tmp_path):
    encoder = Encoder()
    prompts = load_prompts(write(tmp_path, good()))
    encoded = encode_prompts(prompts, encoder, average=True)
    cat = unit((unit(encoder.row("a cat")) + unit(encoder.row("a kitten"))) / 2)
    np.testing.assert_allclose(encoded.text_target, [cat, unit(encoder.row("a dog"))], rtol=1e-5)
    assert encoded.text_target.dtype == np.float32
    names, sentences, text = encoded.sensitive["place"]
    assert (names, sentences) == (("home", "street"), (("at home",), ("in the street",)))
    np.testing.assert_allclose(np.linalg.norm(text, axis=1), 1, rtol=1e-6)
    assert len(encoder.calls) == 1
    assert encoder.calls[0] == prompts.all_prompts()


def test_harmful_and_helpful_pairs_are_embedded(tmp_path):
    data = good() | {
        "harmful": [["at home", "in the street"]],
        "helpful": [["a tail", "ears"], ["ears", "a paw"]],
    }
    prompts = load_prompts(write(tmp_path, data))
    assert prompts.helpful[1] == ("ears", "a paw")
    assert prompts.all_prompts()[-3:] == ["a tail", "ears", "a paw"]
    lengths = lambda sentences: np.array([[len(s), 1.0] for s in sentences])  # noqa: E731
    encoded = encode_prompts(prompts, lengths, average=True)
    assert encoded.harmful.vectors.shape == (1, 2, 2)
    np.testing.assert_allclose(encoded.helpful.vectors[1, 1], np.array([5, 1]) / np.sqrt(26), atol=1e-6)
    assert encoded.helpful.prompts == prompts.helpful
    assert encode_prompts(load_prompts(write(tmp_path, good())), lengths, average=True).harmful is None


def test_counterfactuals_carry_the_codes_of_class_and_value(tmp_path):
    data = good()
    data["sensitive"]["age"] = {"old": ["it is old"], "young": ["it is young"]}
    data["counterfactual"] += [{"class": "dog", "sensitive": {"age": "young"}, "prompt": "a young dog"}]
    encoder = Encoder()
    vectors, classes, values, sentences = encode_prompts(
        load_prompts(write(tmp_path, data)), encoder, average=True
    ).counterfactual
    assert sentences == ("a cat at home", "a young dog")
    np.testing.assert_allclose(vectors[1], unit(encoder.row("a young dog")), rtol=1e-5)
    assert classes.tolist() == [0, 1]
    assert {name: codes.tolist() for name, codes in values.items()} == {"place": [0, -1], "age": [-1, 1]}


def test_templates_filled_for_every_class_are_wordings(tmp_path):
    templates = ["a photo of {}.", "{}"]
    parts = {
        "templates": templates,
        "classes": {"cat": {"names": ["a cat", "a kitten"]}, "dog": {"names": ["dog"]}},
    }
    prompts = load_prompts(write(tmp_path, good() | parts))
    assert prompts.class_prompts_by_template() == (
        (("a photo of a cat.", "a photo of a kitten."), ("a photo of dog.",)),
        (("a cat", "a kitten"), ("dog",)),
    )
    encode = Encoder()
    encoded = encode_prompts(prompts, encode, average=True)
    assert encoded.templates == tuple(templates)
    assert encoded.variants.shape[:2] == (2, 2)
    rows = {
        sentence: unit(row)
        for sentence, row in zip(prompts.all_prompts(), encode(prompts.all_prompts()), strict=True)
    }
    kittens = unit(rows["a cat"] + rows["a kitten"])
    np.testing.assert_allclose(encoded.variants[1, 0], kittens, atol=1e-6)
    np.testing.assert_allclose(encoded.variants[0, 1], rows["a photo of dog."], atol=1e-6)


def test_templates_are_read_from_lines(tmp_path):
    file = tmp_path / "templates.txt"
    file.write_bytes("\ufeffa photo of a {}.\r\n\n  ein Bild: {}  \n".encode())
    assert read_templates(file) == ("a photo of a {}.", "ein Bild: {}")


def test_shipped_prompts_change_only_on_purpose():
    # Figures of other prompts cannot be compared. A change that is meant raises "version" in the file.
    found = hashlib.sha256()
    for name in available_prompts():
        raw = json.loads((files("fairerclip.data.prompts") / f"{name}.json").read_text(encoding="utf-8"))
        # Keys are not sorted: the order of the classes is the order of the labels.
        found.update(json.dumps(raw, ensure_ascii=False, separators=(",", ":")).encode())
    assert found.hexdigest() == "cdf65fe109ff87545985bb610fa2b4c614f82056cb238cbc9689e589be83a852"


@pytest.mark.parametrize("name", available_prompts())
def test_every_shipped_set_is_whole_and_can_be_encoded(name):
    prompts = load_prompts(name)
    sentences = prompts.all_prompts()
    assert len(sentences) == len(set(sentences)) > 0
    assert prompts.name == name
    encoded = encode_prompts(prompts, Encoder(), average=True)
    if prompts.class_names:
        assert encoded.text_target.shape == (len(prompts.class_names), 16)
    for attribute, values in prompts.sensitive.items():
        assert encoded.sensitive[attribute].text.shape == (len(values), 16)
    assert (encoded.spurious is None) == (not prompts.spurious)


def test_selecting_a_pair_keeps_its_two_classes():
    pair = load_prompts("fairface").select(["evil", "good"])
    assert (pair.class_names, pair.pairs) == (("evil", "good"), (("good", "evil"),))
    assert load_prompts("waterbirds").select(["landbird"]).counterfactual[1].class_name == "landbird"
    for wrong in (["goood"], ["good", "good"]):
        with pytest.raises(PromptFileError, match="good"):
            load_prompts("fairface").select(wrong)


@pytest.mark.parametrize(
    ("name", "fact"),
    [("waterbird", "'waterbirds'"), ("zzzzzz", "celeba-blond"), ("x" * 5000, "xxx"), ("a\0b.json", "json")],
)
def test_an_unknown_name_is_refused(name, fact):
    with pytest.raises(PromptFileError, match=fact):
        load_prompts(name)


def of_class(value):
    return good() | {"classes": {"cat": value, "dog": ["a dog"]}, "counterfactual": []}


def counterfactual(**parts):
    one = {"class": "cat", "sensitive": {"place": "home"}, "prompt": "x"} | parts
    return good() | {"counterfactual": [one]}


@pytest.mark.parametrize(
    ("data", "fact"),
    [
        ({}, "neither"),
        ("{", "JSON"),
        ('{"version": 1, "version": 2}', "twice"),
        (good() | {"clases": {}}, "'classes'"),
        (good() | {"version": True}, "version"),
        (good() | {"source": {"kind": "ours"}}, "citation"),
        (good() | {"classes": {"cat": ["a cat"]}, "counterfactual": []}, "cat"),
        (good() | {"classes": ["cat", "dog"]}, "names"),
        (good() | {"templates": ["{} {}"]}, "got 2"),
        (good() | {"pairs": [["cat", "cow"]]}, "'cow'"),
        (good() | {"harmful": [["a", "b", "c"]]}, "harmful"),
        (good() | {"queries": ["a nest", "a nest"]}, "'a nest'"),
        (good() | {"queries": ["a {} nest"]}, "template"),
        (of_class([]), "classes.cat"),
        (of_class([" "]), "text"),
        (of_class(["a\ncat"]), "line"),
        (of_class(["a {}"]), "template"),
        (of_class(["a dog"]), "'a dog'"),
        (counterfactual(sensitive={"place": "hom"}), "'home'"),
        (counterfactual(**{"class": "cow"}), "'cow'"),
    ],
)
def test_a_bad_file_is_refused(tmp_path, data, fact):
    with pytest.raises(PromptFileError, match=fact):
        load_prompts(write(tmp_path, data))


def test_a_file_that_is_absent_or_of_another_kind_is_refused(tmp_path):
    (tmp_path / "pets.toml").write_text("version = ")
    for name, fact in (("none.json", "readable"), ("none.txt", r"\.txt"), ("pets.toml", "TOML")):
        with pytest.raises(PromptFileError, match=fact):
            load_prompts(tmp_path / name)


@pytest.mark.parametrize("ending", ["json", "toml"])
def test_classes_and_sentences_are_enough_for_a_file(tmp_path, ending):
    file = tmp_path / f"my birds.{ending}"
    file.write_text(
        '{"classes": {"land": "a landbird", "water": ["a waterbird"]}, "sensitive": {"place": {"x": "an x"}}}'
        if ending == "json"
        else '[classes]\nland = "a landbird"\nwater = ["a waterbird"]\n[sensitive.place]\nx = "an x"\n'
    )
    for path in (file, str(file)):
        prompts = load_prompts(path)
        assert (prompts.name, prompts.version, prompts.source.kind) == ("my birds", 1, "own")
        assert prompts.classes == {"land": ("a landbird",), "water": ("a waterbird",)}
        assert prompts.sensitive == {"place": {"x": ("an x",)}}


def test_prompts_kept_apart_are_one_array_per_class_and_opposite_ones_have_no_average(tmp_path):
    def encode(prompts):
        row = np.float32([0.1, 0.7, 0.3])
        return np.stack([-row if p == "a kitten" else row for p in prompts])

    prompts = load_prompts(write(tmp_path, good()))
    encoded = encode_prompts(prompts, encode, average=False)
    assert [one.shape for one in encoded.text_target] == [(2, 3), (1, 3)]
    assert encoded.target_prompts == (("a cat", "a kitten"), ("a dog",))
    with pytest.raises(ZeroRowError, match="'cat'"):
        encode_prompts(prompts, encode, average=True)


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        (np.ones((1, 4)), ShapeError),
        (np.array([["a"]] * 3), ShapeError),
        (np.full((3, 4), np.nan), NonFiniteError),
        (np.zeros((3, 4)), ZeroRowError),
    ],
)
def test_an_encoder_that_returns_nonsense_is_refused(tmp_path, rows, error):
    prompts = load_prompts(write(tmp_path, {"classes": {"cat": ["a cat"], "dog": ["a dog", "two"]}}))
    with pytest.raises(error):
        encode_prompts(prompts, lambda sentences: rows, average=True)


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (b"", "got 0"),
        (b"{} {}\n", "got 2"),
        (b"a {}\na {}\n", "twice"),
        (b"a \x00{}", "printable"),
        (b"".join(b"%d {}\n" % i for i in range(1001)), "1001"),
    ],
)
def test_bad_templates_are_refused(tmp_path, content, fact):
    (tmp_path / "templates.txt").write_bytes(content)
    with pytest.raises(PromptFileError, match=fact):
        read_templates(tmp_path / "templates.txt")
