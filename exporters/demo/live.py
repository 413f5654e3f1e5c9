"""The live view of a demo: the state, new events, and the latency until they became visible."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.live import Live
from rich.text import Text

from exporters.answers.event_groups import by_moment
from exporters.answers.event_text import clock
from exporters.demo.risk import RiskHistory
from exporters.demo.view import incident_sentence, open_incidents, view
from exporters.read_model.snapshot import SECOND, is_recovered
from streaming.delta.changes.reader import ChangesRestarted
from streaming.terminal import print_wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from exporters.read_model.reader import TablesReader
    from exporters.read_model.snapshot import EventRow, ReplicationSnapshot
    from streaming.terminal import Terminal

PIPE_WIDTH: Final = 100
"""Characters in a line where there is no terminal: the demo is read by people only."""

LINES_BESIDE: Final = 4
"""Lines of the heading, one below it, and of the footer, each may need a second one."""


def now_micros() -> int:
    """Return the wall-clock time in UTC microseconds."""
    return time.time_ns() // 1000


def newest(reader: TablesReader) -> ReplicationSnapshot:
    """Refresh from the tables; during a gap in the changes return the last snapshot: the next projection closes it."""
    with suppress(ChangesRestarted):
        return reader.refresh()
    return reader.snapshot


@dataclass(slots=True)
class DemoProgress:
    """The snapshots and events read so far.

    Attributes:
        latencies: seconds from each event to its first snapshot; without the events of the first snapshot.
        first: the first snapshot, to detect progress since.
        last: the newest snapshot.
    """

    first: ReplicationSnapshot
    last: ReplicationSnapshot = field(init=False)
    latencies: list[float] = field(default_factory=list)
    _event_ids: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Remember the events of the first snapshot."""
        self.last = self.first
        self._event_ids.update(event.event_id for event in self.first.recent_events)

    def update(self, snapshot: ReplicationSnapshot, now: int) -> list[EventRow]:
        """Add a newer snapshot; return the events that no earlier one contained, oldest first."""
        self.last = snapshot
        fresh = [event for event in snapshot.recent_events if event.event_id not in self._event_ids]
        self._event_ids.update(event.event_id for event in fresh)
        self.latencies.extend((now - event.occurred_not_after) / SECOND for event in fresh)
        return fresh

    def moved(self) -> bool:
        """Return whether a watermark has advanced since the first snapshot: heartbeats arrive."""
        before = {name: cluster.watermark or 0 for name, cluster in self.first.clusters.items()}
        return any((cluster.watermark or 0) > before.get(name, 0) for name, cluster in self.last.clusters.items())

    def partitions(self) -> int:
        """Count the partitions in the newest snapshot."""
        return sum(
            len(topic.partitions) for cluster in self.last.clusters.values() for topic in cluster.topics.values()
        )


class Screen:
    """A screen that is redrawn on a terminal; in a pipe a paragraph for each incident and for what happened at once."""

    def __init__(self, console: Terminal, live: Live | None, heading: str) -> None:
        self._console, self._live, self._heading = console, live, heading
        self._risk = RiskHistory()
        self._incidents: dict[str, tuple[str, bool]] = {}

    def show(self, snapshot: ReplicationSnapshot, fresh: list[EventRow], now: int, footer: str) -> None:
        """Show the newest state."""
        if self._live is not None:
            self._risk.add(snapshot, now)
            self._live.update(self._rendered(snapshot, now, footer), refresh=True)
            return
        for group in by_moment(fresh):
            print_wrapped(self._console, group.line(), in_pipe=PIPE_WIDTH)
        for line in self._news_of_incidents(snapshot, now):
            print_wrapped(self._console, line, in_pipe=PIPE_WIDTH)

    def _rendered(self, snapshot: ReplicationSnapshot, now: int, footer: str) -> RenderableType:
        shown = view(snapshot, self._risk, self._console, now=now, beside=LINES_BESIDE)
        return Group(Text(self._heading, style="dim"), Text(), shown, Text(footer, style="dim"))

    def _news_of_incidents(self, snapshot: ReplicationSnapshot, now: int) -> Iterator[str]:
        """Return a line for each incident that is new, has another class, or has recovered."""
        for row in open_incidents(snapshot):
            stage = row["incident_class"], is_recovered(row)
            if self._incidents.get(row["incident_id"]) != stage:
                self._incidents[row["incident_id"]] = stage
                yield f"{clock(now)}  incident  {incident_sentence(row, now)}  {row['consequence'] or row['summary']}"


@contextmanager
def screen(console: Terminal, heading: str) -> Iterator[Screen]:
    """Open the kind of screen that the console supports."""
    if not console.is_terminal:
        console.print(Text(heading), soft_wrap=True)
        yield Screen(console, None, heading)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield Screen(console, live, heading)
