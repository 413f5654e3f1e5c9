"""The controllers of a cluster: one replicated state, a disk for each, and who of them is active."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from streaming.contracts.identifiers import BrokerId
from streaming.model.controller.controller import Controller
from streaming.model.messages.outbox import controllers
from streaming.model.quorum.controller_process import ControllerProcess
from streaming.model.quorum.description import QuorumDescription, describe
from streaming.model.quorum.raft_log import QuorumDisk

if TYPE_CHECKING:
    from streaming.contracts.identifiers import Micros
    from streaming.model.constants import Constants

Jitter = Callable[[BrokerId, int], int]


def staggered(node: BrokerId, below: int) -> int:
    """Spread elections without chance: each controller has a time of its own in ``[0, below)``."""
    return -node % 10 * below // 10


class Controllers:
    """What outlives the controllers' processes.

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
        """Who is active now; None while nobody is."""
        return next((node for node, process in self.running.items() if process.is_active), None)

    def disconnected(self, broker: BrokerId) -> None:
        """A broker's process ended: what it was to be told or answered is lost with the connection."""
        self.state.unsubscribe(broker)
        for process in self.running.values():
            process.disconnected(broker)

    def describe(self, now: int) -> QuorumDescription | None:
        """Tell what the active controller knows of the quorum; None while nobody is active."""
        node = self.active
        return None if node is None else describe(now, self.running[node], self.state.writer.subscribers)
