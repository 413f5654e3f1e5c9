"""Changes of leaders and ISRs by the ZooKeeper controller (``PartitionStateMachine``, ``ReplicaStateMachine``).

All of it is a :data:`Steps`: it yields operations for ZooKeeper and continues with their results, as the thread of
the real controller waits for them. A state is read, decided upon, and written if no other write came in between;
one that lost the race begins again. Every write begins a new leader epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable
from typing import TYPE_CHECKING, TypeVar

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import NO_LEADER, BrokerId, TopicId, TopicPartition
from streaming.model.controller.registry import Registry
from streaming.model.messages.membership import LeaderAndIsr, MetadataPartition, StopReplica, UpdateMetadata
from streaming.model.messages.zookeeper import Code, Create, GetData, Operation, Result, SetData
from streaming.model.nodes.zookeeper import election
from streaming.model.nodes.zookeeper.layout import (
    PartitionState,
    StateData,
    TopicData,
    enter,
    registration_of,
    state_path,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.model.constants import Switches
    from streaming.model.messages.network import Outbox
    from streaming.model.messages.zookeeper import Znode

T = TypeVar("T")
Waiting = Generator[tuple[Operation, ...], tuple[Result, ...], T]
Steps = Waiting[None]
Decision = Callable[[TopicPartition, StateData], StateData | None]


class LeadersAndIsrs:
    """The steps of partitions within one controller epoch."""

    def __init__(self, context: Context, announcements: Announcements, switches: Switches) -> None:
        self._context = context
        self._announcements = announcements
        self._first_registered_leads = switches.first_registered_leads

    def bring_online(self, cause: Cause) -> Steps:
        """Controller tries to find a leader for every partition that is new or offline."""
        waiting = list(self._context.waiting)
        new = [key for key in waiting if self._context.state(key) is PartitionState.NEW]
        offline = [key for key in waiting if self._context.state(key) is PartitionState.OFFLINE]
        yield from self._begin(new)
        yield from self.elect(offline, election.offline, cause)

    def _begin(self, keys: Iterable[TopicPartition]) -> Steps:
        """New partitions: the first live replica leads, and all live replicas are in sync."""
        creations = []
        for key in keys:
            isr = tuple(broker for broker in self._context.replicas(key) if self._context.is_live(broker))
            if isr:
                state = StateData(isr[0], 0, isr, self._context.epoch, Cause.CREATED)
                creations.append((key, Create(state_path(key), state)))
        results = yield tuple(creation for _, creation in creations)
        for (key, _), result in zip(creations, results, strict=True):
            if result.znode is not None:
                self._context.learn(key, result.znode)
                self._context.enter(key, PartitionState.ONLINE)
        self._announcements.leader_and_isr(key for key, _ in creations)

    def elect(self, keys: Collection[TopicPartition], strategy: election.Strategy, cause: Cause) -> Steps:
        """Controller elects leaders; a partition for which the strategy finds no leader stays as it is."""

        def decide(key: TopicPartition, state: StateData) -> StateData | None:
            elected = strategy(self._question(key, state.isr, strategy))
            if elected is None:
                return None
            why = Cause.UNCLEAN_ELECTION if elected.is_unclean else cause
            return StateData(elected.leader, state.leader_epoch + 1, elected.isr, self._context.epoch, why)

        written = yield from self._rewrite(keys, decide)
        for key in written:
            self._context.enter(key, PartitionState.ONLINE)
        self._announcements.leader_and_isr(written)

    def _question(
        self, key: TopicPartition, isr: tuple[BrokerId, ...], strategy: election.Strategy
    ) -> election.Question:
        context = self._context
        replicas = context.replicas(key)
        if self._first_registered_leads and strategy is not election.preferred:
            live = sorted(filter(context.is_live, replicas), key=lambda broker: context.registry.brokers[broker].epoch)
            replicas = (*live, *(broker for broker in replicas if broker not in live))
        unclean = context.registry.topics[key.topic_id].unclean
        return election.Question(replicas, isr, context.is_live, context.leaving.__contains__, unclean)

    def leave_isrs(self, broker: BrokerId, keys: Collection[TopicPartition], cause: Cause) -> Steps:
        """Controller takes a broker out of ISRs, unless it is the last member; who led them leads no more."""

        def decide(_key: TopicPartition, state: StateData) -> StateData | None:
            if broker not in state.isr:
                return None
            leader = NO_LEADER if state.leader == broker else state.leader
            isr = tuple(member for member in state.isr if member != broker) or state.isr
            return StateData(leader, state.leader_epoch + 1, isr, self._context.epoch, cause)

        written = yield from self._rewrite(keys, decide)
        self._announcements.leader_and_isr(written, but=broker)

    def lose(self, broker: BrokerId, cause: Cause) -> Steps:
        """A broker died: its leaderships move where they can, then it leaves the ISRs."""
        for key in self._context.registry.led_by(broker):
            self._context.enter(key, PartitionState.OFFLINE)
        yield from self.bring_online(cause)
        yield from self.leave_isrs(broker, self._context.registry.hosted_by(broker), cause)

    def refresh(self, keys: Iterable[TopicPartition]) -> Steps:
        """Controller reads states that leaders changed."""
        yield from self._rewrite(list(keys), lambda _key, _state: None)

    def _rewrite(self, keys: Collection[TopicPartition], decide: Decision) -> Waiting[list[TopicPartition]]:
        """Read, decide, write, until no other write interfered; give what was written."""
        written: list[TopicPartition] = []
        while keys:
            responses = yield tuple(GetData(state_path(key)) for key in keys)
            writes: list[tuple[TopicPartition, SetData]] = []
            for key, result in zip(keys, responses, strict=True):
                if result.znode is None:
                    continue
                self._context.learn(key, result.znode)
                state = decide(key, result.znode.data)
                if state is not None:
                    writes.append((key, SetData(state_path(key), state, result.znode.version)))
            results = yield tuple(write for _, write in writes)
            outcomes = list(zip((key for key, _ in writes), results, strict=True))
            for key, result in outcomes:
                if result.code is Code.OK and result.znode is not None:
                    self._context.learn(key, result.znode)
                    written.append(key)
            keys = [key for key, result in outcomes if result.code is Code.BAD_VERSION]
        return written


# The cluster as the ZooKeeper controller remembers it (``ControllerContext``). Knows no messages.
#
# It is a copy: ZooKeeper has the truth, and a leader may have changed its ISR there since (before KIP-497).


class Context:
    """Brokers, topics, partitions and their states.

    Attributes:
        epoch: of the controller.
        registry: live brokers, and partitions that have been led.
        topics: by id.
        leaving: live brokers in controlled shutdown.
        waiting: partitions without a leader: new or offline; an ordered set.
    """

    def __init__(self, epoch: int = 0) -> None:
        self.epoch = epoch
        self.registry = Registry()
        self.topics: dict[TopicId, TopicData] = {}
        self.leaving: set[BrokerId] = set()
        self.waiting: dict[TopicPartition, None] = {}
        self._states: dict[TopicPartition, PartitionState] = {}

    def is_live(self, broker: BrokerId) -> bool:
        """Return whether a broker may get something new to do."""
        return broker in self.registry.brokers and broker not in self.leaving

    def add_topic(self, data: TopicData) -> Iterator[TopicPartition]:
        """A topic has replicas; give its partitions, which are new."""
        self.topics[data.topic.topic_id] = data
        self.registry.topics[data.topic.topic_id] = data.topic
        for number in range(len(data.assignment)):
            key = TopicPartition(data.topic.topic_id, number)
            self._states[key] = PartitionState.NON_EXISTENT
            self.enter(key, PartitionState.NEW)
            yield key

    def remove_topic(self, topic_id: TopicId) -> None:
        """A topic is deleted."""
        data = self.topics.pop(topic_id)
        for number in range(len(data.assignment)):
            key = TopicPartition(topic_id, number)
            self.enter(key, PartitionState.OFFLINE)
            self.enter(key, PartitionState.NON_EXISTENT)
            if key in self.registry.partitions:
                self.registry.replace(data.topic, key, None, Cause.DELETED)
            del self._states[key]
        self.registry.transitions.clear()
        del self.registry.topics[topic_id]

    def replicas(self, key: TopicPartition) -> tuple[BrokerId, ...]:
        """Give the brokers that are to host a partition."""
        return self.topics[key.topic_id].assignment[key.partition]

    def state(self, key: TopicPartition) -> PartitionState:
        """Give a partition's state."""
        return self._states[key]

    def enter(self, key: TopicPartition, following: PartitionState) -> None:
        """A partition takes another state, along the table."""
        self._states[key] = enter(self._states[key], following)
        if following in {PartitionState.NEW, PartitionState.OFFLINE}:
            self.waiting[key] = None
        else:
            self.waiting.pop(key, None)

    def learn(self, key: TopicPartition, znode: Znode) -> None:
        """Remember leader and ISR as ZooKeeper has them."""
        topic = self.registry.topics[key.topic_id]
        self.registry.replace(topic, key, registration_of(self.replicas(key), znode), Cause.UNKNOWN)
        self.registry.transitions.clear()


