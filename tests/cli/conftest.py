"""Tasks for commands, and what every refusal has."""

import json

import pytest

from fairerclip.data import save_task, simulate
from light import lighter_audits

light_audits = pytest.fixture(scope="module", autouse=True)(lighter_audits)


@pytest.fixture(scope="session")
def birds():
    return simulate("waterbirds", seed=1, scale=0.1, width=48)


@pytest.fixture(scope="session")
def task(birds, tmp_path_factory):
    return save_task(birds, tmp_path_factory.mktemp("task") / "t.npz")


@pytest.fixture(scope="session")
def gallery(tmp_path_factory):
    faces = simulate("gallery", seed=2, scale=0.15, width=48)
    return save_task(faces, tmp_path_factory.mktemp("task") / "g.npz")


@pytest.fixture
def document(run):
    """Run a command with --json, which succeeds: its document."""

    def call(*arguments):
        code, out, err = run(*arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    return call


@pytest.fixture
def refused(run):
    """Run a command, which ends with exit code 2 and one line that has these words."""

    def call(arguments, *words):
        code, out, err = run(*arguments)
        assert (code, out, err.count("\n")) == (2, "", 1), (out, err)
        assert err.startswith("fairerclip: ")
        for word in words:
            assert word in err

    return call
