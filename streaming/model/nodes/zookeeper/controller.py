"""The controller of a cluster on ZooKeeper: one of the brokers (``KafkaController``, ``ControllerEventManager``).

Every broker has one of these and each tries to create the ephemeral node ``/controller``; whose succeeds is active
until its session ends. Events are taken one at a time. An event is a generator: it yields operations for ZooKeeper and
continues with the results, so it reads as the blocking code that it is in Kafka.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Final

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import BrokerId, TopicId, TopicPartition
from streaming.model.constants import Error
from streaming.model.controller.alter_partition import Proposal, verdict
from streaming.model.messages.membership import ControlledShutdownRequest, ControlledShutdownResponse
from streaming.model.messages.replication import (
    AlteredPartition,
    AlterPartitionItem,
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from streaming.model.messages.timers import RebalanceDue
from streaming.model.messages.zookeeper import Code, Create, Delete, GetChildren, GetData, Path, Result, SetData, Watch
from streaming.model.nodes.zookeeper import election
from streaming.model.nodes.zookeeper.layout import (
    BROKER_IDS,
    CONTROLLER_EPOCH,
    CONTROLLER_PATH,
    DELETED_TOPICS,
    ISR_CHANGES,
    TOPICS,
    PartitionState,
    StateData,
    broker_path,
    broker_registration,
    state_path,
    topic_path,
)
from streaming.model.nodes.zookeeper.leader_and_isr import Announcements, Context, LeadersAndIsrs, Steps, Waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streaming.model.constants import Constants
    from streaming.model.controller.registry import Registry
    from streaming.model.messages.network import Outbox
    from streaming.model.messages.registrations import BrokerRegistration, PartitionRegistration
    from streaming.model.nodes.zookeeper.session import Session

# Work of the active ZooKeeper controller, from its election to the end of its session (``KafkaController``).


WATCHED: Final = (BROKER_IDS, TOPICS, DELETED_TOPICS, ISR_CHANGES)


class ControllerEpoch:
    """Work of a broker while it is the controller.

    Every method is an event: it yields operations and continues with their results.

    Attributes:
        epoch: the controller epoch.
        registry: what it remembers.
        epoch_version: the version of ``/controller_epoch`` with which this controller epoch began; another one ends it.
    """

    def __init__(self, epoch: int, epoch_version: int, constants: Constants, outbox: Outbox) -> None:
        self.epoch = epoch
        self.epoch_version = epoch_version
        self._constants = constants
        self._outbox = outbox
        self._context = Context(epoch)
        self.registry = self._context.registry
        self._announcements = Announcements(self._context, outbox)
        self._partitions = LeadersAndIsrs(self._context, self._announcements, constants.switches)

    def fail_over(self) -> Steps:
        """New controller reads everything, tells every broker, and repairs what happened while there was none."""
        yield tuple(Watch(path) for path in WATCHED)
        for broker, registration in (yield from self._present()).items():
            self.registry.brokers[broker] = registration
        yield from self._read_topics()
        self._announcements.live_brokers()
        self._announcements.everything(self.registry.brokers)
        for broker in self._dead_replicas():
            yield from self._partitions.leave_isrs(broker, self.registry.hosted_by(broker), Cause.FENCED)
        yield from self._partitions.bring_online(Cause.FENCED)
        yield from self.topics_deleted()

    def _dead_replicas(self) -> list[BrokerId]:
        replicas = (broker for state in self.registry.partitions.values() for broker in state.replicas)
        return list(dict.fromkeys(broker for broker in replicas if broker not in self.registry.brokers))

    # -------------------------------------------------------------- brokers

    def _present(self) -> Waiting[dict[BrokerId, BrokerRegistration]]:
        """Read who has a session."""
        (listed,) = yield (GetChildren(BROKER_IDS),)
        brokers = [BrokerId(int(name)) for name in listed.children]
        responses = yield tuple(GetData(broker_path(broker)) for broker in brokers)
        pairs = zip(brokers, responses, strict=True)
        return {broker: broker_registration(entry.znode) for broker, entry in pairs if entry.znode is not None}

    def brokers_changed(self) -> Steps:
        """Sessions began or ended; a broker that came back in another session did both."""
        present, registrations = (yield from self._present()), self.registry.brokers
        gone = [broker for broker, registration in registrations.items() if present.get(broker) != registration]
        causes = {
            broker: Cause.CONTROLLED_SHUTDOWN if broker in self._context.leaving else Cause.FENCED for broker in gone
        }
        for broker in gone:
            del registrations[broker]
            self._context.leaving.discard(broker)
        for broker, cause in causes.items():
            yield from self._partitions.lose(broker, cause)
        arrived = [broker for broker in present if broker not in registrations]
        for broker in arrived:
            registrations[broker] = present[broker]
        self._announcements.live_brokers()
        if arrived:
            self._announcements.everything(arrived)
            yield from self._partitions.bring_online(Cause.UNFENCED)

    def controlled_shutdown(self, request: ControlledShutdownRequest) -> Steps:
        """A broker wants to leave: others lead what it leads, then it leaves the ISRs of what it follows."""
        broker, registration = request.broker, self.registry.brokers.get(request.broker)
        if registration is None or registration.epoch != request.broker_epoch:
            self._outbox.send(broker, ControlledShutdownResponse(None))
            return
        self._context.leaving.add(broker)
        led = self._replicated(self.registry.led_by(broker))
        followed = [key for key in self._replicated(self.registry.hosted_by(broker)) if key not in led]
        yield from self._partitions.elect(led, election.controlled_shutdown, Cause.CONTROLLED_SHUTDOWN)
        self._announcements.stop(broker, followed, delete=False)
        yield from self._partitions.leave_isrs(broker, followed, Cause.CONTROLLED_SHUTDOWN)
        remaining = self._replicated(self.registry.led_by(broker))
        self._outbox.send(broker, ControlledShutdownResponse(len(remaining)))

    def _replicated(self, keys: Sequence[TopicPartition]) -> dict[TopicPartition, None]:
        """Leave out what has no second replica: no other replica could lead it."""
        return {key: None for key in keys if len(self._context.replicas(key)) > 1}

    # -------------------------------------------------------------- topics

    def _read_topics(self) -> Steps:
        keys = yield from self._new_topics()
        states = yield tuple(GetData(state_path(key)) for key in keys)
        for key, response in zip(keys, states, strict=True):
            if response.znode is not None:
                self._context.learn(key, response.znode)
                is_led = response.znode.data.leader in self.registry.brokers
                self._context.enter(key, PartitionState.ONLINE if is_led else PartitionState.OFFLINE)

    def _new_topics(self) -> Waiting[list[TopicPartition]]:
        """Read the topics that are not known yet; give their partitions, which have no leader."""
        (listed,) = yield (GetChildren(TOPICS),)
        names = [name for name in listed.children if name not in self._context.topics]
        responses = yield tuple(GetData((*TOPICS, name)) for name in names)
        return [
            key
            for response in responses
            if response.znode is not None
            for key in self._context.add_topic(response.znode.data)
        ]

    def topics_changed(self) -> Steps:
        """Administrators created topics."""
        yield from self._new_topics()
        yield from self._partitions.bring_online(Cause.CREATED)

    def topics_deleted(self) -> Steps:
        """Administrators asked to delete topics.

        Departs from Kafka: does not wait for the brokers; one that is down deletes its replicas when it is back.
        """
        (listed,) = yield (GetChildren(DELETED_TOPICS),)
        for topic_id in map(TopicId, map(str, listed.children)):
            if topic_id in self._context.topics:
                for broker in self.registry.brokers:
                    keys = [key for key in self.registry.hosted_by(broker) if key.topic_id == topic_id]
                    self._announcements.stop(broker, keys, delete=True)
                self._context.remove_topic(topic_id)
                yield (Delete(topic_path(topic_id)),)
            yield (Delete((*DELETED_TOPICS, topic_id)),)

    # -------------------------------------------------------------- leaders and ISRs

    def isrs_changed(self) -> Steps:
        """Leaders wrote ISRs themselves and say so, in batches (before 2.7)."""
        (listed,) = yield (GetChildren(ISR_CHANGES),)
        paths = tuple((*ISR_CHANGES, name) for name in listed.children)
        responses = yield tuple(GetData(path) for path in paths)
        keys = dict.fromkeys(key for response in responses if response.znode is not None for key in response.znode.data)
        yield from self._partitions.refresh([key for key in keys if key.topic_id in self._context.topics])
        yield tuple(Delete(path) for path in paths)

    def alter_partition(self, request: AlterPartitionRequest) -> Steps:
        """Leader asks for other ISRs (since 2.7, KIP-497). Such a write begins no leader epoch."""
        registration = self.registry.brokers.get(request.broker)
        if registration is None or registration.epoch != request.broker_epoch:
            self._outbox.send(request.broker, AlterPartitionResponse(Error.STALE_BROKER_EPOCH))
            return
        verdicts = [self._judge(request.broker, item) for item in request.partitions]
        accepted = [item for item, verdict in zip(request.partitions, verdicts, strict=True) if verdict is None]
        results = yield tuple(
            SetData(state_path(item.topic_partition), self._state(item), item.partition_epoch) for item in accepted
        )
        for item, result in zip(accepted, results, strict=True):
            key, altered = item.topic_partition, AlteredPartition(item.topic_partition, Error.INVALID_UPDATE_VERSION)
            if result.code is Code.OK and result.znode is not None:
                self._context.learn(key, result.znode)
                altered = AlteredPartition(key, Error.NONE, self.registry.partitions[key])
            verdicts[verdicts.index(None)] = altered
        self._outbox.send(
            request.broker,
            AlterPartitionResponse(Error.NONE, tuple(verdict for verdict in verdicts if verdict is not None)),
        )

    def _judge(self, sender: BrokerId, item: AlterPartitionItem) -> AlteredPartition | None:
        """Give the verdict on a proposal; None if it is to be written."""
        key = item.topic_partition
        partition = self.registry.partitions.get(key)
        if partition is None:
            return AlteredPartition(key, Error.UNKNOWN_TOPIC_ID)
        if _is_done(sender, item, partition):
            return AlteredPartition(key, Error.NONE, partition)
        error = verdict(Proposal(sender, item, partition, self.registry.brokers))
        return None if error is Error.NONE else AlteredPartition(key, error, partition)

    def _state(self, item: AlterPartitionItem) -> StateData:
        partition = self.registry.partitions[item.topic_partition]
        isr = tuple(broker for broker, _ in item.isr)
        return StateData(partition.leader, partition.leader_epoch, isr, self.epoch, item.cause)

    def rebalance(self) -> Steps:
        """Controller, periodically: preferred leaders return to brokers that miss too many of their leaderships."""
        partitions, brokers = self.registry.partitions, self.registry.brokers
        preferred = Counter(state.replicas[0] for state in partitions.values())
        missed: dict[BrokerId, list[TopicPartition]] = {}
        for key, state in partitions.items():
            if state.leader != state.replicas[0]:
                missed.setdefault(state.replicas[0], []).append(key)
        tolerated = self._constants.leader_imbalance_per_broker_percentage
        for broker, keys in missed.items():
            if broker in brokers and len(keys) * 100 > tolerated * preferred[broker]:
                yield from self._partitions.elect(keys, election.preferred, Cause.PREFERRED_ELECTION)


def _is_done(sender: BrokerId, item: AlterPartitionItem, partition: PartitionRegistration) -> bool:
    """Return whether an earlier controller wrote it already and died before it could answer."""
    isr = {broker for broker, _ in item.isr}
    return (sender, item.leader_epoch, isr) == (partition.leader, partition.leader_epoch, set(partition.isr))


# KafkaController looks for imbalance soon after it was elected, then periodically.
_FIRST_REBALANCE_MS: Final = 5_000

_EVENTS: Final[dict[Path, Callable[[ControllerEpoch], Steps]]] = {
    BROKER_IDS: ControllerEpoch.brokers_changed,
    TOPICS: ControllerEpoch.topics_changed,
    DELETED_TOPICS: ControllerEpoch.topics_deleted,
    ISR_CHANGES: ControllerEpoch.isrs_changed,
}


class KafkaController:
    """One broker's controller: asleep until it is elected.

    Attributes:
        active: the broker that is the controller, as far as this one knows; None while none is.

    Args:
        broker: whose it is.
        constants: timing and switches.
        session: with ZooKeeper.
        outbox: where messages to the brokers go.
        elected: told whenever ``active`` changes.
    """

    def __init__(
        self, broker: BrokerId, constants: Constants, session: Session, outbox: Outbox, elected: Callable[[], None]
    ) -> None:
        self.active: BrokerId | None = None
        self._broker = broker
        self._constants = constants
        self._session = session
        self._outbox = outbox
        self._elected = elected
        self._controller_epoch: ControllerEpoch | None = None
        self._events: deque[Steps] = deque()
        self._running: Steps | None = None

    @property
    def remembered(self) -> Registry | None:
        """Memory of brokers and partitions; None while it is not active."""
        return None if self._controller_epoch is None else self._controller_epoch.registry

    # -------------------------------------------------------------- what happens to it

    def compete(self) -> None:
        """The broker has registered in a new session."""
        self._session.ask((Watch(CONTROLLER_PATH),), lambda _now, _results: self._enqueue(self._elect()))

    def resign(self) -> None:
        """The session ended, or a later controller wrote to ZooKeeper: nothing that was begun continues."""
        self._events.clear()
        self._running = self._controller_epoch = None
        self._know(None)

    def changed(self, path: Path) -> None:
        """A watch fired."""
        if path == CONTROLLER_PATH:
            self._enqueue(self._elect())
        elif self._controller_epoch is not None:
            self._enqueue(_EVENTS[path](self._controller_epoch))

    def alter_partition(self, request: AlterPartitionRequest) -> None:
        """A leader asks for other ISRs."""
        if self._controller_epoch is None:
            self._outbox.send(request.broker, AlterPartitionResponse(Error.NOT_CONTROLLER))
        else:
            self._enqueue(self._controller_epoch.alter_partition(request))

    def controlled_shutdown(self, request: ControlledShutdownRequest) -> None:
        """A broker wants to leave."""
        if self._controller_epoch is None:
            self._outbox.send(request.broker, ControlledShutdownResponse(None))
        else:
            self._enqueue(self._controller_epoch.controlled_shutdown(request))

    def rebalance(self, timer: RebalanceDue) -> None:
        """It is time to look for imbalance. The timer ends with the controller epoch."""
        if self._controller_epoch is not None and timer.controller_epoch == self._controller_epoch.epoch:
            self._outbox.after(self._constants.leader_imbalance_check_interval_ms, timer)
            self._enqueue(self._controller_epoch.rebalance())

    # -------------------------------------------------------------- one event at a time

    def _enqueue(self, event: Steps) -> None:
        self._events.append(event)
        if self._running is None:
            self._go_on(None)

    def _go_on(self, results: tuple[Result, ...] | None) -> None:
        """Take steps until one has to wait for ZooKeeper."""
        while self._running is not None or self._events:
            if self._running is None:
                self._running, results = self._events.popleft(), None
            try:
                operations = next(self._running) if results is None else self._running.send(results)
            except StopIteration:
                self._running = None
                continue
            if operations:
                version = None if self._controller_epoch is None else self._controller_epoch.epoch_version
                self._session.ask(operations, self._answered, version)
                return
            results = ()

    def _answered(self, _now: int, results: tuple[Result, ...]) -> None:
        if results:
            self._go_on(results)
        else:
            self.resign()  # fenced

    # -------------------------------------------------------------- election

    def _elect(self) -> Steps:
        """Broker competes for ``/controller``; the winner counts the epoch up, which fences every earlier one."""
        (response,) = yield (GetData(CONTROLLER_PATH),)
        if response.znode is not None:
            self._know(response.znode.data)
            return
        (created,) = yield (Create(CONTROLLER_PATH, self._broker, ephemeral=True),)
        if created.code is not Code.OK:
            return  # another broker was quicker; the watch says which
        (epoch,) = yield (GetData(CONTROLLER_EPOCH),)
        assert epoch.znode is not None, "ZooKeeper has no /controller_epoch"  # noqa: S101 - it is never deleted
        (moved,) = yield (SetData(CONTROLLER_EPOCH, epoch.znode.data + 1, epoch.znode.version),)
        if moved.code is Code.OK and moved.znode is not None:
            self._controller_epoch = ControllerEpoch(
                moved.znode.data, moved.znode.version, self._constants, self._outbox
            )
            self._know(self._broker)
            if self._constants.auto_leader_rebalance_enable:
                self._outbox.after(_FIRST_REBALANCE_MS, RebalanceDue(self._controller_epoch.epoch))
            yield from self._controller_epoch.fail_over()

    def _know(self, active: BrokerId | None) -> None:
        if active != self.active:
            self.active = active
            self._elected()
