"""Whom to ask for the metadata log: the leader as last heard, else every known controller in turn. No socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.sources.metadata_log.messages import FetchAnswer, Leader, Quorum

if TYPE_CHECKING:
    from streaming.sources.metadata_log.connection import Address

NOBODY: Final = -1
_ROUNDS: Final = 2


class Controllers:
    """The controllers of one cluster.

    Attributes:
        target: the controller to ask next.
        epoch: the newest raft epoch heard of; a Fetch must carry it.
        failures: how often in a row somebody could not help.
    """

    def __init__(self) -> None:
        self.target = NOBODY
        self.epoch = 0
        self.failures = 0
        self._addresses: dict[int, Address] = {}
        self._dead = Leader(NOBODY, NOBODY)

    @property
    def address(self) -> Address:
        """Give where the target listens."""
        return self._addresses[self.target]

    @property
    def are_exhausted(self) -> bool:
        """Tell whether nobody is known, or everybody was asked in vain: time to ask the brokers (again)."""
        return not self._addresses or self.failures >= _ROUNDS * len(self._addresses)

    def learn(self, quorum: Quorum) -> None:
        """Take what the brokers tell; they have asked the leader itself, so this replaces what was known."""
        self._addresses = dict(quorum.nodes)
        self.target, self.epoch = quorum.leader.node, quorum.leader.epoch
        self.failures = 0

    def refused(self, answer: FetchAnswer) -> None:
        """Take what a controller tells that does not serve us: mostly who leads instead."""
        self.failures += 1
        self._addresses.update(answer.nodes)
        heard = answer.leader or Leader(NOBODY, NOBODY)
        is_news = heard.epoch >= self.epoch and heard != self._dead and heard.node in self._addresses
        self.epoch = max(self.epoch, heard.epoch)
        self.target = heard.node if is_news else self._next()

    def disconnected(self) -> None:
        """Remember that the connection broke: perhaps somebody else leads now, perhaps nothing happened."""
        self.failures += 1
        self.target = self._next()

    def unreachable(self) -> None:
        """Remember that the target cannot be connected to: its followers may believe in it for a while."""
        self._dead = Leader(self.target, self.epoch)
        self.disconnected()

    def served(self) -> None:
        """Remember that the target leads."""
        self.failures = 0
        self._dead = Leader(NOBODY, NOBODY)

    def _next(self) -> int:
        """Give the controller after the target, by id."""
        ids = sorted(self._addresses)
        return next((node for node in ids if node > self.target), ids[0])
