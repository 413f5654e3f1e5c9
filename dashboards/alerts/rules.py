"""The rule file: the recording rules, then every alert, pages first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dashboards.alerts import availability, brokers, configuration, groups, monitoring, redundancy
from dashboards.alerts.recording import recording_rules
from dashboards.alerts.templates import THIS_CLUSTER, Continuation, Rule, number, rule, top
from dashboards.promql import EVERYWHERE
from dashboards.signals import changes, clusters, partitions

if TYPE_CHECKING:
    from collections.abc import Callable

    from dashboards.alerts.settings import AlertSettings

# Context of a page or ticket: the incident, and what stops with an internal topic.


# Kafka's own, by name: what stops with each.
CONSEQUENCES: Final = {
    "__consumer_offsets": "groups of these partitions neither commit nor rebalance",
    "__transaction_state": "transactions of these partitions neither begin nor end",
    "__share_group_state": "share groups of these partitions stop",
}
_INTERNAL: Final = f'topic=~"{"|".join(CONSEQUENCES)}"'


def incident(settings: AlertSettings) -> Rule:
    """Info about an open incident that does harm: one, however many partitions and alerts it has."""
    opened = changes.INCIDENT_OPENED
    harmful = opened.series(EVERYWHERE, 'severity!="info"')
    suspected = f"{opened.now(THIS_CLUSTER)}"
    return rule(
        "KafkaIncident",
        "info",
        f"max by (cluster, incident, class) ({harmful}) > 0",
        "Incident of {{ $labels.cluster }}: {{ $labels.class }}",
        "Cluster {{ $labels.cluster }} has an open incident of class {{ $labels.class }}. Newest open incidents, with "
        "their suspects: "
        + top(suspected, "{{ .Labels.class }} ({{ with .Labels.suspects }}{{ . }}{{ else }}no broker{{ end }})")
        + f". Under min ISR now: {number(clusters.UNDER_MIN_ISR.now(THIS_CLUSTER))}, under-replicated: "
        f"{number(clusters.UNDER_REPLICATED.now(THIS_CLUSTER))}.",
        settings,
        run="isrwatch incidents {{ $labels.incident }}",
        goes_on=Continuation(labels=("cluster", "incident", "class")),
    )


def internal_topic(settings: AlertSettings) -> Rule:
    """Info about what stops with a topic that Kafka keeps its own state in; the pages count its partitions, too."""
    down = " or ".join(
        f"{signal.now(EVERYWHERE, _INTERNAL)} > 0"
        for signal in (partitions.TOPIC_OFFLINE, partitions.TOPIC_UNDER_MIN_ISR)
    )
    cases = "".join(
        f'{{{{ if eq $labels.topic "{topic}" }}}}{then}{{{{ end }}}}' for topic, then in CONSEQUENCES.items()
    )
    return rule(
        "KafkaInternalTopicUnavailable",
        "info",
        down,
        "{{ $labels.topic }} of {{ $labels.cluster }} is offline or refuses writes",
        "Partitions of {{ $labels.topic }} of cluster {{ $labels.cluster }} are offline or under min ISR: "
        f"{cases}. "
        "Offline in the cluster: "
        f"{number(clusters.OFFLINE.now(THIS_CLUSTER))}, under min ISR: "
        f"{number(clusters.UNDER_MIN_ISR.now(THIS_CLUSTER))}.",
        settings,
        run="isrwatch state --topic {{ $labels.topic }}",
        lasting=settings.offline_for,
        goes_on=Continuation(labels=("cluster", "topic")),
    )


RECORDING: Final = "kafka-replication-recording"
ALERTING: Final = "kafka-replication-alerts"
_PAGING: Final[tuple[Callable[[AlertSettings], Rule], ...]] = (
    availability.offline,
    availability.unclean_election,
    availability.under_min_isr,
    availability.more,
    brokers.no_controller,
    redundancy.broker_lost,
    configuration.disk_fills_up,
    groups.loses_records,
    availability.burns_fast,
)
_TICKETS: Final[tuple[Callable[[AlertSettings], Rule], ...]] = (
    redundancy.under_replicated,
    redundancy.broker_down,
    redundancy.broker_stopped,
    redundancy.isr_flapping,
    redundancy.reassignment_stuck,
    brokers.fenced_though_up,
    brokers.restart_loop,
    brokers.slow,
    brokers.overloaded,
    brokers.maintenance_overrun,
    brokers.partitions_given_up,
    brokers.metadata_errors,
    configuration.log_dir_offline,
    configuration.disk_nearly_full,
    brokers.controllers_flap,
    brokers.voter_behind,
    groups.stuck,
    groups.lag_grows,
    groups.near_retention,
    groups.stopped_group_loses_records,
    groups.hanging_transaction,
    redundancy.preferred_imbalance,
    availability.burns,
    configuration.topics_misconfigured,
    configuration.throttle_left,
    configuration.versions_mixed,
    monitoring.min_isr_unknown,
    monitoring.missed_changes,
    monitoring.quarantined,
    monitoring.monitor_stale,
    monitoring.query_down,
    monitoring.table_unreadable,
    monitoring.source_refused,
    monitoring.certificate_expires,
    monitoring.samples_stale,
    monitoring.source_stopped,
    monitoring.program_down,
    monitoring.incidents_query_down,
    monitoring.series_near_limit,
)
_INFOS: Final[tuple[Callable[[AlertSettings], Rule], ...]] = (
    redundancy.isr_shrink,
    incident,
    internal_topic,
    brokers.recovering,
    brokers.gone,
    redundancy.skewed,
    redundancy.many_partitions,
    configuration.topics_not_durable,
    configuration.upgrade_unfinished,
    monitoring.watchdog,
)


def rule_file(settings: AlertSettings) -> dict[str, Any]:
    """Return the content of a Prometheus rule file."""
    alerts = [
        *(rule(settings) for rule in _PAGING),
        *monitoring.monitor_blind(settings),
        *(rule(settings) for rule in (*_TICKETS, *_INFOS)),
    ]
    return {
        "groups": [
            {"name": RECORDING, "interval": settings.interval, "rules": recording_rules(settings)},
            {"name": ALERTING, "interval": settings.interval, "rules": alerts},
        ]
    }
