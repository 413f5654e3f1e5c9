"""What Kafka does and the model does not: understood, and let pass by the checker under its own name.

Everything else that a real cluster did and the model did not became a rule of the model.
"""

from __future__ import annotations

from enum import StrEnum


class Quirk(StrEnum):
    """One deviation each; seen on 4.3.1."""

    REPEATED_CHANGE = "repeated change"
    """After an unclean restart, or an unregistration, a partition changes more than once, with the same record.

    ``ClearElr`` empties the ELRs but not the index from brokers to them (``ReplicationControlManager.removeTopicElrs``,
    ``BrokersToElrs``). Once the broker is eligible for the partition again it stands there twice, and when it leaves,
    the array of partitions shrinks by one place while two fall out, so that a zero, partition 0, fills the gap.
    Harmless but for the partition epoch, which leaps.
    """
