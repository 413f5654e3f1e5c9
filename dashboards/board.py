"""A board: its address, what it selects, its rows, variables and annotations, and the menu of all boards.

The queries of panels stand here, too, as far as several boards ask the same way: what is selected, rates, sums of the
time range, freshness.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import attr
from grafanalib import core

from dashboards import style
from dashboards.promql import CHOOSABLE, EVERYTHING, Scope, Signal, of_variable
from dashboards.signals import brokers, changes, clusters, groups, partitions
from dashboards.style import DATASOURCE, EVERY_VALUE, ORANGE, PURPLE, RED, KeyColumn, Link, PanelQuery, normalised
from streaming.contracts.events import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardSettings:
    """The settings of the alerts that boards take over.

    Attributes:
        waking: what the severity that wakes a person is called in the label ``severity``.
        url: of the exporter, for links from incidents to the runbook that it serves; "" is none.
    """

    waking: str = Severity.CRITICAL
    url: str = ""


# The boards' addresses, and links from one to another that carry the data source, the cluster and the time range.


class Board(StrEnum):
    """The uid of each board, and the name of its file: part of its address, so it stays."""

    FLEET = "isrwatch-fleet"
    CLUSTER = "isrwatch-cluster"
    BROKERS = "isrwatch-brokers"
    TOPICS = "isrwatch-topics"
    GROUPS = "isrwatch-groups"
    HEALTH = "isrwatch-health"


CHOSEN: Final = ("broker", "topic", "group")
"""The labels by whose values boards are narrowed: cells with them lead to such a board."""
TAG: Final = "isrwatch"
"""Tag of every board; the menu on top lists the boards with it."""


CELL: Final = "${__value.raw:percentencode}"
"""The value of a cell in a link. Without the format Grafana leaves ``&``, ``#`` and ``+`` as they are."""


def to_board(board: Board, **variables: str) -> Link:
    """Return the link to a board: from a cell, ``broker=CELL`` shows that broker there."""
    chosen = "".join(f"&var-{name}={value}" for name, value in variables.items())
    cluster = "" if "cluster" in variables else "&${cluster:queryparam}"
    url = f"/d/{board}?${{datasource:queryparam}}{cluster}{chosen}&${{__url_time_range}}"
    title = f"Show this {next(iter(variables))}" if variables else f"Show {_LINKED[board]}"
    return Link(title, url)


_LINKED: Final = {
    Board.FLEET: "all clusters",
    Board.CLUSTER: "the cluster",
    Board.BROKERS: "brokers and controllers",
    Board.TOPICS: "topics and partitions",
    Board.GROUPS: "consumer groups",
    Board.HEALTH: "the health of isrwatch",
}
BROKER: Final = KeyColumn("broker", "Broker", 80, (to_board(Board.BROKERS, broker=CELL),))
TOPIC: Final = KeyColumn("topic", "Topic", 170, (to_board(Board.TOPICS, topic=CELL),))
PARTITION: Final = KeyColumn("partition", "Partition", 100)
GROUP: Final = KeyColumn("group", "Group", 150, (to_board(Board.GROUPS, group=CELL),))
CLUSTER: Final = KeyColumn("cluster", "Cluster", 140, (to_board(Board.CLUSTER, cluster=CELL),))


# Selections, and the queries that several boards ask.


WINDOW: Final = "$__rate_interval"
RANGE: Final = "$__range"


def selected(*variables: str) -> Scope:
    """Select the cluster of the board, and what its other variables select."""
    return Scope({name: of_variable(name) for name in ("cluster", *variables)})


IN_CLUSTER: Final = selected()
FRESH: Final = clusters.OFFLINE.now(IN_CLUSTER)
"""Present if the state of the cluster is exposed, whatever its value."""
STALE_SECONDS: Final = 60
"""Age of data beyond which the exporter withdraws the state."""
_OBSERVED_SECONDS: Final = 15
"""A few heartbeats. Older data moves no counter: its rate would fall to 0 as if trouble were over."""


