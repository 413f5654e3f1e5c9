"""The metrics of brokers: registration, led, hosted and in-sync partitions, ISR removals, restart advice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporters.metrics.metric import OWN_PREFIX, ClusterMetric, Freshness, MetricType, Number, Sample, flag
from streaming.contracts.events import Cause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from exporters.read_model.snapshot import BrokerAdvice, ClusterSnapshot, PartitionCounts
    from streaming.contracts.state import BrokerState

_DERIVED: Final = "derived by the job, a second or two behind the other broker metrics"
LABELS: Final = ("cluster", "broker")
_PREFIX: Final = f"{OWN_PREFIX}broker_"

ISR_REMOVAL_CAUSES: Final = (
    Cause.LAG,
    Cause.LEADER_STALL,
    Cause.FENCED,
    Cause.CONTROLLER_STALL,
    Cause.CONTROLLED_SHUTDOWN,
    Cause.RESTART,
    Cause.UNCLEAN_RESTART,
    Cause.UNREGISTERED,
    Cause.TWO_PROCESSES,
    Cause.DIR_FAILURE,
    Cause.REASSIGNMENT,
    Cause.UNCLEAN_ELECTION,
    Cause.LAST_KNOWN_LEADER,
    Cause.UNKNOWN,
)
"""The causes of an ISR removal.

