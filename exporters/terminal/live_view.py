"""A snapshot and its events as text for a terminal. Pure: no files, no clock, no processes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from exporters.read_model.cluster_names import clusters_by_name
from exporters.read_model.snapshot import SECOND
from streaming.contracts.events import EventKind
from streaming.contracts.health import AT_MIN_ISR, DISKLESS, OFFLINE, PARTITIONS, UNDER_MIN_ISR, UNDER_REPLICATED
from streaming.contracts.identifiers import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import RenderableType

    from exporters.read_model.snapshot import ClusterSnapshot, EventRow, ReplicationSnapshot
    from streaming.contracts.state import BrokerState

STATES: Final = {
    PARTITIONS: "partitions",
    UNDER_REPLICATED: "under-replicated",
    AT_MIN_ISR: "at min ISR",
    UNDER_MIN_ISR: "under min ISR",
    OFFLINE: "offline",
    DISKLESS: "diskless",
}
EVENT_STYLES: Final = {
    EventKind.UNCLEAN_ELECTION: "bold red",
    EventKind.OFFLINE: "bold red",
    EventKind.UNDER_MIN_ISR_BEGAN: "red",
    EventKind.LOG_DIR_OFFLINE: "red",
    EventKind.ISR_SHRINK: "yellow",
    EventKind.FENCED: "yellow",
    EventKind.UNDER_REPLICATED_BEGAN: "yellow",
    EventKind.ISR_EXPAND: "green",
    EventKind.ONLINE: "green",
    EventKind.UNFENCED: "green",
    EventKind.UNDER_MIN_ISR_ENDED: "green",
    EventKind.UNDER_REPLICATED_ENDED: "green",
}
STATE_STYLES: Final = {
    UNDER_REPLICATED: "yellow",
    AT_MIN_ISR: "yellow",
    UNDER_MIN_ISR: "red",
    OFFLINE: "bold red",
}
BROKER_STYLES: Final = {"fenced": "red", "shutting down": "yellow", "active": "green"}


def clock(micros: int) -> str:
    """Format a time as UTC time of day.

    >>> clock(3_723_004_000)
    '01:02:03.004'
    """
    return datetime.fromtimestamp(micros / SECOND, UTC).strftime("%H:%M:%S.%f")[:-3]


def subject(event: EventRow) -> str:
    """Return the subject of an event as Kafka prints it: ``orders-3`` for a partition."""
    if event.topic is not None and event.partition is not None:
        return f"{event.topic}-{event.partition}"
    if event.topic is not None:
        return event.topic
    if event.event_broker is not None:
        return f"broker {event.event_broker}"
    return event.source if event.subject == "source" else event.cluster


def what(event: EventRow) -> str:
    """Describe an event: the brokers that left or joined the ISR, the old and the new leader."""
    if event.event == EventKind.ISR_SHRINK:
        return f"{_brokers(event.left_isr)} left {_isr(event)}"
    if event.event == EventKind.ISR_EXPAND:
        return f"{_brokers(event.joined_isr)} joined {_isr(event)}"
    if event.event in {EventKind.LEADER_CHANGE, EventKind.UNCLEAN_ELECTION}:
        return f"leader {_leader(event.leader_before)} → {_leader(event.leader_after)}"
    return event.detail or ""


def why(event: EventRow) -> str:
    """Describe the cause of an event with its evidence; an ambiguous cause with its candidates."""
    if event.cause is None:
        return ""
    others = [candidate for candidate in event.candidates if candidate != event.cause]
    return f"{event.cause} ({event.evidence}{', or ' + ' or '.join(others) if others else ''})"


def event_line(event: EventRow) -> str:
    """Format one event as one line, for a pipe or a log."""
    parts = (clock(event.occurred_not_after), subject(event), event.event, what(event), why(event))
    return "  ".join(part for part in parts if part)


def view(snapshot: ReplicationSnapshot, *, now: int, lines: int) -> RenderableType:
    """Render every cluster and the newest events.

    Args:
        snapshot: content of the tables.
        now: UTC microseconds; the data age is measured from it.
        lines: maximum number of events.
    """
    clusters = [
        part
        for cluster in clusters_by_name(snapshot).values()
        for part in (heading(cluster, now), _totals(cluster), _brokers_of(cluster))
    ]
    return Group(*clusters, Text(), _events(snapshot.recent_events[-max(1, lines) :]))


def summary(counts: Mapping[tuple[str, str], int]) -> RenderableType:
    """Render the number of events by kind and cause."""
    table = Table("event", "cause", "count", box=None, header_style="dim", pad_edge=False)
    table.columns[2].justify = "right"
    for (event, cause), count in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])):
        table.add_row(Text(event, style=style_of(event)), Text(cause), f"{count:,}")
    return table


def heading(cluster: ClusterSnapshot, now: int) -> Text:
    """Render the data age of a cluster and its number of partitions per state."""
    age = cluster.age_seconds(now)
    text = Text.assemble(("cluster ", "dim"), (cluster.name, "bold"))
    text.append("  no data yet" if age is None else f"  data age {age:.1f} s", style="dim")
    for state, label in STATES.items():
        count = cluster.counts.states.get(state, 0)
        if state == DISKLESS and not count:  # few clusters have any
            continue
        text.append(f"  {label} ")
        text.append(f"{count:,}", style=STATE_STYLES.get(state, "bold") if count else "green")
    return text


def _totals(cluster: ClusterSnapshot) -> Text:
    totals = cluster.totals
    counts = {
        "ISR shrinks": totals.isr_shrinks,
        "ISR expands": totals.isr_expands,
        "leader changes": totals.leader_changes,
        "unclean elections": totals.unclean_elections,
    }
    return Text("totals  " + "  ".join(f"{label} {count:,}" for label, count in counts.items()), style="dim")


def _brokers_of(cluster: ClusterSnapshot) -> Table:
    table = Table("broker", "state", "leads", "in sync", box=None, header_style="dim", pad_edge=False)
    counts = cluster.counts
    for number in cluster.known_brokers():
        state, style = broker_state(cluster, number)
        in_sync, hosted = counts.in_sync.get(number, 0), counts.hosted.get(number, 0)
        table.add_row(
            str(number),
            Text(state, style=style),
            f"{counts.led.get(number, 0):,}",
            Text(f"{in_sync:,} of {hosted:,}", style="yellow" if in_sync < hosted else ""),
        )
    return table


def broker_state(cluster: ClusterSnapshot, broker: int) -> tuple[str, str]:
    """Return the state of a broker and its colour."""
    state = _state_name(cluster, cluster.brokers.get(broker))
    return state, broker_style(state)


def broker_style(state: str) -> str:
    """Return the colour of a broker's state."""
    return BROKER_STYLES.get(state, "dim")


