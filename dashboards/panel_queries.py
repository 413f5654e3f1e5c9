"""The queries that panels are made of: what is selected on the board, rates, sums of the time range, freshness."""

from __future__ import annotations

from typing import Final

from dashboards import style
from dashboards.promql import Scope, Signal
from dashboards.signals import clusters
from dashboards.style import PanelQuery

SELECTED: Final = Scope({"cluster": 'cluster=~"$cluster"', "topic": 'topic=~"$topic"'})
WINDOW: Final = "$__rate_interval"
RANGE: Final = "$__range"


def stat(signal: Signal, colors: style.Steps, expression: str | None = None) -> style.Panel:
    """Return one number of now: the sum over what is selected, or the value of an expression."""
    query = expression or signal.now(SELECTED, by=())
    return style.stat(signal.name, signal.meaning, query, colors, signal.unit)


def per_minute(signal: Signal, legend: str, color: str | None = None) -> PanelQuery:
    """Return the rate of a counter over time."""
    return PanelQuery(signal.per_minute(WINDOW, SELECTED), legend, color)


def in_range(signal: Signal, by: tuple[str, ...], *more: str) -> str:
    """Return the events of the whole time range: one window without overlaps, hence not the rate interval."""
    return f"round({signal.increase(RANGE, SELECTED, *more, by=by)})"


FRESH: Final = clusters.OFFLINE.now(SELECTED)
"""Present for each cluster whose state is exposed, whatever its value."""


def now_in_range(signal: Signal) -> str:
    """Return the events of the whole time range of the clusters with fresh data: counters are there without, too."""
    return f"round(sum({signal.increase(RANGE, SELECTED)} and on (cluster) {FRESH}))"


def or_none(expression: str, label: str, *listed: str) -> str:
    """Add a row with the value 0 for each cluster with fresh data of which nothing is listed."""
    return (
        f"{expression} or label_replace(0 * {FRESH} unless on (cluster) ({' or '.join(listed or (expression,))}), "
        f'"{label}", "{style.NONE_AT_RISK}", "", "")'
    )
