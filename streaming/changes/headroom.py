"""Which brokers may stop now, and in which order to restart them. Pure: counts of a tally in, advice out.

The advice holds for one broker at a time: once one is stopped, the counts are others, and so is the advice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.changes.state import BrokerState, ClusterState
    from streaming.changes.tally import Tally
    from streaming.contracts.identifiers import BrokerId

# Any of these says no. A broker that holds a replica of an offline partition may be the one that it waits for.
_DANGERS: Final = ("would_go_offline", "would_go_under_min_isr", "offline_partitions")
_UNKNOWN: Final = "unknown_min_isr_partitions"


def is_safe_to_stop(broker: BrokerState, cluster: ClusterState, tally: Tally) -> bool | None:
    """Tell whether every partition stays online and at its minimum if this broker stopped now.

    Returns:
        None while that is unknown: the cluster was never seen whole or is out of sight, the minimum of a partition is
        unknown, or the broker is not registered, so that there is nothing to stop.
    """
    if not broker.is_registered or not cluster.has_baseline or cluster.sight_until is not None:
        return None
    if any(tally.of_broker(broker.cluster_id, broker.broker, name) for name in _DANGERS):
        return False
    return None if tally.of_broker(broker.cluster_id, broker.broker, _UNKNOWN) else True


def restart_order(brokers: Iterable[BrokerState], cluster: ClusterState, tally: Tally) -> list[BrokerId]:
    """Recommend in which order to restart the brokers of one cluster that are safe to stop.

    Fewest led partitions first, so that leaders move late and few; the active controller last, whose move stops every
    other. Brokers that are fenced or shutting down are on their way already and are left out.
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
