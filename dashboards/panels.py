"""Panels of the overview: one entry a panel, a form from ``style`` over ``signals``. Nothing is worded twice."""

from __future__ import annotations

from typing import Final

from dashboards import signals, style
from dashboards.promql import Scope, Signal, Unit
from dashboards.style import Column, Query

SELECTED: Final = Scope({"cluster": 'cluster=~"$cluster"', "topic": 'topic=~"$topic"'})
WINDOW: Final = "$__rate_interval"
RANGE: Final = "$__range"


def _stat(signal: Signal, colors: style.Steps, expression: str | None = None) -> style.Panel:
    asked = expression or signal.now(SELECTED, by=())
    return style.stat(signal.name, signal.meaning, asked, colors, signal.unit)


def _per_minute(signal: Signal, legend: str, color: str | None = None) -> Query:
    return Query(signal.per_minute(WINDOW, SELECTED), legend, color)


def _in_range(signal: Signal, by: tuple[str, ...], *more: str) -> str:
    """Count the events of the whole time range: no overlap of windows, hence not the rate interval."""
    return f"round({signal.increase(RANGE, SELECTED, *more, by=by)})"


# Is data at risk now?
OFFLINE: Final = _stat(signals.OFFLINE, style.alarm_above_zero(style.RED))
UNDER_MIN_ISR: Final = _stat(signals.UNDER_MIN_ISR, style.alarm_above_zero(style.RED))
AT_MIN_ISR: Final = _stat(signals.AT_MIN_ISR, style.alarm_above_zero(style.ORANGE))
UNDER_REPLICATED: Final = _stat(signals.UNDER_REPLICATED, style.alarm_above_zero(style.YELLOW))
FENCED_BROKERS: Final = _stat(signals.FENCED_BROKERS, style.alarm_above_zero(style.ORANGE))
SIGHT_AGE: Final = _stat(
    signals.SIGHT_AGE,
    style.steps(style.GREEN, (30, style.ORANGE), (60, style.RED)),
    f"max({signals.SIGHT_AGE.now(SELECTED)})",
)
AT_RISK: Final = style.timeseries(
    "Risk over time",
    "The counts above over time: when did it begin, is it getting better? All at once is a broker; one by one is a "
    "disk, a network or load. Red means refused writes, orange one step from it.",
    [
        Query(signals.OFFLINE.now(SELECTED), "{{cluster}} offline", "dark-red"),
        Query(signals.UNDER_MIN_ISR.now(SELECTED), "{{cluster}} under min ISR", style.RED),
        Query(signals.AT_MIN_ISR.now(SELECTED), "{{cluster}} at min ISR", style.ORANGE),
        Query(signals.UNDER_REPLICATED.now(SELECTED), "{{cluster}} under-replicated", style.YELLOW),
    ],
    Unit.COUNT,
)

# What is going on, and what may be stopped?
INCIDENTS: Final = style.table(
    "Incidents",
    "What is going on and what is over, by class. One incident is one thing that happened, a rolling restart included, "
    "however many partitions it touched; isrwatch incidents tells each with its suspects and the events that show it. "
    "What is over is counted once it can change no more, up to 15 minutes later.",
    signals.INCIDENT,
    [
        Column(
            title=signals.OPEN_INCIDENTS.name,
            expression=signals.OPEN_INCIDENTS.now(SELECTED),
            steps=style.alarm_above_zero(style.ORANGE),
        ),
        Column(title=signals.CLOSED_INCIDENTS.name, expression=_in_range(signals.CLOSED_INCIDENTS, signals.INCIDENT)),
    ],
    signals.OPEN_INCIDENTS.name,
)
HEADROOM: Final = style.table(
    "Which broker may be stopped",
    "What would happen if one broker stopped now. For one at a time: look again before the next. Safe to stop 0, "
    "or nothing: do not. Restart in the order told, the active controller last. A second or two behind other panels.",
    signals.BROKER,
    [
        Column(
            title=signals.SAFE_TO_STOP.name,
            expression=signals.SAFE_TO_STOP.now(SELECTED),
            steps=style.steps(style.RED, (1, style.GREEN)),
        ),
        *(
            Column(title=signal.name, expression=signal.now(SELECTED), steps=style.alarm_above_zero(color))
            for signal, color in (
                (signals.WOULD_GO_OFFLINE, style.RED),
                (signals.WOULD_GO_UNDER_MIN_ISR, style.RED),
            )
        ),
        Column(
            title=signals.RESTART_ORDER.name,
            expression=signals.RESTART_ORDER.now(SELECTED),
            unit=signals.RESTART_ORDER.unit,
        ),
    ],
    signals.WOULD_GO_UNDER_MIN_ISR.name,
)

