"""Clusters, topics and partitions: how many are in which state, for how long, and what follows."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

from exporters.answers.answer import Row, Sentence, Tone
from exporters.answers.brokers import announced_work
from exporters.answers.subject import FRESHNESS, ClusterSubject, Inquiry, NameFilter
from exporters.read_model.conditions import announced_brokers
from exporters.read_model.snapshot import ClusterTotals, PartitionCounts
from exporters.read_model.times import SECOND
from streaming.contracts.health import (
    AT_MIN_ISR,
    DISKLESS,
    OFFLINE,
    PARTITIONS,
    UNDER_MIN_ISR,
    UNDER_REPLICATED,
    UNKNOWN_MIN_ISR,
    states_of,
)
from streaming.contracts.identifiers import NO_BROKER
from streaming.contracts.sample_tables import GROUP_OFFSETS, GROUPS, TRANSACTIONS
from streaming.contracts.state import ClusterState, PartitionState
from streaming.contracts.topic_roles import KEYED, TopicRole, consequence, keys_by_partition, role_of
from streaming.delta.log.queries import open_ours, query
from streaming.name_patterns import patterns_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from exporters.read_model.snapshot import ClusterSnapshot, TopicPartitions
    from streaming.contracts.columns import Table
    from streaming.contracts.state import ObservedTime

_LISTED: Final = 3
UNHEALTHY: Final = (OFFLINE, UNDER_MIN_ISR, UNDER_REPLICATED)
"""Worst first."""
_COUNTED: Final = (UNDER_REPLICATED, AT_MIN_ISR, UNDER_MIN_ISR, OFFLINE, DISKLESS)
COUNTS: Final = (PARTITIONS, *(f"{state}_partitions" for state in _COUNTED))
_TOTALS: Final = ("isr_shrinks", "isr_expands", "leader_changes", "unclean_elections")
_SPANS: Final = {
    "offline_seconds": "offline_since",
    "under_min_isr_seconds": "under_min_isr_since",
    "under_replicated_seconds": "under_replicated_since",
}


def _counts(of: ClusterSnapshot | PartitionCounts) -> dict[str, int | None]:
    """Count partitions by state."""
    return dict(zip(COUNTS, map(of.in_state, (PARTITIONS, *_COUNTED)), strict=True))


# Clusters.


def cluster_rows(asked: Inquiry) -> list[Row]:
    """Return the clusters, the worst first."""
    rows = [
        {
            **cluster.cluster._asdict(),
            **freshness,
            "controller": cluster.controller,
            "brokers": cluster.registered_brokers(),
            "fenced_brokers": cluster.fenced_brokers(),
            "open_incidents": None if cluster.incidents is None else len(cluster.incidents.open),
            **_counts(cluster),
            **cluster.totals._asdict(),
        }
        for cluster, freshness in asked.clusters
    ]
    return sorted(rows, key=_worst_first)


def _worst_first(row: Row) -> tuple[Any, ...]:
    """Rank what is broken before what is unknown, and that before what is healthy."""
    offline, under, at_minimum = (row[f"{state}_partitions"] for state in (OFFLINE, UNDER_MIN_ISR, AT_MIN_ISR))
    missing = row[f"{UNDER_REPLICATED}_partitions"]
    is_unknown = row["is_stale"] or under is None
    is_worse = (bool(offline), bool(under), is_unknown, bool(at_minimum or missing or row["fenced_brokers"]))
    counts = (offline or 0, under or 0, at_minimum or 0, missing or 0)
    return *(not each for each in is_worse), *(-each for each in counts), row["cluster"]


def said_of_clusters(asked: Inquiry, rows: list[Row]) -> Iterator[Sentence]:
    """Say why there is no cluster."""
    if not rows:
        yield Sentence(asked.no_cluster)


CLUSTERS: Final = ClusterSubject(
    name="clusters",
    help="One row per cluster, the worst first: data age, brokers, partitions by state.",
    filters=(),
    columns=tuple(
        dict.fromkeys(
            (
                *(*FRESHNESS, *ClusterState._fields, "brokers", "fenced_brokers", "open_incidents"),
                *(*COUNTS, *ClusterTotals._fields),
            )
        )
    ),
    rows=cluster_rows,
    said=said_of_clusters,
    has_history=True,
)


# Topics.


def topic_rows(asked: Inquiry) -> Iterator[Row]:
    """Return the totals of each topic."""
    for cluster, freshness in asked.clusters:
        for topic in sorted(cluster.topics.values(), key=lambda topic: topic.topic):
            yield {**freshness, **_topic_row(topic, cluster.cluster.observed)}


def _topic_row(topic: TopicPartitions, observed: ObservedTime) -> Row:
    partitions = topic.partitions.values()
    states = Counter(state for partition in partitions for state in states_of(partition))
    return {
        "topic_id": topic.topic_id,
        "topic": topic.topic,
        **_counts(PartitionCounts(states=states)),
        **{name: sum(getattr(partition, name) or 0 for partition in partitions) for name in _TOTALS},
        **{name: sum(observed.seconds_in(partition, name) for partition in partitions) for name in _SPANS},
    }


def said_of_topics(asked: Inquiry, rows: list[Row]) -> Iterator[Sentence]:
    """Say why there is no topic."""
    if not rows:
        yield Sentence("no topic has been observed" if asked.clusters else asked.no_cluster)


def _topics(asked: Inquiry) -> set[str]:
    return {topic.topic for each, _ in asked.clusters for topic in each.topics.values()}


TOPIC_HELP: Final = "Topic name, 'orders-*', or '!tmp-*' for all others."
TOPIC_FILTER: Final = NameFilter(name="topic", help=TOPIC_HELP, names=lambda row: (row["topic"],), every_name=_topics)
TOPICS: Final = ClusterSubject(
    name="topics",
    help="Show topics: the totals of their partitions.",
    filters=(TOPIC_FILTER,),
    columns=(*FRESHNESS, "topic_id", "topic", *COUNTS, *_TOTALS, *_SPANS),
    rows=topic_rows,
    said=said_of_topics,
    has_history=True,
)


# Partitions.


def partition_rows(asked: Inquiry) -> list[Row]:
    """Return the partitions, worst first in each cluster; healthy ones only on request."""
    rows, chosen = list[Row](), patterns_of(*asked.patterns("topic"))
    for cluster, freshness in asked.clusters:
        until = _counted_until(cluster, asked.now if asked.is_now and not freshness["is_stale"] else None)
        ranked = (
            (_severity(each), each.topic, each.partition, each)
            for each in (cluster.partitions() if asked.question.everything else cluster.unsettled.values())
            if chosen(each.topic, name_of(each.topic, each.partition))
        )
        for (rank, *_), _, _, partition in sorted(ranked, key=lambda each: each[:3]):
            if asked.question.everything or rank < len(UNHEALTHY):
                spent = {name: cluster.cluster.observed.seconds_in(partition, name) for name in _SPANS}
                state = health(partition)
                since = getattr(partition, f"{state}_since", None)
                lasting = None if since is None or until is None else max(0, until - since) / SECOND
                rows.append({**partition._asdict(), **freshness, **spent, "health": state, "health_seconds": lasting})
    return _with_consequences(asked, rows)


def name_of(topic: str, partition: int) -> str:
    """Return the name of a partition, as Kafka writes it."""
    return f"{topic}-{partition}"


def health(partition: PartitionState) -> str:
    """Return the worst state that a partition is in."""
    worst, *_ = _severity(partition)
    if worst < len(UNHEALTHY):
        return UNHEALTHY[worst]
    if partition.is_diskless:
        return DISKLESS
    return UNKNOWN_MIN_ISR if partition.is_under_min_isr is None else "healthy"


def _severity(partition: PartitionState) -> tuple[int, bool, int]:
    """Return a sort key, worst first: worst state, whether one more loss stops writes, the most missing replicas."""
    states = states_of(partition)
    worst = next((rank for rank, state in enumerate(UNHEALTHY) if state in states), len(UNHEALTHY))
    is_not_at_minimum = not partition.is_at_min_isr
    return worst, is_not_at_minimum, 0 if partition.is_diskless else -len(set(partition.replicas) - set(partition.isr))


def _counted_until(cluster: ClusterSnapshot, now: int | None) -> int | None:
    """Return the time up to which an open episode has lasted, by the clock of the data, in UTC microseconds.

    ``now`` is by this machine's clock; None where the data is of the past: then it ends the episode.
    """
    age = None if now is None else cluster.age_seconds(now)
    return cluster.watermark if cluster.watermark is None or age is None else cluster.watermark + round(age * SECOND)


def missing_brokers(row: Mapping[str, Any]) -> list[int]:
    """List the assigned brokers that are not in the ISR, if that means anything."""
    return [] if row["is_diskless"] else [broker for broker in row["replicas"] if broker not in row["isr"]]


def said_of_partitions(asked: Inquiry, rows: list[Row]) -> Iterator[Sentence]:
    """Say why there is no row; else which announced work explains that brokers are missing."""
    if not rows:
        yield Sentence(_no_partitions(asked))
    for (topic, state, follows, owner), numbers in _consequences(rows).items():
        listed = ", ".join(name_of(topic, number) for number in numbers[:_LISTED])
        more = f" and {len(numbers) - _LISTED:,} more" if len(numbers) > _LISTED else ""
        words = state.replace("_", " ").replace("isr", "ISR")
        yield Sentence(f"{listed}{more}{asked.of_cluster(owner)} {words}: {follows}", Tone.WARNING)
    if not asked.is_now:
        return
    missing: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        missing[row["cluster_id"]].update(missing_brokers(row))
    for cluster in asked.current:
        for number in sorted(announced_brokers(cluster, asked.now) & missing[cluster.cluster.cluster_id]):
            work = announced_work(cluster.brokers[number]._asdict(), asked.now)
            yield Sentence(f"work on broker {number}{asked.of_cluster(cluster.name)} is announced {work}")


def _consequences(rows: list[Row]) -> dict[tuple[str, str, str, str], list[int]]:
    """Return the numbers of the partitions of one topic that have one consequence."""
    numbers: dict[tuple[str, str, str, str], list[int]] = defaultdict(list)
    for row in rows:
        if row["consequence"]:
            numbers[row["topic"], row["health"], row["consequence"], row["cluster"]].append(row["partition"])
    return numbers


def _no_partitions(asked: Inquiry) -> str:
    if not asked.clusters:
        return asked.no_cluster
    chosen = patterns_of(*asked.patterns("topic"))
    healthy = sum(
        chosen(each.topic, name_of(each.topic, each.partition))
        for one, _ in asked.clusters
        for each in one.partitions()
    )
    then = " when they were last observed" if any(row["is_stale"] for _, row in asked.clusters) else ""
    return f"no unhealthy partitions{then}; --all shows the {healthy:,} healthy" if healthy else f"no partitions{then}"


def _partitions(asked: Inquiry) -> Iterator[str]:
    for each, _ in asked.clusters:
        for topic in each.topics.values():
            yield topic.topic
            yield from (name_of(topic.topic, number) for number in topic.partitions)


PARTITIONS_OF: Final = NameFilter(
    name="topic",
    help="Topic name, 'orders-*', '!tmp-*' for all others, or a partition: orders-3.",
    names=lambda row: (row["topic"], name_of(row["topic"], row["partition"])),
    every_name=_partitions,
)
PARTITION: Final = ClusterSubject(
    name="partitions",
    help="Show the unhealthy partitions, worst first; with --all every one.",
    filters=(PARTITIONS_OF,),
    columns=tuple(dict.fromkeys((*FRESHNESS, *PartitionState._fields, "health", "health_seconds", "consequence"))),
    rows=partition_rows,
    said=said_of_partitions,
    has_history=True,
)


# Consequences of an internal topic's partition that is offline or under min ISR.

_SAMPLED: Final[Mapping[TopicRole, tuple[tuple[Table, str], ...]]] = {
    TopicRole.CONSUMER_OFFSETS: ((GROUPS, "group"), (GROUP_OFFSETS, "group")),
    TopicRole.TRANSACTION_STATE: ((TRANSACTIONS, "transactional_id"),),
}
"""Samples of groups and of transactional ids with an open transaction; without a coordinator they need none."""


def _with_consequences(asked: Inquiry, rows: list[Row]) -> list[Row]:
    """Add what fails because of each partition; None if it is healthy enough, or of no internal topic."""
    clusters = {each.cluster.cluster_id: each for each, _ in asked.clusters}
    keys: dict[TopicRole, list[Row]] = {}
    counts: dict[tuple[str, str], Counter[int]] = {}
    for row in rows:
        role = role_of(row["topic"]) if row["health"] in {OFFLINE, UNDER_MIN_ISR} else None
        concerned = None
        if role in KEYED and asked.is_now:
            if role not in keys:
                keys[role] = [*_keys(asked, role)]
            place = row["cluster_id"], row["topic_id"]
            if place not in counts:
                of_cluster = {each["key"] for each in keys[role] if each["cluster_id"] == row["cluster_id"]}
                numbers = clusters[row["cluster_id"]].topics[row["topic_id"]].partitions
                counts[place] = keys_by_partition(of_cluster, max(numbers) + 1)
            # No sample at all does not prove that there is no group.
            concerned = counts[place][row["partition"]] if counts[place] else None
        row["consequence"] = None if role is None else consequence(role, concerned)
    return rows


def _keys(asked: Inquiry, role: TopicRole) -> Iterator[Row]:
    for definition, column in _SAMPLED[role]:
        sql = f'SELECT DISTINCT cluster_id, "{column}" AS key FROM rows WHERE "{column}" IS NOT NULL'  # noqa: S608 - our own names
        sql += f" AND coordinator IS DISTINCT FROM {NO_BROKER}"
        with asked.reading(definition):
            table = open_ours(asked.tables.folder, definition)
            yield from () if table is None else query(table, sql).to_pylist()
