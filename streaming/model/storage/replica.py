"""One replica on a broker's disk: its log and its high watermark. Knows no leaders, no ISR, no time."""

from __future__ import annotations

from streaming.model.storage.log import Log


class LocalReplica:
    """A replica on a broker's disk; it outlives the process.

    Departs from Kafka: a killed process finds its newest high watermark again, not the one of the last checkpoint.
    """

    __slots__ = ("high_watermark", "log")

    def __init__(self) -> None:
        self.log = Log()
        self.high_watermark = 0
