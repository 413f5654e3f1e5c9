"""Opt-in: context. What must be fixed has an alert of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dashboards.alerts.rule import OF_BROKER, OF_CLUSTER, Rule, rule, scope
from dashboards.signals import brokers, changes, clusters, partitions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.settings import Settings

_UNPLANNED: Final = f'cause!~"{"|".join(brokers.PLANNED_CAUSES)}"'
_CLUSTER: Final = "{{ $labels.cluster }}"
_REMOVALS: Final = "5m"
_GONE: Final = "7d"
# Kafka's own topics, by name: what stops with each.
CONSEQUENCES: Final = {
    "__consumer_offsets": "groups of these partitions neither commit nor rebalance",
    "__transaction_state": "transactions of these partitions neither begin nor end",
    "__share_group_state": "share groups of these partitions stop",
}


def events(settings: Settings) -> Iterator[Rule]:
    """Yield the rules of events."""
    yield _isr_shrink(settings)
    own = scope(settings)
    harmful = changes.INCIDENT_OPENED.series(own, 'severity!="info"')
    yield rule(
        "IsrwatchIncidentOpen",
        f'max by (cluster, short_id) (label_replace({harmful}, "short_id", "$1", "incident", "(.+)")) > 0',
        f"Incident {{{{ $labels.short_id }}}} of {_CLUSTER} is open",  # its class may change: its sentence says it
        settings,
        command="isrwatch incidents {{ $labels.short_id }}",
        about=OF_CLUSTER,
    )
    yield _internal_topic(settings)
    yield rule(
        "IsrwatchBrokerRecovers",
        f"{brokers.LOGS_TO_RECOVER.now(own)} > 0",
        f"Broker {{{{ $labels.broker }}}} of {_CLUSTER} recovers its logs: do not restart it",
        settings,
        command=f"isrwatch brokers --cluster {_CLUSTER}",
        about=OF_BROKER,
    )
    most = f"max by (cluster) (max_over_time({clusters.BROKERS.series(own)}[{_GONE}]))"
    yield rule(
        "IsrwatchBrokerGone",
        f"{most} - {clusters.BROKERS.now(own)} > 0",
        f"Brokers of {_CLUSTER} were unregistered within a week",
        settings,
        command=f"isrwatch events --cluster {_CLUSTER} --event unregistered --since {_GONE}",
        about=OF_CLUSTER,
    )
    yield rule(
        "IsrwatchUpgradeUnfinished",
        f"{clusters.UNFINISHED_UPGRADE.now(own)} > 0",
        f"The upgrade of {_CLUSTER} is not finalized. Finalizing cannot be undone",
        settings,
        command=f"isrwatch settings --cluster {_CLUSTER}",
        about=OF_CLUSTER,
    )


def _isr_shrink(settings: Settings) -> Rule:
    own = scope(settings)
    announced = f"max by (cluster, broker) (max_over_time({brokers.MAINTENANCE.series(own)}[{_REMOVALS}])) == 1"
    return rule(
        "IsrwatchIsrShrink",
        f"{brokers.ISR_REMOVALS.increase(_REMOVALS, own, _UNPLANNED)} > 0\nunless on (cluster, broker) ({announced})",
        f"Broker {{{{ $labels.broker }}}} of {_CLUSTER} left ISRs: {{{{ $labels.cause }}}}",
        settings,
        command=f"isrwatch events --cluster {_CLUSTER} --event isr_shrink --since 1h",
        about=OF_BROKER,
        kept=900.0,
    )


def _internal_topic(settings: Settings) -> Rule:
    """Return the rule of a topic that Kafka keeps its own state in: what stops with it."""
    internal = f'topic=~"{"|".join(CONSEQUENCES)}"'
    down = " or ".join(
        f"{signal.now(scope(settings), internal)} > 0"
        for signal in (partitions.TOPIC_OFFLINE, partitions.TOPIC_UNDER_MIN_ISR)
    )
    then = "".join(
        f'{{{{ if eq $labels.topic "{topic}" }}}}{what}{{{{ end }}}}' for topic, what in CONSEQUENCES.items()
    )
    return rule(
        "IsrwatchInternalTopic",
        down,
        f"{{{{ $labels.topic }}}} of {_CLUSTER} is offline or refuses writes: {then}",
        settings,
        command="isrwatch partitions --topic {{ $labels.topic }}",
        about={"cluster": "cluster", "topic": "topic"},
    )