# Which broker left, why, since when?
_MISSING: Final = f"{signals.HOSTED.now(SELECTED)} - {signals.IN_SYNC.now(SELECTED)}"
SUSPECTS: Final = style.table(
    "Suspects",
    "Brokers by how much each explains of every ISR that is shrunk now, beside the replicas it is missing from ISRs "
    "with, and how often it left an ISR in this time range (planned causes included). The one on top is where to look "
    "first: its process, disks and network. A leader that stalled is told itself, not the followers it expelled.",
    signals.BROKER,
    [
        Column(title="Missing from ISRs", expression=_MISSING, steps=style.alarm_above_zero(style.ORANGE)),
        Column(title="Departures", expression=_in_range(signals.DEPARTURES, signals.BROKER)),
        Column(
            title=signals.SUSPECT_SCORE.name,
            expression=signals.SUSPECT_SCORE.now(SELECTED),
            unit=Unit.SHARE,
            steps=style.steps(style.GREEN, (0.01, style.YELLOW), (0.5, style.ORANGE)),
        ),
    ],
    signals.SUSPECT_SCORE.name,
)
DEPARTURES: Final = style.timeseries(
    signals.DEPARTURES.name,
    signals.DEPARTURES.meaning,
    [_per_minute(signals.DEPARTURES, "{{cluster}} broker {{broker}}: {{cause}}")],
    Unit.PER_MINUTE,
    bars=True,
)
CAUSES: Final = style.table(
    "Causes in this time range",
    "Departures from ISRs of the whole time range, by broker and cause. lag and fenced on one broker: that broker. "
    "lag on many: network, or a load that does not fit. leader_stall: look at the leader, not at who left. Counts are "
    "Prometheus' estimates to the ends of the range; the table replication_events has the exact ones.",
    signals.DEPARTURES.labels,
    [
        Column(
            title="Departures",
            expression=f"{_in_range(signals.DEPARTURES, signals.DEPARTURES.labels)} > 0",
        )
    ],
    "Departures",
)
IN_SYNC_SHARE: Final = style.state_timeline(
    "In-sync share of each broker",
    "Share of a broker's replicas that are in sync: green all, orange some, red less than half. The left edge of a "
    "colour tells since when. Red bands one after another are a rolling restart; one that stays is an incident.",
    [
        Query(
            f"{signals.IN_SYNC.now(SELECTED)} / ({signals.HOSTED.now(SELECTED)} > 0)",
            "{{cluster}} broker {{broker}}",
        )
    ],
    Unit.SHARE,
    style.steps(style.RED, (0.5, style.ORANGE), (1, style.GREEN)),
)

# Which topics?
TOPICS: Final = style.table(
    "Topics at risk",
    "Topics with partitions that are offline, under or at min ISR, or under-replicated. Their owners feel the first "
    "two columns now: refused produce requests, stalled consumers.",
    signals.TOPIC,
    [
        Column(
            title=signal.name,
            expression=f"{signal.now(SELECTED, by=signals.TOPIC)} > 0",
            steps=style.alarm_above_zero(color),
        )
        for signal, color in (
            (signals.PARTITION_OFFLINE, style.RED),
            (signals.PARTITION_UNDER_MIN_ISR, style.RED),
            (signals.PARTITION_AT_MIN_ISR, style.ORANGE),
            (signals.PARTITION_UNDER_REPLICATED, style.YELLOW),
        )
    ],
    signals.PARTITION_UNDER_MIN_ISR.name,
)
_UNHEALTHY: Final = (
    f"{signals.PARTITION_UNDER_REPLICATED.now(SELECTED)} + {signals.PARTITION_OFFLINE.now(SELECTED)} > 0"
)


def _of_unhealthy(expression: str) -> str:
    return f"{expression} and on (cluster, topic, partition) ({_UNHEALTHY})"


PARTITIONS: Final = style.table(
    "Partitions at risk",
    "Every partition that is under-replicated or offline. In sync below min ISR: writes are refused. Leader -1: nobody "
    "serves it. The time is exact and belongs to this time range.",
    signals.PARTITION,
    [
        *(
            Column(title=signal.name, expression=_of_unhealthy(signal.now(SELECTED)), unit=signal.unit)
            for signal in (
                signals.PARTITION_LEADER,
                signals.PARTITION_IN_SYNC,
                signals.PARTITION_MIN_ISR,
                signals.PARTITION_REPLICAS,
            )
        ),
        Column(
            title=signals.PARTITION_UNDER_REPLICATED_SECONDS.name,
            expression=_of_unhealthy(signals.PARTITION_UNDER_REPLICATED_SECONDS.increase(RANGE, SELECTED)),
            unit=Unit.SECONDS,
        ),
    ],
    signals.PARTITION_UNDER_REPLICATED_SECONDS.name,
)

