"""Brokers and controllers: which may be stopped, which are missing, slow or full, and whether there is a majority."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from dashboards import style
from dashboards.board import (
    BROKER,
    IN_CLUSTER,
    WINDOW,
    Board,
    BoardSettings,
    PanelRow,
    board,
    in_range,
    now_in_range,
    or_nothing,
    selected,
    stat,
    while_fresh,
    while_observed,
)
from dashboards.promql import Scope, Signal, SignalType, Unit
from dashboards.signals import brokers, clusters, derived
from dashboards.style import CellLook, KeyColumn, PanelQuery, TableColumn, alarm, colored, yes_no

SELECTED: Final = selected("broker")
_BY_BROKER: Final = "broker {{broker}}"


def not_up(scope: Scope) -> str:
    """Return the brokers that are down, or about to be: a stop of them costs nothing and means nothing."""
    return f"({brokers.FENCED.now(scope)} == 1 or {brokers.SHUTTING_DOWN.now(scope)} == 1)"


def _over_time(signal: Signal, title: str, unit: Unit | None = None) -> style.Panel:
    return style.timeseries(title, signal.meaning, [PanelQuery(signal.now(SELECTED), _BY_BROKER)], unit or signal.unit)


# Stops: which brokers may go now, and in which order.


def _of_those_up(signal: Signal) -> str:
    """Sum up, without brokers that are not up; 0, and not nothing, while that is all of them."""
    each = signal.now(IN_CLUSTER)
    return f"sum({each} unless on (cluster, broker) {not_up(IN_CLUSTER)} or 0 * {each})"


REGISTERED: Final = stat(clusters.BROKERS, style.steps(style.BLUE))
NOT_SAFE: Final = style.stat(
    "Brokers not safe to stop",
    "Brokers that are up and whose stop would make a partition reject writes or lose its leader, or for which "
    "that is unknown. The table below says how many partitions.",
    f"{_of_those_up(brokers.REGISTERED)} - {_of_those_up(brokers.SAFE_TO_STOP)}",
    style.alarm_above_zero(style.ORANGE),
)


def _of_a_stop(signal: Signal, look: CellLook) -> TableColumn:
    """Show what a stop costs, but -1 in other words of a broker that is not up: 0 would read as if it were free."""
    nothing = (style.NOT_SO, style.NO_COLOR if look.fills else style.TEXT)
    return TableColumn(
        title=signal.name,
        expression=f"-1 * {not_up(SELECTED)} or {signal.now(SELECTED)}",
        look=replace(look, words={"-1": nothing}),
    )


_SAFE: Final = brokers.SAFE_TO_STOP.now(SELECTED)
IMPACT: Final = style.table(
    "Impact of stopping a broker",
    "What would happen if one broker stopped now. Valid for one broker at a time: look again before the next. Not "
    "safe, or unknown: do not stop it. Not up: there is nothing to stop. Restart in the given order, the active "
    "controller last. What is lost in any order has too few replicas. A second or two behind other panels.",
    [BROKER],
    [
        # The advice is older than what is seen of the broker, which therefore wins.
        TableColumn(
            title=brokers.SAFE_TO_STOP.name,
            expression=f"2 * {not_up(SELECTED)} or {_SAFE}",
            look=style.in_words({"1": ("yes", style.GREEN), "0": ("no", style.ORANGE), "2": ("not up", style.TEXT)}),
            grows=True,
        ),
        TableColumn(
            title=brokers.RESTART_ORDER.name,
            expression=f"-1 * {not_up(SELECTED)} or {brokers.RESTART_ORDER.now(SELECTED)} or 0 * {_SAFE}",
            unit=brokers.RESTART_ORDER.unit,
            look=CellLook({"0": ("none", style.TEXT), "-1": (style.NOT_SO, style.TEXT)}),
            grows=True,
        ),
        *(
            _of_a_stop(signal, look)
            for signal, look in (
                (brokers.WOULD_GO_OFFLINE, alarm(style.DARK_RED)),
                (brokers.WOULD_GO_UNDER_MIN_ISR, colored(style.TEXT, (1, style.RED))),
                (brokers.UNAVOIDABLE_OFFLINE, colored(style.TEXT, (1, style.ORANGE))),
                (brokers.UNAVOIDABLE_UNDER_MIN_ISR, colored(style.TEXT, (1, style.ORANGE))),
            )
        ),
        TableColumn(
            title=brokers.MAINTENANCE_OVERRUN.name,
            expression=brokers.MAINTENANCE_OVERRUN.now(SELECTED),
            look=yes_no(yes=style.ORANGE),
        ),
    ],
    brokers.WOULD_GO_UNDER_MIN_ISR.name,
)


# Missing brokers: why, since when.


_AT_RISK: Final = "At or under min ISR"
STATES: Final = style.table(
    "Brokers",
    "Every broker. Fenced: its session with the controller expired, or it is starting. Missing from ISRs: replicas on "
    "it that are not in sync; at or under min ISR: of these, where writes are rejected or the loss of one more stops "
    "them. Open incidents name the brokers that explain them.",
    [BROKER],
    [
        TableColumn(
            title="Registered", expression=brokers.REGISTERED.now(SELECTED), look=yes_no(no=style.RED), grows=True
        ),
        TableColumn(title="Fenced", expression=brokers.FENCED.now(SELECTED), look=yes_no(yes=style.ORANGE), grows=True),
        TableColumn(
            title="Planned work", expression=brokers.MAINTENANCE.now(SELECTED), look=yes_no(yes=style.BLUE), grows=True
        ),
        TableColumn(
            title=brokers.MISSING_FROM_ISR.name,
            expression=brokers.MISSING_FROM_ISR.now(SELECTED),
            look=colored(style.TEXT, (1, style.ORANGE)),
        ),
        TableColumn(title=_AT_RISK, expression=brokers.MISSING_AT_MIN_ISR.now(SELECTED), look=alarm(style.ORANGE)),
        TableColumn(
            title="ISR removals", expression=while_fresh(in_range(brokers.ISR_REMOVALS, derived.BROKER, scope=SELECTED))
        ),
    ],
    _AT_RISK,
)
_RETURNS: Final = "5m"
"""A broker that was stopped on purpose has caught up within it, unless it left ISRs for another reason, too."""
_SHARE: Final = f"{brokers.IN_SYNC.now(SELECTED)} / ({brokers.HOSTED.now(SELECTED)} > 0)"
_SHUT_DOWN: Final = brokers.SHUTTING_DOWN.series(SELECTED)
_OTHERWISE: Final = brokers.ISR_REMOVALS.increase(_RETURNS, SELECTED, f'cause!~"{"|".join(brokers.PLANNED_CAUSES)}"')
_ON_PURPOSE: Final = (
    f"((max by (cluster, broker) (max_over_time({_SHUT_DOWN}[{_RETURNS}])) == 1 "
    f"unless on (cluster, broker) {_OTHERWISE} > 0) or {brokers.MAINTENANCE.now(SELECTED)} == 1)"
)
_PLANNED, _ALL, _SOME, _FEW = -1, 0, 1, 2
IN_SYNC: Final = style.state_timeline(
    "In-sync replicas of each broker",
    "Whether the replicas of each broker are in sync, and since when they are not. Blue: it was stopped on purpose, or "
    "work on it is announced, and it has not caught up yet. Orange that stays: something does not catch up.",
    [
        PanelQuery(
            f"0 * ({_SHARE} < 1 and on (cluster, broker) {_ON_PURPOSE}) + {_PLANNED} or "
            f"0 * ({_SHARE} < 0.5) + {_FEW} or 0 * ({_SHARE} < 1) + {_SOME} or 0 * {_SHARE} + {_ALL}",
            _BY_BROKER,
        )
    ],
    style.steps(style.BLUE, (_ALL, style.GREEN), (_SOME, style.ORANGE), (_FEW, style.RED)),
    words={
        str(_PLANNED): ("stopped on purpose", style.BLUE),
        str(_ALL): ("all in sync", style.GREEN),
        str(_SOME): ("some missing", style.ORANGE),
        str(_FEW): ("most missing", style.RED),
    },
)
_NO_REMOVAL: Final = "no broker left an ISR"
CAUSES: Final = style.table(
    "Causes in this time range",
    "ISR removals of the whole time range, by broker and cause. lag or fenced on one broker: check that broker. lag on "
    "many: network or overload. leader_stall: check the leader, not the removed brokers. Counts are extrapolated by "
    "Prometheus to the time range; the table replication_events has the exact ones.",
    [replace(BROKER, width=170), KeyColumn("cause", "Cause", 160)],
    [
        TableColumn(
            title="Removals",
            expression=or_nothing(
                f"{in_range(brokers.ISR_REMOVALS, brokers.ISR_REMOVALS.labels, scope=SELECTED)} > 0",
                "broker",
                "",
                also=["cause"],
            ),
        )
    ],
    "Removals",
    nothing=_NO_REMOVAL,
)


# Speed and load.


SPEED: Final = style.table(
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
_NO_AGENT: Final = "no metrics agent: see collect.broker_metrics"


def _load(signal: Signal) -> style.Panel:
    """Show over time what the brokers' own agents say; without agents it says so."""
    is_counter = signal.kind is SignalType.COUNTER
    expression = while_observed(f"{signal.per_minute(WINDOW, SELECTED)} / 60") if is_counter else signal.now(SELECTED)
    queries = [PanelQuery(expression, _BY_BROKER)]
    return style.timeseries(f"{signal.name} by broker", signal.meaning, queries, signal.unit, no_value=_NO_AGENT)