# Requests of the ZooKeeper controller to the brokers (``ControllerBrokerRequestBatch``): one to each broker.


class Announcements:
    """Speaks for one controller epoch."""

    def __init__(self, context: Context, outbox: Outbox) -> None:
        self._context = context
        self._outbox = outbox

    def leader_and_isr(self, keys: Iterable[TopicPartition], *, but: BrokerId | None = None) -> None:
        """Tell the live replicas of these partitions, all ``but`` one, who leads with which ISR."""
        items_of: dict[BrokerId, list[MetadataPartition]] = {}
        for key in keys:
            item = self._item(key)
            for replica in self._context.replicas(key):
                if replica != but and replica in self._context.registry.brokers:
                    items_of.setdefault(replica, []).append(item)
        for replica, items in items_of.items():
            self._outbox.send(replica, LeaderAndIsr(self._context.epoch, tuple(items)))

    def everything(self, brokers: Iterable[BrokerId]) -> None:
        """Tell brokers all that they host."""
        for broker in brokers:
            items = tuple(self._item(key) for key in self._context.registry.hosted_by(broker))
            self._outbox.send(broker, LeaderAndIsr(self._context.epoch, items, full=True))

    def live_brokers(self) -> None:
        """Tell every live broker who is alive."""
        brokers = tuple(self._context.registry.brokers.items())
        for broker, _ in brokers:
            self._outbox.send(broker, UpdateMetadata(self._context.epoch, brokers))

    def stop(self, broker: BrokerId, keys: Collection[TopicPartition], *, delete: bool) -> None:
        """Tell a live broker to stop replicating."""
        if keys and broker in self._context.registry.brokers:
            self._outbox.send(broker, StopReplica(self._context.epoch, tuple(keys), delete))

    def _item(self, key: TopicPartition) -> MetadataPartition:
        registry = self._context.registry
        return MetadataPartition(key, registry.topics[key.topic_id], registry.partitions[key])
