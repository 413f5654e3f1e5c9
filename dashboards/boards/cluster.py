"""One cluster: is data at risk, what is wrong and what to do first, what happened and why, is the objective met.

The service level is partition time: seconds in which partitions were not available, by partitions times seconds.
"""

from __future__ import annotations

from typing import Any, Final

from dashboards import style
from dashboards.board import (
    CELL,
    IN_CLUSTER,
    RANGE,
    STALE_SECONDS,
    TOPIC,
    WINDOW,
    Board,
    BoardSettings,
    PanelRow,
    annotation,
    board,
    choice,
    in_range,
    line,
    now_in_range,
    or_nothing,
    peaks,
    per_minute,
    stat,
    to_board,
    top,
    while_fresh,
    while_observed,
)
from dashboards.boards import fleet
from dashboards.links import page_of_cell
from dashboards.promql import Signal, Unit
from dashboards.signals import brokers, changes, clusters, derived, partitions
from dashboards.style import KeyColumn, Link, PanelQuery, TableColumn
from exporters.read_model.conditions import ALL_RULES
from exporters.read_model.health_reasons import SEVERITIES, HealthSeverity
from streaming.contracts.conditions import Condition
from streaming.contracts.events import IncidentClass

# Data at risk now, and the open incidents.


_TO_TOPICS: Final = to_board(Board.TOPICS)
_TO_BROKERS: Final = to_board(Board.BROKERS)
OFFLINE: Final = stat(clusters.OFFLINE, style.alarm_above_zero(style.DARK_RED), link=_TO_TOPICS)
UNDER_MIN_ISR: Final = stat(clusters.UNDER_MIN_ISR, style.alarm_above_zero(style.RED), link=_TO_TOPICS)
# With as many replicas as min ISR every partition is at min ISR for ever: only where one is missing that is a risk.
ONE_FAILURE_LEFT: Final = style.stat(
    "At min ISR: one failure from rejecting writes",
    "Partitions that lack a replica and are at min ISR: the next broker that leaves the ISR stops their writes. Do not "
    "restart another broker until this is 0. Brokers with announced work do not count.",
    clusters.UNHEALTHY.now(IN_CLUSTER, fleet.because(Condition.AT_MIN_ISR), by=()),
    style.alarm_above_zero(style.ORANGE),
    link=_TO_TOPICS,
)
UNDER_REPLICATED: Final = stat(clusters.UNDER_REPLICATED, style.alarm_above_zero(style.YELLOW), link=_TO_TOPICS)
FENCED_BROKERS: Final = stat(clusters.FENCED_BROKERS, style.alarm_above_zero(style.ORANGE), link=_TO_BROKERS)
UNCLEAN_ELECTIONS: Final = stat(
    changes.UNCLEAN_ELECTIONS,
    style.alarm_above_zero(style.RED),
    now_in_range(changes.UNCLEAN_ELECTIONS),
    link=_TO_TOPICS,
)
DATA_AGE: Final = style.stat(
    clusters.DATA_AGE.name,
    clusters.DATA_AGE.meaning,
    f"max({clusters.DATA_AGE.now(IN_CLUSTER)})",
    style.steps(style.GREEN, (STALE_SECONDS / 2, style.ORANGE), (STALE_SECONDS, style.PURPLE)),
    Unit.DURATION,
    link=to_board(Board.HEALTH),
)

