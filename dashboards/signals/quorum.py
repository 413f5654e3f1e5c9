"""The quorum of controllers."""

from __future__ import annotations

from functools import partial
from typing import Final

from dashboards.promql import Signal, SignalType, Unit
from dashboards.signals.labels import CLUSTER, NODE

_cluster = partial(Signal, labels=CLUSTER)
_member = partial(Signal, labels=NODE)

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
CONTROLLER_EPOCH: Final = _cluster(
    "Controller epoch",
    "cluster_controller_epoch",
    "Raft epoch of the active controller: it grows with each election of one, also of the same.",
    unit=Unit.BARE,
)
VOTER: Final = _member("Voter", "quorum_member_voter", "1 of a voter of the metadata quorum, 0 of an observer.")
LAG: Final = _member(
    "Lag",
    "quorum_member_lag_records",
    "Records of the metadata log that the quorum's leader has and the member has not.",
)
BEHIND: Final = _member(
    "Behind for",
    "quorum_member_behind_seconds",
    (
        "Time since each member had all that the quorum's leader has. A voter that stays behind counts no more: with a "
        "majority of them behind, no metadata changes. A broker that is behind acts on old metadata."
    ),
    unit=Unit.SECONDS,
)
