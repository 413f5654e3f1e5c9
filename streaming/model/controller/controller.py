"""The active controller: requests in; record batches, answers and metadata out.

Every operation is one batch, written at once. Kafka may join operations that fall within its append linger (25 ms)
into one batch, and replicates the batch to a quorum before anybody sees it; neither changes the order of records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import BrokerEpoch, BrokerId, Micros, TopicId, TopicPartition
from streaming.contracts.records import (
    RESOURCE_TOPIC,
    BrokerRegistrationChange,
    ClearElr,
    Config,
    FeatureLevel,
    LeaderChange,
    NoOp,
    RegisterBroker,
    RegisterController,
    RemoveTopic,
    Topic,
)
from streaming.model.controller import alter_partition
from streaming.model.controller.election import Mode
from streaming.model.controller.heartbeats import BrokerState, Question, Sessions, next_state, state_of
from streaming.model.controller.metadata_writer import How, MetadataWriter
from streaming.model.controller.partition import BrokerRegistration, PartitionRegistration, TopicRegistration
from streaming.model.messages.alter_partition import (
    AlteredPartition,
    AlterPartitionItem,
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from streaming.model.messages.errors import Error
from streaming.model.messages.membership import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    MetadataRequest,
)
from streaming.model.messages.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming.model.constants import Constants

CONTROLLER_NODE_ID: Final = 100
MIN_ISR: Final = "min.insync.replicas"
_FENCED, _UNFENCED, _BEGAN = 1, -1, 1
_MAX_ELECTIONS_A_PASS = 1_000


class Controller:
    """The operations on the cluster's metadata.

    Args:
        constants: timing and switches.
        origin: wall-clock time of model time 0, for batch timestamps.
    """

    def __init__(self, constants: Constants, *, origin: Micros) -> None:
        self.outbox = Outbox()
        self.writer = MetadataWriter(elr_enabled=constants.eligible_leader_replicas, origin=origin, outbox=self.outbox)
        self.registry = self.writer.registry
        self._sessions = Sessions(constants.broker_session_timeout_ms)
        self._metadata_offsets: dict[BrokerId, int] = {}
        self._shutdown_offsets: dict[BrokerId, int] = {}

    def bootstrap(self, now: int) -> None:
        """Begin the metadata log. Enabled once, before anything else."""
        self.writer.write(
            LeaderChange(controller=CONTROLLER_NODE_ID, epoch=1),
            FeatureLevel(feature="eligible.leader.replicas.version", level=int(self.writer.elr_enabled)),
            RegisterController(controller=CONTROLLER_NODE_ID, incarnation_id=f"controller-{CONTROLLER_NODE_ID}"),
        )
        self.writer.commit(now)

    def tick(self, now: int) -> None:
        """Controller, each 500 ms: the heartbeat of the metadata log."""
        self.writer.write(NoOp())
        self.writer.commit(now)

    # -------------------------------------------------------------- broker life cycle

    def subscribe(self, request: MetadataRequest) -> None:
        """Broker starts to follow the metadata log: everything it hosts now, changes from now on."""
        self.outbox.send(request.broker, self.writer.snapshot_for(request.broker))
        self.writer.subscribers[request.broker] = None

    def unsubscribe(self, broker: BrokerId) -> None:
        """Broker's process ended: nobody reads its metadata stream."""
        self.writer.subscribers.pop(broker, None)

    def register(self, now: int, request: BrokerRegistrationRequest) -> None:
        """Broker asks to join. Enabled unless another process with its id has a live session; born fenced.

        A restart first takes the broker out of whatever ISR (after a crash also ELR) still names it, in one batch
        before the registration.
        """
        known = self.registry.brokers.get(request.broker)
        if known is not None:
            # A broker in controlled shutdown may be replaced before its session ends.
            if self._sessions.is_valid(request.broker, now) and not known.in_controlled_shutdown:
                refusal = BrokerRegistrationResponse(Error.DUPLICATE_BROKER_REGISTRATION)
                self.outbox.send(request.broker, refusal)
                return
            self._shut_down_before(request, clean=known.epoch == request.previous_broker_epoch)
        # The log's next offset, not the record's own: clean-up records may stand before it.
        epoch = BrokerEpoch(self.writer.end_offset)
        self.writer.write(
            RegisterBroker(broker=request.broker, broker_epoch=epoch, incarnation_id=request.incarnation_id)
        )
        self.writer.set_broker(request.broker, BrokerRegistration(epoch, request.incarnation_id))
        self._sessions.touch(request.broker, now)
        self._metadata_offsets.pop(request.broker, None)
        self._shutdown_offsets.pop(request.broker, None)
        self.outbox.send(request.broker, BrokerRegistrationResponse(Error.NONE, epoch))
        self.writer.commit(now)

    def _shut_down_before(self, request: BrokerRegistrationRequest, *, clean: bool) -> None:
        """After a crash the broker may lack a suffix of its log: it is not even eligible any more (KIP-966)."""
        broker = request.broker
        if clean:
            self._leave_isrs(broker, Cause.RESTART)
            return
        for key in (*self.registry.with_isr_member(broker), *self.registry.with_elr_member(broker)):
            isr = self.registry.partitions[key].isr
            remaining = (member for member in isr if member != broker)
            self.writer.change(key, remaining, Cause.UNCLEAN_RESTART, How(leaving=broker, unclean_shutdown=True))

    def heartbeat(self, now: int, request: BrokerHeartbeatRequest) -> None:
        """Broker says it is alive; its state follows the table of ``heartbeats``."""
        broker = request.broker
        registration = self.registry.brokers.get(broker)
        if registration is None or registration.epoch != request.broker_epoch:
            self.outbox.send(broker, BrokerHeartbeatResponse(Error.STALE_BROKER_EPOCH))
            return
        if not self._sessions.is_valid(broker, now) and not registration.fenced:
            self._fence(broker, Cause.FENCED)  # too late: the session ended before this arrived
            self.writer.commit(now)
        self._sessions.touch(broker, now)
        self._metadata_offsets[broker] = request.metadata_offset
        following = next_state(self._question(request))
        self._enter(now, broker, following)
        self.outbox.send(
            broker,
            BrokerHeartbeatResponse(
                Error.NONE,
                is_fenced=self.registry.brokers[broker].fenced,
                should_shut_down=following is BrokerState.SHUTDOWN_NOW,
            ),
        )

    def _question(self, request: BrokerHeartbeatRequest) -> Question:
        broker = request.broker
        registration = self.registry.brokers[broker]
        active = [offset for other, offset in self._metadata_offsets.items() if self.registry.is_active(other)]
        shutdown_offset = self._shutdown_offsets.get(broker, -1)
        return Question(
            state=state_of(registration),
            want_shut_down=request.want_shut_down,
            want_fence=request.want_fence,
            caught_up=request.metadata_offset >= registration.epoch,
            leads=self.registry.leads_something(broker),
            drained=shutdown_offset <= min(active, default=shutdown_offset),
        )

    def _enter(self, now: int, broker: BrokerId, following: BrokerState) -> None:
        """Take the broker from its state to ``following``; records only where the state changes."""
        current = state_of(self.registry.brokers[broker])
        if following is current:
            return
        if following is BrokerState.UNFENCED:
            self._unfence(broker)
        elif following is BrokerState.CONTROLLED_SHUTDOWN:
            self._begin_controlled_shutdown(broker)
            self._shutdown_offsets[broker] = self.writer.end_offset
        else:
            asked = following is BrokerState.SHUTDOWN_NOW
            self._fence(broker, Cause.CONTROLLED_SHUTDOWN if asked else Cause.FENCED)
        self.writer.commit(now)

    def expire_sessions(self, now: int) -> None:
        """Controller, each eighth of a session: fence the broker not heard of for longest, if its session is over.

        A broker that stopped cleanly is fenced a second time here; real clusters write that record, too.
        """
        broker = self._sessions.pop_expired(now)
        if broker is not None:
            self._fence(broker, Cause.FENCED)
            self.writer.commit(now)

    def _fence(self, broker: BrokerId, cause: Cause) -> None:
        """Partitions first, then the registration."""
        self._leave_isrs(broker, cause)
        registration = self.registry.brokers[broker]
        self.writer.write(BrokerRegistrationChange(broker=broker, broker_epoch=registration.epoch, fenced=_FENCED))
        self.writer.set_broker(broker, registration._replace(fenced=True))

    def _begin_controlled_shutdown(self, broker: BrokerId) -> None:
        """The registration first, then the partitions."""
        registration = self.registry.brokers[broker]
        self.writer.write(
            BrokerRegistrationChange(broker=broker, broker_epoch=registration.epoch, in_controlled_shutdown=_BEGAN)
        )
        self.writer.set_broker(broker, registration._replace(in_controlled_shutdown=True))
        self._leave_isrs(broker, Cause.CONTROLLED_SHUTDOWN)

    def _unfence(self, broker: BrokerId) -> None:
        """The registration first, then elections for every leaderless partition. Nobody joins an ISR here."""
        registration = self.registry.brokers[broker]
        self.writer.write(BrokerRegistrationChange(broker=broker, broker_epoch=registration.epoch, fenced=_UNFENCED))
        self.writer.set_broker(broker, registration._replace(fenced=False))
        for key in list(self.registry.leaderless):
            self.writer.change(key, self.registry.partitions[key].isr, Cause.UNFENCED)

    def _leave_isrs(self, broker: BrokerId, cause: Cause) -> None:
        for key in self.registry.with_isr_member(broker):
            remaining = (member for member in self.registry.partitions[key].isr if member != broker)
            self.writer.change(key, remaining, cause, How(leaving=broker))

    # -------------------------------------------------------------- partitions

    def alter_partition(self, now: int, request: AlterPartitionRequest) -> None:
        """Leader proposes ISRs. Each is checked on its own; those accepted share one batch."""
        registration = self.registry.brokers.get(request.broker)
        if registration is None or registration.epoch != request.broker_epoch:
            self.outbox.send(request.broker, AlterPartitionResponse(Error.STALE_BROKER_EPOCH))
            return
        verdicts = tuple(self._alter(request.broker, item) for item in request.partitions)
        # The answer leaves before the metadata that tells the same: the leader counts its own change.
        self.outbox.send(request.broker, AlterPartitionResponse(Error.NONE, verdicts))
        self.writer.commit(now)

    def _alter(self, sender: BrokerId, item: AlterPartitionItem) -> AlteredPartition:
        key = item.topic_partition
        partition = self.registry.partitions.get(key)
        if partition is None:
            return AlteredPartition(key, Error.UNKNOWN_TOPIC_ID)
        error = alter_partition.verdict(alter_partition.Proposal(sender, item, partition, self.registry.brokers))
        if error is Error.NONE:
            self.writer.change(key, (broker for broker, _ in item.isr), item.cause, How(recovered=True))
        return AlteredPartition(key, error, self.registry.partitions[key])

    def rebalance_leaders(self, now: int) -> None:
        """Controller, periodically: elect the preferred leader wherever somebody else leads and it may."""
        for key in list(self.registry.off_preferred_leader)[:_MAX_ELECTIONS_A_PASS]:
            isr = self.registry.partitions[key].isr
            self.writer.change(key, isr, Cause.PREFERRED_ELECTION, How(mode=Mode.PREFERRED))
        self.writer.commit(now)

    def create_topic(
        self,
        now: int,
        topic: TopicRegistration,
        assignments: Sequence[tuple[BrokerId, ...]],
        config: Mapping[str, str],
    ) -> None:
        """Administrator creates a topic. Enabled when every partition has an active replica to lead it."""
        self.registry.topics[topic.topic_id] = topic
        self.writer.write(Topic(topic=topic.topic, topic_id=topic.topic_id))
        for key, value in config.items():
            self.writer.write(Config(resource_type=RESOURCE_TOPIC, resource_name=topic.topic, key=key, value=value))
        if MIN_ISR in config and self.writer.elr_enabled:
            self.writer.write(ClearElr(topic=topic.topic))
        for number, replicas in enumerate(assignments):
            isr = tuple(broker for broker in replicas if self.registry.is_active(broker))
            assert isr, f"INVALID_REPLICA_ASSIGNMENT: no active broker in {replicas}"  # noqa: S101 - the driver's duty
            partition = PartitionRegistration(replicas, isr, isr[0])
            self.writer.create(topic, TopicPartition(topic.topic_id, number), partition)
        self.writer.commit(now)

    def delete_topic(self, now: int, topic_id: TopicId) -> None:
        """Administrator deletes a topic: one record, however many partitions."""
        topic = self.registry.topics[topic_id]
        for number in range(topic.partitions):
            self.registry.replace(topic, TopicPartition(topic_id, number), None, Cause.DELETED)
        del self.registry.topics[topic_id]
        self.writer.write(RemoveTopic(topic_id=topic_id))
        self.writer.commit(now)
