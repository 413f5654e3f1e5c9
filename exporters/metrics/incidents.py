"""The metrics of incidents: by class, and one series of each that is open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporters.metrics.metric import OWN_PREFIX, ClusterMetric, Freshness, MetricType, Sample
from exporters.read_model.snapshot import SECOND, ClusterIncidents
from streaming.contracts.events import IncidentClass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from exporters.read_model.snapshot import ClusterSnapshot


def _by_class(
    count: Callable[[ClusterIncidents], Mapping[str, int]],
) -> Callable[[ClusterSnapshot], Iterator[Sample]]:
    def samples(cluster: ClusterSnapshot) -> Iterator[Sample]:
        if cluster.incidents is None:
            return
        counts = count(cluster.incidents)
        for kind in IncidentClass:
            yield (cluster.name, kind.value), counts.get(kind.value, 0)

    return samples


def _open(cluster: ClusterSnapshot) -> Iterator[Sample]:
    for row in () if cluster.incidents is None else cluster.incidents.open:
        suspects = sorted(row["suspects"] or (), key=lambda each: (-each["score"], each["broker"]))
        blamed = ",".join(str(each["broker"]) for each in suspects[:_MOST_SUSPECTS])
        labels = cluster.name, row["incident_id"], row["incident_class"], row["severity"] or "", blamed
        yield labels, row["opened_at"] / SECOND


LABELS: Final = ("cluster", "class")
_MOST_SUSPECTS: Final = 3
INCIDENT_METRICS: Final = (
    ClusterMetric(
        name=f"{OWN_PREFIX}cluster_open_incidents",
        labels=LABELS,
        help="Open incidents, by class; derived by the job, a second or two behind the state.",
        source="incidents.incident_class, incidents.closed_at",
        samples=_by_class(ClusterIncidents.open_by_class),
    ),
    ClusterMetric(
        name=f"{OWN_PREFIX}incident_opened_timestamp_seconds",
        labels=("cluster", "incident", "class", "severity", "suspects"),
        help="When an open incident began, in seconds since 1970; suspects are broker ids, the likeliest first.",
        unit="seconds",
        source="incidents.opened_at, incidents.severity, incidents.suspects",
        samples=_open,
    ),
    ClusterMetric(
        name=f"{OWN_PREFIX}cluster_closed_incidents_total",
        kind=MetricType.COUNTER,
        labels=LABELS,
        help="Closed incidents, by class; counted once they are final, up to 15 minutes after their end.",
        freshness=Freshness.NOT_REQUIRED,
        source="incidents.incident_class, incidents.closed_at",
        samples=_by_class(lambda incidents: incidents.over),
    ),
)
