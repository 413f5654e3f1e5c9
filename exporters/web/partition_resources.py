"""Topics and partitions."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from exporters.web.api_resource import ApiResource, Item, any_of, one_of
from exporters.web.parameters import choice, number
from exporters.web.row_schemas import columns_of
from streaming.contracts import health
from streaming.contracts.columns import required
from streaming.contracts.state import PartitionState
from streaming.contracts.tables import CLUSTER_STATE_TABLE, PARTITION_STATE_TABLE
from streaming.contracts.tally import COLUMN_OF_STATE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporters.read_model.snapshot import TopicPartitions
    from exporters.web.api_resource import Row, View
    from exporters.web.parameters import Query

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
