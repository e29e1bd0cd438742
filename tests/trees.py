"""Small copies of the four datasets in their official layouts, and an encoder of their pictures."""

import csv

import numpy as np
import pytest

from fairerclip.data.provenance import Provenance

RACES = ("White", "Black", "East Asian", "Southeast Asian", "Indian", "Middle Eastern", "Latino_Hispanic")
SIDE = 8


def picture(file, rng, shade=0):
    """A plain colour at random with some noise, redder by the shade: any encoder tells such pictures apart."""
    image = pytest.importorskip("PIL.Image")
    pixels = rng.integers(0, 220, size=3) + rng.integers(0, 35, size=(SIDE, SIDE, 3))
    pixels[..., 0] = np.minimum(pixels[..., 0] + 60 * shade, 255)
    file.parent.mkdir(parents=True, exist_ok=True)
    image.fromarray(pixels.astype(np.uint8)).save(file)


def birds(root, n=180):
    """Waterbirds: every class on every background in every split."""
    rng = np.random.default_rng(5)
    lines = ["img_id,img_filename,y,split,place,place_filename"]
    for i in range(n):
        picture(root / "bird" / f"{i}.png", rng, i % 2)
        lines.append(f"{i},bird/{i}.png,{i % 2},{(i // 4) % 3},{(i // 2) % 2},p.jpg")
    (root / "metadata.csv").write_text("\n".join(lines))


def celebrities(root, n=144):
    """CelebA in the MMLAB layout: each of the three targets with either sex in every split."""
    rng = np.random.default_rng(7)
    body, parts = [], []
    for i in range(n):
        name = f"{i + 1:06d}.jpg"
        picture(root / "Img" / "img_align_celeba" / name, rng, i % 2)
        values = (i % 2, (i // 2) % 2, (i // 4) % 2, (i // 8) % 2)  # attractive, blond, cheekbones, male
        body.append(f"{name} " + " ".join("1" if v else "-1" for v in values))
        parts.append(f"{name} {(i // 16) % 3}")
    (root / "Anno").mkdir()
    (root / "Eval").mkdir()
    head = [str(n), "Attractive Blond_Hair High_Cheekbones Male"]
    (root / "Anno" / "list_attr_celeba.txt").write_text("\n".join([*head, *body]))
    (root / "Eval" / "list_eval_partition.txt").write_text("\n".join(parts))


def faces(root, n=90, folder=""):
    """FairFace: as many rows in either official part."""
    rng = np.random.default_rng(6)
    for part in ("train", "val"):
        lines = ["file,age,gender,race,service_test"]
        for i in range(1, n + 1):
            picture(root / folder / part / f"{i}.jpg", rng, i % 2)
            lines.append(f"{part}/{i}.jpg,20-29,{('Male', 'Female')[i % 2]},{RACES[i % 7]},False")
        (root / f"fairface_label_{part}.csv").write_text("\n".join(lines))


def portraits(root, n=120):
    """CFD with its norming data as CSV."""
    rng = np.random.default_rng(8)
    root.mkdir(parents=True)
    with (root / "CFD 3.0 Norming Data.csv").open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["Model", "EthnicitySelf", "GenderSelf", "AgeSelf", "Attractive"])
        for i in range(n):
            race, sex = "ABLW"[i % 4], "FM"[i // 4 % 2]
            name = f"{race}{sex}-{i + 1:03d}"
            picture(root / "Images" / "CFD" / name / f"CFD-{name}-003-N.jpg", rng, i // 8 % 2)
            writer.writerow([name, race, sex, 25.5, 2.0 + 2 * (i // 8 % 2)])


class RandomEncoder:
    """An encoder of these pictures and of words, drawn at random."""

    width = 12

    def __init__(self, name):
        self.name = name
        self.provenance = Provenance(name, None, "none", "test", True, 12)
        self._map = np.random.default_rng(len(name)).normal(size=(3 * SIDE**2, 12))

    def preprocess(self, picture):
        return np.asarray(picture, dtype=np.float32).transpose(2, 0, 1) - 128

    def encode_images(self, pixels):
        Z = pixels.reshape(len(pixels), -1) @ self._map
        return (Z / np.linalg.norm(Z, axis=1, keepdims=True)).astype(np.float32)

    def encode_text(self, prompts):
        Z = np.stack([np.random.default_rng(list(p.encode())).normal(size=12) for p in prompts])
        return (Z / np.linalg.norm(Z, axis=1, keepdims=True)).astype(np.float32)
