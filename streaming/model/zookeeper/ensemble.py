"""The ZooKeeper ensemble as one node: sessions, watches, and the tree. Knows no rule of Kafka.

Departs from ZooKeeper: it never fails, watches last as long as their session, and a client's connection is not
modelled: a session ends when nothing was heard of it for its timeout, rounded up to the next tick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.model.controller.producer_ids import ProducerIdBlocks
from streaming.model.controller.topics import configured
from streaming.model.messages.outbox import CONTROLLER, Message, Outbox, Timer
from streaming.model.messages.produce import AllocateProducerIdsRequest
from streaming.model.messages.timers import SessionsDue
from streaming.model.messages.zookeeper import (
    Answer,
    Changed,
    CloseSession,
    Code,
    Connect,
    Connected,
    Create,
    Delete,
    Operation,
    Path,
    Ping,
    Request,
    Result,
    SessionExpired,
    SetData,
    Watch,
)
from streaming.model.registrations import TopicRegistration
from streaming.model.zookeeper.chronicle import Chronicle
from streaming.model.zookeeper.layout import CONTROLLER_EPOCH, DELETED_TOPICS, TopicData, topic_path
from streaming.model.zookeeper.znodes import Znodes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from streaming.contracts.identifiers import BrokerId, Micros, TopicId
    from streaming.model.constants import Constants
    from streaming.model.controller.topics import NewTopic

_NOBODY = -1


class _Session:
    """Who has it, and until when it lives unless something is heard."""

    __slots__ = ("broker", "deadline")

    def __init__(self, broker: BrokerId, deadline: int) -> None:
        self.broker = broker
        self.deadline = deadline


class Ensemble:
    """Its one node, for the cluster: as the controllers of a cluster on KRaft, but it is always there.

    Attributes:
        state: what the ensemble keeps.
        nodes: where it is.
        running: its process.
    """

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
        """A broker's process ended. Nobody notices before its session is over."""


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
            return  # whoever asks has been told, or will be
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
