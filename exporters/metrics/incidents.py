"""The metrics of incidents, by class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporters.metrics.metric import OWN_PREFIX, ClusterMetric, Freshness, MetricType, Sample
from exporters.read_model.snapshot import ClusterIncidents
from streaming.contracts.incidents import IncidentClass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from exporters.read_model.snapshot import ClusterSnapshot


def _by_class(
    count: Callable[[ClusterIncidents], Mapping[str, int]],
) -> Callable[[ClusterSnapshot, int], Iterator[Sample]]:
    def samples(cluster: ClusterSnapshot, _: int) -> Iterator[Sample]:
        if cluster.incidents is None:
            return
        counts = count(cluster.incidents)
        for kind in IncidentClass:
            yield (cluster.name, kind.value), counts.get(kind.value, 0)

    return samples


LABELS: Final = ("cluster", "class")
INCIDENT_METRICS: Final = (
    ClusterMetric(
        name=f"{OWN_PREFIX}cluster_open_incidents",
        labels=LABELS,
        help="Open incidents, by class; derived by the job, a second or two behind the state.",
        samples=_by_class(ClusterIncidents.open_by_class),
    ),
    ClusterMetric(
        name=f"{OWN_PREFIX}cluster_closed_incidents_total",
        kind=MetricType.COUNTER,
        labels=LABELS,
        help="Closed incidents, by class; counted once they are final, up to 15 minutes after their end.",
        freshness=Freshness.NOT_REQUIRED,
        samples=_by_class(lambda incidents: incidents.over),
    ),
)
