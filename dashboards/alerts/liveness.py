"""Brokers that run but do not serve: fenced though they answer, restarting again and again, slow, not back in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dashboards.alerts.planned import ANSWERING, STOPPED_ON_PURPOSE, unannounced
from dashboards.alerts.templates import (
    OF_BROKER,
    OF_CLUSTER,
    THIS_CLUSTER,
    Continuation,
    Rule,
    number,
    rule,
    suspects,
    top,
    value,
)
from dashboards.signals import brokers, clusters
from dashboards.signals.labels import BROKER

if TYPE_CHECKING:
    from dashboards.alerts.settings import AlertSettings

_SPEED: Final = Continuation(labels=BROKER, fresh=brokers.RESPONSE, by=BROKER)
_SPEEDS: Final = Continuation(fresh=brokers.RESPONSE)


def fenced_though_up(settings: AlertSettings) -> Rule:
    """Ticket for a broker whose listener answers while the controller has it fenced."""
    fenced = f"{brokers.FENCED.now()} == 1\nand on (cluster, broker) {ANSWERING}"
    return rule(
        "KafkaBrokerFencedThoughUp",
        "ticket",
        unannounced(f"{fenced}\nunless on (cluster, broker) {STOPPED_ON_PURPOSE}"),
        "Broker {{ $labels.broker }} of {{ $labels.cluster }} answers, but is fenced",
        "Broker {{ $labels.broker }} of cluster {{ $labels.cluster }} has answered the collector for "
        f"{settings.fenced_for}, while the controller has it fenced: it leads nothing and is in no ISR. It does not "
        "reach the controllers, or has not caught up with the metadata log. A restart does not help while it recovers "
        f"its logs. {suspects()}",
        settings,
        run="isrwatch state --brokers",
        lasting=settings.fenced_for,
        goes_on=OF_BROKER,
    )


def restart_loop(settings: AlertSettings) -> Rule:
    """Ticket for a broker that is fenced again and again, as one that a supervisor restarts.

    A restart between two scrapes is seen by its registration, the loss of a session by the fence only.
    """
    changes = "max by (cluster, broker) (changes({}[{}]))"
    turns = changes.format(brokers.FENCED.series(), settings.loop_window)
    starts = changes.format(brokers.EPOCH.series(), settings.loop_window)
    often = f"({turns} > {2 * settings.loop_restarts}\nor {starts} > {settings.loop_restarts})"
    return rule(
        "KafkaBrokerRestartLoop",
        "ticket",
        unannounced(often, within=settings.loop_window),
        "Broker {{ $labels.broker }} of {{ $labels.cluster }} is fenced again and again",
        "Broker {{ $labels.broker }} of cluster {{ $labels.cluster }} was away and came back more than "
        f"{settings.loop_restarts} times within {settings.loop_window}: it crashes after each start, or loses its "
        f"session. Its partitions lose a replica each time. {suspects()}",
        settings,
        run="isrwatch events --broker {{ $labels.broker }} --since 2h",
        goes_on=OF_BROKER,
    )


def slow(settings: AlertSettings) -> Rule:
    """Ticket for a broker that is slower than it was, and than its peers."""
    times = "{{ .Labels.broker }} ({{ .Value | humanizeDuration }})"
    return rule(
        "KafkaBrokerSlow",
        "ticket",
        unannounced(f"{brokers.SLOW.now()} == 1"),
        "Broker {{ $labels.broker }} of {{ $labels.cluster }} is slow",
        "Broker {{ $labels.broker }} of cluster {{ $labels.cluster }} has been slower than it was, and than its peers, "
        f"for {settings.slow_for}: it is up, and holds up who waits for it. Slowest responses in the cluster: "
        f"{top(brokers.RESPONSE.now(THIS_CLUSTER), times)}. {suspects()}",
        settings,
        run="isrwatch state --brokers",
        lasting=settings.slow_for,
        goes_on=_SPEED,
    )


def overloaded(settings: AlertSettings) -> Rule:
    """Ticket for a cluster in which so many brokers are slow that none of them is to blame."""
    return rule(
        "KafkaBrokersOverloaded",
        "ticket",
        f"sum by (cluster) ({brokers.OVERLOADED.now()} == 1)",
        "Brokers of {{ $labels.cluster }} are overloaded",
        f"{value(brokers.RESPONSE)} brokers of cluster {{{{ $labels.cluster }}}} have been slower than before "
        f"for {settings.overloaded_for}, too many for one of them to be to blame: load, network or storage that they "
        "share. Producers and consumers wait.",
        settings,
        run="isrwatch state --brokers",
        lasting=settings.overloaded_for,
        goes_on=_SPEEDS,
    )


def maintenance_overrun(settings: AlertSettings) -> Rule:
    """Ticket for planned work whose time is over while the broker is not back."""
    return rule(
        "KafkaMaintenanceOverrun",
        "ticket",
        f"{brokers.MAINTENANCE_OVERRUN.now()} == 1",
        "Broker {{ $labels.broker }} of {{ $labels.cluster }} is not back when its planned work is over",
        "The time that was announced for work on broker {{ $labels.broker }} of cluster {{ $labels.cluster }} is over, "
        "and the broker is not back: from now on it is an outage like any other. Extend the announcement, or start it. "
        f"At min ISR in the cluster: {number(clusters.AT_MIN_ISR.now(THIS_CLUSTER))}.",
        settings,
        run="isrwatch maintenance",
        lasting=settings.overrun_for,
        goes_on=OF_BROKER,
    )


def gone(settings: AlertSettings) -> Rule:
    """Info about brokers that were removed: nothing is assigned to them any more."""
    most = f"max by (cluster) (max_over_time({clusters.BROKERS.series()}[{settings.gone_window}]))"
    return rule(
        "KafkaBrokerGone",
        "info",
        f"{most} - {clusters.BROKERS.now()} > 0",
        "{{ $labels.cluster }} has fewer brokers than it had",
        f"Cluster {{{{ $labels.cluster }}}} has {value()} registered brokers less than at most within "
        f"{settings.gone_window}. If nobody removed them: the cluster has lost their capacity for good. Now: "
        f"{number(clusters.BROKERS.now(THIS_CLUSTER))}.",
        settings,
        run="isrwatch events --event unregistered --since 7d",
        lasting=settings.gone_for,
        goes_on=OF_CLUSTER,
    )
