"""Of the quorum of controllers."""

from __future__ import annotations

from functools import partial
from typing import Final

from dashboards.promql import Signal, SignalType, Unit
from dashboards.signals.labels import CLUSTER, QUORUM_MEMBER

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
VOTER: Final = Signal(
    name="Voter",
    meaning="1 of a voter of the metadata quorum, 0 of an observer.",
    metric="quorum_member_voter",
    labels=QUORUM_MEMBER,
)
MEMBER_BEHIND: Final = Signal(
    name="Behind the quorum's leader",
    meaning="Seconds since the member had all that the leader has. A voter that is behind cannot take over.",
    metric="quorum_member_behind_seconds",
    labels=QUORUM_MEMBER,
    unit=Unit.SECONDS,
)
