"""What may not be read is an error of ours, as is a folder that may not be looked into."""

import json
import os
import shutil
import tempfile
import warnings
from pathlib import Path

import pytest
from readers import READERS

NOBODY = 65534


def answer(reader, folder, shut):
    """What reading gives to somebody who is not the owner, with a file or folder shut."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o777)
    (folder / shut).chmod(0o000)
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        if os.getuid() == 0:
            os.setuid(NOBODY)
        from fairerclip.errors import FairerClipError

        try:
            reader.read(folder)
            told = ["taken", ""]
        except FairerClipError as error:
            told = ["refused", str(error)]
        except BaseException as error:  # noqa: BLE001 - what escapes is what is looked for
            told = [type(error).__name__, str(error)]
        os.write(theirs, json.dumps(told).encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as handle:
        told = json.loads(handle.read())
    os.waitpid(child, 0)
    (folder / shut).chmod(0o777)
    return told


@pytest.fixture
def folder():
    # Not tmp_path, whose parents are closed to others.
    path = Path(tempfile.mkdtemp())
    yield path
    shutil.rmtree(path)


@pytest.mark.linux
@pytest.mark.parametrize("name", sorted(READERS))
def test_what_may_not_be_read_is_one_line(name, folder):
    reader = READERS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reader.make(folder)
        reader.read(folder)  # what is imported where it is used
        answers = {
            what: answer(reader, folder, what) for what in (Path(reader.file), Path(reader.file).parent)
        }
    for what, (kind, message) in answers.items():
        if name == "image-tar" and what == Path(reader.file):  # what is wrong in a tar is told item by item
            assert kind == "taken"
            continue
        assert kind == "refused", message
        assert "\n" not in message.split(" Expected:")[0]
