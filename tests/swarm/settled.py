"""What comes true once faults stop: the liveness half. Each gives its complaints, one a line; none once it is true.

Stop the faults, let everything run again, wait :func:`settling_ms`, and ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from streaming.contracts.health import is_under_replicated
from streaming.contracts.identifiers import NO_LEADER
from streaming.model.cluster.cluster import Cluster
from streaming.model.constants import Constants
from streaming.model.invariants.ghost import Ghost


def settling_ms(constants: Constants) -> int:
    """Give the time after which everything has to be well again: sessions, windows, waits and long polls, twice."""
    once = (
        constants.start_up_ms
        + constants.broker_session_timeout_ms
        + constants.replica_lag_time_max_ms
        + constants.replica_fetch_backoff_ms
        + 2 * constants.replica_fetch_wait_max_ms
    )
    return 2 * once


def eventually_runs(cluster: Cluster, _ghost: Ghost) -> Iterator[str]:
    """Every process is unfenced, in its own eyes too. Source: EventuallyRuns, EventuallyUnfenced of Vanlightly."""
    for node, broker in cluster.brokers.items():
        registration = cluster.controller.registry.brokers.get(node)
        if registration is None or not registration.is_active or not broker.lifecycle.is_running:
            yield f"broker {node} is not active: {registration}"


def eventually_no_proposal(cluster: Cluster, _ghost: Ghost) -> Iterator[str]:
    """Every proposed ISR is answered. Source: AlterPartitionEpochEventuallyReachedOrZero of Vanlightly."""
    for node, broker in cluster.brokers.items():
        for key, leader in broker.leadership.led.items():
            if leader.pending is not None:
                yield f"{key}: {node} still waits for {leader.pending}"


def eventually_metadata_converges(cluster: Cluster, _ghost: Ghost) -> Iterator[str]:
    """Leaders know the truth, nobody else leads, every replica is in sync. Source: EventuallyMetadataConverges."""
    for key, state in cluster.controller.registry.partitions.items():
        if state.leader == NO_LEADER or set(state.isr) != set(state.replicas):
            yield f"{key}: not whole: {state}"
        views = {
            node: broker.leadership.led[key].committed
            for node, broker in cluster.brokers.items()
            if key in broker.leadership.led
        }
        if views != {state.leader: state}:
            yield f"{key}: brokers believe {views}, the controller wrote {state}"


def eventually_written(cluster: Cluster, ghost: Ghost) -> Iterator[str]:
    """Every write is acknowledged or refused, and what was acknowledged is on every replica.

    Source: EventuallyWriteIsAcceptedOrRejected, EventuallyAcknowledgedValueFullyReplicated. Writers have stopped.
    """
    for key, state in cluster.controller.registry.partitions.items():
        memory = ghost.memory(key)
        waiting = {leader.broker: spans for leader, spans in memory.waiting.items() if spans}
        if waiting:
            yield f"{key}: no answer yet: {waiting}"
        for broker in state.replicas:
            replica = cluster.disks[broker].replicas.get(key)
            if replica is None or memory.acked.missing_from(replica.log):
                yield f"{key}: {broker} lacks acknowledged records"


def under_replicated_counts_agree(cluster: Cluster, _ghost: Ghost) -> Iterator[str]:
    """The count from the metadata log equals the count from the brokers. Source: ours, the seventh of the checks.

    Scope: partitions that somebody leads; nobody counts the others.
    """
    states = [
        partition for partition in cluster.controller.registry.partitions.values() if partition.leader != NO_LEADER
    ]
    logged = sum(is_under_replicated(state.replicas, state.isr, ()) for state in states)
    under_replicated = sum(
        led_partition.is_under_replicated
        for broker in cluster.brokers.values()
        for led_partition in broker.led_partitions()
    )
    if logged != under_replicated:
        yield f"{logged} under-replicated partitions in the metadata log, {under_replicated} at the brokers"


LIVENESS: Final[tuple[tuple[str, Callable[[Cluster, Ghost], Iterator[str]]], ...]] = (
    ("EventuallyRuns", eventually_runs),
    ("EventuallyNoProposal", eventually_no_proposal),
    ("EventuallyMetadataConverges", eventually_metadata_converges),
    ("EventuallyWritten", eventually_written),
    ("UnderReplicatedCountsAgree", under_replicated_counts_agree),
)


def unsettled(cluster: Cluster, ghost: Ghost) -> list[str]:
    """Give everything that should have come true and did not, with its name."""
    return [f"{name}: {complaint}" for name, holds in LIVENESS for complaint in holds(cluster, ghost)]
