"""The controllers of a cluster: one replicated state, a disk for each, and who of them is active."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.identifiers import BrokerId
from streaming.model.broker.leader import UNKNOWN_OFFSET
from streaming.model.controller.controller import Controller
from streaming.model.messages.network import controllers
from streaming.model.nodes.quorum.controller_process import ControllerProcess
from streaming.model.nodes.quorum.raft_log import QuorumDisk

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.contracts.identifiers import Micros
    from streaming.model.constants import Constants

Jitter = Callable[[BrokerId, int], int]


def staggered(node: BrokerId, below: int) -> int:
    """Spread elections without chance: each controller has a time of its own in ``[0, below)``."""
    return -node % 10 * below // 10


class Controllers:
    """State that outlives the controllers' processes.

    Attributes:
        state: what the quorum replicates; at any time it is what the newest active controller knows.
        nodes: the addresses of all controllers.
        running: their processes, paused ones included.
    """

    def __init__(self, constants: Constants, *, origin: Micros, jitter: Jitter) -> None:
        self.state = Controller(constants, origin=origin)
        self.nodes = controllers(constants.controllers)
        self.running: dict[BrokerId, ControllerProcess] = {}
        self._constants = constants
        self._jitter = jitter
        self._disks = {node: QuorumDisk() for node in self.nodes}

    def create(self, node: BrokerId, incarnation_id: str) -> ControllerProcess:
        """Make a process out of what is on a controller's disk."""
        process = self.running[node] = ControllerProcess(
            node,
            incarnation_id,
            self.nodes,
            self._constants,
            state=self.state,
            disk=self._disks[node],
            jitter=partial(self._jitter, node),
        )
        return process

    @property
    def active(self) -> BrokerId | None:
        """Active controller; None while there is none."""
        return next((node for node, process in self.running.items() if process.is_active), None)

    def disconnected(self, broker: BrokerId) -> None:
        """A broker's process ended: what it was to be told or answered is lost with the connection."""
        self.state.unsubscribe(broker)
        for process in self.running.values():
            process.disconnected(broker)

    def describe(self, now: int) -> QuorumDescription | None:
        """Return what the active controller knows of the quorum; None while none is active."""
        node = self.active
        return None if node is None else describe(now, self.running[node], self.state.writer.subscribers)


# Description of the quorum by the active controller (DescribeQuorum, KIP-836). Reads; changes nothing.


_NOTHING: Final = (None, None, None)


class QuorumMember(NamedTuple):
    """One voter or observer; None where its leader does not know yet. Times are model milliseconds."""

    node: int
    is_voter: bool
    log_end_offset: int | None
    last_fetch_ms: int | None
    last_caught_up_ms: int | None


class QuorumDescription(NamedTuple):
    """Leader, epoch, high watermark; voters by id, then observers."""

    leader: int
    epoch: int
    high_watermark: int
    members: tuple[QuorumMember, ...]


def describe(now: int, process: ControllerProcess, observers: Iterable[BrokerId]) -> QuorumDescription:
    """Tell what a leader knows.

    Departs from Kafka: brokers are told of the metadata log and do not fetch it, so no position of theirs is known.
    """
    raft, leader = process.raft, -process.node
    assert raft.leader_state is not None, "only a leader knows"  # noqa: S101 - the caller asks the active controller
    members = [QuorumMember(leader, True, raft.log.end, now, now)]
    for node, remote in raft.leader_state.remotes.items():
        has_fetched = remote.log_end_offset != UNKNOWN_OFFSET
        progress = (remote.log_end_offset, remote.last_fetch_ms, remote.last_caught_up_ms) if has_fetched else _NOTHING
        members.append(QuorumMember(-node, True, *progress))
    watching = (QuorumMember(broker, False, *_NOTHING) for broker in sorted(observers))
    return QuorumDescription(leader, raft.epoch, raft.high_watermark, (*sorted(members), *watching))
