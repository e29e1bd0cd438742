"""The rule that loading never runs code: Python itself reports what is run, fetched or unpickled."""

import pickle
from contextlib import suppress

import numpy as np
import pytest
from readers import READERS

from fairerclip.errors import FairerClipError
from watched_python import MARK, PAYLOAD, Evil, Watch

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def watch():
    return Watch()


@pytest.mark.parametrize("name", READERS)
def test_no_file_makes_python_run_anything(watch, tmp_path, name):
    reader = READERS[name]
    pytest.importorskip(reader.needs or "numpy")
    reader.make(tmp_path)
    reader.read(tmp_path)  # what is imported where it is used
    (tmp_path / "evil.py").write_text(PAYLOAD)
    with watch.on(tmp_path):
        reader.read(tmp_path)
    file = tmp_path / reader.file
    for write in (
        lambda out: pickle.dump(Evil(), out),
        lambda out: np.save(out, np.array([Evil()]), allow_pickle=True),
        lambda out: np.savez(out, x=np.array([Evil()]), image_train=np.array([Evil()])),
        lambda out: out.write(f"__import__('os').system('{MARK}')".encode()),
    ):
        with file.open("wb") as out:
            write(out)
        with watch.on(tmp_path), suppress(FairerClipError):
            reader.read(tmp_path)


def test_the_watch_sees_code_run(watch, tmp_path):
    for run in (
        lambda: pickle.loads(pickle.dumps(Evil())),  # noqa: S301
        lambda: exec(compile("1", str(tmp_path / "x.py"), "exec")),  # noqa: S102
    ):
        with pytest.raises(RuntimeError), watch.on(tmp_path):
            run()
