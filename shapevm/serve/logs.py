"""The server's log: a line for each request and event, for people or as JSON."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any

import orjson

LOG = logging.getLogger("shapevm.serve")


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, message, and the fields of a request."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = {"time": time, "level": record.levelname.lower(), **getattr(record, "fields", {})}
        if "path" not in fields:
            fields["message"] = record.getMessage()
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(fields, default=str).decode()


class TextLines(logging.Formatter):
    """One line of text: time, level, message, and the fields of a request as name=value."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line of a record, without its traceback."""
        fields: dict[str, Any] = getattr(record, "fields", {})
        rest = (f"{name}={value!r}" for name, value in fields.items())
        return " ".join([super().formatMessage(record), *rest])


FORMS: dict[str, type[logging.Formatter]] = {"text": TextLines, "json": JsonLines}


def set_up(form: str) -> None:
    """Write the log to standard error in this form: this server's lines, uvicorn's and shapevm's."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FORMS[form]())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
