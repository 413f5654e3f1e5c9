"""What kinds of trouble there are: one incident is what a person would call one thing that happened.

Harm is one of four: a partition refused writes (under min ISR), had no leader (offline), may have lost acknowledged
records (unclean election), or lost redundancy without an order. ``PLANNED_CLASSES`` are benign: somebody ordered each
part of the incident, and nothing but redundancy was missing meanwhile. An elected preferred leader, a stop or a
registration that touches no partition, and the creation of a topic are no incidents.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class IncidentClass(StrEnum):
    """The kind of an incident, by its root cause."""

    BROKER_LOSS = "broker_loss"
    """Harmful: brokers crashed, hung or lost the controller, also several in turn; or were stopped and stayed away, or
    did not catch up."""
    RACK_LOSS = "rack_loss"
    """Harmful: all brokers of one rack, and no other, were lost together. Suspects: the brokers of the rack."""
    CONTROLLED_SHUTDOWN = "controlled_shutdown"
    """Benign: one broker, or several at once, stopped cleanly, or went down while work on it was announced; so far no
    other one in turn."""
    ROLLING_RESTART = "rolling_restart"
    """Benign: several brokers stopped cleanly, or as announced, one after the other, and came back."""
    UNSAFE_SHUTDOWN = "unsafe_shutdown"
    """Harmful: clean stops, but partitions could not spare the broker: they refused writes or had no leader."""
    SLOW_FOLLOWER = "slow_follower"
    """Harmful: a broker that runs cannot keep up with its leaders: a slow disk, an overload."""
    LEADER_STALL = "leader_stall"
    """Harmful: a broker stood still for less than a session and then removed healthy followers from ISRs."""
    NETWORK_SPLIT = "network_split"
    """Harmful: brokers reach the controller but not the brokers of the other side. Suspects: the smaller side; both
    where they are equal, or unknown. A broker whose disk holds its followers' fetches, too, leaves the same records."""
    LINK_FAILURE = "link_failure"
    """Harmful: exactly two brokers do not reach each other, and both reach all others. Suspects: both."""
    DISK_FAILURE = "disk_failure"
    """Harmful: a log directory failed; the broker goes on with the others, or stops if it was the last."""
    REASSIGNMENT = "reassignment"
    """Benign: somebody moves partitions to other brokers."""
    UNSAFE_REASSIGNMENT = "unsafe_reassignment"
    """Harmful: a reassignment by which partitions refused writes or had no leader, as when the number of replicas is
    raised and they are fewer than ``min.insync.replicas`` until the new ones have caught up."""
    UNCLEAN_ELECTION = "unclean_election"
    """Harmful: a replica outside ISR and ELR leads, so acknowledged records may be lost. Suspects: who was in the ISR
    and went away before."""
    CONTROLLER_FAILOVER = "controller_failover"
    """Neither: another controller is active; no partition changed."""


PLANNED_CLASSES: Final = frozenset({
    IncidentClass.CONTROLLED_SHUTDOWN,
    IncidentClass.ROLLING_RESTART,
    IncidentClass.REASSIGNMENT,
})  # fmt: skip
"""Benign: proven to be ordered, each part of them."""


class Severity(StrEnum):
    """How bad an incident is, or was at its worst."""

    INFO = "info"
    """No harm: planned work, or nothing was touched."""
    WARNING = "warning"
    """Redundancy is missing, and nobody ordered that."""
    CRITICAL = "critical"
    """Writes were refused, partitions had no leader, or acknowledged records may be lost."""
