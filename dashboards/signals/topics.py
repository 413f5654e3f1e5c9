"""Topics: partitions in each state of health."""

from __future__ import annotations

from functools import partial
from typing import Final

from dashboards.promql import Signal, SignalType, Unit
from dashboards.signals.labels import TOPIC

_topic = partial(Signal, labels=TOPIC)

OFFLINE: Final = _topic("Offline", "topic_offline_partitions", "Partitions of the topic without a leader.")
UNDER_MIN_ISR: Final = _topic(
    "Under min ISR", "topic_under_min_isr_partitions", "Partitions of the topic that refuse writes with acks=all."
)
AT_MIN_ISR: Final = _topic(
    "At min ISR", "topic_at_min_isr_partitions", "Partitions whose writes stop with the loss of one more replica."
)
UNDER_REPLICATED: Final = _topic(
    "Under-replicated", "topic_under_replicated_partitions", "Partitions of the topic whose ISR lacks replicas."
)
REASSIGNING: Final = _topic(
    "Being reassigned",
    "topic_reassigning_partitions",
    "Partitions of each topic with a reassignment that is not complete; isrwatch state --reassignments lists them.",
)
ISR_SHRINKS: Final = _topic(
    "ISR shrinks",
    "topic_isr_shrinks_total",
    (
        "ISR shrinks of the topics that have most. One topic alone: its load, its size of batches, or its throttle; "
        "all alike: a broker that they share."
    ),
    kind=SignalType.COUNTER,
)
LEADER_CHANGES: Final = _topic(
    "Leader changes", "topic_leader_changes_total", "Changes of leaders of the topic.", kind=SignalType.COUNTER
)
UNCLEAN_ELECTIONS: Final = _topic(
    "Unclean elections",
    "topic_unclean_elections_total",
    "Leaders elected from outside ISR and ELR: acknowledged records of the topic may be lost.",
    kind=SignalType.COUNTER,
)
UNDER_MIN_ISR_SECONDS: Final = _topic(
    "Under min ISR",
    "topic_under_min_isr_seconds_total",
    "Time that partitions of the topic refused writes with acks=all, in sum.",
    kind=SignalType.COUNTER,
    unit=Unit.SECONDS,
)
SIZE: Final = _topic("Size", "topic_size_bytes", "Size of the logs of all replicas of the topic.", unit=Unit.BYTES)
