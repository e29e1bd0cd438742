"""Shipped prompts do not change by accident; users' files are checked; embeddings are averaged as CLIP does."""

import hashlib
import json
import re
from importlib.resources import files

import numpy as np
import pytest

from fairerclip.data.prompts import available_prompts, encode_prompts, load_prompts, read_templates
from fairerclip.data.prompts.parse import parse_prompts
from fairerclip.errors import NonFiniteError, PromptFileError, ShapeError, ZeroRowError

DIGESTS = {  # name: (version, sha256 of the content)
    "age": (1, "a7437667a47781bde5eadaae7e71389a1fbdeb51094c911130c4a6351deffab6"),
    "background": (1, "6c8118465de159a7f6d1947f94f813821df4c32ba4205e9025871e8f4caaba47"),
    "celeba-attractive": (1, "5f22f3147ce51b21e40906ad70c4163148aef6e7ad8451fce6efed505c72b977"),
    "celeba-blond": (3, "4ce4373e8618f39dbcb3088e8d69045397ff6f4c628673dc3dfa53c41062e849"),
    "celeba-blond-debias-vl": (1, "2356867966c8868b9aef487ad3229c2461fdc2160a19a0dcaeec525fcc44f7a9"),
    "celeba-cheekbones": (2, "0b96fbf644abb0347f91c8e27b3e12f921887415c90cab6d4cdd96a328004d3e"),
    "cfd": (1, "d456282fd00ffddec79d7c2c6cfc325217aaa352b5b33158c14d93fececd7668"),
    "facet": (1, "b73fece5d710bf67bdb708ee9f11a9cfb4c742dda9efb4b11fc00f8efd311f9f"),
    "fairface": (1, "5297645e631688e1dce502e33e09b8d41bc20cf3d0c6d7b9655002aeb905d7ad"),
    "fairface-author": (1, "ab7cab123eb57c722c63643d8a93f6b26603b9d540f271a3c8accf593b19d1c3"),
    "fairface-berg": (1, "1c5f1569aad85163739ad941e126909fab9dc24c0698b089cdf6bae0e53528a6"),
    "fairface-ours": (1, "b1df08b2035be25174e841c95ccf49817927ee39aedea475b9eb2d6c1cb2cdaf"),
    "race": (1, "233d4f66f3eef54e2c14caeca3920cda8f21fd393d9c51643962c537503fa723"),
    "sex": (1, "cddc7accbffdb561219ab4f1660decd88f443ccea57e93c675bd429d1855a7fa"),
    "waterbirds": (3, "7b1db15789ddc95dcf614b29796fdcde832d9542035b36dad3c2410d0df76ea6"),
    "waterbirds-debias-vl": (1, "f11a97f42839392cc4555f3ab80ba1add2030f5d61ea3fbf2b291aab4c2d1b37"),
}

BUMP = (
    "the shipped prompts {name!r} changed: figures made with them can no longer be compared. If the change is "
    'meant, raise "version" in {name}.json and put ({version} + 1, {digest!r}) here.'
)


def raw(name):
    return json.loads((files("fairerclip.data.prompts") / f"{name}.json").read_text(encoding="utf-8"))


