"""Who keeps leaders and ISRs: picks the control plane of a metadata mode, and the brokers that go with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.model.broker.broker import Broker
from streaming.model.constants import MetadataMode
from streaming.model.controller.controller import Controller
from streaming.model.zookeeper.broker import ZooKeeperBroker
from streaming.model.zookeeper.ensemble import ZooKeeper

if TYPE_CHECKING:
    from streaming.contracts.identifiers import Micros
    from streaming.model.constants import Constants

ControlPlane = Controller | ZooKeeper


def control_plane(constants: Constants, *, origin: Micros) -> ControlPlane:
    """Make the node at the address ``CONTROLLER``: the active KRaft controller, or the ZooKeeper ensemble."""
    if constants.metadata_mode is MetadataMode.ZOOKEEPER:
        return ZooKeeper(constants, origin=origin)
    return Controller(constants, origin=origin)


def broker_class(constants: Constants) -> type[Broker]:
    """Give the class of its brokers."""
    return ZooKeeperBroker if constants.metadata_mode is MetadataMode.ZOOKEEPER else Broker
