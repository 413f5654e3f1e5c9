"""Resources with a history: events, incidents open and closed, the events in one, conditions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from exporters.answers.incidents import archive_of
from exporters.read_model.conditions import ALL_RULES
from exporters.read_model.event_filter import EventFilter, key_of
from exporters.read_model.events import INCIDENT_COLUMNS
from exporters.read_model.incident_archive import time_of, was_open
from exporters.read_model.incident_ids import shown_id
from exporters.read_model.recorded_events import COLUMNS, history
from exporters.read_model.unreadable import UnreadableTables
from exporters.web.api_resource import ApiResource, Filter, Item, Key, Page, View, any_of, columns_of, one_of
from exporters.web.parameters import RequestRefused, choice, moment, number, text
from streaming.contracts.columns import Column, required
from streaming.contracts.events import Cause, EventKind, IncidentClass, Severity
from streaming.contracts.tables import INCIDENTS, REPLICATION_EVENTS
from streaming.errors import IsrwatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from exporters.answers.subject import Tables
    from exporters.read_model.snapshot import ClusterSnapshot
    from exporters.web.api_resource import Row
    from exporters.web.parameters import Query


def tables_of(view: View) -> Tables:
    """Return what is read beyond the snapshot."""
    if view.tables is None:
        raise RequestRefused(503, "this server reads no tables")
    return view.tables


def _parameter(name: str, help_text: str, declare: Callable[..., Any] = text) -> Filter:
    """Declare a filter that the page itself applies."""
    return Filter(declare(name, help_text, is_repeatable=True), lambda _item, _given: True)


def _bound(name: str, help_text: str) -> Filter:
    return Filter(moment(name, help_text), lambda _item, _given: True)


# Events, read from their table, newest first; those of one incident oldest first.


def _event_key(item: Item) -> Key:
    at, offset, event_id = key_of(item.value)
    return at, offset, event_id


def _events_page(view: View, query: Query, after: Key | None) -> Page[Item]:
    if query["cluster"] and not view.clusters:  # none of them was observed then
        return Page([], None, has_more=False, last=None)
    limits = [each for each in (query["until"], view.at) if each is not None]
    selection = EventFilter(
        clusters=tuple(each.cluster.cluster_id for each in view.clusters.values()) if query["cluster"] else (),
        topics=query["topic"],
        partitions=query["partition"],
        brokers=query["broker"],
        causes=query["cause"],
        events=query["event"],
        since=query["since"],
        until=min(limits, default=None),
        before=None if after is None else key_of_cursor(after),
    )
    return _page(view, query, selection, oldest=False)


def _changes_page(view: View, query: Query, after: Key | None) -> Page[Item]:
    row = archive_of(tables_of(view)).of_id(query["incident"])
    selection = time_of(row, after=None if after is None else key_of_cursor(after))
    return _page(view, query, selection, oldest=True)


def key_of_cursor(key: Key) -> tuple[int, int, str]:
    """Return the key of an event that a cursor holds."""
    at, offset, event_id = key
    return int(at), int(offset), str(event_id)


def _page(view: View, query: Query, selection: EventFilter, *, oldest: bool) -> Page[Item]:
    """Read a page, and one row more, which says whether there is a next one."""
    unreadable, limit = UnreadableTables(), query["limit"]
    events = [*history(tables_of(view).folder, selection, unreadable, limit=limit + 1, oldest=oldest)]
    view.note_unreadable(REPLICATION_EVENTS.name, unreadable.sentences)
    by_id = {each.cluster.cluster_id: each for each in view.clusters.values()}
    ordered = events if oldest else events[::-1]
    rows = [Item(by_id.get(event["cluster_id"]), event) for event in ordered[:limit]]
    has_more = len(events) > limit
    return Page(rows, None, has_more, _event_key(rows[-1]) if rows and has_more else None)


def _work(view: View, query: Query) -> Row:
    archive = archive_of(tables_of(view))
    row = archive.of_id(query["incident"])
    return {"incident": shown_id(row), "work": [each._asdict() for each in archive.announced_work(row)]}


INCIDENT: Final = text(
    "incident", "Id of an incident: short, under any name of its cluster, or the beginning of a long one."
)
WORK_COLUMNS: Final = (
    required("broker", "int", "broker id"),
    required("since", "timestamp", "when it was announced"),
    Column("until", "timestamp", "when it was over; null: not by the newest change of the incident"),
    required("text", "string", "the reason, and until when, as announced"),
    required("has_overrun", "boolean", "the broker was not back when it was over"),
)
EVENTS: Final = ApiResource(
    name="events",
    summary="Events",
    help="Recorded events, newest first, as far back as the tables keep them. They are not counted.",
    columns=columns_of(REPLICATION_EVENTS, COLUMNS),
    filters=(
        _parameter("topic", "Topic name, or a pattern."),
        _parameter("partition", "Partition number.", number),
        _parameter("event", "Kind of event.", partial(choice, values=EventKind)),
        _parameter("cause", "Cause of the change.", partial(choice, values=Cause)),
        _parameter(
            "broker", "Id of a broker that left or joined the ISR, led or leads, or that the event is about.", number
        ),
        _bound("since", "Only those that occurred at this time or later."),
        _bound("until", "Only those that occurred at this time or before."),
    ),
    key=_event_key,
    key_types=(int, int, str),
    row=lambda _, item: item.value,
    page=_events_page,
)
CHANGES: Final = ApiResource(
    name="changes",
    path="incidents/{incident}/changes",
    of_path=(INCIDENT,),
    summary="What happened in an incident",
    help="Every event of its cluster from the begin of an incident to its newest change, oldest first, and the planned "
    "work that was announced in that time. The events are not counted.",
    columns=columns_of(REPLICATION_EVENTS, COLUMNS),
    key=_event_key,
    key_types=(int, int, str),
    row=lambda _, item: item.value,
    page=_changes_page,
    remarks=_work,
    remark_columns=(
        required("incident", "string", "id of the incident that was found"),
        Column("work", [WORK_COLUMNS], "planned work that was announced for brokers", nullable=False),
    ),
)


# Incidents.


def _incidents(view: View, query: Query) -> Iterator[Item]:
    try:
        rows = _chosen(view, query)
    except IsrwatchError as error:
        if isinstance(error, RequestRefused):
            raise
        view.note_unreadable(INCIDENTS.name, [str(error)])
        return
    by_id = {each.cluster.cluster_id: each for each in view.clusters.values()}
    items = [
        Item(by_id.get(row["cluster_id"]), row) for row in rows if not query["cluster"] or row["cluster_id"] in by_id
    ]
    yield from sorted(items, key=_incident_key)


def _chosen(view: View, query: Query) -> list[Row]:
    archive, state = archive_of(tables_of(view)), query["state"]
    if query["incident"]:
        rows = [*{row["incident_id"]: row for row in _rows_of_ids(archive.find, query["incident"])}.values()]
    elif view.at is not None:
        at = view.at
        rows = [row for row in archive.between(query["since"], query["until"]) if row["opened_at"] <= at]
        return [row for row in rows if state == "all" or was_open(row, at) is (state != "closed")]
    else:
        rows = archive.between(query["since"], query["until"])
        has_time = query["since"] is not None or query["until"] is not None
        state = state or ("all" if has_time else "open")
    return [row for row in rows if state in (None, "all") or (row["closed_at"] is None) is (state == "open")]


def _rows_of_ids(find: Callable[[str], Row | None], ids: Iterable[str]) -> Iterator[Row]:
    return (row for row in map(find, ids) if row is not None)


def _incident_key(item: Item) -> tuple[int, str]:
    return -item.value["opened_at"], item.value["incident_id"]


def _incident_brokers(item: Item) -> set[Any]:
    suspects = {suspect["broker"] for suspect in item.value["suspects"] or ()}
    return suspects | {*(item.value["brokers"] or ())}


def _are_there(cluster: ClusterSnapshot) -> bool:
    return cluster.incidents is not None


INCIDENT_LIST: Final = ApiResource(
    name="incidents",
    summary="Incidents",
    help="Incidents, newest first: the open ones, unless a state, a time or an id is given. At a moment of the past "
    "the state is that of then, and all else as known today.",
    columns=columns_of(INCIDENTS, INCIDENT_COLUMNS),
    filters=(
        _parameter("incident", "Id of an incident, short or long; one that was merged into another gives that one."),
        Filter(
            choice(
                "state", "open, closed, or all; by default open, and of ids and times all.", ("open", "closed", "all")
            ),
            lambda _item, _given: True,
        ),
        one_of(
            "class",
            "Class of the incident.",
            lambda item: item.value["incident_class"],
            partial(choice, values=IncidentClass),
        ),
        one_of("severity", "Severity.", lambda item: item.value["severity"], partial(choice, values=Severity)),
        any_of("broker", "Id of a broker that is suspect or was lost.", _incident_brokers, number),
        _bound("since", "Only those that lasted at this time or later; open ones do."),
        _bound("until", "Only those that began at this time or before."),
    ),
    items=_incidents,
    key=_incident_key,
    key_types=(int, str),
    row=lambda _, item: item.value,
    available={"incidents_available": _are_there},
)


# Conditions.


def _conditions(view: View, _: Query) -> Iterator[Item]:
    items = [Item(view.clusters.get(each.cluster), each) for each in view.raised(view)]
    yield from sorted((item for item in items if item.cluster or not item.value.cluster), key=_condition_key)


def _condition_key(item: Item) -> Key:
    return tuple(map(str, item.value.labels))


def _condition_row(_: View, item: Item) -> Row:
    cluster_id = None if item.cluster is None else item.cluster.cluster.cluster_id
    return {**item.value._asdict(), "condition": item.value.condition.value, "cluster_id": cluster_id,
            "incident": item.value.short_id or None}  # fmt: skip


CONDITION_LIST: Final = ApiResource(
    name="conditions",
    summary="Conditions",
    help="What is wrong, each with its subject, as kafka_replication_condition_since_seconds has it: what alerts "
    "select. What the exporter finds about itself and about freshness is not part of a moment of the past.",
    columns=(
        Column("cluster_id", "string", "Kafka's cluster id; null: it concerns every cluster"),
        required("cluster", "string", 'display name of the cluster; "": it concerns every cluster'),
        required("condition", "string", "what is wrong"),
        required("subject", "string", 'with what: a broker, a topic, a group; "": with the cluster'),
        required("severity", "string", "how bad it is, as the configuration of alerts calls it"),
        Column("incident", "string", "short id of the incident that explains it; null for none"),
        required("since", "timestamp", "when it began as far as the data shows"),
        Column("again_since", "timestamp", "from when it lasts without a break; null: since it began"),
        Column("ended_at", "timestamp", "when it was over: it is raised for a while longer; null while it lasts"),
    ),
    filters=(
        one_of(
            "condition",
            "What is wrong.",
            lambda item: item.value.condition.value,
            partial(choice, values=sorted(each.value for each in ALL_RULES)),
        ),
        one_of("severity", "How bad it is.", lambda item: item.value.severity),
        one_of("incident", "Short id of the incident that explains it.", lambda item: item.value.short_id),
        one_of("subject", "What something is wrong with.", lambda item: item.value.subject),
        Filter(
            moment("since", "Only those that began at this time or later."),
            lambda item, since: item.value.since >= since,
        ),
        Filter(
            moment("until", "Only those that began at this time or before."),
            lambda item, until: item.value.since <= until,
        ),
    ),
    items=_conditions,
    key=_condition_key,
    key_types=(str, str, str, str, str),
    row=_condition_row,
)
HISTORY_RESOURCES: Final = (EVENTS, INCIDENT_LIST, CHANGES, CONDITION_LIST)
