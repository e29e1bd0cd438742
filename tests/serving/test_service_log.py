"""The log of the service is lines of JSON, each written once, whoever writes."""

import asyncio
import json
import threading
import warnings

from fairerclip.serving import service_log


def test_warnings_are_lines_of_json_and_come_back_to_whoever_showed_them(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        shown = warnings.showwarning
        with service_log.log_to_standard_error():
            warnings.warn("of two\nlines", UserWarning, stacklevel=1)
        assert warnings.showwarning is shown
    (line,) = capsys.readouterr().err.splitlines()
    entry = json.loads(line)
    assert entry["level"] == "warning"
    assert "UserWarning: of two\nlines" in entry["event"]


def test_no_line_is_lost_or_doubled_if_several_threads_write(capsys):
    ended = threading.Event()

    def others():
        while not ended.is_set():
            service_log.flush_requests()

    async def requests():
        for number in range(5000):
            service_log.log_request(number=number)

    with service_log.log_to_standard_error():
        thread = threading.Thread(target=others)
        thread.start()
        asyncio.run(requests())
        ended.set()
        thread.join()
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert sorted(line["number"] for line in lines) == list(range(5000))