def _state_name(cluster: ClusterSnapshot, broker: BrokerState | None) -> str:
    if broker is None:
        return "unknown"
    registered = cluster.is_registered(broker)
    if not registered:
        return "not listed" if registered is None else "unregistered"
    if broker.is_fenced:
        return "fenced"
    if broker.is_shutting_down:
        return "shutting down"
    return "unknown" if broker.is_fenced is None else "active"


def _events(events: Sequence[EventRow]) -> Table:
    table = Table("time (UTC)", "subject", "event", "what", "cause", box=None, header_style="dim", pad_edge=False)
    for column in table.columns:
        column.no_wrap = True
    for event in reversed(events):
        row = (clock(event.occurred_not_after), subject(event), event.event, what(event), why(event))
        table.add_row(*map(Text, row), style=style_of(event.event))  # Text: a topic may be called [red]
    for column in table.columns[:2]:  # a truncated subject would not say which partition it is
        column.min_width = max((cell.cell_len for cell in column.cells if isinstance(cell, Text)), default=0)
    return table


def style_of(event: str) -> str:
    """Return the colour of a kind of event, by severity."""
    return next((style for kind, style in EVENT_STYLES.items() if kind == event), "")


def _brokers(brokers: Iterable[int]) -> str:
    numbers = [str(number) for number in brokers]
    return f"broker{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"


def _isr(event: EventRow) -> str:
    return "" if event.isr_after is None else f"(ISR {', '.join(map(str, event.isr_after)) or 'empty'})"


def _leader(broker: int | None) -> str:
    return "none" if broker is None or broker == NO_LEADER else str(broker)
