"""The ZooKeeper ensemble as one node: sessions, watches, and the tree. Knows no rule of Kafka.

Departs from ZooKeeper: it never fails, watches last as long as their session, and a client's connection is not
modelled: a session ends when nothing was heard of it for its timeout, rounded up to the next tick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import Micros, Offset, TopicPartition
from streaming.contracts.records import (
    RESOURCE_TOPIC,
    Config,
    LeaderChange,
    MetadataRecord,
    RecordBatch,
    RegisterBroker,
    RemoveTopic,
    Topic,
    UnregisterBroker,
)
from streaming.model.controller.change import record_of, record_of_creation
from streaming.model.controller.controller import ProducerIdBlocks
from streaming.model.controller.metadata_writer import MICROS_PER_MS, Commit
from streaming.model.controller.registry import Registry
from streaming.model.controller.topics import configured
from streaming.model.messages.clients import AllocateProducerIdsRequest
from streaming.model.messages.network import CONTROLLER, Message, Outbox, Timer
from streaming.model.messages.registrations import TopicRegistration
from streaming.model.messages.timers import SessionsDue
from streaming.model.messages.zookeeper import (
    ANY_VERSION,
    Answer,
    Changed,
    CloseSession,
    Code,
    Connect,
    Connected,
    Create,
    Delete,
    GetChildren,
    GetData,
    Operation,
    Path,
    Ping,
    Request,
    Result,
    SessionExpired,
    SetData,
    Watch,
    Znode,
)
from streaming.model.nodes.zookeeper.layout import (
    BROKER_IDS,
    CONTROLLER_EPOCH,
    CONTROLLER_PATH,
    DELETED_TOPICS,
    TOPICS,
    StateData,
    TopicData,
    broker_registration,
    registration_of,
    topic_path,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from streaming.contracts.identifiers import BrokerId, TopicId
    from streaming.model.constants import Constants
    from streaming.model.controller.metadata_writer import CommitProbe
    from streaming.model.controller.topics import NewTopic

_NOBODY = -1


class _Session:
    """Owner of a session, and the time at which it expires unless something is heard."""

    __slots__ = ("broker", "deadline")

    def __init__(self, broker: BrokerId, deadline: int) -> None:
        self.broker = broker
        self.deadline = deadline


class Ensemble:
    """Its one node, for the cluster: as the controllers of a cluster on KRaft, but it is always there."""

    def __init__(self, constants: Constants, *, origin: Micros) -> None:
        self.state = ZooKeeper(constants, origin=origin)
        self.nodes = (CONTROLLER,)
        self.running: dict[BrokerId, ZooKeeper] = {}
        self.active = CONTROLLER

    def create(self, node: BrokerId, _incarnation_id: str) -> ZooKeeper:
        """Give its process."""
        self.running[node] = self.state
        return self.state

    def disconnected(self, _broker: BrokerId) -> None:
        """A broker's process ended. It is noticed when its session is over."""


