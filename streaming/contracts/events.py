"""What a change is about, what happened in it and why: closed sets of subjects, event kinds, causes and evidence."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Subject(StrEnum):
    """What a change is about."""

    PARTITION = "partition"
    BROKER = "broker"
    CLUSTER = "cluster"
    SOURCE = "source"


class EventKind(StrEnum):
    """What happened. Partition events ride in a change; the others stand for themselves."""

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
    AUTHORITY_CHANGE = "authority_change"
    MAINTENANCE_BEGAN = "maintenance_began"
    MAINTENANCE_EXTENDED = "maintenance_extended"
    MAINTENANCE_ENDED = "maintenance_ended"
    MAINTENANCE_LAPSED = "maintenance_lapsed"
    MAINTENANCE_OVERRAN = "maintenance_overran"


class Cause(StrEnum):
    """Why an ISR or a leader changed (the rules: ``streaming.sources.causes``)."""

    LAG = "lag"
    LEADER_STALL = "leader_stall"
    FENCED = "fenced"
    CONTROLLED_SHUTDOWN = "controlled_shutdown"
    RESTART = "restart"
    UNCLEAN_RESTART = "unclean_restart"
    DIR_FAILURE = "dir_failure"
    UNREGISTERED = "unregistered"
    REASSIGNMENT = "reassignment"
    PREFERRED_ELECTION = "preferred_election"
    UNCLEAN_ELECTION = "unclean_election"
    LAST_KNOWN_LEADER = "last_known_leader"
    ELR_ELECTION = "elr_election"
    UNFENCED = "unfenced"
    EXPAND = "expand"
    CREATED = "created"
    DELETED = "deleted"
    CONFIG = "config"
    UNKNOWN = "unknown"


OF_LEADERS: Final = frozenset({Cause.LAG, Cause.LEADER_STALL})
"""The causes of the ISR removals that a leader asks for; every other one is the controller's."""


class Evidence(StrEnum):
    """How a cause is known.

    ``proven``: the record sequence allows no other. ``ambiguous``: it allows the listed candidates.
    ``inferred``: from two polls or across a gap, so nobody saw the step itself; or by far the likeliest, not proven.
    """

    PROVEN = "proven"
    AMBIGUOUS = "ambiguous"
    INFERRED = "inferred"
