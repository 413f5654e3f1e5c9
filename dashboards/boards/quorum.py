"""Quorum and controllers: who is the active controller, which members are behind, which features are on."""

from __future__ import annotations

from typing import Any, Final

from dashboards import style
from dashboards.board import PanelRow, board, line
from dashboards.boards import shared
from dashboards.promql import Unit
from dashboards.queries import IN_CLUSTER, Board, KeyColumn, TableColumn, colored, now_in_range, stat, table, yes_no
from dashboards.signals import clusters
from dashboards.style import PanelQuery

_LATE: Final = 10
CONTROLLER: Final = stat(clusters.CONTROLLER, style.steps(style.BLUE), f"max({clusters.CONTROLLER.now(IN_CLUSTER)})")
EPOCH: Final = stat(
    clusters.CONTROLLER_EPOCH, style.steps(style.BLUE), f"max({clusters.CONTROLLER_EPOCH.now(IN_CLUSTER)})"
)
CHANGES: Final = stat(
    clusters.CONTROLLER_CHANGES,
    style.steps(style.GREEN, (1, style.YELLOW), (4, style.ORANGE)),
    now_in_range(clusters.CONTROLLER_CHANGES),
)
_VOTERS: Final = f"{clusters.VOTER.now(IN_CLUSTER)} == 1"
_CAUGHT_UP: Final = f"{clusters.MEMBER_BEHIND.now(IN_CLUSTER)} <= {_LATE} and on (cluster, node) ({_VOTERS})"
SPARE_VOTERS: Final = style.stat(
    "Voters that may fail",
    f"How many more voters may fail, or fall more than {_LATE} s behind, until there is no majority and no metadata "
    "changes: no elections, no ISR changes, no topics. With three voters it is 1; 0 leaves no spare one. Negative: the "
    "majority is lost.",
    f"count({_CAUGHT_UP}) - floor(count({_VOTERS}) / 2) - 1",
    style.steps(style.RED, (0, style.ORANGE), (1, style.GREEN)),
    Unit.BARE,
)
MEMBERS: Final = table(
    "Members of the metadata quorum",
    "Controllers vote, brokers observe. Behind for: time since the member had all that the active controller has; a "
    "voter that is behind counts no more for the majority, and a broker acts on old metadata. Unknown: it never "
    "fetched.",
    [KeyColumn("node", "Node", 90)],
    [
        TableColumn(title=clusters.VOTER.name, expression=clusters.VOTER.now(IN_CLUSTER), look=yes_no(yes=style.BLUE)),
        TableColumn(title="Records behind", expression=clusters.MEMBER_LAG.now(IN_CLUSTER)),
        TableColumn(
            title=clusters.MEMBER_BEHIND.name,
            expression=clusters.MEMBER_BEHIND.now(IN_CLUSTER),
            unit=Unit.SECONDS,
            look=colored(style.TEXT, (_LATE, style.ORANGE), (60, style.RED)),
        ),
    ],
    clusters.MEMBER_BEHIND.name,
)
BEHIND: Final = style.timeseries(
    "Members behind the active controller",
    clusters.MEMBER_BEHIND.meaning,
    [PanelQuery(clusters.MEMBER_BEHIND.now(IN_CLUSTER), "node {{node}}")],
    Unit.SECONDS,
)
ACTIVE: Final = style.timeseries(
    "Active controller over time",
    "Node id of the active controller: each step is a failover. Without a line there was none that is known, and no "
    "partition could get another leader.",
    [PanelQuery(clusters.CONTROLLER.now(IN_CLUSTER), "active controller", style.PURPLE)],
    Unit.BARE,
)
FEATURES: Final = table(
    "Feature levels",
    f"{clusters.FEATURE_LEVEL.meaning} kafka-features describe lists what the brokers support.",
    [KeyColumn("feature", "Feature", 240)],
    [TableColumn(title=clusters.FEATURE_LEVEL.name, expression=clusters.FEATURE_LEVEL.now(IN_CLUSTER), unit=Unit.BARE)],
    clusters.FEATURE_LEVEL.name,
    no_value=style.NOT_REPORTED,
)
OLDER: Final = stat(clusters.OLDER_BROKERS, style.alarm_above_zero(style.YELLOW), no_value=style.NOT_REPORTED)
UNFINISHED: Final = stat(clusters.UNFINISHED_UPGRADE, style.alarm_above_zero(style.YELLOW), no_value=style.NOT_REPORTED)
THROTTLES: Final = stat(clusters.LEFT_THROTTLES, style.alarm_above_zero(style.YELLOW))

ROWS: Final = (
    PanelRow(
        "Is there a controller, and a majority to spare?",
        (line(4, CONTROLLER, EPOCH, CHANGES, SPARE_VOTERS, shared.DATA_AGE), (8, ((MEMBERS, 10), (BEHIND, 14)))),
    ),
    PanelRow("What changed?", ((7, ((ACTIVE, 12), (shared.LEADER_CHANGES, 12))),)),
    PanelRow("Is an upgrade unfinished?", ((7, ((FEATURES, 12), (OLDER, 4), (UNFINISHED, 4), (THROTTLES, 4))),)),
)


def built() -> dict[str, Any]:
    """Build the board."""
    return board(
        Board.QUORUM,
        "Kafka replication: quorum and controllers",
        "Who is the active controller, which members of the metadata quorum are behind, which features are on.",
        ROWS,
    )
