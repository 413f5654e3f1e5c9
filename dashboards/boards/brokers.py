"""Brokers: which may be stopped, which are missing, suspect or slow, how even the load is, which disks fill."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from dashboards import style
from dashboards.board import PanelRow, board, line
from dashboards.boards import shared
from dashboards.promql import Signal, Unit
from dashboards.queries import (
    BROKER,
    IN_CLUSTER,
    Board,
    CellLook,
    KeyColumn,
    TableColumn,
    alarm,
    colored,
    in_range,
    or_none,
    selected,
    stat,
    table,
    yes_no,
)
from dashboards.signals import brokers, clusters
from dashboards.style import PanelQuery

SELECTED: Final = selected("broker")
_BY_BROKER: Final = "broker {{broker}}"


def _of_those_up(signal: Signal) -> str:
    """Sum up, without brokers that are not up; 0, and not nothing, while that is all of them."""
    each = signal.now(IN_CLUSTER)
    return f"sum({each} unless on (cluster, broker) {shared.not_up(IN_CLUSTER)} or 0 * {each})"


REGISTERED: Final = stat(clusters.BROKERS, style.steps(style.BLUE))
FENCED: Final = stat(clusters.FENCED_BROKERS, style.alarm_above_zero(style.ORANGE))
NOT_SAFE: Final = style.stat(
    "Brokers not safe to stop",
    "Brokers that are up and whose stop would make a partition refuse writes or lose its leader, or for which "
    "that is unknown. The table below says how many partitions.",
    f"{_of_those_up(brokers.REGISTERED)} - {_of_those_up(brokers.SAFE_TO_STOP)}",
    style.alarm_above_zero(style.ORANGE),
)
LEADER_SKEW: Final = style.stat(
    "Leader skew",
    "By how much the broker that leads most partitions exceeds the mean. After a restart leaders return within five "
    "minutes, unless auto.leader.rebalance.enable is off. Above a half for long: elect preferred leaders, or reassign.",
    f"max({brokers.LED.now(IN_CLUSTER)}) / avg({brokers.LED.now(IN_CLUSTER)}) - 1",
    style.steps(style.GREEN, (0.5, style.YELLOW)),
    Unit.SHARE,
)
REPLICA_SKEW: Final = style.stat(
    "Replica skew",
    "By how much the broker that hosts most replicas exceeds the mean. Only a reassignment changes it: a new broker "
    "gets no replicas by itself.",
    f"max({brokers.HOSTED.now(IN_CLUSTER)}) / avg({brokers.HOSTED.now(IN_CLUSTER)}) - 1",
    style.steps(style.GREEN, (0.5, style.YELLOW)),
    Unit.SHARE,
)


def _of_a_stop(signal: Signal, look: CellLook) -> TableColumn:
    """Show what a stop costs, but -1 in other words of a broker that is not up: 0 would read as if it were free."""
    nothing = (style.NOT_SO, style.NO_COLOR if look.fills else style.TEXT)
    return TableColumn(
        title=signal.name,
        expression=f"-1 * {shared.not_up(SELECTED)} or {signal.now(SELECTED)}",
        look=replace(look, words={"-1": nothing}),
    )


_SAFE: Final = brokers.SAFE_TO_STOP.now(SELECTED)
RESTART_SAFETY: Final = table(
    "What a stop would cost",
    "What would happen if one broker stopped now. Valid for one broker at a time: look again before the next. Not "
    "safe, or unknown: do not stop it. Not up: there is nothing to stop. Restart in the given order, the active "
    "controller last. What is lost in any order has too few replicas. A second or two behind other panels.",
    [BROKER],
    [
        shared.safe_to_stop(SELECTED, yes_no(style.GREEN, style.ORANGE), grows=True),
        TableColumn(
            title=brokers.RESTART_ORDER.name,
            expression=f"-1 * {shared.not_up(SELECTED)} or {brokers.RESTART_ORDER.now(SELECTED)} or 0 * {_SAFE}",
            unit=brokers.RESTART_ORDER.unit,
            look=CellLook({"0": ("none", style.TEXT), "-1": (style.NOT_SO, style.TEXT)}),
            grows=True,
        ),
        *(
            _of_a_stop(signal, look)
            for signal, look in (
                (brokers.WOULD_GO_OFFLINE, alarm(style.RED)),
                (brokers.WOULD_GO_UNDER_MIN_ISR, colored(style.TEXT, (1, style.RED))),
                (brokers.UNAVOIDABLE_OFFLINE, colored(style.TEXT, (1, style.ORANGE))),
                (brokers.UNAVOIDABLE_UNDER_MIN_ISR, colored(style.TEXT, (1, style.ORANGE))),
            )
        ),
        TableColumn(title="Planned work", expression=brokers.MAINTENANCE.now(SELECTED), look=yes_no(yes=style.BLUE)),
        TableColumn(
            title=brokers.MAINTENANCE_OVERRUN.name,
            expression=brokers.MAINTENANCE_OVERRUN.now(SELECTED),
            look=yes_no(yes=style.ORANGE),
        ),
    ],
    brokers.WOULD_GO_UNDER_MIN_ISR.name,
)
CAUSES: Final = table(
    "Causes in this time range",
    "ISR removals of the whole time range, by broker and cause. lag or fenced on one broker: check that broker. lag on "
    "many: network or overload. leader_stall: check the leader, not the removed brokers. Counts are extrapolated by "
    "Prometheus to the time range; the table replication_events has the exact ones.",
    [BROKER, KeyColumn("cause", "Cause", 170)],
    [
        TableColumn(
            title="ISR removals",
            expression=or_none(
                f"{in_range(brokers.ISR_REMOVALS, brokers.ISR_REMOVALS.labels, scope=SELECTED)} > 0",
                "broker",
                also={"cause": "-"},
            ),
        )
    ],
    "ISR removals",
)
SPEED: Final = table(
    "Speed",
    "Alive, but slow. Slow: slower than it was and than its peers; overloaded: so many are slower that none is to "
    "blame. Replicas behind have not caught up between two samples: a lag that grows comes before the removal from "
    "the ISR.",
    [BROKER],
    [
        TableColumn(title=brokers.SLOW.name, expression=brokers.SLOW.now(SELECTED), look=yes_no(style.ORANGE)),
        TableColumn(
            title=brokers.OVERLOADED.name, expression=brokers.OVERLOADED.now(SELECTED), look=yes_no(style.ORANGE)
        ),
        *(
            TableColumn(title=signal.name, expression=signal.now(SELECTED), unit=signal.unit)
            for signal in (brokers.RESPONSE, brokers.APPEND, brokers.LAGGING_REPLICAS, brokers.MAX_REPLICA_LAG)
        ),
    ],
    brokers.LAGGING_REPLICAS.name,
)


def _over_time(signal: Signal, title: str | None = None) -> style.Panel:
    query = PanelQuery(signal.now(SELECTED), _BY_BROKER)
    return style.timeseries(title or signal.name, signal.meaning, [query], signal.unit)


_USED: Final = f"1 - {brokers.DIRECTORY_USABLE.now(SELECTED)} / {brokers.DIRECTORY_TOTAL.now(SELECTED)}"
DIRECTORIES: Final = table(
    "Log directories",
    "Every log directory. Not online: its disk failed, and its replicas are offline. A full volume stops the broker: "
    "move replicas away, shorten retention or enlarge it before. Full in: at the pace of the last twenty minutes.",
    [BROKER, KeyColumn("log_dir", "Log directory", 160)],
    [
        TableColumn(
            title=brokers.DIRECTORY_ONLINE.name,
            expression=brokers.DIRECTORY_ONLINE.now(SELECTED),
            look=yes_no(no=style.RED),
        ),
        TableColumn(
            title="Used",
            expression=_USED,
            unit=Unit.SHARE,
            look=colored(style.TEXT, (0.75, style.YELLOW), (0.85, style.RED)),
        ),
        *(
            TableColumn(title=signal.name, expression=signal.now(SELECTED), unit=signal.unit)
            for signal in (brokers.DIRECTORY_REPLICA_BYTES, brokers.DIRECTORY_USABLE, brokers.DIRECTORY_TOTAL)
        ),
        TableColumn(
            title=brokers.DIRECTORY_UNTIL_FULL.name,
            expression=brokers.DIRECTORY_UNTIL_FULL.now(SELECTED),
            unit=Unit.SECONDS,
            look=colored(style.RED, (6 * 3600, style.YELLOW), (24 * 3600, style.TEXT)),
            empty="not filling",
        ),
    ],
    brokers.DIRECTORY_ONLINE.name,
    ascending=True,
)
_INFO: Final = brokers.INFO.now(SELECTED)
PLACES: Final = table(
    "Places and load",
    "Where each broker is, and what it leads and hosts. Led far below the others: leadership has not returned yet. "
    "Missing brokers that share a rack: the rack failed.",
    [BROKER, KeyColumn("rack", "Rack", 100), KeyColumn("host", "Host", 180)],
    [
        TableColumn(
            title=signal.name,
            expression=f"{signal.now(SELECTED)} * on (cluster, broker) group_left (rack, host) {_INFO}",
        )
        for signal in (brokers.LED, brokers.HOSTED, brokers.IN_SYNC, brokers.ONLINE_LOG_DIRS)
    ],
    brokers.HOSTED.name,
)

ROWS: Final = (
    PanelRow(
        "Which brokers may be stopped now, and in which order?",
        (line(4, REGISTERED, FENCED, NOT_SAFE, shared.DATA_AGE), (8, ((RESTART_SAFETY, 24),))),
    ),
    PanelRow(
        "Which brokers are missing or suspect, and why?",
        (
            (8, ((shared.broker_states(SELECTED), 24),)),
            (8, ((shared.in_sync_share(SELECTED), 10), (shared.removals_by("broker", SELECTED), 7), (CAUSES, 7))),
        ),
    ),
    PanelRow(
        "Which brokers are alive, but slow?",
        (
            (8, ((SPEED, 14), (_over_time(brokers.RESPONSE, "Response time of each broker"), 10))),
            (7, ((_over_time(brokers.MAX_REPLICA_LAG, "Largest lag of each broker"), 24),)),
        ),
    ),
    PanelRow(
        "Is the load even, and are disks full?",
        (
            (8, ((PLACES, 18), (LEADER_SKEW, 3), (REPLICA_SKEW, 3))),
            (8, ((DIRECTORIES, 14), (_over_time(brokers.LED, "Led partitions of each broker"), 10))),
        ),
    ),
)


def built() -> dict[str, Any]:
    """Build the board."""
    return board(
        Board.BROKERS,
        "Kafka replication: brokers",
        "Which brokers may be stopped, which are missing or suspect, slow, uneven, nearly full.",
        ROWS,
        variables=["broker"],
    )
