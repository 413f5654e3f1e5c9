"""The result of one micro-batch, and how long each stage took. Depends on no table and not on Spark."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import Micros
from streaming.delta.quarantine import reason_kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streaming.delta.quarantine import Refused

MICROS: Final = 1_000_000
"""Microseconds in a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The result of one micro-batch.

    Attributes:
        observations: number applied, including those within unchanged runs.
        changes: number of rows appended to the change log, or written to a sample table.
        refused: number of records put into quarantine.
        version: newest version of the table that holds the query's state; -1 for none.
        seconds: duration.
        stages: seconds per stage.
        reasons: refused records by kind of reason.
    """

    observations: int
    changes: int
    refused: int
    version: int
    seconds: float
    stages: Mapping[str, float] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)


class Stopwatch:
    """Times consecutive stages of a batch."""

    def __init__(self) -> None:
        self._began = self._since = time.perf_counter()
        self.stages: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        """End a stage; the next one begins."""
        now = time.perf_counter()
        self.stages[stage] = self.stages.get(stage, 0.0) + now - self._since
        self._since = now

    @property
    def seconds(self) -> float:
        """Seconds since the stopwatch was created."""
        return time.perf_counter() - self._began


def count_reasons(refused: Iterable[Refused]) -> Counter[str]:
    """Count refused records by the kind of their reason."""
    return Counter(reason_kind(record.reason) for record in refused)


def now() -> Micros:
    """Return the wall-clock time; only for columns that say when something was written."""
    return Micros(time.time_ns() // 1000)
