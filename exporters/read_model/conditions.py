"""Conditions that are raised at a time: those of the rows of two tables, and the exporter's own. Pure.

Values in, values out: which rows the table has, what a snapshot shows, the time. Each is one series, whose labels are
the first five fields of :class:`Raised`.
"""

# Theory of operation
#
# - What the rows say is derived at the time of the data (``observed_until``): while data is stale nothing begins, and
#   nothing ends. So the series of a condition outlives a collector, a job or a bus that is down.
# - While their table cannot be read nothing begins or ends either: an alert is not resolved because nothing can be
#   read, and none begins under a name that the table may have changed since. The table is a condition of its own then.
# - What rests on samples is spells, too: ``contracts.sampled_conditions``. They last until a newer sample of the same
#   thing says otherwise, however old it is. What explains them besides samples is looked up here: moves that fill a
#   volume, announced work on a voter, a broker that is gone for good, topics that do not count.
# - A broker with a log directory that is offline is not under-replicated, too: the directory says why.
# - What the exporter finds about itself and about freshness depends on the time of the scrape. A dead job is one
#   condition, not one of each cluster behind it: of the clusters everything stays as it was at its last report.
#
# Invariant: a condition that is raised keeps its labels until it is over, whatever rows, samples and merges of
# incidents come meanwhile. tests/exporters/read_model/test_conditions.py.

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from exporters.read_model.cluster_samples import is_reassigned
from exporters.read_model.snapshot import SECOND
from streaming.alert_settings import rules_of
from streaming.contracts.conditions import RULES, TOPICS_NAMED, WINDOW, Condition, Rule, Spell
from streaming.contracts.events import Severity
from streaming.contracts.observations import Channel, SourceKind
from streaming.contracts.sampled_conditions import DISK_LIMITS, OF_GROUPS, PACE, SAMPLED_RULES, topic_of
from streaming.contracts.standing import standing
from streaming.contracts.state import QUORUM_FRESH
from streaming.name_patterns import patterns_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from exporters.read_model.cluster_samples import QuorumMemberRow
    from exporters.read_model.snapshot import ClusterSnapshot, SourceProgress
    from streaming.alert_settings import AlertsSettings
    from streaming.contracts.sampled_conditions import SampledSpell

OWN_RULES: Final = {
    condition: Rule(severity, 0, kept=0)
    for severity, conditions in {
        Severity.CRITICAL: (
            Condition.JOB_DOWN, Condition.DATA_STALE, Condition.NO_CONTROLLER,
        ),
        Severity.WARNING: (
            Condition.NO_DATA, Condition.TABLE_UNREADABLE, Condition.SERIES_LEFT_OUT, Condition.PRIMARY_SOURCE_LOST,
            Condition.SAMPLES_STALE,
        ),
    }.items()
    for condition in conditions
}  # fmt: skip
"""Rules of what the exporter derives. They are raised at once; ``for`` of an alert lets them last."""
ALL_RULES: Final = {**RULES, **SAMPLED_RULES, **OWN_RULES}


