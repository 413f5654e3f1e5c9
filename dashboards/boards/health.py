"""isrwatch itself: whether what all boards show can be believed, and which part of it has failed if not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from dashboards import style
from dashboards.board import (
    BROKER,
    IN_CLUSTER,
    STALE_SECONDS,
    Board,
    BoardSettings,
    PanelRow,
    board,
    in_range,
    line,
    now_in_range,
    or_nothing,
    stat,
    while_fresh,
)
from dashboards.promql import Signal, Unit
from dashboards.signals import changes, clusters, derived, monitor
from dashboards.style import CellLook, KeyColumn, PanelQuery, TableColumn, alarm, colored, yes_no

_SILENT: Final = 60
"""Seconds: a job reports every five."""
_REPORT_AGE: Final = monitor.REPORT_AGE.now(IN_CLUSTER)
_RUNNING: Final = (
    f"{monitor.QUERY_UP.now(IN_CLUSTER)} and on (cluster, channel, source) {_REPORT_AGE} <= {_SILENT} "
    f"or 0 * ({_REPORT_AGE} > {_SILENT}) - 1"
)
"""1, 0, or -1 where the job has said nothing for a minute."""
_SOURCE: Final = [KeyColumn("source", "Source", 240), KeyColumn("channel", "Channel", 110)]
_BY_SOURCE: Final = "{{source}} ({{channel}})"

_AGES: Final = style.steps(style.GREEN, (STALE_SECONDS / 2, style.ORANGE), (STALE_SECONDS, style.PURPLE))
REPORT_AGE: Final = style.stat(
    "Job's report age", monitor.REPORT_AGE.meaning, f"max({_REPORT_AGE})", _AGES, Unit.DURATION
)
MISSED_CHANGES: Final = stat(
    changes.MISSED_CHANGES, style.alarm_above_zero(style.YELLOW), now_in_range(changes.MISSED_CHANGES)
)
UNKNOWN_MIN_ISR: Final = stat(clusters.UNKNOWN_MIN_ISR, style.alarm_above_zero(style.YELLOW))
QUARANTINED: Final = stat(monitor.QUARANTINED, style.alarm_above_zero(style.ORANGE), now_in_range(monitor.QUARANTINED))
UNREADABLE: Final = style.stat(
    "Unreadable tables",
    "Tables that the exporter could not read when it last tried; what comes from them is absent on all boards. The "
    "list below names them; its log says why.",
    f"count({monitor.TABLE_READABLE.now()}) - sum({monitor.TABLE_READABLE.now()})",
    style.alarm_above_zero(style.ORANGE),
)
WITHOUT_DETAIL: Final = stat(
    monitor.WITHOUT_DETAIL,
    style.alarm_above_zero(style.YELLOW),
    f"sum({while_fresh(monitor.WITHOUT_DETAIL.now(IN_CLUSTER))})",
)
SOURCES: Final = style.table(
    "Sources",
    "Each source of the cluster, from the collector to the tables. Old, and all alike: the job has stopped. Old, and "
    "one alone: its collector, or its permission. Running no: the query that applies it failed. Behind: what the job "
    "has yet to apply; nothing of it is lost.",
    _SOURCE,
    [
        TableColumn(
            title="Age",
            expression=monitor.SOURCE_AGE.now(IN_CLUSTER),
            unit=Unit.DURATION,
            look=colored(style.TEXT, (STALE_SECONDS / 2, style.ORANGE), (STALE_SECONDS, style.PURPLE)),
        ),
        TableColumn(
            title="Running",
            expression=_RUNNING,
            look=CellLook({**yes_no(no=style.RED).words, "-1": ("job silent", style.RED)}, style.steps(style.TEXT)),
        ),
        TableColumn(
            title="Restarts in range",
            expression=in_range(monitor.QUERY_RESTARTS, derived.SOURCE),
            look=alarm(style.YELLOW),
        ),
        TableColumn(title="Behind", expression=monitor.BEHIND.now(IN_CLUSTER), unit=Unit.BYTES),
        TableColumn(
            title="Quarantined in range",
            expression=in_range(monitor.QUARANTINED, derived.SOURCE),
            look=alarm(style.ORANGE),
        ),
    ],
    "Age",
)


def _over_time(signal: Signal, unit: Unit) -> style.Panel:
    return style.timeseries(signal.name, signal.meaning, [PanelQuery(signal.now(IN_CLUSTER), _BY_SOURCE)], unit)


QUERIES: Final = style.state_timeline(
    monitor.QUERY_UP.name,
    monitor.QUERY_UP.meaning,
    [PanelQuery(_RUNNING, _BY_SOURCE)],
    style.steps(style.RED, (1, style.GREEN)),
    words={"1": ("running", style.GREEN), "0": ("down", style.RED), "-1": ("job silent", style.RED)},
)
TABLES: Final = style.table(
    "Tables",
    "Each table that the exporter reads. Readable no: what comes from it is absent, and its log says why. An age "
    "beyond a minute: reading takes long, or the disk is slow.",
    [KeyColumn("table", "Table", 190)],
    [
        TableColumn(title="Readable", expression=monitor.TABLE_READABLE.now(), look=yes_no(no=style.RED)),
        *(
            TableColumn(title=signal.name, expression=signal.now(), unit=Unit.SECONDS)
            for signal in (monitor.TABLE_READ_AGE, monitor.TABLE_READ_DURATION)
        ),
    ],
    monitor.TABLE_READ_DURATION.name,
)
SAMPLES: Final = style.table(
    "Samples",
    f"{monitor.SAMPLE_AGE.meaning} Unless sampling is off, an age of many minutes means that its source is refused, or "
    "has stopped.",
    [KeyColumn("table", "Table", 190)],
    [
        TableColumn(
            title=monitor.SAMPLE_AGE.name,
            expression=monitor.SAMPLE_AGE.now(IN_CLUSTER),
            unit=Unit.DURATION,
            look=colored(style.TEXT, (900, style.ORANGE)),
        )
    ],
    monitor.SAMPLE_AGE.name,
)
UNRECORDED: Final = style.table(
    monitor.UNRECORDED.name,
    monitor.UNRECORDED.meaning,
    [replace(BROKER, width=150), KeyColumn("meter", "Counted", 130)],
    [
        TableColumn(
            title="Not recorded",
            expression=or_nothing(f"{monitor.UNRECORDED.now(IN_CLUSTER)} > 0", "broker", "", also=["meter"]),
            look=alarm(style.YELLOW),
        )
    ],
    "Not recorded",
    nothing="none is missing",
)
SERIES: Final = style.timeseries(
    "Samples in a scrape", monitor.SERIES.meaning, [PanelQuery(monitor.SERIES.now(), "samples", style.BLUE)], Unit.COUNT
)

ROWS: Final = (
    PanelRow(
        "Can the boards be believed?",
        (
            line(
                4,
                REPORT_AGE,
                UNREADABLE,
                MISSED_CHANGES,
                QUARANTINED,
                UNKNOWN_MIN_ISR,
                WITHOUT_DETAIL,
                stat(clusters.DISKLESS, style.steps(style.BLUE)),
            ),
            (8, ((SOURCES, 24),)),
        ),
    ),
    PanelRow(
        "Which part has failed, since when?",
        (
            (7, ((_over_time(monitor.SOURCE_AGE, Unit.DURATION), 12), (_over_time(monitor.BEHIND, Unit.BYTES), 12))),
            (7, ((QUERIES, 24),)),
        ),
    ),
    PanelRow(
        "What does the exporter read and expose?",
        ((9, ((TABLES, 10), (SAMPLES, 7), (UNRECORDED, 7))), (6, ((SERIES, 24),))),
    ),
)


def built(settings: BoardSettings) -> dict[str, Any]:
    """Build the board."""
    return board(
        Board.HEALTH,
        "isrwatch health",
        "Whether isrwatch can be believed, and which part of it has failed if not.",
        ROWS,
        settings,
    )
