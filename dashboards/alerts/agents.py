"""What only a broker's own agent knows: it recovers its logs, has given up partitions, could not apply the metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dashboards.alerts.templates import THIS_CLUSTER, Continuation, Rule, rule, top
from dashboards.signals import agents
from dashboards.signals.labels import BROKER

if TYPE_CHECKING:
    from dashboards.alerts.settings import AlertSettings
    from dashboards.promql import Signal

_ROW: Final = "{{ .Labels.broker }} ({{ .Value }})"


def recovering(settings: AlertSettings) -> Rule:
    """Info about a broker that looks dead and recovers its logs."""
    return rule(
        "KafkaBrokerRecovering",
        "info",
        f"{agents.LOGS_TO_RECOVER.now()} > 0",
        "Broker {{ $labels.broker }} of {{ $labels.cluster }} recovers its logs: do not restart it",
        "Broker {{ $labels.broker }} of cluster {{ $labels.cluster }} was not stopped cleanly and reads its logs "
        f"before it serves. Logs left: {top(f'{agents.LOGS_TO_RECOVER.now(THIS_CLUSTER)} > 0', _ROW)}. A restart would "
        "begin anew.",
        settings,
        run="isrwatch state --brokers",
        lasting=settings.recovering_for,
    )


def partitions_given_up(settings: AlertSettings) -> Rule:
    """Ticket for replicas that will not catch up by themselves."""
    failed = agents.FAILED_PARTITIONS
    return rule(
        "KafkaReplicaFetcherFailed",
        "ticket",
        f"{failed.now()} > 0",
        "Broker {{ $labels.broker }} of {{ $labels.cluster }} has given up to replicate partitions",
        "The fetchers of broker {{ $labels.broker }} of cluster {{ $labels.cluster }} have stopped to replicate "
        f"partitions after an error, for {settings.fetcher_failed_for}: these replicas do not catch up until their "
        f"leader changes or the broker is restarted. Partitions: {top(f'{failed.now(THIS_CLUSTER)} > 0', _ROW)}.",
        settings,
        run="isrwatch state --replicas",
        lasting=settings.fetcher_failed_for,
        goes_on=_goes_on(failed),
    )


def metadata_errors(settings: AlertSettings) -> Rule:
    """Ticket for a broker or controller whose view of the cluster may be wrong."""
    load, apply, controller = agents.METADATA_LOAD_ERRORS, agents.METADATA_APPLY_ERRORS, agents.METADATA_ERRORS
    errors = " or ".join(f"{each.now()} > 0" for each in (load, apply, controller))
    return rule(
        "KafkaMetadataErrors",
        "ticket",
        errors,
        "Broker {{ $labels.broker }} of {{ $labels.cluster }} could not apply the metadata of the cluster",
        "Broker {{ $labels.broker }} of cluster {{ $labels.cluster }} has had errors with records of the metadata log "
        "since it was started. Its view of topics, leaders and settings may be wrong until it is restarted.",
        settings,
        run="isrwatch state --brokers",
        goes_on=_goes_on(load),
    )


def _goes_on(fresh: Signal) -> Continuation:
    """Continue while the agent of the broker is silent."""
    return Continuation(labels=BROKER, fresh=fresh, by=BROKER)