LOAD: Final = tuple(map(_load, brokers.LOAD))


# Balance and disks.


_NOT_JUDGED: Final = {"-1": ("replicas are missing", style.NO_COLOR)}


def _skew(title: str, meaning: str, each: str) -> style.Panel:
    """Show by how much the first exceeds the mean; while replicas are missing it follows from that alone."""
    missing = f"sum({clusters.UNDER_REPLICATED.now(IN_CLUSTER)}) > 0"
    return style.stat(
        title,
        f"{meaning} Not judged while replicas are missing: leaders are where the replicas are.",
        f"0 * ({missing}) - 1 or max({each}) / avg({each}) - 1",
        style.steps(style.NO_COLOR, (0, style.GREEN), (0.5, style.YELLOW)),
        Unit.SHARE,
        words=_NOT_JUDGED,
    )


LEADER_SKEW: Final = _skew(
    "Leader skew",
    "By how much the broker that leads most partitions exceeds the mean. After a restart leaders return within five "
    "minutes, unless auto.leader.rebalance.enable is off. Above a half for long: elect preferred leaders, or reassign.",
    brokers.LED.now(IN_CLUSTER),
)
REPLICA_SKEW: Final = _skew(
    "Replica skew",
    "By how much the broker that hosts most replicas exceeds the mean. Only a reassignment changes it: a new broker "
    "gets no replicas by itself.",
    brokers.HOSTED.now(IN_CLUSTER),
)
OFF_PREFERRED_LEADER: Final = stat(
    clusters.OFF_PREFERRED_LEADER, style.alarm_above_zero(style.YELLOW), title="Off preferred leader"
)
_INFO: Final = brokers.INFO.now(SELECTED)
RACKS: Final = style.table(
    "Racks and load",
    "Where each broker is, and what it leads and hosts. Led far below the others: leadership has not returned yet. "
    "Missing brokers that share a rack: the rack failed.",
    [BROKER, KeyColumn("rack", "Rack", 100), KeyColumn("host", "Host", 180)],
    [
        TableColumn(
            title=signal.name,
            expression=f"{signal.now(SELECTED)} * on (cluster, broker) group_left (rack, host) {_INFO}",
        )
        for signal in (brokers.LED, brokers.HOSTED, brokers.IN_SYNC)
    ],
    brokers.HOSTED.name,
)
_USED: Final = f"1 - {brokers.DIRECTORY_USABLE.now(SELECTED)} / {brokers.DIRECTORY_TOTAL.now(SELECTED)}"
DIRECTORIES: Final = style.table(
    "Log directories",
    "Every log directory. Not online: its disk failed, and its replicas are offline. A full volume stops the broker: "
    "move replicas away, shorten retention or enlarge it before. Full in: at the pace of the last twenty minutes.",
    [BROKER, KeyColumn("log_dir", "Log directory", 150)],
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
            unit=Unit.DURATION,
            look=colored(style.RED, (6 * 3600, style.YELLOW), (24 * 3600, style.TEXT)),
            empty="not filling",
        ),
    ],
    brokers.DIRECTORY_ONLINE.name,
    ascending=True,
)


