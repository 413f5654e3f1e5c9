"""The replication overview: the questions of an on-call engineer, most urgent first. Uid and links stay stable."""

from __future__ import annotations

from typing import Any, Final

from grafanalib import core

from dashboards.normalise import normalised
from dashboards.panel_queries import SELECTED, WINDOW
from dashboards.promql import Scope
from dashboards.rows import ROWS, placed
from dashboards.signals import changes, clusters, topics
from dashboards.style import DATASOURCE, ORANGE, RED

UID: Final = "isrwatch-replication-overview"

_ON_TIME_RANGE_CHANGE: Final = 2
_SHARED_CROSSHAIR: Final = 1
_IN_CLUSTER: Final = Scope({"cluster": SELECTED.matchers["cluster"]})


def replication_overview() -> dict[str, Any]:
    """Build the dashboard as Grafana's classic JSON."""
    return normalised(
        core.Dashboard(
            title="Kafka replication overview",
            uid=UID,
            description="Is data at risk; which brokers left in-sync replicas, why, since when; which topics.",
            tags=["isrwatch", "kafka"],
            editable=False,
            graphTooltip=_SHARED_CROSSHAIR,
            refresh="30s",
            timezone="browser",
            time=core.Time("now-1h", "now"),
            version=1,
            templating=core.Templating(list=_variables()),
            annotations=core.Annotations(list=_annotations()),
            panels=placed(ROWS),
        )
    )


def _variables() -> list[core.Template]:
    return [
        core.Template(name="datasource", label="Data source", type="datasource", query="prometheus"),
        # Ages stay exposed while state is withdrawn, so a stale cluster can still be selected.
        _names("cluster", "Cluster", clusters.DATA_AGE.series()),
        _names("topic", "Topic", topics.OFFLINE.series(_IN_CLUSTER)),
    ]


def _names(label: str, title: str, series: str) -> core.Template:
    return core.Template(
        name=label,
        label=title,
        type="query",
        query=f"label_values({series}, {label})",
        dataSource=DATASOURCE,
        refresh=_ON_TIME_RANGE_CHANGE,
        multi=True,
        includeAll=True,
        allValue=".+",
    )


def _annotations() -> list[dict[str, Any]]:
    return [
        _annotation(
            "Pages", 'ALERTS{alertname=~"Kafka.*", alertstate="firing", severity="page", cluster=~"$cluster"}', RED
        ),
        _annotation("Unclean elections", f"{changes.UNCLEAN_ELECTIONS.increase(WINDOW, SELECTED)} > 0", ORANGE),
    ]


def _annotation(name: str, expression: str, color: str) -> dict[str, Any]:
    return {
        "datasource": DATASOURCE,
        "enable": True,
        "expr": expression,
        "iconColor": color,
        "name": name,
        "step": "60s",
        "tagKeys": "cluster",
        "titleFormat": name,
        "textFormat": "{{cluster}} {{alertname}}",
    }
