"""The state of clusters, partitions, brokers and topics: its rows, and its columns on a terminal.

Knows snapshots, no files. An unknown value is None in a row and ``?`` on a terminal, never 0.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from exporters.read_model.event_filter import matches_topic
from exporters.read_model.snapshot import PartitionCounts
from exporters.read_model.times import SECOND, span
from exporters.terminal import live_view
from exporters.terminal.output import UNKNOWN
from exporters.terminal.table_layout import WORDS, Field
from streaming.contracts.health import (
    DISKLESS,
    OFFLINE,
    PARTITIONS,
    UNDER_MIN_ISR,
    UNDER_REPLICATED,
    UNKNOWN_MIN_ISR,
    states_of,
)
from streaming.contracts.identifiers import UNSEEN_LEADER
from streaming.contracts.state import PartitionState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from exporters.read_model.snapshot import ClusterSnapshot, TopicPartitions
    from exporters.terminal.output import Row
    from streaming.contracts.state import ObservedTime

UNHEALTHY: Final = (OFFLINE, UNDER_MIN_ISR, UNDER_REPLICATED)
"""Worst first."""
_TOTALS: Final = ("isr_shrinks", "isr_expands", "leader_changes", "unclean_elections")
_SPANS: Final = {
    "offline_seconds": "offline_since",
    "under_min_isr_seconds": "under_min_isr_since",
    "under_replicated_seconds": "under_replicated_since",
}


def cluster_row(cluster: ClusterSnapshot, now: int, stale_after_seconds: float) -> dict[str, Any]:
    """Return the row of a cluster: data age, states of its partitions, totals."""
    return {
        **_freshness(cluster, now, stale_after_seconds),
        **cluster.cluster._asdict(),
        "controller": cluster.controller,
        "brokers": cluster.registered_brokers(),
        **_counts(cluster.counts),
        **cluster.totals._asdict(),
    }


def _counts(counts: PartitionCounts) -> dict[str, int | None]:
    """Count partitions by state."""
    others = (state for state in live_view.STATES if state != PARTITIONS)
    by_state = {f"{state}_partitions": counts.in_state(state) for state in others}
    return {PARTITIONS: counts.in_state(PARTITIONS), **by_state}


def partition_rows(
    cluster: ClusterSnapshot, freshness: Row, topics: tuple[str, ...], *, healthy: bool
) -> Iterator[dict[str, Any]]:
    """Return the partitions of a cluster, worst first; healthy ones only on request."""
    selected = (partition for partition in cluster.partitions() if matches_topic(partition.topic, topics))
    ranked = ((_severity(partition), partition) for partition in selected)
    for (rank, *_), partition in sorted(ranked, key=lambda pair: (pair[0], pair[1].topic, pair[1].partition)):
        if healthy or rank < len(UNHEALTHY):
            spent = {name: cluster.cluster.observed.seconds_in(partition, name) for name in _SPANS}
            yield {**freshness, **partition._asdict(), **spent, "health": health(partition)}


def broker_rows(
    cluster: ClusterSnapshot, freshness: Row, further: tuple[str, ...], more: Mapping[int, Row]
) -> Iterator[dict[str, Any]]:
    """Return the brokers of a cluster.

    Args:
        cluster: its snapshot.
        freshness: columns that every row begins with.
        further: further columns of ``broker_state``, which every row has.
        more: their values by broker; None where there is none, or where the state is stale, or they are not renewed.
    """
    counts, is_current = cluster.counts, cluster.is_derived and not freshness["is_stale"]
    for number in cluster.known_brokers():
        broker = cluster.brokers.get(number)
        yield {
            **freshness,
            **dict.fromkeys(further),
            **(more.get(number, {}) if is_current else {}),  # advice on stale state would be wrong
            **({} if broker is None else broker._asdict()),
            "broker": number,
            "broker_state": live_view.broker_state(cluster, number)[0],
            "led_partitions": counts.led.get(number, 0),
            "hosted_partitions": counts.hosted.get(number, 0),
            "in_sync_partitions": counts.in_sync.get(number, 0),
            "isr_departures": cluster.isr_removals_of(number),
        }


def topic_rows(cluster: ClusterSnapshot, freshness: Row, topics: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Return the totals of each topic."""
    for topic in sorted(cluster.topics.values(), key=lambda topic: topic.topic):
        if matches_topic(topic.topic, topics):
            yield {**freshness, **_topic_row(topic, cluster.cluster.observed)}


