"""Of the quorum of controllers."""

from __future__ import annotations

from functools import partial
from typing import Final

from dashboards.promql import Signal, SignalType, Unit
from dashboards.signals.labels import CLUSTER

_cluster = partial(Signal, labels=CLUSTER)

CONTROLLER: Final = _cluster(
    "Active controller",
    "cluster_controller",
    "Node id of the active controller. Its log has the reason of each election.",
    unit=Unit.BARE,
)
CONTROLLER_CHANGES: Final = _cluster(
    "Controller changes",
    "cluster_controller_changes_total",
    "Failovers of the active controller. Several in an hour indicate an unstable quorum.",
    kind=SignalType.COUNTER,
)
