"""The rule file: every alert, pages first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dashboards.alerts import availability, monitoring, redundancy

if TYPE_CHECKING:
    from dashboards.alerts.settings import AlertSettings


def rule_file(settings: AlertSettings) -> dict[str, Any]:
    """Return the content of a Prometheus rule file."""
    rules = [
        availability.offline(settings),
        availability.under_min_isr(settings),
        availability.more(settings),
        availability.unclean_election(settings),
        availability.no_controller(settings),
        redundancy.broker_lost(settings),
        *monitoring.monitor_blind(settings),
        redundancy.under_replicated(settings),
        redundancy.broker_down(settings),
        redundancy.broker_stopped(settings),
        redundancy.isr_flapping(settings),
        redundancy.log_dir_offline(settings),
        redundancy.reassignment_stuck(settings),
        monitoring.min_isr_unknown(settings),
        monitoring.missed_changes(settings),
        monitoring.quarantined(settings),
        monitoring.monitor_stale(settings),
        monitoring.query_down(settings),
        monitoring.table_unreadable(settings),
        monitoring.source_refused(settings),
        monitoring.certificate_expires(settings),
        redundancy.isr_shrink(settings),
    ]
    return {"groups": [{"name": "kafka-replication-alerts", "interval": settings.interval, "rules": rules}]}