_SEVERITIES: Final = {"critical": 3, "warning": 2, "info": 1}
"""Severities of incidents, and their values; what is not assessed yet counts as the least."""
_CLASSES: Final = {
    IncidentClass.BROKER_LOSS: "broker lost",
    IncidentClass.RACK_LOSS: "rack lost",
    IncidentClass.CONTROLLED_SHUTDOWN: "broker stopped",
    IncidentClass.ROLLING_RESTART: "rolling restart",
    IncidentClass.UNSAFE_SHUTDOWN: "unsafe stop",
    IncidentClass.SLOW_FOLLOWER: "slow broker",
    IncidentClass.LEADER_STALL: "leader stalled",
    IncidentClass.NETWORK_SPLIT: "network split",
    IncidentClass.LINK_FAILURE: "link failed",
    IncidentClass.DISK_FAILURE: "disk failed",
    IncidentClass.REASSIGNMENT: "reassignment",
    IncidentClass.UNSAFE_REASSIGNMENT: "unsafe reassignment",
    IncidentClass.UNCLEAN_ELECTION: "unclean election",
    IncidentClass.CONTROLLER_FAILOVER: "controller failover",
}
_NO_INCIDENT: Final = "no open incidents"
_CLASS_WORDS: Final = {
    **{kind.value: (words, style.TEXT) for kind, words in _CLASSES.items()},
    _NO_INCIDENT: (_NO_INCIDENT, style.GREEN),
}
_OPENED: Final = changes.INCIDENT_OPENED.series(IN_CLUSTER)
_DESCRIBED: Final = changes.INCIDENT_INFO.now(IN_CLUSTER)


def _open(matcher: str = "") -> str:
    """Return when each open incident began: one series an incident, also while its severity changes."""
    series = changes.INCIDENT_OPENED.series(IN_CLUSTER, *([matcher] if matcher else []))
    return f"min by (cluster, incident, class, suspects) ({series})"


def _with_next_step(each: str) -> str:
    """Add what an incident means to its row, and what to do first."""
    described = f"{each} * on (cluster, incident) group_left (consequence, next_step) {_DESCRIBED}"
    others = f"{each} unless on (cluster, incident) {_DESCRIBED}"
    for label in ("consequence", "next_step"):
        others = f'label_replace({others}, "{label}", "{style.UNKNOWN}", "", "")'
    return f"{described} or {others}"


def _in_severity(severity: str, value: int) -> str:
    matcher = f'severity="{severity}"' if value > 1 else 'severity!~"critical|warning"'
    return f"0 * {_open(matcher)} + {value}"


_VALUES: Final = " or ".join(_in_severity(severity, value) for severity, value in _SEVERITIES.items())
_INCIDENT_LABELS: Final = ("consequence", "next_step", "suspects", "incident")


def open_incidents(settings: BoardSettings) -> style.Panel:
    """List the open incidents: the worst one first, with what it means and what to do first."""
    runbook = Link("What this kind of incident is, and what to do", f"{settings.url}/runbook/{CELL}")
    incident = Link("Show this incident in isrwatch", page_of_cell(settings.url, "incident", CELL))
    severity = or_nothing(_with_next_step(f"({_VALUES})"), "class", _NO_INCIDENT, _OPENED, also=_INCIDENT_LABELS)
    return style.table(
        "Open incidents",
        "One row per incident, however many partitions it affected, the worst first: what it means for clients, what "
        "to do first, and the brokers that explain it, the likeliest first. isrwatch incidents shows the evidence. It "
        "closes one minute (rolling restart: 15) after recovery.",
        [
            KeyColumn("class", "Incident", 170, (runbook,) if settings.url else (), words=_CLASS_WORDS),
            KeyColumn("consequence", "Consequence", 400, wraps=True),
            KeyColumn("next_step", "Do first", 410, wraps=True),
            KeyColumn("suspects", "Suspects", 100, (_TO_BROKERS,)),
            KeyColumn("incident", "ID", 100, (incident,) if settings.url else ()),
        ],
        [
            TableColumn(
                title="Severity",
                expression=severity,
                look=style.in_words(
                    {
                        "3": ("critical", style.RED),
                        "2": ("warning", style.ORANGE),
                        "1": ("harmless", style.BLUE),
                        "0": (style.NOT_SO, style.TEXT),
                    }
                ),
            ),
            TableColumn(
                title=changes.INCIDENT_OPENED.name,
                expression=_with_next_step(f"(time() - {_open()})"),
                unit=Unit.DURATION,
                empty=style.NOT_SO,
            ),
        ],
        "Severity",
    )