class ZooKeeper:
    """Requests in; answers, notifications and commits out. The control plane of a cluster without KRaft.

    Attributes:
        writer: the commits that the writes amount to.
        registry: the truth of the cluster.
        topics: what administrators do, who write to ZooKeeper themselves.
        has_ended: never.

    Args:
        constants: timing.
        origin: wall-clock time of model time 0, for the timestamps of commits.
    """

    def __init__(self, constants: Constants, *, origin: Micros) -> None:
        self.outbox = Outbox()
        self._znodes = Znodes()
        self.writer = Chronicle(self._znodes, origin=origin)
        self.registry = self.writer.registry
        self.topics = self
        self.has_ended = False
        self._tick_ms = constants.zookeeper_tick_ms
        self._constants = constants
        self._timeout_ms = constants.broker_session_timeout_ms
        self._sessions: dict[int, _Session] = {}
        self._last_session = 0
        self._watches: dict[Path, dict[int, None]] = {}
        producer_ids = ProducerIdBlocks(self.registry, self.outbox)
        self._handlers: dict[type, Callable[[int, Any], None]] = {
            Connect: self._connect,
            Ping: self._ping,
            Request: self._request,
            SessionsDue: self._expire_sessions,
            AllocateProducerIdsRequest: lambda _, request: producer_ids.allocate(request),
            CloseSession: lambda now, message: self._end(now, message.session),
        }

    def start(self, now: int, _start_up_ms: int) -> None:
        """Create what Kafka expects to find. Enabled once, before anything else."""
        self._apply(Create(CONTROLLER_EPOCH, 0), _NOBODY)
        self.writer.commit(now)
        self.outbox.after(self._tick_ms, SessionsDue())

    def shut_down(self, _now: int) -> None:
        """Nothing comes of it: the ensemble never stops."""

    def receive(self, now: int, payload: Message | Timer) -> None:
        """Take one message of a broker; what follows is in ``outbox`` and in the commits."""
        self._handlers[type(payload)](now, payload)

    def settle(self, _now: int) -> None:
        """Nothing is left to do: whatever is written lasts."""

    # -------------------------------------------------------------- sessions

    def _connect(self, now: int, message: Connect) -> None:
        self._last_session += 1
        self._sessions[self._last_session] = _Session(message.broker, now + self._timeout_ms)
        self.outbox.send(message.broker, Connected(self._last_session))

    def _ping(self, now: int, message: Ping) -> None:
        session = self._sessions.get(message.session)
        if session is not None:
            session.deadline = now + self._timeout_ms

    def _expire_sessions(self, now: int, timer: SessionsDue) -> None:
        """ZooKeeper, each tick: end the sessions that were silent for their timeout."""
        self.outbox.after(self._tick_ms, timer)
        for number, session in list(self._sessions.items()):
            if session.deadline < now:
                self._end(now, number)
                self.outbox.send(session.broker, SessionExpired(number))

    def _end(self, now: int, number: int) -> None:
        if self._sessions.pop(number, None) is None:
            return
        for watchers in self._watches.values():
            watchers.pop(number, None)
        for path in self._znodes.owned_by(number):
            self._apply(Delete(path), number)
        self.writer.commit(now)

    # -------------------------------------------------------------- requests

    def _request(self, now: int, request: Request) -> None:
        session = self._sessions.get(request.session)
        if session is None:
            return  # the sender has been told, or will be
        session.deadline = now + self._timeout_ms
        results: tuple[Result, ...] = ()
        if self._is_controller(request):
            results = tuple(self._apply(operation, request.session) for operation in request.operations)
        self.outbox.send(session.broker, Answer(request.session, request.number, results))
        self.writer.commit(now)

    def _is_controller(self, request: Request) -> bool:
        epoch = self._znodes.get(CONTROLLER_EPOCH)
        return request.epoch_version is None or (epoch is not None and epoch.version == request.epoch_version)

    def _apply(self, operation: Operation, session: int) -> Result:
        if isinstance(operation, Watch):
            self._watches.setdefault(operation.path, {})[session] = None
        result, path = self._znodes.apply(operation, session)
        if result.code is Code.OK and isinstance(operation, Create | SetData | Delete):
            self.writer.changed(path)
            self._notify(path)
            if not isinstance(operation, SetData):
                self._notify(path[:-1])
        return result

    def _notify(self, path: Path) -> None:
        for number in self._watches.get(path, ()):
            self.outbox.send(self._sessions[number].broker, Changed(number, path))

    # -------------------------------------------------------------- administrators

    def create(self, now: int, new: NewTopic, config: Mapping[str, str]) -> None:
        """Administrator creates a topic: writes where its replicas go; the controller does the rest."""
        topic = TopicRegistration(topic=new.topic, topic_id=new.topic_id, partitions=len(new.assignments))
        topic = configured(topic, {(new.topic, key): value for key, value in config.items()}, self._constants)
        self._apply(Create(topic_path(topic.topic_id), TopicData(topic, new.assignments, config)), _NOBODY)
        self.writer.commit(now)

    def delete(self, now: int, topic_id: TopicId) -> None:
        """Administrator asks for a topic's deletion; the controller carries it out."""
        self._apply(Create((*DELETED_TOPICS, topic_id), None), _NOBODY)
        self.writer.commit(now)


# The tree of znodes: versions, owners, compare-and-set. Pure; knows no sessions' time, no watches and no Kafka.


class Znodes:
    """Nodes by path.

    Departs from ZooKeeper: parents need not exist to have children, and a node is deleted with everything below it.
    """

    def __init__(self) -> None:
        self._nodes: dict[Path, Znode] = {}
        self._children: dict[Path, dict[str | int, None]] = {}
        self._owned: dict[int, dict[Path, None]] = {}
        self._transaction = 0
        self._sequence = 0

    def get(self, path: Path) -> Znode | None:
        """Give a node, None if there is none."""
        return self._nodes.get(path)

    def apply(self, operation: Operation, session: int) -> tuple[Result, Path]:
        """Carry out one operation; give its result and the path it was about."""
        match operation:
            case Create(path, data, ephemeral, sequential):
                if sequential:
                    self._sequence += 1
                    path = (*path, self._sequence)
                return self._create(path, data, session if ephemeral else None), path
            case SetData(path, data, version):
                return self._set(path, data, version), path
            case Delete(path):
                return self._delete(path), path
            case GetChildren(path):
                return Result(Code.OK, children=tuple(self._children.get(path, ()))), path
            case GetData(path):
                node = self._nodes.get(path)
                return Result(Code.NO_NODE if node is None else Code.OK, node), path
            case _:
                return Result(Code.OK), operation.path

    def owned_by(self, session: int) -> list[Path]:
        """Name the nodes bound to a session."""
        return list(self._owned.get(session, ()))

    def _create(self, path: Path, data: object, owner: int | None) -> Result:
        if path in self._nodes:
            return Result(Code.NODE_EXISTS, self._nodes[path])
        self._transaction += 1
        node = self._nodes[path] = Znode(data, 0, self._transaction, owner)
        for depth, name in enumerate(path):
            self._children.setdefault(path[:depth], {})[name] = None
        if owner is not None:
            self._owned.setdefault(owner, {})[path] = None
        return Result(Code.OK, node)

    def _set(self, path: Path, data: object, version: int) -> Result:
        node = self._nodes.get(path)
        if node is None:
            return Result(Code.NO_NODE)
        if version not in {ANY_VERSION, node.version}:
            return Result(Code.BAD_VERSION, node)
        self._transaction += 1
        self._nodes[path] = node = node._replace(data=data, version=node.version + 1)
        return Result(Code.OK, node)

    def _delete(self, path: Path) -> Result:
        if path not in self._nodes:
            return Result(Code.NO_NODE)
        self._transaction += 1
        for gone in list(self._below(path)):
            node = self._nodes.pop(gone, None)
            self._children.pop(gone, None)
            if node is not None and node.owner is not None:
                del self._owned[node.owner][gone]
        del self._children[path[:-1]][path[-1]]
        return Result(Code.OK)

    def _below(self, path: Path) -> Iterator[Path]:
        for child in self._children.get(path, ()):
            yield from self._below((*path, child))
        yield path


