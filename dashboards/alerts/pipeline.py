"""Parts of the monitor that fail while the rest goes on: samples, one of several sources, the programs' own pages.

Beside ``monitoring``, which is about the state of partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dashboards.alerts.templates import THIS_CLUSTER, Rule, quoted, rule, top
from dashboards.promql import EVERYWHERE
from dashboards.signals import clusters, monitor

if TYPE_CHECKING:
    from dashboards.alerts.settings import AlertSettings

_INCIDENTS: Final = 'query="incidents"'
"""The query that reads no channel of the bus, so that no source shows its state."""


def samples_stale(settings: AlertSettings) -> Rule:
    """Ticket for samples that stopped while the state of the cluster is fresh."""
    stale = f"{monitor.SAMPLE_AGE.now()} > {settings.sample_seconds}"
    ages = f"{monitor.SAMPLE_AGE.now(THIS_CLUSTER)} > {settings.sample_seconds}"
    return rule(
        "KafkaReplicationSamplesStale",
        "ticket",
        f"count by (cluster) ({stale})\nand on (cluster) {clusters.DATA_AGE.now()} <= {settings.stale_seconds}",
        "Samples of {{ $labels.cluster }} are old",
        "Samples of cluster {{ $labels.cluster }} have not been renewed for more than "
        f"{settings.sample_seconds} s, though its partitions are observed: "
        + top(ages, "{{ .Labels.table }} ({{ .Value | humanizeDuration }})")
        + ". No alert about them can begin: groups, disks, the quorum, transactions or settings.",
        settings,
        run="isrwatch doctor --config FILE",
        lasting=settings.stopped_for,
    )


def source_stopped(settings: AlertSettings) -> Rule:
    """Ticket for a source that reports nothing more while another one keeps the cluster fresh."""
    old = f"{monitor.SOURCE_AGE.now()} > {settings.source_seconds}"
    ages = f"{monitor.SOURCE_AGE.now(THIS_CLUSTER)} > {settings.source_seconds}"
    refused = f"{monitor.COLLECTOR_SOURCE_UP.now()} == 0"
    return rule(
        "KafkaReplicationSourceStopped",
        "ticket",
        f"count by (cluster) ({old}\n  unless on (cluster, source) ({refused}))\n"
        f"and on (cluster) {clusters.DATA_AGE.now()} <= {settings.stale_seconds}",
        "Sources of {{ $labels.cluster }} report nothing any more",
        "Sources of cluster {{ $labels.cluster }} have not reported for more than "
        f"{settings.source_seconds} s, though another one keeps the cluster fresh: "
        + top(ages, "{{ .Labels.source }} ({{ .Value | humanizeDuration }})")
        + ". Nothing replaces the other one if it stops, too.",
        settings,
        run="isrwatch doctor --config FILE",
        lasting=settings.stopped_for,
    )


def program_down(settings: AlertSettings) -> Rule:
    """Ticket for a collector or job whose own page Prometheus cannot scrape: alerts on what it says are blind."""
    return rule(
        "KafkaReplicationProgramDown",
        "ticket",
        f"{monitor.SCRAPED.now(EVERYWHERE, f'job=~{quoted(settings.program_jobs)}')} == 0",
        "Prometheus cannot scrape {{ $labels.instance }} of {{ $labels.job }}",
        "Prometheus has not been able to scrape {{ $labels.instance }} of the job {{ $labels.job }} for "
        f"{settings.program_for}: the program is down, or cannot be reached. What only its own page says is unknown: "
        "sources that are refused, certificates that expire, listeners that do not answer, queries that stopped.",
        settings,
        run="isrwatch doctor --config FILE",
        lasting=settings.program_for,
    )


def incidents_query_down(settings: AlertSettings) -> Rule:
    """Ticket for the query that derives incidents."""
    up = monitor.JOB_QUERY_UP
    return rule(
        "KafkaReplicationIncidentsQueryDown",
        "ticket",
        f"min by (query) (min_over_time({up.series(EVERYWHERE, _INCIDENTS)}[{settings.query_window}])) == 0",
        "The job derives no incidents",
        "The query {{ $labels.query }} of the job keeps failing; the job restarts it. The state is right; incidents, "
        "their suspects and what they cost are not up to date.",
        settings,
        run="isrwatch tables incidents",
        lasting=settings.query_down_for,
    )


def series_near_limit(settings: AlertSettings) -> Rule:
    """Ticket for an exposition that is about to exceed Prometheus' limit, beyond which the whole scrape fails."""
    return rule(
        "KafkaReplicationSeriesNearLimit",
        "ticket",
        f"max({monitor.SERIES.series()}) > {int(settings.sample_limit * settings.sample_limit_share)}",
        "The exporter exposes almost as many series as Prometheus accepts",
        "The exporter exposes {{ $value }} series; beyond the sample_limit of its scrape job "
        f"({settings.sample_limit}) the whole scrape fails, and every alert is blind.",
        settings,
        run="isrwatch export --help",
        lasting=settings.program_for,
    )


def watchdog(settings: AlertSettings) -> Rule:
    """Info that always fires: a receiver that expects it reports when Prometheus or Alertmanager stop."""
    return rule(
        "Watchdog",
        "info",
        "vector(1)",
        "Alerting works",
        "This alert always fires. Route it to a receiver that raises an alarm when it stays away: then Prometheus, "
        "Alertmanager or the way between them has failed.",
        settings,
        run="amtool alert query alertname=Watchdog",
    )
