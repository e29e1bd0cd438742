"""Without an optional library, what needs it ends with one line that names the extra; holds where none is installed."""

import json
import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from fairerclip._util import extras
from fairerclip.baselines.adapter import Adapter
from fairerclip.baselines.zero_shot import ZeroShot
from fairerclip.data import cluster_rows
from fairerclip.data.datasets.norming import read_norming
from fairerclip.data.stores import open_store
from fairerclip.encoders import load
from fairerclip.encoders.decode import open_image
from fairerclip.errors import MissingExtraError
from fairerclip.metrics import group_report
from fairerclip.report.figures.draw import draw_figures
from fairerclip.serving.service_settings import ServiceSettings
from fairerclip.serving.supervisor import serve

ROOT = Path(__file__).resolve().parents[2]
SETS = {"all", "dev", "docs", "encoders", "test"}
NEEDS = {
    "parquet": ("pyarrow", lambda e, folder: open_store(folder / "rows.parquet")),
    "fsspec": ("fsspec", lambda e, folder: open_store("memory://bucket/rows.npy")),
    "images": ("PIL", lambda e, folder: open_image(b"GIF89a")),
    "excel": ("openpyxl", lambda e, folder: read_norming(folder / "norms.xlsx")),
    "plots": ("matplotlib", lambda e, folder: draw_figures(None, folder / "figures")),
    "torch": ("torch", lambda e, folder: Adapter(epochs=1).fit(e.X, e.y, text=e.text)),
    "open-clip": ("open_clip", lambda e, folder: load("ViT-B/32")),
    "transformers": ("transformers", lambda e, folder: load(f"transformers:{folder}")),
    "fairlearn": ("fairlearn", lambda e, folder: group_report(e.y, e.y, e.s).to_metric_frame()),
    "dask": ("distributed", lambda e, folder: cluster_rows.dask()),
    "hub": ("huggingface_hub", lambda e, folder: ZeroShot().fit(e.X, text=e.text).push_to_hub("me/model")),
    "onnx": ("onnxruntime", lambda e, folder: load(f"onnx:{folder}")),
    "serve": ("fastapi", lambda e, folder: serve(ServiceSettings(folder), print)),
}


@pytest.mark.parametrize("extra", NEEDS)
def test_without_its_library_the_extra_is_named_in_one_line(extra, embeddings, tmp_path, monkeypatch):
    library, use = NEEDS[extra]
    for module in [library, *(name for name in sys.modules if name.startswith(f"{library}."))]:
        monkeypatch.setitem(sys.modules, module, None)
    for name in ("rows.parquet", "norms.xlsx"):
        (tmp_path / name).write_bytes(b"PAR1" * 8)
    with pytest.raises(MissingExtraError) as caught:
        use(embeddings(), tmp_path)
    assert f"needs {library}, which is not installed" in str(caught.value)
    assert f"[{extra}]" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_extra_for_users_is_among_them():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(project["optional-dependencies"]) - SETS == set(NEEDS)


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, 'pip install "fairerclip[onnx]"'),
        ({"url": "file:///a%20b/c", "dir_info": {}}, 'pip install "/a b/c[onnx]"'),
        ({"url": "file:///c", "dir_info": {"editable": True}}, 'pip install --editable "/c[onnx]"'),
        ({"url": "file:///c/x.whl", "archive_info": {}}, 'pip install "fairerclip[onnx] @ file:///c/x.whl"'),
        (
            {"url": "https://host/x", "vcs_info": {"vcs": "git"}},
            'pip install "fairerclip[onnx] @ git+https://host/x"',
        ),
    ],
    ids=["index", "folder", "editable", "file", "git"],
)
@pytest.mark.linux
def test_the_command_that_adds_an_extra_is_of_the_place_that_the_package_came_from(
    origin, command, monkeypatch
):
    class Installed:
        def read_text(self, name):
            return origin and json.dumps(origin)

    monkeypatch.setattr(extras, "distribution", lambda name: Installed())
    assert extras.install_command("onnx") == command


def test_no_extra_but_those_of_encoders_needs_torch():
    optional = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    def needed(extra):
        for line in optional[extra]:
            if inner := re.fullmatch(r"fairerclip\[(.*)\]", line):
                for name in inner[1].split(","):
                    yield from needed(name)
            else:
                yield re.match(r"[\w-]+", line)[0]

    assert not {"torch", "open_clip_torch", "transformers"} & set(needed("all"))
    assert set(needed("all")) | set(needed("encoders")) <= set(needed("dev"))


def test_a_fit_needs_no_extra(embeddings, monkeypatch):
    from fairerclip import FairerCLIP

    for library, _ in NEEDS.values():
        monkeypatch.setitem(sys.modules, library, None)
    e = embeddings()
    model = FairerCLIP(n_features=40, random_state=0).fit(
        e.X, e.y, text=e.text, sensitive_text=e.sensitive_text
    )
    assert np.mean(model.predict(e.X) == e.y) > 0.8
