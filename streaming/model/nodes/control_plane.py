"""Control plane of a metadata mode, which keeps leaders and ISRs, and the brokers that go with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from streaming.model.constants import MetadataMode
from streaming.model.controller.controller import Controller
from streaming.model.messages.network import Process
from streaming.model.nodes.broker import Broker
from streaming.model.nodes.quorum.controllers import Controllers, Jitter
from streaming.model.nodes.zookeeper.broker import ZooKeeperBroker
from streaming.model.nodes.zookeeper.ensemble import Ensemble, ZooKeeper

if TYPE_CHECKING:
    from streaming.contracts.identifiers import Micros
    from streaming.model.constants import Constants

ControlPlane = Controller | ZooKeeper


class ControlProcess(Process, Protocol):
    """One of its processes: a controller, or the ensemble."""

    def start(self, now: int, start_up_ms: int) -> None:
        """Operator starts it."""

    def shut_down(self, now: int) -> None:
        """Operator sends SIGTERM."""

    def settle(self, now: int) -> None:
        """Administrator asked for something: make it last."""


def control_plane(constants: Constants, *, origin: Micros, jitter: Jitter) -> Controllers | Ensemble:
    """Make the quorum of controllers, or the ZooKeeper ensemble."""
    if constants.metadata_mode is MetadataMode.ZOOKEEPER:
        return Ensemble(constants, origin=origin)
    return Controllers(constants, origin=origin, jitter=jitter)


def broker_class(constants: Constants) -> type[Broker]:
    """Give the class of its brokers."""
    return ZooKeeperBroker if constants.metadata_mode is MetadataMode.ZOOKEEPER else Broker
