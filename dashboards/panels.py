"""Panels of the overview: one entry per panel, a panel type of ``style`` over ``signals``."""

from __future__ import annotations

from typing import Final

from dashboards import style
from dashboards.panel_queries import SELECTED, in_range, now_in_range, or_none, per_minute, stat
from dashboards.promql import Signal, Unit
from dashboards.signals import brokers, changes, clusters, incidents, labels, monitor, partitions, quorum, topics
from dashboards.style import PanelQuery, TableColumn

# Is data at risk now?
OFFLINE: Final = stat(clusters.OFFLINE, style.alarm_above_zero(style.RED))
UNDER_MIN_ISR: Final = stat(clusters.UNDER_MIN_ISR, style.alarm_above_zero(style.RED))
AT_MIN_ISR: Final = stat(clusters.AT_MIN_ISR, style.alarm_above_zero(style.ORANGE))
UNDER_REPLICATED: Final = stat(clusters.UNDER_REPLICATED, style.alarm_above_zero(style.YELLOW))
FENCED_BROKERS: Final = stat(clusters.FENCED_BROKERS, style.alarm_above_zero(style.ORANGE))
DATA_AGE: Final = stat(
    clusters.DATA_AGE,
    style.steps(style.GREEN, (30, style.ORANGE), (60, style.RED)),
    f"max({clusters.DATA_AGE.now(SELECTED)})",
)
AT_RISK: Final = style.timeseries(
    "Risk over time",
    "The counts above over time: when did it begin, is it improving? A step is a broker; a slow rise is a "
    "disk, the network or load. Red: refused writes. Orange: one replica away from it.",
    [
        PanelQuery(clusters.OFFLINE.now(SELECTED), "{{cluster}} offline", "dark-red"),
        PanelQuery(clusters.UNDER_MIN_ISR.now(SELECTED), "{{cluster}} under min ISR", style.RED),
        PanelQuery(clusters.AT_MIN_ISR.now(SELECTED), "{{cluster}} at min ISR", style.ORANGE),
        PanelQuery(clusters.UNDER_REPLICATED.now(SELECTED), "{{cluster}} under-replicated", style.YELLOW),
    ],
    Unit.COUNT,
)

# Which incidents are open, and which brokers are safe to stop?
INCIDENTS: Final = style.table(
    "Incidents",
    "Open and closed incidents, by class. One incident covers all partitions with the same origin; a rolling restart "
    "is one incident, too. isrwatch incidents shows each with its suspects and the events that are its evidence. "
    "A closed incident is counted once it is final, up to 15 minutes after its end.",
    labels.INCIDENT,
    [
        TableColumn(
            title=incidents.OPEN.name,
            expression=incidents.OPEN.now(SELECTED),
            steps=style.alarm_above_zero(style.ORANGE),
        ),
        TableColumn(title=incidents.CLOSED.name, expression=in_range(incidents.CLOSED, labels.INCIDENT)),
    ],
    incidents.OPEN.name,
)
RESTART_SAFETY: Final = style.table(
    "Brokers safe to stop",
    "What would happen if one broker stopped now. Valid for one broker at a time: check again before the next. If Safe "
    "to stop is 0 or empty, do not stop it. Restart in the given order, the active controller last. A second or two "
    "behind other panels.",
    labels.BROKER,
    [
        TableColumn(
            title=brokers.SAFE_TO_STOP.name,
            expression=brokers.SAFE_TO_STOP.now(SELECTED),
            steps=style.steps(style.RED, (1, style.GREEN)),
        ),
        *(
            TableColumn(title=signal.name, expression=signal.now(SELECTED), steps=style.alarm_above_zero(color))
            for signal, color in (
                (brokers.WOULD_GO_OFFLINE, style.RED),
                (brokers.WOULD_GO_UNDER_MIN_ISR, style.RED),
            )
        ),
        TableColumn(
            title=brokers.RESTART_ORDER.name,
            expression=brokers.RESTART_ORDER.now(SELECTED),
            unit=brokers.RESTART_ORDER.unit,
        ),
    ],
    brokers.WOULD_GO_UNDER_MIN_ISR.name,
)

