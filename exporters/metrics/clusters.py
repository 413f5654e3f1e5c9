"""The metrics of clusters, and of the sources that observe them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from exporters.metrics.metric import (
    OWN_PREFIX,
    AgeMetric,
    ClusterMetric,
    Freshness,
    JudgedMetric,
    MetricType,
    Number,
    Sample,
    flag,
)
from exporters.read_model.cluster_health import HealthBasis, reasons_of
from exporters.read_model.conditions import RAISED_LABELS, raised
from exporters.read_model.health_reasons import BLIND, NOT_YET_OBSERVED, SEVERITIES
from exporters.read_model.incident_ids import shown_id
from exporters.read_model.incident_sentences import sentence_of
from exporters.read_model.snapshot import SECOND, ClusterIncidents, ClusterSnapshot, SourceProgress
from streaming.contracts import health
from streaming.contracts.conditions import Condition
from streaming.contracts.events import IncidentClass
from streaming.contracts.harm import Harm, notification

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from exporters.read_model.conditions import ConditionInputs
    from streaming.contracts.conditions import Spell

LABELS: Final = ("cluster",)
_SUMMED: Final = "summed over all partitions, deleted topics included, a few seconds ago (table cluster_state)"
SOURCE_LABELS: Final = ("cluster", "channel", "source")
_PREFIX: Final = f"{OWN_PREFIX}cluster_"


def _gauge(name: str, text: str, source: str, value: Callable[[ClusterSnapshot], Number | None]) -> ClusterMetric:
    return ClusterMetric(name=f"{_PREFIX}{name}", labels=LABELS, help=text, source=source, samples=_one(value))


def _counter(name: str, text: str, source: str, value: Callable[[ClusterSnapshot], Number | None]) -> ClusterMetric:
    return ClusterMetric(
        name=f"{_PREFIX}{name}_total",
        kind=MetricType.COUNTER,
        labels=LABELS,
        help=text,
        freshness=Freshness.NOT_REQUIRED,
        source=source,
        samples=_one(value),
    )


def _one(value: Callable[[ClusterSnapshot], Number | None]) -> Callable[[ClusterSnapshot], Iterator[Sample]]:
    def samples(cluster: ClusterSnapshot) -> Iterator[Sample]:
        sample = value(cluster)
        if sample is not None:
            yield (cluster.name,), sample

    return samples


def _total(name: str, text: str) -> ClusterMetric:
    def value(cluster: ClusterSnapshot) -> int:
        count: int = getattr(cluster.totals, name)
        return count

    return _counter(name, text, f"partition_state.{name}, cluster_state.expired_{name}", value)


def _in_state(state: str) -> Callable[[ClusterSnapshot], int | None]:
    return lambda cluster: cluster.in_state(state)


def _info(cluster: ClusterSnapshot) -> Iterator[Sample]:
    yield (cluster.name, cluster.cluster.cluster_id, cluster.cluster.primary_source or ""), 1


def _seconds(name: str, text: str) -> ClusterMetric:
    """Define a counter of seconds, rounded to microseconds.

    Floating-point sums depend on the order of their terms: without rounding, a counter could decrease by the last bit
    when the job adds up the same partitions in another order, which Prometheus reads as a restart from 0.
    """

    def value(cluster: ClusterSnapshot) -> float | None:
        seconds = None if cluster.times is None else getattr(cluster.times, f"{name}_seconds")
        return None if seconds is None else round(seconds, 6)

    return replace(_counter(f"{name}_seconds", text, f"cluster_state.{name}_seconds", value), unit="seconds")


def _age(cluster: ClusterSnapshot, now: int) -> Iterator[Sample]:
    age = cluster.age_seconds(now)
    if age is not None:
        yield (cluster.name,), age


CLUSTER_METRICS: Final = (
    ClusterMetric(
        name=f"{_PREFIX}info",
        labels=(*LABELS, "cluster_id", "primary_source"),
        help="Kafka's cluster id, and the kind of the primary source, metadata_log or poll; always 1, for joins.",
        freshness=Freshness.NOT_REQUIRED,
        source="cluster_state.cluster_id, cluster_state.primary_source",
        samples=_info,
    ),
    _gauge("partitions", "Partitions of all topics.", "partition_state.partition", _in_state(health.PARTITIONS)),
    _gauge(
        "under_replicated_partitions",
        "Partitions with fewer replicas in sync than assigned.",
        "partition_state.is_under_replicated",
        _in_state(health.UNDER_REPLICATED),
    ),
    _gauge(
        "under_min_isr_partitions",
        "Partitions that refuse writes with acks=all.",
        "partition_state.is_under_min_isr",
        _in_state(health.UNDER_MIN_ISR),
    ),
    _gauge(
        "at_min_isr_partitions",
        "Partitions that lack a replica, and refuse writes with acks=all after the loss of one more.",
        "partition_state.is_at_min_isr",
        _in_state(health.AT_MIN_ISR),
    ),
    _gauge(
        "unknown_min_isr_partitions",
        "Partitions whose min.insync.replicas is unknown; not counted as under or at min ISR.",
        "partition_state.min_isr_effective",
        _in_state(health.UNKNOWN_MIN_ISR),
    ),
    _gauge(
        "offline_partitions", "Partitions without a leader.", "partition_state.is_offline", _in_state(health.OFFLINE)
    ),
    _gauge(
        "off_preferred_leader_partitions",
        "Partitions not led by their preferred leader, the first of their replicas.",
        "partition_state.is_off_preferred_leader",
        _in_state(health.OFF_PREFERRED_LEADER),
    ),
    _gauge(
        "diskless_partitions",
        "Partitions of diskless topics, whose ISR means nothing (KIP-1150): no count of unhealthy ones has them.",
        "partition_state.is_diskless",
        _in_state(health.DISKLESS),
    ),
    _gauge(
        "brokers",
        "Registered brokers; in a polled cluster those that are listed or have replicas.",
        "broker_state.is_registered",
        ClusterSnapshot.registered_brokers,
    ),
    _gauge(
        "fenced_brokers",
        "Registered brokers that are fenced; absent while unknown.",
        "broker_state.is_fenced",
        ClusterSnapshot.fenced_brokers,
    ),
    _gauge(
        "controller",
        "Id of the active controller; absent while unknown.",
        "cluster_state.controller",
        lambda cluster: cluster.controller,
    ),
    _gauge(
        "controller_epoch",
        "Raft epoch of the active controller; absent while unknown.",
        "cluster_state.controller_epoch",
        lambda cluster: None if cluster.controller is None else cluster.cluster.controller_epoch,
    ),
    _total("isr_shrinks", "Changes in which a broker left an ISR, deleted topics included."),
    _total("isr_expands", "Changes in which a broker joined an ISR, deleted topics included."),
    _total("leader_changes", "Changes of a partition's leader, deleted topics included."),
    _total(
        "unclean_elections",
        "Leaders elected from outside ISR and ELR, deleted topics included; committed records may be lost.",
    ),
    _total("missed_changes", "Changes inferred from epoch gaps but never observed, deleted topics included."),
    _counter(
        "controller_changes",
        "Failovers of the active controller.",
        "cluster_state.controller_changes",
        lambda cluster: cluster.cluster.controller_changes,
    ),
    _seconds("offline", f"Time that partitions were offline, {_SUMMED}."),
    _seconds("under_replicated", f"Time that partitions were under-replicated, {_SUMMED}."),
    _seconds("under_min_isr", f"Time that partitions were under min ISR, {_SUMMED}."),
    _seconds("unknown", f"Time that partitions were not observed, {_SUMMED}."),
    AgeMetric(
        name=f"{_PREFIX}state_age_seconds",
        labels=LABELS,
        help="Data age: time since the newest observation of the cluster's primary source.",
        source="cluster_state.primary_watermark",
        samples=_age,
    ),
)


def _observed_at(source: SourceProgress) -> float | None:
    return None if source.state.observed_until is None else source.state.observed_until / SECOND


def _source_metric(
    name: str, text: str, column: str, value: Callable[[SourceProgress], Number | None], unit: str = ""
) -> ClusterMetric:
    def samples(cluster: ClusterSnapshot) -> Iterator[Sample]:
        for (channel, source), progress in sorted(cluster.sources.items()):
            sample = value(progress)
            if sample is not None:
                yield (cluster.name, channel, source), sample

    return ClusterMetric(
        name=f"{OWN_PREFIX}{name}",
        kind=MetricType.COUNTER if name.endswith("_total") else MetricType.GAUGE,
        labels=SOURCE_LABELS,
        help=text,
        unit=unit,
        freshness=Freshness.NOT_REQUIRED,
        source=f"source_progress.{column}",
        samples=samples,
    )


def _source_age(name: str, text: str, column: str, moment: Callable[[SourceProgress], int | None]) -> AgeMetric:
    def samples(cluster: ClusterSnapshot, now: int) -> Iterator[Sample]:
        for (channel, source), progress in sorted(cluster.sources.items()):
            at = moment(progress)
            if at is not None:
                yield (cluster.name, channel, source), max(0, now - at) / SECOND

    return AgeMetric(
        name=f"{OWN_PREFIX}{name}", labels=SOURCE_LABELS, help=text, source=f"source_progress.{column}", samples=samples
    )


SOURCE_METRICS: Final = (
    _source_metric(
        "source_observed_timestamp_seconds",
        "Time of the newest observation of the source, in seconds since 1970.",
        "observed_until",
        _observed_at,
        unit="seconds",
    ),
    _source_age(
        "source_age_seconds",
        "Time since the newest observation of the source.",
        "observed_until",
        lambda source: source.state.observed_until,
    ),
    _source_metric(
        "quarantined_total",
        "Unparsable observations of the source; the table quarantine has the first ones verbatim.",
        "quarantined",
        lambda source: source.state.quarantined if source.is_counted else None,
    ),
    _source_metric(
        "source_behind_bytes",
        "Bytes of the source's log on the bus that the job had not applied at its last report.",
        "behind_bytes",
        lambda source: source.lag.behind_bytes,
        unit="bytes",
    ),
    _source_age(
        "source_report_age_seconds",
        "Time since the job last reported on the source; it reports every 5 s, also while a query is down.",
        "reported_at",
        lambda source: source.lag.reported_at,
    ),
    _source_metric(
        "source_query_up",
        "1 if the query that applies the source was running at the job's last report.",
        "is_query_up",
        lambda source: flag(source.lag.is_query_up),
    ),
    _source_metric(
        "source_query_restarts_total",
        "Restarts after a failure of the query that applies the source, since the job started.",
        "restarts",
        lambda source: source.lag.restarts,
    ),
)


# The metric of health: one series per reason, from the rule that ``isrwatch health`` and the API answer by.


def _counts(clusters: Mapping[str, ClusterSnapshot], inputs: ConditionInputs) -> Iterator[Sample]:
    """Count what each reason is true of; while the state is stale, only what is certain without it."""
    basis = HealthBasis(max_age_seconds=inputs.stale_after)
    unreadable = {table: table for table in inputs.unreadable}
    for name, cluster in clusters.items():
        reasons = reasons_of(cluster, unreadable, inputs.now, basis)
        counts = {(each.condition, each.severity): each.count for each in reasons}
        certain = {condition for condition, _ in counts if condition == Condition.NO_CONTROLLER} | BLIND
        is_stale = cluster.is_stale(inputs.now, inputs.stale_after)
        for condition, severities in SEVERITIES.items():
            if condition != NOT_YET_OBSERVED and (condition in certain or not is_stale):
                for severity in severities:
                    yield (name, str(condition), severity.value), counts.get((condition, severity), 0)


_SOURCE: Final = (
    "partition_state.is_offline, partition_state.is_under_min_isr, partition_state.is_under_replicated, "
    "partition_state.is_at_min_isr, partition_state.min_isr_effective, broker_state.is_registered, "
    "broker_state.is_fenced, broker_state.maintenance_until, "
    "log_directories.is_online, quorum_members.last_caught_up_at, conditions.condition, source_progress.observed_until"
)
HEALTH_METRICS: Final = (
    JudgedMetric(
        name=f"{OWN_PREFIX}cluster_unhealthy",
        labels=("cluster", "condition", "severity"),
        help="What keeps the cluster from being healthy, by condition: how many partitions, brokers or other things; "
        "0 for none. Severity is critical, warning, planned or unknown. While the state is stale only what can be said "
        "without it.",
        freshness=Freshness.NOT_REQUIRED,
        source=_SOURCE,
        samples=_counts,
    ),
)


# Conditions that are raised: one series each, whose labels never change while it is.


def _raised(clusters: Mapping[str, ClusterSnapshot], inputs: ConditionInputs) -> Iterator[Sample]:
    for each in raised(clusters, inputs):
        yield each.labels, each.since / SECOND


CONDITION_METRICS: Final = (
    JudgedMetric(
        name=f"{OWN_PREFIX}condition_since_seconds",
        labels=RAISED_LABELS,
        help="A condition that is raised, and since when it holds, in seconds since 1970; severity is critical, "
        "warning or info, short_id the incident that explains it. It stays while data is stale. Without a cluster it "
        "concerns all of them.",
        unit="seconds",
        freshness=Freshness.NOT_REQUIRED,
        source=f"conditions.since, conditions.short_id, {_SOURCE}, log_directories.usable_bytes, "
        "transactions.is_hanging, group_offsets.standing_since, source_progress.reported_at",
        samples=_raised,
    ),
)


# The metrics of incidents: by class, and one series of each that is open.


def _by_class(count: Callable[[ClusterIncidents], Mapping[str, int]]) -> Callable[[ClusterSnapshot], Iterator[Sample]]:
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
        labels = cluster.name, shown_id(row), row["incident_class"], row["severity"] or "", blamed
        yield labels, row["opened_at"] / SECOND


def _described(cluster: ClusterSnapshot) -> Iterator[Sample]:
    if cluster.incidents is None:
        return
    harm = [each for each in cluster.conditions if each.condition in _HARM_OF]
    for row in cluster.incidents.open:
        ids = {shown_id(each) for each in (row, *cluster.incidents.parts.get(row["incident_id"], ()))}
        said = _in_notification(row, [each for each in harm if each.short_id in ids])
        yield (cluster.name, shown_id(row), row["consequence"] or "", row["next_step"] or "", said), 1


_HARM_OF: Final = {
    Condition.UNCLEAN_ELECTION: Harm.LOST,
    Condition.OFFLINE: Harm.OFFLINE,
    Condition.OFFLINE_PLANNED: Harm.OFFLINE,
    Condition.UNDER_MIN_ISR: Harm.REFUSED,
    Condition.UNDER_MIN_ISR_PLANNED: Harm.REFUSED,
}


def _in_notification(row: Mapping[str, Any], spells: Iterable[Spell]) -> str:
    """Return what a notification says of an incident; spells of other incidents may have its name, too."""
    lasts: dict[Harm, bool] = {}
    for each in spells:
        harm = _HARM_OF[Condition(each.condition)]
        lasts[harm] = lasts.get(harm, False) or each.ended_at is None
    return notification(shown_id(row), sentence_of(row).what, row["consequence"] or "", row["next_step"] or "", lasts)


def _current(cluster: ClusterSnapshot) -> Iterator[Sample]:
    if cluster.incidents is None:
        return
    for row in cluster.incidents.open:
        for each in (row, *cluster.incidents.parts.get(row["incident_id"], ())):
            yield (cluster.name, shown_id(each), shown_id(row)), 1


INCIDENT_LABELS: Final = ("cluster", "class")
_MOST_SUSPECTS: Final = 3
INCIDENT_METRICS: Final = (
    ClusterMetric(
        name=f"{OWN_PREFIX}cluster_open_incidents",
        labels=INCIDENT_LABELS,
        help="Open incidents, by class; derived by the job, a second or two behind the state.",
        source="incidents.incident_class, incidents.closed_at",
        samples=_by_class(ClusterIncidents.open_by_class),
    ),
    ClusterMetric(
        name=f"{OWN_PREFIX}incident_opened_timestamp_seconds",
        labels=("cluster", "incident", "class", "severity", "suspects"),
        help="When an open incident began, in seconds since 1970; incident is its short id, suspects are broker ids, "
        "the likeliest first.",
        unit="seconds",
        source="incidents.short_id, incidents.opened_at, incidents.severity, incidents.suspects",
        samples=_open,
    ),
    ClusterMetric(
        name=f"{OWN_PREFIX}incident_info",
        labels=("cluster", "incident", "consequence", "next_step", "summary"),
        help="What an open incident means for clients, and what to do first; summary is what happened and what to do "
        "first, in at most 200 characters, for notifications; always 1, for joins.",
        source="incidents.consequence, incidents.next_step, incidents.summary, conditions.short_id",
        samples=_described,
    ),
    ClusterMetric(
        name=f"{OWN_PREFIX}incident_current_info",
        labels=("cluster", "incident", "current"),
        help="1 for each id that stands for an open incident: current is that incident, which is another one if "
        "incident was merged into it.",
        source="incidents.short_id, incidents.merged_into",
        samples=_current,
    ),
    ClusterMetric(
        name=f"{OWN_PREFIX}cluster_closed_incidents_total",
        kind=MetricType.COUNTER,
        labels=INCIDENT_LABELS,
        help="Closed incidents, by class; counted once they are final, up to 15 minutes after their end.",
        freshness=Freshness.NOT_REQUIRED,
        source="incidents.incident_class, incidents.closed_at",
        samples=_by_class(lambda incidents: incidents.over),
    ),
)
