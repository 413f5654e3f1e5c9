"""Clusters, their brokers, and the planned work that is announced of these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporters.read_model.snapshot import BrokerAdvice, ClusterTimes, ClusterTotals
from exporters.web.api_resource import ApiResource, Item, one_of
from exporters.web.parameters import number
from exporters.web.row_schemas import COUNTS, columns_of
from streaming.contracts import health
from streaming.contracts.columns import Column, required
from streaming.contracts.state import BrokerState, ClusterState, SourceLag, SourceState
from streaming.contracts.tables import BROKER_STATE_TABLE, CLUSTER_STATE_TABLE, SOURCE_PROGRESS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporters.read_model.snapshot import ClusterSnapshot, SourceProgress
    from exporters.web.api_resource import Row, View

FRESHNESS: Final = (
    Column("age_seconds", "double", "time since the primary source's newest observation; null before the first"),
    required("is_stale", "boolean", "the data is too old to state anything about now"),
)
_COUNTS: Final = ("led_partitions", "hosted_partitions", "in_sync_partitions")
_ADVICE: Final = tuple(name for name in BrokerAdvice._fields if name not in {"broker", *_COUNTS})
BROKER_COLUMNS: Final = (
    *columns_of(BROKER_STATE_TABLE, (*BrokerState._fields, *_COUNTS, *_ADVICE)),
    Column("isr_departures", COUNTS, "how often it left an ISR, by cause as first recorded; null while unknown"),
)
SOURCE_COLUMNS: Final = columns_of(SOURCE_PROGRESS, ("channel", *SourceState._fields, *SourceLag._fields))
_STATES: Final = tuple(Column(state, "long", "partitions in this state; null while unknown") for state in health.STATES)
CLUSTER_COLUMNS: Final = (
    *columns_of(CLUSTER_STATE_TABLE, ClusterState._fields),
    *FRESHNESS,
    Column("states", _STATES, "how many partitions are in each state", nullable=False),
    Column("totals", columns_of(CLUSTER_STATE_TABLE, ClusterTotals._fields), "counted since the beginning"),
    Column("times", columns_of(CLUSTER_STATE_TABLE, ClusterTimes._fields), "seconds of all partitions; null: unknown"),
    Column("advice_until", "timestamp", "newest time that the advice about brokers covers"),
    Column("brokers", [BROKER_COLUMNS], "every broker that registered or holds a replica"),
    Column("sources", [SOURCE_COLUMNS], "what observes it, and how far the job has applied each"),
)


def broker_row(cluster: ClusterSnapshot, number: int) -> Row:
    """Return all that is known of a broker, null where nothing is."""
    broker = cluster.brokers.get(number)
    advice = cluster.advice.brokers.get(number) if cluster.advice else None
    values = {
        **({} if advice is None else advice._asdict()),
        **({} if broker is None else broker._asdict()),
        "cluster_id": cluster.cluster.cluster_id,
        "cluster": cluster.name,
        "broker": number,
        "led_partitions": cluster.counts.led.get(number, 0),
        "hosted_partitions": cluster.counts.hosted.get(number, 0),
        "in_sync_partitions": cluster.counts.in_sync.get(number, 0),
        "isr_departures": cluster.isr_removals_of(number),
    }
    return {column.name: values.get(column.name) for column in BROKER_COLUMNS}


def _cluster_row(view: View, item: Item) -> Row:
    cluster = item.cluster
    return {
        **cluster.cluster._asdict(),
        "controller": cluster.controller,
        **view.freshness(cluster),
        "states": {state: cluster.counts.in_state(state) for state in health.STATES},
        "totals": cluster.totals._asdict(),
        "times": cluster.times and cluster.times._asdict(),
        "advice_until": cluster.advice and cluster.advice.until,
        "brokers": [broker_row(cluster, broker) for broker in cluster.known_brokers()],
        "sources": [_source_row(source) for _, source in sorted(cluster.sources.items())],
    }


def _source_row(source: SourceProgress) -> Row:
    return {"channel": source.channel, **source.state._asdict(), **source.lag._asdict()}


def _brokers(view: View) -> Iterator[Item]:
    for _, cluster in sorted(view.clusters.items()):
        yield from (Item(cluster, broker) for broker in cluster.known_brokers())


def _announced(view: View) -> Iterator[Item]:
    for _, cluster in sorted(view.clusters.items()):
        for broker in sorted(cluster.brokers.values(), key=lambda broker: broker.broker):
            if broker.maintenance_until is not None or broker.maintenance_overran_at is not None:
                yield Item(cluster, broker)


def _maintenance_row(view: View, item: Item) -> Row:
    until = item.value.maintenance_until
    return {**item.value._asdict(), "is_active": until is not None and view.now <= until}


CLUSTERS: Final = ApiResource(
    name="clusters",
    summary="Clusters",
    help="Every cluster: primary source, data age, partitions per state, totals, brokers, sources.",
    columns=CLUSTER_COLUMNS,
    items=lambda view, _: (Item(cluster, name) for name, cluster in sorted(view.clusters.items())),
    key=lambda item: (item.cluster.name,),
    key_types=(str,),
    row=_cluster_row,
)
BROKERS: Final = ApiResource(
    name="brokers",
    summary="Brokers",
    help="Every broker that registered or holds a replica: what it leads and hosts, and whether it is safe to stop.",
    columns=BROKER_COLUMNS,
    filters=(one_of("broker", "Broker id.", lambda item: item.value, number),),
    items=lambda view, _: _brokers(view),
    key=lambda item: (item.cluster.name, item.value),
    key_types=(str, int),
    row=lambda _, item: broker_row(item.cluster, item.value),
)
MAINTENANCE: Final = ApiResource(
    name="maintenance",
    summary="Announced maintenance",
    help="The planned work that isrwatch maintenance announced: of each broker that has some now, or overran it.",
    columns=(
        *columns_of(BROKER_STATE_TABLE, ("cluster_id", "cluster", "broker")),
        *columns_of(
            BROKER_STATE_TABLE,
            (
                "maintenance_since",
                "maintenance_until",
                "maintenance_why",
                "maintenance_overran_at",
            ),
        ),
        required("is_active", "boolean", "the work may take the broker down now"),
    ),
    filters=(one_of("broker", "Broker id.", lambda item: item.value.broker, number),),
    items=lambda view, _: _announced(view),
    key=lambda item: (item.cluster.name, item.value.broker),
    key_types=(str, int),
    row=_maintenance_row,
)
