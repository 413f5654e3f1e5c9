"""The newest events and the open incidents, newest first: what the exporter has in memory, and how far back that is."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from exporters.read_model.events import brokers_of
from exporters.read_model.incidents import INCIDENT_COLUMNS
from exporters.read_model.snapshot import EventRow
from exporters.web.api_resource import ApiResource, Filter, Item, any_of, one_of
from exporters.web.parameters import choice, moment, number
from exporters.web.row_schemas import columns_of
from streaming.contracts.columns import Column
from streaming.contracts.events import Cause, EventKind, IncidentClass, Severity
from streaming.contracts.tables import INCIDENTS, REPLICATION_EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from exporters.read_model.snapshot import ClusterSnapshot
    from exporters.web.api_resource import Row, View


def _between(value: Callable[[Item], int], what: str) -> tuple[Filter, Filter]:
    """Filter by a time, both ends inclusive."""
    return (
        Filter(moment("since", f"Only those {what} at this time or later."), lambda item, since: value(item) >= since),
        Filter(moment("until", f"Only those {what} at this time or before."), lambda item, until: value(item) <= until),
    )


def _events(view: View) -> Iterator[Item]:
    clusters: dict[str, ClusterSnapshot] = {each.cluster.cluster_id: each for each in view.clusters.values()}
    held = [event for event in view.snapshot.recent_events if event.cluster_id in clusters]
    for event in sorted(held, key=_event_key):
        yield Item(clusters[event.cluster_id], event)


def _event_key(event: EventRow) -> tuple[int, str]:
    return -event.occurred_not_after, event.event_id


def _how_far_back(view: View) -> Row:
    """Return since when events are held; older ones are in the table only."""
    return {"held_since": min((item.value.occurred_not_after for item in _events(view)), default=None)}


def _incidents(view: View) -> Iterator[Item]:
    rows = [
        Item(cluster, row)
        for cluster in view.clusters.values()
        for row in (() if cluster.incidents is None else cluster.incidents.open)
    ]
    yield from sorted(rows, key=_incident_key)


def _incident_key(item: Item) -> tuple[int, str]:
    return -item.value["opened_at"], item.value["incident_id"]


def _incident_brokers(item: Item) -> set[Any]:
    suspects = {suspect["broker"] for suspect in item.value["suspects"] or ()}
    return suspects | {*(item.value["brokers"] or ())}


HISTORY_RESOURCES: Final = (
    ApiResource(
        name="events",
        summary="Events",
        help="The newest events, newest first: the 1,000 that the exporter holds in memory, at most. held_since says "
        "how far they reach back; all of them are in the table replication_events, which isrwatch events reads.",
        columns=columns_of(REPLICATION_EVENTS, EventRow._fields),
        filters=(
            one_of("topic", "Topic name.", lambda item: item.value.topic),
            one_of("partition", "Partition number.", lambda item: item.value.partition, number),
            one_of("event", "Kind of event.", lambda item: item.value.event, partial(choice, values=EventKind)),
            one_of("cause", "Cause of the change.", lambda item: item.value.cause, partial(choice, values=Cause)),
            any_of(
                "broker",
                "Id of a broker that left or joined the ISR, led or leads, or that the event is about.",
                lambda item: brokers_of(item.value._asdict()),
                number,
            ),
            *_between(lambda item: item.value.occurred_not_after, "that occurred"),
        ),
        items=lambda view, _: _events(view),
        key=lambda item: _event_key(item.value),
        key_types=(int, str),
        row=lambda _, item: item.value._asdict(),
        remarks=_how_far_back,
        remark_columns=(
            Column("held_since", "timestamp", "when the oldest event that is held occurred; null while none is"),
        ),
    ),
    ApiResource(
        name="incidents",
        summary="Open incidents",
        help="The open incidents, newest first. Closed ones are in the table incidents: isrwatch incidents reads it.",
        columns=columns_of(INCIDENTS, INCIDENT_COLUMNS),
        filters=(
            one_of(
                "class",
                "Class of the incident.",
                lambda item: item.value["incident_class"],
                partial(choice, values=IncidentClass),
            ),
            one_of("severity", "Severity.", lambda item: item.value["severity"], partial(choice, values=Severity)),
            any_of("broker", "Id of a broker that is suspect or was lost.", _incident_brokers, number),
            *_between(lambda item: item.value["opened_at"], "that began"),
        ),
        items=lambda view, _: _incidents(view),
        key=_incident_key,
        key_types=(int, str),
        row=lambda _, item: item.value,
        available={"incidents_available": lambda cluster: cluster.incidents is not None},
    ),
)
