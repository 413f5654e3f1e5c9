"""The overview: the questions of an on-call engineer, most urgent first."""

from __future__ import annotations

from typing import Any, Final

from dashboards import style
from dashboards.board import PanelRow, board, line
from dashboards.boards import shared
from dashboards.promql import Unit
from dashboards.queries import (
    CLUSTER,
    IN_CLUSTER,
    Board,
    KeyColumn,
    TableColumn,
    alarm,
    colored,
    now_in_range,
    or_none,
    stat,
    table,
)
from dashboards.signals import changes, clusters, monitor
from exporters.read_model.health_reasons import SEVERITY, HealthSeverity

OFFLINE: Final = stat(clusters.OFFLINE, style.alarm_above_zero(style.RED))
UNDER_MIN_ISR: Final = stat(clusters.UNDER_MIN_ISR, style.alarm_above_zero(style.RED))
# With as many replicas as min ISR every partition is at min ISR for ever: only where one is missing that is a risk.
ONE_LOSS_LEFT: Final = style.stat(
    "One loss from refusing writes",
    "Partitions that lack a replica and are at min ISR: the next broker that leaves the ISR stops their writes. Do not "
    "restart another broker until this is 0. Brokers with announced work do not count.",
    clusters.UNHEALTHY.now(IN_CLUSTER, 'reason="at_min_isr"', by=()),
    style.alarm_above_zero(style.ORANGE),
)
UNDER_REPLICATED: Final = stat(clusters.UNDER_REPLICATED, style.alarm_above_zero(style.YELLOW))
FENCED_BROKERS: Final = stat(clusters.FENCED_BROKERS, style.alarm_above_zero(style.ORANGE))
MISSED_CHANGES: Final = stat(
    changes.MISSED_CHANGES, style.alarm_above_zero(style.YELLOW), now_in_range(changes.MISSED_CHANGES)
)
UNKNOWN_MIN_ISR: Final = stat(clusters.UNKNOWN_MIN_ISR, style.alarm_above_zero(style.YELLOW))
REPORT_AGE: Final = stat(
    monitor.REPORT_AGE,
    style.steps(style.GREEN, (30, style.ORANGE), (60, style.RED)),
    f"max({monitor.REPORT_AGE.now(IN_CLUSTER)})",
    "Job's report age",
)
OFF_PREFERRED_LEADER: Final = stat(
    clusters.OFF_PREFERRED_LEADER, style.alarm_above_zero(style.YELLOW), title="Off preferred leader"
)
_COLORS: Final = {
    HealthSeverity.CRITICAL: style.RED,
    HealthSeverity.WARNING: style.ORANGE,
    HealthSeverity.PLANNED: style.BLUE,
    HealthSeverity.UNKNOWN: style.YELLOW,
}
_REASONS: Final = {
    **{reason.value: (reason.value, _COLORS[severity]) for reason, severity in SEVERITY.items()},
    style.NONE_AT_RISK: (style.NONE_AT_RISK, style.TEXT),
}
REASONS: Final = table(
    "Why is it not healthy?",
    f"{clusters.UNHEALTHY.meaning} The row none: data is fresh, and the cluster is healthy.",
    [KeyColumn("reason", "Reason", 220, words=_REASONS)],
    [TableColumn(title="Count", expression=or_none(f"{clusters.UNHEALTHY.now(IN_CLUSTER)} > 0", "reason"))],
    "Count",
)
CLUSTERS: Final = table(
    "Clusters",
    "Every cluster that this data source has, whatever is chosen above: a click shows another one. Empty cells: its "
    "data is older than a minute, so nothing is said of it.",
    [CLUSTER],
    [
        TableColumn(
            title=clusters.DATA_AGE.name,
            expression=clusters.DATA_AGE.now(),
            unit=Unit.SECONDS,
            look=colored(style.TEXT, (30, style.ORANGE), (60, style.RED)),
        ),
        *(
            TableColumn(title=title, expression=signal.now(), look=look)
            for title, signal, look in (
                ("Offline", clusters.OFFLINE, alarm(style.RED)),
                ("Under min ISR", clusters.UNDER_MIN_ISR, alarm(style.RED)),
                ("Under-replicated", clusters.UNDER_REPLICATED, colored(style.TEXT, (1, style.ORANGE))),
            )
        ),
        TableColumn(title=clusters.PARTITIONS.name, expression=clusters.PARTITIONS.now()),
    ],
    "Under min ISR",
)

ROWS: Final = (
    PanelRow(
        "Is data at risk now?",
        (
            line(4, OFFLINE, UNDER_MIN_ISR, ONE_LOSS_LEFT, UNDER_REPLICATED, FENCED_BROKERS, shared.DATA_AGE),
            (10, ((shared.open_incidents(), 16), (REASONS, 8))),
            (7, ((shared.RISK, 24),)),
        ),
    ),
    PanelRow(
        "Which brokers are missing, why, since when?",
        (
            (8, ((shared.broker_states(IN_CLUSTER), 24),)),
            (7, ((shared.in_sync_share(IN_CLUSTER), 14), (shared.removals_by("cause"), 10))),
        ),
    ),
    PanelRow(
        "Which topics and partitions?",
        ((9, ((shared.topics_at_risk(IN_CLUSTER), 9), (shared.missing_replicas(IN_CLUSTER, detailed=False), 15))),),
    ),
    PanelRow(
        "What changed?", ((7, ((shared.ISR_CHANGES, 10), (shared.LEADER_CHANGES, 10), (shared.UNCLEAN_ELECTIONS, 4))),)
    ),
    PanelRow(
        "Can this board be trusted, and how are the other clusters?",
        ((6, ((REPORT_AGE, 3), (MISSED_CHANGES, 3), (UNKNOWN_MIN_ISR, 3), (OFF_PREFERRED_LEADER, 3), (CLUSTERS, 12))),),
    ),
)


def built() -> dict[str, Any]:
    """Build the board."""
    return board(
        Board.OVERVIEW,
        "Kafka replication overview",
        "Is data at risk; which incidents are open; which brokers are missing, why, since when; which topics.",
        ROWS,
    )
