"""Replicas and brokers that are missing: lost brokers, under-replication, ISRs that flap, disks, reassignments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboards.alerts.planned import ANSWERING, DOWN, STOPPED_ON_PURPOSE, UNPLANNED_CAUSES, unannounced, unplanned
from dashboards.alerts.same_trouble import BROKER_LOST, MORE, OFFLINE, UNCLEAN_ELECTION, UNDER_MIN_ISR, not_beside
from dashboards.alerts.templates import OF_BROKER, OF_CLUSTER, THIS_CLUSTER, Rule, number, rule, suspects, value
from dashboards.promql import EVERYWHERE
from dashboards.signals import brokers, clusters, labels

if TYPE_CHECKING:
    from dashboards.alerts.settings import AlertSettings


def broker_lost(settings: AlertSettings) -> Rule:
    """Page for a broker that nobody stopped, and without which partitions are at min ISR."""
    lost = unplanned(DOWN)
    woken = (OFFLINE, UNDER_MIN_ISR, MORE, UNCLEAN_ELECTION)
    at_risk = f"{brokers.MISSING_AT_MIN_ISR.now()} > 0"
    return rule(
        BROKER_LOST,
        "page",
        not_beside(
            f"({at_risk}) and on (cluster, broker) ({lost})", BROKER_LOST, *woken, seconds=settings.same_trouble
        ),
        "Broker {{ $labels.broker }} of {{ $labels.cluster }} is lost, and partitions depend on the rest",
        "Broker {{ $labels.broker }} of cluster {{ $labels.cluster }} has been down for "
        f"{settings.broker_lost_for} and was not stopped on purpose. {value()} of its partitions are at min "
        "ISR, or below: the next broker to leave stops their writes. At min ISR in the cluster: "
        f"{number(clusters.AT_MIN_ISR.now(THIS_CLUSTER))}, under: {number(clusters.UNDER_MIN_ISR.now(THIS_CLUSTER))}. "
        f"{suspects()}",
        settings,
        run="isrwatch state --brokers",
        goes_on=OF_BROKER,
        lasting=settings.broker_lost_for,
    )


def under_replicated(settings: AlertSettings) -> Rule:
    """Ticket for a broker that has been missing from ISRs for long."""
    return rule(
        "KafkaUnderReplicated",
        "ticket",
        unannounced(f"{brokers.MISSING_FROM_ISR.now()} > 0"),
        "Broker {{ $labels.broker }} of {{ $labels.cluster }} is missing from ISRs",
        "Broker {{ $labels.broker }} of cluster {{ $labels.cluster }} has been missing from the ISR of partitions for "
        f"{settings.under_replicated_for}; now of {value()}. Under-replicated partitions in the cluster: "
        f"{number(clusters.UNDER_REPLICATED.now(THIS_CLUSTER))}. {suspects()}",
        settings,
        run="isrwatch state --replicas",
        goes_on=OF_BROKER,
        lasting=settings.under_replicated_for,
    )


def broker_down(settings: AlertSettings) -> Rule:
    """Ticket for a broker that went down without a controlled shutdown."""
    return rule(
        "KafkaBrokerDown",
        "ticket",
        unplanned(
            f"{DOWN}\nunless on (cluster, broker) ({brokers.FENCED.now()} == 1 and on (cluster, broker) {ANSWERING})"
        ),
        "Broker {{ $labels.broker }} of {{ $labels.cluster }} is down",
        "Broker {{ $labels.broker }} of cluster {{ $labels.cluster }} has been fenced or unregistered for "
        f"{settings.broker_down_for}, without a controlled shutdown. Fenced brokers in the cluster: "
        f"{number(clusters.FENCED_BROKERS.now(THIS_CLUSTER))}. {suspects()}",
        settings,
        run="isrwatch state --brokers",
        goes_on=OF_BROKER,
        lasting=settings.broker_down_for,
    )


def broker_stopped(settings: AlertSettings) -> Rule:
    """Ticket for a broker that was stopped on purpose and has not returned."""
    return rule(
        "KafkaBrokerStopped",
        "ticket",
        unannounced(f"{DOWN}\nand on (cluster, broker) {STOPPED_ON_PURPOSE}"),
        "Broker {{ $labels.broker }} of {{ $labels.cluster }} was stopped and has not returned",
        "Broker {{ $labels.broker }} of cluster {{ $labels.cluster }} shut down in a controlled way and has not "
        f"registered again for {settings.broker_stopped_for}. Under-replicated partitions in the cluster: "
        f"{number(clusters.UNDER_REPLICATED.now(THIS_CLUSTER))}.",
        settings,
        run="isrwatch state --brokers",
        goes_on=OF_BROKER,
        lasting=settings.broker_stopped_for,
    )


def isr_flapping(settings: AlertSettings) -> Rule:
    """Ticket for a broker that leaves ISRs again and again."""
    left = brokers.ISR_REMOVALS.increase(settings.flaps_step, EVERYWHERE, UNPLANNED_CAUSES, by=labels.BROKER)
    return rule(
        "KafkaIsrFlapping",
        "ticket",
        unannounced(
            f"sum_over_time((({left}) > bool 0)[{settings.flaps_window}:{settings.flaps_step}]) >= {settings.flaps}",
            within=settings.flaps_window,
        ),
        "Broker {{ $labels.broker }} of {{ $labels.cluster }} leaves ISRs again and again",
        "Broker {{ $labels.broker }} of cluster {{ $labels.cluster }} left in-sync replicas in "
        f"{value()} spells of {settings.flaps_step} within {settings.flaps_window}. {suspects()}",
        settings,
        run="isrwatch events --event isr_shrink --since 1h",
        goes_on=OF_BROKER,
    )


def isr_shrink(settings: AlertSettings) -> Rule:
    """Info about unplanned ISR removals: one alert per broker and cause."""
    left = brokers.ISR_REMOVALS.increase(settings.removals_window, EVERYWHERE, UNPLANNED_CAUSES)
    return rule(
        "KafkaIsrShrink",
        "info",
        unannounced(f"{left} > 0", within=settings.removals_window),
        "Broker {{ $labels.broker }} of {{ $labels.cluster }} left ISRs: {{ $labels.cause }}",
        "Broker {{ $labels.broker }} of cluster {{ $labels.cluster }} left in-sync replicas, cause "
        '{{ $labels.cause }}: about {{ $value | printf "%.0f" }} ISR removals '
        f"within {settings.removals_window}. "
        f"Under-replicated partitions now: {number(clusters.UNDER_REPLICATED.now(THIS_CLUSTER))}, "
        f"under min ISR: {number(clusters.UNDER_MIN_ISR.now(THIS_CLUSTER))}. {suspects()}",
        settings,
        run="isrwatch events --event isr_shrink --since 1h",
        keep_firing=settings.removals_keep_firing,
    )


def reassignment_stuck(settings: AlertSettings) -> Rule:
    """Ticket for reassignments of which none ends for long."""
    moving, window = clusters.REASSIGNING, settings.reassignment_window
    before = f"max by (cluster) ({moving.full_name} offset {window}) > 0"
    unchanged = f"max by (cluster) (changes({moving.full_name}[{window}])) == 0"
    return rule(
        "KafkaReassignmentStuck",
        "ticket",
        f"{moving.now()} > 0\nand on (cluster) {before}\nand on (cluster) {unchanged}",
        "Reassignments of {{ $labels.cluster }} are stuck",
        f"Cluster {{{{ $labels.cluster }}}}: {value()} partitions are being reassigned, and for "
        f"{window} none was completed, cancelled or begun.",
        settings,
        run="isrwatch state --reassignments",
        goes_on=OF_CLUSTER,
    )