def stat(  # noqa: PLR0913 - the parts of a stat
    signal: Signal,
    colors: style.Steps,
    expression: str | None = None,
    *,
    title: str | None = None,
    no_value: str = style.NO_DATA,
    link: Link | None = None,
) -> style.Panel:
    """Return one number of now: the sum over the cluster, or the value of an expression."""
    query = expression or signal.now(IN_CLUSTER, by=())
    return style.stat(title or signal.name, signal.meaning, query, colors, signal.unit, no_value=no_value, link=link)


def per_minute(signal: Signal, legend: str, color: str) -> PanelQuery:
    """Return the rate of a counter over time."""
    return PanelQuery(while_observed(signal.per_minute(WINDOW, IN_CLUSTER)), legend, color)


def peaks(signal: Signal, legend: str, color: str) -> PanelQuery:
    """Return the greatest value within each step over time: what is over before the next step is drawn, too.

    A step may be no longer than the interval of scrapes, and one of them late: then it has the last value.
    """
    series = signal.series(IN_CLUSTER)
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


def or_nothing(expression: str, label: str, says: str, *listed: str, also: Iterable[str] = (), value: int = 0) -> str:
    """Add a row with a value if data is fresh and nothing is listed; its first cell says so.

    A cell that leads to a board has the value for everything there, because no topic is called so; the table turns it
    into the words (``nothing``).

    Args:
        expression: gives the rows.
        label: the column that says it.
        says: the words, where the column is no link.
        listed: what decides whether anything is listed; by default the expression.
        also: more labels of that row, which say nothing.
        value: of the row.
    """
    row = f"{value} + 0 * {FRESH} unless on (cluster) ({' or '.join(listed or (expression,))})"
    shown = {label: says, **dict.fromkeys(also, style.NOT_SO)}
    for name, text in shown.items():
        row = f'label_replace({row}, "{name}", "{f"${EVERY_VALUE}" if name in CHOSEN else text}", "", "")'
    return f"{expression} or {row}"


# The board itself.


_ON_TIME_RANGE_CHANGE: Final = 2
_SHARED_CROSSHAIR: Final = 1
_ALPHABETICAL_ASCENDING: Final = 1
_NUMERICAL_ASCENDING: Final = 3
_VARIABLES: Final = {
    "broker": ("Broker", brokers.REGISTERED),
    "topic": ("Topic", partitions.TOPIC_OFFLINE),
    "group": ("Group", groups.INFO),
}
"""Variables of which several values can be chosen: label, and a signal that has all values."""
_MENU: Final = {
    "asDropdown": True,
    "icon": "external link",
    "includeVars": True,
    "keepTime": True,
    "tags": [TAG],
    "targetBlank": False,
    "title": "All boards",
    "tooltip": "The other boards, for this cluster and this time range",
    "type": "dashboards",
    "url": "",
}