def digest(name):
    # Keys are not sorted: the order of the classes is the order of the labels.
    text = json.dumps(raw(name), ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("name", sorted(DIGESTS))
def test_a_shipped_prompt_changes_only_with_its_version(name):
    version, expected = DIGESTS[name]
    assert (raw(name)["version"], digest(name)) == (version, expected), BUMP.format(
        name=name, version=version, digest=digest(name)
    )


def test_every_shipped_set_has_a_digest_and_bears_its_own_name():
    assert sorted(DIGESTS) == available_prompts()
    for name in available_prompts():
        assert load_prompts(name).name == name


@pytest.mark.parametrize("name", sorted(DIGESTS))
def test_every_shipped_set_says_where_it_comes_from(name):
    source = load_prompts(name).source
    assert source.kind in {"paper", "released", "debias_vl", "debias_clip", "ours"}
    assert source.citation
    assert source.note


@pytest.mark.parametrize("name", sorted(DIGESTS))
def test_articles_are_right_wherever_we_wrote_the_sentence(name):
    prompts = load_prompts(name)
    ours = [p for values in prompts.sensitive.values() for group in values.values() for p in group]
    if prompts.source.kind == "ours":
        ours = prompts.all_prompts()
    for prompt in ours:
        assert not re.search(r"\b[aA] [aeiouAEIOU]|\b[aA]n [^aeiouAEIOU]", prompt), prompt


def test_the_lists_of_debias_vl_are_word_for_word():
    birds = load_prompts("waterbirds-debias-vl")
    assert birds.spurious[2] == "This is a picture of a moutain."
    assert len(birds.spurious) == 8
    assert len(birds.counterfactual) == 10
    assert birds.counterfactual[2].prompt == "This is a picture of a landbird in the ocean"  # no full stop
    faces = load_prompts("celeba-blond-debias-vl")
    assert faces.spurious[0] == "A photo of a male."
    assert [one.prompt for one in faces.counterfactual][:2] == [
        "A photo of a male celebrity with dark hair.",
        "A photo of a female celebrity with dark hair.",
    ]


def test_fairface_has_ten_concepts_in_five_opposite_pairs():
    for name in ("fairface", "fairface-author", "fairface-ours"):
        prompts = load_prompts(name)
        assert len(prompts.class_names) == 10
        assert sorted(c for pair in prompts.pairs for c in pair) == sorted(prompts.class_names)
    assert load_prompts("fairface").classes["evil"] == ("This is a photo of a evil person",)
    assert load_prompts("fairface-ours").classes["evil"] == ("This is a photo of an evil person",)
    assert load_prompts("fairface-author").classes["evil"] == ("A photo of a evil celebrity.",)


def test_berg_has_29_concepts_times_11_templates():
    prompts = load_prompts("fairface-berg").class_prompts()
    assert (len(prompts), {len(one) for one in prompts}) == (29, {11})
    assert load_prompts("fairface-berg").classes["kind"][7] == "kind"


@pytest.mark.parametrize("name", ["celeba-blond", "celeba-cheekbones", "celeba-attractive", "cfd"])
def test_counterfactuals_cover_every_class_and_value_once(name):
    prompts = load_prompts(name)
    (attribute,) = prompts.sensitive
    cells = [(one.class_name, one.sensitive[attribute]) for one in prompts.counterfactual]
    wanted = {(c, v) for c in prompts.class_names for v in prompts.sensitive_names(attribute)}
    assert len(cells) == len(set(cells)) == len(wanted)
    assert set(cells) == wanted


@pytest.mark.parametrize("name", ["waterbirds", "celeba-blond"])
def test_the_default_sets_hold_the_published_sentences_of_orth_proj_and_orth_cali(name):
    ours, published = load_prompts(name), load_prompts(f"{name}-debias-vl")
    assert ours.classes == published.classes
    assert ours.spurious == published.spurious
    assert {(c.class_name, c.prompt) for c in ours.counterfactual} == {
        (c.class_name, c.prompt) for c in published.counterfactual
    }
    assert load_prompts("celeba-cheekbones").spurious == load_prompts("celeba-blond").spurious


ABOUT = {  # words of the classes, and of the sensitive values
    "waterbirds": (
        "bird",
        ("land", "trees", "leaves", "woods", "meadow", "water", "sea", "waves", "lake", "river"),
    ),
    "celeba-blond": (
        "colour|black|brown|yellow|coal|straw|dark|honey",
        ("woman", "man", "actor", "dress", "beard"),
    ),
}


@pytest.mark.parametrize("name", sorted(ABOUT))
def test_the_pairs_for_roboshot_are_about_the_attribute_or_about_the_class_alone(name):
    prompts, (of_class, of_values) = load_prompts(name), ABOUT[name]
    values = re.compile(rf"\b({'|'.join(of_values)})\b", re.IGNORECASE)
    assert len(prompts.harmful) >= 4 <= len(prompts.helpful)
    assert not any(re.search(of_class, text, re.IGNORECASE) for pair in prompts.harmful for text in pair)
    assert not any(values.search(text) for pair in prompts.helpful for text in pair)
    assert any(values.search(text) for pair in prompts.harmful for text in pair)
    assert all(re.search(of_class, "".join(pair), re.IGNORECASE) for pair in prompts.helpful)
    texts = [text for pair in (*prompts.harmful, *prompts.helpful) for text in pair]
    assert len(texts) == len(set(texts))
    assert all(text.endswith(".") for text in texts)
    assert "are ours" in prompts.source.note


def test_selecting_a_pair_keeps_its_two_classes():
    pair = load_prompts("fairface").select(["evil", "good"])
    assert pair.class_names == ("evil", "good")
    assert pair.pairs == (("good", "evil"),)
    assert load_prompts("waterbirds").select(["landbird"]).counterfactual[1].class_name == "landbird"
    with pytest.raises(PromptFileError, match="did you mean 'good'"):
        load_prompts("fairface").select(["goood"])
    with pytest.raises(PromptFileError, match="distinct"):
        load_prompts("fairface").select(["good", "good"])


def test_all_prompts_holds_each_sentence_once():
    for name in available_prompts():
        prompts = load_prompts(name).all_prompts()
        assert len(prompts) == len(set(prompts)) > 0


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(PromptFileError, match="did you mean 'waterbirds'"):
        load_prompts("waterbird")
    with pytest.raises(PromptFileError, match="there are: .*celeba-blond"):
        load_prompts("zzzzzz")
    with pytest.raises(PromptFileError, match="no set"):
        load_prompts("x" * 5000)  # longer than a file's name can be
    with pytest.raises(PromptFileError, match="expected a readable file"):
        load_prompts("a\0b.json")


def test_an_unknown_attribute_is_answered_with_those_there_are():
    with pytest.raises(PromptFileError, match="there are: background"):
        load_prompts("waterbirds").sensitive_prompts("sex")
    assert load_prompts("sex").sensitive_prompts("sex") == (
        ("A photo of a female.",),
        ("A photo of a male.",),
    )


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


def test_a_users_file_is_read_by_path(tmp_path):
    file = write(tmp_path, good())
    for path in (file, str(file)):
        assert load_prompts(path).class_prompts() == (("a cat", "a kitten"), ("a dog",))


def test_names_are_filled_into_templates(tmp_path):
    data = good() | {
        "classes": ["cat", "dog"],
        "templates": ["a photo of a {}.", "a {}"],
        "counterfactual": [],
    }
    data["sensitive"] = {"place": {"home": {"names": ["home", "flat"], "templates": ["at {}"]}}}
    prompts = load_prompts(write(tmp_path, data))
    assert prompts.class_prompts() == (("a photo of a cat.", "a cat"), ("a photo of a dog.", "a dog"))
    assert prompts.sensitive_prompts("place") == (("at home", "at flat"),)


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


def changed(**parts):
    return good() | parts


BAD = {
    "unknown key": (changed(clases={}), "expected a known key .*got 'clases'; did you mean 'classes'"),
    "an empty sentence as a class": (changed(classes={"cat": " ", "dog": "a dog"}), "expected text, got ' '"),
    "a template as a class": (changed(classes={"cat": "a {}", "dog": "a dog"}), "got the template 'a {}'"),
    "a number as a class": (changed(classes={"cat": 1, "dog": "a dog"}), "classes.cat: expected an object"),
    "an unknown key in a short file": ({"clases": {"a": "b"}}, "did you mean 'classes'"),
    "nothing": ({}, "expected classes or sensitive attributes, got neither"),
    "version of zero": (changed(version=0), "version: expected a whole number"),
    "version true": (changed(version=True), "version: expected a whole number"),
    "source without citation": (changed(source={"kind": "ours"}), "expected the keys citation"),
    "unknown source key": (changed(source={"kind": "o", "citation": "c", "url": "u"}), "got 'url'"),
    "empty class": (
        changed(classes={"cat": [], "dog": ["a dog"]}),
        "classes.cat: expected at least one prompt",
    ),
    "one class": (changed(classes={"cat": ["a cat"]}, counterfactual=[]), "at least two, got cat alone"),
    "blank prompt": (changed(classes={"cat": [" "], "dog": ["a dog"]}), r"classes.cat\[0\]: expected text"),
    "number as prompt": (changed(classes={"cat": [3], "dog": ["a dog"]}), "expected text, got 3"),
    "two lines": (changed(classes={"cat": ["a\ncat"], "dog": ["a dog"]}), "one line of printable text"),
    "lone surrogate": (changed(classes={"cat": ["\ud800"], "dog": ["a dog"]}), "printable"),
    "long prompt": (changed(classes={"cat": ["x" * 2001], "dog": ["a dog"]}), "at most 2000 characters"),
    "shared prompt": (changed(classes={"cat": ["a pet"], "dog": ["a pet"]}), "'a pet' under 'cat' and 'dog'"),
    "prompt twice": (changed(classes={"cat": ["a", "a"], "dog": ["b"]}), "got 'a' twice"),
    "classes as text": (changed(classes="cat"), "expected an object or table with names, got str"),
    "template among prompts": (changed(classes={"cat": ["a {}"], "dog": ["b"]}), "got the template 'a {}'"),
    "names without templates": (changed(classes=["cat", "dog"]), "got names alone"),
    "template without hole": (changed(templates=["a photo"]), "expected one {} in each template, got 0"),
    "template with two holes": (changed(templates=["{} {}"]), "got 2"),
    "unknown value": (
        changed(counterfactual=[{"class": "cat", "sensitive": {"place": "hom"}, "prompt": "x"}]),
        "got 'hom'; did you mean 'home'",
    ),
    "unknown class": (
        changed(counterfactual=[{"class": "cow", "sensitive": {"place": "home"}, "prompt": "x"}]),
        r"counterfactual\[0\].class: expected a known class \(cat, dog\), got 'cow'",
    ),
    "unknown attribute": (
        changed(counterfactual=[{"class": "cat", "sensitive": {"sex": "male"}, "prompt": "x"}]),
        "expected a known attribute",
    ),
    "a pair of three": (
        changed(harmful=[["a", "b", "c"]]),
        r"harmful\[0\]: expected a pair of two different",
    ),
    "a pair of the same": (changed(helpful=[["a", "a"]]), r"helpful\[0\]: expected a pair of two different"),
    "a pair with a number": (changed(helpful=[["a", 1]]), r"helpful\[0\]: expected text, got 1"),
    "counterfactual without value": (
        changed(counterfactual=[{"class": "cat", "sensitive": {}, "prompt": "x"}]),
        "at least one attribute",
    ),
    "counterfactual without prompt": (
        changed(counterfactual=[{"class": "cat", "sensitive": {"place": "home"}}]),
        "expected the keys prompt",
    ),
    "attribute without values": (changed(sensitive={"place": {}}, counterfactual=[]), "at least one value"),
    "pair with itself": (changed(pairs=[["cat", "cat"]]), "two different classes"),
    "pair of a stranger": (changed(pairs=[["cat", "cow"]]), "got 'cow'"),
    "nothing in it": (changed(classes={}, sensitive={}, counterfactual=[]), "got neither"),
    "a list": ([1], "expected an object"),
    "no JSON": ("{", "expected JSON"),
    "a key twice": ('{"version": 1, "version": 2}', "expected each key once, got 'version' twice"),
    "not a number": ('{"version": NaN}', "expected finite numbers, got NaN"),
    "deep nesting": ("[" * 100_000, "expected JSON"),
}


@pytest.mark.parametrize("case", sorted(BAD))
def test_a_bad_file_is_refused_with_the_place_and_the_reason(tmp_path, case):
    data, message = BAD[case]
    with pytest.raises(PromptFileError, match=message):
        load_prompts(write(tmp_path, data))


def test_many_names_and_templates_do_not_fill_the_memory(tmp_path):
    data = changed(
        classes={"cat": {"names": [str(i) for i in range(1000)]}, "dog": ["b"]},
        templates=[f"{i} {{}}" for i in range(1000)],
    )
    with pytest.raises(PromptFileError, match="at most 100,000 prompts .* got at least 1,000,000"):
        load_prompts(write(tmp_path, data))


def test_a_file_that_is_absent_large_or_of_another_kind_is_refused(tmp_path):
    with pytest.raises(PromptFileError, match="expected a readable file"):
        load_prompts(tmp_path / "none.json")
    with pytest.raises(PromptFileError, match="got .txt"):
        load_prompts(tmp_path / "none.txt")
    with pytest.raises(PromptFileError, match="at most 4,194,304 bytes"):
        load_prompts(write(tmp_path, " " * (4 * 1024**2 + 1)))
    (tmp_path / "pets.toml").write_text("version = ")
    with pytest.raises(PromptFileError, match="expected TOML"):
        load_prompts(tmp_path / "pets.toml")


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


def test_prompts_kept_apart_are_one_array_per_class(tmp_path):
    encoded = encode_prompts(load_prompts(write(tmp_path, good())), Encoder(), average=False)
    assert [one.shape for one in encoded.text_target] == [(2, 16), (1, 16)]
    assert [one.shape for one in encoded.sensitive["place"].text] == [(1, 16), (1, 16)]
    assert encoded.class_names == ("cat", "dog")
    assert encoded.target_prompts == (("a cat", "a kitten"), ("a dog",))


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


def test_spurious_prompts_are_embedded_and_absent_parts_are_none():
    encoded = encode_prompts(load_prompts("waterbirds-debias-vl"), Encoder(), average=True)
    assert encoded.spurious.shape == (8, 16)
    only = encode_prompts(load_prompts("race"), Encoder(), average=True)
    assert only.text_target is None
    assert only.counterfactual is None
    assert only.spurious is None
    assert only.sensitive["race"].text.shape == (7, 16)


@pytest.mark.parametrize("name", sorted(DIGESTS))
def test_every_shipped_set_can_be_encoded(name):
    encoded = encode_prompts(load_prompts(name), Encoder(), average=True)
    if encoded.text_target is not None:
        assert encoded.text_target.shape == (len(encoded.class_names), 16)


def test_an_encoder_that_returns_nonsense_is_refused():
    birds = load_prompts("waterbirds")
    m = len(birds.all_prompts())
    with pytest.raises(ShapeError, match=rf"\({m}, p\), one row for each prompt"):
        encode_prompts(birds, lambda prompts: np.ones((1, 4)), average=True)
    with pytest.raises(ShapeError, match="numbers"):
        encode_prompts(birds, lambda prompts: np.array([["a"]] * m), average=True)
    with pytest.raises(NonFiniteError, match="first 'This is a picture of a landbird.'"):
        encode_prompts(birds, lambda prompts: np.full((m, 4), np.nan), average=True)
    with pytest.raises(ZeroRowError, match="direction"):
        encode_prompts(birds, lambda prompts: np.zeros((m, 4)), average=True)


def test_opposite_prompts_have_no_average(tmp_path):
    def encode(prompts):
        row = np.float32([0.1, 0.7, 0.3])
        return np.stack([-row if p == "a kitten" else row for p in prompts])

    prompts = load_prompts(write(tmp_path, good()))
    with pytest.raises(ZeroRowError, match="'cat'.*opposite"):
        encode_prompts(prompts, encode, average=True)
    assert encode_prompts(prompts, encode, average=False).text_target[0].shape == (2, 3)


def test_templates_filled_for_every_class_are_wordings(tmp_path):
    templates = ["a photo of {}.", "{}"]
    parts = {
        "templates": templates,
        "classes": {"cat": {"names": ["a cat", "a kitten"]}, "dog": {"names": ["dog"]}},
    }
    prompts = load_prompts(write(tmp_path, changed(**parts)))
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


@pytest.mark.parametrize(
    "classes",
    [
        {"cat": ["a cat", "one cat"], "dog": ["a dog", "one dog"]},
        {"cat": ["a cat", "one cat"], "dog": {"names": ["dog"]}},
        {"cat": {"names": ["cat"]}, "dog": {"names": ["dog"], "templates": ["my {}", "your {}"]}},
        {"cat": {"names": ["cat"]}, "dog": ["the dog", "the cat too"]},
    ],
)
def test_prompts_that_are_no_common_templates_are_no_wordings(tmp_path, classes):
    prompts = load_prompts(write(tmp_path, changed(templates=["the {}", "this {}"], classes=classes)))
    assert prompts.class_prompts_by_template() == ()
    assert encode_prompts(prompts, Encoder(), average=True).variants is None


def test_one_template_alone_is_no_other_wording():
    encoded = encode_prompts(load_prompts("fairface"), Encoder(), average=True)
    assert (encoded.variants, encoded.templates) == (None, ())
    berg = load_prompts("fairface-berg")
    assert len(berg.class_prompts_by_template()) == len(berg.templates) == 11
    assert berg.class_prompts_by_template()[3][0] == berg.class_prompts()[0][3:4]


def test_templates_are_read_from_lines(tmp_path):
    file = tmp_path / "templates.txt"
    file.write_bytes("\ufeffa photo of a {}.\r\n\n  ein Bild: {}  \n".encode())
    assert read_templates(file) == ("a photo of a {}.", "ein Bild: {}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "1 to 1000 templates, got 0"),
        (b"a photo\n", "expected one {} in each template, got 0"),
        (b"{} {}\n", "got 2"),
        (b"a {}\na {}\n", "twice"),
        (b"\xff\xfe{}", "UTF-8"),
        (b"a \x00{}", "printable"),
        (b"".join(b"%d {}\n" % i for i in range(1001)), "got 1001"),
        (b"{}" + b"a" * 2000, "at most 2000 characters"),
        (b"{}\n" * 400_000, "at most 1,048,576 bytes"),
    ],
)
def test_bad_templates_are_refused(tmp_path, content, message):
    (tmp_path / "templates.txt").write_bytes(content)
    with pytest.raises(PromptFileError, match=message):
        read_templates(tmp_path / "templates.txt")


def test_templates_that_are_no_file_are_refused(tmp_path):
    for path in (tmp_path / "none.txt", tmp_path):
        with pytest.raises(PromptFileError, match="expected a re(adable|gular) file"):
            read_templates(path)


@pytest.mark.parametrize("ending", ["json", "toml"])
def test_classes_and_sentences_are_enough_for_a_file(tmp_path, ending):
    file = tmp_path / f"my birds.{ending}"
    file.write_text(
        '{"classes": {"land": "a landbird", "water": ["a waterbird"]}, "sensitive": {"place": {"x": "an x"}}}'
        if ending == "json"
        else '[classes]\nland = "a landbird"\nwater = ["a waterbird"]\n[sensitive.place]\nx = "an x"\n'
    )
    prompts = load_prompts(file)
    assert (prompts.name, prompts.version, prompts.source.kind) == ("my birds", 1, "own")
    assert prompts.classes == {"land": ("a landbird",), "water": ("a waterbird",)}
    assert prompts.sensitive == {"place": {"x": ("an x",)}}


def test_the_sets_of_the_package_say_what_they_are():
    with pytest.raises(PromptFileError, match="expected the keys version, name, source"):
        parse_prompts({"classes": {"a": "an a", "b": "a b"}}, "shipped")
