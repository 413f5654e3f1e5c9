"""How the state looks: clusters, partitions, brokers, topics, groups, as rows and as columns for people.

Knows snapshots, no files. What is not known is None in a row and ``?`` for people, never 0.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from exporters import terminal
from exporters.history.moments import SECOND, span
from exporters.history.output import UNKNOWN, Field
from exporters.history.wanted import is_wanted_topic
from exporters.snapshot import Partition
from streaming.contracts.health import (
    AT_MIN_ISR,
    OFFLINE,
    PARTITIONS,
    UNDER_MIN_ISR,
    UNDER_REPLICATED,
    UNKNOWN_MIN_ISR,
    known_by_minimum,
    states_of,
)
from streaming.contracts.totals import seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from exporters.history.output import Row
    from exporters.snapshot import ClusterSnapshot, Topic

UNHEALTHY: Final = (OFFLINE, UNDER_MIN_ISR, UNDER_REPLICATED)
"""The worst first."""
_COUNTED: Final = ("isr_shrinks", "isr_expands", "leader_changes", "unclean_elections")
_SPANS: Final = {
    "offline_seconds": "offline_since",
    "under_min_isr_seconds": "under_min_isr_since",
    "under_replicated_seconds": "under_replicated_since",
}


def cluster_row(cluster: ClusterSnapshot, now: int, stale_after_seconds: float) -> dict[str, Any]:
    """Tell how a cluster is, and how old our sight of it is."""
    return {
        **_sight(cluster, now, stale_after_seconds),
        **cluster.cluster._asdict(),
        "brokers": len(cluster.known_brokers()),
        **_counts(cluster.tally.states),
        **cluster.totals._asdict(),
    }


def _counts(states: Mapping[str, int]) -> dict[str, int | None]:
    """Count partitions by state; what depends on the minimum is unknown while nobody has told one."""
    partitions, unknown = states.get(PARTITIONS, 0), states.get(UNKNOWN_MIN_ISR, 0)
    counts: dict[str, int | None] = {f"{state}_partitions": states.get(state, 0) for state in terminal.STATES}
    for state in (UNDER_MIN_ISR, AT_MIN_ISR):
        counts[f"{state}_partitions"] = known_by_minimum(states.get(state, 0), partitions, unknown)
    del counts[f"{PARTITIONS}_partitions"]
    return {PARTITIONS: partitions, **counts}


def partition_rows(
    cluster: ClusterSnapshot, sight: Row, topics: tuple[str, ...], *, healthy: bool
) -> Iterator[dict[str, Any]]:
    """Tell of the partitions of a cluster, the worst first; the healthy ones only if they are asked for."""
    told = (partition for partition in cluster.partitions() if is_wanted_topic(partition.topic, topics))
    rows = ((_badness(partition), partition) for partition in told)
    for (worst, _), partition in sorted(((key, it) for key, it in rows), key=lambda pair: (pair[0], pair[1][1:3])):
        if healthy or worst < len(UNHEALTHY):
            spent = {name: _spent(partition, name, cluster.watermark) for name in _SPANS}
            yield {**sight, **partition._asdict(), **spent, "health": health(partition)}


def broker_rows(cluster: ClusterSnapshot, sight: Row, more: Mapping[int, Row]) -> Iterator[dict[str, Any]]:
    """Tell of the brokers of a cluster.

    Args:
        cluster: which.
        sight: what every row begins with.
        more: by broker, further columns of ``broker_state``.
    """
    tally = cluster.tally
    for number in cluster.known_brokers():
        broker = cluster.brokers.get(number)
        yield {
            **sight,
            **({} if sight["is_stale"] else more.get(number, {})),  # advice on what is long past is no advice
            **({} if broker is None else broker._asdict()),
            "broker": number,
            "broker_state": terminal.broker_state(broker)[0],
            "led_partitions": tally.led.get(number, 0),
            "hosted_partitions": tally.hosted.get(number, 0),
            "in_sync_partitions": tally.in_sync.get(number, 0),
            "isr_departures": dict(cluster.departures.get(number, {})),
        }


def topic_rows(cluster: ClusterSnapshot, sight: Row, topics: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Tell the totals of each topic."""
    for topic in sorted(cluster.topics.values(), key=lambda topic: topic.topic):
        if is_wanted_topic(topic.topic, topics):
            yield {**sight, **_topic_row(topic, cluster.watermark)}