_SEVERITY_WORDS: Final = {
    HealthSeverity.CRITICAL: ("critical", style.RED),
    HealthSeverity.WARNING: ("warning", style.ORANGE),
    HealthSeverity.UNKNOWN: ("unknown", style.PURPLE),
    HealthSeverity.PLANNED: ("planned", style.BLUE),
}
_SEVERITY_OF: Final = {
    **{str(state.rank): SEVERITIES[condition][0] for condition, state in fleet.STATES.items()},
    **{str(state.rank): HealthSeverity(ALL_RULES[Condition(key)].severity) for key, state in fleet.RAISED.items()},
}
_HEALTHY: Final = "nothing: it is healthy"
_BY_CONDITION: Final = ("cluster", "condition")
_OTHERS: Final = clusters.CONDITION.series(IN_CLUSTER, f'condition=~"{"|".join(fleet.RAISED)}"')
_WRONG: Final = (
    f"{clusters.UNHEALTHY.now(IN_CLUSTER, by=_BY_CONDITION)} > 0 or count by (cluster, condition) ({_OTHERS})"
)
WRONG: Final = style.table(
    "What is wrong?",
    f"{clusters.UNHEALTHY.meaning} The worst first. Each is about the cluster as a whole; incidents say what explains "
    "it. Raised for: since it began, once it lasts long enough for an alert.",
    [
        KeyColumn(
            "condition",
            "What",
            200,
            words={
                **{key: (state.words, style.TEXT) for key, state in (fleet.STATES | fleet.RAISED).items()},
                _HEALTHY: (_HEALTHY, style.GREEN),
            },
        )
    ],
    [
        TableColumn(title="Count", expression=or_nothing(_WRONG, "condition", _HEALTHY)),
        TableColumn(
            title="Severity",
            expression=f"max by (cluster, condition) ({fleet.ranked(IN_CLUSTER)}) > 0",
            look=style.in_words({rank: _SEVERITY_WORDS[severity] for rank, severity in _SEVERITY_OF.items()}),
            empty=style.NOT_SO,
        ),
        TableColumn(
            title=clusters.CONDITION.name,
            expression=f"time() - min by (cluster, condition) ({clusters.CONDITION.series(IN_CLUSTER)}) "
            f"and on (cluster, condition) ({_WRONG})",
            unit=Unit.DURATION,
            empty=style.NOT_SO,
        ),
    ],
    "Severity",
)


# Past incidents and changes, and their causes.


RISK: Final = style.timeseries(
    "Risk over time",
    "Partitions in each state, at their worst within each step. A step upwards is a broker; a slow rise is a disk, the "
    "network or load. Thick and dark: no leader. Red: writes are rejected. Yellow: replicas are missing.",
    [
        peaks(clusters.OFFLINE, "offline", style.DARK_RED),
        peaks(clusters.UNDER_MIN_ISR, "under min ISR", style.RED),
        peaks(clusters.UNDER_REPLICATED, "under-replicated", style.YELLOW),
    ],
    Unit.COUNT,
)
TIMELINE: Final = style.state_timeline(
    "When each incident was open",
    "A band per incident, as long as it was open: its class and its suspects. Red: writes were rejected, there was no "
    "leader, or records may be lost; orange: replicas are missing and no work was planned; blue: no harm. It closes "
    "one minute (rolling restart: 15) after recovery.",
    [PanelQuery(f"max by (class, suspects) ({_VALUES})", "{{class}} ({{suspects}})")],
    style.steps(style.BLUE, (2, style.ORANGE), (3, style.RED)),
    words={"1": ("no harm", style.BLUE), "2": ("replicas missing", style.ORANGE), "3": ("harm", style.RED)},
    no_value="no incident was open",
)
REMOVALS: Final = style.timeseries(
    "ISR removals by cause",
    "How often brokers left an ISR. controlled_shutdown, restart and reassignment are planned. lag: disk or network of "
    "that broker. leader_stall: the leader stalled, the followers are fine. fenced: process, host or connection to the "
    "controllers. dir_failure: a disk failed.",
    [PanelQuery(f"{brokers.ISR_REMOVALS.per_minute(WINDOW, IN_CLUSTER, by=('cause',))} > 0", "{{cause}}")],
    Unit.PER_MINUTE,
    bars=True,
    no_value="no removals in this time range",
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
        per_minute(clusters.CONTROLLER_CHANGES, "controllers", style.ORANGE),
    ],
    Unit.PER_MINUTE,
)
_CLOSED: Final = f"{in_range(changes.CLOSED_INCIDENTS, derived.INCIDENT)} > 0"
_NO_CLOSED: Final = "no incidents were closed"
CLOSED: Final = style.table(
    "Closed incidents",
    "Incidents that were closed in this time range, by class. One is counted once it is final, up to 15 minutes after "
    "its end; isrwatch incidents lists them with their evidence.",
    [KeyColumn("class", "Incident", 190, words={**_CLASS_WORDS, _NO_CLOSED: (_NO_CLOSED, style.TEXT)})],
    [TableColumn(title="Closed", expression=or_nothing(while_fresh(_CLOSED), "class", _NO_CLOSED, _CLOSED))],
    "Closed",
)


