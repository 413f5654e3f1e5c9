"""Panels that stand on several boards."""

from __future__ import annotations

from typing import Final

from dashboards import style
from dashboards.promql import Scope, Signal, Unit
from dashboards.queries import (
    BROKER,
    IN_CLUSTER,
    MISSING_BROKER,
    PARTITION,
    TOPIC,
    WINDOW,
    CellLook,
    KeyColumn,
    TableColumn,
    alarm,
    colored,
    in_range,
    now_in_range,
    or_none,
    peaks,
    per_minute,
    stat,
    table,
    while_fresh,
    yes_no,
)
from dashboards.signals import brokers, changes, clusters, derived, partitions
from dashboards.style import PanelQuery

_LOOKS: Final = {partitions.LEADER.name: CellLook({"-1": ("none", style.RED)}, style.steps(style.TEXT))}
_TAKES_LONG: Final = ((900.0, style.ORANGE), (3600.0, style.RED))

DATA_AGE: Final = stat(
    clusters.DATA_AGE,
    style.steps(style.GREEN, (30, style.ORANGE), (60, style.RED)),
    f"max({clusters.DATA_AGE.now(IN_CLUSTER)})",
)
UNCLEAN_ELECTIONS: Final = stat(
    changes.UNCLEAN_ELECTIONS, style.alarm_above_zero(style.RED), now_in_range(changes.UNCLEAN_ELECTIONS)
)
RISK: Final = style.timeseries(
    "Risk over time",
    "Partitions in each state, at their worst within each step. A step upwards is a broker; a slow rise is a disk, the "
    "network or load. Purple: no leader. Red: writes are refused. Yellow: copies are missing.",
    [
        peaks(clusters.OFFLINE, "offline", style.PURPLE),
        peaks(clusters.UNDER_MIN_ISR, "under min ISR", style.RED),
        peaks(clusters.UNDER_REPLICATED, "under-replicated", style.YELLOW),
    ],
    Unit.COUNT,
)
ISR_CHANGES: Final = style.timeseries(
    "ISR shrinks and expands",
    f"{changes.ISR_SHRINKS.meaning} {changes.ISR_EXPANDS.meaning}",
    [per_minute(changes.ISR_SHRINKS, "shrinks", style.ORANGE), per_minute(changes.ISR_EXPANDS, "expands", style.GREEN)],
    Unit.PER_MINUTE,
)
LEADER_CHANGES: Final = style.timeseries(
    "Leader and controller changes",
    f"{changes.LEADER_CHANGES.meaning} {clusters.CONTROLLER_CHANGES.meaning}",
    [
        per_minute(changes.LEADER_CHANGES, "leaders", style.BLUE),
        per_minute(clusters.CONTROLLER_CHANGES, "controllers", style.PURPLE),
    ],
    Unit.PER_MINUTE,
)

_CONSEQUENCES: Final = {
    "critical": ("writes refused, no leader, or loss possible", style.RED),
    "warning": ("copies are missing", style.ORANGE),
    "info": ("no harm", style.TEXT),
    "": ("not assessed yet", style.TEXT),
}
_INCIDENT_KEYS: Final = (
    KeyColumn("class", "Incident", 170),
    KeyColumn("suspects", "Suspect brokers", 160),
    KeyColumn("severity", "Worst so far", 330, words=_CONSEQUENCES),
)
_INCIDENTS: Final = (
    "One row per incident, however many partitions it affected: its suspects, the likeliest first, and its worst "
    "consequence so far, which may be over. Begin with the suspect that comes first. isrwatch incidents shows the "
    "evidence and the next step of each. The row none: data is fresh, and no incident is open."
)


def open_incidents(*more: KeyColumn) -> style.Panel:
    """List the open incidents, with their suspects and consequence."""
    row = {"suspects": style.NONE_AT_RISK, "severity": "info", "incident": "-"}
    shown = {key.label for key in (*_INCIDENT_KEYS, *more)}
    age = f"time() - min by ({', '.join(['cluster', *sorted(shown)])}) ({changes.INCIDENT_OPENED.now(IN_CLUSTER)})"
    also = {label: value for label, value in row.items() if label in shown}
    age_or_none = or_none(age, "class", also=also)
    column = TableColumn(title=changes.INCIDENT_OPENED.name, expression=age_or_none, unit=Unit.SECONDS)
    return table("Open incidents", _INCIDENTS, [*_INCIDENT_KEYS, *more], [column], changes.INCIDENT_OPENED.name)