Each is exposed with 0 from the start: Prometheus' ``increase()`` does not count the first increment of a series that
appears with it.
"""


def _of_broker(value: Callable[[BrokerState], Number | None]) -> Callable[[ClusterSnapshot], Iterator[Sample]]:
    def samples(cluster: ClusterSnapshot) -> Iterator[Sample]:
        for number, broker in sorted(cluster.brokers.items()):
            sample = value(broker)
            if sample is not None:
                yield (cluster.name, str(number)), sample

    return samples


def _registered(cluster: ClusterSnapshot) -> Iterator[Sample]:
    for number, broker in sorted(cluster.brokers.items()):
        registered = flag(cluster.is_registered(broker))
        if registered is not None:
            yield (cluster.name, str(number)), registered


def _of_registered(value: Callable[[BrokerState], Number | None]) -> Callable[[ClusterSnapshot], Iterator[Sample]]:
    """Skips unregistered brokers; their last state would be exposed for ever."""

    def samples(cluster: ClusterSnapshot) -> Iterator[Sample]:
        for number, broker in sorted(cluster.brokers.items()):
            sample = value(broker) if cluster.is_registered(broker) else None
            if sample is not None:
                yield (cluster.name, str(number)), sample

    return samples


def _partition_count(
    counts: Callable[[PartitionCounts], Mapping[int, int]],
) -> Callable[[ClusterSnapshot], Iterator[Sample]]:
    def samples(cluster: ClusterSnapshot) -> Iterator[Sample]:
        by_broker = counts(cluster.counts)
        for number in cluster.known_brokers():
            yield (cluster.name, str(number)), by_broker.get(number, 0)

    return samples


def _advice(
    name: str, text: str, column: str, value: Callable[[BrokerAdvice], Number | None], unit: str = ""
) -> ClusterMetric:
    def samples(cluster: ClusterSnapshot) -> Iterator[Sample]:
        for number, advice in sorted(cluster.advice.brokers.items() if cluster.advice else ()):
            sample = value(advice)
            if sample is not None:
                yield (cluster.name, str(number)), sample

    return ClusterMetric(
        name=f"{_PREFIX}{name}",
        labels=LABELS,
        help=f"{text}; {_DERIVED}.",
        unit=unit,
        freshness=Freshness.ADVICE,
        source=f"broker_state.{column}",
        samples=samples,
    )


def _info(cluster: ClusterSnapshot) -> Iterator[Sample]:
    for number, broker in sorted(cluster.brokers.items()):
        yield (cluster.name, str(number), broker.rack or "", broker.host or ""), 1


def _isr_removals(cluster: ClusterSnapshot) -> Iterator[Sample]:
    for number in cluster.known_brokers():
        by_cause = cluster.isr_removals_of(number)
        if by_cause is not None:
            for cause in ISR_REMOVAL_CAUSES:
                yield (cluster.name, str(number), cause.value), by_cause.get(cause.value, 0)


BROKER_METRICS: Final = (
    ClusterMetric(
        name=f"{_PREFIX}info",
        labels=(*LABELS, "rack", "host"),
        help="Rack and host of the broker; always 1, for joins.",
        source="broker_state.rack, broker_state.host",
        samples=_info,
    ),
    ClusterMetric(
        name=f"{_PREFIX}registered",
        labels=LABELS,
        help="1 while the broker is registered with the controller; absent while unknown: "
        "of one that polls do not list and that has no replicas.",
        source="broker_state.is_registered",
        samples=_registered,
    ),
    ClusterMetric(
        name=f"{_PREFIX}fenced",
        labels=LABELS,
        help="1 while the broker is fenced: it may neither lead nor be in an ISR; "
        "absent while unknown, and of one that is not registered.",
        source="broker_state.is_fenced",
        samples=_of_registered(lambda broker: flag(broker.is_fenced)),
    ),
    ClusterMetric(
        name=f"{_PREFIX}epoch",
        labels=LABELS,
        help="Epoch of the broker's registration: each start has a larger one, however short it was away; "
        "absent while unknown, as with polls, and of one that is not registered.",
        source="broker_state.broker_epoch",
        samples=_of_registered(lambda broker: broker.broker_epoch),
    ),
    ClusterMetric(
        name=f"{_PREFIX}shutting_down",
        labels=LABELS,
        help="1 from a controlled shutdown of the broker until it registers again; absent while unknown.",
        source="broker_state.is_shutting_down",
        samples=_of_broker(lambda broker: flag(broker.is_shutting_down)),
    ),
    ClusterMetric(
        name=f"{_PREFIX}online_log_dirs",
        labels=LABELS,
        help="Log directories that the broker can use; absent while unknown, and of one that is not registered.",
        source="broker_state.log_dirs",
        samples=_of_registered(lambda broker: None if broker.log_dirs is None else len(broker.log_dirs)),
    ),
    ClusterMetric(
        name=f"{_PREFIX}maintenance",
        labels=LABELS,
        help="1 while planned work on the broker is announced and its time is not over.",
        source="broker_state.maintenance_until",
        samples=_of_broker(lambda broker: flag(broker.maintenance_until is not None)),
    ),
    ClusterMetric(
        name=f"{_PREFIX}maintenance_overrun",
        labels=LABELS,
        help="1 while the broker is not back although the time of planned work on it is over; "
        "absent of one that is not registered.",
        source="broker_state.maintenance_overran_at",
        samples=_of_registered(lambda broker: flag(broker.maintenance_overran_at is not None)),
    ),
    ClusterMetric(
        name=f"{_PREFIX}led_partitions",
        labels=LABELS,
        help="Partitions that the broker leads.",
        source="partition_state.leader",
        samples=_partition_count(lambda counts: counts.led),
    ),
    ClusterMetric(
        name=f"{_PREFIX}hosted_partitions",
        labels=LABELS,
        help="Partitions of which a replica is assigned to the broker.",
        source="partition_state.replicas",
        samples=_partition_count(lambda counts: counts.hosted),
    ),
    ClusterMetric(
        name=f"{_PREFIX}in_sync_partitions",
        labels=LABELS,
        help="Partitions whose ISR contains the broker.",
        source="partition_state.isr",
        samples=_partition_count(lambda counts: counts.in_sync),
    ),
    ClusterMetric(
        name=f"{_PREFIX}isr_departures_total",
        kind=MetricType.COUNTER,
        labels=(*LABELS, "cause"),
        help="ISR removals: how often the broker left the ISR of a partition, by cause.",
        freshness=Freshness.NOT_REQUIRED,
        source="broker_state.isr_departures, partition_changes.left_isr, partition_changes.cause",
        samples=_isr_removals,
    ),
    _advice(
        "would_go_under_min_isr_partitions",
        "Partitions that would go under min ISR if the broker stopped now",
        "would_go_under_min_isr",
        lambda advice: advice.would_go_under_min_isr,
    ),
    _advice(
        "would_go_offline_partitions",
        "Partitions that no replica could lead if the broker stopped now",
        "would_go_offline",
        lambda advice: advice.would_go_offline,
    ),
    _advice(
        "unavoidable_offline_partitions",
        "Partitions that a restart of the broker takes offline in any order: they have one replica",
        "unavoidable_offline",
        lambda advice: advice.unavoidable_offline,
    ),
    _advice(
        "unavoidable_under_min_isr_partitions",
        "Partitions that a restart of the broker takes under min ISR in any order: they have no more replicas than it",
        "unavoidable_under_min_isr",
        lambda advice: advice.unavoidable_under_min_isr,
    ),
    _advice(
        "safe_to_stop",
        "1 if no partition is or would be offline or under min ISR with this one broker stopped; absent while unknown",
        "is_safe_to_stop",
        lambda advice: flag(advice.is_safe_to_stop),
    ),
    _advice(
        "restart_order",
        "Position in the recommended restart order, from 1; absent if any order loses what is avoidable, or it is down",
        "restart_order",
        lambda advice: advice.restart_order,
    ),
    _advice(
        "suspect_score",
        "Share of the current ISR shrinks that the broker explains, 0 to 1",
        "suspect_score",
        lambda advice: advice.suspect_score,
        unit="ratio",
    ),
)