# The service level: is the objective met?


OBJECTIVES: Final = ("99.99", "99.9", "99.999")
"""Per cent of partition time; the first is chosen when the board is opened."""
_ALLOWED: Final = "(1 - $objective / 100)"
_LISTED: Final = 20
_PARTITIONS: Final = clusters.PARTITIONS.now(IN_CLUSTER)


def _seconds_in_range(signal: Signal) -> str:
    return f"sum({while_fresh(signal.increase(RANGE, IN_CLUSTER))})"


def _burn(window: str) -> str:
    """Return how many times faster than allowed the budget is spent, over a window."""
    spent = changes.UNDER_MIN_ISR_SECONDS.per_minute(window, IN_CLUSTER)
    return f"sum({while_observed(spent)}) / 60 / sum({_PARTITIONS}) / {_ALLOWED}"


def _time(signal: Signal, *above: tuple[float, str]) -> style.Panel:
    colors = style.steps(style.GREEN, *above)
    return style.stat(signal.name, signal.meaning, _seconds_in_range(signal), colors, Unit.DURATION)


AVAILABLE: Final = style.stat(
    "Writes accepted",
    "Share of partition time in this time range in which partitions accepted writes with acks=all. Choose the range "
    "by the period of the objective, such as the last 30 days.",
    f"100 * (1 - {_seconds_in_range(changes.UNDER_MIN_ISR_SECONDS)} / ($__range_s * sum({_PARTITIONS})))",
    style.steps(style.TEXT),
    Unit.PERCENT,
)
BUDGET: Final = style.stat(
    "Budget spent",
    "Share of the unavailability that the objective allows in this time range. 0 %: nothing was rejected. Above 100 %: "
    "the objective is missed, as it is in a short range after one short outage; put off risky work until it is met "
    "again.",
    f"{_seconds_in_range(changes.UNDER_MIN_ISR_SECONDS)} / ($__range_s * sum({_PARTITIONS}) * {_ALLOWED})",
    style.steps(style.GREEN, (0.75, style.ORANGE), (1, style.RED)),
    Unit.SHARE,
)
BURN: Final = style.timeseries(
    "Burn rate",
    "How many times faster than the objective allows the budget is spent. 1: it is spent exactly at the end of the "
    "period. 14.4 in both the last hour and the last five minutes: two per cent of a month's budget in an hour, a "
    "reason to page. 6 in six hours: a ticket.",
    [
        PanelQuery(_burn("5m"), "last 5 minutes", style.YELLOW),
        PanelQuery(_burn("1h"), "last hour", style.ORANGE),
        PanelQuery(_burn("6h"), "last 6 hours", style.RED),
    ],
    Unit.BARE,
)
SPENT: Final = style.timeseries(
    "Average unavailable and under-replicated partitions",
    "Partitions in each state on average, within each step, from exact seconds: also what is shorter than a scrape. "
    "One for a whole hour costs the same as sixty for a minute. The lines end while the cluster is not observed.",
    [
        PanelQuery(f"sum({while_observed(signal.per_minute(WINDOW, IN_CLUSTER))}) / 60", legend, color)
        for signal, legend, color in (
            (changes.OFFLINE_SECONDS, "offline", style.DARK_RED),
            (changes.UNDER_MIN_ISR_SECONDS, "writes rejected", style.RED),
            (changes.UNDER_REPLICATED_SECONDS, "under-replicated", style.YELLOW),
        )
    ],
    Unit.COUNT,
)
_REJECTED: Final = f"{partitions.TOPIC_UNDER_MIN_ISR_SECONDS.increase(RANGE, IN_CLUSTER)} > 0"
TOPICS: Final = style.table(
    "Topics that rejected writes",
    "The twenty topics with the most time under min ISR in this time range, summed over their partitions. Their owners "
    "should know.",
    [TOPIC],
    [
        TableColumn(
            title="Partition time",
            expression=or_nothing(while_fresh(top(_LISTED, _REJECTED)), "topic", "", _REJECTED),
            unit=Unit.DURATION,
        )
    ],
    "Partition time",
    nothing="no topic rejected writes",
)


