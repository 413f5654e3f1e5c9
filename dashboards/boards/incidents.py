"""Incidents and events, past and present, and why; planned work and elections are marked in every graph."""

from __future__ import annotations

from typing import Any, Final

from dashboards import style
from dashboards.board import PanelRow, annotation, board, line
from dashboards.boards import shared
from dashboards.promql import Unit
from dashboards.queries import IN_CLUSTER, WINDOW, Board, KeyColumn, TableColumn, in_range, or_none, table, while_fresh
from dashboards.signals import brokers, changes, clusters, derived
from dashboards.style import PanelQuery


def _open(severity: str, title: str, meaning: str, color: str) -> style.Panel:
    """Count the open incidents of a severity: 0 only while data is fresh."""
    matcher = f'severity="{severity}"'
    count = f"count by (cluster) ({changes.INCIDENT_OPENED.now(IN_CLUSTER, matcher)})"
    zero = f"0 * sum by (cluster) ({changes.OPEN_INCIDENTS.now(IN_CLUSTER)})"
    return style.stat(title, meaning, f"sum({count} or {zero})", style.alarm_above_zero(color))


CRITICAL: Final = _open(
    "critical",
    "Critical",
    "Open incidents in which writes were refused, partitions had no leader, or records may be lost. Act on the first "
    "suspect now.",
    style.RED,
)
WARNING: Final = _open(
    "warning",
    "Warning",
    "Open incidents in which copies are missing without an order. The next failure may stop writes.",
    style.ORANGE,
)
HARMLESS: Final = _open(
    "info",
    "Harmless",
    "Open incidents without harm: planned work, reassignments, failovers of the controller.",
    style.BLUE,
)
_SEVERITIES: Final = {"critical": 3, "warning": 2, "info": 1}


def _band(severity: str, value: int) -> str:
    opened = changes.INCIDENT_OPENED.now(IN_CLUSTER, f'severity="{severity}"')
    return f"0 * max by (class, suspects) ({opened}) + {value}"


TIMELINE: Final = style.state_timeline(
    "When each incident was open",
    "A band per incident, as long as it was open: its class and its suspects. Red: writes were refused, there was no "
    "leader, or records may be lost; orange: copies were missing; blue: no harm. It ends some time after all is as "
    "before: a minute, of a rolling restart fifteen, in which the next one would belong to it.",
    [
        PanelQuery(
            " or ".join(_band(severity, value) for severity, value in _SEVERITIES.items()), "{{class}} ({{suspects}})"
        )
    ],
    Unit.COUNT,
    style.steps(style.BLUE, (2, style.ORANGE), (3, style.RED)),
    words={"1": ("no harm", style.BLUE), "2": ("copies missing", style.ORANGE), "3": ("harm", style.RED)},
)
CLOSED: Final = table(
    "Incidents by class",
    "Open incidents, and those that were closed in this time range. A closed one is counted once it is final, up to "
    "15 minutes after its end; isrwatch incidents lists them with their evidence. The row none: data is fresh, there "
    "is none.",
    [KeyColumn("class", "Class", 190)],
    [
        TableColumn(
            title=changes.OPEN_INCIDENTS.name,
            empty=style.NOT_SO,
            expression=or_none(
                f"{changes.OPEN_INCIDENTS.now(IN_CLUSTER)} > 0",
                "class",
                f"{changes.OPEN_INCIDENTS.now(IN_CLUSTER)} > 0",
                f"{in_range(changes.CLOSED_INCIDENTS, derived.INCIDENT)} > 0",
            ),
        ),
        TableColumn(
            title="Closed in this range",
            expression=while_fresh(f"{in_range(changes.CLOSED_INCIDENTS, derived.INCIDENT)} > 0"),
            empty=style.NOT_SO,
        ),
    ],
    changes.OPEN_INCIDENTS.name,
)

ROWS: Final = (
    PanelRow(
        "What is going on?",
        (
            line(4, CRITICAL, WARNING, HARMLESS, shared.DATA_AGE),
            (7, ((shared.open_incidents(KeyColumn("incident", "ID", 560)), 24),)),
        ),
    ),
    PanelRow(
        "What happened, and when?",
        ((8, ((TIMELINE, 24),)), (7, ((shared.RISK, 24),)), (6, ((shared.in_sync_share(IN_CLUSTER), 24),))),
    ),
    PanelRow(
        "Which changes were there, and why?",
        (
            (8, ((shared.removals_by("cause"), 12), (shared.removals_by("broker"), 12))),
            (8, ((shared.ISR_CHANGES, 8), (shared.LEADER_CHANGES, 8), (CLOSED, 8))),
        ),
    ),
)


def built() -> dict[str, Any]:
    """Build the board."""
    work = f"{brokers.MAINTENANCE.now(IN_CLUSTER)} == 1"
    failovers = f"{clusters.CONTROLLER_CHANGES.increase(WINDOW, IN_CLUSTER)} > 0"
    fenced = f"{brokers.FENCED.now(IN_CLUSTER)} == 1"
    return board(
        Board.INCIDENTS,
        "Kafka replication: incidents and events",
        "Open incidents, past events, and their causes.",
        ROWS,
        annotations=[
            annotation("Brokers fenced", fenced, style.YELLOW, "broker {{broker}}"),
            annotation("Controller changes", failovers, style.PURPLE, "another active controller"),
            annotation("Planned work", work, style.BLUE, "broker {{broker}}"),
        ],
    )
