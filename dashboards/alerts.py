"""Four alerts over the signals, each one a heading of the runbook.

Data at risk (page), a broker left ISRs (ticket), we are blind (ticket, then page), a query of the job is down (ticket).

Knows signals and Prometheus' rule format. Windows, thresholds and links stand in :class:`AlertSettings`.

Decisions:

- One alert is one incident. Conditions are cluster aggregates, so a lost broker is one page, however many partitions
  it held; the topics and brokers are named in the description by template queries.
- A page does not resolve because we went blind. State gauges vanish with our sight (60 s), so ``KafkaUnderMinIsr``
  goes on with the last known value for an hour, while ``KafkaReplicationMonitorStale`` tells why.
- Blindness is measured by Prometheus itself (``time()`` minus the newest observation it ever scraped), so it does not
  matter whether the collector, the job, the exporter or the network between broke.
- A query that fails, starts and fails again is down: it must have run for ``query_window`` on end to count as up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from dashboards import signals
from dashboards.promql import EVERYWHERE, Scope, Signal

# Somebody meant these to happen; everything else, causes of tomorrow included, deserves a look.
PLANNED_CAUSES: Final = ("controlled_shutdown", "reassignment", "restart")

# Template queries run inside printf, which puts the cluster of the alert in, quoted, wherever it is asked for.
_THIS_CLUSTER: Final = Scope({"cluster": "cluster=%[1]q"})

Rule = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """Windows, thresholds and links of the alerts.

    Attributes:
        interval: how often the rules are evaluated.
        departures_window: window in which departures from ISRs are counted; at least four scrape intervals.
        departures_keep_firing: a burst of departures stays one alert for this long after its last one.
        under_min_isr_for: shorter than this heals by itself, as in a leader hand-over.
        under_min_isr_keep_firing: a partition that comes and goes is one page.
        suspects_window: departures of this window are told with a page.
        last_known: how long a page outlives our sight of the cluster.
        stale_seconds: sight older than this is no sight: the exporter withdraws the state then, too.
        stale_ticket_for: long enough for a restart of the job, and for a first scrape.
        stale_page_for: so long nobody would have been told of lost data.
        query_window: a query is up only if it was up throughout this; longer than what it takes to fail after a start.
        query_down_for: one failure, made good by a restart, is no ticket; longer than ``query_window``.
        report_seconds: a job that reports every 5 s and has not for so long does not run.
        remembered: how long a cluster that vanished is missed. Silence the alert for a cluster you took away.
        runbook_url: the page that has one heading an alert.
        dashboard_url: the overview.
    """

    interval: str = "15s"
    departures_window: str = "5m"
    departures_keep_firing: str = "15m"
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
    """Build the content of a Prometheus rule file."""
    rules = [isr_shrink(settings), under_min_isr(settings), *monitor_stale(settings), query_down(settings)]
    return {"groups": [{"name": "kafka-replication-alerts", "interval": settings.interval, "rules": rules}]}


def isr_shrink(settings: AlertSettings) -> Rule:
    """Tell which broker left ISRs unplanned, and why: one ticket a broker and cause."""
    unplanned = f'cause!~"{"|".join(PLANNED_CAUSES)}"'
    left = signals.DEPARTURES.increase(settings.departures_window, EVERYWHERE, unplanned)
    return {
        "alert": "KafkaIsrShrink",
        "expr": f"{left} > 0",
        "keep_firing_for": settings.departures_keep_firing,
        "labels": {"severity": "ticket"},
        "annotations": {
            "summary": "Broker {{ $labels.broker }} of {{ $labels.cluster }} left ISRs: {{ $labels.cause }}",
            "description": (
                "Broker {{ $labels.broker }} of cluster {{ $labels.cluster }} left in-sync replicas, cause "
                '{{ $labels.cause }}: about {{ $value | printf "%.0f" }} departures '
                f"within {settings.departures_window}. "
                f"Under-replicated partitions now: {_number(signals.UNDER_REPLICATED)}, "
                f"under min ISR: {_number(signals.UNDER_MIN_ISR)}. {_accused()}"
            ),
            **_links("KafkaIsrShrink", settings),
        },
    }


def under_min_isr(settings: AlertSettings) -> Rule:
    """Page for partitions that refuse writes: under min ISR, or without any leader."""
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
    refused = f"{under.now(_THIS_CLUSTER)} == 1 or {offline.now(_THIS_CLUSTER)} == 1"
    topics = f"count by (topic) ({refused})"
    missing = f"{signals.REPLICA_IN_SYNC.now(_THIS_CLUSTER)} == 0"
    brokers = f"count by (broker) (({missing}) and on (cluster, topic, partition) ({refused}))"
    why = f"{signals.DEPARTURES.increase(settings.suspects_window, _THIS_CLUSTER)} > 0"
    told = {
        signal: _number(signal, last_known=settings.last_known) for signal in (signals.UNDER_MIN_ISR, signals.OFFLINE)
    }
    return (
        f"Cluster {{{{ $labels.cluster }}}}: {told[signals.UNDER_MIN_ISR]} partitions are under min ISR "
        f"(producers with acks=all are refused), {told[signals.OFFLINE]} are offline"
        f"{{{{ if not ({_ask(signals.OFFLINE.now(_THIS_CLUSTER))}) }}}} (last known: we lost sight of the cluster)"
        "{{ end }}. "
        f"Topics: {_top(topics, '{{ .Labels.topic }} ({{ .Value }})')}. "
        f"Brokers missing from these ISRs: {_top(brokers, '{{ .Labels.broker }} ({{ .Value }})')}. "
        f"Left an ISR within {settings.suspects_window}: "
        + _top(why, 'broker {{ .Labels.broker }} by {{ .Labels.cause }} ({{ .Value | printf "%.0f" }})')
        + f". {_accused()}"
    )


def _accused() -> str:
    """Tell whom the job blames for every ISR that is shrunk now, and what it takes the trouble for."""
    suspects = f"{signals.SUSPECT_SCORE.now(_THIS_CLUSTER)} > 0"
    incidents = f"{signals.OPEN_INCIDENTS.now(_THIS_CLUSTER)} > 0"
    return (
        "Suspects now: "
        + _top(suspects, '{{ .Labels.broker }} (score {{ .Value | printf "%.2f" }})')
        + f". Open incidents: {_top(incidents, '{{ .Labels.class }} ({{ .Value }})')}."
    )


def monitor_stale(settings: AlertSettings) -> list[Rule]:
    """Tell that we are blind: a ticket soon, a page when it lasts."""
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
                "being watched"
            ),
            "description": (
                "{{ if $labels.cluster }}The newest observation of cluster {{ $labels.cluster }} is "
                "{{ $value | humanizeDuration }} old. No other replication alert of this cluster can fire. "
                "Sources: "
                + _top(
                    signals.SOURCE_AGE.now(_THIS_CLUSTER),
                    "{{ .Labels.source }} ({{ .Value | humanizeDuration }})",
                    otherwise="the exporter does not answer",
                )
                + f".{{{{ else }}}}Prometheus has no metric of isrwatch and had none for {settings.remembered}: "
                "nothing is exported, or nothing is scraped.{{ end }}"
            ),
            **_links("KafkaReplicationMonitorStale", settings),
        },
    }


def _stale_condition(settings: AlertSettings) -> str:
    """Age of our sight; where the exporter itself is gone, the age of the newest thing it ever told."""
    age, observed = signals.SIGHT_AGE, signals.SOURCE_OBSERVED
    newest = f"last_over_time({observed.series(EVERYWHERE, _REPLICATION)}[{settings.remembered}])"
    return "\n".join((
        f"{age.now()} > {settings.stale_seconds}",
        f"or (time() - max by (cluster) ({newest})",
        f"  unless on (cluster) {age.now()}) > {settings.stale_seconds}",
        f"or absent_over_time({age.series()}[{settings.remembered}])",
    ))  # fmt: skip


# Offsets and broker metrics travel on channels of their own and say nothing about ISRs.
_REPLICATION: Final = 'channel="replication"'


def query_down(settings: AlertSettings) -> Rule:
    """Tell that what one channel of the bus brings is not applied: its query is down, or the whole job."""
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
            "summary": "Nothing is applied of the {{ $labels.channel }} of {{ $labels.cluster }}: its query is down",
            "description": (
                "{{ if gt $value 0.0 }}The job that applies the channel {{ $labels.channel }} of cluster "
                "{{ $labels.cluster }} last reported {{ $value | humanizeDuration }} ago: it does not run."
                "{{ else }}The query that applies the channel {{ $labels.channel }} of cluster {{ $labels.cluster }} "
                "fails; the job starts it again and again.{{ end }} "
                "Nothing is lost: the bus keeps what is not applied. Waiting: "
                + _top(
                    f"{signals.BEHIND.now(_THIS_CLUSTER)} > 0",
                    "{{ .Labels.source }} ({{ .Value | humanize1024 }}B)",
                    otherwise="nothing that the job reported",
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


def _ask(expression: str) -> str:
    """Query within a template: %[1]q stands for the cluster of the alert."""
    return f"printf `{expression}` $labels.cluster | query"


def _number(signal: Signal, last_known: str = "") -> str:
    """Print one number of the alert's cluster (the last known one where it is gone), or that it is not known."""
    newest = f" or {signal.last_known(last_known, _THIS_CLUSTER)}" if last_known else ""
    asked = _ask(signal.now(_THIS_CLUSTER) + newest)
    return f'{{{{ with {asked} }}}}{{{{ . | first | value | printf "%.0f" }}}}{{{{ else }}}}unknown{{{{ end }}}}'


def _top(expression: str, row: str, otherwise: str = "none known") -> str:
    """List the three largest rows of a query, comma separated."""
    asked = _ask(f"sort_desc(topk(3, {expression}))")
    return (
        f"{{{{ range $index, $row := {asked} }}}}{{{{ if $index }}}}, {{{{ end }}}}{row}"
        f"{{{{ else }}}}{otherwise}{{{{ end }}}}"
    )
