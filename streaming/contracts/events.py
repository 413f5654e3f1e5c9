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
    """Why an ISR or a leader changed (the rules: ``streaming.sources.metadata_log.causes``)."""

    LAG = "lag"
    """The leader removed a follower that had not caught up within ``replica.lag.time.max.ms``. Never proven: a leader
    that stood still itself removes its followers by the same records."""
    LEADER_STALL = "leader_stall"
    """The leader stood still, and then removed followers that were healthy."""
    FENCED = "fenced"
    """The session of the broker expired, so the controller fenced it: it crashed, hung or was cut off."""
    CONTROLLED_SHUTDOWN = "controlled_shutdown"
    """The broker said that it stops, and the controller moved its leaders first."""
    RESTART = "restart"
    """The broker registered again before it was fenced: it was restarted."""
    UNCLEAN_RESTART = "unclean_restart"
    """The broker was restarted before it was fenced, after a stop that was not clean: it lost its eligibility to lead
    (KIP-966)."""
    DIR_FAILURE = "dir_failure"
    """A log directory of the broker failed."""
    UNREGISTERED = "unregistered"
    """The broker was removed from the cluster."""
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
    """The records allow no explanation, or nobody saw the step."""


OF_LEADERS: Final = frozenset({Cause.LAG, Cause.LEADER_STALL})
"""The causes of the ISR removals that a leader asks for; every other one is the controller's."""


class Evidence(StrEnum):
    """How a cause is known."""

    PROVEN = "proven"
    """The order of the controller's records allows no other cause."""
    AMBIGUOUS = "ambiguous"
    """The order of the controller's records allows several causes, which are listed as candidates."""
    INFERRED = "inferred"
    """From two polls or across a gap, so nobody saw the step itself; or by far the likeliest, not proven."""