# ZooKeeper's history as metadata-log records.
#
# Departs from Kafka: without KRaft there is no such log. Every write to a znode becomes the record that says the same,
# so that every reader of clusters reads this one, too. A broker whose session ended is reported as unregistered.


class Chronicle:
    """The registry that the znodes amount to, and the commits that led there."""

    def __init__(self, znodes: Znodes, *, origin: Micros) -> None:
        self.registry = Registry()
        self.commits: list[Commit] = []
        self.probe: CommitProbe | None = None
        self._znodes = znodes
        self._origin = origin
        self.committed_offset = 0
        self._records: list[MetadataRecord] = []

    def changed(self, path: Path) -> None:
        """A node was created, set or deleted."""
        znode = self._znodes.get(path)
        if path == CONTROLLER_EPOCH and znode is not None:
            controller = self._znodes.get(CONTROLLER_PATH)
            if controller is not None:
                self._records.append(LeaderChange(controller=controller.data, epoch=znode.data))
        elif path[:-1] == BROKER_IDS:
            self._broker(path[-1], znode)  # type: ignore[arg-type] # broker ids are the children of this node
        elif path[:-1] == TOPICS:
            self._topic(path[-1], znode)  # type: ignore[arg-type] # topic ids are the children of this node
        elif path[:2] == TOPICS and znode is not None:
            self._state(TopicPartition(path[2], path[4]), znode)  # type: ignore[arg-type] # as ``state_path`` has it

    def _broker(self, broker: BrokerId, znode: Znode | None) -> None:
        if znode is None:
            epoch = self.registry.brokers.pop(broker).epoch
            self._records.append(UnregisterBroker(broker=broker, broker_epoch=epoch))
            return
        registration = self.registry.brokers[broker] = broker_registration(znode)
        self._records.append(
            RegisterBroker(
                broker=broker, broker_epoch=registration.epoch, incarnation_id=registration.incarnation_id, fenced=False
            )
        )

    def _topic(self, topic_id: TopicId, znode: Znode | None) -> None:
        registry = self.registry
        if znode is None:
            topic = registry.topics[topic_id]
            for number in range(topic.partitions):
                key = TopicPartition(topic_id, number)
                if key in registry.partitions:  # else it was never led
                    registry.replace(topic, key, None, Cause.DELETED)
            registry.remove_topic(topic)
            self._records.append(RemoveTopic(topic_id=topic_id))
            return
        data: TopicData = znode.data
        registry.add_topic(data.topic)
        self._records.append(Topic(topic=data.topic.topic, topic_id=topic_id))
        self._records += (
            Config(resource_type=RESOURCE_TOPIC, resource_name=data.topic.topic, key=key, value=value)
            for key, value in data.config.items()
        )

    def _state(self, key: TopicPartition, znode: Znode) -> None:
        topic_znode = self._znodes.get((*TOPICS, key.topic_id))
        assert topic_znode is not None, f"{key}: a state without a topic"  # noqa: S101 - deleted together
        topic: TopicData = topic_znode.data
        state: StateData = znode.data
        before = self.registry.partitions.get(key)
        after = registration_of(topic.assignment[key.partition], znode)
        self.registry.replace(topic.topic, key, after, Cause.CREATED if before is None else state.cause)
        if before is not None:
            self._records.append(record_of(key, before, after))
            return
        self._records.append(record_of_creation(key, after))

    def commit(self, now: int) -> None:
        """One look: what changed since the last one, as a batch; nothing if nothing did."""
        if not self._records:
            return
        epoch = self._znodes.get(CONTROLLER_EPOCH)
        batch = RecordBatch(
            base_offset=Offset(self.committed_offset),
            epoch=0 if epoch is None else epoch.data,
            timestamp=Micros(self._origin + now * MICROS_PER_MS),
            records=tuple(self._records),
        )
        self.committed_offset += len(self._records)
        self.commits.append(Commit(now, batch, tuple(self.registry.transitions)))
        if self.probe is not None:
            self.probe.committed(self.commits[-1])
        self._records.clear()
        self.registry.transitions.clear()
