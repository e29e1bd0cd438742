"""Log of the service: one JSON object per line on standard error, without the content of requests."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from typing import Any

NAME = "fairerclip.serving"
logger = logging.getLogger(NAME)


class JsonLines(logging.Formatter):
    """Format a record as one line of JSON: time, level, event, the process, and the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; an exception is a field, so that a traceback is no second line."""
        fields: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "pid": os.getpid(),
        }
        fields.update(getattr(record, "fields", {}))
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def set_up_log() -> None:
    """Send the log of the service, and warnings of uvicorn, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logger.setLevel(logging.INFO)
    for name, level in ((NAME, logging.INFO), ("uvicorn.error", logging.ERROR), ("asyncio", logging.ERROR)):
        found = logging.getLogger(name)
        found.handlers, found.propagate = [handler], False
        found.setLevel(level)


def log(event: str, level: int = logging.INFO, *, trace: bool = False, **fields: Any) -> None:
    """Write one line; ``trace`` adds the traceback of the exception that is being handled."""
    if logger.isEnabledFor(level):
        logger.log(level, event, extra={"fields": fields}, exc_info=trace)
