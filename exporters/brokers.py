"""The metrics of brokers: who is there, what they lead, host and have in sync, and how often they left an ISR."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporters.metric import OWN_PREFIX, ClusterMetric, Kind, Number, Sample, Sight, flag
from streaming.contracts.events import Cause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from exporters.snapshot import Broker, ClusterSnapshot, Tally

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
)