def _topic_row(topic: TopicPartitions, observed: ObservedTime) -> dict[str, Any]:
    partitions = topic.partitions.values()
    states = Counter(state for partition in partitions for state in states_of(partition))
    return {
        "topic_id": topic.topic_id,
        "topic": topic.topic,
        **_counts(PartitionCounts(states=states)),
        **{name: sum(getattr(partition, name) or 0 for partition in partitions) for name in _TOTALS},
        **{name: sum(observed.seconds_in(partition, name) for partition in partitions) for name in _SPANS},
    }


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


def _freshness(cluster: ClusterSnapshot, now: int, stale_after_seconds: float) -> dict[str, Any]:
    return {
        "cluster_id": cluster.cluster.cluster_id,
        "cluster": cluster.name,
        "data_age_seconds": cluster.age_seconds(now),
        "is_stale": cluster.is_stale(now, stale_after_seconds),
    }


def freshness_columns(row: Row) -> dict[str, Any]:
    """Return the columns that every row of a cluster begins with."""
    return {name: row[name] for name in ("cluster_id", "cluster", "data_age_seconds", "is_stale")}


def text(name: str) -> Callable[[Row], str]:
    """Return a function that formats a column of a row for a terminal."""

    def formatted(row: Row) -> str:
        value = row.get(name)
        if value is None:
            return UNKNOWN
        if isinstance(value, bool):
            return "yes" if value else "no"
        if name.endswith("_seconds") and isinstance(value, int | float):
            return span(value)
        if isinstance(value, float):
            return f"{value:.2f}"
        if isinstance(value, list | tuple):
            return ",".join(map(str, value))
        return f"{value:,}" if isinstance(value, int) else str(value)

    return formatted


def columns_as_fields(names: Iterable[str], below: int = 0) -> tuple[Field, ...]:
    """Return columns titled by their names, without the endings that name the unit."""
    endings = ("_partitions", "_seconds")
    return tuple(
        Field(
            name.removesuffix(endings[0]).removesuffix(endings[1]).replace("_", " ").replace("isr", "ISR"),
            text(name),
            is_number=True,
            below=below,
        )
        for name in names
    )


def counted_until(cluster: ClusterSnapshot, now: int | None) -> int | None:
    """Return the time up to which an open episode has lasted, by the clock of the data, in UTC microseconds.

    Args:
        cluster: its snapshot.
        now: UTC microseconds by this machine's clock; None where the data is of the past: then it ends the episode.
    """
    age = None if now is None else cluster.age_seconds(now)
    return cluster.watermark if cluster.watermark is None or age is None else cluster.watermark + round(age * SECOND)


def partition_fields(until: Mapping[str, int | None]) -> tuple[Field, ...]:
    """Return the columns of a partition.

    Args:
        until: by cluster id, UTC microseconds up to which durations are counted.
    """

    def lasting(row: Row) -> str:
        """Format how long the partition has been in the state that is shown, which is the worst of those it is in."""
        since, end = row.get(f"{row['health']}_since"), until[row["cluster_id"]]
        return span(max(0, end - since) / SECOND) if since is not None and end is not None else ""

    def in_words(row: Row) -> str:
        """Name the state, and whether one loss more makes an under-replicated one refuse acks=all writes."""
        is_at_minimum = row["health"] == UNDER_REPLICATED and row["is_at_min_isr"]
        state = str(row["health"]).replace("_", " ").replace("isr", "ISR")
        return f"{state}, at min ISR" if is_at_minimum else state

    def cause(row: Row) -> str:
        return f"{row['last_cause']} ({row['last_evidence']})" if row["last_cause"] else ""

    return (
        Field("partition", lambda row: f"{row['topic']}-{row['partition']}"),
        Field("health", in_words, wraps=WORDS),
        Field("for", lasting, is_number=True),
        Field("leader", _leader, is_number=True),
        Field("ISR", lambda row: text("isr")(row) or "empty"),
        Field("missing", lambda row: ",".join(map(str, missing_brokers(row)))),
        Field("min ISR", text("min_isr_effective"), is_number=True),
        Field("last cause", cause, wraps=WORDS, below=2),
    )


def _leader(row: Row) -> str:
    return UNKNOWN if row["leader"] == UNSEEN_LEADER else "none" if row["leader"] < 0 else str(row["leader"])


def missing_brokers(row: Row) -> list[int]:
    """List the assigned brokers that are not in the ISR, if that means anything."""
    return [] if row["is_diskless"] else [broker for broker in row["replicas"] if broker not in row["isr"]]


def partition_style(row: Row) -> str:
    """Return the colour of a partition, by its health."""
    return live_view.STATE_STYLES.get(row["health"], "")
