"""The minimum ISR that counts for a partition: its topic's, else that of the broker that leads it (KIP-226).

Brokers may disagree on the value of their own files. Nobody who leads has a minimum: of a partition without a leader
the largest of its replicas counts, as any of them may lead it next.
"""

from __future__ import annotations

from streaming.contracts.health import effective_min_isr
from streaming.contracts.identifiers import NO_LEADER
from streaming.model.constants import Constants
from streaming.model.messages.registrations import PartitionRegistration
from streaming.sources.simulated.source import TraceEntry


def minimum_of(constants: Constants, of_topic: int | None, state: PartitionRegistration | TraceEntry) -> int:
    """Give the effective minimum; ``of_topic`` None: the topic has no value of its own."""
    own, leaders = dict(constants.min_insync_replicas_of), (state.leader,)
    if of_topic is None:
        leaders = state.replicas if state.leader == NO_LEADER else leaders
        of_topic = max(own.get(broker, constants.min_insync_replicas) for broker in leaders)
    return effective_min_isr(of_topic, state.replicas) or 1
