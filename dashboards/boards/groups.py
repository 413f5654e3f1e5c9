"""Offsets and groups: who is behind, by how many records and by what time, what was lost; transactions."""

from __future__ import annotations

from typing import Any, Final

from dashboards import style
from dashboards.board import (
    BROKER,
    GROUP,
    IN_CLUSTER,
    PARTITION,
    RANGE,
    TOPIC,
    Board,
    BoardSettings,
    PanelRow,
    board,
    line,
    or_nothing,
    selected,
    stat,
    top,
)
from dashboards.promql import Unit
from dashboards.signals import groups, partitions
from dashboards.style import KeyColumn, PanelQuery, TableColumn, alarm, colored

SELECTED: Final = selected("group", "topic")
_LISTED: Final = 10
_PARTITIONS: Final = 100
_INFO: Final = groups.INFO.now(SELECTED)


def _of_group(expression: str) -> str:
    """Add what is known of the group to a value of it."""
    return f"{expression} * on (cluster, group) group_left (state, protocol, coordinator) {_INFO}"


def _behind() -> str:
    """Records that groups have yet to read; a partition without a leader counts as when it lost it.

    Nothing is appended there, and nothing is read. Without it the sum would fall as if the group caught up.
    """
    offline = f"{partitions.OFFLINE.now(SELECTED)} == 1"
    last = f"{groups.LAG.last_known(RANGE, SELECTED)} and on (cluster, topic, partition) ({offline})"
    return f"({groups.LAG.now(SELECTED)} or {last})"


