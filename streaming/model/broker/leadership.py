"""A broker as leader: appends, fetches, shrink and expand (``ReplicaManager``, ``AlterPartitionManager``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import TopicPartition
from streaming.model.broker.fetch_session import FetchSession, shrinks
from streaming.model.broker.leader import IsrProposal, LeaderPartition, RemoteReplica, fetched
from streaming.model.constants import NO_ERROR, Error, Switches, Truncation
from streaming.model.messages.replication import (
    ANY_BROKER_EPOCH,
    AlteredPartition,
    AlterPartitionItem,
    AlterPartitionRequest,
    AlterPartitionResponse,
    EpochEndOffset,
    FetchedPartition,
    FetchRequest,
    FetchResponse,
    OffsetForLeaderEpochPartition,
    OffsetsForLeaderEpochRequest,
    OffsetsForLeaderEpochResponse,
)
from streaming.model.messages.timers import AlterPartitionDue, FetchWaitOver
from streaming.model.storage.disk import NO_BROKER_EPOCH
from streaming.model.storage.log import NO_EPOCH
from streaming.model.storage.replica import check_fetch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from streaming.contracts.identifiers import BrokerEpoch, BrokerId
    from streaming.model.broker.controller_channel import ControllerChannel
    from streaming.model.broker.fetch_session import CachedPartition
    from streaming.model.broker.purgatory import Purgatory
    from streaming.model.constants import Constants
    from streaming.model.messages.network import Outbox
    from streaming.model.messages.registrations import BrokerRegistration, PartitionRegistration, TopicRegistration
    from streaming.model.storage.batch import Batch
    from streaming.model.storage.log import EpochEntry
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
        self._own_min_isr = dict(constants.min_insync_replicas_of).get(broker, constants.min_insync_replicas)
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
            partition.begin_leader_epoch(now, registration, self._min_isr(topic), again=again)
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
                partition.set_min_isr(self._min_isr(topic))

    def _min_isr(self, topic: TopicRegistration) -> int:
        """Return the minimum by which this leader refuses writes."""
        return self._own_min_isr if topic.is_min_isr_of_brokers else topic.min_isr

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


# ISR proposals on their way to the controller (``AlterPartitionManager``): one request in flight per broker.


# These prove that nothing was applied.
_NOT_APPLIED: Final = frozenset({Error.INELIGIBLE_REPLICA, Error.OPERATION_NOT_ATTEMPTED})
# The truth differs from what the leader believes: it keeps waiting for the metadata log to tell it.
_AWAIT_METADATA: Final = frozenset(
    {
        Error.UNKNOWN_TOPIC_ID,
        Error.FENCED_LEADER_EPOCH,
        Error.INVALID_UPDATE_VERSION,
        Error.INVALID_REQUEST,
        Error.NEW_LEADER_ELECTED,
    }
)


class IsrProposals:
    """Proposals waiting or in flight, and the meters they move.

    Args:
        broker: the leader.
        constants: how long to wait after a request that failed as a whole, and what a proposal names.
        led: the partitions it leads; a proposal is void once its partition has moved on.
        committed: told of every partition whose ISR the controller accepted.
        channel: where requests go.
    """

    def __init__(
        self,
        broker: BrokerId,
        constants: Constants,
        led: dict[TopicPartition, LeaderPartition],
        committed: Callable[[int, LeaderPartition], None],
        channel: ControllerChannel,
    ) -> None:
        self.broker_epoch: BrokerEpoch = NO_BROKER_EPOCH
        self.ask = self._ask_controller
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.failed_isr_updates = 0
        self._broker = broker
        self._retry_ms = constants.alter_partition_retry_ms
        self._names_broker_epochs = constants.switches.broker_epoch_check
        self._led = led
        self._committed = committed
        self._channel = channel
        self._waiting: dict[TopicPartition, IsrProposal] = {}
        self._in_flight: dict[TopicPartition, IsrProposal] = {}
        self._is_backing_off = False

    def propose(self, partition: LeaderPartition, proposal: IsrProposal) -> None:
        """Leader wants another ISR. Enabled while nothing is pending for the partition."""
        assert partition.pending is None, f"a second proposal for {partition.key}"  # noqa: S101 - one in flight
        partition.pending = proposal
        self._waiting[partition.key] = proposal

    def of(self, key: TopicPartition) -> list[IsrProposal]:
        """Give what waits or is in flight for a partition; proposals of a former leader epoch among it."""
        return [queue[key] for queue in (self._waiting, self._in_flight) if key in queue]

    def send(self) -> None:
        """Send what waits, unless a request is in flight or has just failed. Called after every input."""
        if self._in_flight or self._is_backing_off or not self._waiting:
            return
        self._in_flight = {key: proposal for key, proposal in self._waiting.items() if self._is_current(key, proposal)}
        self._waiting = {}
        if self._in_flight:
            items = tuple(self._item(self._led[key], proposal) for key, proposal in self._in_flight.items())
            self.ask(items)

    def _ask_controller(self, items: tuple[AlterPartitionItem, ...]) -> None:
        self._channel.send(AlterPartitionRequest(self._broker, self.broker_epoch, items))

    def lost(self) -> None:
        """The node that was asked will not answer, and may or may not have done what it was asked."""
        sent, self._in_flight = self._in_flight, {}
        if sent:
            self._resend(sent)

    def retry(self) -> None:
        """The wait after a failure is over."""
        self._is_backing_off = False

    def _is_current(self, key: TopicPartition, proposal: IsrProposal) -> bool:
        partition = self._led.get(key)
        # The same proposal, not an equal one: one of an earlier leader epoch must not be sent in this one.
        return partition is not None and partition.pending is proposal

    def _item(self, partition: LeaderPartition, proposal: IsrProposal) -> AlterPartitionItem:
        def epoch_of(member: BrokerId) -> int:
            if not self._names_broker_epochs:
                return ANY_BROKER_EPOCH
            if member == self._broker:
                return self.broker_epoch
            epoch = partition.remotes[member].broker_epoch
            return ANY_BROKER_EPOCH if epoch is None else epoch

        return AlterPartitionItem(
            partition.key,
            partition.committed.leader_epoch,
            partition.committed.partition_epoch,
            tuple((member, epoch_of(member)) for member in sorted(proposal.isr)),  # to Kafka it is a set
            proposal.cause,
        )

    def answered(self, now: int, response: AlterPartitionResponse) -> None:
        """Controller's verdicts arrive."""
        sent, self._in_flight = self._in_flight, {}
        if response.error is not Error.NONE:
            self.failed_isr_updates += len(sent)
            self._resend(sent)
            return
        for altered in response.partitions:
            key = altered.topic_partition
            if key in sent and self._is_current(key, sent[key]):  # else it was asked again meanwhile
                self._settle(now, self._led[key], sent[key], altered)

    def _settle(self, now: int, partition: LeaderPartition, proposal: IsrProposal, altered: AlteredPartition) -> None:
        registration = altered.registration
        if altered.error is Error.NONE and registration is not None:
            self._accept(now, partition, proposal, registration)
            return
        self.failed_isr_updates += 1
        if altered.error in _NOT_APPLIED:
            partition.pending = None  # back to the committed ISR
        elif altered.error not in _AWAIT_METADATA:
            self._resend({partition.key: proposal})

    def _accept(
        self, now: int, partition: LeaderPartition, proposal: IsrProposal, registration: PartitionRegistration
    ) -> None:
        committed = partition.committed
        is_newer = registration.partition_epoch >= committed.partition_epoch
        if registration.leader_epoch != committed.leader_epoch or not is_newer:
            return
        if len(proposal.isr) > len(committed.isr):
            self.isr_expands += 1
        else:
            self.isr_shrinks += 1
        partition.accept(registration)
        self._committed(now, partition)

    def _resend(self, proposals: dict[TopicPartition, IsrProposal]) -> None:
        self._waiting |= proposals
        self._is_backing_off = True
        self._channel.outbox.after(self._retry_ms, AlterPartitionDue())


