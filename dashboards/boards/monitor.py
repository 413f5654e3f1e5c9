"""The monitor itself: whether what all boards show can be believed, and which part of isrwatch has failed if not."""

from __future__ import annotations

from typing import Any, Final

from dashboards import style
from dashboards.board import PanelRow, board, line
from dashboards.boards import overview, shared
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
    now_in_range,
    or_none,
    stat,
    table,
    while_fresh,
    yes_no,
)
from dashboards.signals import clusters, derived, monitor
from dashboards.style import PanelQuery

_REPORT_AGE: Final = monitor.REPORT_AGE.now(IN_CLUSTER)
_RUNNING: Final = (
    f"{monitor.QUERY_UP.now(IN_CLUSTER)} and on (cluster, channel, source) {_REPORT_AGE} <= 60 "
    f"or 0 * ({_REPORT_AGE} > 60) - 1"
)
"""1, 0, or -1 where the job has said nothing for a minute."""
_SOURCE: Final = [KeyColumn("source", "Source", 240), KeyColumn("channel", "Channel", 110)]
_BY_SOURCE: Final = "{{source}} ({{channel}})"

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
SOURCES: Final = table(
    "Sources",
    "Each source of the cluster, from the collector to the tables. Old, and all alike: the job has stopped. Old, and "
    "one alone: its collector, or its permission. Running no: the query that applies it failed. Behind: what the job "
    "has yet to apply; nothing of it is lost.",
    _SOURCE,
    [
        TableColumn(
            title="Age",
            expression=monitor.SOURCE_AGE.now(IN_CLUSTER),
            unit=Unit.SECONDS,
            look=colored(style.TEXT, (30, style.ORANGE), (60, style.RED)),
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
    Unit.COUNT,
    style.steps(style.RED, (1, style.GREEN)),
    words={"1": ("running", style.GREEN), "0": ("down", style.RED), "-1": ("job silent", style.RED)},
)
TABLES: Final = table(
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
SAMPLES: Final = table(
    "Samples",
    f"{monitor.SAMPLE_AGE.meaning} Unless sampling is off, an age of many minutes means that its source is refused, or "
    "has stopped.",
    [KeyColumn("table", "Table", 190)],
    [
        TableColumn(
            title=monitor.SAMPLE_AGE.name,
            expression=monitor.SAMPLE_AGE.now(IN_CLUSTER),
            unit=Unit.SECONDS,
            look=colored(style.TEXT, (900, style.ORANGE)),
        )
    ],
    monitor.SAMPLE_AGE.name,
)
UNRECORDED: Final = table(
    monitor.UNRECORDED.name,
    f"{monitor.UNRECORDED.meaning} The row none: data is fresh, and none is missing.",
    [BROKER, KeyColumn("meter", "Counted", 130)],
    [
        TableColumn(
            title="Not recorded",
            expression=or_none(f"{monitor.UNRECORDED.now(IN_CLUSTER)} > 0", "broker", also={"meter": "-"}),
            look=alarm(style.YELLOW),
        )
    ],
    "Not recorded",
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
                shared.DATA_AGE,
                overview.REPORT_AGE,
                UNREADABLE,
                overview.MISSED_CHANGES,
                QUARANTINED,
                overview.UNKNOWN_MIN_ISR,
                WITHOUT_DETAIL,
                stat(clusters.DISKLESS, style.steps(style.BLUE)),
            ),
            (8, ((SOURCES, 24),)),
        ),
    ),
    PanelRow(
        "Which part has failed, since when?",
        (
            (7, ((_over_time(monitor.SOURCE_AGE, Unit.SECONDS), 12), (_over_time(monitor.BEHIND, Unit.BYTES), 12))),
            (7, ((QUERIES, 24),)),
        ),
    ),
    PanelRow(
        "What does the exporter read and expose?",
        ((9, ((TABLES, 10), (SAMPLES, 7), (UNRECORDED, 7))), (6, ((SERIES, 24),))),
    ),
)


def built() -> dict[str, Any]:
    """Build the board."""
    return board(
        Board.MONITOR,
        "Kafka replication: the monitor itself",
        "Whether isrwatch can be believed, and which part of it has failed if not.",
        ROWS,
    )
