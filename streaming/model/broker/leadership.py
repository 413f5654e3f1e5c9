"""A broker as leader: appends, fetches, shrink and expand (``ReplicaManager``, ``AlterPartitionManager``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import TopicPartition
from streaming.model.broker.fetch_session import FetchSession
from streaming.model.broker.isr_expiration import shrinks
from streaming.model.broker.isr_proposals import IsrProposals
from streaming.model.broker.leader import IsrProposal, LeaderPartition
from streaming.model.broker.reading import absence, nothing_new, parting, read
from streaming.model.broker.remote_replica import RemoteReplica, fetched
from streaming.model.errors import NO_ERROR, Error
from streaming.model.messages.alter_partition import ANY_BROKER_EPOCH
from streaming.model.messages.fetch import FetchedPartition, FetchRequest, FetchResponse
from streaming.model.messages.timers import FetchWaitOver
from streaming.model.storage.truncation import check_fetch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.contracts.identifiers import BrokerId
    from streaming.model.broker.controller_channel import ControllerChannel
    from streaming.model.broker.fetch_session import CachedPartition
    from streaming.model.broker.probe import ReplicationProbe
    from streaming.model.broker.purgatory import Purgatory
    from streaming.model.constants import Constants
    from streaming.model.registrations import BrokerRegistration, PartitionRegistration, TopicRegistration
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
        self.probe: ReplicationProbe | None = None
        self.stalled = (0, 0)
        self.broker = broker
        self._constants = constants
        self._switches = constants.switches
        self._former_remotes: dict[TopicPartition, dict[BrokerId, RemoteReplica]] = {}
        self.brokers = brokers
        self._purgatory = purgatory
        self._outbox = channel.outbox
        self._sessions: dict[BrokerId, FetchSession] = {}

    # -------------------------------------------------------------- leader epochs

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
            partition.begin_leader_epoch(now, registration, topic.min_isr, again=again)
            for follower in partition.remotes:
                self._session(follower).open(partition)
            if not self._switches.expand_needs_fetch_in_epoch:
                self._expand(partition, *partition.remotes)
            self._advance(now, partition)
        elif registration.partition_epoch > partition.committed.partition_epoch:
            partition.accept(registration)
            self._isr_committed(now, partition)
        if self.probe is not None:
            self.probe.informed(key)

    def _let_go(self, partition: LeaderPartition, registration: PartitionRegistration) -> None:
        """Followers that a reassignment removed are none any more."""
        for follower in set(partition.cached).difference(registration.replicas):
            self._sessions[follower].drop(partition.key)

    def configure(self, topic: TopicRegistration) -> None:
        """Leader learns of a topic's new configuration; high watermarks move with the next fetch."""
        for number in range(topic.partitions):
            partition = self.led.get(TopicPartition(topic.topic_id, number))
            if partition is not None:
                partition.set_min_isr(topic.min_isr)

    def log_start_moved(self, key: TopicPartition) -> None:
        """Leader has deleted its oldest records: the followers are told with the next fetch."""
        for cached in self.led[key].cached.values():
            cached.resend_watermark()

    def resign(self, key: TopicPartition) -> None:
        """Leader learns that it leads no more."""
        partition = self.led.pop(key, None)
        if partition is not None:
            self._purgatory.touch(key)
            if not self._switches.reset_followers_at_new_epoch:
                self._former_remotes[key] = partition.remotes
            if self.probe is not None:
                self.probe.resigned(partition)
            for follower in list(partition.cached):
                self._sessions[follower].drop(key)

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
            for cached in partition.cached.values():
                cached.unsettle()

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
            self._awaken(partition, waiting)
            partition.replica.log.append(count, now)
            if self.probe is not None:
                self.probe.appended(partition, partition.replica.log.end - count, acks_all=acks_all)
            self._advance(now, partition)
        for session in waiting.values():
            self._answer(session, ())
        return refused

    def _awaken(self, partition: LeaderPartition, waiting: dict[BrokerId, FetchSession]) -> None:
        """Look at every follower again, for there is news; ``waiting`` gets those with a request that waits for it."""
        for follower, cached in partition.cached.items():
            if cached.unsettle():
                waiting[follower] = self._sessions[follower]

    def append_batch(self, now: int, partition: LeaderPartition, batch: Batch, *, acks_all: bool) -> Batch:
        """Leader writes one batch with producer, keys or marker; gives it as it stands in the log."""
        waiting: dict[BrokerId, FetchSession] = {}
        self._awaken(partition, waiting)
        batch = partition.replica.log.append_batch(batch)
        if self.probe is not None:
            self.probe.appended(partition, batch.base_offset, acks_all=acks_all)
        self._advance(now, partition)
        for session in waiting.values():
            self._answer(session, ())
        return batch

    def fetch(self, now: int, request: FetchRequest) -> None:
        """Follower fetches: its positions prove what it has; then data, or a wait for data."""
        session = self._session(request.follower)
        session.broker_epoch = request.broker_epoch
        if request.full:
            session.restart()
        for key in request.forgotten:
            if key in session.partitions:
                session.partitions[key].forget()
                session.partitions[key].unsettle()
        answers = self._stated(now, session, request)
        has_data = False
        for cached in session.unsettled.values():
            if cached.is_stated:
                if cached.newest_request != request.request_id:  # its position is the one stated before
                    self._fetched(now, cached, cached.remote.log_end_offset)
                has_data = has_data or cached.remote.log_end_offset < cached.partition.replica.log.end
        session.last_fetch_ms = now
        session.parked = request.request_id
        if answers or has_data:
            self._answer(session, answers)
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
        """Leader, each half window: propose the ISR without those that lag."""
        for partition, proposal in shrinks(now, self._sessions.values(), self._constants, self.stalled):
            self.proposals.propose(partition, proposal)

    def _isr_committed(self, now: int, partition: LeaderPartition) -> None:
        for follower in partition.remotes:
            if follower in partition.cached:
                partition.cached[follower].unsettle()
            else:  # added by a reassignment
                self._session(follower).open(partition)
        self._purgatory.touch(partition.key)
        if self._switches.recheck_high_watermark_after_isr:
            self._advance(now, partition)
        if self.probe is not None:
            self.probe.informed(partition.key)

    def _stated(self, now: int, session: FetchSession, request: FetchRequest) -> list[FetchedPartition]:
        """Take the positions of a request; answers only where one is refused or the logs part."""
        answers = []
        registration = self.brokers.get(session.follower) if self._switches.broker_epoch_check else None
        is_replaced = registration is not None and ANY_BROKER_EPOCH != session.broker_epoch < registration.epoch
        for key, leader_epoch, offset, last_fetched_epoch in request.partitions:
            cached = session.partitions.get(key)
            if cached is None:
                answers.append(FetchedPartition(key, leader_epoch, absence(is_led=key in self.led)))
                continue
            cached.newest_request = request.request_id
            partition = cached.partition
            error = partition.epoch_error(leader_epoch)
            if is_replaced and error is NO_ERROR:
                error = Error.NOT_LEADER_OR_FOLLOWER  # another process of it was registered since (KIP-903)
            if error is not NO_ERROR:
                answers.append(FetchedPartition(key, leader_epoch, error))
                continue
            verdict = check_fetch(partition.replica.log, offset, last_fetched_epoch)
            cached.unsettle()
            if verdict is None:
                cached.stated_epoch, cached.is_stated = leader_epoch, True
                self._fetched(now, cached, offset)
            else:
                cached.forget()
                answers.append(parting(partition, leader_epoch, verdict))
        return answers

    def _fetched(self, now: int, cached: CachedPartition, offset: int) -> None:
        """Follower has everything below ``offset``: it may join the ISR, and the high watermark may move."""
        partition, remote = cached.partition, cached.remote
        before = remote.log_end_offset
        fetched(remote, offset, partition.replica.log.end, now, cached.session.broker_epoch)
        if cached.session.follower not in partition.committed.isr:
            self._expand(partition, cached.session.follower)
        if before != offset:
            self._advance(now, partition)

    def _expand(self, partition: LeaderPartition, *followers: BrokerId) -> None:
        joining = [follower for follower in followers if partition.can_join(follower, self.brokers.get(follower))]
        if joining:
            self.proposals.propose(partition, IsrProposal((*partition.committed.isr, *joining), Cause.EXPAND))

    def _answer(self, session: FetchSession, refusals: Iterable[FetchedPartition]) -> None:
        assert session.parked is not None  # noqa: S101 - only a request can be answered
        answers = list(refusals)
        for cached in list(session.unsettled.values()):
            partition = cached.partition
            if not cached.is_stated:
                if cached.stated_epoch is not None:  # an earlier epoch: the follower has to begin again (DelayedFetch)
                    answers.append(FetchedPartition(partition.key, cached.stated_epoch, Error.FENCED_LEADER_EPOCH))
                    cached.forget()
                continue
            offset, replica = cached.remote.log_end_offset, partition.replica
            if offset < replica.log.end:
                answers.append(read(partition, offset, self._constants.replica_fetch_max_records))
            elif cached.sent_high_watermark != replica.high_watermark:
                answers.append(nothing_new(partition))
            cached.mark_sent()
        self._outbox.send(session.follower, FetchResponse(session.parked, self.broker, tuple(answers)))
        session.parked = None
