"""The queries that panels are made of: what is selected on a board, rates, sums of the time range, freshness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dashboards import style
from dashboards.links import CHOSEN, EVERY_VALUE
from dashboards.promql import Scope, Signal
from dashboards.signals import clusters
from dashboards.style import PanelQuery

if TYPE_CHECKING:
    from collections.abc import Mapping

WINDOW: Final = "$__rate_interval"
RANGE: Final = "$__range"
_ONE_CLUSTER: Final = {"cluster": 'cluster="$cluster"'}


def selected(*variables: str) -> Scope:
    """Select the cluster of the board, and what its other variables select."""
    return Scope({**_ONE_CLUSTER, **{name: f'{name}=~"${name}"' for name in variables}})


IN_CLUSTER: Final = selected()
FRESH: Final = clusters.OFFLINE.now(IN_CLUSTER)
"""Present if the state of the cluster is exposed, whatever its value."""
_OBSERVED_SECONDS: Final = 15
"""A few heartbeats. Older data moves no counter: its rate would fall to 0 as if trouble were over."""


def stat(
    signal: Signal,
    colors: style.Steps,
    expression: str | None = None,
    title: str | None = None,
    no_value: str = style.NO_DATA,
) -> style.Panel:
    """Return one number of now: the sum over the cluster, or the value of an expression."""
    query = expression or signal.now(IN_CLUSTER, by=())
    return style.stat(title or signal.name, signal.meaning, query, colors, signal.unit, no_value=no_value)


def per_minute(signal: Signal, legend: str, color: str | None = None, scope: Scope = IN_CLUSTER) -> PanelQuery:
    """Return the rate of a counter over time."""
    return PanelQuery(while_observed(signal.per_minute(WINDOW, scope)), legend, color)


def peaks(signal: Signal, legend: str, color: str | None = None, scope: Scope = IN_CLUSTER) -> PanelQuery:
    """Return the greatest value within each step over time: what is over before the next step is drawn, too.

    A step may be no longer than the interval of scrapes, and one of them late: then it has the last value.
    """
    series = signal.series(scope)
    return PanelQuery(
        f"max by ({', '.join(signal.labels)}) (max_over_time({series}[$__interval]) or {series})", legend, color
    )


def in_range(signal: Signal, by: tuple[str, ...], *more: str, scope: Scope = IN_CLUSTER) -> str:
    """Return the events of the whole time range: one window without overlaps, hence not the rate interval."""
    return f"round({signal.increase(RANGE, scope, *more, by=by)})"


def now_in_range(signal: Signal) -> str:
    """Return the events of the whole time range if data is fresh: counters are there without, too."""
    return f"round(sum({signal.increase(RANGE, IN_CLUSTER)} and on (cluster) {FRESH}))"


def while_fresh(expression: str) -> str:
    """Leave out what is there without fresh data, too."""
    return f"{expression} and on (cluster) {FRESH}"


def while_observed(expression: str) -> str:
    """Leave out the rates of counters that nothing moves, because the cluster is not observed."""
    return f"{expression} and on (cluster) {clusters.DATA_AGE.now(IN_CLUSTER)} <= {_OBSERVED_SECONDS}"


def top(count: int, expression: str) -> str:
    """Leave only the greatest series: a legend of hundreds is none."""
    return f"topk({count}, {expression})"


def or_none(expression: str, label: str, *listed: str, also: Mapping[str, str] | None = None) -> str:
    """Add a row with the value 0 if data is fresh and nothing is listed.

    Its cells that lead to a board show everything there: of a topic that is called none there is nothing to be seen.

    Args:
        expression: gives the rows.
        label: the column that says ``none`` in that row.
        listed: what decides whether anything is listed; by default the expression.
        also: more labels of that row.
    """
    row = f"0 * {FRESH} unless on (cluster) ({' or '.join(listed or (expression,))})"
    for name, value in {label: style.NONE_AT_RISK, **(also or {})}.items():
        shown = f"${EVERY_VALUE}" if name in CHOSEN and value == style.NONE_AT_RISK else value
        row = f'label_replace({row}, "{name}", "{shown}", "", "")'
    return f"{expression} or {row}"
