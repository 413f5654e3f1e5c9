"""Pages about partitions: offline, under min ISR, more than before, elected uncleanly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dashboards.alerts.recording import counted, longest, unavailable_share
from dashboards.alerts.templates import (
    BURNS_FAST,
    MORE,
    OF_CLUSTER,
    OFFLINE,
    THIS_CLUSTER,
    UNCLEAN_ELECTION,
    UNDER_MIN_ISR,
    Rule,
    not_beside,
    number,
    partitions_in,
    query,
    rule,
    suspects,
    top,
)
from dashboards.promql import EVERYWHERE
from dashboards.signals import brokers, changes, clusters, partitions

if TYPE_CHECKING:
    from dashboards.alerts.settings import AlertSettings
    from dashboards.promql import Signal


def offline(settings: AlertSettings) -> Rule:
    """Page for partitions without a leader."""
    count = partitions_in(clusters.OFFLINE, partitions.TOPIC_OFFLINE, settings)
    return rule(
        OFFLINE,
        "page",
        f"{count} > 0\nor ({_flapping(partitions.OFFLINE_SECONDS, settings)})",
        "Partitions of {{ $labels.cluster }} are offline: neither reads nor writes",
        f"Cluster {{{{ $labels.cluster }}}}: {number(clusters.OFFLINE.now(THIS_CLUSTER))} partitions have no leader"
        f"{_if_stale()}. Topics: {_topics(partitions.TOPIC_OFFLINE)}. Under min ISR: "
        f"{number(clusters.UNDER_MIN_ISR.now(THIS_CLUSTER))}. {_elections(settings)}. {_causes(settings)}",
        settings,
        run="isrwatch state",
        goes_on=OF_CLUSTER,
        lasting=settings.offline_for,
    )


def under_min_isr(settings: AlertSettings) -> Rule:
    """Page for partitions that refuse writes: for a minute, or again and again."""
    count = partitions_in(clusters.UNDER_MIN_ISR, partitions.TOPIC_UNDER_MIN_ISR, settings)
    seconds = partitions.UNDER_MIN_ISR_SECONDS
    refused = f"{count} > 0\nor ({_flapping(seconds, settings)})"
    worst = number(longest(seconds, settings.flapping_window, THIS_CLUSTER))
    missing = f"{partitions.REPLICA_IN_SYNC.now(THIS_CLUSTER)} == 0"
    refusing = f"{partitions.UNDER_MIN_ISR.now(THIS_CLUSTER)} == 1"
    brokers = f"count by (broker) (({missing}) and on (cluster, topic, partition) ({refusing}))"
    return rule(
        UNDER_MIN_ISR,
        "page",
        not_beside(refused, UNDER_MIN_ISR, OFFLINE, UNCLEAN_ELECTION, seconds=settings.same_trouble),
        "Partitions of {{ $labels.cluster }} refuse writes: under min ISR",
        f"Cluster {{{{ $labels.cluster }}}}: {number(clusters.UNDER_MIN_ISR.now(THIS_CLUSTER))} partitions are under "
        f"min ISR now (producers with acks=all are refused){_if_stale()}; the worst was so for "
        f"{worst} s of {settings.flapping_window}. "
        f"Topics: {_topics(partitions.TOPIC_UNDER_MIN_ISR)}. Brokers missing from these ISRs: "
        f"{top(brokers, '{{ .Labels.broker }} ({{ .Value }})')}. {_elections(settings)}. {_causes(settings)}",
        settings,
        run="isrwatch state",
        goes_on=OF_CLUSTER,
        lasting=settings.under_min_isr_for,
        keep_firing=settings.under_min_isr_keep_firing,
    )


def _flapping(seconds: Signal, settings: AlertSettings) -> str:
    """Return the clusters with a partition that was in a state for long in sum, and was so just now."""
    return (
        f"{longest(seconds, settings.flapping_window)} > {settings.flapping_seconds} "
        f"and on (cluster) {longest(seconds, settings.flapping_until)} > 0"
    )


def more(settings: AlertSettings) -> Rule:
    """Page for trouble that is added to an old one, which pages already."""
    window = settings.growth_window
    grown = (
        f"({partitions_in(cluster, topic, settings)} > ({_least_in(cluster, settings)} > 0))"
        for cluster, topic in (
            (clusters.OFFLINE, partitions.TOPIC_OFFLINE),
            (clusters.UNDER_MIN_ISR, partitions.TOPIC_UNDER_MIN_ISR),
        )
    )
    return rule(
        MORE,
        "page",
        "\nor ".join(grown),
        "More partitions of {{ $labels.cluster }} are offline or refuse writes than before",
        f"Cluster {{{{ $labels.cluster }}}}: besides partitions that have been unavailable for {window}, there are "
        f"more. Offline now: {number(clusters.OFFLINE.now(THIS_CLUSTER))}, under min ISR now: "
        f"{number(clusters.UNDER_MIN_ISR.now(THIS_CLUSTER))}. Offline topics: {_topics(partitions.TOPIC_OFFLINE)}. "
        f"Topics under min ISR: {_topics(partitions.TOPIC_UNDER_MIN_ISR)}. {_causes(settings)}",
        settings,
        run="isrwatch incidents",
        goes_on=OF_CLUSTER,
        lasting=settings.under_min_isr_for,
    )


def _least_in(cluster: Signal, settings: AlertSettings) -> str:
    """Return the smallest number of partitions in a state within the window of growth."""
    series = counted(cluster) if settings.excluded_topics else cluster.series()
    return f"max by (cluster) (min_over_time({series}[{settings.growth_window}]))"


def unclean_election(settings: AlertSettings) -> Rule:
    """Page for leaders elected from outside the in-sync replicas: acknowledged records may be lost."""
    elected = changes.UNCLEAN_ELECTIONS.increase(settings.election_window, EVERYWHERE)
    return rule(
        UNCLEAN_ELECTION,
        "page",
        not_beside(f"{elected} > 0", UNCLEAN_ELECTION, OFFLINE, UNDER_MIN_ISR, seconds=settings.same_trouble),
        "Records of {{ $labels.cluster }} may be lost: unclean leader election",
        'Cluster {{ $labels.cluster }}: about {{ $value | printf "%.0f" }} leaders were elected from outside the '
        f"in-sync replicas within {settings.election_window}. Records that only the others had are discarded. Under "
        f"min ISR now: {number(clusters.UNDER_MIN_ISR.now(THIS_CLUSTER))}, offline: "
        f"{number(clusters.OFFLINE.now(THIS_CLUSTER))}. "
        f"{suspects()}",
        settings,
        run="isrwatch events --event unclean_election --since 2h",
        keep_firing=settings.election_keep_firing,
    )


def _topics(signal: Signal) -> str:
    return top(f"{signal.now(THIS_CLUSTER)} > 0", "{{ .Labels.topic }} ({{ .Value }})")


def _elections(settings: AlertSettings) -> str:
    elected = number(changes.UNCLEAN_ELECTIONS.increase(settings.election_window, THIS_CLUSTER))
    return f"Unclean elections within {settings.election_window}: {elected}"


def _if_stale() -> str:
    fresh = query(clusters.OFFLINE.now(THIS_CLUSTER))
    return f"{{{{ if not ({fresh}) }}}} (monitoring data is stale: as it was){{{{ end }}}}"


def _causes(settings: AlertSettings) -> str:
    removals = f"{brokers.ISR_REMOVALS.increase(settings.suspects_window, THIS_CLUSTER)} > 0"
    return (
        f"Left an ISR within {settings.suspects_window}: "
        + top(removals, 'broker {{ .Labels.broker }} by {{ .Labels.cause }} ({{ .Value | printf "%.0f" }})')
        + f". {suspects()}"
    )


# Burn rates of the error budget: how fast the time is used up in which partitions may be unavailable.
#
# In several windows (Google, *The Site Reliability Workbook*, chapter 5): a long one for what was used, a short one
# for whether it still is. What is counted is exact and comes from the tables, so that it has what no scrape saw.


# One incident is one page: these say what is wrong. The longest short window still has what they paged for.
_PAGED: Final = f'last_over_time(ALERTS{{alertname=~"{UNDER_MIN_ISR}|{OFFLINE}", alertstate="firing"}}[30m])'


def burns_fast(settings: AlertSettings) -> Rule:
    """Page for a budget that is gone within days, by outages so short that no other page fires."""
    used = f"({_burn('1h', '5m', 14.4, settings)})\nor ({_burn('6h', '30m', 6, settings)})"
    return rule(
        BURNS_FAST,
        "page",
        not_beside(
            f"({used})\nunless on (cluster) {_PAGED}", BURNS_FAST, UNCLEAN_ELECTION, seconds=settings.same_trouble
        ),
        "Partitions of {{ $labels.cluster }} are unavailable again and again",
        f"{_spent(settings, '1h')} It is used up within days, by outages that are each too short for another page.",
        settings,
        run="isrwatch incidents --since 6h",
        lasting=settings.burns_for,
        goes_on=OF_CLUSTER,
    )


def burns(settings: AlertSettings) -> Rule:
    """Ticket for a budget that does not last."""
    return rule(
        "KafkaAvailabilityBurns",
        "ticket",
        _burn("3d", "6h", 1, settings),
        "The error budget of {{ $labels.cluster }} does not last",
        f"{_spent(settings, '3d')} At this rate less than the objective is reached.",
        settings,
        run="isrwatch incidents --since 3d",
        goes_on=OF_CLUSTER,
    )


def _burn(long: str, short: str, rate: float, settings: AlertSettings) -> str:
    limit = f"{rate * (1 - settings.availability_target):.6g}"
    return f"{unavailable_share(long)} > {limit} and on (cluster) {unavailable_share(short)} > {limit}"


def _spent(settings: AlertSettings, window: str) -> str:
    share = top(
        unavailable_share(window, THIS_CLUSTER), "{{ .Value | humanizePercentage }}", otherwise="an unknown share"
    )
    return (
        f"Partitions of cluster {{{{ $labels.cluster }}}} were offline or refused writes for {share} of the time of "
        f"all within {window}; the objective of {100 * settings.availability_target:g} % allows "
        f"{100 * (1 - settings.availability_target):.6g} %."
    )
