"""The index: whether the exporter works, each cluster with its data age, the open incidents, and links."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from exporters.read_model.cluster_names import clusters_by_name
from exporters.read_model.snapshot import SECOND
from streaming.contracts import health
from streaming.web.markup import document, link_list, sentence, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from exporters.read_model.snapshot import ClusterSnapshot, ReplicationSnapshot

LONGEST_LIST: Final = 20
_CLUSTER_COLUMNS: Final = (
    *("cluster", "data age", "brokers", "partitions", "under-replicated", "under min ISR", "offline"),
    "open incidents",
)
_INCIDENT_COLUMNS: Final = ("cluster", "opened (UTC)", "class", "suspects", "summary")


def landing(
    snapshot: ReplicationSnapshot,
    now: int,
    stale_after_seconds: float,
    problems: Sequence[str],
    links: Mapping[str, str],
) -> str:
    """Return the HTML of the index.

    Args:
        snapshot: content of the tables.
        now: UTC microseconds; ages are measured from it.
        stale_after_seconds: data age beyond which a cluster is marked stale.
        problems: one sentence for each thing that is wrong with the exporter itself.
        links: path to what is there.
    """
    clusters = clusters_by_name(snapshot)
    rows = [_cluster(name, each, now, stale_after_seconds) for name, each in clusters.items()]
    state = [sentence(problem, is_good=False) for problem in problems]
    return document(
        "isrwatch exporter",
        *(state or [sentence("The exporter reads the tables.", is_good=True)]),
        "<h2>Clusters</h2>",
        table(_CLUSTER_COLUMNS, rows),
        "<h2>Open incidents</h2>",
        _incidents(clusters),
        "<h2>Links</h2>",
        link_list(links),
    )


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
    return [name, f"{opened:%Y-%m-%d %H:%M:%S}", str(row["incident_class"]), suspects or "?", str(row["summary"])]
