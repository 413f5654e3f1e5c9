"""Timers by which a process asks to be woken. Values only."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from streaming.contracts.identifiers import BrokerId, TopicPartition


class StartUp(NamedTuple):
    """Timer: a process has loaded its logs."""


class IsrExpiration(NamedTuple):
    """Timer: look for followers that lag."""


class CheckpointDue(NamedTuple):
    """Timer: write down the high watermarks."""


class CleanupDue(NamedTuple):
    """Timer: delete and compact what is due in the logs."""


class HeartbeatDue(NamedTuple):
    """Timer: tell the controller that this broker is alive."""

    number: int


class RegistrationDue(NamedTuple):
    """Timer: ask for the registration (again)."""


class AlterPartitionDue(NamedTuple):
    """Timer: send the proposals that failed once more."""


class FetchWaitOver(NamedTuple):
    """Timer: a long poll has waited for data long enough."""

    follower: BrokerId
    request_id: int


class FetchDue(NamedTuple):
    """Timer: fetch from this leader again after its connection broke."""

    leader: BrokerId


class PartitionFetchDue(NamedTuple):
    """Timer: fetch this partition again after an error."""

    topic_partition: TopicPartition
    leader: BrokerId
    leader_epoch: int


class OperationExpired(NamedTuple):
    """Timer: an operation has waited long enough for partitions to move."""

    number: int


class SessionsDue(NamedTuple):
    """Timer: ZooKeeper looks for sessions that are over."""


class PingDue(NamedTuple):
    """Timer: keep a ZooKeeper session alive."""

    session: int


class IsrChangesDue(NamedTuple):
    """Timer: tell the ZooKeeper controller of the ISRs that this leader wrote."""


class RebalanceDue(NamedTuple):
    """Timer: the ZooKeeper controller looks for leaders that are not the preferred ones."""

    controller_epoch: int


class ControlledShutdownDue(NamedTuple):
    """Timer: ask the ZooKeeper controller once more to be let go."""


class QuorumTimeout(NamedTuple):
    """Timer: an election or a silent leader has taken too long."""

    number: int


class QuorumFetchWaitOver(NamedTuple):
    """Timer: some controller's fetch has waited for data long enough."""


class VotersDue(NamedTuple):
    """Timer: the leader of this epoch looks who of the voters fetches."""

    epoch: int


class AppendLingerOver(NamedTuple):
    """Timer: the open batch of the metadata log is written now, unless it is not the one that began here."""

    base_offset: int


class ControllerTaskDue(NamedTuple):
    """Timer: a periodic task of the active controller, by its name; void when the epoch is over."""

    task: str
    epoch: int
