"""Leadership of the quorum (``QuorumState``, ``EpochElection``; KIP-595, KIP-996): roles, epochs, votes.

Laws of this file: the role changes in :meth:`Voter._become` and nowhere else, by the table of ``roles``; the epoch
never falls; a voter votes once an epoch and only for a log at least as advanced as its own.

Departs from Kafka: requests are not repeated; a voter that misses an answer notices by its election or fetch timeout.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from streaming.model.messages.quorum import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    VoteRequest,
    VoteResponse,
)
from streaming.model.messages.timers import QuorumTimeout

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from streaming.contracts.identifiers import BrokerId
    from streaming.model.constants import Constants
    from streaming.model.messages.network import Outbox
    from streaming.model.nodes.quorum.raft_log import QuorumDisk, RaftLog

# Roles of a voter of the quorum, and their changes (``QuorumState``), as a table. Pure.


class Role(Enum):
    """Role of a voter in its epoch. One that has voted is unattached until it hears of the winner."""

    UNATTACHED = auto()
    PROSPECTIVE = auto()
    CANDIDATE = auto()
    FOLLOWER = auto()
    LEADER = auto()
    RESIGNED = auto()


class RoleTrigger(Enum):
    """Reason for a voter to change its role."""

    HIGHER_EPOCH = auto()
    LEADER_FOUND = auto()
    TIMEOUT = auto()
    """The election took too long; for a follower, its leader was silent; for a candidate, its back-off is over."""
    MAJORITY = auto()
    REFUSED = auto()
    """So many refused their pre-vote that no majority is possible."""
    RESIGN = auto()
    """The process stops, or a majority has not fetched for one and a half fetch timeouts."""


_U, _P, _C, _F, _L, _R = Role
_HIGHER, _LEADER, _TIMEOUT, _MAJORITY, _REFUSED, _RESIGN = RoleTrigger

# A pair that is missing cannot happen. Prospective voters that lose go back to the leader they know, if they know one.
TABLE: Final[dict[tuple[Role, RoleTrigger], Role]] = {
    (_U, _HIGHER): _U,
    (_U, _LEADER): _F,
    (_U, _TIMEOUT): _P,
    (_P, _HIGHER): _U,
    (_P, _LEADER): _F,
    (_P, _MAJORITY): _C,
    (_P, _REFUSED): _U,
    (_P, _TIMEOUT): _U,
    (_C, _HIGHER): _U,
    (_C, _LEADER): _F,
    (_C, _MAJORITY): _L,
    (_C, _TIMEOUT): _P,
    (_F, _HIGHER): _U,
    (_F, _TIMEOUT): _P,
    (_L, _HIGHER): _U,
    (_L, _RESIGN): _R,
    (_R, _HIGHER): _U,
    (_R, _TIMEOUT): _U,
}


_RETRY_BACKOFF_MS: Final = 100
_ELECTED: Final = frozenset({Role.FOLLOWER, Role.LEADER, Role.RESIGNED})


class Voter:
    """A voter's part in elections; what leaders and followers do is its heir's (:class:`Raft`).

    Attributes:
        role: what it is in its epoch.
        leader: who leads its epoch, as far as it knows.

    Args:
        node: its address.
        voters: the addresses of all, its own included.
        constants: timing and switches.
        disk: what it finds when it starts.
        jitter: gives a number in ``[0, n)``; it spreads elections.
        outbox: where messages and timers go.
    """

    def __init__(  # noqa: PLR0913 - a voter has an address, a disk, a configuration and an environment
        self,
        node: BrokerId,
        voters: tuple[BrokerId, ...],
        constants: Constants,
        disk: QuorumDisk,
        *,
        jitter: Callable[[int], int],
        outbox: Outbox,
    ) -> None:
        self.role = Role.UNATTACHED
        self.leader: BrokerId | None = None
        self._node = node
        self._others = tuple(voter for voter in voters if voter != node)
        self._majority = len(voters) // 2 + 1
        self._constants = constants
        self._disk = disk
        self._jitter = jitter
        self._outbox = outbox
        self._votes: dict[BrokerId, bool] = {}
        self._expires_at = 0
        self._timeout_number = 0
        self._has_fetched = False
        self._is_first = node == voters[0]
        self._handlers: dict[type, Callable[[int, Any], None]] = {
            VoteRequest: self._asked_to_vote,
            VoteResponse: self._voted,
            BeginQuorumEpochRequest: self._leader_calls,
            BeginQuorumEpochResponse: lambda now, response: self._learn(now, response.epoch, response.leader),
            EndQuorumEpochRequest: self._leader_resigned,
            QuorumTimeout: self._timed_out,
        }

    @property
    def epoch(self) -> int:
        """The newest epoch it knows."""
        return self._disk.epoch

    @property
    def log(self) -> RaftLog:
        """Its log."""
        return self._disk.log

    def start(self, now: int) -> None:
        """The process starts. It cannot lead an epoch again in which it voted for itself: it does not know its end.

        Departs from Kafka: the first voter of a new cluster does not wait for its first election timeout.
        """
        if not self._others or (self._is_first and self.epoch == 0):
            self._become(now, RoleTrigger.TIMEOUT)
        else:
            self._expire_after(now, self._election_timeout())

    # -------------------------------------------------------------- roles and epochs

    def _become(self, now: int, trigger: RoleTrigger) -> None:
        """Take the step of the table, and do what entering the new role means."""
        role = TABLE[self.role, trigger]
        if self.role is Role.PROSPECTIVE and role is Role.UNATTACHED and self.leader is not None:
            role = Role.FOLLOWER
        former, self.role = self.role, role
        self._leave()
        if role is Role.PROSPECTIVE:
            self._ask_for_votes(now, pre_vote=self._constants.switches.pre_vote)
        elif role is Role.CANDIDATE:
            self._ask_for_votes(now, pre_vote=False)
        elif role is Role.LEADER:
            self._lead(now)
        elif role is Role.FOLLOWER:
            self._has_fetched = False
            self._expire_after(now, self._constants.controller_quorum_fetch_timeout_ms)
            self._follow()
        elif trigger is not RoleTrigger.HIGHER_EPOCH or former in _ELECTED:
            self._expire_after(now, self._election_timeout())
        # else: its timeout continues, or a voter that cannot win, and tries again and again, would keep off who can

    def _leave(self) -> None:
        """The former role is over."""
        raise NotImplementedError

    def _lead(self, now: int) -> None:
        """It won."""
        raise NotImplementedError

    def _follow(self) -> None:
        """It knows the leader."""
        raise NotImplementedError

    def _learn(self, now: int, epoch: int, leader: BrokerId | None) -> None:
        """Take in what any message tells: a newer epoch ends every role, and a leader is followed."""
        if epoch > self.epoch:
            self._disk.epoch, self._disk.voted, self.leader = epoch, None, None
            self._become(now, RoleTrigger.HIGHER_EPOCH)
        if epoch == self.epoch and leader is not None and self.leader is None and leader != self._node:
            self.leader = leader
            self._become(now, RoleTrigger.LEADER_FOUND)

    def _election_timeout(self) -> int:
        base = self._constants.controller_quorum_election_timeout_ms
        return base + self._jitter(base)

    def _expire_after(self, now: int, delay_ms: int) -> None:
        """Set the one timeout that the current role has; an older one is void."""
        self._expires_at = now + delay_ms
        self._timeout_number += 1
        self._outbox.after(delay_ms, QuorumTimeout(self._timeout_number))

    def _timed_out(self, now: int, timer: QuorumTimeout) -> None:
        if timer.number != self._timeout_number or self.role is Role.LEADER:
            return
        if now < self._expires_at:  # a follower that fetched meanwhile
            self._outbox.after(self._expires_at - now, timer)
            return
        if self.role is Role.RESIGNED:
            self._learn(now, self.epoch + 1, None)
        else:
            self._become(now, RoleTrigger.TIMEOUT)

    # -------------------------------------------------------------- elections

    def _ask_for_votes(self, now: int, *, pre_vote: bool) -> None:
        """Ask every voter. Without pre-votes (before 4.0) a prospective voter is a candidate at once."""
        if self.role is Role.PROSPECTIVE and not pre_vote:
            self._become(now, RoleTrigger.MAJORITY)
            return
        if not pre_vote:
            self._disk.epoch, self._disk.voted, self.leader = self.epoch + 1, self._node, None
        self._votes = {self._node: True}
        self._expire_after(now, self._election_timeout())
        last_epoch, end = self.log.position
        for voter in self._others:
            self._outbox.send(voter, VoteRequest(self._node, self.epoch, last_epoch, end, pre_vote))
        self._count_votes(now)

    def _asked_to_vote(self, now: int, request: VoteRequest) -> None:
        self._learn(now, request.epoch, None)
        granted = request.epoch == self.epoch and self._grants(request)
        if granted and not request.pre_vote:
            self._disk.voted = request.candidate
            self._expire_after(now, self._election_timeout())  # it may win: do not disturb it too soon
        self._outbox.send(
            request.candidate, VoteResponse(self._node, self.epoch, self.leader, request.pre_vote, granted)
        )

    def _grants(self, request: VoteRequest) -> bool:
        """Return whether to vote for a candidate: only for a log at least as advanced, so that no commit is lost."""
        if (request.last_epoch, request.end_offset) < self.log.position or self.role is Role.LEADER:
            return False
        if request.pre_vote:  # who hears from its leader sees no reason for an election
            return self.role is not Role.FOLLOWER or not self._has_fetched
        return self.leader is None and self._disk.voted in {None, request.candidate}

    def _voted(self, now: int, response: VoteResponse) -> None:
        self._learn(now, response.epoch, response.leader)
        asked = Role.PROSPECTIVE if response.pre_vote else Role.CANDIDATE
        if response.epoch == self.epoch and self.role is asked:
            self._votes[response.voter] = response.granted
            self._count_votes(now)

    def _count_votes(self, now: int) -> None:
        granted = sum(self._votes.values())
        if granted >= self._majority:
            self._become(now, RoleTrigger.MAJORITY)
        elif len(self._votes) - granted > len(self._others) + 1 - self._majority:
            self._refused(now)

    def _refused(self, now: int) -> None:
        """A candidate that lost backs off; a prospective voter goes back to where it came from."""
        if self.role is Role.PROSPECTIVE:
            self._become(now, RoleTrigger.REFUSED)
        else:
            self._expire_after(now, self._jitter(self._constants.controller_quorum_election_backoff_max_ms))

    def _leader_calls(self, now: int, request: BeginQuorumEpochRequest) -> None:
        """Another controller leads; if its epoch is over, it should know."""
        self._learn(now, request.epoch, request.leader)
        if request.epoch < self.epoch:
            self._outbox.send(request.leader, BeginQuorumEpochResponse(self.leader, self.epoch))

    def _leader_resigned(self, now: int, request: EndQuorumEpochRequest) -> None:
        """Leader is gone on purpose: the best successor tries at once, the others a little later."""
        self._learn(now, request.epoch, request.leader)
        if self.role is not Role.FOLLOWER or request.epoch != self.epoch or request.leader != self.leader:
            return
        rank = request.successors.index(self._node)
        longest = self._constants.controller_quorum_election_backoff_max_ms
        self._expire_after(now, min(longest, _RETRY_BACKOFF_MS << rank - 1) if rank else 0)
