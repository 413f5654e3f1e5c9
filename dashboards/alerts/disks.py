"""Disks: log directories that failed, and volumes that are or will soon be full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dashboards.alerts.templates import OF_BROKER, THIS_CLUSTER, Continuation, Rule, rule, top, value
from dashboards.promql import EVERYWHERE, Scope
from dashboards.signals import brokers, disks
from dashboards.signals.labels import BROKER

if TYPE_CHECKING:
    from dashboards.alerts.settings import AlertSettings

_DIR_FAILURE: Final = 'cause="dir_failure"'
# A broker that does not answer says nothing of its disks, while others do.
_DISK: Final = Continuation(labels=BROKER, fresh=disks.ONLINE, by=BROKER)


def log_dir_offline(settings: AlertSettings) -> Rule:
    """Ticket for a broker with fewer usable log directories than it had."""
    online = brokers.ONLINE_LOG_DIRS
    before = f"max by (cluster, broker) (max_over_time({online.series()}[{settings.log_dir_window}]))"
    return rule(
        "KafkaLogDirOffline",
        "ticket",
        f"{before} - {online.now()} > 0",
        "A log directory of broker {{ $labels.broker }} of {{ $labels.cluster }} is offline",
        "Broker {{ $labels.broker }} of cluster {{ $labels.cluster }} can use "
        f"{value()} log directories less than within the last {settings.log_dir_window}: a disk failed. "
        "Offline in the cluster: "
        + top(f"{disks.ONLINE.now(THIS_CLUSTER)} == 0", "{{ .Labels.log_dir }} of broker {{ .Labels.broker }}")
        + ". ISR removals by a failed directory within the last hour: "
        + top(
            f"{brokers.ISR_REMOVALS.increase('1h', THIS_CLUSTER, _DIR_FAILURE)} > 0",
            'broker {{ .Labels.broker }} ({{ .Value | printf "%.0f" }})',
        )
        + ".",
        settings,
        run="isrwatch state --directories",
        goes_on=OF_BROKER,
    )


def disk_fills_up(settings: AlertSettings) -> Rule:
    """Page for a volume that is full within hours: a full one takes its log directory offline."""
    return _nearly_full(
        "KafkaDiskFillsUp",
        "page",
        settings.full_share_urgent,
        settings.full_hours_urgent,
        "Then the broker takes the directory offline, and stops if it is its last one.",
        settings,
        settings.full_urgent_for,
    )


def disk_nearly_full(settings: AlertSettings) -> Rule:
    """Ticket for a volume with little room, or that is full within a day."""
    return _nearly_full(
        "KafkaDiskNearlyFull",
        "ticket",
        settings.full_share_ticket,
        settings.full_hours_ticket,
        "Nothing fails yet.",
        settings,
        settings.full_ticket_for,
    )


def _nearly_full(  # noqa: PLR0913, PLR0917 - what differs between the two
    alert: str, severity: str, share: float, hours: int, then: str, settings: AlertSettings, lasting: str
) -> Rule:
    # A reassignment fills a volume fast and then stops: what is half empty is not about to be full.
    soon = f"{disks.UNTIL_FULL.now()} < {hours * 3600} and on (cluster, broker, log_dir) {_share()} < {share * 2:g}"
    return rule(
        alert,
        severity,
        f"min by (cluster, broker) ({_share()} < {share:g})\nor min by (cluster, broker) ({soon})",
        "A disk of broker {{ $labels.broker }} of {{ $labels.cluster }} is nearly full",
        f"A volume of broker {{{{ $labels.broker }}}} of cluster {{{{ $labels.cluster }}}} has less than {share:.0%} "
        f"free, or will be full within {hours} hours at its pace. {then} Least free in the cluster: "
        + top(
            f"1 - {_share(THIS_CLUSTER)}",
            "{{ .Labels.log_dir }} of broker {{ .Labels.broker }} ({{ .Value | humanizePercentage }} used)",
        )
        + ".",
        settings,
        run="isrwatch state --directories",
        lasting=lasting,
        goes_on=_DISK,
    )


def _share(scope: Scope = EVERYWHERE) -> str:
    """Return the share of each volume that is free."""
    return f"({disks.USABLE.now(scope)} / {disks.TOTAL.now(scope)})"
