"""The index: the health of each cluster, its data age and numbers, the open incidents, and links."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from exporters.read_model.cluster_health import HealthBasis, HealthStatus, health_of
from exporters.read_model.incident_ids import shown_id
from exporters.read_model.snapshot import SECOND
from streaming.contracts import health
from streaming.web.markup import document, link_list, sentence, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from exporters.read_model.cluster_health import ClusterHealth
    from exporters.read_model.snapshot import ClusterSnapshot
    from exporters.web.api_resource import View

LONGEST_LIST: Final = 20
_CLUSTER_COLUMNS: Final = (
    *("cluster", "data age", "brokers", "partitions", "under-replicated", "under min ISR", "offline"),
    "open incidents",
)
_REASON_COLUMNS: Final = ("condition", "count", "for example", "meaning")
_INCIDENT_COLUMNS: Final = ("id", "cluster", "opened (UTC)", "class", "suspects", "summary")


def landing(view: View, problems: Sequence[str], links: Mapping[str, str]) -> str:
    """Return the HTML of the index."""
    clusters, stale_after = view.clusters, view.stale_after_seconds
    judged = health_of(clusters, view.unreadable, view.now, HealthBasis(max_age_seconds=stale_after))
    return document(
        "isrwatch exporter",
        *(sentence(problem, is_good=False) for problem in problems),
        *([] if clusters or problems else [sentence("No cluster has been observed yet.", is_good=False)]),
        *(line for each in judged.clusters for line in _health(each)),
        "<h2>Clusters</h2>",
        table(_CLUSTER_COLUMNS, [_cluster(name, each, view.now, stale_after) for name, each in clusters.items()]),
        "<h2>Open incidents</h2>",
        _incidents(clusters),
        "<h2>Links</h2>",
        link_list(links),
    )


def _health(judged: ClusterHealth) -> Iterator[str]:
    """Yield the health of a cluster as a sentence, and the reasons as a table."""
    yield sentence(f"Cluster {judged.cluster}: {judged.status}", is_good=judged.status is HealthStatus.HEALTHY)
    if judged.reasons:
        rows = ((each.condition, str(each.count), ", ".join(each.examples), each.summary) for each in judged.reasons)
        yield table(_REASON_COLUMNS, rows)


def _cluster(name: str, cluster: ClusterSnapshot, now: int, stale_after_seconds: float) -> list[str]:
    age = cluster.age_seconds(now)
    stale = " (stale)" if cluster.is_stale(now, stale_after_seconds) else ""
    counts = (health.PARTITIONS, health.UNDER_REPLICATED, health.UNDER_MIN_ISR, health.OFFLINE)
    return [
        name,
        "unknown" if age is None else f"{age:.1f} s{stale}",
        _number(cluster.registered_brokers()),
        *(_number(cluster.counts.in_state(state)) for state in counts),
        _number(None if cluster.incidents is None else len(cluster.incidents.open)),
    ]


def _number(count: int | None) -> str:
    return "unknown" if count is None else str(count)


def _incidents(clusters: Mapping[str, ClusterSnapshot]) -> str:
    open_now = [(name, row) for name, each in clusters.items() if each.incidents for row in each.incidents.open]
    if not open_now:
        return "<p>none recorded</p>"
    newest_first = sorted(open_now, key=lambda pair: -pair[1]["opened_at"])
    rows = [_incident(name, row) for name, row in newest_first[:LONGEST_LIST]]
    left_out = len(open_now) - len(rows)
    rest = f"<p>and {left_out} older ones: /api/v1/incidents</p>" if left_out else ""
    return table(_INCIDENT_COLUMNS, rows) + rest


def _incident(name: str, row: Mapping[str, Any]) -> list[str]:
    opened = datetime.fromtimestamp(row["opened_at"] / SECOND, UTC)
    suspects = ", ".join(str(suspect["broker"]) for suspect in row["suspects"] or ())
    when, kind = f"{opened:%Y-%m-%d %H:%M:%S}", str(row["incident_class"])
    return [shown_id(row), name, when, kind, suspects or "?", str(row["summary"])]
