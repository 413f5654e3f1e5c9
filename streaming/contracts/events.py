"""Subject, event and cause of a change: closed sets of subjects, event kinds, causes and evidence."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from enum import StrEnum
from itertools import pairwise
from typing import Final


class Subject(StrEnum):
    """Subject of a change."""

    PARTITION = "partition"
    BROKER = "broker"
    CLUSTER = "cluster"
    SOURCE = "source"


class EventKind(StrEnum):
    """Kind of an event. Partition events ride in a change; the others stand for themselves."""

    ISR_SHRINK = "isr_shrink"
    ISR_EXPAND = "isr_expand"
    LEADER_CHANGE = "leader_change"
    UNCLEAN_ELECTION = "unclean_election"
    OFFLINE = "offline"
    ONLINE = "online"
    UNDER_REPLICATED_BEGAN = "under_replicated_began"
    UNDER_REPLICATED_ENDED = "under_replicated_ended"
    UNDER_MIN_ISR_BEGAN = "under_min_isr_began"
    UNDER_MIN_ISR_ENDED = "under_min_isr_ended"
    REASSIGNMENT_BEGAN = "reassignment_began"
    REASSIGNMENT_COMPLETED = "reassignment_completed"
    REASSIGNMENT_CANCELLED = "reassignment_cancelled"
    TOPIC_CREATED = "topic_created"
    TOPIC_DELETED = "topic_deleted"
    MIN_ISR_CHANGE = "min_isr_change"
    CAUSE_REVISED = "cause_revised"
    CHANGES_MISSED = "changes_missed"
    PROTOCOL_VIOLATION = "protocol_violation"
    REGISTERED = "registered"
    FENCED = "fenced"
    UNFENCED = "unfenced"
    SHUTTING_DOWN = "shutting_down"
    LOG_DIR_OFFLINE = "log_dir_offline"
    UNREGISTERED = "unregistered"
    CONTROLLER_CHANGE = "controller_change"
    CONTROLLER_STALLED = "controller_stalled"
    PRIMARY_SOURCE_CHANGE = "primary_source_change"
    MAINTENANCE_BEGAN = "maintenance_began"
    MAINTENANCE_EXTENDED = "maintenance_extended"
    MAINTENANCE_ENDED = "maintenance_ended"
    MAINTENANCE_LAPSED = "maintenance_lapsed"
    MAINTENANCE_OVERRAN = "maintenance_overran"


class Cause(StrEnum):
    """Why an ISR or a leader changed (the rules: ``streaming.sources.metadata_log.causes``)."""

    LAG = "lag"
    """The leader removed a follower that had not caught up within ``replica.lag.time.max.ms``. Never proven: a leader
    that stood still itself removes its followers by the same records."""
    LEADER_STALL = "leader_stall"
    """The leader stood still, and then removed followers that were healthy."""
    FENCED = "fenced"
    """The session of the broker expired, so the controller fenced it: it crashed, hung or was cut off."""
    CONTROLLER_STALL = "controller_stall"
    """The controller stood still for about as long as a session, and then fenced the broker, whose heartbeats it could
    not receive. If the broker is back at once, without a new registration, it ran all the time."""
    CONTROLLED_SHUTDOWN = "controlled_shutdown"
    """The broker said that it stops, and the controller moved its leaders first."""
    RESTART = "restart"
    """The broker registered again before it was fenced: it was restarted."""
    UNCLEAN_RESTART = "unclean_restart"
    """The broker registered again after a stop that was not clean: it lost its place in the ISR, if it was not fenced
    before, and its eligibility to lead (KIP-966)."""
    DIR_FAILURE = "dir_failure"
    """A log directory of the broker failed."""
    UNREGISTERED = "unregistered"
    """The broker was removed from the cluster."""
    TWO_PROCESSES = "two_processes"
    """Two processes run with the id of the broker: the one that is not registered placed the replica in a directory of
    its own, which the registered one does not have, so the controller took it for lost."""
    REASSIGNMENT = "reassignment"
    """The replicas of the partition were changed."""
    PREFERRED_ELECTION = "preferred_election"
    """The first replica was elected again."""
    UNCLEAN_ELECTION = "unclean_election"
    """A replica outside of ISR and ELR was elected: acknowledged records may be lost."""
    LAST_KNOWN_LEADER = "last_known_leader"
    """The last leader was elected from an empty ISR and ELR (KIP-966): what it lost in a crash is lost."""
    ELR_ELECTION = "elr_election"
    """An eligible leader replica was elected from an empty ISR (KIP-966): no acknowledged record is lost."""
    UNFENCED = "unfenced"
    """The broker is back, and leads a partition again that had no leader."""
    EXPAND = "expand"
    """A follower has caught up, and its leader added it to the ISR."""
    CREATED = "created"
    """The topic, or this partition of it, was created."""
    DELETED = "deleted"
    """The topic was deleted."""
    CONFIG = "config"
    """A configuration of the topic was changed."""
    UNKNOWN = "unknown"
    """The records allow no explanation, or no source saw the step."""


OF_LEADERS: Final = frozenset({Cause.LAG, Cause.LEADER_STALL})
"""The causes of the ISR removals that a leader asks for; every other one is the controller's."""


