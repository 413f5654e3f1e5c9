"""Which brokers can stop now, and in which order to restart them. Pure: counts of a tally in, advice out.

The advice holds for one broker at a time: once one is stopped, the counts change, and the advice with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.changes.tally import SuspectTally
    from streaming.contracts.identifiers import BrokerId
    from streaming.contracts.state import BrokerState, ClusterState

# Any of these makes it unsafe. A broker with a replica of an offline partition may be the one that can lead it again.
_DANGERS: Final = ("would_go_offline", "would_go_under_min_isr", "offline_partitions")
_UNKNOWN: Final = "unknown_min_isr_partitions"


def is_safe_to_stop(broker: BrokerState, cluster: ClusterState, tally: SuspectTally) -> bool | None:
    """Return whether every partition would stay online and at its min ISR if this broker stopped now.

    Returns:
        None while that is unknown: there was no full report yet or the data is stale, the min ISR of a partition is
        unknown, or the broker is not registered, so that there is nothing to stop.
    """
    if not broker.is_registered or not cluster.has_baseline or cluster.sight_until is not None:
        return None
    if any(tally.of_broker(broker.cluster_id, broker.broker, name) for name in _DANGERS):
        return False
    return None if tally.of_broker(broker.cluster_id, broker.broker, _UNKNOWN) else True


def restart_order(brokers: Iterable[BrokerState], cluster: ClusterState, tally: SuspectTally) -> list[BrokerId]:
    """Return the order in which to restart the brokers of one cluster that are safe to stop.

    Fewest led partitions first, so that few leaders move, and late; the active controller last, because its failover
    delays all others. Brokers that are fenced or shutting down are restarting already and are left out.
    """
    safe = [
        broker
        for broker in brokers
        if is_safe_to_stop(broker, cluster, tally) and not broker.is_fenced and not broker.is_shutting_down
    ]

    def rank(broker: BrokerState) -> tuple[bool, int, int]:
        led = tally.of_broker(broker.cluster_id, broker.broker, "led_partitions")
        return broker.broker == cluster.controller, led, broker.broker

    return [broker.broker for broker in sorted(safe, key=rank)]
