"""Logs on standard error, as JSON lines. Bodies are never logged."""

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
        entry.update({k: v for k, v in vars(record).items() if k not in _USUAL and v})
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)


def configure_logging(level: str) -> None:
    """Configures logging for the process. Only the command line calls this."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    LOG.setLevel(level.upper())
