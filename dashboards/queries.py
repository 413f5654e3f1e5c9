"""The queries that panels are made of: what is selected on a board, rates, sums of the time range, freshness."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from grafanalib import core

from dashboards import style
from dashboards.promql import Scope, Signal, Unit
from dashboards.signals import clusters
from dashboards.style import PanelQuery

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The boards' addresses, and links from one to another that carry the data source, the cluster and the time range.


class Board(StrEnum):
    """The uid of each board: part of its address, so it stays."""

    OVERVIEW = "isrwatch-replication-overview"
    BROKERS = "isrwatch-brokers"
    INCIDENTS = "isrwatch-incidents"
    TOPICS = "isrwatch-topics"
    GROUPS = "isrwatch-groups"
    INTERNAL_TOPICS = "isrwatch-internal-topics"
    QUORUM = "isrwatch-quorum"
    SLO = "isrwatch-slo"
    MONITOR = "isrwatch-monitor"


CHOSEN: Final = ("broker", "topic", "group")
"""The labels by whose values boards are narrowed: cells with them lead to such a board."""
EVERY_VALUE: Final = "$__all"
"""Grafana's own value of a variable of which all values are chosen."""
TAG: Final = "isrwatch"
"""Tag of every board; the menu on top lists the boards with it."""


def to_board(board: Board, **variables: str) -> str:
    """Return the address of a board from a cell: for ``broker="${__value.raw}"`` it shows that broker."""
    chosen = "".join(f"&var-{name}={value}" for name, value in variables.items())
    cluster = "" if "cluster" in variables else "&${cluster:queryparam}"
    return f"/d/{board}?${{datasource:queryparam}}{cluster}{chosen}&${{__url_time_range}}"


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


def or_none(expression: str, label: str, *listed: str, also: Mapping[str, str] | None = None) -> str:
    """Add a row with the value 0 if data is fresh and nothing is listed.

    Its cells that lead to a board show everything there, because no topic is called none.

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


# Tables: one row per combination of labels, one column per query; every column has a width, so that none is clipped.
#
# Knows Grafana's table panel and the labels of series, no metric.


_CHARACTER: Final = 8
"""Pixels that a character of a heading takes at most, in the mean."""
_MARGIN: Final = 32
"""Pixels next to a heading: its padding, and the arrow of the sort order."""
_NARROWEST: Final = 76


def heading_width(title: str) -> int:
    """Return the pixels that a heading takes."""
    return max(_NARROWEST, _CHARACTER * len(title) + _MARGIN)


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column that says what a row is about: a label, its heading, its least width, and where a click leads.

    Attributes:
        words: value of the label to what the cell says instead.
    """

    label: str
    title: str
    width: int = 90
    link: str = ""
    words: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CellLook:
    """Look of values: words for some of them (text, colour), colours from a value on, of the text or the cell."""

    words: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    steps: style.Steps | None = None
    fills: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """One column of numbers: its query, unit and look, and what a cell says in a row without a value.

    A column that grows shares the width that is left over.
    """

    title: str
    expression: str
    unit: Unit = Unit.COUNT
    look: CellLook = CellLook()
    empty: str = style.UNKNOWN
    grows: bool = False

    @property
    def width(self) -> int:
        """Pixels: the heading fits."""
        return heading_width(self.title)


BROKER: Final = KeyColumn("broker", "Broker", 80, to_board(Board.BROKERS, broker="${__value.raw}"))
TOPIC: Final = KeyColumn("topic", "Topic", 170, to_board(Board.TOPICS, topic="${__value.raw}"))
PARTITION: Final = KeyColumn("partition", "Partition", 100)
GROUP: Final = KeyColumn("group", "Group", 150, to_board(Board.GROUPS, group="${__value.raw}"))
CLUSTER: Final = KeyColumn("cluster", "Cluster", 140, to_board(Board.OVERVIEW, cluster="${__value.raw}"))
MISSING_BROKER: Final = KeyColumn("broker", "Missing broker", heading_width("Missing broker"), BROKER.link)


def alarm(color: str) -> CellLook:
    """Fill the cell with a colour from 1 on; below it the cell is calm."""
    return CellLook(steps=style.steps(style.NO_COLOR, (1, color)), fills=True)


def colored(base: str, *above: tuple[float, str]) -> CellLook:
    """Colour the text."""
    return CellLook(steps=style.steps(base, *above))


