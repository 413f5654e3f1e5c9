"""What the exporter logs, and how: the levels and formats of Prometheus' own exporters (promslog)."""

from __future__ import annotations

import json
import logging
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class LogLevel(StrEnum):
    """Below which level nothing is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARN = "warn"
    ERROR = "error"


class LogFormat(StrEnum):
    """How a line is written: for people, or for a collector of logs."""

    TEXT = "text"
    LOGFMT = "logfmt"
    JSON = "json"


_NAMES: Final = {"WARNING": "WARN"}


class _Fields(logging.Formatter):
    """Lines of fields; a subclass writes them."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record as one line, a traceback included."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields = {
            "time": f"{moment}.{int(record.msecs):03}Z",
            "level": _NAMES.get(record.levelname, record.levelname),
            "msg": record.getMessage(),
        }
        if record.exc_info:
            fields["err"] = self.formatException(record.exc_info)
        return self.written(fields)

    def written(self, fields: Mapping[str, str]) -> str:
        """Write the fields of a line."""
        raise NotImplementedError


class _Logfmt(_Fields):
    def written(self, fields: Mapping[str, str]) -> str:
        return " ".join(f"{key}={_quoted(value)}" for key, value in fields.items())


class _Json(_Fields):
    def written(self, fields: Mapping[str, str]) -> str:
        return json.dumps(fields, ensure_ascii=False)


def _quoted(value: str) -> str:
    is_plain = value.isprintable() and not set(' "=') & set(value) and value
    return value if is_plain else json.dumps(value, ensure_ascii=False)


def configure(level: LogLevel, how: LogFormat) -> None:
    """Log to stderr."""
    formatters = {LogFormat.LOGFMT: _Logfmt(), LogFormat.JSON: _Json()}
    handler = logging.StreamHandler()
    handler.setFormatter(formatters.get(how) or logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
