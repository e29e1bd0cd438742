"""Log of the service: one JSON object per line on standard error, without the content of requests."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

NAME = "fairerclip.serving"
logger = logging.getLogger(NAME)
FLUSH_SECONDS, MOST_LINES = 0.2, 200
"""Seconds and lines after which lines of requests are written."""
_requests: list[str] = []
_lock = threading.Lock()
_start, _numbers = os.urandom(10).hex(), itertools.count(1)


def new_id() -> str:
    """Return an id that no other request has: random per process, and a number."""
    return f"{_start}{next(_numbers):012x}"


class JsonLines(logging.Formatter):
    """Format a record as one line of JSON: time, level, event, the process, and the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; an exception is a field, so that a traceback is no second line."""
        fields = getattr(record, "fields", {})
        if record.exc_info:
            fields = {**fields, "traceback": self.formatException(record.exc_info)}
        return _line(record.created, record.levelname.lower(), record.getMessage(), fields)


@contextmanager
def log_to_standard_error() -> Iterator[None]:
    """Send the log of the service, warnings, and errors of uvicorn, to standard error; restore what was there."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    levels = {
        NAME: logging.INFO,
        "py.warnings": logging.WARNING,
        "uvicorn.error": logging.ERROR,
        "asyncio": logging.ERROR,
    }
    loggers = {logging.getLogger(name): level for name, level in levels.items()}
    before = [(found, found.handlers, found.propagate, found.level) for found in loggers]
    for found, level in loggers.items():
        found.handlers, found.propagate = [handler], False
        found.setLevel(level)
    shown = warnings.showwarning
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        warnings.showwarning = shown
        flush_requests()
        for found, handlers, propagate, level in before:
            found.handlers, found.propagate = handlers, propagate
            found.setLevel(level)


def log(event: str, level: int = logging.INFO, *, trace: bool = False, **fields: Any) -> None:
    """Write one line; ``trace`` adds the traceback of the exception that is being handled."""
    flush_requests()
    logger.log(level, event, extra={"fields": fields}, exc_info=trace)


def log_request(**fields: Any) -> None:
    """Log a request. Lines are written together, a moment later: each would cost as much as a part of the answer."""
    if not logger.isEnabledFor(logging.INFO):
        return
    line = _line(time.time(), "info", "request", fields)
    with _lock:
        _requests.append(line)
        count = len(_requests)
    if count == 1:
        asyncio.get_running_loop().call_later(FLUSH_SECONDS, flush_requests)
    if count >= MOST_LINES:
        flush_requests()


def flush_requests() -> None:
    """Write the lines of requests that are not written yet. Any thread may call it."""
    with _lock:
        lines, _requests[:] = _requests[:], []
    for handler in logger.handlers:
        if lines and isinstance(handler, logging.StreamHandler):
            # A log that cannot be written must not end the service; other lines are written by logging, which agrees.
            with handler.lock or nullcontext(), suppress(OSError, ValueError):
                handler.stream.write("\n".join(lines) + "\n")
                handler.flush()


def _line(seconds: float, level: str, event: str, fields: Mapping[str, Any]) -> str:
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1000):03d}Z"
    return json.dumps({"time": moment, "level": level, "event": event, "pid": os.getpid(), **fields})
