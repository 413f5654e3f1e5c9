"""What kinds of trouble there are: one incident is what a person would call one thing that happened."""

from __future__ import annotations

from enum import StrEnum


class IncidentClass(StrEnum):
    """The kind of an incident, by its root cause."""

    BROKER_LOSS = "broker_loss"
    CONTROLLED_SHUTDOWN = "controlled_shutdown"
    ROLLING_RESTART = "rolling_restart"
    SLOW_FOLLOWER = "slow_follower"
    LEADER_STALL = "leader_stall"
    NETWORK_SPLIT = "network_split"
    DISK_FAILURE = "disk_failure"
    REASSIGNMENT = "reassignment"
    UNCLEAN_ELECTION = "unclean_election"
    CONTROLLER_FAILOVER = "controller_failover"
