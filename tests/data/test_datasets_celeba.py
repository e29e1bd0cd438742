"""CelebA is read from either layout, with any attribute as target or sensitive."""

import pytest

from fairerclip.data.datasets.celeba import PRESETS, read
from fairerclip.data.prompts import load_prompts
from fairerclip.data.simulate import CELEBA_ROWS
from fairerclip.errors import DatasetError, LabelError

ATTRIBUTES = ["5_o_Clock_Shadow", "Attractive", "Blond_Hair", "High_Cheekbones", "Male", "Young"]
ROWS = [  # shadow, attractive, blond, cheekbones, male, young; split
    ((-1, 1, 1, 1, -1, 1), 0),
    ((1, -1, -1, -1, 1, 1), 0),
    ((-1, 1, 1, -1, 1, -1), 1),
    ((-1, -1, -1, 1, -1, 1), 2),
    ((-1, -1, -1, -1, -1, -1), 2),
]


def image(i):
    return f"{i + 1:06d}.jpg"


def mmlab(root, rows=ROWS, attributes=ATTRIBUTES, count=None):
    for name in ("Anno", "Eval", "Img/img_align_celeba"):
        (root / name).mkdir(parents=True, exist_ok=True)
    body = [f"{image(i)} " + " ".join(f"{v:>2}" for v in values) for i, (values, _) in enumerate(rows)]
    top = [str(len(rows) if count is None else count), " ".join(attributes) + " "]
    (root / "Anno" / "list_attr_celeba.txt").write_text("\r\n".join([*top, *body]) + "\r\n")
    parts = [f"{image(i)} {split}" for i, (_, split) in enumerate(rows)]
    (root / "Eval" / "list_eval_partition.txt").write_text("\n".join(parts) + "\n")
    for i in range(min(len(rows), 10)):
        (root / "Img" / "img_align_celeba" / image(i)).write_bytes(b"")
    return root


def kaggle(root, rows=ROWS, nested=True):
    images = root / "img_align_celeba" / "img_align_celeba" if nested else root / "img_align_celeba"
    images.mkdir(parents=True)
    body = [",".join([image(i), *map(str, values)]) for i, (values, _) in enumerate(rows)]
    (root / "list_attr_celeba.csv").write_text("\n".join([",".join(["image_id", *ATTRIBUTES]), *body]) + "\n")
    parts = [f"{image(i)},{split}" for i, (_, split) in reversed(list(enumerate(rows)))]  # another order
    (root / "list_eval_partition.csv").write_text("\n".join(["image_id,partition", *parts]) + "\n")
    for i in range(len(rows)):
        (images / image(i)).write_bytes(b"")
    return root


def column(name):
    return [int(values[ATTRIBUTES.index(name)] == 1) for values, _ in ROWS]


@pytest.mark.parametrize("layout", [mmlab, kaggle, lambda root: kaggle(root, nested=False)])
def test_both_layouts_give_the_same_index(tmp_path, layout):
    index = read(layout(tmp_path), check_images=True)
    assert index.ids.tolist() == [image(i) for i in range(5)]
    assert index.y.tolist() == column("Blond_Hair")
    assert index.sensitive["sex"][0].tolist() == column("Male")
    assert index.sensitive["sex"][1] == ("female", "male")
    assert index.split.tolist() == ["train", "train", "val", "test", "test"]
    assert index.class_names == ("dark hair", "blond hair")
    assert index.paths()[0].is_file()


def test_the_folder_may_lie_one_deeper(tmp_path):
    (tmp_path / "celeba").mkdir()
    assert read(mmlab(tmp_path / "celeba").parent).root.name == "img_align_celeba"


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_presets_agree_with_their_prompts(tmp_path, preset):
    index = read(mmlab(tmp_path), target=preset)
    assert index.y.tolist() == column(PRESETS[preset].attribute)
    assert load_prompts(index.prompts).class_names == index.class_names
    assert load_prompts(index.prompts).sensitive_names("sex") == index.sensitive["sex"][1]
    assert index.name == f"celeba-{preset}"
    assert index.prompts == f"celeba-{preset}"


def test_high_cheekbones_are_class_one_as_in_the_prompts(tmp_path):
    index = read(mmlab(tmp_path), target="cheekbones")
    assert index.class_names[1] == "high cheekbones"
    assert index.y.tolist() == [1, 0, 0, 1, 0]  # the released code has 1 where the attribute is -1


@pytest.mark.parametrize("spelling", ["High_Cheekbones", "high cheekbones", "HIGH-CHEEKBONES"])
def test_case_and_spaces_of_an_attribute_do_not_matter(tmp_path, spelling):
    index = read(mmlab(tmp_path), target=spelling, sensitive=["sex", "young"])
    assert index.class_names == ("low cheekbones", "high cheekbones")
    assert list(index.sensitive) == ["sex", "young"]
    assert index.sensitive["young"][1] == ("not young", "young")