# Reads of a leader from its log for fetches. Pure: a led partition and a position in, answers out.


def absence(*, is_led: bool) -> Error:
    """Tell why a partition is not in a follower's session: another leads, or this leader has not read of the follower.

    The latter was added by a reassignment, then.
    """
    return Error.UNKNOWN_LEADER_EPOCH if is_led else Error.NOT_LEADER_OR_FOLLOWER


def parting(partition: LeaderPartition, leader_epoch: int, verdict: Error | EpochEntry) -> FetchedPartition:
    """Tell a follower that its position is not in this log, or where the logs part (``check_fetch`` says which)."""
    if isinstance(verdict, Error):
        return _out_of_range(partition, leader_epoch)
    return FetchedPartition(partition.key, leader_epoch, diverging=verdict)


def read(partition: LeaderPartition, offset: int, max_records: int) -> FetchedPartition:
    """Give records from ``offset`` on, whole batches, at least one; OFFSET_OUT_OF_RANGE below the log start."""
    replica, leader_epoch = partition.replica, partition.committed.leader_epoch
    log = replica.log
    if offset < log.start:
        return _out_of_range(partition, leader_epoch)
    end = log.read_end(offset, max_records)
    epochs, timestamp_ms = log.epochs_between(offset, end), log.segment_of(end - 1).largest_timestamp_ms
    batches = log.batches_between(offset, end) if log.batches else ()
    # By position: names take as long again.
    return FetchedPartition(
        partition.key,
        leader_epoch,
        NO_ERROR,
        offset,
        end,
        epochs,
        replica.high_watermark,
        log.start,
        None,
        batches,
        timestamp_ms,
    )


