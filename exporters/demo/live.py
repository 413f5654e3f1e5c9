"""The live view of a demo: the state, new events, and the latency until they became visible."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.live import Live
from rich.text import Text

from exporters.answers.event_groups import by_moment
from exporters.answers.event_text import clock
from exporters.answers.incidents import lasted, suspects
from exporters.demo.cluster_view import brokers_of, heading, totals
from exporters.demo.risk import AT_RISK, RiskHistory, counted
from exporters.read_model.cluster_names import clusters_by_name
from exporters.read_model.incident_ids import shown_id
from exporters.read_model.snapshot import SECOND, is_recovered
from exporters.read_model.times import Clock
from exporters.terminal.incidents_command import incident_style
from exporters.terminal.table_layout import WORDS, Field, columns_of, table_of
from streaming.delta.changes.reader import ChangesRestarted
from streaming.terminal import print_wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from rich.console import RenderableType

    from exporters.read_model.reader import TablesReader
    from exporters.read_model.snapshot import EventRow, ReplicationSnapshot
    from streaming.terminal import Terminal

    Row = Mapping[str, Any]


PIPE_WIDTH: Final = 100
"""Characters in a line where there is no terminal: the demo is read by people only."""

LINES_BESIDE: Final = 4
"""Lines of the heading, one below it, and of the footer, each may need a second one."""


def newest(reader: TablesReader) -> ReplicationSnapshot:
    """Refresh from the tables; during a gap in the changes return the last snapshot: the next projection closes it."""
    with suppress(ChangesRestarted):
        return reader.refresh()
    return reader.snapshot


@dataclass(slots=True)
class DemoProgress:
    """The first and the newest snapshot, and what has been read between them.

    ``latencies`` are seconds from each event to its first snapshot, without the events of the first one.
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


# The view of a snapshot: the incidents first, then the risk, the clusters, and what happened last.


MOST_INCIDENTS: Final = 3
_GROUP_FIELDS: Final = (
    Field("time (UTC)", lambda row: clock(row["group"].at)),
    Field("subject", lambda row: row["group"].subject),
    Field("what", lambda row: row["group"].what, wraps=WORDS),
    Field("cause", lambda row: row["group"].cause, wraps=WORDS),
)


def view(
    snapshot: ReplicationSnapshot, risk: RiskHistory, console: Terminal, *, now: int, beside: int
) -> RenderableType:
    """Render a snapshot for the height of a console, less the lines that the caller shows around it."""
    above: list[RenderableType] = [*incident_lines(snapshot, now), Text(), *risk.lines(), Text()]
    for cluster in clusters_by_name(snapshot).values():
        above += [heading(cluster, now), totals(cluster), brokers_of(cluster)]
    above.append(Text())
    taken = len(console.render_lines(Group(*above), pad=False)) + beside
    return Group(*above, *_event_lines(snapshot.recent_events, console, max(2, console.height - taken)))


def open_incidents(snapshot: ReplicationSnapshot) -> list[Row]:
    """Return the open incidents of all clusters, newest first, those that have recovered last."""
    rows = [row for cluster in snapshot.clusters.values() if cluster.incidents for row in cluster.incidents.open]
    standing = [row for row in rows if row["merged_into"] is None]
    return sorted(standing, key=lambda row: (is_recovered(row), -row["opened_at"], row["incident_id"]))


def incident_sentence(row: Row, now: int) -> str:
    """Return id, class, duration and suspects of an incident."""
    return f"{shown_id(row)}  {row['incident_class']}  {lasted(row, Clock(now))}  suspects {suspects(row)}"


def incident_lines(snapshot: ReplicationSnapshot, now: int) -> Iterator[Text]:
    """Return what is known of the open incidents: what, since when, who, what it means, what to do first."""
    if any(cluster.incidents is None for cluster in snapshot.clusters.values()):
        yield Text("incidents: unknown so far", style="dim")
    rows = open_incidents(snapshot)
    if not rows and all(cluster.incidents for cluster in snapshot.clusters.values()):
        # The table of incidents follows the changes by seconds: while partitions are at risk, none is not good news.
        is_quiet = all(counted(snapshot, state) == 0 for state in AT_RISK)
        yield Text("no open incident", style="green") if is_quiet else Text("no incident so far", style="dim")
    for row in rows[:MOST_INCIDENTS]:
        is_over = is_recovered(row)
        yield Text(incident_sentence(row, now), style="dim" if is_over else f"bold {incident_style(row)}")
        yield Text(f"  {row['consequence'] or row['summary']}", style="dim" if is_over else "")
        if row["next_step"] and not is_over:
            yield Text(f"  do first: {row['next_step']}")
    if len(rows) > MOST_INCIDENTS:
        yield Text(f"and {len(rows) - MOST_INCIDENTS} more open incidents", style="dim")


def _event_lines(events: Iterable[EventRow], console: Terminal, room: int) -> Iterator[RenderableType]:
    """Return a table of what happened last, newest first, as far as whole rows fit."""
    rows = [{"group": group} for group in reversed([*by_moment(events)])][:room]
    for count in range(len(rows), 0, -1):
        styles = [row["group"].style for row in rows[:count]]
        table = table_of(columns_of(rows[:count], _GROUP_FIELDS), styles, console.width)
        if len(console.render_lines(table, pad=False)) <= room:
            yield table
            return
