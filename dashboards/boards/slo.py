"""Service level: for how long partitions refused writes or had no leader, against an objective, and how fast it burns.

The ratio is partition time: seconds that partitions were not available, by partitions times seconds.
"""

from __future__ import annotations

from typing import Any, Final

from grafanalib import core

from dashboards import style
from dashboards.board import PanelRow, board, line
from dashboards.boards import shared
from dashboards.promql import Signal, Unit
from dashboards.queries import (
    IN_CLUSTER,
    RANGE,
    TOPIC,
    WINDOW,
    Board,
    TableColumn,
    or_none,
    table,
    top,
    while_fresh,
    while_observed,
)
from dashboards.signals import changes, clusters, partitions
from dashboards.style import PanelQuery

OBJECTIVES: Final = ("99.99", "99.9", "99.999")
"""Per cent of partition time; the first is chosen when the board is opened."""
_ALLOWED: Final = "(1 - $objective / 100)"
_LISTED: Final = 20
_PARTITIONS: Final = clusters.PARTITIONS.now(IN_CLUSTER)


def _in_range(signal: Signal) -> str:
    return f"sum({while_fresh(signal.increase(RANGE, IN_CLUSTER))})"


def _burn(signal: Signal, window: str) -> str:
    """Return how many times faster than allowed the budget is spent, over a window."""
    return f"sum({while_observed(signal.per_minute(window, IN_CLUSTER))}) / 60 / sum({_PARTITIONS}) / {_ALLOWED}"


def _time(signal: Signal, *above: tuple[float, str]) -> style.Panel:
    return style.stat(signal.name, signal.meaning, _in_range(signal), style.steps(style.GREEN, *above), Unit.SECONDS)


AVAILABLE: Final = style.stat(
    "Writes accepted",
    "Share of partition time in this time range in which partitions accepted writes with acks=all. Choose the range "
    "by the period of the objective, such as the last 30 days.",
    f"100 * (1 - {_in_range(changes.UNDER_MIN_ISR_SECONDS)} / ($__range_s * sum({_PARTITIONS})))",
    style.steps(style.TEXT),
    Unit.PERCENT,
)
BUDGET: Final = style.stat(
    "Budget spent",
    "Share of the unavailability that the objective allows in this time range. 0 %: nothing was refused. Above 100 %: "
    "the objective is missed, as it is in a short range after one short outage; put off risky work until it is met "
    "again.",
    f"{_in_range(changes.UNDER_MIN_ISR_SECONDS)} / ($__range_s * sum({_PARTITIONS}) * {_ALLOWED})",
    style.steps(style.GREEN, (0.75, style.ORANGE), (1, style.RED)),
    Unit.SHARE,
)
WRITES_REFUSED: Final = _time(changes.UNDER_MIN_ISR_SECONDS, (1, style.ORANGE))
OFFLINE: Final = _time(changes.OFFLINE_SECONDS, (60, style.ORANGE))
UNDER_REPLICATED: Final = _time(changes.UNDER_REPLICATED_SECONDS, (3600, style.YELLOW))
UNKNOWN: Final = _time(changes.UNKNOWN_SECONDS, (60, style.ORANGE))
BURN: Final = style.timeseries(
    "Burn rate",
    "How many times faster than the objective allows the budget is spent. 1: it is spent exactly at the end of the "
    "period. 14.4 in both the last hour and the last five minutes: two per cent of a month's budget in an hour, a "
    "reason to page. 6 in six hours: a ticket.",
    [
        PanelQuery(_burn(changes.UNDER_MIN_ISR_SECONDS, "5m"), "last 5 minutes", style.YELLOW),
        PanelQuery(_burn(changes.UNDER_MIN_ISR_SECONDS, "1h"), "last hour", style.ORANGE),
        PanelQuery(_burn(changes.UNDER_MIN_ISR_SECONDS, "6h"), "last 6 hours", style.RED),
    ],
    Unit.BARE,
)
SPENT: Final = style.timeseries(
    "Unavailable or under-replicated, in the mean",
    "Partitions in each state on average, within each step, from exact seconds: also what is shorter than a scrape. "
    "One for a whole hour costs the same as sixty for a minute. The lines end while the cluster is not observed.",
    [
        PanelQuery(f"sum({while_observed(signal.per_minute(WINDOW, IN_CLUSTER))}) / 60", legend, color)
        for signal, legend, color in (
            (changes.OFFLINE_SECONDS, "offline", style.PURPLE),
            (changes.UNDER_MIN_ISR_SECONDS, "writes refused", style.RED),
            (changes.UNDER_REPLICATED_SECONDS, "under-replicated", style.YELLOW),
        )
    ],
    Unit.COUNT,
)
_REFUSED: Final = f"{partitions.TOPIC_UNDER_MIN_ISR_SECONDS.increase(RANGE, IN_CLUSTER)} > 0"
TOPICS: Final = table(
    "Topics that refused writes",
    "The twenty topics with the most time under min ISR in this time range, summed over their partitions. Their owners "
    "should know. The row none: data is fresh, and no topic refused writes.",
    [TOPIC],
    [
        TableColumn(
            title="Partition time",
            expression=or_none(while_fresh(top(_LISTED, _REFUSED)), "topic", _REFUSED),
            unit=Unit.SECONDS,
        )
    ],
    "Partition time",
)

ROWS: Final = (
    PanelRow(
        "Is the objective met, by times summed over partitions?",
        (line(5, AVAILABLE, BUDGET, WRITES_REFUSED, OFFLINE, UNDER_REPLICATED, UNKNOWN, shared.DATA_AGE),),
    ),
    PanelRow("How fast is the budget spent?", ((8, ((BURN, 12), (SPENT, 12))),)),
    PanelRow("By which topics?", ((8, ((TOPICS, 12), (shared.RISK, 12))),)),
)


def built() -> dict[str, Any]:
    """Build the board."""
    return board(
        Board.SLO,
        "Kafka replication: service level",
        "For how long partitions refused writes or had no leader, against an objective.",
        ROWS,
        more_variables=[
            core.Template(name="objective", label="Objective, %", type="custom", query=",".join(OBJECTIVES))
        ],
    )
