"""The fleet: every cluster in one row, worst first, each with its state in words.

The state of a cluster is the worst condition that holds. One that is not monitored stands between those
that fail their clients and those that only lack redundancy, in a colour of its own: it may be either.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from dashboards import style
from dashboards.board import CLUSTER, RANGE, STALE_SECONDS, Board, BoardSettings, PanelRow, board, to_board, top
from dashboards.promql import EVERYWHERE, Scope, Unit
from dashboards.signals import changes, clusters, monitor
from dashboards.style import CellLook, PanelQuery, TableColumn
from streaming.contracts.conditions import Condition


class FleetState(NamedTuple):
    """The state of a cluster by one condition: its rank among all, the worse the higher, its words and its colour."""

    rank: int
    words: str
    color: str


_BLIND: Final = FleetState(70, "not monitored", style.PURPLE)
STATES: Final[dict[str, FleetState]] = {
    Condition.OFFLINE: FleetState(100, "partitions offline", style.DARK_RED),
    Condition.UNDER_MIN_ISR: FleetState(90, "writes rejected", style.RED),
    Condition.NO_CONTROLLER: FleetState(80, "no controller", style.RED),
    Condition.UNCLEAN_ELECTION: FleetState(75, "unclean election", style.RED),
    Condition.NO_DATA: _BLIND,
    Condition.DATA_STALE: _BLIND,
    Condition.MIN_ISR_UNKNOWN: FleetState(68, "min ISR unknown", style.PURPLE),
    Condition.TABLE_UNREADABLE: FleetState(66, "partly unknown", style.PURPLE),
    Condition.AT_MIN_ISR: FleetState(60, "one failure left", style.ORANGE),
    Condition.LOG_DIRECTORY_OFFLINE: FleetState(58, "log directory offline", style.ORANGE),
    Condition.BROKER_DOWN: FleetState(56, "broker down", style.ORANGE),
    Condition.UNDER_REPLICATED: FleetState(52, "replicas missing", style.ORANGE),
    Condition.QUORUM_VOTER_BEHIND: FleetState(40, "controller behind", style.YELLOW),
    Condition.PRIMARY_SOURCE_LOST: FleetState(38, "metadata log lost", style.YELLOW),
    Condition.PLANNED_WORK: FleetState(10, "planned work", style.BLUE),
}
"""The state of a cluster by each condition of its health."""
RAISED: Final[dict[str, FleetState]] = {
    Condition.DISK_FILLS_UP: FleetState(62, "disk fills up", style.ORANGE),
    Condition.HANGING_TRANSACTION: FleetState(50, "transaction hangs", style.ORANGE),
    Condition.RESTART_LOOP: FleetState(48, "broker restarts again and again", style.ORANGE),
    Condition.ISR_FLAPPING: FleetState(46, "ISR flaps", style.ORANGE),
    Condition.DISK_NEARLY_FULL: FleetState(44, "disk nearly full", style.YELLOW),
    Condition.REASSIGNMENT_STUCK: FleetState(42, "reassignment stuck", style.YELLOW),
    Condition.SAMPLES_STALE: FleetState(36, "samples old", style.YELLOW),
    Condition.SERIES_LEFT_OUT: FleetState(34, "series left out", style.YELLOW),
}
"""The same by each other condition that may be raised of a cluster."""
_WORK: Final = STATES[Condition.PLANNED_WORK]
HEALTHY: Final = FleetState(0, "healthy", style.GREEN)
WORDS: Final = {str(one.rank): (one.words, one.color) for one in (*STATES.values(), *RAISED.values(), HEALTHY)}
_ROW_WORDS: Final = WORDS | {str(HEALTHY.rank): (HEALTHY.words, style.NO_COLOR)}
"""In a long table what is healthy is calm."""
_FAILING: Final = 80
_AT_RISK: Final = 30
_BY_PLAN, _UNPLANNED = 'severity="planned"', 'severity!="planned"'


def because(condition: str) -> str:
    """Return the matcher of a condition."""
    return f'condition="{condition}"'


def ranked(scope: Scope) -> str:
    """Return how bad each condition is that is exposed, 0 where it does not hold, by cluster and condition."""
    unplanned = (
        f"{state.rank} * ({clusters.UNHEALTHY.now(scope, because(condition), _UNPLANNED)} > bool 0)"
        for condition, state in STATES.items()
        if state is not _WORK
    )
    others = (
        f"{state.rank} * ({clusters.CONDITION.now(scope, because(key))} > bool 0)" for key, state in RAISED.items()
    )
    planned = f"{_WORK.rank} * ({clusters.UNHEALTHY.now(scope, _BY_PLAN)} > bool 0)"
    return " or ".join((*unplanned, *others, planned))


# A cluster whose exporter is gone has no series: it is remembered for as long as the board looks back.
_GONE: Final = f"{clusters.DATA_AGE.last_known(RANGE)} unless on (cluster) {clusters.DATA_AGE.now()}"
STATE: Final = f"max by (cluster) ({ranked(EVERYWHERE)}) or {_BLIND.rank} + 0 * ({_GONE})"
_TO_CLUSTER: Final = to_board(Board.CLUSTER, cluster="${__field.labels.cluster:percentencode}")


def _clusters(title: str, meaning: str, condition: str, colors: style.Steps) -> style.Panel:
    """Count the clusters in some states, 0 only while there are clusters.

    No count is green: while a cluster is not monitored, 0 that fail prove nothing.
    """
    state = f"({STATE})"
    return style.stat(title, meaning, f"count({state} {condition}) or 0 * count({state})", colors)


FAILING: Final = _clusters(
    "Clusters failing clients",
    "Clusters with partitions that have no leader, that reject writes, or without an active controller: act on the "
    "first row of the table now.",
    f">= {_FAILING}",
    style.steps(style.NO_COLOR, (1, style.DARK_RED)),
)
BLIND: Final = _clusters(
    "Clusters not monitored",
    "Clusters without fresh data: each of them may be healthy or failing. One alone: its collector. All at once: the "
    "job, the bus, or the exporter.",
    f"== {_BLIND.rank}",
    style.steps(style.NO_COLOR, (1, style.PURPLE)),
)
AT_RISK: Final = _clusters(
    "Clusters at risk",
    "Clusters that serve their clients and lack something: replicas, a broker, a log directory, a controller. The next "
    "failure may be the one that they cannot take.",
    f">= {_AT_RISK} < {_FAILING} != {_BLIND.rank}",
    style.steps(style.NO_COLOR, (1, style.ORANGE)),
)
WELL: Final = _clusters(
    "Healthy clusters",
    "Clusters without any condition that needs attention; those with announced work count, too.",
    f"< {_AT_RISK}",
    style.steps(style.TEXT),
)
EVERY: Final = style.tiles(
    "Every cluster",
    "A tile for each cluster, in the colour of its state: dark red has no leader, red rejects writes, purple is not "
    "monitored, orange is one failure away, yellow has something to look at, blue is planned work. A click opens it.",
    PanelQuery(f"sort_desc({STATE})", "{{cluster}}"),
    WORDS,
    _TO_CLUSTER,
)

_RELEASES: Final = {
    "3.0": (1,), "3.1": (2,), "3.2": (3,), "3.3": range(4, 8), "3.4": (8,), "3.5": range(9, 12), "3.6": range(12, 15),
    "3.7": range(15, 20), "3.8": (20,), "3.9": (21,), "4.0": range(22, 26), "4.1": (26, 27), "4.2": (28, 29),
    "4.3": (30,),
}  # fmt: skip
"""The releases of Kafka, and the levels of the feature metadata.version that each brought."""
_OPEN: Final = changes.INCIDENT_OPENED.now(EVERYWHERE, 'severity!="info"')
_INCIDENTS: Final = changes.OPEN_INCIDENTS.now(by=("cluster",))
_OBSERVED: Final = monitor.SOURCE_OBSERVED.series(EVERYWHERE, 'channel="replication"')


def _source(kind: str) -> str:
    info = clusters.INFO.series(EVERYWHERE, f'primary_source="{kind}"')
    return f"max by (cluster) ({info})"


TABLE: Final = style.table(
    "Clusters",
    "Every cluster that was seen in this time range, worst first. At min ISR: partitions that lack a replica, and "
    "reject writes after one more failure. Version: the release that brought the metadata.version in use; brokers may "
    "be newer. Polling sees no change that is shorter than its interval. Data age: beyond a minute nothing is said of "
    "a cluster.",
    [CLUSTER],
    [
        TableColumn(title="State", expression=STATE, look=style.in_words(_ROW_WORDS, fills=True), pixels=170),
        *(
            TableColumn(title=title, expression=expression, look=look)
            for title, expression, look in (
                ("Offline", clusters.OFFLINE.now(), style.alarm(style.DARK_RED)),
                ("Under min ISR", clusters.UNDER_MIN_ISR.now(), style.alarm(style.RED)),
                (
                    "At min ISR",
                    clusters.UNHEALTHY.now(EVERYWHERE, because(Condition.AT_MIN_ISR), by=("cluster",)),
                    style.alarm(style.ORANGE),
                ),
                ("Fenced brokers", clusters.FENCED_BROKERS.now(), style.colored(style.TEXT, (1, style.ORANGE))),
                (
                    "Open incidents",
                    f"count by (cluster) ({_OPEN}) or 0 * {_INCIDENTS}",
                    style.colored(style.TEXT, (1, style.ORANGE)),
                ),
                ("Partitions", clusters.PARTITIONS.now(), CellLook()),
            )
        ),
        TableColumn(
            title="Version",
            expression=clusters.FEATURE_LEVEL.now(EVERYWHERE, 'feature="metadata.version"', by=("cluster",)),
            unit=Unit.BARE,
            look=style.in_words(
                {str(level): (release, style.TEXT) for release, levels in _RELEASES.items() for level in levels}
            ),
        ),
        TableColumn(
            title="Source",
            expression=f"{_source('metadata_log')} or 2 * {_source('poll')}",
            look=style.in_words({"1": ("metadata log", style.TEXT), "2": ("polling", style.TEXT)}),
            pixels=130,
        ),
        TableColumn(
            title="Data age",
            expression=f"{clusters.DATA_AGE.now()} or time() - max by (cluster) (last_over_time({_OBSERVED}[{RANGE}]))",
            unit=Unit.DURATION,
            look=style.colored(style.TEXT, (STALE_SECONDS / 2, style.ORANGE), (STALE_SECONDS, style.PURPLE)),
        ),
    ],
    "State",
)
_BANDS: Final = 20
COURSE: Final = style.state_timeline(
    "When each cluster was in trouble",
    "A band for each cluster that is, or was, not healthy, the twenty worst at each moment; without a band it was "
    "healthy. Colours as above.",
    [PanelQuery(f"{top(_BANDS, f'({STATE})')} > 0", "{{cluster}}")],
    style.steps(style.GREEN),
    words=WORDS,
    no_value="no cluster was in trouble",
)

ROWS: Final = (
    PanelRow(
        "Which clusters need attention?",
        ((4, tuple((panel, 6) for panel in (FAILING, BLIND, AT_RISK, WELL))), (7, ((EVERY, 24),))),
    ),
    PanelRow("What is wrong, and where?", ((16, ((TABLE, 24),)),)),
    PanelRow("Since when?", ((9, ((COURSE, 24),)),)),
)


def built(settings: BoardSettings) -> dict[str, Any]:
    """Build the board."""
    return board(Board.FLEET, "Kafka fleet", "Every cluster, worst first, with its state in words.", ROWS, settings)