# What changed?
ISR_CHANGES: Final = style.timeseries(
    "ISR shrinks and expands",
    f"{signals.ISR_SHRINKS.meaning} {signals.ISR_EXPANDS.meaning}",
    [
        _per_minute(signals.ISR_SHRINKS, "{{cluster}} shrinks", style.ORANGE),
        _per_minute(signals.ISR_EXPANDS, "{{cluster}} expands", style.GREEN),
    ],
    Unit.PER_MINUTE,
)
LEADER_CHANGES: Final = style.timeseries(
    "Leader and controller changes",
    f"{signals.LEADER_CHANGES.meaning} {signals.CONTROLLER_CHANGES.meaning}",
    [
        _per_minute(signals.LEADER_CHANGES, "{{cluster}} leaders", style.BLUE),
        _per_minute(signals.CONTROLLER_CHANGES, "{{cluster}} controllers", "purple"),
    ],
    Unit.PER_MINUTE,
)
UNCLEAN_ELECTIONS: Final = _stat(
    signals.UNCLEAN_ELECTIONS, style.alarm_above_zero(style.RED), _in_range(signals.UNCLEAN_ELECTIONS, ())
)
OFF_PREFERRED_LEADER: Final = _stat(signals.OFF_PREFERRED_LEADER, style.alarm_above_zero(style.YELLOW))

# The brokers
REGISTERED_BROKERS: Final = _stat(signals.BROKERS, style.steps(style.BLUE))
CONTROLLER: Final = _stat(signals.CONTROLLER, style.steps(style.BLUE), signals.CONTROLLER.now(SELECTED))
BROKERS: Final = style.table(
    "Brokers",
    "Every broker with its load and place. Fenced 1: it lost its session. Led far below the others: leadership has not "
    "come back yet. Missing brokers that share a rack point at the rack.",
    (*signals.BROKER, "rack", "host"),
    [
        Column(
            title=signals.BROKER_REGISTERED.name,
            expression=f"{signals.BROKER_REGISTERED.now(SELECTED)} * on (cluster, broker) group_left (rack, host) "
            f"{signals.BROKER_INFO.now(SELECTED)}",
            steps=style.steps(style.RED, (1, style.GREEN)),
        ),
        Column(
            title=signals.BROKER_FENCED.name,
            expression=signals.BROKER_FENCED.now(SELECTED),
            steps=style.alarm_above_zero(style.ORANGE),
        ),
        *(
            Column(title=signal.name, expression=signal.now(SELECTED))
            for signal in (signals.LED, signals.HOSTED, signals.IN_SYNC)
        ),
    ],
    signals.BROKER_FENCED.name,
)

# Can this page be trusted?
SOURCE_AGE: Final = style.timeseries(
    signals.SOURCE_AGE.name,
    signals.SOURCE_AGE.meaning,
    [Query(signals.SOURCE_AGE.now(SELECTED), "{{cluster}} {{source}} ({{channel}})")],
    Unit.SECONDS,
)
MISSED_CHANGES: Final = _stat(
    signals.MISSED_CHANGES, style.alarm_above_zero(style.YELLOW), _in_range(signals.MISSED_CHANGES, ())
)
QUARANTINED: Final = _stat(
    signals.QUARANTINED, style.alarm_above_zero(style.ORANGE), _in_range(signals.QUARANTINED, ())
)
UNKNOWN_MIN_ISR: Final = _stat(signals.UNKNOWN_MIN_ISR, style.alarm_above_zero(style.YELLOW))
QUERIES: Final = style.state_timeline(
    signals.QUERY_UP.name,
    signals.QUERY_UP.meaning,
    [Query(signals.QUERY_UP.now(SELECTED), "{{cluster}} {{source}} ({{channel}})")],
    Unit.COUNT,
    style.steps(style.RED, (1, style.GREEN)),
)
BEHIND: Final = style.timeseries(
    signals.BEHIND.name,
    signals.BEHIND.meaning,
    [Query(signals.BEHIND.now(SELECTED), "{{cluster}} {{source}} ({{channel}})")],
    Unit.BYTES,
)
REPORT_AGE: Final = _stat(
    signals.REPORT_AGE,
    style.steps(style.GREEN, (30, style.ORANGE), (60, style.RED)),
    f"max({signals.REPORT_AGE.now(SELECTED)})",
)