def _rows(settings: BoardSettings) -> tuple[PanelRow, ...]:
    numbers = (OFFLINE, UNDER_MIN_ISR, ONE_FAILURE_LEFT, UNDER_REPLICATED, FENCED_BROKERS, UNCLEAN_ELECTIONS, DATA_AGE)
    return (
        PanelRow(
            "Is data at risk now, and what is to be done first?",
            (
                (4, tuple((panel, 6 if panel is ONE_FAILURE_LEFT else 3) for panel in numbers)),
                (8, ((open_incidents(settings), 24),)),
                (8, ((RISK, 15), (WRONG, 9))),
            ),
        ),
        PanelRow("What happened, and when?", ((8, ((TIMELINE, 24),)), (8, ((REMOVALS, 16), (CLOSED, 8))))),
        PanelRow("What changed, and why?", ((7, ((ISR_CHANGES, 12), (LEADER_CHANGES, 12))),)),
        PanelRow(
            "Is the objective met, in partition-minutes?",
            (
                line(
                    4,
                    AVAILABLE,
                    BUDGET,
                    _time(changes.UNDER_MIN_ISR_SECONDS, (1, style.ORANGE)),
                    _time(changes.OFFLINE_SECONDS, (60, style.ORANGE)),
                    _time(changes.UNDER_REPLICATED_SECONDS, (3600, style.YELLOW)),
                    _time(changes.UNKNOWN_SECONDS, (60, style.PURPLE)),
                ),
                (8, ((BURN, 8), (SPENT, 8), (TOPICS, 8))),
            ),
        ),
    )


def built(settings: BoardSettings) -> dict[str, Any]:
    """Build the board."""
    work = f"{brokers.MAINTENANCE.now(IN_CLUSTER)} == 1"
    failovers = f"{clusters.CONTROLLER_CHANGES.increase(WINDOW, IN_CLUSTER)} > 0"
    fenced = f"{brokers.FENCED.now(IN_CLUSTER)} == 1"
    return board(
        Board.CLUSTER,
        "Kafka cluster",
        "Is data at risk, which incidents are open and what to do first, what happened and why, is the objective met.",
        _rows(settings),
        settings,
        more_variables=[choice("objective", "Objective, %", {each: each for each in OBJECTIVES})],
        annotations=[
            annotation("Brokers fenced", fenced, style.YELLOW, "broker {{broker}}"),
            annotation("Controller changes", failovers, style.ORANGE, "another active controller"),
            annotation("Planned work", work, style.BLUE, "broker {{broker}}"),
        ],
    )