def yes_no(yes: str = style.TEXT, no: str = style.TEXT) -> CellLook:
    """Say yes for 1 and no for 0, each in a colour."""
    return CellLook(words={"1": ("yes", yes), "0": ("no", no)}, steps=style.steps(style.TEXT))


def table(  # noqa: PLR0913 - the parts of a table
    title: str,
    description: str,
    keys: Sequence[KeyColumn],
    columns: Sequence[TableColumn],
    sort_by: str,
    *,
    ascending: bool = False,
    no_value: str = style.NO_DATA,
) -> style.Panel:
    """One row per combination of key labels, one column per query, sorted by one column."""
    return core.Table(
        **style.frame(title, description),
        targets=style.targets([PanelQuery(column.expression) for column in columns], as_table=True, instant=True),
        transformations=_as_one_table(keys, columns),
        overrides=[*_key_looks(keys, columns), *map(_column_look, columns)],
        sortBy=[core.TableSortByField(sort_by, desc=not ascending)],
        extraJson={
            "fieldConfig": {
                "defaults": {
                    "custom": {"cellOptions": {"type": "auto"}, "minWidth": _NARROWEST},
                    "noValue": no_value,
                    "unit": Unit.COUNT.value,
                }
            },
            "options": {"cellHeight": "sm"},
        },
    )


def _as_one_table(keys: Sequence[KeyColumn], columns: Sequence[TableColumn]) -> list[dict[str, Any]]:
    """Join the query results on their labels, title the columns, drop the time and the one cluster."""
    titles = {key.label: key.title for key in keys}
    titles |= {_value_field(index, columns): column.title for index, column in enumerate(columns)}
    order = {name: position for position, name in enumerate(titles)}
    dropped = {"Time": True} if "cluster" in titles else {"Time": True, "cluster": True}
    organize = {"excludeByName": dropped, "indexByName": order, "renameByName": titles}
    return [{"id": "merge", "options": {}}, {"id": "organize", "options": organize}]


def _value_field(index: int, columns: Sequence[TableColumn]) -> str:
    """Return the name of a value: Grafana appends the query's letter only if there are several queries."""
    return f"Value #{style.letter(index)}" if len(columns) > 1 else "Value"


def _key_looks(keys: Sequence[KeyColumn], columns: Sequence[TableColumn]) -> list[dict[str, Any]]:
    """Let only the widest key take what is left over, unless columns do.

    Grafana shares it evenly among all columns without a width, and only then looks at their least widths: several
    columns of different widths reach beyond the right edge.
    """
    growing = None if any(column.grows for column in columns) else max(keys, key=lambda key: key.width)
    return [_key_look(key, "custom.minWidth" if key is growing else "custom.width") for key in keys]


def _key_look(key: KeyColumn, width: str) -> dict[str, Any]:
    look: list[dict[str, Any]] = [{"id": width, "value": key.width}]
    if key.words:
        look.append({"id": "mappings", "value": [style.value_words(key.words)]})
        look.append({"id": "custom.cellOptions", "value": {"type": "color-text"}})
    if key.link:
        link = {"title": f"Show this {key.label}", "url": key.link}
        look.append({"id": "links", "value": [link]})
    if key.link and not key.words:
        options = {EVERY_VALUE: {"text": style.NONE_AT_RISK, "index": 0}}
        look.append({"id": "mappings", "value": [{"type": "value", "options": options}]})
    return {"matcher": {"id": "byName", "options": key.title}, "properties": look}


def _column_look(column: TableColumn) -> dict[str, Any]:
    look: list[dict[str, Any]] = [{"id": "unit", "value": column.unit.value}]
    base = style.NO_COLOR if column.look.fills else style.TEXT
    nothing = {"text": column.empty, "color": base, "index": 0}
    mappings: list[dict[str, Any]] = [{"type": "special", "options": {"match": "null", "result": nothing}}]
    if column.look.words:
        mappings.append(style.value_words(column.look.words))
    look.append({"id": "mappings", "value": mappings})
    look.append({"id": "custom.minWidth" if column.grows else "custom.width", "value": column.width})
    if column.look.steps:
        look.append({"id": "thresholds", "value": {"mode": "absolute", "steps": column.look.steps}})
        cell = {"type": "color-background", "mode": "basic"} if column.look.fills else {"type": "color-text"}
        look.append({"id": "custom.cellOptions", "value": cell})
    return {"matcher": {"id": "byName", "options": column.title}, "properties": look}
