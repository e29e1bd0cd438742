"""CelebA is read from either layout, with any attribute as target or sensitive."""

import pytest

from fairerclip.data.datasets.celeba import PRESETS, read
from fairerclip.data.prompts import load_prompts
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


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_presets_agree_with_their_prompts(tmp_path, preset):
    index = read(mmlab(tmp_path), target=preset)
    assert index.y.tolist() == column(PRESETS[preset].attribute)
    assert load_prompts(index.prompts).class_names == index.class_names
    assert load_prompts(index.prompts).sensitive_names("sex") == index.sensitive["sex"][1]
    assert index.name == f"celeba-{preset}"
    assert index.prompts == f"celeba-{preset}"


def test_any_attribute_can_be_the_target(tmp_path):
    index = read(mmlab(tmp_path), target="5 o clock shadow", sensitive="Young")
    assert index.class_names == ("not 5 o clock shadow", "5 o clock shadow")
    assert index.prompts is None
    assert index.name == "celeba-5_o_clock_shadow"
    assert index.y.tolist() == column("5_o_Clock_Shadow")
    for target, sensitive in (("Blonde_Hair", "sex"), ("Male", "Male")):
        with pytest.raises(LabelError, match=target.split("_")[0]):
            read(tmp_path, target=target, sensitive=sensitive)


def test_counts_other_than_the_published_ones_are_noted(tmp_path):
    notes = read(mmlab(tmp_path)).notes
    assert notes[0].startswith("train has 0 / 1 / 1 / 0 rows")
    assert len(notes) == 3
    assert "162770" in read(tmp_path, target="attractive").notes[0]


def edit(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


ATTRIBUTE_LIST, PARTITION = "Anno/list_attr_celeba.txt", "Eval/list_eval_partition.txt"


@pytest.mark.parametrize(
    ("file", "old", "new", "fact"),
    [
        (ATTRIBUTE_LIST, "000001.jpg -1  1  1", "000001.jpg -1  1  0", "'0'"),
        (ATTRIBUTE_LIST, "000002.jpg", "000001.jpg", "row 1"),
        (ATTRIBUTE_LIST, "000002.jpg", "../../a.jpg", "inside"),
        (ATTRIBUTE_LIST, "000002.jpg  1 ", "000002.jpg ", "row 1"),
        (ATTRIBUTE_LIST, "5\n", "6\n", "got 5"),
        (PARTITION, "000003.jpg 1", "000003.jpg 7", "'7'"),
        (PARTITION, "000003.jpg 1", "000003.jpg", "an image and"),
        (PARTITION, "000003.jpg", "000009.jpg", "000003.jpg"),
    ],
)
def test_a_bad_list_is_refused(tmp_path, file, old, new, fact):
    edit(mmlab(tmp_path) / file, old, new)
    with pytest.raises(DatasetError, match=fact):
        read(tmp_path)


def test_missing_images_and_lists_are_named(tmp_path):
    root = mmlab(tmp_path)
    (root / "Img" / "img_align_celeba" / image(1)).unlink()
    assert len(read(root)) == 5
    with pytest.raises(DatasetError, match=r"000002.jpg"):
        read(root, check_images=True)
    (root / PARTITION).unlink()
    with pytest.raises(DatasetError, match="list_"):
        read(root)