# Which brokers left in-sync replicas, why, since when?
_MISSING: Final = f"{brokers.HOSTED.now(SELECTED)} - {brokers.IN_SYNC.now(SELECTED)}"
SUSPECTS: Final = style.table(
    "Suspects",
    "Brokers by the share of the current ISR shrinks that each explains, with the ISRs it is missing from and its ISR "
    "removals in this time range (planned causes included). Check the first one first: process, disks, network. "
    "For a stalled leader the leader is listed, not the followers it removed.",
    labels.BROKER,
    [
        TableColumn(title="Missing from ISRs", expression=_MISSING, steps=style.alarm_above_zero(style.ORANGE)),
        TableColumn(title="ISR removals", expression=in_range(brokers.ISR_REMOVALS, labels.BROKER)),
        TableColumn(
            title=brokers.SUSPECT_SCORE.name,
            expression=brokers.SUSPECT_SCORE.now(SELECTED),
            unit=Unit.SHARE,
            steps=style.steps(style.GREEN, (0.01, style.YELLOW), (0.5, style.ORANGE)),
        ),
    ],
    brokers.SUSPECT_SCORE.name,
)
ISR_REMOVALS: Final = style.timeseries(
    brokers.ISR_REMOVALS.name,
    brokers.ISR_REMOVALS.meaning,
    [per_minute(brokers.ISR_REMOVALS, "{{cluster}} broker {{broker}}: {{cause}}")],
    Unit.PER_MINUTE,
    bars=True,
)
CAUSES: Final = style.table(
    "Causes in this time range",
    "ISR removals of the whole time range, by broker and cause. lag or fenced on one broker: check that broker. lag on "
    "many: network or overload. leader_stall: check the leader, not the removed brokers. Counts are extrapolated by "
    "Prometheus to the time range; the table replication_events has the exact ones.",
    brokers.ISR_REMOVALS.labels,
    [
        TableColumn(
            title="ISR removals",
            expression=or_none(f"{in_range(brokers.ISR_REMOVALS, brokers.ISR_REMOVALS.labels)} > 0", "broker"),
        )
    ],
    "ISR removals",
)
IN_SYNC_SHARE: Final = style.state_timeline(
    "In-sync share of each broker",
    "Share of a broker's replicas that are in sync: green all, orange at least half, red less. The left edge of a "
    "colour shows since when. Consecutive red bands are a rolling restart; one that stays is an incident.",
    [
        PanelQuery(
            f"{brokers.IN_SYNC.now(SELECTED)} / ({brokers.HOSTED.now(SELECTED)} > 0)",
            "{{cluster}} broker {{broker}}",
        )
    ],
    Unit.SHARE,
    style.steps(style.RED, (0.5, style.ORANGE), (1, style.GREEN)),
)

# Which topics?
_BY_TOPIC: Final = {
    topics.OFFLINE: style.RED,
    topics.UNDER_MIN_ISR: style.RED,
    topics.AT_MIN_ISR: style.ORANGE,
    topics.UNDER_REPLICATED: style.YELLOW,
}
_AT_RISK: Final = " or ".join(f"{signal.now(SELECTED)} > 0" for signal in _BY_TOPIC)


def _of_topics_at_risk(signal: Signal) -> str:
    """Return the count of every topic that is listed, 0 included: a cell that is empty means that it is unknown."""
    count = f"{signal.now(SELECTED)} and on (cluster, topic) ({_AT_RISK})"
    return or_none(count, "topic", _AT_RISK) if signal is topics.OFFLINE else count


TOPICS: Final = style.table(
    "Topics at risk",
    "Topics with partitions that are offline, under or at min ISR, or under-replicated. The first two columns affect "
    "clients now: refused produce requests, stalled consumers. The row none: data is fresh, and no topic is at risk.",
    labels.TOPIC,
    [
        TableColumn(
            title=signal.name,
            expression=_of_topics_at_risk(signal),
            steps=style.alarm_above_zero(color),
        )
        for signal, color in _BY_TOPIC.items()
    ],
    topics.UNDER_MIN_ISR.name,
)
_UNHEALTHY: Final = f"{partitions.UNDER_REPLICATED.now(SELECTED)} + {partitions.OFFLINE.now(SELECTED)} > 0"


def _of_unhealthy(expression: str) -> str:
    return f"{expression} and on (cluster, topic, partition) ({_UNHEALTHY})"


PARTITIONS: Final = style.table(
    "Partitions at risk",
    "Partitions that are under-replicated or offline, and for how long. In sync below min ISR: writes are refused. "
    "Leader -1: offline. The row none: data is fresh, and no partition is at risk.",
    labels.PARTITION,
    [
        *(
            TableColumn(title=signal.name, expression=_of_unhealthy(signal.now(SELECTED)), unit=signal.unit)
            for signal in (
                partitions.LEADER,
                partitions.IN_SYNC,
                partitions.MIN_ISR,
                partitions.REPLICAS,
            )
        ),
        TableColumn(
            title=partitions.UNDER_REPLICATED_SINCE.name,
            expression=or_none(
                f"time() - ({_of_unhealthy(partitions.UNDER_REPLICATED_SINCE.now(SELECTED))})",
                "topic",
                _UNHEALTHY,
            ),
            unit=Unit.SECONDS,
        ),
    ],
    partitions.UNDER_REPLICATED_SINCE.name,
)

