"""Brokers that are not up, and replicas that have yet to catch up: is it recovering, and how long will it take?

The time left of a broker is that of all its replicas together: what a fetcher spends on one it does not spend on
another, so the slowest alone would say too much. Unknown stays unknown.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from exporters.read_model.times import SECOND
from exporters.terminal.state_view import text
from exporters.terminal.table_layout import Field
from streaming.contracts.identifiers import Micros
from streaming.contracts.liveness import FRESH, SESSION_TIMEOUT_MS, Liveness, advice, agent_samples, liveness_of
from streaming.contracts.sample_tables import REPLICA_OFFSETS
from streaming.contracts.slopes import seconds_left
from streaming.delta.log.queries import open_ours, plain, query

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from exporters.read_model.snapshot import ClusterSnapshot
    from exporters.terminal.state_selection import StateSelection
    from streaming.contracts.state import BrokerState
    from streaming.delta.store.place import Place

COLUMNS: Final = (
    "broker_liveness", "liveness_advice", "logs_to_recover", "replicas_to_rejoin", "rejoin_lag", "rejoin_seconds",
)  # fmt: skip


class ReplicaKey(NamedTuple):
    """One replica."""

    topic_id: str
    partition: int
    broker: int


class ReplicaLag(NamedTuple):
    """Lag of a replica, in records, its pace, and the time of its sample. None is unknown."""

    lag: int | None = None
    lag_per_second: float | None = None
    collected_at: int = 0


Lags = dict[ReplicaKey, ReplicaLag]


def with_recovery(rows: list[dict[str, Any]], selection: StateSelection, now: int) -> None:
    """Add the columns to the rows of brokers; they are None where the state is stale, or not the present one.

    Args:
        rows: of brokers.
        selection: of clusters.
        now: UTC microseconds.
    """
    current = [each for each, row in selection.clusters if selection.is_now and not row["is_stale"]]
    lags: dict[str, Lags] = {}
    with selection.unreadable.collected():
        lags = lags_by_cluster(selection.folder, current, now)
    columns = {
        each.cluster.cluster_id: recovery_columns(each, lags.get(each.cluster.cluster_id, {}), now) for each in current
    }
    for row in rows:
        row.update(dict.fromkeys(COLUMNS) | columns.get(row["cluster_id"], {}).get(row["broker"], {}))


def recovery_fields(rows: list[dict[str, Any]]) -> tuple[Field, ...]:
    """Return the columns on a terminal; none while every replica is in sync."""
    if not any(row["replicas_to_rejoin"] for row in rows):
        return ()
    return (
        Field("to rejoin", text("replicas_to_rejoin"), is_number=True),
        Field(
            "caught up in", lambda row: text("rejoin_seconds")(row) if row["replicas_to_rejoin"] else "", is_number=True
        ),
    )


def lags_by_cluster(folder: Place, clusters: Iterable[ClusterSnapshot], now: int) -> dict[str, Lags]:
    """Read the lags of the brokers that have a replica outside the ISR, by cluster id; nothing while there is none.

    Args:
        folder: of the tables.
        clusters: whose replicas.
        now: UTC microseconds; a sample of long before says nothing.
    """
    brokers = {each.broker for cluster in clusters for each in _out_of_isr(cluster)}
    table = open_ours(folder, REPLICA_OFFSETS) if brokers else None
    lags: dict[str, Lags] = defaultdict(dict)
    if table is None:
        return lags
    listed = ", ".join(map(str, sorted(brokers)))
    names = "cluster_id, topic_id, partition, broker, lag, lag_per_second, collected_at"
    rows = query(table, f"SELECT {names} FROM rows WHERE broker IN ({listed})")  # noqa: S608 - our own columns, numbers
    for row in plain(rows).to_pylist():
        if now - row["collected_at"] <= FRESH:
            key = ReplicaKey(row["topic_id"], row["partition"], row["broker"])
            lags[row["cluster_id"]][key] = ReplicaLag(row["lag"], row["lag_per_second"], row["collected_at"])
    return lags


def recovery_columns(cluster: ClusterSnapshot, lags: Mapping[ReplicaKey, ReplicaLag], now: int) -> dict[int, Any]:
    """Return the columns of each broker."""
    missing: dict[int, list[ReplicaLag]] = defaultdict(list)
    for key in _out_of_isr(cluster):
        missing[key.broker].append(lags.get(key, ReplicaLag()))
    samples: dict[int, list[tuple[str, float, Micros]]] = defaultdict(list)
    for sample in cluster.samples.broker_metrics or ():
        samples[sample.broker].append((sample.metric, sample.metric_value, Micros(sample.collected_at)))
    session = cluster.cluster.broker_session_timeout_ms or SESSION_TIMEOUT_MS
    columns: dict[int, Any] = {}
    for number in cluster.known_brokers():
        agents = agent_samples(samples[number], Micros(now))
        broker = cluster.brokers.get(number)
        liveness = liveness_of(broker, agents, session)
        columns[number] = {
            "broker_liveness": liveness.value,
            "liveness_advice": None if _is_down_on_purpose(broker, liveness) else advice(liveness, agents),
            "logs_to_recover": agents.logs_left,
            "replicas_to_rejoin": len(missing[number]),
            **_progress(missing[number], now),
        }
    return columns


def _is_down_on_purpose(broker: BrokerState | None, liveness: Liveness) -> bool:
    """Return whether a broker of which no agent says anything stopped cleanly, or may be down for announced work."""
    if broker is None or liveness is not Liveness.UNKNOWN:
        return False
    return bool(broker.is_shutting_down) or broker.maintenance_until is not None


def _out_of_isr(cluster: ClusterSnapshot) -> list[ReplicaKey]:
    """List the replicas that are not in sync; those of a diskless partition never need to be (KIP-1150)."""
    return [
        ReplicaKey(each.topic_id, each.partition, broker)
        for each in cluster.unsettled.values()
        if not each.is_diskless
        for broker in each.replicas
        if broker not in each.isr
    ]


def _progress(replicas: list[ReplicaLag], now: int) -> dict[str, int | float | None]:
    lags = [each.lag for each in replicas if each.lag is not None]
    slopes = [each.lag_per_second for each in replicas if each.lag_per_second is not None]
    lag = sum(lags) if replicas and len(lags) == len(replicas) else None
    left = seconds_left(lag, sum(slopes)) if len(slopes) == len(replicas) else None
    since = (now - min((each.collected_at for each in replicas), default=now)) / SECOND
    return {"rejoin_lag": lag, "rejoin_seconds": None if left is None else max(0.0, left - since)}
