"""The quorum of controllers."""

from __future__ import annotations

from typing import Final

from dashboards.promql import Unit
from dashboards.signals.derived import signal

CONTROLLER: Final = signal(
    "kafka_replication_cluster_controller",
    "Active controller",
    "Node id of the active controller. Its log has the reason of each election.",
    unit=Unit.BARE,
)
CONTROLLER_CHANGES: Final = signal(
    "kafka_replication_cluster_controller_changes_total",
    "Controller changes",
    "Failovers of the active controller. Several in an hour indicate an unstable quorum.",
)
CONTROLLER_EPOCH: Final = signal(
    "kafka_replication_cluster_controller_epoch",
    "Controller epoch",
    "Raft epoch of the active controller: it grows with each election of one, also of the same.",
    unit=Unit.BARE,
)
VOTER: Final = signal("kafka_replication_quorum_member_voter", "Voter")
LAG: Final = signal("kafka_replication_quorum_member_lag_records")
BEHIND: Final = signal(
    "kafka_replication_quorum_member_behind_seconds",
    "Behind for",
    (
        "Time since each member had all that the quorum's leader has. A voter that stays behind counts no more: with a "
        "majority of them behind, no metadata changes. A broker that is behind acts on old metadata."
    ),
)
