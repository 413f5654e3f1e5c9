"""A board: its rows, variables, annotations, and the menu of all boards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from grafanalib import core

from dashboards.layout import PanelRow, placed
from dashboards.links import TAG, Board
from dashboards.normalise import normalised
from dashboards.queries import IN_CLUSTER, WINDOW
from dashboards.signals import brokers, changes, clusters, groups, topics
from dashboards.style import DATASOURCE, ORANGE, RED

if TYPE_CHECKING:
    from collections.abc import Iterable

_ON_TIME_RANGE_CHANGE: Final = 2
_SHARED_CROSSHAIR: Final = 1
_VARIABLES: Final = {
    "broker": ("Broker", brokers.REGISTERED),
    "topic": ("Topic", topics.OFFLINE),
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
    """Build a board as Grafana's classic JSON.

    Args:
        uid: part of its address.
        title: of the board.
        description: what it answers.
        rows: from top to bottom.
        variables: names of those beside the data source and the cluster.
        more_variables: of this board alone.
        annotations: beside pages and unclean elections.
    """
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