def test_any_attribute_can_be_the_target(tmp_path):
    index = read(mmlab(tmp_path), target="5 o clock shadow", sensitive="Young")
    assert index.class_names == ("not 5 o clock shadow", "5 o clock shadow")
    assert index.prompts is None
    assert index.name == "celeba-5_o_clock_shadow"
    assert index.y.tolist() == column("5_o_Clock_Shadow")


def test_an_unknown_attribute_is_answered_with_the_nearest(tmp_path):
    root = mmlab(tmp_path)
    with pytest.raises(LabelError, match="no attribute 'Blonde_Hair'; did you mean Blond_Hair"):
        read(root, target="Blonde_Hair")
    with pytest.raises(LabelError, match="there are: 5_o_Clock_Shadow"):
        read(root, sensitive="qqqq")
    with pytest.raises(LabelError, match="other sensitive attributes, got Male, Male"):
        read(root, target="Male")


def published():
    rows = []
    for split, name in enumerate(("train", "val", "test")):
        for cell, n in enumerate(CELEBA_ROWS[name]):
            blond, male = (1 if cell >= 2 else -1), (1 if cell % 2 else -1)
            rows += [((-1, 1, blond, -1, male, 1), split)] * n
    return rows


def test_the_published_counts_leave_no_note(tmp_path):
    root = mmlab(tmp_path, rows=published())
    index = read(root)
    assert index.notes == ()
    assert index.counts() == {"train": 162770, "val": 19867, "test": 19962}


def test_other_counts_are_noted(tmp_path):
    notes = read(mmlab(tmp_path)).notes
    assert notes[0].startswith("train has 0 / 1 / 1 / 0 rows in the groups dark hair × female")
    assert len(notes) == 3
    assert read(tmp_path, target="attractive").notes[0] == "train has 2 rows; 162770 were published."


def edit(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


BAD = {
    "wrong value": (
        "Anno/list_attr_celeba.txt",
        "000001.jpg -1  1  1",
        "000001.jpg -1  1  0",
        "one of -1, 1, got '0'",
    ),
    "image twice": (
        "Anno/list_attr_celeba.txt",
        "000002.jpg",
        "000001.jpg",
        "row 1: expected each image once",
    ),
    "path out": ("Anno/list_attr_celeba.txt", "000002.jpg", "../../a.jpg", "inside the data set"),
    "short row": (
        "Anno/list_attr_celeba.txt",
        "000002.jpg  1 ",
        "000002.jpg ",
        "row 1: expected 7 fields, got 6",
    ),
    "no count": ("Anno/list_attr_celeba.txt", "5\n", "x\n", "expected the number of images"),
    "cut off": ("Anno/list_attr_celeba.txt", "5\n", "6\n", "the 6 images that line 1 declares, got 5"),
    "wrong split": (
        "Eval/list_eval_partition.txt",
        "000003.jpg 1",
        "000003.jpg 7",
        "one of 0, 1, 2, got '7'",
    ),
    "split without value": (
        "Eval/list_eval_partition.txt",
        "000003.jpg 1",
        "000003.jpg",
        "expected an image and",
    ),
    "other image": ("Eval/list_eval_partition.txt", "000003.jpg", "000009.jpg", "1 are missing: 000003.jpg"),
    "split twice": ("Eval/list_eval_partition.txt", "000003.jpg", "000001.jpg", "each image once"),
}


@pytest.mark.parametrize("case", sorted(BAD))
def test_a_bad_list_is_refused_with_row_and_reason(tmp_path, case):
    file, old, new, message = BAD[case]
    edit(mmlab(tmp_path) / file, old, new)
    with pytest.raises(DatasetError, match=message):
        read(tmp_path)


def test_a_bad_csv_is_refused(tmp_path):
    root = kaggle(tmp_path)
    edit(root / "list_eval_partition.csv", "partition", "part")
    with pytest.raises(DatasetError, match="expected the columns partition, got image_id, part"):
        read(root)
    edit(root / "list_attr_celeba.csv", "image_id", "file")
    with pytest.raises(DatasetError, match="expected the columns image_id"):
        read(root)


def test_missing_images_are_counted_only_when_asked(tmp_path):
    root = mmlab(tmp_path)
    for i in (1, 3):
        (root / "Img" / "img_align_celeba" / image(i)).unlink()
    assert len(read(root)) == 5
    with pytest.raises(DatasetError, match="2 of 5 images are not under .*: 000002.jpg, 000004.jpg"):
        read(root, check_images=True)


@pytest.mark.parametrize("name", ["Anno/list_attr_celeba.txt", "Eval/list_eval_partition.txt"])
def test_an_absent_list_says_where_to_get_the_data_set(tmp_path, name):
    (mmlab(tmp_path) / name).unlink()
    with pytest.raises(
        DatasetError, match=r"there is no list_\w+.txt or .*Get it from the CelebA project page"
    ):
        read(tmp_path)
