"""View of a snapshot in the demo: the incidents first, then the risk, the clusters, and what happened last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.text import Text

from exporters.answers.event_groups import by_moment
from exporters.answers.event_text import clock
from exporters.answers.incidents import lasted, suspects
from exporters.demo.cluster_view import brokers_of, heading, totals
from exporters.demo.risk import AT_RISK, counted
from exporters.read_model.cluster_names import clusters_by_name
from exporters.read_model.incident_ids import shown_id
from exporters.read_model.snapshot import is_recovered
from exporters.read_model.times import Clock
from exporters.terminal.incidents_command import incident_style
from exporters.terminal.table_layout import WORDS, Field, columns_of, table_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from rich.console import RenderableType

    from exporters.demo.risk import RiskHistory
    from exporters.read_model.snapshot import EventRow, ReplicationSnapshot
    from streaming.terminal import Terminal

    Row = Mapping[str, Any]

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
