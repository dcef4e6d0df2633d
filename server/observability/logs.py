"""Logs on standard error: JSON lines for machines, or text for people. Bodies are never logged."""

import datetime
import json
import logging
import sys
from typing import Any

LOG = logging.getLogger("server")

# The attributes of every record. The others come from the argument `extra` of a log call.
_USUAL = {*vars(logging.makeLogRecord({})), "message", "asctime", "color_message"}


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line of a record."""
        entry: dict[str, Any] = {
            "time": datetime.datetime.fromtimestamp(
                record.created, datetime.timezone.utc
            ).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry.update(_extra(record))
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)


class TextFormatter(logging.Formatter):
    """Formats a record as time, level, message, and further fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line of a record."""
        text = super().format(record)
        return " ".join([text, *(f"{key}={value}" for key, value in _extra(record).items())])


def configure_logging(level: str, style: str) -> None:
    """Configures logging for the process. Only the command line calls this.

    `style` is `json` or `text`.
    """
    handler = logging.StreamHandler(sys.stderr)
    if style == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(TextFormatter("%(asctime)s %(levelname)s %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    LOG.setLevel(level.upper())


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _USUAL and value}
