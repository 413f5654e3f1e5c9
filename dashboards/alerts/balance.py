"""How load and replicas are spread: leaders that are not the preferred ones, skew, brokers with too many partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboards.alerts.templates import OF_BROKER, OF_CLUSTER, THIS_CLUSTER, Rule, number, rule, top
from dashboards.signals import brokers, clusters

if TYPE_CHECKING:
    from dashboards.alerts.settings import AlertSettings
    from dashboards.promql import Signal


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
