"""A source that returns what a test gives it. Little is imported here: tests start processes that need no more."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.observations import Heartbeat, SourceKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming.contracts.observations import Observation


def heartbeat(source: str, at: int) -> Heartbeat:
    times = dict.fromkeys(("occurred_not_before", "occurred_not_after", "collected_at"), Micros(at))
    return Heartbeat(cluster_id=ClusterId("c"), cluster="c", source=source, source_kind=SourceKind.NONE, **times)


class Scripted:
    """Returns what it was given, one item a poll, raises an exception among it, and is silent afterwards."""

    def __init__(self, name: str, *script: Sequence[Observation] | Exception) -> None:
        self.name = name
        self._script = list(script)
        self.events: list[str] = []
        self.asked: list[Micros] = []
        self.is_over = threading.Event()

    def poll(self, now: Micros) -> Sequence[Observation]:
        self.asked.append(now)
        if not self._script:
            self.is_over.set()
            return []
        item = self._script.pop(0)
        if isinstance(item, Exception):
            self.events.append("refused")
            raise item
        self.events.append("polled")
        return item

    def acknowledge(self) -> None:
        self.events.append("acknowledged")

    def close(self) -> None:
        self.events.append("closed")
