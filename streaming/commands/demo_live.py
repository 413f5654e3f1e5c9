"""The live part of a demo: new events as they come, and how long they took to become visible."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.live import Live
from rich.text import Text

from exporters.snapshot import SECOND
from exporters.terminal import event_line, view
from streaming.delta.tail import TailGap

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType

    from exporters.reader import Reader
    from exporters.snapshot import Event, ReplicationSnapshot

LINES_ABOVE_EVENTS: Final = 16
"""Heading, brokers and the head of the table, for clusters of a few brokers."""


def now_micros() -> int:
    """Give the wall clock in UTC microseconds."""
    return time.time_ns() // 1000


def newest(reader: Reader) -> ReplicationSnapshot:
    """Read what is new; in a gap of the history, what was known before: the job's next projection closes it."""
    with suppress(TailGap):
        return reader.refresh()
    return reader.snapshot


@dataclass(slots=True)
class Watched:
    """What has been seen so far.

    Attributes:
        latencies: seconds from an event's happening to its being visible here; events that were there before the
            first look do not count.
        first: the first snapshot, to tell whether anything has moved since.
        last: the newest snapshot.
    """

    first: ReplicationSnapshot
    last: ReplicationSnapshot = field(init=False)
    latencies: list[float] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Know what was there before."""
        self.last = self.first
        self._seen.update(event.event_id for event in self.first.recent_events)

    def look(self, snapshot: ReplicationSnapshot, now: int) -> list[Event]:
        """Take a newer snapshot and give the events that were not in any before, oldest first."""
        self.last = snapshot
        fresh = [event for event in snapshot.recent_events if event.event_id not in self._seen]
        self._seen.update(event.event_id for event in fresh)
        self.latencies.extend((now - event.occurred_not_after) / SECOND for event in fresh)
        return fresh

    def moved(self) -> bool:
        """Tell whether a cluster's watermark has advanced since the first look: heartbeats flow."""
        before = {name: cluster.watermark or 0 for name, cluster in self.first.clusters.items()}
        return any((cluster.watermark or 0) > before.get(name, 0) for name, cluster in self.last.clusters.items())

    def partitions(self) -> int:
        """Count the partitions that are known."""
        return sum(
            len(topic.partitions) for cluster in self.last.clusters.values() for topic in cluster.topics.values()
        )


class Screen:
    """A picture that is drawn again on a terminal; a line for each new event in a pipe."""

    def __init__(self, console: Console, live: Live | None, heading: str) -> None:
        self._console, self._live, self._heading = console, live, heading

    def show(self, snapshot: ReplicationSnapshot, fresh: list[Event], now: int, footer: str) -> None:
        """Show the newest state."""
        if self._live is not None:
            self._live.update(self._picture(snapshot, now, footer), refresh=True)
            return
        for event in fresh:
            self._console.print(Text(event_line(event)), soft_wrap=True)

    def _picture(self, snapshot: ReplicationSnapshot, now: int, footer: str) -> RenderableType:
        lines = self._console.height - LINES_ABOVE_EVENTS
        return Group(
            Text(self._heading, style="dim"), Text(), view(snapshot, now=now, lines=lines), Text(footer, style="dim")
        )


@contextmanager
def screen(console: Console, heading: str) -> Iterator[Screen]:
    """Open the screen that suits the console."""
    if not console.is_terminal:
        console.print(Text(heading), soft_wrap=True)
        yield Screen(console, None, heading)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield Screen(console, live, heading)