def board(  # noqa: PLR0913 - the parts of a board
    uid: Board,
    title: str,
    description: str,
    rows: tuple[PanelRow, ...],
    settings: BoardSettings,
    *,
    variables: Iterable[str] = (),
    more_variables: Iterable[core.Template] = (),
    annotations: Iterable[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Build a board as Grafana's classic JSON; all but that of the fleet are about the one cluster that is chosen."""
    is_of_one = uid is not Board.FLEET
    chosen = [_data_source(), *([_cluster()] if is_of_one else [])]
    return normalised(
        core.Dashboard(
            title=title,
            uid=uid.value,
            description=description,
            tags=[TAG, "kafka"],
            editable=False,
            graphTooltip=_SHARED_CROSSHAIR,
            refresh="30s",
            timezone="browser",
            time=core.Time("now-1h", "now"),
            version=1,
            links=[_MENU],
            templating=core.Templating(list=[*chosen, *map(_several, variables), *more_variables]),
            annotations=core.Annotations(list=[*(_always(settings) if is_of_one else []), *annotations]),
            panels=placed(rows),
        )
    )


def annotation(name: str, expression: str, color: str, text: str) -> dict[str, Any]:
    """Return marks over all time series while an expression has a value; ``text`` is a template over its labels."""
    return {
        "datasource": DATASOURCE,
        "enable": True,
        "expr": expression,
        "iconColor": color,
        "name": name,
        "step": "60s",
        "tagKeys": "cluster",
        "titleFormat": name,
        "textFormat": text,
    }


def choice(name: str, label: str, values: Mapping[str, str]) -> core.Template:
    """Return a variable of one of some values, each with the words that are shown for it; the first is the default."""
    query = ",".join(value if text == value else f"{text} : {value}" for value, text in values.items())
    return core.Template(name=name, label=label, type="custom", query=query)


def _data_source() -> core.Template:
    return core.Template(name="datasource", label="Data source", type="datasource", query="prometheus")


def _cluster() -> core.Template:
    # Ages stay exposed while state is withdrawn, so a stale cluster can still be selected.
    return _values("cluster", "Cluster", clusters.DATA_AGE.series())


def _several(name: str) -> core.Template:
    label, signal = _VARIABLES[name]
    return _values(name, label, signal.series(IN_CLUSTER), several=True)


def _values(name: str, label: str, series: str, *, several: bool = False) -> core.Template:
    return core.Template(
        name=name,
        label=label,
        type="query",
        query=f"label_values({series}, {name})",
        dataSource=DATASOURCE,
        refresh=_ON_TIME_RANGE_CHANGE,
        sort=_NUMERICAL_ASCENDING if name == "broker" else _ALPHABETICAL_ASCENDING,
        multi=several,
        includeAll=several,
        allValue=EVERYTHING if several else "",
        regex=CHOOSABLE,
    )


def _always(settings: BoardSettings) -> list[dict[str, Any]]:
    waking = clusters.CONDITION.now(IN_CLUSTER, f'severity="{settings.waking}"')
    unclean = f"{changes.UNCLEAN_ELECTIONS.increase(WINDOW, IN_CLUSTER)} > 0"
    blind = f"{clusters.DATA_AGE.now(IN_CLUSTER)} > {STALE_SECONDS}"
    return [
        annotation("Critical conditions", waking, RED, "{{condition}} {{subject}} {{short_id}}"),
        annotation("Unclean elections", unclean, ORANGE, "Acknowledged records may be lost"),
        annotation("Not monitored", blind, PURPLE, "No fresh data: nothing is known of this time"),
    ]


# Rows of a board: a question and the panels that answer it, with sizes in Grafana's 24 columns.


GRID_WIDTH: Final = 24


@dataclass(frozen=True, slots=True)
class PanelRow:
    """A heading and its panels: each line is a height, and panels with their widths from left to right."""

    title: str
    lines: tuple[tuple[int, tuple[tuple[style.Panel, int], ...]], ...]


def line(height: int, *panels: style.Panel) -> tuple[int, tuple[tuple[style.Panel, int], ...]]:
    """Return a line of panels of equal widths, the last one as wide as is left."""
    width = GRID_WIDTH // len(panels)
    widths = [*[width] * (len(panels) - 1), GRID_WIDTH - width * (len(panels) - 1)]
    return height, tuple(zip(panels, widths, strict=True))


def placed(rows: tuple[PanelRow, ...]) -> list[style.Panel]:
    """Return every panel with its grid position, top-down, headings included."""
    result: list[style.Panel] = []
    top = 0
    for row in rows:
        result.append(_at(style.row(row.title), 0, top, GRID_WIDTH, 1))
        top += 1
        for height, line in row.lines:
            result.extend(_line(line, top, height))
            top += height
    return result


def _line(line: tuple[tuple[style.Panel, int], ...], top: int, height: int) -> Iterator[style.Panel]:
    left = 0
    for panel, width in line:
        yield _at(panel, left, top, width, height)
        left += width


def _at(panel: style.Panel, left: int, top: int, width: int, height: int) -> style.Panel:
    return attr.evolve(panel, gridPos=core.GridPos(h=height, w=width, x=left, y=top))
