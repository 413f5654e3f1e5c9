"""Trust in the monitor itself: blind, stale, queries down, tables unreadable, changes missed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dashboards.alerts.templates import OF_CLUSTER, THIS_CLUSTER, Rule, quoted, rule, top, value
from dashboards.promql import EVERYWHERE
from dashboards.signals import changes, clusters, derived, monitor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dashboards.alerts.settings import AlertSettings

# Samples have a channel of their own and contain no ISR changes.
_REPLICATION: Final = 'channel="replication"'


def monitor_blind(settings: AlertSettings) -> Iterator[Rule]:
    """Page for an expected cluster of which there is no fresh data; there is no rule if none is expected."""
    if settings.expected_clusters:
        yield rule(
            "KafkaReplicationMonitorBlind",
            "page",
            "\nor ".join(_without_data(cluster, settings) for cluster in settings.expected_clusters),
            "{{ $labels.cluster }} is not being monitored",
            f"There has been no fresh data of the expected cluster {{{{ $labels.cluster }}}} for {settings.blind_for}: "
            "no alert would report data loss. Sources: " + _sources() + ".",
            settings,
            run="isrwatch doctor --config FILE",
            lasting=settings.blind_for,
        )


def _without_data(cluster: str, settings: AlertSettings) -> str:
    age = clusters.DATA_AGE.series(EVERYWHERE, f"cluster={quoted(cluster)}")
    name = quoted(cluster.replace("$", "$$"))
    return f'label_replace(absent(min({age}) <= {settings.stale_seconds}), "cluster", {name}, "", "")'


def monitor_stale(settings: AlertSettings) -> Rule:
    """Ticket for stale monitoring data of a cluster that was monitored."""
    return rule(
        "KafkaReplicationMonitorStale",
        "ticket",
        _stale_condition(settings),
        "Replication of {{ $labels.cluster }} is not being monitored",
        "The newest observation of cluster {{ $labels.cluster }} is {{ $value | humanizeDuration }} old. No other "
        f"replication alert of this cluster can begin. Sources: {_sources()}.",
        settings,
        run="isrwatch doctor --config FILE",
        lasting=settings.stale_for,
    )


def _sources() -> str:
    return top(
        monitor.SOURCE_AGE.now(THIS_CLUSTER),
        "{{ .Labels.source }} ({{ .Value | humanizeDuration }})",
        otherwise="the exporter is not responding",
    )


def _stale_condition(settings: AlertSettings) -> str:
    """Compare the data age; without an exporter, the age of the newest observation it ever exposed."""
    age, observed = clusters.DATA_AGE, monitor.SOURCE_OBSERVED
    newest = f"last_over_time({observed.series(EVERYWHERE, _REPLICATION)}[{settings.remembered}])"
    return "\n".join((
        f"{age.now()} > {settings.stale_seconds}",
        f"or (time() - max by (cluster) ({newest})",
        f"  unless on (cluster) {age.now()}) > {settings.stale_seconds}",
    ))  # fmt: skip


def query_down(settings: AlertSettings) -> Rule:
    """Ticket for a channel of the bus that is not applied: its query is down, or the whole job."""
    up, age = monitor.QUERY_UP, monitor.REPORT_AGE
    return rule(
        "KafkaReplicationJobQueryDown",
        "ticket",
        "\n".join((
            f"min by (cluster, channel) ({age.series()}) > {settings.report_seconds}",
            f"or min by (cluster, channel) (min_over_time({up.series()}[{settings.query_window}])) == 0",
        )),
        "Channel {{ $labels.channel }} of {{ $labels.cluster }} is not applied: its query is down",
        "{{ if gt $value 0.0 }}The job that applies the channel {{ $labels.channel }} of cluster "
        "{{ $labels.cluster }} last reported {{ $value | humanizeDuration }} ago: it is not running."
        "{{ else }}The query that applies the channel {{ $labels.channel }} of cluster {{ $labels.cluster }} "
        "keeps failing; the job restarts it.{{ end }} "
        "No data is lost: the bus retains what is not applied. Backlog: "
        + top(
            f"{monitor.BEHIND.now(THIS_CLUSTER)} > 0",
            "{{ .Labels.source }} ({{ .Value | humanize1024 }}B)",
            otherwise="none reported",
        )
        + ".",
        settings,
        run="isrwatch tables source_progress",
        lasting=settings.query_down_for,
    )  # fmt: skip


def table_unreadable(settings: AlertSettings) -> Rule:
    """Ticket for a table that the exporter cannot read."""
    return rule(
        "KafkaReplicationTableUnreadable",
        "ticket",
        f"{monitor.TABLE_READABLE.now()} == 0",
        "The exporter cannot read the table {{ $labels.table }}",
        f"The exporter has not been able to read the table {{{{ $labels.table }}}} for {settings.table_for}. What "
        "comes from it is absent: panels have no value, and alerts on it cannot fire. /-/ready of the exporter and its "
        "log have the reason.",
        settings,
        run="isrwatch tables",
        lasting=settings.table_for,
    )


def source_refused(settings: AlertSettings) -> Rule:
    """Ticket for a source that the cluster refuses, or does not answer; what it reads is polled instead, or unknown."""
    return rule(
        "KafkaReplicationSourceRefused",
        "ticket",
        f"{monitor.COLLECTOR_SOURCE_UP.now()} == 0",
        "{{ $labels.cluster }} does not answer {{ $labels.source }}",
        "Cluster {{ $labels.cluster }} has refused the source {{ $labels.source }} of a collector for "
        f"{settings.refused_for}, or has not answered it: what only this source reads is not known. In the place of a "
        "metadata log the brokers are polled, which misses what happens between two polls, and proves no cause. The "
        "log of the collector has the reason.",
        settings,
        run="isrwatch doctor --config FILE",
        lasting=settings.refused_for,
    )


def certificate_expires(settings: AlertSettings) -> Rule:
    """Ticket for a cluster of which a certificate, or one of the collector for it, expires soon or has expired."""
    limit = settings.certificate_days * 86_400
    certificates = monitor.LISTENER_CERTIFICATE, monitor.CLIENT_CERTIFICATE
    every = "\nor ".join(signal.now() for signal in certificates)
    these = " or ".join(signal.now(THIS_CLUSTER) for signal in certificates)
    return rule(
        "KafkaReplicationCertificateExpires",
        "ticket",
        f"min by (cluster) ({every}) - time() < {limit}",
        "A certificate of {{ $labels.cluster }} {{ if gt $value 0.0 }}expires in {{ $value | humanizeDuration }}"
        "{{ else }}has expired{{ end }}",
        "Certificates of cluster {{ $labels.cluster }} that have expired, or do within "
        f"{settings.certificate_days} days, the first of them first: "
        + top(
            f"{limit} + time() - ({these}) > 0",
            "{{ with .Labels.property }}{{ . }} of the collector{{ else }}"
            "{{ .Labels.role }}{{ with .Labels.node }} {{ . }}{{ end }} at {{ .Labels.address }}{{ end }}",
        )
        + ". With an expired one no client that verifies it connects any more, and the collector reads nothing there.",
        settings,
        run="isrwatch doctor --config FILE",
    )


def min_isr_unknown(settings: AlertSettings) -> Rule:
    """Ticket for partitions that may be under min ISR without being counted."""
    return rule(
        "KafkaMinIsrUnknown",
        "ticket",
        f"{clusters.UNKNOWN_MIN_ISR.now()} > 0",
        "min.insync.replicas of partitions of {{ $labels.cluster }} is unknown",
        f"Cluster {{{{ $labels.cluster }}}}: of {value()} partitions min.insync.replicas is unknown. They may refuse "
        "writes without an alert: KafkaUnderMinIsr does not count them.",
        settings,
        run="isrwatch doctor --config FILE",
        goes_on=OF_CLUSTER,
        lasting=settings.unknown_min_isr_for,
    )


def missed_changes(settings: AlertSettings) -> Rule:
    """Ticket for changes that are in the metadata log and were not observed; polling misses some by its nature."""
    missed = changes.MISSED_CHANGES.increase(settings.counted_window, EVERYWHERE)
    logged = f'{clusters.INFO.full_name}{{primary_source="metadata_log"}}'
    return rule(
        "KafkaReplicationChangesMissed",
        "ticket",
        f"{missed} > 0\nand on (cluster) max by (cluster) ({logged})",
        "Changes of {{ $labels.cluster }} were not observed",
        'Cluster {{ $labels.cluster }}: about {{ $value | printf "%.0f" }} changes of partitions within '
        f"{settings.counted_window} are known from their epochs only. What happened in them, and why, is in no table.",
        settings,
        run="isrwatch events --event changes_missed --since 2h",
        keep_firing=settings.counted_keep_firing,
    )


def quarantined(settings: AlertSettings) -> Rule:
    """Ticket for observations that could not be parsed."""
    refused = monitor.QUARANTINED.increase(settings.counted_window, EVERYWHERE, by=derived.CLUSTER)
    return rule(
        "KafkaReplicationRecordsQuarantined",
        "ticket",
        f"{refused} > 0",
        "Observations of {{ $labels.cluster }} cannot be parsed",
        'Cluster {{ $labels.cluster }}: about {{ $value | printf "%.0f" }} observations within '
        f"{settings.counted_window} could not be parsed. They are kept in the table quarantine, and change no state.",
        settings,
        run="isrwatch tables quarantine",
        keep_firing=settings.counted_keep_firing,
    )


# Parts of the monitor that fail while the rest works: samples, one of several sources, the programs' own pages.
#
# Next to ``monitoring``, which is about the state of partitions.


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
