"""A broker as leader: appends, fetches, shrink and expand (``ReplicaManager``, ``AlterPartitionManager``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import TopicPartition
from streaming.model.broker.fetch_session import FetchSession
from streaming.model.broker.isr_proposals import IsrProposals
from streaming.model.broker.leader import IsrProposal, LeaderPartition
from streaming.model.broker.reading import nothing_new, parting, read, refusal
from streaming.model.broker.remote_replica import RemoteReplica, behind_ms, fetched
from streaming.model.messages.errors import Error
from streaming.model.messages.fetch import FetchedPartition, FetchPartition, FetchRequest, FetchResponse
from streaming.model.messages.timers import FetchWaitOver

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streaming.contracts.identifiers import BrokerId
    from streaming.model.broker.controller_channel import ControllerChannel
    from streaming.model.broker.purgatory import Purgatory
    from streaming.model.constants import Constants
    from streaming.model.controller.partition import BrokerRegistration, PartitionRegistration, TopicRegistration
    from streaming.model.probe import Probe
    from streaming.model.storage.batch import Batch
    from streaming.model.storage.replica import LocalReplica


class Leadership:
    """The partitions a broker leads.

    Attributes:
        broker: who leads.
        led: by partition.
        proposals: ISR changes on their way to the controller.
        probe: an observer, or None.
        stalled: (from, to) of the last time this process did not run; it tells a lag from the leader's own stall.
    """

    def __init__(
        self,
        broker: BrokerId,
        constants: Constants,
        brokers: dict[BrokerId, BrokerRegistration],
        purgatory: Purgatory,
        channel: ControllerChannel,
    ) -> None:
        self.led: dict[TopicPartition, LeaderPartition] = {}
        self.proposals = IsrProposals(broker, constants, self.led, self._isr_committed, channel)
        self.probe: Probe | None = None
        self.stalled = (0, 0)
        self.broker = broker
        self._constants = constants
        self._switches = constants.switches
        self._former_remotes: dict[TopicPartition, dict[BrokerId, RemoteReplica]] = {}
        self.brokers = brokers
        self._purgatory = purgatory
        self._outbox = channel.outbox
        self._sessions: dict[BrokerId, FetchSession] = {}

    # -------------------------------------------------------------- terms of leadership

    def lead(
        self,
        now: int,
        key: TopicPartition,
        topic: TopicRegistration,
        registration: PartitionRegistration,
        replica: LocalReplica,
    ) -> None:
        """Leader learns from metadata that it leads, still leads, or that its ISR changed."""
        partition = self.led.get(key)
        if partition is None or registration.leader_epoch > partition.committed.leader_epoch:
            again = partition is not None
            partition = partition or LeaderPartition(self.broker, key, replica, registration, self._switches)
            partition.remotes |= self._former_remotes.pop(key, {})
            self.led[key] = partition
            self._let_go(partition, registration)
            partition.begin_term(now, registration, topic.min_isr, again=again)
            for session in self._sessions_of(partition):
                session.open(partition)
            if not self._switches.expand_needs_fetch_in_epoch:
                self._expand(partition, *partition.remotes)
            self._advance(now, partition)
        elif registration.partition_epoch > partition.committed.partition_epoch:
            added = partition.accept(registration)
            for session in self._sessions_of(partition):
                if session.follower in added:
                    session.open(partition)
            self._isr_committed(now, partition)
        if self.probe is not None:
            self.probe.informed(key)

    def _let_go(self, partition: LeaderPartition, registration: PartitionRegistration) -> None:
        """Followers that a reassignment removed are none any more."""
        for session in self._sessions_of(partition):
            if session.follower not in registration.replicas:
                session.drop(partition.key)

    def configure(self, topic: TopicRegistration) -> None:
        """Leader learns of a topic's new configuration; high watermarks move with the next fetch."""
        for number in range(topic.partitions):
            partition = self.led.get(TopicPartition(topic.topic_id, number))
            if partition is not None:
                partition.set_min_isr(topic.min_isr)

    def log_start_moved(self, key: TopicPartition) -> None:
        """Leader has deleted its oldest records: the followers are told with the next fetch."""
        for session in self._sessions_of(self.led[key]):
            session.forget_told(self.led[key])

    def resign(self, key: TopicPartition) -> None:
        """Leader learns that it leads no more."""
        partition = self.led.pop(key, None)
        if partition is not None:
            self._purgatory.touch(key)
            if not self._switches.reset_followers_at_new_epoch:
                self._former_remotes[key] = partition.remotes
            if self.probe is not None:
                self.probe.resigned(partition)
            for session in self._sessions_of(partition):
                session.drop(key)

    def _sessions_of(self, partition: LeaderPartition) -> Iterator[FetchSession]:
        for follower in partition.remotes:
            yield self._session(follower)

    def _session(self, follower: BrokerId) -> FetchSession:
        session = self._sessions.get(follower)
        if session is None:
            session = self._sessions[follower] = FetchSession(follower, self._switches)
        return session

    def _advance(self, now: int, partition: LeaderPartition) -> None:
        window = self._constants.replica_lag_time_max_ms
        if partition.advance_high_watermark(now, window, self.brokers):
            self._purgatory.touch(partition.key)
            if self.probe is not None:
                self.probe.advanced(partition)
            for session in self._sessions_of(partition):
                session.unsettle(partition)

    def sessions(self) -> list[FetchSession]:
        """Give the fetch session of each follower."""
        return list(self._sessions.values())

    # -------------------------------------------------------------- data

    def append(self, now: int, appends: Iterable[tuple[TopicPartition, int]], *, acks_all: bool) -> int:
        """Leader takes writes: (partition, records). Returns how many records were refused."""
        refused = 0
        waiting: dict[BrokerId, FetchSession] = {}
        for key, count in appends:
            partition = self.led.get(key)
            if partition is None or (acks_all and not partition.accepts_acks_all):
                refused += count
                continue
            for session in self._awaken(partition):
                waiting[session.follower] = session
            partition.replica.log.append(count, now)
            if self.probe is not None:
                self.probe.appended(partition, partition.replica.log.end - count, acks_all=acks_all)
            self._advance(now, partition)
        for session in waiting.values():
            self._answer(session, ())
        return refused

    def _awaken(self, partition: LeaderPartition) -> list[FetchSession]:
        """Look at every follower's session again, for there is news; give those with a request that waits for it."""
        waiting = []
        for session in self._sessions_of(partition):
            session.unsettle(partition)
            if session.is_parked_on(partition):
                waiting.append(session)
        return waiting

    def append_batch(self, now: int, partition: LeaderPartition, batch: Batch, *, acks_all: bool) -> Batch:
        """Leader writes one batch with producer, keys or marker; gives it as it stands in the log."""
        waiting = self._awaken(partition)
        batch = partition.replica.log.append_batch(batch)
        if self.probe is not None:
            self.probe.appended(partition, batch.base_offset, acks_all=acks_all)
        self._advance(now, partition)
        for session in waiting:
            self._answer(session, ())
        return batch

    def fetch(self, now: int, request: FetchRequest) -> None:
        """Follower fetches: its positions prove what it has; then data, or a wait for data."""
        session = self._session(request.follower)
        for key in list(session.stated) if request.full else request.forgotten:
            if session.stated.pop(key, None) is not None and key in self.led:
                session.unsettle(self.led[key])
        if request.full:
            session.restart()
        session.broker_epoch = request.broker_epoch
        refusals = [answer for item in request.partitions if (answer := self._state(now, session, item))]
        stated_now = {item.topic_partition for item in request.partitions}
        for key in list(session.unsettled):
            partition = self.led[key]
            if key not in stated_now and session.is_stated(partition):
                self._fetched(now, session, partition, partition.remotes[session.follower].log_end_offset)
        session.last_fetch_ms = now
        session.parked = request.request_id
        if refusals or any(session.has_data(self.led[key]) for key in session.unsettled):
            self._answer(session, refusals)
        else:
            self._outbox.after(
                self._constants.replica_fetch_wait_max_ms, FetchWaitOver(request.follower, request.request_id)
            )

    def fetch_wait_over(self, timer: FetchWaitOver) -> None:
        """A long poll found nothing: answer with whatever high watermarks moved."""
        session = self._sessions[timer.follower]
        if session.parked == timer.request_id:
            self._answer(session, ())

    # -------------------------------------------------------------- ISR

    def expire_isr(self, now: int) -> None:
        """Leader, each half window: propose the ISR without those that lag. Only unsettled followers can."""
        lagging: dict[TopicPartition, list[BrokerId]] = {}
        window, messages = self._constants.replica_lag_time_max_ms, self._constants.replica_lag_max_messages
        for session in self._sessions.values():
            for key in session.unsettled:
                partition = self.led[key]
                if partition.pending is None and partition.is_lagging(session.follower, now, window, messages):
                    lagging.setdefault(key, []).append(session.follower)
        for key, followers in lagging.items():
            partition = self.led[key]
            isr = tuple(member for member in partition.committed.isr if member not in followers)
            # Ghost: would they be in sync, were the time in which this leader itself stood still not counted?
            remotes = [partition.remotes[it] for it in followers]
            is_stall = all(behind_ms(it, now, self.stalled) <= window < behind_ms(it, now, (0, 0)) for it in remotes)
            cause = Cause.LEADER_STALL if is_stall else Cause.LAG
            self.proposals.propose(partition, IsrProposal(isr, cause))

    def _isr_committed(self, now: int, partition: LeaderPartition) -> None:
        for session in self._sessions_of(partition):
            session.unsettle(partition)
        self._purgatory.touch(partition.key)
        if self._switches.recheck_high_watermark_after_isr:
            self._advance(now, partition)
        if self.probe is not None:
            self.probe.informed(partition.key)

    def _state(self, now: int, session: FetchSession, item: FetchPartition) -> FetchedPartition | None:
        """Take one stated position; an answer only where it is refused or the logs part."""
        key = item.topic_partition
        partition = self.led.get(key)
        known = self.brokers.get(session.follower) if self._switches.broker_epoch_check else None
        error = refusal(partition, session, item.leader_epoch, known)
        if partition is None or error is not Error.NONE:
            return FetchedPartition(key, item.leader_epoch, error)
        refused = parting(partition, item)
        session.unsettle(partition)
        if refused is not None:
            session.stated.pop(key, None)
            return refused
        session.stated[key] = item.leader_epoch
        self._fetched(now, session, partition, item.fetch_offset)
        return None

    def _fetched(self, now: int, session: FetchSession, partition: LeaderPartition, offset: int) -> None:
        before = partition.remotes[session.follower]
        partition.remotes[session.follower] = fetched(
            before, offset, partition.replica.log.end, now, session.broker_epoch
        )
        self._expand(partition, session.follower)
        if before.log_end_offset != offset:
            self._advance(now, partition)

    def _expand(self, partition: LeaderPartition, *followers: BrokerId) -> None:
        joining = [it for it in followers if partition.can_join(it, self.brokers.get(it))]
        if joining:
            self.proposals.propose(partition, IsrProposal((*partition.committed.isr, *joining), Cause.EXPAND))

    def _answer(self, session: FetchSession, refusals: Iterable[FetchedPartition]) -> None:
        assert session.parked is not None  # noqa: S101 - only a request can be answered
        answers = list(refusals)
        for key in list(session.unsettled):
            partition = self.led[key]
            if not session.is_stated(partition):
                if key in session.stated:  # in an earlier term: the follower has to begin again (DelayedFetch)
                    answers.append(FetchedPartition(key, session.stated.pop(key), Error.FENCED_LEADER_EPOCH))
                continue
            if session.has_data(partition):
                offset = partition.remotes[session.follower].log_end_offset
                answers.append(read(partition, offset, self._constants.replica_fetch_max_records))
            elif not session.knows_high_watermark(partition):
                answers.append(nothing_new(partition))
            session.told_high_watermark(partition)
        self._outbox.send(session.follower, FetchResponse(session.parked, self.broker, tuple(answers)))
        session.parked = None
