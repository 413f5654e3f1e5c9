"""The active controller: requests in; record batches, answers and metadata out.

Every operation is one batch, written at once. Kafka may join operations that fall within its append linger (25 ms)
into one batch, and replicates the batch to a quorum before anybody sees it; neither changes the order of records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import BrokerId, Micros
from streaming.contracts.records import FeatureLevel, LeaderChange, NoOp, RegisterController
from streaming.model.controller.membership import Membership
from streaming.model.controller.metadata_writer import MetadataWriter
from streaming.model.controller.producer_ids import ProducerIdBlocks
from streaming.model.controller.replication import Replication
from streaming.model.controller.topics import Topics
from streaming.model.messages.alter_partition import AlterPartitionRequest
from streaming.model.messages.membership import BrokerHeartbeatRequest, BrokerRegistrationRequest, MetadataRequest
from streaming.model.messages.outbox import Message, Outbox
from streaming.model.messages.produce import AllocateProducerIdsRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from streaming.model.constants import Constants

CONTROLLER_NODE_ID: Final = 100


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
            MetadataRequest: lambda _, it: self._subscribe(it),
            AllocateProducerIdsRequest: lambda _, it: producer_ids.allocate(it),
        }
        self.tasks: dict[str, tuple[int, Callable[[int], None]]] = {
            "write the heartbeat of the log": (constants.metadata_max_idle_interval_ms, self._tick),
            "expire sessions": (constants.session_check_ms, self.membership.expire_sessions),
            "elect uncleanly": (constants.unclean_leader_election_interval_ms, self.replication.elect_uncleanly),
        }
        if constants.auto_leader_rebalance_enable:
            every = constants.leader_imbalance_check_interval_ms
            self.tasks["rebalance leaders"] = (every, self.replication.rebalance_leaders)

    def bootstrap(self, now: int) -> None:
        """Begin the metadata log. Enabled once, before anything else."""
        self.writer.write(
            LeaderChange(controller=CONTROLLER_NODE_ID, epoch=1),
            FeatureLevel(feature="eligible.leader.replicas.version", level=int(self.writer.elr_enabled)),
            RegisterController(controller=CONTROLLER_NODE_ID, incarnation_id=f"controller-{CONTROLLER_NODE_ID}"),
        )
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
        """Broker's process ended: nobody reads its metadata stream."""
        self.writer.subscribers.pop(broker, None)
