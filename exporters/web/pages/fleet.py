"""The page of all clusters, worst first: what is wrong with each in one sentence, and how old that is."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from exporters.answers import links
from exporters.read_model.cluster_health import HealthStatus
from exporters.read_model.incident_ids import shown_id
from exporters.read_model.incident_sentences import sentence_of as incident_sentence
from exporters.read_model.snapshot import SECOND, is_recovered
from exporters.web.pages.page import (
    OF_SEVERITY,
    Inputs,
    Level,
    Notice,
    PageModel,
    Row,
    count,
    frame_of,
    lasting,
    level_of,
    notices_of,
    visible_name,
    words_of,
)
from streaming.contracts import health
from streaming.contracts.conditions import OF_BROKERS, Condition
from streaming.contracts.observations import SourceKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exporters.read_model.cluster_health import ClusterHealth
    from exporters.read_model.conditions import Raised
    from exporters.read_model.health_reasons import HealthReason
    from exporters.read_model.snapshot import ClusterSnapshot
    from streaming.contracts.state import PartitionState

SOURCES: Final = {SourceKind.METADATA_LOG: "metadata log", SourceKind.POLL: "polling", SourceKind.NONE: "none yet"}
ELSEWHERE: Final = {
    "/metrics/jmx": "metrics under the names of Kafka's MBeans, for dashboards of JMX agents",
    "/api/v1/health": "whether the clusters are healthy, and why not",
    "/api/v1/openapi.json": "description of the JSON API (OpenAPI)",
    "/runbook": "what each alert means, and what to do",
    "/-/healthy": "health check: the exporter refreshes from the tables, and does not hang",
    "/-/ready": "readiness check: the tables have been read",
}
_METRICS: Final = "metrics for Prometheus (?cluster=NAME selects a cluster, ?name[]=METRIC selects metrics)"
NOTHING: Final = "nothing is wrong"
OF_VOLUMES: Final = frozenset({Condition.LOG_DIRECTORY_OFFLINE, Condition.DISK_FILLS_UP, Condition.DISK_NEARLY_FULL})
OF_GROUPS: Final = frozenset({Condition.GROUP_STUCK, Condition.GROUP_LOSING, Condition.GROUP_BEYOND_END})
_EXAMPLES: Final = 3
_ROWS: Final = 20
"""So many clusters have a row each, however well they are; of more those that are well are named close together."""


class Counts(NamedTuple):
    """Numbers of a cluster; None is unknown."""

    offline: int | None = None
    under_min_isr: int | None = None
    at_min_isr: int | None = None
    fenced: int | None = None


class FleetRow(NamedTuple):
    """One cluster; ``is_old``: its numbers are those of its last observation, and say nothing about now."""

    name: str
    path: str
    level: Level
    sentence: str
    incidents: tuple[tuple[str, str], ...]
    counts: Counts
    is_old: bool
    source: str
    age_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPage(PageModel):
    """Every cluster, worst first, how many there are of each level, and what else there is, by path.

    ``quiet`` has those of a large fleet of which nothing is to be said.
    """

    template: ClassVar[str] = "fleet.html"
    rows: tuple[FleetRow, ...]
    quiet: tuple[FleetRow, ...]
    levels: tuple[tuple[Level, int], ...]
    elsewhere: tuple[tuple[str, str], ...]


def fleet_page(inputs: Inputs) -> FleetPage:
    """Return the page of all clusters."""
    judged = {each.cluster: each for each in inputs.health(inputs.clusters)}
    rows = sorted((_row(inputs, name, judged[name]) for name in inputs.clusters), key=_worst_first)
    by_level = Counter(row.level for row in rows)
    return FleetPage(
        **frame_of(inputs),
        title=_title(rows, by_level),
        heading="Clusters",
        notices=(*notices_of(inputs), *_of_the_monitor(inputs)),
        rows=tuple(rows) if len(rows) <= _ROWS else tuple(row for row in rows if not _is_quiet(row)),
        quiet=() if len(rows) <= _ROWS else tuple(filter(_is_quiet, rows)),
        levels=tuple((level, by_level[level]) for level in Level if by_level[level]),
        elsewhere=((inputs.settings.metrics_path, _METRICS), *ELSEWHERE.items()),
    )


def _row(inputs: Inputs, name: str, judged: ClusterHealth) -> FleetRow:
    inputs.give_way()
    cluster, conditions = inputs.clusters[name], inputs.raised.get(name, ())
    incidents = incidents_to_handle(cluster, judged)
    return FleetRow(
        name=name,
        path=links.cluster(name, inputs.at),
        level=level_of(judged, conditions),
        sentence=sentence_of(inputs, cluster, judged),
        incidents=tuple((shown_id(row), links.incident(shown_id(row), inputs.at)) for row in incidents[:_EXAMPLES]),
        counts=counts_of(cluster),
        is_old=inputs.is_stale(cluster),
        source=SOURCES[cluster.cluster.primary_source],
        age_seconds=cluster.age_seconds(inputs.now),
    )


def _is_quiet(row: FleetRow) -> bool:
    return row.level is Level.HEALTHY and row.sentence == NOTHING


def _worst_first(row: FleetRow) -> tuple[object, ...]:
    return row.level.rank, *(-(number or 0) for number in row.counts), row.name.casefold(), row.name


def counts_of(cluster: ClusterSnapshot) -> Counts:
    """Count what is wrong in a cluster; nothing is known of one that has reported no whole state."""
    if cluster.has_no_data:
        return Counts()
    return Counts(
        offline=cluster.counts.in_state(health.OFFLINE),
        under_min_isr=cluster.counts.in_state(health.UNDER_MIN_ISR),
        at_min_isr=cluster.counts.in_state(health.AT_MIN_ISR),
        fenced=cluster.fenced_brokers(),
    )


def risks_of(partition: PartitionState) -> tuple[bool, bool, bool, bool]:
    """Return whether a partition is offline, under and at min ISR, and under-replicated; a diskless one never is."""
    if partition.is_diskless:
        return False, False, False, False
    at_most = bool(partition.is_under_min_isr), bool(partition.is_at_min_isr)
    return partition.is_offline, *at_most, partition.is_under_replicated


def ongoing_incidents(cluster: ClusterSnapshot) -> list[Row]:
    """Return the open incidents of which something is left to fix, the most severe first, then the newest."""
    rows = () if cluster.incidents is None else cluster.incidents.open
    return sorted((row for row in rows if not is_recovered(row)), key=_severe_first)


def incidents_to_handle(cluster: ClusterSnapshot, judged: ClusterHealth) -> list[Row]:
    """Return the ongoing incidents; without any, open ones that explain what is wrong though replicas are back."""
    ids = {each for reason in judged.reasons for each in reason.incidents}
    rows = () if cluster.incidents is None else cluster.incidents.open
    return ongoing_incidents(cluster) or sorted((row for row in rows if shown_id(row) in ids), key=_severe_first)


def _severe_first(row: Row) -> tuple[int, int]:
    return OF_SEVERITY.get(row["severity"], Level.WARNING).rank, -row["opened_at"]


def sentence_of(inputs: Inputs, cluster: ClusterSnapshot, judged: ClusterHealth) -> str:
    """Return what is wrong with a cluster: first what makes it unknown, then its worst incident, then the rest.

    The sentence of an incident is as known today, so a page of the past does not begin with it.
    """
    unknown = next((each for each in judged.reasons if level_of_reason(each) is Level.UNKNOWN), None)
    if unknown is not None and judged.status is HealthStatus.UNKNOWN:
        return _blind(unknown, judged)
    ongoing = ongoing_incidents(cluster)
    if ongoing and inputs.past is None and not inputs.is_stale(cluster):
        rest = len(ongoing) - 1
        return incident_sentence(ongoing[0]).brief + (f"; and {count(rest, 'more incident')}" if rest else "")
    if judged.reasons:
        worst = min(judged.reasons, key=lambda each: level_of_reason(each).rank)
        return reason_in_words(worst)
    conditions = [each for each in inputs.raised.get(cluster.name, ()) if not each.is_over]
    if conditions:
        first = min(conditions, key=lambda each: OF_SEVERITY.get(each.severity, Level.WARNING).rank)
        return raised_in_words(first) + (f", and {len(conditions) - 1} more" if conditions[1:] else "")
    recovered = 0 if cluster.incidents is None else sum(map(is_recovered, cluster.incidents.open))
    return f"{NOTHING}; {count(recovered, 'incident')} recovered lately" if recovered else NOTHING


def raised_in_words(each: Raised) -> str:
    """Write a condition that is raised with what it is true of."""
    if not each.subject and each.condition not in OF_GROUPS:
        return words_of(each.condition)
    about = visible_name(each.subject)
    if each.condition in OF_BROKERS:
        about = f"broker {each.subject}"
    elif each.condition in OF_VOLUMES:
        number, _, log_dir = each.subject.partition(":")
        about = f"{log_dir} of broker {number}"
    return f"{words_of(each.condition)}: {about}"


def level_of_reason(reason: HealthReason) -> Level:
    """Return how bad a reason is."""
    return Level(reason.severity.value)


def reason_in_words(reason: HealthReason) -> str:
    """Write a reason with the first of what it is true of."""
    shown = ", ".join(reason.examples[:_EXAMPLES])
    more = reason.count - min(len(reason.examples), _EXAMPLES)
    return f"{reason.summary}: {shown}" + (f" and {more:,} more" if more else "")


def _blind(reason: HealthReason, judged: ClusterHealth) -> str:
    if judged.age_seconds is None:
        return f"unknown: {reason.summary}"
    return f"unknown: {reason.summary}; last observed {lasting(judged.age_seconds)} ago"


def _of_the_monitor(inputs: Inputs) -> list[Notice]:
    shown = [Notice(Level.CRITICAL, _monitor_in_words(inputs, each)) for each in inputs.raised.get("", ())]
    if not inputs.clusters and not inputs.problems:
        shown.append(Notice(Level.UNKNOWN, "No cluster has been observed yet."))
    return shown


def _monitor_in_words(inputs: Inputs, each: Raised) -> str:
    if each.condition is Condition.JOB_DOWN:
        silent = lasting((inputs.now - each.since) / SECOND)
        return f"The job has reported nothing for {silent}: nothing newer is known of any cluster. Start isrwatch job."
    return f"{words_of(each.condition)} {each.subject}".strip()


def _title(rows: Sequence[FleetRow], by_level: Counter[Level]) -> str:
    if not rows:
        return "no data yet - isrwatch"
    worst = rows[0].level
    return f"{worst.sign} {by_level[worst]:,} of {count(len(rows), 'cluster')} {worst} - isrwatch"
