"""Four alerts over the signals; the runbook has one section per alert.

Data at risk (page), ISR removals (ticket), stale monitoring data (ticket, then page), a job query is down (ticket).

Knows signals and the format of Prometheus rules. Windows, thresholds and links are in :class:`AlertSettings`.

Decisions:

- One page per cluster, and one ticket per broker and cause. The page's condition is a cluster aggregate, so a lost
  broker is one page, however many partitions it hosted; template queries list the topics and brokers.
- A page does not resolve because monitoring data became stale. State gauges disappear when data is older than 60 s, so
  ``KafkaUnderMinIsr`` continues with the last known value for an hour; ``KafkaReplicationMonitorStale`` says why.
- Staleness is measured by Prometheus itself (``time()`` minus the newest observation it ever scraped), so it does not
  matter whether the collector, the job, the exporter or the network between them failed.
- A query that fails, restarts and fails again is down: to count as up it must have run throughout ``query_window``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from dashboards import signals
from dashboards.promql import EVERYWHERE, Scope, Signal

# Causes of planned operations. Any other cause raises the alert, also one that a later version introduces.
PLANNED_CAUSES: Final = ("controlled_shutdown", "reassignment", "restart")

# Template queries run inside printf: %[1]q inserts the alert's cluster, quoted, wherever it occurs.
_THIS_CLUSTER: Final = Scope({"cluster": "cluster=%[1]q"})

Rule = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """Windows, thresholds and links of the alerts.

    Attributes:
        interval: evaluation interval of the rules.
        removals_window: window in which ISR removals are counted; at least four scrape intervals.
        removals_keep_firing: a burst of ISR removals stays one alert until this long after the last of them.
        under_min_isr_for: shorter conditions heal by themselves, as during a leader change.
        under_min_isr_keep_firing: a partition that flaps causes one page.
        suspects_window: the description of a page lists the ISR removals of this window.
        last_known: how long a page continues with the last known values while data is stale.
        stale_seconds: data age beyond which data is stale; the exporter withdraws the state at the same age.
        stale_ticket_for: covers a restart of the job, and the first scrape.
        stale_page_for: for this long nobody would have been alerted to data loss.
        query_window: a query counts as up only if it was up throughout; longer than a start that fails takes.
        query_down_for: one failure followed by a successful restart raises no ticket; longer than ``query_window``.
        report_seconds: a job reports every 5 s; without a report for this long it is not running.
        remembered: for how long a cluster that disappeared raises the alert. Silence it for a decommissioned cluster.
        runbook_url: URL of the runbook, which has one section per alert.
        dashboard_url: URL of the overview.
    """

    interval: str = "15s"
    removals_window: str = "5m"
    removals_keep_firing: str = "15m"
    under_min_isr_for: str = "1m"
    under_min_isr_keep_firing: str = "5m"
    suspects_window: str = "15m"
    last_known: str = "1h"
    stale_seconds: int = 60
    stale_ticket_for: str = "1m"
    stale_page_for: str = "15m"
    query_window: str = "1m"
    query_down_for: str = "2m"
    report_seconds: int = 60
    remembered: str = "1d"
    runbook_url: str = "dashboards/runbook.md"
    dashboard_url: str = "http://127.0.0.1:3000/d/isrwatch-replication-overview"


def rule_file(settings: AlertSettings) -> dict[str, Any]:
    """Return the content of a Prometheus rule file."""
    rules = [isr_shrink(settings), under_min_isr(settings), *monitor_stale(settings), query_down(settings)]
    return {"groups": [{"name": "kafka-replication-alerts", "interval": settings.interval, "rules": rules}]}


def isr_shrink(settings: AlertSettings) -> Rule:
    """Ticket for unplanned ISR removals: one alert per broker and cause."""
    unplanned = f'cause!~"{"|".join(PLANNED_CAUSES)}"'
    left = signals.ISR_REMOVALS.increase(settings.removals_window, EVERYWHERE, unplanned)
    return {
        "alert": "KafkaIsrShrink",
        "expr": f"{left} > 0",
        "keep_firing_for": settings.removals_keep_firing,
        "labels": {"severity": "ticket"},
        "annotations": {
            "summary": "Broker {{ $labels.broker }} of {{ $labels.cluster }} left ISRs: {{ $labels.cause }}",
            "description": (
                "Broker {{ $labels.broker }} of cluster {{ $labels.cluster }} left in-sync replicas, cause "
                '{{ $labels.cause }}: about {{ $value | printf "%.0f" }} ISR removals '
                f"within {settings.removals_window}. "
                f"Under-replicated partitions now: {_number(signals.UNDER_REPLICATED)}, "
                f"under min ISR: {_number(signals.UNDER_MIN_ISR)}. {_suspects()}"
            ),
            **_links("KafkaIsrShrink", settings),
        },
    }


def under_min_isr(settings: AlertSettings) -> Rule:
    """Page for partitions that refuse writes: under min ISR, or without a leader."""
    return {
        "alert": "KafkaUnderMinIsr",
        "expr": _under_min_isr_condition(settings),
        "for": settings.under_min_isr_for,
        "keep_firing_for": settings.under_min_isr_keep_firing,
        "labels": {"severity": "page"},
        "annotations": {
            "summary": "Partitions of {{ $labels.cluster }} refuse writes: under min ISR or offline",
            "description": _under_min_isr_description(settings),
            **_links("KafkaUnderMinIsr", settings),
        },
    }


def _under_min_isr_condition(settings: AlertSettings) -> str:
    under, offline = signals.UNDER_MIN_ISR, signals.OFFLINE
    return "\n".join((
        f"{under.now()} > 0",
        f"or {offline.now()} > 0",
        f"or (({under.last_known(settings.last_known)} > 0",
        f"  or {offline.last_known(settings.last_known)} > 0)",
        f"  unless on (cluster) {offline.now()})",
    ))  # fmt: skip


def _under_min_isr_description(settings: AlertSettings) -> str:
    under, offline = signals.PARTITION_UNDER_MIN_ISR, signals.PARTITION_OFFLINE
    refusing = f"{under.now(_THIS_CLUSTER)} == 1 or {offline.now(_THIS_CLUSTER)} == 1"
    topics = f"count by (topic) ({refusing})"
    missing = f"{signals.REPLICA_IN_SYNC.now(_THIS_CLUSTER)} == 0"
    brokers = f"count by (broker) (({missing}) and on (cluster, topic, partition) ({refusing}))"
    removals = f"{signals.ISR_REMOVALS.increase(settings.suspects_window, _THIS_CLUSTER)} > 0"
    counts = {
        signal: _number(signal, last_known=settings.last_known) for signal in (signals.UNDER_MIN_ISR, signals.OFFLINE)
    }
    return (
        f"Cluster {{{{ $labels.cluster }}}}: {counts[signals.UNDER_MIN_ISR]} partitions are under min ISR "
        f"(producers with acks=all are refused), {counts[signals.OFFLINE]} are offline"
        f"{{{{ if not ({_query(signals.OFFLINE.now(_THIS_CLUSTER))}) }}}} (last known values: monitoring data is stale)"
        "{{ end }}. "
        f"Topics: {_top(topics, '{{ .Labels.topic }} ({{ .Value }})')}. "
        f"Brokers missing from these ISRs: {_top(brokers, '{{ .Labels.broker }} ({{ .Value }})')}. "
        f"Left an ISR within {settings.suspects_window}: "
        + _top(removals, 'broker {{ .Labels.broker }} by {{ .Labels.cause }} ({{ .Value | printf "%.0f" }})')
        + f". {_suspects()}"
    )


def _suspects() -> str:
    """List the brokers that explain the current ISR shrinks, by score, and the open incidents by class."""
    suspects = f"{signals.SUSPECT_SCORE.now(_THIS_CLUSTER)} > 0"
    incidents = f"{signals.OPEN_INCIDENTS.now(_THIS_CLUSTER)} > 0"
    return (
        "Suspects now: "
        + _top(suspects, '{{ .Labels.broker }} (score {{ .Value | printf "%.2f" }})')
        + f". Open incidents: {_top(incidents, '{{ .Labels.class }} ({{ .Value }})')}."
    )


def monitor_stale(settings: AlertSettings) -> list[Rule]:
    """Ticket for stale monitoring data, and a page if it stays stale."""
    return [
        _stale(settings, settings.stale_ticket_for, "ticket"),
        _stale(settings, settings.stale_page_for, "page"),
    ]


def _stale(settings: AlertSettings, lasting: str, severity: str) -> Rule:
    return {
        "alert": "KafkaReplicationMonitorStale",
        "expr": _stale_condition(settings),
        "for": lasting,
        "labels": {"severity": severity},
        "annotations": {
            "summary": (
                "Replication of {{ if $labels.cluster }}{{ $labels.cluster }}{{ else }}every cluster{{ end }} is not "
                "being monitored"
            ),
            "description": (
                "{{ if $labels.cluster }}The newest observation of cluster {{ $labels.cluster }} is "
                "{{ $value | humanizeDuration }} old. No other replication alert of this cluster can fire. "
                "Sources: "
                + _top(
                    signals.SOURCE_AGE.now(_THIS_CLUSTER),
                    "{{ .Labels.source }} ({{ .Value | humanizeDuration }})",
                    otherwise="the exporter is not responding",
                )
                + f".{{{{ else }}}}Prometheus has had no metric of isrwatch for {settings.remembered}: "
                "the exporter is down or not scraped.{{ end }}"
            ),
            **_links("KafkaReplicationMonitorStale", settings),
        },
    }


def _stale_condition(settings: AlertSettings) -> str:
    """Compare the data age; without an exporter, the age of the newest observation it ever exposed."""
    age, observed = signals.DATA_AGE, signals.SOURCE_OBSERVED
    newest = f"last_over_time({observed.series(EVERYWHERE, _REPLICATION)}[{settings.remembered}])"
    return "\n".join((
        f"{age.now()} > {settings.stale_seconds}",
        f"or (time() - max by (cluster) ({newest})",
        f"  unless on (cluster) {age.now()}) > {settings.stale_seconds}",
        f"or absent_over_time({age.series()}[{settings.remembered}])",
    ))  # fmt: skip


# Offsets and broker metrics have channels of their own and contain no ISR changes.
_REPLICATION: Final = 'channel="replication"'


def query_down(settings: AlertSettings) -> Rule:
    """Ticket for a channel of the bus that is not applied: its query is down, or the whole job."""
    up, age = signals.QUERY_UP, signals.REPORT_AGE
    return {
        "alert": "KafkaReplicationJobQueryDown",
        "expr": "\n".join((
            f"min by (cluster, channel) ({age.series()}) > {settings.report_seconds}",
            f"or min by (cluster, channel) (min_over_time({up.series()}[{settings.query_window}])) == 0",
        )),
        "for": settings.query_down_for,
        "labels": {"severity": "ticket"},
        "annotations": {
            "summary": "Channel {{ $labels.channel }} of {{ $labels.cluster }} is not applied: its query is down",
            "description": (
                "{{ if gt $value 0.0 }}The job that applies the channel {{ $labels.channel }} of cluster "
                "{{ $labels.cluster }} last reported {{ $value | humanizeDuration }} ago: it is not running."
                "{{ else }}The query that applies the channel {{ $labels.channel }} of cluster {{ $labels.cluster }} "
                "keeps failing; the job restarts it.{{ end }} "
                "No data is lost: the bus retains what is not applied. Backlog: "
                + _top(
                    f"{signals.BEHIND.now(_THIS_CLUSTER)} > 0",
                    "{{ .Labels.source }} ({{ .Value | humanize1024 }}B)",
                    otherwise="none reported",
                )
                + "."
            ),
            **_links("KafkaReplicationJobQueryDown", settings),
        },
    }  # fmt: skip


def _links(alert: str, settings: AlertSettings) -> dict[str, str]:
    return {
        "runbook_url": f"{settings.runbook_url}#{alert.lower()}",
        "dashboard_url": f"{settings.dashboard_url}?var-cluster={{{{ $labels.cluster | urlquery }}}}",
    }


def _query(expression: str) -> str:
    """Return a template query; %[1]q in the expression is the cluster of the alert."""
    return f"printf `{expression}` $labels.cluster | query"


def _number(signal: Signal, last_known: str = "") -> str:
    """Return a template for one number of the alert's cluster, or its last known value, or "unknown"."""
    newest = f" or {signal.last_known(last_known, _THIS_CLUSTER)}" if last_known else ""
    query = _query(signal.now(_THIS_CLUSTER) + newest)
    return f'{{{{ with {query} }}}}{{{{ . | first | value | printf "%.0f" }}}}{{{{ else }}}}unknown{{{{ end }}}}'


def _top(expression: str, row: str, otherwise: str = "none known") -> str:
    """Return a template for the three largest rows of a query, comma separated."""
    query = _query(f"sort_desc(topk(3, {expression}))")
    return (
        f"{{{{ range $index, $row := {query} }}}}{{{{ if $index }}}}, {{{{ end }}}}{row}"
        f"{{{{ else }}}}{otherwise}{{{{ end }}}}"
    )
