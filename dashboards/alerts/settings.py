"""Windows, thresholds and links of the alerts; clusters that must be there, topics that do not count."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


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
        same_trouble: a page that began less than so many seconds ago has been sent for what follows of it; not
            more than ``election_window``, or an election that waits for it is forgotten.
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
        blind_for: for this long data loss would have caused no alert.
        query_window: a query counts as up only if it was up throughout; longer than a start that fails takes.
        query_down_for: one failure followed by a successful restart raises no ticket; longer than ``query_window``.
        report_seconds: a job reports every 5 s; without a report for this long it is not running.
        table_for: covers a table that is repaired at once.
        refused_for: covers a restart of brokers, and an election of the controllers.
        certificate_days: a certificate that expires sooner is a ticket: time to renew it by hand.
        counted_window: window in which missed changes and quarantined records are counted.
        counted_keep_firing: they stay a ticket for this long after the last of them.
        full_share_urgent: less of a volume free is a page, and twice that if it fills.
        full_hours_urgent: so is a volume that will be full within so many hours.
        full_urgent_for: covers the end of a burst.
        full_share_ticket: less of a volume free is a ticket.
        full_hours_ticket: so is a volume that will be full within so many hours.
        full_ticket_for: covers a reassignment.
        group_window_minutes: a group whose lag grows with the time for so long stands still.
        lag_seconds: less lag than this is no matter.
        lag_growth_seconds: a lag that grows by more within the window of a group grows.
        lag_for: covers a peak of the load.
        retention_used: a group that has yet to read more than this share of what is kept is near losing records.
        retention_for: covers a group that begins at the oldest record.
        lost_for: a group that resets its offsets is back within it.
        stopped_lost_for: the same of a group without members.
        hanging_for: covers a transaction that is ended by its coordinator after all.
        controllers_window: window in which elections of controllers are counted.
        controller_changes: more of them are a ticket; a rolling restart of three controllers has at most three.
        voter_seconds: a voter that lacks records for longer is behind.
        voter_for: covers a restart of a controller.
        settings_for: covers a topic that is being configured.
        throttle_for: covers the moment between two reassignments.
        mixed_for: a rolling upgrade takes less.
        unfinished_for: so long an upgrade may be tried before it is finished.
        fenced_for: a broker that starts, or recovers its logs, does not answer yet.
        loop_window: window in which restarts are counted.
        loop_restarts: more of one broker are a loop.
        recovering_for: a short recovery needs no word.
        fetcher_failed_for: covers a partition that is tried again.
        slow_for: covers a peak.
        overloaded_for: the same, of all.
        overrun_for: covers a broker that is just coming back.
        gone_window: window in which the most brokers are remembered.
        gone_for: covers a broker that registers again.
        imbalance_share: Kafka's own leader.imbalance.per.broker.percentage.
        imbalance_for: Kafka moves leaders back every five minutes.
        skew: so many times the average is skewed.
        skew_least_partitions: with fewer on average a skew means nothing.
        skew_for: covers a reassignment.
        most_partitions: more of them on a broker are very many.
        sample_seconds: older samples have stopped; longer than twice the longest interval of the collector.
        source_seconds: a source that has reported nothing for so long has stopped.
        stopped_for: covers a restart.
        program_jobs: a regular expression: Prometheus' scrape jobs of collectors and jobs.
        program_for: covers a restart, and an exposition that grows for a moment.
        sample_limit: of Prometheus' scrape job of the exporter.
        sample_limit_share: more of it is a ticket.
        availability_target: share of the time of partitions in which they are available: the objective of burn rates.
        burns_for: the pages about partitions, which last for a minute, come first.
        remembered: for how long a cluster that disappeared raises the alert. Silence it for a decommissioned cluster.
        url: of the exporter, as others reach it; alerts and boards link to the runbook that it serves. "": to none.
        dashboard_url: URL of the board of a cluster. "": no link.
        severity_names: what page, ticket and info are called in the label ``severity``, by name; themselves if absent.
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
    same_trouble: int = 900
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
    full_share_urgent: float = 0.05
    full_hours_urgent: int = 2
    full_urgent_for: str = "10m"
    full_share_ticket: float = 0.15
    full_hours_ticket: int = 24
    full_ticket_for: str = "30m"
    group_window_minutes: int = 15
    lag_seconds: int = 300
    lag_growth_seconds: int = 60
    lag_for: str = "15m"
    retention_used: float = 0.8
    retention_for: str = "30m"
    lost_for: str = "5m"
    stopped_lost_for: str = "15m"
    hanging_for: str = "5m"
    controllers_window: str = "1h"
    controller_changes: int = 4
    voter_seconds: int = 60
    voter_for: str = "5m"
    settings_for: str = "30m"
    throttle_for: str = "1h"
    mixed_for: str = "1d"
    unfinished_for: str = "7d"
    fenced_for: str = "5m"
    loop_window: str = "1h"
    loop_restarts: int = 5
    recovering_for: str = "1m"
    fetcher_failed_for: str = "5m"
    slow_for: str = "10m"
    overloaded_for: str = "15m"
    overrun_for: str = "5m"
    gone_window: str = "7d"
    gone_for: str = "15m"
    imbalance_share: float = 0.1
    imbalance_for: str = "30m"
    skew: float = 1.5
    skew_least_partitions: int = 20
    skew_for: str = "1h"
    most_partitions: int = 4000
    sample_seconds: int = 900
    source_seconds: int = 300
    stopped_for: str = "5m"
    program_jobs: str = "isrwatch-(collector|job)"
    program_for: str = "15m"
    sample_limit: int = 500_000
    sample_limit_share: float = 0.8
    availability_target: float = 0.999
    burns_for: str = "2m"
    remembered: str = "1d"
    url: str = ""
    severity_names: Mapping[str, str] = field(default_factory=dict)
    dashboard_url: str = ""