def nothing_new(partition: LeaderPartition) -> FetchedPartition:
    """Tell a follower that has everything how far the high watermark and the log start are."""
    log = partition.replica.log
    return FetchedPartition(
        partition.key,
        partition.committed.leader_epoch,
        fetch_offset=log.end,
        end_offset=log.end,
        high_watermark=partition.replica.high_watermark,
        log_start_offset=log.start,
    )


def _out_of_range(partition: LeaderPartition, leader_epoch: int) -> FetchedPartition:
    """Tell a follower that its position is not in this log, and where the log starts and ends."""
    log = partition.replica.log
    return FetchedPartition(
        partition.key, leader_epoch, Error.OFFSET_OUT_OF_RANGE, end_offset=log.end, log_start_offset=log.start
    )


# A leader tells where an epoch ends in its log (api 23, KIP-101, KIP-279). Changes nothing.


class EpochEnds:
    """Answers for the partitions it leads."""

    def __init__(self, leadership: Leadership, switches: Switches, outbox: Outbox) -> None:
        self.handlers: dict[type, Callable[[int, Any], None]] = {OffsetsForLeaderEpochRequest: self._answer}
        self._leadership = leadership
        self._names_epoch = switches.truncation is not Truncation.LEADER_EPOCH_V0
        self._outbox = outbox

    def _answer(self, _now: int, request: OffsetsForLeaderEpochRequest) -> None:
        """Follower or consumer asks where epochs end here."""
        answers = tuple(self._epoch_end(item) for item in request.partitions)
        answer = OffsetsForLeaderEpochResponse(request.header.correlation_id, self._leadership.broker, answers)
        self._outbox.send(request.header.sender, answer)

    def _epoch_end(self, asked: OffsetForLeaderEpochPartition) -> EpochEndOffset:
        partition = self._leadership.led.get(asked.topic_partition)
        error = partition.epoch_error(asked.leader_epoch) if partition else Error.NOT_LEADER_OR_FOLLOWER
        if partition is None or error is not Error.NONE:
            return EpochEndOffset(asked.topic_partition, asked.leader_epoch, error)
        epoch, end = partition.replica.log.end_offset_for(asked.epoch)
        answered_epoch = epoch if self._names_epoch else NO_EPOCH
        return EpochEndOffset(partition.key, asked.leader_epoch, epoch=answered_epoch, end_offset=end)


# Probe of replication for an observer outside the protocol. Nothing in the protocol depends on it.


class ReplicationProbe(Protocol):
    """An observer of leaders and followers (see ``streaming.model.cluster.cluster``)."""

    def appended(self, leader: LeaderPartition, offset: int, *, acks_all: bool) -> None:
        """A leader wrote the records from ``offset`` to its log end."""

    def advanced(self, leader: LeaderPartition) -> None:
        """A leader moved its high watermark."""

    def resigned(self, leader: LeaderPartition) -> None:
        """A broker leads this partition no more; who waits for an acknowledgement gets none."""

    def replicated(self, key: TopicPartition) -> None:
        """A follower took in what its leader answered: records, a truncation or a high watermark."""

    def informed(self, key: TopicPartition) -> None:
        """A broker took in new metadata of this partition, or the answer to its proposal."""
