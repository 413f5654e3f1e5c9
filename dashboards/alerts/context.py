"""What is displayed beside a page or ticket: what an incident is, and what stops with an internal topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dashboards.alerts.templates import THIS_CLUSTER, Continuation, Rule, number, rule, top
from dashboards.promql import EVERYWHERE
from dashboards.signals import clusters, incidents, topics

if TYPE_CHECKING:
    from dashboards.alerts.settings import AlertSettings

# Kafka's own, by name: what stops with each.
CONSEQUENCES: Final = {
    "__consumer_offsets": "groups of these partitions neither commit nor rebalance",
    "__transaction_state": "transactions of these partitions neither begin nor end",
    "__share_group_state": "share groups of these partitions stop",
}
_INTERNAL: Final = f'topic=~"{"|".join(CONSEQUENCES)}"'


def incident(settings: AlertSettings) -> Rule:
    """Info about an open incident that does harm: one, however many partitions and alerts it has."""
    opened = incidents.OPENED
    harmful = opened.series(EVERYWHERE, 'severity!="info"')
    suspected = f"{opened.now(THIS_CLUSTER)}"
    return rule(
        "KafkaIncident",
        "info",
        f"max by (cluster, incident, class) ({harmful}) > 0",
        "Incident of {{ $labels.cluster }}: {{ $labels.class }}",
        "Cluster {{ $labels.cluster }} has an open incident of class {{ $labels.class }}. Newest open incidents, with "
        "their suspects: "
        + top(suspected, "{{ .Labels.class }} ({{ with .Labels.suspects }}{{ . }}{{ else }}nobody{{ end }})")
        + f". Under min ISR now: {number(clusters.UNDER_MIN_ISR.now(THIS_CLUSTER))}, under-replicated: "
        f"{number(clusters.UNDER_REPLICATED.now(THIS_CLUSTER))}.",
        settings,
        run="isrwatch incidents {{ $labels.incident }}",
        goes_on=Continuation(labels=("cluster", "incident", "class")),
    )


def internal_topic(settings: AlertSettings) -> Rule:
    """Info about what stops with a topic that Kafka keeps its own state in; the pages count its partitions, too."""
    down = " or ".join(f"{signal.now(EVERYWHERE, _INTERNAL)} > 0" for signal in (topics.OFFLINE, topics.UNDER_MIN_ISR))
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
