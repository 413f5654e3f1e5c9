"""The metrics of brokers: who is there, what they lead, host and have in sync, and how often they left an ISR."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporters.metric import OWN_PREFIX, ClusterMetric, Kind, Number, Sample, Sight, flag
from streaming.contracts import health
from streaming.contracts.events import Cause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from exporters.advice import BrokerAdvice
    from exporters.snapshot import Broker, ClusterSnapshot, Tally

_LAGS: Final = "it follows the table broker_state, a second or two behind"
LABELS: Final = ("cluster", "broker")
_PREFIX: Final = f"{OWN_PREFIX}broker_"

DEPARTURE_CAUSES: Final = (
    Cause.LAG,
    Cause.LEADER_STALL,
    Cause.FENCED,
    Cause.CONTROLLED_SHUTDOWN,
    Cause.RESTART,
    Cause.UNCLEAN_RESTART,
    Cause.DIR_FAILURE,
    Cause.REASSIGNMENT,
    Cause.UNCLEAN_ELECTION,
    Cause.LAST_KNOWN_LEADER,
    Cause.UNKNOWN,
)
"""The causes that can make a broker leave an ISR. Shown from the start with 0: a first increment must be seen."""


def _told(value: Callable[[Broker], Number | None]) -> Callable[[ClusterSnapshot, int], Iterator[Sample]]:
    def samples(cluster: ClusterSnapshot, _: int) -> Iterator[Sample]:
        for number, broker in sorted(cluster.brokers.items()):
            known = value(broker)
            if known is not None:
                yield (cluster.name, str(number)), known

    return samples


def _counted(counts: Callable[[Tally], Mapping[int, int]]) -> Callable[[ClusterSnapshot, int], Iterator[Sample]]:
    def samples(cluster: ClusterSnapshot, _: int) -> Iterator[Sample]:
        known = counts(cluster.tally)
        for number in cluster.known_brokers():
            yield (cluster.name, str(number)), known.get(number, 0)

    return samples


def _advised(name: str, text: str, value: Callable[[BrokerAdvice], Number | None], unit: str = "") -> ClusterMetric:
    def samples(cluster: ClusterSnapshot, _: int) -> Iterator[Sample]:
        for number, advice in sorted(cluster.advice.brokers.items() if cluster.advice else ()):
            known = value(advice)
            if known is not None:
                yield (cluster.name, str(number)), known

    return ClusterMetric(
        name=f"{_PREFIX}{name}", labels=LABELS, help=f"{text}; {_LAGS}.", unit=unit, sight=Sight.ADVICE, samples=samples
    )


def _would_go_under_min_isr(advice: BrokerAdvice) -> int | None:
    """Count them; unknown while the minimum of every partition that the broker is in sync of is."""
    count, partitions = advice.would_go_under_min_isr, advice.in_sync_partitions
    if count is None or partitions is None:
        return None
    return health.known_by_minimum(count, partitions, advice.unknown_min_isr_partitions or 0)


def _info(cluster: ClusterSnapshot, _: int) -> Iterator[Sample]:
    for number, broker in sorted(cluster.brokers.items()):
        yield (cluster.name, str(number), broker.rack or "", broker.host or ""), 1


def _departures(cluster: ClusterSnapshot, _: int) -> Iterator[Sample]:
    for number in cluster.known_brokers():
        counted = cluster.departures.get(number, {})
        for cause in DEPARTURE_CAUSES:
            yield (cluster.name, str(number), cause.value), counted.get(cause.value, 0)


BROKER_METRICS: Final = (
    ClusterMetric(
        name=f"{_PREFIX}info",
        labels=(*LABELS, "rack", "host"),
        help="Rack and host of a broker; always 1, to join with.",
        samples=_info,
    ),
    ClusterMetric(
        name=f"{_PREFIX}registered",
        labels=LABELS,
        help="1 while the controller knows the broker.",
        samples=_told(lambda broker: flag(broker.is_registered)),
    ),
    ClusterMetric(
        name=f"{_PREFIX}fenced",
        labels=LABELS,
        help="1 while the broker is fenced: it may not lead or be in sync; absent while unknown.",
        samples=_told(lambda broker: flag(broker.is_fenced)),
    ),
    ClusterMetric(
        name=f"{_PREFIX}led_partitions",
        labels=LABELS,
        help="Partitions that the broker leads.",
        samples=_counted(lambda tally: tally.led),
    ),
    ClusterMetric(
        name=f"{_PREFIX}hosted_partitions",
        labels=LABELS,
        help="Partitions that the broker is assigned a replica of.",
        samples=_counted(lambda tally: tally.hosted),
    ),
    ClusterMetric(
        name=f"{_PREFIX}in_sync_partitions",
        labels=LABELS,
        help="Partitions whose ISR has the broker.",
        samples=_counted(lambda tally: tally.in_sync),
    ),
    ClusterMetric(
        name=f"{_PREFIX}isr_departures_total",
        kind=Kind.COUNTER,
        labels=(*LABELS, "cause"),
        help="How often the broker left the ISR of a partition, by cause.",
        sight=Sight.NONE,
        samples=_departures,
    ),
    _advised(
        "would_go_under_min_isr_partitions",
        "Partitions that would go under min ISR if the broker stopped now",
        _would_go_under_min_isr,
    ),
    _advised(
        "would_go_offline_partitions",
        "Partitions that would lose their last in-sync replica if the broker stopped now",
        lambda advice: advice.would_go_offline,
    ),
    _advised(
        "safe_to_stop",
        "1 if no partition would go offline or under min ISR if this one broker stopped now; absent while unknown",
        lambda advice: flag(advice.is_safe_to_stop),
    ),
    _advised(
        "restart_order",
        "Place in the recommended order of restarts, from 1; absent where it is not safe or the broker is not up",
        lambda advice: advice.restart_order,
    ),
    _advised(
        "suspect_score",
        "How much the broker explains of every ISR that is shrunk now, 0 to 1",
        lambda advice: advice.suspect_score,
        unit="ratio",
    ),
)
