"""A quorum on a table: voters, the messages between them, and a hand that carries, holds, reorders or drops them."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from streaming.contracts.identifiers import BrokerId
from streaming.model.constants import Constants
from streaming.model.messages.network import Outbox
from streaming.model.messages.quorum import Entry
from streaming.model.nodes.quorum.raft import Raft
from streaming.model.nodes.quorum.raft_log import QuorumDisk, RaftLog
from streaming.model.nodes.quorum.voter import Role


class Table:
    """Voters 0, 1, …; messages wait in ``mail`` until somebody delivers or drops them; timers ring by themselves.

    Checks after every step: one leader an epoch, log matching, leader completeness, state-machine safety.
    """

    def __init__(self, voters: int, jitter: Callable[[int, int], int], *, pre_vote: bool = True) -> None:
        usual = Constants()
        self.constants = replace(usual, switches=replace(usual.switches, pre_vote=pre_vote))
        self.now = 0
        self.voters = tuple(BrokerId(n) for n in range(voters))
        self.disks = {node: QuorumDisk() for node in self.voters}
        self.running: dict[BrokerId, Raft] = {}
        self.mail: list[tuple[BrokerId, BrokerId, Any]] = []
        self.committed: dict[int, Entry] = {}
        self.leaders: dict[int, BrokerId] = {}
        self._jitter = jitter
        self._outboxes: dict[BrokerId, Outbox] = {}
        self._timers: list[tuple[int, int, BrokerId, Outbox, Any]] = []
        self._number = 0
        self._appended = 0
        for node in self.voters:
            self.start(node)

    def start(self, node: int) -> None:
        node = BrokerId(node)
        if node in self._outboxes:  # what was on its way to the process before was lost with its connections
            self.mail = [letter for letter in self.mail if letter[1] != node]
        outbox = self._outboxes[node] = Outbox()
        self.running[node] = Raft(
            node,
            self.voters,
            self.constants,
            self.disks[node],
            jitter=lambda below: self._jitter(node, below),
            leader_change=lambda _now, epoch, _offset: ("leader", node, epoch),
            outbox=outbox,
        )
        self.running[node].start(self.now)
        self._collect(node)

    def crash(self, node: int) -> None:
        self.running.pop(BrokerId(node), None)

    def leader(self) -> Raft:
        leaders = [raft for raft in self.running.values() if raft.role is Role.LEADER]
        return max(leaders, key=lambda raft: raft.epoch)

    def append(self, node: int) -> None:
        raft = self.running.get(BrokerId(node))
        if raft is not None and raft.role is Role.LEADER:
            self._appended += 1
            raft.append(self.now, ("write", self._appended), 1)
            self._collect(BrokerId(node))

    def resign(self, node: int) -> None:
        if BrokerId(node) in self.running:
            self.running[BrokerId(node)].resign(self.now)
            self._collect(BrokerId(node))

    def deliver(self, index: int) -> None:
        _, receiver, message = self.mail.pop(index)
        if receiver in self.running:
            assert self.running[receiver].receive(self.now, message)
            self._collect(receiver)

    def drop(self, index: int) -> None:
        del self.mail[index]

    def deliver_all(self, *cut: tuple[int, int]) -> None:
        """Deliver what there is and what follows at once; what passes a cut link is lost."""
        while self.mail:
            sender, receiver, _ = self.mail[0]
            if (sender, receiver) in cut or (receiver, sender) in cut:
                self.drop(0)
            else:
                self.deliver(0)

    def pass_time(self, until: int, *cut: tuple[int, int]) -> None:
        """Deliver at once, ring timers when they are due."""
        self.deliver_all(*cut)
        while self._timers and self._timers[0][0] <= until:
            self.ring()
            self.deliver_all(*cut)
        self.now = until

    def ring(self) -> None:
        """Let the next timer ring, if there is one."""
        if not self._timers:
            return
        at, _, node, outbox, timer = heapq.heappop(self._timers)
        self.now = max(self.now, at)
        if node in self.running and self._outboxes[node] is outbox:
            self.running[node].receive(self.now, timer)
            self._collect(node)

    def play(self, action: str, number: int) -> None:
        """One step of a schedule: an action, and a number that picks a voter or a message."""
        node = self.voters[number % len(self.voters)]
        if action == "ring":
            self.ring()
        elif action in {"deliver", "drop"} and self.mail:
            getattr(self, action)(number % len(self.mail))
        elif action in {"append", "crash", "resign"} or (action == "start" and node not in self.running):
            getattr(self, action)(node)

    def _collect(self, node: BrokerId) -> None:
        outbox = self._outboxes[node]
        for delay, timer in outbox.timers:
            self._number += 1
            heapq.heappush(self._timers, (self.now + delay, self._number, node, outbox, timer))
        self.mail += [(node, receiver, message) for receiver, message in outbox.messages]
        outbox.timers, outbox.messages = [], []
        self.check(node)

    # -------------------------------------------------------------- what Raft promises

    def check(self, node: BrokerId) -> None:
        raft = self.running[node]
        if raft.role is Role.LEADER:
            assert self.leaders.setdefault(raft.epoch, node) == node, f"two leaders in epoch {raft.epoch}"
            self._check_leader(raft)
        for entry in raft.log.entries:
            if entry.end_offset <= raft.high_watermark:
                agreed = self.committed.setdefault(entry.base_offset, entry)
                assert agreed == entry, f"{node} applied something else"
        for other in self.voters:
            self._check_match(self.disks[node].log, self.disks[other].log)

    def _check_leader(self, raft: Raft) -> None:
        if raft.epoch == max(self.leaders):
            assert raft.log.end > max(self.committed, default=-1), "a leader lacks something committed"
            for entry in raft.log.entries:
                assert self.committed.get(entry.base_offset, entry) == entry, "a leader has something else"

    @staticmethod
    def _check_match(ours: RaftLog, theirs: RaftLog) -> None:
        """If two logs hold a batch of the same offset and epoch, they agree in everything up to it."""
        others = {entry.base_offset: entry for entry in theirs.entries}
        pairs = [(it, others[it.base_offset]) for it in ours.entries if it.base_offset in others]
        common = [n for n, (a, b) in enumerate(pairs) if a.epoch == b.epoch]
        if common:
            assert all(a == b for a, b in pairs[: common[-1] + 1])


@pytest.fixture
def table() -> Callable[..., Table]:
    """Lay a table for some voters; by default each election takes a different time."""

    def lay(voters: int = 3, jitter: Callable[[int, int], int] | None = None, **options: bool) -> Table:
        return Table(voters, jitter or (lambda node, below: int(node) * below // voters), **options)

    return lay
