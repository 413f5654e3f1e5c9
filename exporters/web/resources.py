"""Clusters, their brokers, and the planned work that is announced of these."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from exporters.read_model.cluster_health import IGNORABLE, HealthBasis, HealthStatus, document_of, health_of
from exporters.read_model.cluster_samples import GroupRow
from exporters.read_model.group_sums import summed
from exporters.read_model.health_reasons import SEVERITIES, HealthSeverity
from exporters.read_model.snapshot import BrokerAdvice, ClusterTimes, ClusterTotals
from exporters.web.api_resource import CLUSTER, COUNTS, ApiResource, Item, any_of, columns_of, one_of
from exporters.web.parameters import choice, flag, moment, number, seconds
from streaming.contracts import health
from streaming.contracts.columns import Column, required
from streaming.contracts.group_readers import GroupOffsetsRow
from streaming.contracts.sample_tables import GROUP_OFFSETS, GROUPS
from streaming.contracts.state import BrokerState, ClusterState, PartitionState, SourceLag, SourceState
from streaming.contracts.tables import BROKER_STATE_TABLE, CLUSTER_STATE_TABLE, PARTITION_STATE_TABLE, SOURCE_PROGRESS
from streaming.contracts.tally import COLUMN_OF_STATE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporters.read_model.snapshot import ClusterSnapshot, SourceProgress, TopicPartitions
    from exporters.web.api_resource import Row, View
    from exporters.web.parameters import Query

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
        "states": {state: cluster.in_state(state) for state in health.STATES},
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
    help="The planned work that isrwatch maintenance announced, for each broker that has some now, or overran it.",
    columns=(
        *columns_of(BROKER_STATE_TABLE, ("cluster_id", "cluster", "broker")),
        *columns_of(
            BROKER_STATE_TABLE, ("maintenance_since", "maintenance_until", "maintenance_why", "maintenance_overran_at")
        ),
        required("is_active", "boolean", "the work may take the broker down now"),
    ),
    filters=(one_of("broker", "Broker id.", lambda item: item.value.broker, number),),
    items=lambda view, _: _announced(view),
    key=lambda item: (item.cluster.name, item.value.broker),
    key_types=(str, int),
    row=_maintenance_row,
)


# Topics and partitions.


_state = partial(choice, values=health.STATES)
# The states of which a cluster's snapshot has the partitions apart from the others.
_UNSETTLED: Final = frozenset({health.OFFLINE, health.UNDER_REPLICATED, health.UNDER_MIN_ISR, health.REASSIGNING})


def _topics(view: View, query: Query) -> Iterator[Item]:
    allowed = query["topic"]
    for _, cluster in sorted(view.clusters.items()):
        topics = [topic for topic in cluster.topics.values() if not allowed or topic.topic in allowed]
        yield from (Item(cluster, topic) for topic in sorted(topics, key=lambda topic: (topic.topic, topic.topic_id)))


def _partitions(view: View, query: Query) -> Iterator[Item]:
    """Return the partitions; where only unsettled ones fit, only these few."""
    if query["state"] and _UNSETTLED.issuperset(query["state"]):
        for _, cluster in sorted(view.clusters.items()):
            partitions = sorted(
                cluster.unsettled.values(), key=lambda each: (each.topic, each.topic_id, each.partition)
            )
            yield from (Item(cluster, partition) for partition in partitions)
        return
    for cluster, topic in _topics(view, query):
        yield from (Item(cluster, topic.partitions[partition]) for partition in sorted(topic.partitions))


def _states_of_topic(topic: TopicPartitions) -> Counter[str]:
    return Counter(state for partition in topic.partitions.values() for state in health.states_of(partition))


def _counted(states: Counter[str], state: str) -> int | None:
    """Return how many are in a state; None of one that depends on min ISR while that is unknown of all."""
    if state not in health.BY_MINIMUM:
        return states[state]
    with_isr = states[health.PARTITIONS] - states[health.DISKLESS]
    return health.known_by_minimum(states[state], with_isr, states[health.UNKNOWN_MIN_ISR])


def _topic_row(_: View, item: Item) -> Row:
    topic: TopicPartitions = item.value
    states = _states_of_topic(topic)
    return {
        "cluster_id": item.cluster.cluster.cluster_id,
        "topic_id": topic.topic_id,
        "topic": topic.topic,
        "replication_factor": min(
            health.replication_factor(each.replicas, each.adding_replicas) for each in topic.partitions.values()
        ),
        **{COLUMN_OF_STATE[state]: _counted(states, state) for state in health.STATES},
    }


TOPICS: Final = ApiResource(
    name="topics",
    summary="Topics",
    help="Every topic: how many of its partitions are in each state.",
    columns=(
        *columns_of(PARTITION_STATE_TABLE, ("cluster_id", "cluster", "topic_id", "topic")),
        required("replication_factor", "int", "replicas of its smallest partition, those being added left out"),
        *columns_of(CLUSTER_STATE_TABLE, (COLUMN_OF_STATE[state] for state in health.STATES)),
    ),
    filters=(
        one_of("topic", "Topic name.", lambda item: item.value.topic),
        any_of(
            "state", "A partition of the topic is in this state.", lambda item: _states_of_topic(item.value), _state
        ),
    ),
    items=_topics,
    key=lambda item: (item.cluster.name, item.value.topic, item.value.topic_id),
    key_types=(str, str, str),
    row=_topic_row,
)
PARTITIONS: Final = ApiResource(
    name="partitions",
    summary="Partitions",
    help="The state of every partition.",
    columns=columns_of(PARTITION_STATE_TABLE, PartitionState._fields),
    filters=(
        one_of("topic", "Topic name.", lambda item: item.value.topic),
        one_of("partition", "Partition number.", lambda item: item.value.partition, number),
        any_of("state", "The partition is in this state.", lambda item: health.states_of(item.value), _state),
        any_of("broker", "Id of a broker that has a replica of it.", lambda item: item.value.replicas, number),
        one_of("leader", "Id of the broker that leads it.", lambda item: item.value.leader, number),
    ),
    items=_partitions,
    key=lambda item: (item.cluster.name, item.value.topic, item.value.topic_id, item.value.partition),
    key_types=(str, str, str, int),
    row=lambda _, item: item.value._asdict(),
)


# Groups, from the newest samples: each with what its partitions add up to, and each of its partitions.


_SUMS: Final = (
    required("partitions", "long", "partitions for which it has committed something, or that its members read"),
    Column("lag", "long", "offsets that it has not passed, of all partitions; null while unknown of one"),
    Column("lag_seconds", "double", "the largest lag of its partitions in seconds; null while unknown of one"),
    Column("lag_seconds_at_least", "double", "the same of those of which it is known; null while it is of none"),
    required("partitions_of_unknown_lag", "long", "partitions whose lag is unknown"),
    Column("beyond", "long", "offsets by which it stands beyond the end of partitions; null while unknown of all"),
    Column("records_lost", "long", "offsets that were deleted before it committed them; null of a share group"),
    Column("lost_at", "timestamp", "when the last of them was; null if that was before the first sample"),
    Column("committed_at", "timestamp", "when one of its committed offsets was last seen to move forward"),
    required("stuck_partitions", "long", "partitions that are read and where it stands still"),
    required("losing_partitions", "long", "partitions that are read and where it lost something lately"),
    required("uncommitted_partitions", "long", "partitions that a member owns and where it has never committed"),
    required(
        "unread_partitions", "long", "partitions for which it has committed something and that are not read any more"
    ),
    Column("worst_partition", "string", "the partition with the largest lag"),
    Column("worst_lag", "long", "the lag of that"),
)


def _groups(view: View) -> Iterator[Item]:
    """Return each group with its row, if its coordinator describes it, and the rows of its partitions."""
    for _, cluster in sorted(view.clusters.items()):
        described = {row.group: row for row in sorted(cluster.samples.groups or (), key=lambda row: row.collected_at)}
        offsets: defaultdict[str, list[GroupOffsetsRow]] = defaultdict(list)
        for row in cluster.samples.group_offsets or ():
            offsets[row.group].append(row)
        for group in sorted({*described, *offsets}):
            yield Item(cluster, (group, described.get(group), offsets[group]))


def _group_row(_: View, item: Item) -> Row:
    group, described, offsets = item.value
    newest = max((row.collected_at for row in offsets), default=None)
    return {
        "collected_at": newest,
        **({} if described is None else described._asdict()),
        **summed(offsets),
        "cluster_id": item.cluster.cluster.cluster_id,
        "group": group,
    }


def _described(item: Item, name: str) -> Any:  # noqa: ANN401 - of any column
    return getattr(item.value[1], name, None)


def _offsets(view: View) -> Iterator[Item]:
    for _, cluster in sorted(view.clusters.items()):
        rows = cluster.samples.group_offsets or ()
        newest = {(row.group, row.topic, row.partition): row for row in sorted(rows, key=lambda row: row.collected_at)}
        yield from (Item(cluster, newest[key]) for key in sorted(newest))


def _is_read(cluster: ClusterSnapshot) -> bool:
    return cluster.samples.groups is not None and cluster.samples.group_offsets is not None


_NO_HISTORY: Final = "of groups only the newest samples are kept"
GROUP_RESOURCES: Final = (
    ApiResource(
        name="groups",
        summary="Groups",
        help="Every group, as its coordinator describes it, and what its partitions add up to.",
        columns=(
            *columns_of(GROUPS, ("cluster_id", "cluster", "group")),
            *(Column(column.name, column.type, column.comment) for column in columns_of(GROUPS, GroupRow._fields[1:])),
            *_SUMS,
        ),
        filters=(
            one_of("group", "Group id.", lambda item: item.value[0]),
            one_of("state", "State, such as Stable, Empty or Dead.", lambda item: _described(item, "group_state")),
            one_of("broker", "Id of its coordinator.", lambda item: _described(item, "coordinator"), number),
        ),
        items=lambda view, _: _groups(view),
        key=lambda item: (item.cluster.name, item.value[0]),
        key_types=(str, str),
        row=_group_row,
        available={"groups_available": _is_read},
        no_history=_NO_HISTORY,
    ),
    ApiResource(
        name="group_offsets",
        summary="Offsets of groups",
        help="The position of a group in every partition that it has committed or that its members own.",
        columns=columns_of(GROUP_OFFSETS, ("cluster_id", "cluster", *GroupOffsetsRow._fields)),
        filters=(
            one_of("group", "Group id.", lambda item: item.value.group),
            one_of("topic", "Topic name.", lambda item: item.value.topic),
            one_of("partition", "Partition number.", lambda item: item.value.partition, number),
        ),
        items=lambda view, _: _offsets(view),
        key=lambda item: (item.cluster.name, item.value.group, item.value.topic, item.value.partition),
        key_types=(str, str, str, int),
        row=lambda _, item: {"cluster_id": item.cluster.cluster.cluster_id, **item.value._asdict()},
        available={"groups_available": _is_read},
        no_history=_NO_HISTORY,
    ),
)


# Health as JSON: one status for a gate, and each reason with its examples and the age of what it rests on.


PARAMETERS: Final = (
    CLUSTER,
    seconds("max_age", "Seconds: older data says nothing about now; by default export.stale_after."),
    moment("newer_than", "The data must be newer than this: a gate gives the time at which the restart ended."),
    flag("allow_planned", "A cluster from which announced work keeps brokers or replicas away is healthy."),
    choice("ignore", "A condition that does not count.", IGNORABLE, is_repeatable=True),
)
_REASON: Final = (
    required("condition", "string", f"one of {', '.join(SEVERITIES)}"),
    required("severity", "string", f"one of {', '.join(HealthSeverity)}"),
    required("count", "long", "of how many partitions, brokers or other things it is true"),
    required("examples", "string[]", "the first of them"),
    required("more", "long", "how many are not among the examples"),
    Column("since", "timestamp", "when the oldest of them began"),
    Column("age_seconds", "double", "age of the data that it rests on"),
    required("summary", "string", "the reason in words"),
    required("incidents", "string[]", "short ids of the incidents that explain it"),
    required("counts", "boolean", "it keeps the cluster from being healthy; false: the request leaves it out"),
)
HEALTH_COLUMNS: Final = (
    required("cluster_id", "string", "Kafka's cluster id"),
    required("cluster", "string", "display name of the cluster"),
    required("status", "string", f"one of {', '.join(HealthStatus)}"),
    Column("observed_until", "timestamp", "newest time that the answer rests on"),
    Column("age_seconds", "double", "age of that"),
    Column("reasons", [_REASON], "what is wrong, or why that is unknown; empty: nothing", nullable=False),
)
STATUS: Final = required("status", "string", "the worst of the clusters: unhealthy, then unknown, then healthy")


def health_content(view: View, query: Query) -> dict[str, Any]:
    """Return the health of the clusters that a request selects."""
    basis = HealthBasis(
        max_age_seconds=view.stale_after_seconds if query["max_age"] is None else query["max_age"],
        newer_than=query["newer_than"],
        allows_planned=query["allow_planned"],
        ignored=frozenset(query["ignore"]),
    )
    return document_of(health_of(view.clusters, view.unreadable, view.now, basis, view.not_yet), basis)
