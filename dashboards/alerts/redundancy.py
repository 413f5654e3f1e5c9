"""Replicas and brokers that are missing: lost brokers, under-replication, ISRs that flap, disks, reassignments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboards.alerts.templates import (
    ANSWERING,
    BROKER_LOST,
    DOWN,
    MORE,
    OF_BROKER,
    OF_CLUSTER,
    OFFLINE,
    STOPPED_ON_PURPOSE,
    THIS_CLUSTER,
    UNCLEAN_ELECTION,
    UNDER_MIN_ISR,
    UNPLANNED_CAUSES,
    Rule,
    not_beside,
    number,
    rule,
    suspects,
    top,
    unannounced,
    unplanned,
    value,
)
from dashboards.promql import EVERYWHERE
from dashboards.signals import brokers, clusters, derived

if TYPE_CHECKING:
    from dashboards.alerts.settings import AlertSettings
    from dashboards.promql import Signal


def broker_lost(settings: AlertSettings) -> Rule:
    """Page for a broker that stopped without an order, and without which partitions are at min ISR."""
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
    left = brokers.ISR_REMOVALS.increase(settings.flaps_step, EVERYWHERE, UNPLANNED_CAUSES, by=derived.BROKER)
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


# Balance of load and replicas: leaders that are not the preferred ones, skew, brokers with too many partitions.


def preferred_imbalance(settings: AlertSettings) -> Rule:
    """Ticket for leaders that stay where they are after everything is back."""
    share = f"{clusters.OFF_PREFERRED_LEADER.now()} / on (cluster) {clusters.PARTITIONS.now()}"
    whole = f"{clusters.UNDER_REPLICATED.now()} == 0"
    return rule(
        "KafkaPreferredLeaderImbalance",
        "ticket",
        f"{share} > {settings.imbalance_share:g}\nand on (cluster) {whole}",
        "Leaders of {{ $labels.cluster }} have not returned to their preferred brokers",
        f"Of cluster {{{{ $labels.cluster }}}}, {number(clusters.OFF_PREFERRED_LEADER.now(THIS_CLUSTER))} of "
        f"{number(clusters.PARTITIONS.now(THIS_CLUSTER))} partitions are not led by their preferred leader, although "
        f"all replicas have been in sync for {settings.imbalance_for}: load is uneven. Most leaders: "
        f"{top(brokers.LED.now(THIS_CLUSTER), 'broker {{ .Labels.broker }} ({{ .Value }})')}.",
        settings,
        run="kafka-leader-election.sh --bootstrap-server HOST:PORT --election-type preferred --all-topic-partitions",
        lasting=settings.imbalance_for,
        goes_on=OF_CLUSTER,
    )


def skewed(settings: AlertSettings) -> Rule:
    """Info about a broker that has far more of the leaders or replicas than the others have on average."""
    most = "\nor ".join(_above_average(signal, settings) for signal in (brokers.LED, brokers.HOSTED))
    return rule(
        "KafkaBrokerSkewed",
        "info",
        f"({most})\nunless on (cluster) {clusters.UNDER_REPLICATED.now()} > 0",
        "Broker {{ $labels.broker }} of {{ $labels.cluster }} has more than its share",
        "Broker {{ $labels.broker }} of cluster {{ $labels.cluster }} leads or hosts more than "
        f"{settings.skew:g} times as many partitions as a broker does on average. Most replicas: "
        f"{top(brokers.HOSTED.now(THIS_CLUSTER), '{{ .Labels.broker }} ({{ .Value }})')}. Most leaders: "
        f"{top(brokers.LED.now(THIS_CLUSTER), '{{ .Labels.broker }} ({{ .Value }})')}. It is loaded before the others.",
        settings,
        run="isrwatch state --brokers",
        lasting=settings.skew_for,
        goes_on=OF_BROKER,
    )


def _above_average(signal: Signal, settings: AlertSettings) -> str:
    """Return the brokers above the average of those that host anything: one that is moved away has no share."""
    average = f"avg by (cluster) ({signal.now()} unless on (cluster, broker) {brokers.HOSTED.now()} == 0)"
    limit = f"{settings.skew:g} * ({average} >= {settings.skew_least_partitions})"
    return f"{signal.now()} > on (cluster) group_left () {limit}"


def many_partitions(settings: AlertSettings) -> Rule:
    """Info about a broker with more partitions than it can fail over in time."""
    return rule(
        "KafkaBrokerManyPartitions",
        "info",
        f"{brokers.HOSTED.now()} > {settings.most_partitions}",
        "Broker {{ $labels.broker }} of {{ $labels.cluster }} hosts very many partitions",
        "Broker {{ $labels.broker }} of cluster {{ $labels.cluster }} hosts more than "
        f"{settings.most_partitions} partitions: its restarts and failovers take long. Most: "
        f"{top(brokers.HOSTED.now(THIS_CLUSTER), '{{ .Labels.broker }} ({{ .Value }})')}.",
        settings,
        run="isrwatch state --brokers",
        lasting=settings.skew_for,
        goes_on=OF_BROKER,
    )
