"""Alerts about settings: topics that are not durable, throttles left behind, unfinished upgrades."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dashboards.alerts.templates import THIS_CLUSTER, Continuation, Rule, rule, top, value
from dashboards.promql import EVERYWHERE, Signal
from dashboards.signals import configuration
from dashboards.signals.labels import CLUSTER

if TYPE_CHECKING:
    from dashboards.alerts.settings import AlertSettings

# With these a single lost replica refuses writes, or compaction that Kafka relies on does not take place.
BROKEN_SETTINGS: Final = ("min_isr_above_replication_factor", "not_compacted")
_WEAK: Final = configuration.WEAK_TOPICS


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
    """Ticket for a throttle of replication that nobody needs any more."""
    of_topics = top(f"{configuration.TOPIC_LEFT_THROTTLE.now(THIS_CLUSTER)}", "{{ .Labels.topic }}")
    of_brokers = top(f"{configuration.BROKER_LEFT_THROTTLE.now(THIS_CLUSTER)}", "{{ .Labels.broker }}")
    return rule(
        "KafkaThrottleLeft",
        "ticket",
        f"{configuration.LEFT_THROTTLES.now()} > 0",
        "Replication of {{ $labels.cluster }} is throttled, though nothing is being reassigned",
        "Cluster {{ $labels.cluster }} still has throttles of a reassignment that is over: a broker that returns does "
        f"not catch up, and partitions stay under-replicated. Topics: {of_topics}. Brokers: {of_brokers}.",
        settings,
        run="isrwatch state --settings",
        lasting=settings.throttle_for,
        goes_on=Continuation(fresh=configuration.LEFT_THROTTLES),
    )


def versions_mixed(settings: AlertSettings) -> Rule:
    """Ticket for an unfinished upgrade."""
    return _upgrade(
        "KafkaVersionsMixed",
        "ticket",
        configuration.OLDER_BROKERS,
        "Brokers of {{ $labels.cluster }} run different versions of Kafka",
        f"For {settings.mixed_for}, {value(configuration.OLDER_BROKERS)} brokers of cluster {{{{ $labels.cluster }}}} "
        "have supported less than the others: an upgrade is not finished, and mixed versions are hardly tested.",
        settings,
        settings.mixed_for,
    )


def upgrade_unfinished(settings: AlertSettings) -> Rule:
    """Info about an upgrade that can be finished."""
    return _upgrade(
        "KafkaUpgradeUnfinished",
        "info",
        configuration.UNFINISHED_UPGRADE,
        "The metadata.version of {{ $labels.cluster }} can be raised",
        f"For {settings.unfinished_for}, every broker of cluster {{{{ $labels.cluster }}}} has supported a newer "
        "metadata.version than the cluster uses: nobody has finished the upgrade. Later there is no way back.",
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
