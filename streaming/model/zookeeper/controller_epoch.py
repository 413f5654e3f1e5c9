"""What the active ZooKeeper controller does, from its election to the end of its session (``KafkaController``)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import BrokerId, TopicId, TopicPartition
from streaming.model.controller.alter_partition import Proposal, verdict
from streaming.model.errors import Error
from streaming.model.messages.alter_partition import (
    AlteredPartition,
    AlterPartitionItem,
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from streaming.model.messages.control import ControlledShutdownRequest, ControlledShutdownResponse
from streaming.model.messages.zookeeper import Code, Delete, GetChildren, GetData, SetData, Watch
from streaming.model.zookeeper import election
from streaming.model.zookeeper.announcements import Announcements
from streaming.model.zookeeper.context import Context
from streaming.model.zookeeper.layout import (
    BROKER_IDS,
    DELETED_TOPICS,
    ISR_CHANGES,
    TOPICS,
    StateData,
    broker_path,
    broker_registration,
    state_path,
    topic_path,
)
from streaming.model.zookeeper.leader_and_isr import LeadersAndIsrs, Steps, Waiting
from streaming.model.zookeeper.partition_states import PartitionState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming.model.constants import Constants
    from streaming.model.messages.outbox import Outbox
    from streaming.model.registrations import BrokerRegistration, PartitionRegistration

WATCHED: Final = (BROKER_IDS, TOPICS, DELETED_TOPICS, ISR_CHANGES)


class ControllerEpoch:
    """What a broker does while it is the controller.

    Every method is an event: it yields operations and goes on with their results.

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
        """New controller reads everything, tells everybody, and repairs what happened while there was none."""
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
        """Leave out what has no second replica: nobody else could lead it."""
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
        """Read the topics that are not known yet; give their partitions, which nobody leads."""
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
