"""Of each topic: partitions in each state of health."""

from __future__ import annotations

from functools import partial
from typing import Final

from dashboards.promql import Signal, SignalType
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
UNDER_MIN_ISR_SECONDS: Final = _topic(
    "Time under min ISR",
    "topic_under_min_isr_seconds_total",
    "Seconds that partitions of the topic refused writes with acks=all, in sum.",
    kind=SignalType.COUNTER,
)