class Raised(NamedTuple):
    """A condition that is raised. Its labels, the first five fields, never change while it is.

    Attributes:
        cluster: name of the cluster; empty: it concerns every cluster.
        condition, subject, severity: what is wrong, with what, and how bad that is.
        short_id: of the incident that explained it from its begin; empty for none.
        since: when it began as far as the data shows, UTC microseconds.
        again_since: from when it lasts without a break, if it was over in between; None if it was not.
        ended_at: when it was over; None while it lasts. It stays raised for a while, in case it comes again.
    """

    cluster: str
    condition: Condition
    subject: str
    severity: str
    short_id: str
    since: int
    again_since: int | None = None
    ended_at: int | None = None

    @property
    def is_over(self) -> bool:
        """True if it does not last any more; an unclean election, which is a moment, is not over while it is raised."""
        return self.ended_at is not None and self.condition is not Condition.UNCLEAN_ELECTION

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the values of its labels."""
        return self.cluster, self.condition, self.subject, self.severity, self.short_id


RAISED_LABELS: Final = ("cluster", "condition", "subject", "severity", "short_id")


class ConditionSettings(NamedTuple):
    """Choice of what is raised, and names of severities.

    Attributes:
        rules: conditions without a rule are not raised.
        topics: patterns of the topics that count; what concerns others only is not raised. Empty: all count.
        groups: the same of consumer groups.
        severity_names: what severities are called instead, by severity.
    """

    rules: Mapping[Condition, Rule] = MappingProxyType(ALL_RULES)
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    severity_names: Mapping[str, str] = MappingProxyType({})

    @staticmethod
    def of(alerts: AlertsSettings) -> ConditionSettings:
        """Return what the configuration of alerts says of conditions."""
        return ConditionSettings(rules_of(alerts, ALL_RULES), alerts.topics, alerts.groups, alerts.severity_names)

    def severity(self, severity: Severity) -> str:
        """Return what a severity is called."""
        return self.severity_names.get(severity, severity.value)

    def counts(self, topic: str) -> bool:
        """Return whether a topic counts."""
        return patterns_of(*self.topics)(topic)

    def counts_group(self, group: str) -> bool:
        """Return whether a group counts."""
        return patterns_of(*self.groups)(group)


DEFAULT_SETTINGS: Final = ConditionSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionInputs:
    """Everything that conditions follow from, besides the snapshot of each cluster. Times are UTC microseconds.

    Attributes:
        now: ages are measured from it.
        stale_after: older data says nothing about now; seconds.
        unreadable: tables that cannot be read, and when each could be last.
        left_out: clusters of which series are left out, and since when.
        oldest: up to which age samples of each table are in time, seconds.
        reported_at: when the job last reported; None: as the clusters say, which must be all clusters then.
        settings: what is raised.
    """

    now: int
    stale_after: float
    unreadable: Mapping[str, int] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    oldest: Mapping[str, float] = field(default_factory=dict)
    reported_at: int | None = None
    settings: ConditionSettings = DEFAULT_SETTINGS

    @property
    def job_silence(self) -> float:
        """Seconds since the job last reported; 0 if that is unknown."""
        return 0.0 if self.reported_at is None else (self.now - self.reported_at) / SECOND


OwnCondition = tuple[Condition, str, int]
"""A condition of the exporter, its subject, and since when."""


def raised(clusters: Mapping[str, ClusterSnapshot], inputs: ConditionInputs) -> list[Raised]:
    """Return what is raised, one entry for each combination of labels, in their order.

    Args:
        clusters: by name.
        inputs: what else counts.
    """
    reported = job_reported_at(clusters.values()) if inputs.reported_at is None else inputs.reported_at
    inputs = replace(inputs, reported_at=reported)
    every = [*_by_rule(_of_the_monitor(inputs), inputs.settings)]
    for name, cluster in clusters.items():
        every += (each._replace(cluster=name) for each in _of_cluster(cluster, inputs))
    since: dict[tuple[str, ...], Raised] = {}
    for each in every:
        before = since.setdefault(each.labels, each)
        if each.since < before.since:
            since[each.labels] = each
    return [since[labels] for labels in sorted(since)]


def _of_cluster(cluster: ClusterSnapshot, inputs: ConditionInputs) -> Iterator[Raised]:
    with_offline_disk = {str(volume_of(each)[0]) for each in offline_directories(cluster)}
    for each in _of_rows(cluster, inputs):
        if each.condition is not Condition.UNDER_REPLICATED or each.subject not in with_offline_disk:
            yield each
    yield from _by_rule([*_of_data(cluster, inputs), *_of_samples(cluster, inputs)], inputs.settings)


def _by_rule(own: Iterable[OwnCondition], settings: ConditionSettings) -> Iterator[Raised]:
    for condition, subject, since in own:
        if (rule := settings.rules.get(condition)) is not None:
            yield Raised("", condition, subject, settings.severity(rule.severity), "", since)


# The rows of the table ``conditions``.


def open_spells(cluster: ClusterSnapshot, *conditions: Condition) -> list[Spell]:
    """Return the spells of some conditions that last as far as the rows show."""
    return [each for each in cluster.conditions if each.ended_at is None and each.condition in conditions]


_OF_PARTITIONS: Final = frozenset({
    Condition.OFFLINE, Condition.OFFLINE_PLANNED, Condition.UNDER_MIN_ISR, Condition.UNDER_MIN_ISR_PLANNED,
    Condition.UNCLEAN_ELECTION, Condition.MIN_ISR_UNKNOWN, Condition.AT_MIN_ISR, Condition.UNDER_REPLICATED,
})  # fmt: skip


def _of_rows(cluster: ClusterSnapshot, inputs: ConditionInputs) -> Iterator[Raised]:
    """Yield what the rows say at the time of the data.

    A spell of whose topics none counts does not count. Topics are only added to it: one that counts does to its end.
    """
    until = cluster.spells_until
    if until is None:
        return
    spells = (each for each in cluster.conditions if _counts(each, inputs.settings))
    for each in standing(spells, until, inputs.settings.rules):
        severity = inputs.settings.severity(each.severity)
        short_id = each.short_id or ""
        yield Raised("", each.condition, each.subject, severity, short_id, each.since, each.again_since, each.ended_at)


def _counts(spell: Spell, settings: ConditionSettings) -> bool:
    names = len(spell.topics)  # as many as there may be: others may have been left out
    is_complete = spell.condition in _OF_PARTITIONS and 0 < spell.topic_count <= names < TOPICS_NAMED
    return not is_complete or any(map(settings.counts, spell.topics))


# Conditions of the monitor itself, and of the sources of a cluster.

JOB_SILENT_SECONDS: Final = 60.0
"""The job reports every 5 s on every source, to a store every 15 s: one that has not for so long does not run."""
JOB_LATE_SECONDS: Final = 30.0
"""Stale data of a job that has not reported for so long is not the fault of a cluster."""
LEADER_SAMPLED_SECONDS: Final = 60.0
"""Brokers are asked for the quorum every 10 s: a leader that was named so long ago may be gone."""
FORGOTTEN_AFTER_SECONDS: Final = 86_400.0
"""A metadata log that has not been read, or samples that were not renewed, for so long were given up on purpose."""
SAMPLES_SILENT_SECONDS: Final = 900.0
"""Samples that have not been renewed for so long, and for longer than their interval allows, have stopped."""


def job_reported_at(clusters: Iterable[ClusterSnapshot]) -> int | None:
    """Return when the job last reported on any source; None if it never did, or that cannot be read."""
    reports = (source.lag.reported_at for cluster in clusters for source in cluster.sources.values())
    return max((at for at in reports if at is not None), default=None)


def _of_the_monitor(inputs: ConditionInputs) -> Iterator[OwnCondition]:
    """Yield what concerns every cluster."""
    for table, since in inputs.unreadable.items():
        yield Condition.TABLE_UNREADABLE, table, since
    if inputs.reported_at is not None and inputs.job_silence > JOB_SILENT_SECONDS:
        yield Condition.JOB_DOWN, "", inputs.reported_at


def _of_data(cluster: ClusterSnapshot, inputs: ConditionInputs) -> Iterator[OwnCondition]:
    """Yield what concerns the sources and the samples of a cluster, and its series."""
    until, is_stale = cluster.observed_until, cluster.is_stale(inputs.now, inputs.stale_after)
    if until is None or cluster.has_no_data:
        yield Condition.NO_DATA, "", cluster.watermark_read_at or inputs.now
    elif is_stale and inputs.job_silence <= JOB_LATE_SECONDS:
        yield Condition.DATA_STALE, "", until
    reported_at = inputs.now if inputs.job_silence <= JOB_LATE_SECONDS else inputs.reported_at or inputs.now
    if (lost := lost_log(cluster, reported_at, inputs.stale_after)) is not None:
        yield lost.condition, "", lost.since
    if cluster.name in inputs.left_out:
        yield Condition.SERIES_LEFT_OUT, "", inputs.left_out[cluster.name]
    if not cluster.is_stale(reported_at, inputs.stale_after):
        stopped = [
            at
            for table, at in cluster.newest_samples().items()
            if max(SAMPLES_SILENT_SECONDS, inputs.oldest.get(table, 0.0))
            < (reported_at - at) / SECOND
            <= FORGOTTEN_AFTER_SECONDS
        ]
        if stopped:
            yield Condition.SAMPLES_STALE, "", min(stopped)


class LostLog(NamedTuple):
    """A quorum without a leader, or a metadata log that is not read: since when, and the age of what proves it.

    ``leader`` is the controller that leads by a fresh answer of the brokers; None: there is none.
    """

    condition: Condition
    since: int
    age_seconds: float | None
    sources: tuple[str, ...]
    leader: int | None = None

    @property
    def things(self) -> list[str]:
        """Things that are lost: of a log also what is known of its controllers without it."""
        if self.condition is Condition.NO_CONTROLLER:
            return ["metadata quorum"]
        led = "whether a controller leads is unknown" if self.leader is None else f"controller {self.leader} leads"
        return [f"{source} ({led})" for source in self.sources]


def lost_log(cluster: ClusterSnapshot, now: int, stale_after: float) -> LostLog | None:
    """Return whether no controller leads the quorum, or the metadata log is only not read any more.

    No controller: a collector reads the brokers as before, its metadata log, if it reads one, stands still and is
    applied as far as it goes, and brokers that answer other questions name no leader now. That the log is not read
    proves nothing by itself: controllers may not be reached, or not be read, from where the collector is. It is unknown
    if the brokers may not be asked, or, without a log, if they have never named a leader: a gateway may leave the
    question without an answer.
    """
    logs, newest = _reporting(cluster, SourceKind.METADATA_LOG), _newest_naming(cluster)
    ages = {name: _age(each, _now_of(cluster, now, _collector(name))) for name, each in logs.items()}
    is_log_read = bool(ages) and min(ages.values()) <= stale_after
    if is_log_read or (not ages and newest is None):
        return None
    collectors = set(map(_collector, logs or _reporting(cluster, SourceKind.POLL)))
    others = [
        _age(each, now)
        for (channel, name), each in cluster.sources.items()
        if channel != Channel.REPLICATION and _collector(name) in collectors
    ]
    is_applied = all(each.lag.is_query_up and each.lag.behind_bytes == 0 for each in logs.values())
    leader, is_leaderless = leader_named(cluster, now, stale_after), _is_leaderless(cluster, now)
    ends = [each.state.observed_until or 0 for each in logs.values()]
    since = max(ends or [0 if newest is None else newest.collected_at])
    if is_applied and others and min(others) <= stale_after and leader is None and is_leaderless:
        return LostLog(Condition.NO_CONTROLLER, since, min(others), tuple(ages))
    if ages and not cluster.is_stale(now, stale_after) and min(ages.values()) <= FORGOTTEN_AFTER_SECONDS:
        return LostLog(Condition.PRIMARY_SOURCE_LOST, since, cluster.age_seconds(now), tuple(ages), leader)
    return None


def _reporting(cluster: ClusterSnapshot, kind: SourceKind) -> dict[str, SourceProgress]:
    return {
        name: each
        for (channel, name), each in cluster.sources.items()
        if channel == Channel.REPLICATION and each.state.source_kind is kind
    }


def leader_named(cluster: ClusterSnapshot, now: int, stale_after: float) -> int | None:
    """Return the controller that leads by the newest answer of the brokers; None without a fresh one that names one."""
    newest = _newest_naming(cluster)
    limit = max(stale_after, LEADER_SAMPLED_SECONDS) * SECOND
    # A time that is ahead is that of a clock that was: since then another one may lead, or none.
    is_of_now = newest is not None and abs(_now_of(cluster, now) - newest.collected_at) <= limit
    return newest.controller if newest is not None and is_of_now else None


def _is_leaderless(cluster: ClusterSnapshot, now: int) -> bool:
    """Return whether brokers were asked lately who leads the quorum, and named no controller."""
    state = cluster.cluster
    at = state.quorum_observed_at
    return state.is_quorum_led is False and at is not None and _now_of(cluster, now) - at <= QUORUM_FRESH


def _now_of(cluster: ClusterSnapshot, now: int, collector: str | None = None) -> int:
    """Return the time by the clock of a collector, or of any, if that is ahead: what it dates is as old by that one."""
    reports = [
        each.state.collected_at or 0
        for (channel, name), each in cluster.sources.items()
        if channel == Channel.REPLICATION and collector in (None, _collector(name))
    ]
    return max(now, *reports) if reports else now


def _newest_naming(cluster: ClusterSnapshot) -> QuorumMemberRow | None:
    """Return the newest answer of the quorum that names its leader."""
    members = [each for each in cluster.samples.quorum_members or () if _names(each)]
    return max(members, key=lambda each: each.collected_at, default=None)


def _names(member: QuorumMemberRow) -> bool:
    """Return whether an answer of the quorum names its leader."""
    return member.controller is not None and member.controller >= 0


def _age(source: SourceProgress, now: int) -> float:
    until = source.state.observed_until
    return float("inf") if until is None else max(0, now - until) / SECOND


def _collector(source: str) -> str:
    return source.partition(":")[2]


# Spells of what samples show: the rows of the table ``sampled_conditions``.


PACE_AFTER_MOVE: Final = WINDOW
"""The pace of a volume is measured over 20 minutes: for so long after a reassignment it has that in it."""


def _of_samples(cluster: ClusterSnapshot, inputs: ConditionInputs) -> Iterator[OwnCondition]:
    announced = announced_brokers(cluster, inputs.now)
    for spell in (*volumes_in_trouble(cluster), *voters_behind(cluster)):
        if spell.condition is not Condition.QUORUM_VOTER_BEHIND or int(spell.subject) not in announced:
            yield spell.condition, spell.subject, spell.since
    for spell in _sampled(cluster, Condition.HANGING_TRANSACTION):
        if inputs.settings.counts(spell.subject):
            yield spell.condition, spell.subject, spell.since
    for spell in _sampled(cluster, *OF_GROUPS):
        if inputs.settings.counts_group(spell.subject) and inputs.settings.counts(topic_of(spell.part)):
            yield spell.condition, spell.subject, spell.since


def _sampled(cluster: ClusterSnapshot, *conditions: Condition) -> list[SampledSpell]:
    return [each for each in cluster.sampled_conditions if each.condition in conditions]


def announced_brokers(cluster: ClusterSnapshot, now: int) -> frozenset[int]:
    """Return the brokers that announced work may keep away at a time."""
    return frozenset(
        number
        for number, broker in cluster.brokers.items()
        if broker.maintenance_until is not None and broker.maintenance_until >= now
    )


def volumes_in_trouble(cluster: ClusterSnapshot) -> list[SampledSpell]:
    """Return what lasts of log directories, of brokers that are not gone for good; no pace that moves explain."""
    moves = _is_filled_by_moves(cluster)
    gone = {
        number
        for number, broker in cluster.brokers.items()
        if not broker.is_registered and not cluster.counts.hosted.get(number)
    }
    spells = _sampled(cluster, Condition.LOG_DIRECTORY_OFFLINE, *DISK_LIMITS)
    return [each for each in spells if volume_of(each)[0] not in gone and not (moves and each.part == PACE)]


def volume_of(spell: SampledSpell) -> tuple[int, str]:
    """Return broker and log directory of a spell of a volume."""
    broker, _, log_dir = spell.subject.partition(":")
    return int(broker), log_dir


def offline_directories(cluster: ClusterSnapshot) -> list[SampledSpell]:
    """Return the spells of log directories that are offline."""
    return [each for each in volumes_in_trouble(cluster) if each.condition is Condition.LOG_DIRECTORY_OFFLINE]


def _is_filled_by_moves(cluster: ClusterSnapshot) -> bool:
    """Return whether partitions are being reassigned, or were so lately that the pace of volumes has it in it."""
    if any(map(is_reassigned, cluster.unsettled.values())):
        return True
    until = cluster.observed_until or 0
    moves = (each for each in cluster.conditions if each.condition == Condition.REASSIGNING)
    return any(each.ended_at is None or until - each.ended_at < PACE_AFTER_MOVE for each in moves)


def voters_behind(cluster: ClusterSnapshot) -> list[SampledSpell]:
    """Return the spells of voters of the quorum that have not caught up with its leader."""
    return _sampled(cluster, Condition.QUORUM_VOTER_BEHIND)