def removals_by(label: str, scope: Scope = IN_CLUSTER) -> style.Panel:
    """Show ISR removals over time by one label: by two, the legend has dozens of entries."""
    rate = brokers.ISR_REMOVALS.per_minute(WINDOW, scope, by=(label,))
    legend = "broker {{broker}}" if label == "broker" else "{{cause}}"
    return style.timeseries(
        f"ISR removals by {label}",
        "How often brokers left an ISR. controlled_shutdown, restart and reassignment are planned. lag: disk or "
        "network of that broker. leader_stall: the leader stalled, the followers are fine. fenced: process, host or "
        "connection to the controllers. dir_failure: a disk failed.",
        [PanelQuery(f"{rate} > 0", legend)],
        Unit.PER_MINUTE,
        bars=True,
    )


BY_TOPIC: Final = {
    partitions.TOPIC_OFFLINE: alarm(style.RED),
    partitions.TOPIC_UNDER_MIN_ISR: alarm(style.RED),
    partitions.TOPIC_AT_MIN_ISR: CellLook(),
    partitions.TOPIC_UNDER_REPLICATED: colored(style.TEXT, (1, style.ORANGE)),
}
"""Harm to clients fills its cell; a missing copy colours the text only, so that harm stands out."""
_LISTED: Final = (partitions.TOPIC_OFFLINE, partitions.TOPIC_UNDER_MIN_ISR, partitions.TOPIC_UNDER_REPLICATED)


def topics_at_risk(scope: Scope) -> style.Panel:
    """List the topics that lack something; one that is at min ISR with all its replicas lacks nothing."""
    listed = " or ".join(f"{signal.now(scope)} > 0" for signal in _LISTED)

    def count(signal: Signal) -> str:
        """Count of every topic that is listed, 0 included: an empty cell means that it is unknown."""
        counted = f"{signal.now(scope)} and on (cluster, topic) ({listed})"
        return or_none(counted, "topic", listed) if signal is partitions.TOPIC_OFFLINE else counted

    return table(
        "Topics at risk",
        "Topics with partitions that are offline, under min ISR or under-replicated. The first two columns affect "
        "clients now: refused produce requests, stalled consumers. The row none: data is fresh, and no topic is at "
        "risk.",
        [TOPIC],
        [
            TableColumn(title=signal.name, expression=count(signal), look=look)
            for signal, look in BY_TOPIC.items()
            if signal in _LISTED
        ],
        partitions.TOPIC_UNDER_MIN_ISR.name,
    )


_MISSING: Final = (
    "Each replica that is not in the ISR of its partition, or is in it and fenced, by broker. One broker in all "
    "rows: look there. In sync below min ISR: writes are refused. Leader -1: offline; start a broker that may lead "
    "first, because its replica has every committed record. How long the partition is incomplete "
    "may be longer than this replica is missing. Fewest in sync first. The row none: data is fresh, no "
    "replica is missing."
)


def missing_replicas(scope: Scope, *, detailed: bool) -> style.Panel:
    """List each replica that a partition lacks, with the id of its broker."""
    fenced = f"{brokers.FENCED.now(IN_CLUSTER)} == 1"
    in_isr = partitions.REPLICA_IN_SYNC.now(scope)
    unhealthy = f"({partitions.UNDER_REPLICATED.now(scope)} + {partitions.OFFLINE.now(scope)} > 0)"
    away = f"({in_isr} == 0 or {in_isr} and on (cluster, broker) ({fenced}))"
    missing = f"({away} and on (cluster, topic, partition) {unhealthy})"
    # 1 of what has every committed record: in the ELR, or still in the ISR of a partition that lost its last broker.
    may_lead = f"{partitions.REPLICA_IN_ELR.now(scope)} and {missing} or {missing}"

    def of_partition(expression: str) -> str:
        """Repeat a value of a partition for each replica that is missing."""
        return f"0 * {missing} + on (cluster, topic, partition) group_left () ({expression})"

    now: tuple[Signal, ...] = (partitions.LEADER, partitions.IN_SYNC, partitions.MIN_ISR)
    since: tuple[Signal, ...] = (partitions.UNDER_REPLICATED_SINCE,)
    if detailed:
        now = (*now, partitions.REPLICAS)
        since = (partitions.UNDER_REPLICATED_SINCE, partitions.UNDER_MIN_ISR_SINCE, partitions.OFFLINE_SINCE)
    ages = [
        TableColumn(
            title=signal.name,
            expression=of_partition(f"time() - {signal.now(scope)}"),
            unit=Unit.SECONDS,
            look=colored(style.TEXT, *_TAKES_LONG),
            empty=style.NOT_SO,
        )
        for signal in since
    ]
    listed = TableColumn(
        title=partitions.REPLICA_IN_ELR.name,
        expression=or_none(may_lead, "topic", missing, also={"partition": "-", "broker": style.NONE_AT_RISK}),
        look=yes_no(yes=style.GREEN),
    )
    present = [
        TableColumn(
            title=signal.name,
            expression=of_partition(signal.now(scope)),
            unit=Unit.BARE,
            look=_LOOKS.get(signal.name, CellLook()),
        )
        for signal in now
    ]
    keys = [TOPIC, PARTITION, MISSING_BROKER]
    columns = [listed, *present, *ages]
    return table("Missing replicas", _MISSING, keys, columns, partitions.IN_SYNC.name, ascending=True)


