"""Of log directories: whether they can be used, and how full their volumes are."""

from __future__ import annotations

from functools import partial
from typing import Final

from dashboards.promql import Signal, Unit
from dashboards.signals.labels import LOG_DIRECTORY

_directory = partial(Signal, labels=LOG_DIRECTORY)

ONLINE: Final = _directory("Online", "log_directory_online", "1 while the broker can use its log directory.")
TOTAL: Final = _directory(
    "Size of the volume", "log_directory_total_bytes", "Size of the volume of the log directory.", unit=Unit.BYTES
)
USABLE: Final = _directory(
    "Free bytes",
    "log_directory_usable_bytes",
    "Free bytes of the volume. Without any the broker takes the directory offline.",
    unit=Unit.BYTES,
)
UNTIL_FULL: Final = _directory(
    "Until full",
    "log_directory_until_full_seconds",
    "Seconds until the volume is full, at the pace of the last 20 minutes.",
    unit=Unit.SECONDS,
)
