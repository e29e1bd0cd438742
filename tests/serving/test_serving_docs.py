"""docs/how-to/serving.md does what it says."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from fairerclip._util.checks import as_bytes
from fairerclip.serving.problems import STATUSES
from fairerclip.serving.service_settings import ServiceLimits

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "serving.md").read_text(encoding="utf-8")


def test_the_requests_of_the_page_are_answered(service, classifier, rows, tmp_path):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    np.save(tmp_path / "rows.npy", rows.X[:8].astype(np.float32))
    (tmp_path / "rows.json").write_text(json.dumps({"embeddings": rows.X[:8].tolist()}))
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    lines = block.splitlines()
    assert all(line.startswith("curl ") for line in lines)
    answers = []
    for line in lines:
        with_socket = line.replace("curl ", f"curl -sS --fail --unix-socket {service.path} ", 1)
        done = subprocess.run(
            ["bash", "-c", with_socket], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), line
        answers.append(json.loads(done.stdout) if done.stdout else None)
    labels = classifier.predict(rows.X[:8]).tolist()
    assert answers[0]["kind"] == "FairerCLIP"
    assert answers[1]["labels"] == answers[2]["labels"] == labels
    assert answers[3]["order"] == classifier.rank("dog", rows.X[:8], 5).indices.tolist()
    np.testing.assert_allclose(
        np.load(tmp_path / "scores.npy"), classifier.scores(rows.X[:8]), rtol=0, atol=1e-5
    )
    assert answers[5] == {"status": "ready"}


def test_the_python_of_the_page_sends_what_the_service_reads(service, classifier, rows, monkeypatch):
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names = {}
    exec(block, names)  # noqa: S102 - our own documentation

    def over_the_socket(request, timeout):
        import io

        headers = {name.lower().replace("-", "_"): value for name, value in request.header_items()}
        return io.BytesIO(service.ask("POST", request.selector, request.data, **headers).body)

    names["urlopen"] = over_the_socket
    assert names["classify"]("http://127.0.0.1:8000", rows.X[:5]) == classifier.predict(rows.X[:5]).tolist()


def test_the_page_has_every_code_with_its_status():
    table = PAGE.partition("## Errors")[2].partition("## Limits")[0]
    found = {
        code: int(status)
        for status, cell in re.findall(r"^\| (\d{3}) \| ([^|]*) \|", table, re.MULTILINE)
        for code in re.findall(r"`(\w+)`", cell)
    }
    assert found == STATUSES


def test_the_page_and_the_command_have_the_default_limits(run):
    limits, (_, out, _) = ServiceLimits(), run("serve", "--help")
    table = PAGE.partition("## Limits")[2].partition("## Run it")[0]
    cells = dict(re.findall(r"^\| (`[^|]*`) \| ([^|]*) \|", table, re.MULTILINE))
    names = ", ".join(cells).replace("`", "").split(", ")
    assert all(name in out for name in names)
    told = dict(zip(names, ", ".join(cells.values()).split(", "), strict=True))
    assert told["--max-rows"] == str(limits.rows)
    assert told["--max-images"] == str(limits.images)
    assert float(told["--timeout"]) == limits.seconds
    assert float(told["--body-timeout"]) == limits.body_seconds == limits.head_seconds
    assert int(told["--max-connections"]) == limits.connections
    assert int(told["--queue"]) == limits.queue
    assert int(told["--batch-rows"]) == limits.batch_rows
    assert float(told["--batch-wait"]) == limits.batch_seconds
    assert float(told["--grace"]) == limits.grace_seconds
    assert as_bytes(told["--max-body"], least=1) == limits.body_bytes
    assert as_bytes(told["--max-held"], least=1) == limits.held_bytes


def test_the_container_serves_with_options_that_there_are(run):
    text = (ROOT / "Containerfile").read_text()
    (words,) = re.findall(r"^ENTRYPOINT (\[.*\])$", text, re.MULTILINE)
    program, command, _, *rest = json.loads(words)
    assert (program, command) == ("fairerclip", "serve")
    help_text = run("serve", "--help")[1]
    assert all(word in help_text for word in rest if word.startswith("--"))
    for line in re.findall(r"^COPY (.*) /source", text, re.MULTILINE):
        assert all((ROOT / name).exists() for name in line.split())
