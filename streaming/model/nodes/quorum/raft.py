"""One controller in the quorum (``KafkaRaftClient``; KIP-595): messages and timers in, messages and timers out.

Kafka's Raft differs from the paper's in one thing: followers fetch. A fetch at an offset acknowledges everything below
it, and logs that parted are brought together by the answer to a fetch, as those of any other partition.

Departs from Kafka: a waiting fetch is answered by data and not by a high watermark alone (KIP-1166).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.model.broker.leader import RemoteReplica, fetched
from streaming.model.messages.quorum import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    Entry,
    QuorumFetchRequest,
    QuorumFetchResponse,
)
from streaming.model.messages.timers import QuorumFetchWaitOver, VotersDue
from streaming.model.nodes.quorum.voter import Role, RoleTrigger, Voter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from streaming.contracts.identifiers import BrokerId
    from streaming.model.constants import Constants
    from streaming.model.messages.network import Message, Outbox, Timer
    from streaming.model.nodes.quorum.raft_log import QuorumDisk

MAX_FETCH_WAIT_MS: Final = 500


class Raft(Voter):
    """A voter with its log. Feed it with :meth:`receive`; what follows is in the outbox.

    Attributes:
        high_watermark: the batches below are committed, as far as it knows. Invariant: ≤ log end, never falls.
        leader_state: while it leads.

    Args:
        leader_change: makes the batch that begins an epoch: (time, epoch, offset).
        node, voters, constants, disk, jitter, outbox: as for every :class:`Voter`.
    """

    def __init__(  # noqa: PLR0913 - as for every voter
        self,
        node: BrokerId,
        voters: tuple[BrokerId, ...],
        constants: Constants,
        disk: QuorumDisk,
        *,
        jitter: Callable[[int], int],
        leader_change: Callable[[int, int, int], Any],
        outbox: Outbox,
    ) -> None:
        super().__init__(node, voters, constants, disk, jitter=jitter, outbox=outbox)
        self.high_watermark = 0
        self.leader_state: LeaderState | None = None
        self._leader_change = leader_change
        self._request_id = 0
        self._has_wait_timer = False
        self._handlers |= {
            QuorumFetchRequest: self._fetch,
            QuorumFetchResponse: self._fetched,
            QuorumFetchWaitOver: self._fetch_wait_over,
            VotersDue: self._look_at_voters,
        }

    def receive(self, now: int, payload: Message | Timer) -> bool:
        """Take a message or a timer; False if it is none of Raft's."""
        handler = self._handlers.get(type(payload))
        if handler is not None:
            handler(now, payload)
        return handler is not None

    def _leave(self) -> None:
        self.leader_state = None

    # -------------------------------------------------------------- leader

    def _lead(self, now: int) -> None:
        """Begin the epoch with a batch that says so; until that is committed, nothing of this epoch is."""
        self.leader = self._node
        self.leader_state = LeaderState(self._others, self.log.end, now)
        for voter in self._others:
            self._outbox.send(voter, BeginQuorumEpochRequest(self._node, self.epoch))
        if self._others:
            self._outbox.after(self._constants.controller_quorum_fetch_timeout_ms // 2, VotersDue(self.epoch))
        self.append(now, self._leader_change(now, self.epoch, self.log.end), 1)

    def append(self, now: int, payload: Any, records: int) -> None:  # noqa: ANN401 - Raft does not look at it
        """Leader writes a batch. Enabled while it leads."""
        self.log.append(Entry(self.log.end, self.log.end + records, self.epoch, payload))
        self._advance()
        self._answer_waiting(now)

    def _advance(self) -> None:
        """Move the high watermark, and drop what every voter has."""
        assert self.leader_state is not None  # noqa: S101 - only leaders get here
        reached = self.leader_state.high_watermark(self.log.end)
        if reached is not None:
            self.high_watermark = max(self.high_watermark, reached)

    def _fetch(self, now: int, request: QuorumFetchRequest) -> None:
        """Follower fetches: what it has, then data, or a wait for data."""
        self._learn(now, request.epoch, None)
        leading = self.leader_state
        if leading is None or request.epoch != self.epoch:
            self._outbox.send(request.replica, QuorumFetchResponse(self.leader, self.epoch, request.request_id))
            return
        diverging = self.log.diverges_from(request.last_fetched_epoch, request.fetch_offset)
        if diverging is not None:
            answer = QuorumFetchResponse(self._node, self.epoch, request.request_id, diverging=diverging)
            self._outbox.send(request.replica, answer)
            return
        leading.fetched(now, request, self.log.end)
        self._advance()
        leading.parked[request.replica] = (request, now + MAX_FETCH_WAIT_MS)
        self._answer_waiting(now)
        self._set_wait_timer(now)

    def _set_wait_timer(self, now: int) -> None:
        """One timer is enough for all that wait."""
        if self.leader_state is not None and self.leader_state.parked and not self._has_wait_timer:
            earliest = min(until for _, until in self.leader_state.parked.values())
            self._outbox.after(earliest - now, QuorumFetchWaitOver())
            self._has_wait_timer = True

    def _fetch_wait_over(self, now: int, _timer: QuorumFetchWaitOver) -> None:
        self._has_wait_timer = False
        self._answer_waiting(now)
        self._set_wait_timer(now)

    def _answer_waiting(self, now: int) -> None:
        """Answer the fetches that there is data for, or that waited long enough."""
        leading = self.leader_state
        if leading is None:
            return
        for replica, (request, until) in list(leading.parked.items()):
            if request.fetch_offset < self.log.end or until <= now:
                del leading.parked[replica]
                self._outbox.send(replica, self._read(leading, request))

    def _read(self, leading: LeaderState, request: QuorumFetchRequest) -> QuorumFetchResponse:
        return QuorumFetchResponse(
            self._node,
            self.epoch,
            request.request_id,
            entries=self.log.entries_between(request.fetch_offset, self.log.end),
            high_watermark=self.high_watermark,
            log_start=min(leading.everybody_has(self.log.end), self.high_watermark),
        )

    def _look_at_voters(self, now: int, timer: VotersDue) -> None:
        """Leader, each half fetch timeout: call voters that do not fetch; resign if they are too many.

        Departs from Kafka: a majority's silence is noticed at these times only.
        """
        if self.leader_state is None or timer.epoch != self.epoch:
            return
        timeout = self._constants.controller_quorum_fetch_timeout_ms
        if len(self.leader_state.silent(now, timeout * 3 // 2)) > len(self._others) + 1 - self._majority:
            self.resign(now)
            return
        self._outbox.after(timeout // 2, timer)
        for voter in self.leader_state.silent(now, timeout // 2):
            self._outbox.send(voter, BeginQuorumEpochRequest(self._node, self.epoch))

    def resign(self, now: int) -> None:
        """Leader gives up its epoch: the process stops, or a majority is silent. No other one can lead this epoch."""
        if self.leader_state is None:
            return
        successors = self.leader_state.successors()
        self.leader = None
        self._become(now, RoleTrigger.RESIGN)
        for voter in successors:
            self._outbox.send(voter, EndQuorumEpochRequest(self._node, self.epoch, successors))

    def forget(self, offset: int) -> None:
        """Leader lets go of batches that every voter has and that were passed on."""
        if self.leader_state is not None:
            self.log.forget(min(offset, self.leader_state.everybody_has(self.log.end)))

    # -------------------------------------------------------------- follower

    def _follow(self) -> None:
        assert self.leader is not None  # noqa: S101 - followers have one
        self._request_id += 1
        last_epoch, end = self.log.position
        self._outbox.send(self.leader, QuorumFetchRequest(self._node, self.epoch, self._request_id, end, last_epoch))

    def _fetched(self, now: int, response: QuorumFetchResponse) -> None:
        """Leader answers: truncate or append, then fetch again. An answer to an older request is void."""
        self._learn(now, response.epoch, response.leader)
        is_mine = self.role is Role.FOLLOWER and response.request_id == self._request_id
        if not is_mine or response.epoch != self.epoch or response.leader != self.leader:
            return
        self._has_fetched = True
        self._expires_at = now + self._constants.controller_quorum_fetch_timeout_ms
        if response.diverging is not None:
            self.log.truncate_to_diverging(response.diverging)
            assert self.high_watermark <= self.log.end, "a committed batch was truncated"  # noqa: S101 - Raft's promise
        for entry in response.entries:
            self.log.append(entry)
        self.high_watermark = max(self.high_watermark, min(response.high_watermark, self.log.end))
        self.log.forget(response.log_start)
        self._follow()


# Other voters as the leader of an epoch knows them (``LeaderState``): high watermark, and whether they live.
#
# The arithmetic of a majority is :func:`committed_by`, a pure function; progress of one voter is counted as that of
# any follower (``broker.remote_replica``).


def committed_by(ends: Iterable[int]) -> int:
    """Give the offset up to which a majority of logs reaches.

    >>> committed_by([7, 5, 3])
    5
    """
    ordered = sorted(ends, reverse=True)
    return ordered[len(ordered) // 2]


class LeaderState:
    """One epoch of a leader.

    Attributes:
        start_offset: where the epoch begins: the offset of its LeaderChange. The high watermark moves only beyond it.
        remotes: progress of the other voters. Invariant: every voter but this one, and none beyond the log end.
        parked: their fetches that wait for data, with the time at which each is answered at the latest.
    """

    def __init__(self, others: Sequence[BrokerId], start_offset: int, now: int) -> None:
        self.start_offset = start_offset
        self.remotes = {voter: RemoteReplica(last_fetch_ms=now) for voter in others}
        self.parked: dict[BrokerId, tuple[QuorumFetchRequest, int]] = {}

    def fetched(self, now: int, request: QuorumFetchRequest, end: int) -> None:
        """A voter fetches: it has everything below."""
        fetched(self.remotes[request.replica], request.fetch_offset, end, now, 0)

    def high_watermark(self, end: int) -> int | None:
        """Give what a majority has; None until that covers a batch of this epoch.

        What earlier epochs left behind is committed by the first batch of this one, never by counting copies
        (figure 8 of the Raft paper).
        """
        reached = committed_by([end, *(remote.log_end_offset for remote in self.remotes.values())])
        return reached if reached > self.start_offset else None

    def everybody_has(self, end: int) -> int:
        """Give the offset up to which every voter has the log, as far as this leader heard."""
        return min([end, *(remote.log_end_offset for remote in self.remotes.values())])

    def silent(self, now: int, period_ms: int) -> list[BrokerId]:
        """Give the voters that have not fetched within a period."""
        return [voter for voter, remote in self.remotes.items() if now - remote.last_fetch_ms >= period_ms]

    def successors(self) -> tuple[BrokerId, ...]:
        """Give the other voters, the most advanced first."""
        return tuple(sorted(self.remotes, key=lambda voter: -self.remotes[voter].log_end_offset))
