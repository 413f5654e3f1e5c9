"""The active controller: requests in; record batches, answers and metadata out.

Every operation is one batch. The quorum (``streaming.model.quorum``) decides who is active, joins batches that fall
within its append linger, and shows neither them nor an answer before a majority of controllers has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import BrokerId, Micros
from streaming.contracts.records import FeatureLevel, NoOp, RegisterController
from streaming.model.controller.membership import Membership
from streaming.model.controller.metadata_writer import MetadataWriter
from streaming.model.controller.replication import Replication
from streaming.model.controller.topics import Topics
from streaming.model.messages.clients import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from streaming.model.messages.membership import (
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    MetadataRequest,
)
from streaming.model.messages.network import Message, Outbox
from streaming.model.messages.replication import AlterPartitionRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from streaming.model.constants import Constants
    from streaming.model.controller.registry import Registry

ControllerProcess = tuple[int, str]  # id and incarnation


class Controller:
    """The operations on the cluster's metadata, by who asks for them.

    Attributes:
        membership: brokers ask.
        replication: leaders ask, and time passes.
        topics: administrators ask.
        tasks: what it does periodically: name, period in ms, operation.

    Args:
        constants: timing and switches.
        origin: wall-clock time of model time 0, for batch timestamps.
    """

    def __init__(self, constants: Constants, *, origin: Micros) -> None:
        self.outbox = Outbox()
        self.writer = MetadataWriter(constants, origin=origin, outbox=self.outbox)
        self.registry = self.writer.registry
        self.membership = Membership(constants, self.writer, self.outbox)
        self.replication = Replication(constants, self.writer, self.outbox)
        self.topics = Topics(constants, self.writer)
        producer_ids = ProducerIdBlocks(self.registry, self.outbox)
        self._handlers: dict[type, Callable[[int, Any], None]] = {
            BrokerRegistrationRequest: self.membership.register,
            BrokerHeartbeatRequest: self.membership.heartbeat,
            AlterPartitionRequest: self.replication.alter_partition,
            AssignReplicasToDirsRequest: lambda _, request: self.membership.assign_replicas_to_dirs(request),
            MetadataRequest: lambda _, request: self._subscribe(request),
            AllocateProducerIdsRequest: lambda _, request: producer_ids.allocate(request),
        }
        self.tasks: dict[str, tuple[int, Callable[[int], None]]] = {
            "write the heartbeat of the log": (constants.metadata_max_idle_interval_ms, self._tick),
            "expire sessions": (constants.session_check_ms, self.membership.expire_sessions),
            "elect uncleanly": (constants.unclean_leader_election_interval_ms, self.replication.elect_uncleanly),
        }
        if constants.auto_leader_rebalance_enable:
            every = constants.leader_imbalance_check_interval_ms
            self.tasks["rebalance leaders"] = (every, self.replication.rebalance_leaders)

    def activate(self, now: int, controller: ControllerProcess, epoch: int, logs: tuple[int, int]) -> None:
        """A controller becomes active: the state is what its log says, and every session begins again.

        ``logs``: up to where its log is that of the controller before, and where it ends.
        """
        self.writer.begin_epoch(epoch, *logs)
        self.membership.restart_sessions(now)
        if not self.registry.controllers:
            level = int(self.writer.elr_enabled)
            self.writer.write(FeatureLevel(feature="eligible.leader.replicas.version", level=level))
        self.register_controller(now, controller)
        self.writer.subscribers = {}
        for broker in self.registry.brokers:
            self._subscribe(MetadataRequest(broker))

    def register_controller(self, now: int, controller: ControllerProcess) -> None:
        """A controller's process tells that it runs."""
        node, incarnation_id = controller
        if self.registry.controllers.get(node) != incarnation_id:
            self.registry.controllers[node] = incarnation_id
            self.writer.write(RegisterController(controller=node, incarnation_id=incarnation_id))
        self.writer.commit(now)

    def receive(self, now: int, request: Message) -> None:
        """Take one request of a broker; what follows is in ``outbox`` and in the log."""
        self._handlers[type(request)](now, request)

    def _tick(self, now: int) -> None:
        """Controller, each 500 ms: the heartbeat of the metadata log."""
        self.writer.write(NoOp())
        self.writer.commit(now)

    def _subscribe(self, request: MetadataRequest) -> None:
        """Broker starts to follow the metadata log: everything it hosts now, changes from now on."""
        self.outbox.send(request.broker, self.writer.snapshot_for(request.broker))
        self.writer.subscribers[request.broker] = None

    def unsubscribe(self, broker: BrokerId) -> None:
        """A broker's process ended, and with it its metadata stream."""
        self.writer.subscribers.pop(broker, None)


# Brokers draw blocks of producer ids (``ProducerIdControlManager``). Knows the next free id and nothing else.


BLOCK: Final = 1_000


class ProducerIdBlocks:
    """Every id is given once. Departs from Kafka: no ProducerIds record tells of it."""

    def __init__(self, registry: Registry, outbox: Outbox) -> None:
        self._registry = registry
        self._outbox = outbox

    def allocate(self, request: AllocateProducerIdsRequest) -> None:
        """Broker draws its next block."""
        first = self._registry.next_producer_id
        self._registry.next_producer_id += BLOCK
        answer = AllocateProducerIdsResponse(request.header.correlation_id, first, BLOCK)
        self._outbox.send(request.header.sender, answer)