def _topic_row(topic: Topic, watermark: int | None) -> dict[str, Any]:
    partitions = topic.partitions.values()
    states = Counter(state for partition in partitions for state in states_of(partition))
    return {
        "topic_id": topic.topic_id,
        "topic": topic.topic,
        **_counts(states),
        **{name: sum(getattr(partition, name) or 0 for partition in partitions) for name in _COUNTED},
        **{name: sum(_spent(partition, name, watermark) for partition in partitions) for name in _SPANS},
    }


def health(partition: Partition) -> str:
    """Name how a partition is by the worst that is true of it."""
    worst, _ = _badness(partition)
    if worst < len(UNHEALTHY):
        return UNHEALTHY[worst]
    return UNKNOWN_MIN_ISR if partition.is_under_min_isr is None else "healthy"


def _badness(partition: Partition) -> tuple[int, int]:
    states = states_of(partition)
    worst = next((rank for rank, state in enumerate(UNHEALTHY) if state in states), len(UNHEALTHY))
    return worst, -len(set(partition.replicas) - set(partition.isr))


def _spent(partition: Partition, name: str, watermark: int | None) -> float:
    return seconds_until(getattr(partition, name) or 0.0, getattr(partition, _SPANS[name]), watermark)


def _sight(cluster: ClusterSnapshot, now: int, stale_after_seconds: float) -> dict[str, Any]:
    return {
        "cluster_id": cluster.cluster.cluster_id,
        "cluster": cluster.name,
        "sight_age_seconds": cluster.age_seconds(now),
        "is_stale": cluster.is_stale(now, stale_after_seconds),
    }


def sight_of(row: Row) -> dict[str, Any]:
    """Give what every row of a cluster begins with."""
    return {name: row[name] for name in ("cluster_id", "cluster", "sight_age_seconds", "is_stale")}


def text(name: str) -> Callable[[Row], str]:
    """Show a column as people read it."""

    def told(row: Row) -> str:
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

    return told


def columns_as_fields(names: Iterable[str]) -> tuple[Field, ...]:
    """Show columns under their own names, shortened where all of them are of one kind."""
    endings = ("_partitions", "_seconds")
    return tuple(
        Field(name.removesuffix(endings[0]).removesuffix(endings[1]).replace("_", " "), text(name), is_number=True)
        for name in names
    )


def partition_fields(watermarks: dict[str, int | None]) -> tuple[Field, ...]:
    """Name what people see of a partition.

    Args:
        watermarks: by cluster id, the moment up to which durations are told.
    """

    def lasting(row: Row) -> str:
        told = [row[name] for name in _SPANS.values() if row[name] is not None]
        until = watermarks[row["cluster_id"]]
        return span(max(0, until - min(told)) / SECOND) if told and until is not None else ""

    def cause(row: Row) -> str:
        return f"{row['last_cause']} ({row['last_evidence']})" if row["last_cause"] else ""

    return (
        Field("partition", lambda row: f"{row['topic']}-{row['partition']}"),
        Field("health", lambda row: row["health"].replace("_", " ")),
        Field("for", lasting, is_number=True),
        Field("leader", lambda row: "none" if row["leader"] < 0 else str(row["leader"]), is_number=True),
        Field("ISR", lambda row: text("isr")(row) or "empty"),
        Field("missing", lambda row: ",".join(str(it) for it in row["replicas"] if it not in row["isr"])),
        Field("min ISR", text("min_isr_effective"), is_number=True),
        Field("last cause", cause),
    )


def partition_style(row: Row) -> str:
    """Colour a partition by its health."""
    return terminal.STATE_STYLES.get(row["health"], "")
