"""A damaged file ends with a value or a ``FairerClipError``, whatever reads it."""

from __future__ import annotations

import warnings
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from readers import READERS

from damage import damaged
from fairerclip.errors import FairerClipError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=READERS)
def made(request, tmp_path_factory):
    """A reader, a folder with a good input of its own, and the files of it."""
    reader = READERS[request.param]
    pytest.importorskip(reader.needs or "numpy")
    folder = tmp_path_factory.mktemp("good")
    reader.make(folder)
    reader.read(folder)
    return reader, folder, {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_a_damaged_file_is_a_value_or_an_error_of_ours(made, data):
    reader, folder, good = made
    for file, content in good.items():  # a forger writes several
        file.write_bytes(content)
    (folder / reader.file).write_bytes(data.draw(damaged(good[folder / reader.file])))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with suppress(FairerClipError):
            reader.read(folder)