class Evidence(StrEnum):
    """Evidence for a cause."""

    PROVEN = "proven"
    """The order of the controller's records allows no other cause."""
    AMBIGUOUS = "ambiguous"
    """The order of the controller's records allows several causes, which are listed as candidates."""
    INFERRED = "inferred"
    """From two polls or across a gap, so no source saw the step itself; or by far the likeliest, not proven."""


# Kinds of trouble: one incident is what a person would call one thing that happened.
#
# Harm is one of four: a partition refused writes (under min ISR), had no leader (offline), may have lost acknowledged
# records (unclean election), or lost redundancy without an order. ``PLANNED_CLASSES`` are benign: an operator ordered
# each part of the incident, and nothing but redundancy was missing meanwhile. An elected preferred leader, a stop or a
# registration that touches no partition, and the creation of a topic are no incidents.


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
    """Harmful: a log directory failed; the broker continues with the others, or stops if it was the last."""
    REASSIGNMENT = "reassignment"
    """Benign: partitions are moved to other brokers."""
    UNSAFE_REASSIGNMENT = "unsafe_reassignment"
    """Harmful: a reassignment by which partitions refused writes or had no leader, as when the number of replicas is
    raised and they are fewer than ``min.insync.replicas`` until the new ones have caught up."""
    UNCLEAN_ELECTION = "unclean_election"
    """Harmful: a replica outside ISR and ELR leads, so acknowledged records may be lost. Suspects: who was in the ISR
    and went away before."""
    CONTROLLER_STALL = "controller_stall"
    """Harmful: the controller stood still for about as long as a session, then fenced brokers that ran. Suspect: the
    controller."""
    TWO_PROCESSES = "two_processes"
    """Harmful: two processes run with the id of one broker, and its replicas leave and join ISRs by turns. Suspect:
    that broker, of which one process is to be stopped."""
    CONTROLLER_FAILOVER = "controller_failover"
    """Neither: a controller was elected, another one or the same again; no partition changed."""


PLANNED_CLASSES: Final = frozenset({
    IncidentClass.CONTROLLED_SHUTDOWN,
    IncidentClass.ROLLING_RESTART,
    IncidentClass.REASSIGNMENT,
})  # fmt: skip
"""Benign: proven to be ordered, each part of them."""


class Severity(StrEnum):
    """Severity of an incident at its worst."""

    INFO = "info"
    """No harm: planned work, or nothing was touched."""
    WARNING = "warning"
    """Redundancy is missing, and that was not ordered."""
    CRITICAL = "critical"
    """Writes were refused, partitions had no leader, or acknowledged records may be lost."""


# Meanings of single words in the output: causes, evidence, classes and severity of incidents.
#
# The meaning of a value stands below it in the code; the reference of events and ``isrwatch explain`` show it.


EXPLAINED: Final[Mapping[str, type[StrEnum]]] = {
    "Causes": Cause,
    "Evidence": Evidence,
    "Classes of incidents": IncidentClass,
    "Severity of incidents": Severity,
}
"""The sets of values, by their heading in the reference."""


def meanings(values: type[StrEnum]) -> dict[str, str]:
    """Return the docstring that stands below each value of an enumeration, by value.

    >>> meanings(Severity)["warning"]
    'Redundancy is missing, and that was not ordered.'
    """
    (body,) = (node.body for node in ast.parse(inspect.getsource(values)).body if isinstance(node, ast.ClassDef))
    documented: dict[str, str] = {}
    for node, following in pairwise(body):
        match node, following:
            case ast.Assign(value=ast.Constant(value=str(value))), ast.Expr(value=ast.Constant(value=str(text))):
                documented[value] = " ".join(text.split())
            case _:
                pass
    return documented
