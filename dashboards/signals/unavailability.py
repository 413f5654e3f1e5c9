"""Exact seconds in which partitions of a cluster were not as they should be, summed over its partitions."""

from __future__ import annotations

from functools import partial
from typing import Final

from dashboards.promql import Signal, SignalType, Unit
from dashboards.signals.labels import CLUSTER

_seconds = partial(Signal, labels=CLUSTER, kind=SignalType.COUNTER, unit=Unit.SECONDS)

UNDER_MIN_ISR: Final = _seconds(
    "Writes refused",
    "cluster_under_min_isr_seconds_total",
    (
        "Time under min ISR in this time range, summed over partitions: ten partitions for a minute are ten minutes. "
        "Producers with acks=all were refused there. Exact, however short: independent of scrapes."
    ),
)
OFFLINE: Final = _seconds(
    "Offline",
    "cluster_offline_seconds_total",
    (
        "Time without a leader in this time range, summed over partitions: neither reads nor writes. Elections after "
        "the loss of a broker take a part of a second each, and are counted, too."
    ),
)
UNDER_REPLICATED: Final = _seconds(
    "Under-replicated",
    "cluster_under_replicated_seconds_total",
    (
        "Time with replicas missing in this time range, summed over partitions. Restarts are part of it; it is a cost "
        "of redundancy, not of availability."
    ),
)
UNKNOWN: Final = _seconds(
    "Not observed",
    "cluster_unknown_seconds_total",
    (
        "Time in this time range in which partitions were not observed, summed over them. The other numbers lack what "
        "happened then: with much of it, they say too little."
    ),
)