# The metadata quorum, and an upgrade that is not finished.


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
MEMBERS: Final = style.table(
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
            unit=Unit.DURATION,
            look=colored(style.TEXT, (_LATE, style.ORANGE), (60, style.RED)),
        ),
    ],
    clusters.MEMBER_BEHIND.name,
)
BEHIND: Final = style.timeseries(
    "Members behind the active controller",
    clusters.MEMBER_BEHIND.meaning,
    [PanelQuery(clusters.MEMBER_BEHIND.now(IN_CLUSTER), "node {{node}}")],
    Unit.DURATION,
)
ACTIVE: Final = style.timeseries(
    "Active controller over time",
    "Node id of the active controller: each step is a failover. Without a line there was none that is known, and no "
    "partition could get another leader.",
    [PanelQuery(clusters.CONTROLLER.now(IN_CLUSTER), "active controller", style.BLUE)],
    Unit.BARE,
)
FEATURES: Final = style.table(
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
        "Which brokers may be stopped now, and in which order?",
        (
            (4, tuple((panel, 4) for panel in (NOT_SAFE, REGISTERED, CONTROLLER, SPARE_VOTERS, CHANGES, EPOCH))),
            (8, ((IMPACT, 24),)),
        ),
    ),
    PanelRow("Which brokers are missing, why, since when?", ((8, ((STATES, 15), (CAUSES, 9))), (7, ((IN_SYNC, 24),)))),
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
            (8, ((RACKS, 15), (LEADER_SKEW, 3), (REPLICA_SKEW, 3), (OFF_PREFERRED_LEADER, 3))),
            (8, ((DIRECTORIES, 14), (_over_time(brokers.LED, "Led partitions of each broker"), 10))),
        ),
    ),
    PanelRow(
        "Is the metadata quorum well, and an upgrade unfinished?",
        (
            (8, ((MEMBERS, 9), (BEHIND, 8), (ACTIVE, 7))),
            (7, ((FEATURES, 9), (OLDER, 5), (UNFINISHED, 5), (THROTTLES, 5))),
        ),
    ),
    PanelRow(
        "What load do they carry, and how much is left?",
        ((7, tuple((panel, 8) for panel in LOAD[:3])), (7, tuple((panel, 8) for panel in LOAD[3:]))),
    ),
)


def built(settings: BoardSettings) -> dict[str, Any]:
    """Build the board."""
    return board(
        Board.BROKERS,
        "Kafka brokers and controllers",
        "Which brokers may be stopped, which are missing, slow, loaded or nearly full; the controllers and the quorum.",
        ROWS,
        settings,
        variables=["broker"],
    )
