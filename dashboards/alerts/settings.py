"""Windows, thresholds and links of the alerts; clusters that must be there, topics that do not count."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """Windows, thresholds and links of the alerts.

    Attributes:
        interval: evaluation interval of the rules.
        expected_clusters: names of clusters that must be monitored; one without fresh data is a page.
        excluded_topics: a regular expression (RE2, whole name); partitions of these topics are in no page. "": none.
        offline_for: leader elections take less.
        under_min_isr_for: shorter conditions heal by themselves, as during a leader change.
        under_min_isr_keep_firing: a partition that flaps causes one page.
        flapping_window: window in which the seconds of a partition under min ISR are counted.
        flapping_seconds: more of them in one partition are a page: five per cent of the window.
        flapping_until: a flapping partition is over when none was under min ISR for this long.
        growth_window: partitions that were unavailable throughout it are old trouble; more of them is a new page.
        election_window: window in which unclean elections are counted; at least four scrape intervals.
        election_keep_firing: an unclean election stays a page for this long after it has left the window.
        no_controller_for: covers an election of the controllers.
        broker_lost_for: a lost broker that leaves partitions at min ISR may return within it.
        under_replicated_for: covers a restart of a broker, with its catching up.
        broker_down_for: the same, of the process.
        broker_stopped_for: a broker that was stopped on purpose ought to be back within it.
        log_dir_window: a log directory that was online within it and is not now has failed.
        reassignment_window: without one reassignment that ends or begins within it, those that are open are stuck.
        flaps_window: window in which spells of ISR removals are counted.
        flaps_step: removals within one step are one spell.
        flaps: so many spells of one broker are a ticket.
        unknown_min_isr_for: covers the first poll of the configuration.
        removals_window: window in which ISR removals are counted; at least four scrape intervals.
        removals_keep_firing: a burst of ISR removals stays one alert until this long after the last of them.
        suspects_window: the description of a page lists the ISR removals of this window.
        stale_seconds: data age beyond which data is stale; the exporter withdraws the state at the same age.
        stale_for: covers a restart of the job, and the first scrape.
        blind_for: for this long nobody would have been alerted to data loss.
        query_window: a query counts as up only if it was up throughout; longer than a start that fails takes.
        query_down_for: one failure followed by a successful restart raises no ticket; longer than ``query_window``.
        report_seconds: a job reports every 5 s; without a report for this long it is not running.
        table_for: covers a table that is repaired at once.
        refused_for: covers a restart of brokers, and an election of the controllers.
        certificate_days: a certificate that expires sooner is a ticket: time to renew it by hand.
        counted_window: window in which missed changes and quarantined records are counted.
        counted_keep_firing: they stay a ticket for this long after the last of them.
        remembered: for how long a cluster that disappeared raises the alert. Silence it for a decommissioned cluster.
        runbook_url: URL of the runbook, which has one section per alert.
        dashboard_url: URL of the overview.
    """

    interval: str = "15s"
    expected_clusters: tuple[str, ...] = ()
    excluded_topics: str = ""
    offline_for: str = "1m"
    under_min_isr_for: str = "1m"
    under_min_isr_keep_firing: str = "5m"
    flapping_window: str = "30m"
    flapping_seconds: int = 90
    flapping_until: str = "5m"
    growth_window: str = "6h"
    election_window: str = "15m"
    election_keep_firing: str = "1h"
    no_controller_for: str = "1m"
    broker_lost_for: str = "5m"
    under_replicated_for: str = "15m"
    broker_down_for: str = "15m"
    broker_stopped_for: str = "1h"
    log_dir_window: str = "7d"
    reassignment_window: str = "2h"
    flaps_window: str = "1h"
    flaps_step: str = "5m"
    flaps: int = 6
    unknown_min_isr_for: str = "15m"
    removals_window: str = "5m"
    removals_keep_firing: str = "15m"
    suspects_window: str = "15m"
    stale_seconds: int = 60
    stale_for: str = "1m"
    blind_for: str = "15m"
    query_window: str = "1m"
    query_down_for: str = "2m"
    report_seconds: int = 60
    table_for: str = "2m"
    refused_for: str = "10m"
    certificate_days: int = 14
    counted_window: str = "15m"
    counted_keep_firing: str = "1h"
    remembered: str = "1d"
    runbook_url: str = "dashboards/runbook.md"
    dashboard_url: str = "http://127.0.0.1:3000/d/isrwatch-replication-overview"