# While none of its partitions has a leader nothing is sampled of a topic, and what was lost is lost.
_LOST: Final = f"{groups.LOST.last_known(RANGE, SELECTED)} and on (cluster, group) {_INFO}"
_RECORDS_BEHIND: Final = f"sum by (cluster, group) {_behind()}"
_BEHIND: Final = "30 s of lag are ordinary; compare with what the application promises."
_STATES: Final = {
    **{name: (name, style.TEXT) for name in ("Stable", "Assigning", "Reconciling", "NotReady")},
    **{name: (name, style.TEXT) for name in ("PreparingRebalance", "CompletingRebalance")},
    "Empty": ("Empty", style.YELLOW),
    "Dead": ("Dead", style.ORANGE),
}
UNREAD: Final = stat(groups.UNREAD, style.alarm_above_zero(style.YELLOW))
OPEN: Final = stat(groups.OPEN_TRANSACTIONS, style.steps(style.BLUE))
LATE: Final = stat(groups.LATE_TRANSACTIONS, style.alarm_above_zero(style.YELLOW))
HANGING: Final = stat(groups.HANGING_TRANSACTIONS, style.alarm_above_zero(style.RED))
MOST_LAG: Final = style.stat(
    "Longest lag",
    "For how long, at least, the group that is furthest behind could have read the oldest record that it has yet to "
    "read. " + _BEHIND,
    f"max({groups.LAG_SECONDS.now(SELECTED)})",
    style.steps(style.GREEN, (60, style.YELLOW), (600, style.ORANGE)),
    Unit.DURATION,
)
LOST: Final = style.stat(
    "Records lost by groups",
    "Offsets that retention deleted before a group committed them, added up since each group is watched. They are gone "
    "for that group: find out when and why it stood still, and lengthen retention.",
    f"sum({_LOST})",
    style.alarm_above_zero(style.YELLOW),
)
GROUPS: Final = style.table(
    "Groups",
    "Every group that is chosen. Empty: no member. Stuck: partitions that are read, and whose committed offset has "
    "stood still for 15 minutes below what can be read. Beyond the end, as after an unclean election, it skips so many "
    "records or is reset. Queries of Spark have no coordinator.",
    [
        GROUP,
        KeyColumn("state", "State", 145, words=_STATES),
        KeyColumn("protocol", "Protocol", 100),
        KeyColumn("coordinator", "Coordinator", 120, BROKER.links, words={"-1": ("none", style.TEXT)}),
    ],
    [
        TableColumn(title="Records behind", expression=_of_group(_RECORDS_BEHIND)),
        TableColumn(
            title=groups.LAG_SECONDS.name,
            expression=_of_group(f"max by (cluster, group) ({groups.LAG_SECONDS.now(SELECTED)})"),
            unit=Unit.DURATION,
            look=colored(style.TEXT, (60, style.YELLOW), (600, style.ORANGE)),
        ),
        *(
            TableColumn(
                title=signal.name,
                expression=_of_group(f"sum by (cluster, group) ({signal.now(SELECTED)})"),
                look=alarm(style.RED),
            )
            for signal in (groups.STUCK, groups.BEYOND)
        ),
        *(
            TableColumn(
                title=signal.name,
                expression=_of_group(f"time() - max by (cluster, group) ({signal.now(SELECTED)})"),
                unit=Unit.DURATION,
                empty=style.NOT_SO,
            )
            for signal in (groups.LAST_COMMIT, groups.LAST_LOSS)
        ),
        TableColumn(
            title="Lost records", expression=_of_group(f"sum by (cluster, group) ({_LOST})"), look=alarm(style.RED)
        ),
        TableColumn(title=groups.MEMBERS.name, expression=_of_group(groups.MEMBERS.now(SELECTED))),
        TableColumn(
            title=groups.PROGRESS_AGE.name,
            expression=_of_group(groups.PROGRESS_AGE.now(SELECTED)),
            unit=Unit.DURATION,
            empty=style.NOT_SO,
        ),
    ],
    "Records behind",
)
LAG: Final = style.timeseries(
    "Records behind, by group",
    f"{groups.LAG.meaning} Of a partition without a leader it is as it was: nothing is appended there, or read.",
    [PanelQuery(top(_LISTED, _RECORDS_BEHIND), "{{group}}")],
    Unit.COUNT,
)
LAG_SECONDS: Final = style.timeseries(
    "Lag in time, by group",
    groups.LAG_SECONDS.meaning,
    [PanelQuery(top(_LISTED, f"max by (group) ({groups.LAG_SECONDS.now(SELECTED)})"), "{{group}}")],
    Unit.DURATION,
)
PARTITIONS: Final = style.table(
    "Where groups are behind",
    "The hundred partitions with the largest lag of the chosen groups. One partition far above the others: a record "
    "that its consumer cannot process, or a key that has most of the records. All alike: the group is too slow.",
    [GROUP, TOPIC, PARTITION],
    [
        TableColumn(
            title="Records behind",
            expression=or_nothing(
                top(_PARTITIONS, f"{_behind()} > 0"), "group", "", f"{_behind()} > 0", also=["topic", "partition"]
            ),
        )
    ],
    "Records behind",
    nothing="no group is behind",
)
OWNERS: Final = style.table(
    "Who reads",
    "The members that own partitions of the chosen groups and topics, by client id. A topic that is missing here and "
    "has a lag is not read any more, or by a consumer without membership.",
    [GROUP, TOPIC, KeyColumn("owner", "Owner", 150)],
    [
        TableColumn(
            title=groups.OWNED.name,
            expression=or_nothing(
                top(_PARTITIONS, groups.OWNED.now(SELECTED)), "group", "", groups.OWNED.now(SELECTED),
                also=["topic", "owner"],
            ),
        )
    ],
    groups.OWNED.name,
    nothing="no partition is owned",
)  # fmt: skip
HANGING_LIST: Final = style.table(
    "Transactions to abort",
    "What kafka-transactions abort needs of each. read_committed consumers stop at its first record until it is "
    "aborted, and compaction does, too.",
    [
        KeyColumn("transactional_id", "Transactional id", 170),
        KeyColumn("producer_id", "Producer id", 120),
        KeyColumn("producer_epoch", "Epoch", 80),
        KeyColumn("partitions", "Partitions", 200),
    ],
    [
        TableColumn(
            title=groups.HANGING_TRANSACTION_INFO.name,
            expression=or_nothing(
                groups.HANGING_TRANSACTION_INFO.now(IN_CLUSTER),
                "transactional_id",
                "no transaction hangs",
                also=["producer_id", "producer_epoch", "partitions"],
            ),
        )
    ],
    groups.HANGING_TRANSACTION_INFO.name,
)

ROWS: Final = (
    PanelRow("Which groups are behind?", (line(4, MOST_LAG, LOST, UNREAD, LATE, HANGING, OPEN), (7, ((GROUPS, 24),)))),
    PanelRow(
        "Since when, and where?",
        ((8, ((LAG, 12), (LAG_SECONDS, 12))), (9, ((PARTITIONS, 12), (OWNERS, 12))), (9, ((HANGING_LIST, 24),))),
    ),
)


def built(settings: BoardSettings) -> dict[str, Any]:
    """Build the board."""
    return board(
        Board.GROUPS,
        "Kafka consumer groups",
        "Which groups are behind, since when and where, what they lost; transactions that hang.",
        ROWS,
        settings,
        variables=["group", "topic"],
    )