# What changed?
ISR_CHANGES: Final = style.timeseries(
    "ISR shrinks and expands",
    f"{changes.ISR_SHRINKS.meaning} {changes.ISR_EXPANDS.meaning}",
    [
        per_minute(changes.ISR_SHRINKS, "{{cluster}} shrinks", style.ORANGE),
        per_minute(changes.ISR_EXPANDS, "{{cluster}} expands", style.GREEN),
    ],
    Unit.PER_MINUTE,
)
LEADER_CHANGES: Final = style.timeseries(
    "Leader and controller changes",
    f"{changes.LEADER_CHANGES.meaning} {quorum.CONTROLLER_CHANGES.meaning}",
    [
        per_minute(changes.LEADER_CHANGES, "{{cluster}} leaders", style.BLUE),
        per_minute(quorum.CONTROLLER_CHANGES, "{{cluster}} controllers", "purple"),
    ],
    Unit.PER_MINUTE,
)
UNCLEAN_ELECTIONS: Final = stat(
    changes.UNCLEAN_ELECTIONS, style.alarm_above_zero(style.RED), now_in_range(changes.UNCLEAN_ELECTIONS)
)
OFF_PREFERRED_LEADER: Final = stat(clusters.OFF_PREFERRED_LEADER, style.alarm_above_zero(style.YELLOW))

# The brokers
REGISTERED_BROKERS: Final = stat(clusters.BROKERS, style.steps(style.BLUE))
CONTROLLER: Final = stat(quorum.CONTROLLER, style.steps(style.BLUE), quorum.CONTROLLER.now(SELECTED))
BROKERS: Final = style.table(
    "Brokers",
    "Every broker with its partitions, rack and host. Fenced 1: its session expired. Led far below the others: "
    "leadership has not returned yet. Missing brokers that share a rack indicate a rack failure.",
    (*labels.BROKER, "rack", "host"),
    [
        TableColumn(
            title=brokers.REGISTERED.name,
            expression=f"{brokers.REGISTERED.now(SELECTED)} * on (cluster, broker) group_left (rack, host) "
            f"{brokers.INFO.now(SELECTED)}",
            steps=style.steps(style.RED, (1, style.GREEN)),
        ),
        TableColumn(
            title=brokers.FENCED.name,
            expression=brokers.FENCED.now(SELECTED),
            steps=style.alarm_above_zero(style.ORANGE),
        ),
        *(
            TableColumn(title=signal.name, expression=signal.now(SELECTED))
            for signal in (brokers.LED, brokers.HOSTED, brokers.IN_SYNC)
        ),
    ],
    brokers.FENCED.name,
)

# Can this dashboard be trusted?
SOURCE_AGE: Final = style.timeseries(
    monitor.SOURCE_AGE.name,
    monitor.SOURCE_AGE.meaning,
    [PanelQuery(monitor.SOURCE_AGE.now(SELECTED), "{{cluster}} {{source}} ({{channel}})")],
    Unit.SECONDS,
)
MISSED_CHANGES: Final = stat(
    changes.MISSED_CHANGES, style.alarm_above_zero(style.YELLOW), now_in_range(changes.MISSED_CHANGES)
)
QUARANTINED: Final = stat(monitor.QUARANTINED, style.alarm_above_zero(style.ORANGE), now_in_range(monitor.QUARANTINED))
UNKNOWN_MIN_ISR: Final = stat(clusters.UNKNOWN_MIN_ISR, style.alarm_above_zero(style.YELLOW))
QUERIES: Final = style.state_timeline(
    monitor.QUERY_UP.name,
    monitor.QUERY_UP.meaning,
    [
        PanelQuery(
            f"{monitor.QUERY_UP.now(SELECTED)} and on (cluster, channel, source) "
            f"{monitor.REPORT_AGE.now(SELECTED)} <= 60",
            "{{cluster}} {{source}} ({{channel}})",
        )
    ],
    Unit.COUNT,
    style.steps(style.RED, (1, style.GREEN)),
)
BEHIND: Final = style.timeseries(
    monitor.BEHIND.name,
    monitor.BEHIND.meaning,
    [PanelQuery(monitor.BEHIND.now(SELECTED), "{{cluster}} {{source}} ({{channel}})")],
    Unit.BYTES,
)
REPORT_AGE: Final = stat(
    monitor.REPORT_AGE,
    style.steps(style.GREEN, (30, style.ORANGE), (60, style.RED)),
    f"max({monitor.REPORT_AGE.now(SELECTED)})",
)
