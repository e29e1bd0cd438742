"""Standard output and standard error that cannot take what is written: the work is done all the same."""

import csv
import errno
import io
import os
import subprocess
import sys

import pytest

from fairerclip.cli import show
from fairerclip.cli.streams import NOT_WRITTEN, READER_GONE, Stream


def ascii_stream():
    return io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)


def broken_pipe():
    read, write = os.pipe()
    os.close(read)
    return open(write, "w", encoding="utf-8")


PATH = ("--taus", "0.2,0.7", "--set", "n_features=30", "-o")


def rows(file):
    with file.open(newline="") as handle:
        return len(list(csv.DictReader(handle)))


def test_a_terminal_without_our_signs_gets_others(run, task, tmp_path, monkeypatch):
    out = ascii_stream()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(show.out, "width", show.PLAIN_WIDTH)
    assert run("path", task, *PATH, tmp_path / "p.csv")[0] == 0
    text = out.buffer.getvalue().decode("ascii")
    assert "tau" in text
    assert "\\u" not in text


def full_disk():
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    return open("/dev/full", "w", encoding="utf-8")


@pytest.mark.parametrize("as_json", [(), ("--json",)])
@pytest.mark.parametrize(
    ("stdout", "expected", "told"),
    [
        (lambda: None, 0, ""),
        (broken_pipe, READER_GONE, ""),
        (
            full_disk,
            NOT_WRITTEN,
            "fairerclip: standard output could not be written: No space left on device; the work is done\n",
        ),
    ],
    ids=["closed", "broken pipe", "full disk"],
)
def test_files_are_written_whole_whatever_becomes_of_the_output(
    run, task, tmp_path, monkeypatch, stdout, expected, told, as_json
):
    stream = stdout()
    monkeypatch.setattr(sys, "stdout", stream)
    code, _, err = run("path", task, *PATH, tmp_path / "p.csv", *as_json)
    assert (code, err) == (expected, told)
    assert rows(tmp_path / "p.csv") == 4
    assert sys.stdout is stream  # as it was
    if stream is not None:
        stream.close()  # what waits in it must not fail now


@pytest.mark.parametrize("stream", [broken_pipe, full_disk])
def test_an_error_keeps_its_exit_code_where_nobody_reads_it(run, monkeypatch, stream):
    out, err = stream(), stream()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    assert run("fit", "gone.npz", "-o", "m", "--json")[0] == 2
    out.close()
    err.close()


def test_no_more_is_written_after_an_error():
    class Failing(io.StringIO):
        encoding = "utf-8"
        calls = 0

        def write(self, text):
            self.calls += 1
            raise OSError(errno.ENOSPC, "full")

    failing = Failing()
    stream = Stream(failing)
    assert [stream.write("a"), stream.write("bc")] == [1, 2]
    stream.flush()
    assert failing.calls == 1
    assert stream.problem.errno == errno.ENOSPC


SHELL = '"$0" -c "from fairerclip.cli.main import main; main()" --version '


@pytest.mark.linux
@pytest.mark.parametrize(
    ("how", "code", "lines"),
    [("<&- >&- 2>&-", 0, 0), (">/dev/full", NOT_WRITTEN, 1), ("> >(exit)", READER_GONE, 0)],
    ids=["all closed", "full disk", "broken pipe"],
)
def test_a_process_ends_in_order_without_its_output(how, code, lines):
    if "full" in how:
        full_disk().close()
    wait = "sleep 0.2; exec " if "exit" in how else "exec "  # until the reader is gone
    ended = subprocess.run(
        ["bash", "-c", f"{{ {wait}{SHELL}; }} {how}", sys.executable],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == code, ended.stderr
    assert len(ended.stderr.splitlines()) == lines, ended.stderr
    assert "Traceback" not in ended.stderr
