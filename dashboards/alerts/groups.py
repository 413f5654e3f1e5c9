"""Groups that stand still, fall behind, or lose records that were deleted before they read them; hanging transactions.

A group is about an application. Its readers decide: one without members may have been left behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dashboards.alerts.templates import THIS_CLUSTER, Continuation, Rule, not_excluded, rule, top
from dashboards.promql import EVERYWHERE
from dashboards.signals import groups
from dashboards.signals.derived import CLUSTER, GROUP

if TYPE_CHECKING:
    from dashboards.alerts.settings import AlertSettings
    from dashboards.promql import Signal

_GROUP: Final = Continuation(labels=GROUP, fresh=groups.INFO)
_READ: Final = f"({groups.MEMBERS.now()} > 0 or {groups.PROGRESS_AGE.now()} >= 0)"
"""Groups with readers: they have members, or are queries of Spark."""


def stuck(settings: AlertSettings) -> Rule:
    """Ticket for a group that has readers and commits nothing of a topic: its lag grows with the time."""
    return rule(
        "KafkaGroupStuck",
        "ticket",
        f"{_grown(settings)} >= {_all_the_time(settings)}\nand on (cluster, group) {_READ}",
        "Group {{ $labels.group }} of {{ $labels.cluster }} does not get on",
        "Group {{ $labels.group }} of cluster {{ $labels.cluster }} has members, and for "
        f"{settings.group_window_minutes} minutes it has committed nothing of a partition that it has records of to "
        f"read. Furthest behind in the cluster: {_furthest()}. Its application stands still, or a transaction hangs.",
        settings,
        run="isrwatch state --groups",
        goes_on=_GROUP,
    )


def lag_grows(settings: AlertSettings) -> Rule:
    """Ticket for a group that reads, but more slowly than is written."""
    lag = _by_topic(groups.LAG_SECONDS, settings)
    return rule(
        "KafkaGroupLagGrows",
        "ticket",
        f"{_grown(settings)} > {settings.lag_growth_seconds}\n"
        f"and on (cluster, group) max by (cluster, group) ({lag}) > {settings.lag_seconds}\n"
        f"unless on (cluster, group) {_grown(settings)} >= {_all_the_time(settings)}",
        "Group {{ $labels.group }} of {{ $labels.cluster }} falls behind",
        "Group {{ $labels.group }} of cluster {{ $labels.cluster }} reads, but its lag has grown for "
        f"{settings.lag_for}, and is more than {settings.lag_seconds} s. Furthest behind in the "
        f"cluster: {_furthest()}. What it has not read when the retention of a topic ends is lost to it.",
        settings,
        run="isrwatch state --groups",
        lasting=settings.lag_for,
        goes_on=_GROUP,
    )


def near_retention(settings: AlertSettings) -> Rule:
    """Ticket for a group that has nearly all that is kept of a topic to read, and does not get nearer to the end."""
    used = _by_topic(groups.RETENTION_USED, settings)
    before = _by_topic(groups.RETENTION_USED, settings, f"{settings.group_window_minutes}m")
    worst = top(
        f"max by (group, topic) ({groups.RETENTION_USED.now(THIS_CLUSTER)})",
        "{{ .Labels.group }} in {{ .Labels.topic }} ({{ .Value | humanizePercentage }})",
    )
    return rule(
        "KafkaGroupNearRetention",
        "ticket",
        f"max by (cluster, group) ({used} > {settings.retention_used:g} and {used} >= {before})\n"
        f"unless on (cluster, group) {_lost_records(settings)} > 0",
        "Group {{ $labels.group }} of {{ $labels.cluster }} is about to lose records",
        "Group {{ $labels.group }} of cluster {{ $labels.cluster }} has yet to read more than "
        f"{100 * settings.retention_used:g} % of what is kept of a partition, and for {settings.retention_for} that "
        f"has not become less: soon records are deleted before it reads them. Of all groups: {worst}. Raise "
        "retention.ms of the topic while it catches up.",
        settings,
        run="isrwatch state --groups",
        lasting=settings.retention_for,
        goes_on=_GROUP,
    )


def loses_records(settings: AlertSettings) -> Rule:
    """Page for a group with members that loses records which it has not read."""
    return _lost(
        "KafkaGroupLosesRecords",
        "page",
        f"{_lost_records(settings)} > 0\nand on (cluster, group) {_READ}",
        "that it has not read: it is slower than the retention of the topic",
        settings,
        settings.lost_for,
    )


def stopped_group_loses_records(settings: AlertSettings) -> Rule:
    """Ticket for a group without members that loses records which it has not read."""
    return _lost(
        "KafkaStoppedGroupLosesRecords",
        "ticket",
        f"{_lost_records(settings)} > 0\nunless on (cluster, group) {_READ}",
        "that it has not read, and it has no members: its application is not running, or was removed",
        settings,
        settings.stopped_lost_for,
    )


def _lost(  # noqa: PLR0913, PLR0917 - what differs between the two
    alert: str, severity: str, condition: str, why: str, settings: AlertSettings, lasting: str
) -> Rule:
    topics = f"sum by (group, topic) ({groups.LOST.now(THIS_CLUSTER)}) > 0"
    return rule(
        alert,
        severity,
        condition,
        "Records of {{ $labels.cluster }} are deleted before group {{ $labels.group }} reads them",
        f"Kafka has deleted records of group {{{{ $labels.group }}}} of cluster {{{{ $labels.cluster }}}} {why}. "
        f"Lost in the cluster: {top(topics, '{{ .Labels.topic }} to {{ .Labels.group }} ({{ .Value }})')}. "
        "Raise retention.ms of the topic while it catches up.",
        settings,
        run="isrwatch state --groups",
        lasting=lasting,
        goes_on=_GROUP,
    )


def hanging_transaction(settings: AlertSettings) -> Rule:
    """Ticket for transactions that will never end."""
    who = "{{ .Labels.transactional_id }} (producer {{ .Labels.producer_id }}, {{ .Labels.partitions }})"
    return rule(
        "KafkaHangingTransaction",
        "ticket",
        f"{groups.HANGING_TRANSACTIONS.now()} > 0",
        "Transactions of {{ $labels.cluster }} hang: read_committed consumers stop",
        "Cluster {{ $labels.cluster }} has transactions that a partition keeps open and no coordinator will end. "
        "Consumers with isolation.level=read_committed stop there, and the log cannot be compacted beyond. Which: "
        f"{top(groups.HANGING_TRANSACTION_INFO.now(THIS_CLUSTER), who)}.",
        settings,
        run="isrwatch state --transactions",
        lasting=settings.hanging_for,
        goes_on=Continuation(fresh=groups.HANGING_TRANSACTIONS, labels=CLUSTER),
    )


def _by_topic(signal: Signal, settings: AlertSettings, before: str = "") -> str:
    """Return a value of each group in each topic that counts, now or some time before."""
    series = signal.series(EVERYWHERE, *not_excluded(settings))
    return f"max by (cluster, group, topic) ({series}{before and f' offset {before}'})"


def _grown(settings: AlertSettings) -> str:
    """Return by how many seconds the lag of a group has grown in the topic where it grew most."""
    before = _by_topic(groups.LAG_SECONDS, settings, f"{settings.group_window_minutes}m")
    return f"max by (cluster, group) ({_by_topic(groups.LAG_SECONDS, settings)} - {before})"


def _all_the_time(settings: AlertSettings) -> int:
    """Return the growth of a lag that nothing was read of; a sample is a few seconds old."""
    return settings.group_window_minutes * 57


def _lost_records(settings: AlertSettings) -> str:
    return f"max by (cluster, group) ({groups.LOST.series(EVERYWHERE, *not_excluded(settings))})"


def _furthest() -> str:
    return top(
        f"{groups.LAG_SECONDS.now(THIS_CLUSTER)} > 0",
        "{{ .Labels.group }} in {{ .Labels.topic }} ({{ .Value | humanizeDuration }})",
    )
