"""A board: its rows, variables, annotations, and the menu of all boards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import attr
from grafanalib import core

from dashboards import style
from dashboards.queries import IN_CLUSTER, TAG, WINDOW, Board
from dashboards.signals import brokers, changes, clusters, groups, partitions
from dashboards.style import DATASOURCE, ORANGE, RED, normalised

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ON_TIME_RANGE_CHANGE: Final = 2
_SHARED_CROSSHAIR: Final = 1
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
    *,
    variables: Iterable[str] = (),
    more_variables: Iterable[core.Template] = (),
    annotations: Iterable[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Build a board as Grafana's classic JSON, with the variables and annotations that every board has."""
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
            templating=core.Templating(list=[*_chosen(), *map(_several, variables), *more_variables]),
            annotations=core.Annotations(list=[*_always(), *annotations]),
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


def _chosen() -> list[core.Template]:
    return [
        core.Template(name="datasource", label="Data source", type="datasource", query="prometheus"),
        # Ages stay exposed while state is withdrawn, so a stale cluster can still be selected.
        _values("cluster", "Cluster", clusters.DATA_AGE.series()),
    ]


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
        allValue=".+" if several else "",
    )


_ALPHABETICAL_ASCENDING: Final = 1
_NUMERICAL_ASCENDING: Final = 3


def _always() -> list[dict[str, Any]]:
    waking = 'ALERTS{alertname=~"Kafka.*", alertstate="firing", severity="page", cluster="$cluster"}'
    unclean = f"{changes.UNCLEAN_ELECTIONS.increase(WINDOW, IN_CLUSTER)} > 0"
    return [
        annotation("Pages", waking, RED, "{{alertname}}"),
        annotation("Unclean elections", unclean, ORANGE, "Acknowledged records may be lost"),
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
