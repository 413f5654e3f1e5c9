"""Log directories of brokers: whether the broker can use them, how full they are, when they will be full."""

from __future__ import annotations

from functools import partial
from typing import Final

from dashboards.promql import Signal, Unit
from dashboards.signals.labels import LOG_DIRECTORY

_directory = partial(Signal, labels=LOG_DIRECTORY)

ONLINE: Final = _directory(
    "Online", "log_directory_online", "1 while the broker can use the directory; 0 after a failure of its disk."
)
TOTAL: Final = _directory(
    "Size", "log_directory_total_bytes", "Size of the volume of the directory (KIP-827).", unit=Unit.BYTES
)
USABLE: Final = _directory(
    "Free", "log_directory_usable_bytes", "Free bytes of the volume of the directory (KIP-827).", unit=Unit.BYTES
)
REPLICA_BYTES: Final = _directory(
    "Size of replicas", "log_directory_replica_bytes", "Size of the replicas in the directory.", unit=Unit.BYTES
)
UNTIL_FULL: Final = _directory(
    "Full in", "log_directory_until_full_seconds", "Time until the volume is full, at its pace.", unit=Unit.SECONDS
)
