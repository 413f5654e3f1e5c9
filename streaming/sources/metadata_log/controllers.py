"""The controller to fetch the metadata log from: the last known leader, else every controller in turn. No socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.sources.metadata_log.messages import FetchResponseFields
from streaming.sources.protocol.quorum_messages import Leader, Quorum

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming.sources.address import Address

NO_NODE: Final = -1
_ROUNDS: Final = 2


class Controllers:
    """The controllers of one cluster.

    Args:
        fixed: their addresses, whatever they say; without any, those that they say.

    Attributes:
        target: the controller for the next request.
        epoch: the newest known leader epoch, which a Fetch must carry. It never decreases, except by :meth:`learn`.
        failures: consecutive requests without success.
    """

    def __init__(self, fixed: Mapping[int, Address]) -> None:
        self.target = NO_NODE
        self.epoch = 0
        self.failures = 0
        self._fixed = fixed
        self._addresses: dict[int, Address] = {}
        self._unreachable_leader = Leader(NO_NODE, NO_NODE)

    @property
    def address(self) -> Address:
        """The address of the target."""
        return self._addresses[self.target]

    @property
    def are_exhausted(self) -> bool:
        """Whether no controller is known, or all of them failed: the brokers must be asked."""
        return not self._addresses or self.failures >= _ROUNDS * len(self._addresses)

    def learn(self, quorum: Quorum) -> None:
        """Replace everything by a DescribeQuorum response: brokers forward that request to the leader itself."""
        self._addresses = dict(quorum.nodes)
        self.target, self.epoch = quorum.leader.node, quorum.leader.epoch
        self.failures = 0

    def try_fixed(self) -> bool:
        """Ask the controllers at their fixed addresses, if there are any, which of them leads."""
        self._addresses = dict(self._fixed)
        self.failures = 0
        if self._fixed and self.target not in self._fixed:
            self.target = self._next()
        return bool(self._fixed)

    def refused(self, response: FetchResponseFields) -> None:
        """Process an error response, which mostly contains the current leader.

        The leader in it is ignored when its epoch is older than the newest known one, when it was unreachable in this
        very epoch (its followers still name it until the next election), or when its address is unknown.
        """
        self.failures += 1
        self._addresses.update({} if self._fixed else response.nodes)
        leader = response.leader or Leader(NO_NODE, NO_NODE)
        is_usable = leader.epoch >= self.epoch and leader != self._unreachable_leader and leader.node in self._addresses
        self.epoch = max(self.epoch, leader.epoch)
        self.target = leader.node if is_usable else self._next()

    def disconnected(self) -> None:
        """Note that the connection broke, and try the next controller."""
        self.failures += 1
        self.target = self._next()

    def unreachable(self) -> None:
        """Note that the target refuses connections, and try the next controller."""
        self._unreachable_leader = Leader(self.target, self.epoch)
        self.disconnected()

    def served(self) -> None:
        """Note that the target responded as the leader."""
        self.failures = 0
        self._unreachable_leader = Leader(NO_NODE, NO_NODE)

    def _next(self) -> int:
        """Return the controller with the next id."""
        ids = sorted(self._addresses)
        return next((node for node in ids if node > self.target), ids[0])
