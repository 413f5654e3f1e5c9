"""Alerts about settings: topics that are not durable, throttles left behind, unfinished upgrades."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dashboards.alerts.templates import OF_BROKER, THIS_CLUSTER, Continuation, Rule, rule, top, value
from dashboards.promql import EVERYWHERE, Scope, Signal
from dashboards.signals import brokers, clusters
from dashboards.signals.derived import BROKER, CLUSTER

if TYPE_CHECKING:
    from dashboards.alerts.settings import AlertSettings

# With these a single lost replica refuses writes, or compaction that Kafka relies on does not take place.
BROKEN_SETTINGS: Final = ("min_isr_above_replication_factor", "not_compacted")
_WEAK: Final = clusters.WEAK_TOPICS


def topics_misconfigured(settings: AlertSettings) -> Rule:
    """Ticket for settings of topics that no owner can mean."""
    return _weak_topics(
        "KafkaTopicsMisconfigured",
        "ticket",
        "=~",
        "have settings that cannot be meant",
        "A minimum of in-sync replicas above the replication factor refuses writes with the loss of any replica "
        "(always before Kafka 3.7); an internal topic that is not compacted deletes the newest value of its keys.",
        settings,
    )


def topics_not_durable(settings: AlertSettings) -> Rule:
    """Info about settings of topics that risk records or availability, which their owners may have chosen."""
    return _weak_topics(
        "KafkaTopicsNotDurable",
        "info",
        "!~",
        "risk records or availability by their settings",
        "Their owners may have chosen so.",
        settings,
    )


def _weak_topics(  # noqa: PLR0913, PLR0917 - what differs between the two
    alert: str, severity: str, matches: str, how: str, then: str, settings: AlertSettings
) -> Rule:
    matcher = f'weakness{matches}"{"|".join(BROKEN_SETTINGS)}"'
    return rule(
        alert,
        severity,
        f"{_WEAK.now(EVERYWHERE, matcher, by=CLUSTER)} > 0",
        f"Topics of {{{{ $labels.cluster }}}} {how}",
        f"Topics of cluster {{{{ $labels.cluster }}}} {how}, by weakness: "
        + top(f"{_WEAK.now(THIS_CLUSTER, matcher)} > 0", "{{ .Labels.weakness }} ({{ .Value }})")
        + f". {then}",
        settings,
        run="isrwatch state --settings",
        lasting=settings.settings_for,
        goes_on=Continuation(fresh=_WEAK),
    )


def throttle_left(settings: AlertSettings) -> Rule:
    """Ticket for a replication throttle that is no longer needed."""
    of_topics = top(f"{clusters.TOPIC_LEFT_THROTTLE.now(THIS_CLUSTER)}", "{{ .Labels.topic }}")
    of_brokers = top(f"{clusters.BROKER_LEFT_THROTTLE.now(THIS_CLUSTER)}", "{{ .Labels.broker }}")
    return rule(
        "KafkaThrottleLeft",
        "ticket",
        f"{clusters.LEFT_THROTTLES.now()} > 0",
        "Replication of {{ $labels.cluster }} is throttled, though nothing is being reassigned",
        "Cluster {{ $labels.cluster }} still has throttles of a reassignment that is over: a broker that returns does "
        f"not catch up, and partitions stay under-replicated. Topics: {of_topics}. Brokers: {of_brokers}.",
        settings,
        run="isrwatch state --settings",
        lasting=settings.throttle_for,
        goes_on=Continuation(fresh=clusters.LEFT_THROTTLES),
    )


def versions_mixed(settings: AlertSettings) -> Rule:
    """Ticket for an unfinished upgrade."""
    return _upgrade(
        "KafkaVersionsMixed",
        "ticket",
        clusters.OLDER_BROKERS,
        "Brokers of {{ $labels.cluster }} run different versions of Kafka",
        f"For {settings.mixed_for}, {value(clusters.OLDER_BROKERS)} brokers of cluster {{{{ $labels.cluster }}}} "
        "have supported less than the others: an upgrade is not finished, and mixed versions are hardly tested.",
        settings,
        settings.mixed_for,
    )


def upgrade_unfinished(settings: AlertSettings) -> Rule:
    """Info about an upgrade that can be finished."""
    return _upgrade(
        "KafkaUpgradeUnfinished",
        "info",
        clusters.UNFINISHED_UPGRADE,
        "The metadata.version of {{ $labels.cluster }} can be raised",
        f"For {settings.unfinished_for}, every broker of cluster {{{{ $labels.cluster }}}} has supported a newer "
        "metadata.version than the cluster uses: the upgrade was not finished. Later there is no way back.",
        settings,
        settings.unfinished_for,
    )


def _upgrade(  # noqa: PLR0913, PLR0917 - the parts of a rule
    alert: str, severity: str, signal: Signal, summary: str, description: str, settings: AlertSettings, lasting: str
) -> Rule:
    return rule(
        alert,
        severity,
        f"{signal.now()} > 0",
        summary,
        description,
        settings,
        run="isrwatch state --settings",
        lasting=lasting,
        goes_on=Continuation(fresh=signal),
    )


# Disks: log directories that failed, and volumes that are or will soon be full.


_DIR_FAILURE: Final = 'cause="dir_failure"'
# A broker that does not answer says nothing of its disks, while others do.
_DISK: Final = Continuation(labels=BROKER, fresh=brokers.DIRECTORY_ONLINE, by=BROKER)


def log_dir_offline(settings: AlertSettings) -> Rule:
    """Ticket for a broker with fewer usable log directories than it had."""
    online = brokers.ONLINE_LOG_DIRS
    before = f"max by (cluster, broker) (max_over_time({online.series()}[{settings.log_dir_window}]))"
    return rule(
        "KafkaLogDirOffline",
        "ticket",
        f"{before} - {online.now()} > 0",
        "A log directory of broker {{ $labels.broker }} of {{ $labels.cluster }} is offline",
        "Broker {{ $labels.broker }} of cluster {{ $labels.cluster }} can use "
        f"{value()} log directories less than within the last {settings.log_dir_window}: a disk failed. "
        "Offline in the cluster: "
        + top(
            f"{brokers.DIRECTORY_ONLINE.now(THIS_CLUSTER)} == 0", "{{ .Labels.log_dir }} of broker {{ .Labels.broker }}"
        )
        + ". ISR removals by a failed directory within the last hour: "
        + top(
            f"{brokers.ISR_REMOVALS.increase('1h', THIS_CLUSTER, _DIR_FAILURE)} > 0",
            'broker {{ .Labels.broker }} ({{ .Value | printf "%.0f" }})',
        )
        + ".",
        settings,
        run="isrwatch state --directories",
        goes_on=OF_BROKER,
    )


def disk_fills_up(settings: AlertSettings) -> Rule:
    """Page for a volume that is full within hours: a full one takes its log directory offline."""
    return _nearly_full(
        "KafkaDiskFillsUp",
        "page",
        settings.full_share_urgent,
        settings.full_hours_urgent,
        "Then the broker takes the directory offline, and stops if it is its last one.",
        settings,
        settings.full_urgent_for,
    )


def disk_nearly_full(settings: AlertSettings) -> Rule:
    """Ticket for a volume with little room, or that is full within a day."""
    return _nearly_full(
        "KafkaDiskNearlyFull",
        "ticket",
        settings.full_share_ticket,
        settings.full_hours_ticket,
        "Nothing fails yet.",
        settings,
        settings.full_ticket_for,
    )


def _nearly_full(  # noqa: PLR0913, PLR0917 - what differs between the two
    alert: str, severity: str, share: float, hours: int, then: str, settings: AlertSettings, lasting: str
) -> Rule:
    # A reassignment fills a volume fast and then stops: what is half empty is not about to be full.
    until_full = f"{brokers.DIRECTORY_UNTIL_FULL.now()} < {hours * 3600}"
    soon = f"{until_full} and on (cluster, broker, log_dir) {_share()} < {share * 2:g}"
    return rule(
        alert,
        severity,
        f"min by (cluster, broker) ({_share()} < {share:g})\nor min by (cluster, broker) ({soon})",
        "A disk of broker {{ $labels.broker }} of {{ $labels.cluster }} is nearly full",
        f"A volume of broker {{{{ $labels.broker }}}} of cluster {{{{ $labels.cluster }}}} has less than {share:.0%} "
        f"free, or will be full within {hours} hours at its pace. {then} Least free in the cluster: "
        + top(
            f"1 - {_share(THIS_CLUSTER)}",
            "{{ .Labels.log_dir }} of broker {{ .Labels.broker }} ({{ .Value | humanizePercentage }} used)",
        )
        + ".",
        settings,
        run="isrwatch state --directories",
        lasting=lasting,
        goes_on=_DISK,
    )


def _share(scope: Scope = EVERYWHERE) -> str:
    """Return the share of each volume that is free."""
    return f"({brokers.DIRECTORY_USABLE.now(scope)} / {brokers.DIRECTORY_TOTAL.now(scope)})"