def not_up(scope: Scope) -> str:
    """Return the brokers that are down, or about to be: a stop of them costs nothing and means nothing."""
    return f"({brokers.FENCED.now(scope)} == 1 or {brokers.SHUTTING_DOWN.now(scope)} == 1)"


def safe_to_stop(scope: Scope, look: CellLook, *, grows: bool = False) -> TableColumn:
    """Say whether a broker may stop; the advice is older than what is seen of the broker, which therefore wins."""
    return TableColumn(
        title=brokers.SAFE_TO_STOP.name,
        expression=f"2 * {not_up(scope)} or {brokers.SAFE_TO_STOP.now(scope)}",
        look=CellLook({**look.words, "2": ("not up", style.TEXT)}, look.steps),
        grows=grows,
    )


_AT_RISK: Final = "At or under min ISR"


def broker_states(scope: Scope) -> style.Panel:
    """List every broker: whether it is there, what it lacks, how suspect it is, whether it may be stopped."""
    return table(
        "Brokers",
        "Every broker. Fenced: its session with the controller expired, or it is starting. Missing from ISRs: "
        "replicas on it that are not in sync; at or under min ISR: of these, where writes are refused or the loss of "
        "one more stops them. Share of shrinks: of the current ones that it explains, harmless ones included. Safe to "
        "stop: valid for one broker at a time.",
        [BROKER],
        [
            TableColumn(
                title="Registered", expression=brokers.REGISTERED.now(scope), look=yes_no(no=style.RED), grows=True
            ),
            TableColumn(
                title="Fenced", expression=brokers.FENCED.now(scope), look=yes_no(yes=style.ORANGE), grows=True
            ),
            TableColumn(
                title="Planned work", expression=brokers.MAINTENANCE.now(scope), look=yes_no(yes=style.BLUE), grows=True
            ),
            TableColumn(
                title=brokers.MISSING_FROM_ISR.name,
                expression=brokers.MISSING_FROM_ISR.now(scope),
                look=colored(style.TEXT, (1, style.ORANGE)),
            ),
            TableColumn(title=_AT_RISK, expression=brokers.MISSING_AT_MIN_ISR.now(scope), look=alarm(style.ORANGE)),
            TableColumn(
                title="Share of shrinks",
                expression=brokers.SUSPECT_SCORE.now(scope),
                unit=Unit.SHARE,
                look=colored(style.TEXT, (0.01, style.ORANGE)),
            ),
            TableColumn(
                title="ISR removals",
                expression=while_fresh(in_range(brokers.ISR_REMOVALS, derived.BROKER, scope=scope)),
            ),
            TableColumn(title=brokers.LED.name, expression=brokers.LED.now(scope)),
            safe_to_stop(scope, yes_no(no=style.ORANGE)),
        ],
        _AT_RISK,
    )


def in_sync_share(scope: Scope) -> style.Panel:
    """Show since when replicas of each broker are not in sync."""
    share = f"{brokers.IN_SYNC.now(scope)} / ({brokers.HOSTED.now(scope)} > 0)"
    return style.state_timeline(
        "In-sync share of each broker",
        "Share of a broker's replicas that are in sync: green all, orange at least half, red less. The left edge of a "
        "colour shows since when. Consecutive red bands are a rolling restart; one that stays is an incident.",
        [PanelQuery(share, "broker {{broker}}")],
        Unit.SHARE,
        style.steps(style.RED, (0.5, style.ORANGE), (1, style.GREEN)),
    )
