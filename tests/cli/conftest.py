"""A task file for commands."""

import pytest

from fairerclip.data import save_task, simulate
from light import lighter_audits

light_audits = pytest.fixture(scope="module", autouse=True)(lighter_audits)


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    return save_task(
        simulate("waterbirds", seed=1, scale=0.1, width=48), tmp_path_factory.mktemp("task") / "t.npz"
    )
