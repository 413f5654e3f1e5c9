"""The rule file: the recording rules, then every alert, pages first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dashboards.alerts import (
    agents,
    availability,
    balance,
    budget,
    configuration,
    context,
    controllers,
    disks,
    groups,
    liveness,
    monitoring,
    pipeline,
    redundancy,
)
from dashboards.alerts.recording import recording_rules

if TYPE_CHECKING:
    from collections.abc import Callable

    from dashboards.alerts.settings import AlertSettings
    from dashboards.alerts.templates import Rule

RECORDING: Final = "kafka-replication-recording"
ALERTING: Final = "kafka-replication-alerts"
_PAGING: Final[tuple[Callable[[AlertSettings], Rule], ...]] = (
    availability.offline,
    availability.unclean_election,
    availability.under_min_isr,
    availability.more,
    controllers.no_controller,
    redundancy.broker_lost,
    disks.disk_fills_up,
    groups.loses_records,
    budget.burns_fast,
)
_TICKETS: Final[tuple[Callable[[AlertSettings], Rule], ...]] = (
    redundancy.under_replicated,
    redundancy.broker_down,
    redundancy.broker_stopped,
    redundancy.isr_flapping,
    redundancy.reassignment_stuck,
    liveness.fenced_though_up,
    liveness.restart_loop,
    liveness.slow,
    liveness.overloaded,
    liveness.maintenance_overrun,
    agents.partitions_given_up,
    agents.metadata_errors,
    disks.log_dir_offline,
    disks.disk_nearly_full,
    controllers.controllers_flap,
    controllers.voter_behind,
    groups.stuck,
    groups.lag_grows,
    groups.near_retention,
    groups.stopped_group_loses_records,
    groups.hanging_transaction,
    balance.preferred_imbalance,
    budget.burns,
    configuration.topics_misconfigured,
    configuration.throttle_left,
    configuration.versions_mixed,
    monitoring.min_isr_unknown,
    monitoring.missed_changes,
    monitoring.quarantined,
    monitoring.monitor_stale,
    monitoring.query_down,
    monitoring.table_unreadable,
    monitoring.source_refused,
    monitoring.certificate_expires,
    pipeline.samples_stale,
    pipeline.source_stopped,
    pipeline.program_down,
    pipeline.incidents_query_down,
    pipeline.series_near_limit,
)
_INFOS: Final[tuple[Callable[[AlertSettings], Rule], ...]] = (
    redundancy.isr_shrink,
    context.incident,
    context.internal_topic,
    agents.recovering,
    liveness.gone,
    balance.skewed,
    balance.many_partitions,
    configuration.topics_not_durable,
    configuration.upgrade_unfinished,
    pipeline.watchdog,
)


def rule_file(settings: AlertSettings) -> dict[str, Any]:
    """Return the content of a Prometheus rule file."""
    alerts = [
        *(rule(settings) for rule in _PAGING),
        *monitoring.monitor_blind(settings),
        *(rule(settings) for rule in (*_TICKETS, *_INFOS)),
    ]
    return {
        "groups": [
            {"name": RECORDING, "interval": settings.interval, "rules": recording_rules(settings)},
            {"name": ALERTING, "interval": settings.interval, "rules": alerts},
        ]
    }
