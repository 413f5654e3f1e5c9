"""The alerts: names, packs, conditions, and what of each may be configured. Their rules: ``dashboards.alerts``.

A condition is raised by the job's spells or by the exporter. The job's have lasted when they are raised, so their rule
in Prometheus does not wait; for the others it does (``waits``).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from streaming.contracts.conditions import RULES, Condition
from streaming.contracts.events import Severity

_MINUTE: Final = 60.0
_HOUR: Final = 3_600.0
_DAY: Final = 86_400.0


class Pack(StrEnum):
    """Alerts that are loaded together."""

    ALERTS = "alerts"
    """On as it comes."""
    GROUPS = "groups"
    """Consumer groups, which are about applications."""
    HYGIENE = "hygiene"
    """Work that was not finished, and settings that cannot be meant."""
    SLO = "slo"
    """The objective of availability, by burn rates."""
    SPEED = "speed"
    """The speed of brokers, as their agents say, and traffic."""
    EVENTS = "events"
    """Context: nothing has to be done."""


OPT_IN: Final = tuple(pack for pack in Pack if pack is not Pack.ALERTS)


class ThresholdUnit(StrEnum):
    """The unit of a threshold."""

    DURATION = "duration"
    NUMBER = "number"
    SHARE = "share"
    """Between 0 and 1."""


class Alert(NamedTuple):
    """One alert.

    Attributes:
        pack: with which it is loaded.
        severity: the gravest that it has.
        conditions: those of which it is; none: it reads other series.
        waits: seconds that the rule waits in Prometheus; None: it does not, as moments and the job's conditions.
        threshold: beyond it something is wrong; None: there is none to choose.
        unit: of the threshold.
        section: of the runbook; "" is one of its own name.
    """

    pack: Pack
    severity: Severity
    conditions: tuple[Condition, ...] = ()
    waits: float | None = None
    threshold: float | None = None
    unit: ThresholdUnit = ThresholdUnit.NUMBER
    section: str = ""

    @property
    def of_job(self) -> bool:
        """True if the job's spells raise its conditions."""
        return bool(self.conditions) and all(condition in RULES for condition in self.conditions)

    @property
    def lasting(self) -> float | None:
        """Seconds that it lasts before it fires; None if it does not wait, and cannot."""
        if not self.of_job:
            return self.waits
        return max((RULES[condition].lasting / 1_000_000 for condition in self.conditions), default=0.0) or None


_DEGRADED: Final = (
    Condition.PRIMARY_SOURCE_LOST,
    Condition.SAMPLES_STALE,
    Condition.TABLE_UNREADABLE,
    Condition.SERIES_LEFT_OUT,
    Condition.MIN_ISR_UNKNOWN,
)
_ALERTS: Final = {
    "OfflinePartitions": Alert(Pack.ALERTS, Severity.CRITICAL, (Condition.OFFLINE, Condition.OFFLINE_PLANNED)),
    "UnderMinIsr": Alert(Pack.ALERTS, Severity.CRITICAL, (Condition.UNDER_MIN_ISR, Condition.UNDER_MIN_ISR_PLANNED)),
    "UncleanElection": Alert(Pack.ALERTS, Severity.CRITICAL, (Condition.UNCLEAN_ELECTION,)),
    "NoController": Alert(Pack.ALERTS, Severity.CRITICAL, (Condition.NO_CONTROLLER,), waits=2 * _MINUTE),
    "Blind": Alert(
        Pack.ALERTS,
        Severity.CRITICAL,
        (Condition.JOB_DOWN, Condition.DATA_STALE, Condition.NO_DATA),
        waits=15 * _MINUTE,
    ),
    "BrokerDown": Alert(Pack.ALERTS, Severity.WARNING, (Condition.BROKER_DOWN, Condition.RESTART_LOOP)),
    "UnderReplicated": Alert(Pack.ALERTS, Severity.WARNING, (Condition.UNDER_REPLICATED,)),
    "IsrFlapping": Alert(Pack.ALERTS, Severity.WARNING, (Condition.ISR_FLAPPING,)),
    "LogDirOffline": Alert(Pack.ALERTS, Severity.WARNING, (Condition.LOG_DIRECTORY_OFFLINE,), waits=5 * _MINUTE),
    "DiskFillsUp": Alert(
        Pack.ALERTS, Severity.CRITICAL, (Condition.DISK_FILLS_UP, Condition.DISK_NEARLY_FULL), waits=15 * _MINUTE
    ),
    "ReassignmentStuck": Alert(Pack.ALERTS, Severity.WARNING, (Condition.REASSIGNMENT_STUCK,)),
    "QuorumVoterBehind": Alert(Pack.ALERTS, Severity.WARNING, (Condition.QUORUM_VOTER_BEHIND,), waits=5 * _MINUTE),
    "HangingTransaction": Alert(Pack.ALERTS, Severity.WARNING, (Condition.HANGING_TRANSACTION,), waits=5 * _MINUTE),
    "CertificateExpires": Alert(
        Pack.ALERTS, Severity.CRITICAL, waits=5 * _MINUTE, threshold=14 * _DAY, unit=ThresholdUnit.DURATION
    ),
    "Degraded": Alert(Pack.ALERTS, Severity.WARNING, _DEGRADED, waits=15 * _MINUTE),
    "Watchdog": Alert(Pack.ALERTS, Severity.INFO),
    "GroupLagGrows": Alert(
        Pack.GROUPS, Severity.WARNING, waits=15 * _MINUTE, threshold=5 * _MINUTE, unit=ThresholdUnit.DURATION
    ),
    "GroupStuck": Alert(Pack.GROUPS, Severity.WARNING, (Condition.GROUP_STUCK,), waits=0.0),
    "GroupNearRetention": Alert(
        Pack.GROUPS, Severity.WARNING, waits=30 * _MINUTE, threshold=0.8, unit=ThresholdUnit.SHARE
    ),
    "GroupLosesRecords": Alert(Pack.GROUPS, Severity.WARNING, (Condition.GROUP_LOSING,), waits=0.0),
    "GroupBeyondEnd": Alert(Pack.GROUPS, Severity.WARNING, (Condition.GROUP_BEYOND_END,), waits=2 * _MINUTE),
    "LeadersNotPreferred": Alert(
        Pack.HYGIENE, Severity.WARNING, waits=30 * _MINUTE, threshold=0.1, unit=ThresholdUnit.SHARE, section="Hygiene"
    ),
    "TopicsMisconfigured": Alert(Pack.HYGIENE, Severity.WARNING, waits=30 * _MINUTE, section="Hygiene"),
    "ThrottleLeft": Alert(Pack.HYGIENE, Severity.WARNING, waits=_HOUR, section="Hygiene"),
    "VersionsMixed": Alert(Pack.HYGIENE, Severity.WARNING, waits=_DAY, section="Hygiene"),
    "ControllersFlap": Alert(Pack.HYGIENE, Severity.WARNING, waits=0.0, threshold=4, section="Hygiene"),
    "BrokerSkewed": Alert(Pack.HYGIENE, Severity.WARNING, waits=_HOUR, threshold=1.5, section="Hygiene"),
    "MetadataErrors": Alert(Pack.HYGIENE, Severity.WARNING, waits=0.0, section="Hygiene"),
    "AvailabilityBurnsFast": Alert(
        Pack.SLO,
        Severity.CRITICAL,
        waits=2 * _MINUTE,
        threshold=0.999,
        unit=ThresholdUnit.SHARE,
        section="AvailabilityBurns",
    ),
    "AvailabilityBurns": Alert(Pack.SLO, Severity.WARNING, waits=0.0, threshold=0.999, unit=ThresholdUnit.SHARE),
    "HandlersBusy": Alert(
        Pack.SPEED, Severity.WARNING, waits=15 * _MINUTE, threshold=0.2, unit=ThresholdUnit.SHARE, section="Speed"
    ),
    "ProduceSlow": Alert(
        Pack.SPEED, Severity.WARNING, waits=15 * _MINUTE, threshold=1.0, unit=ThresholdUnit.DURATION, section="Speed"
    ),
    "FetchSlow": Alert(
        Pack.SPEED, Severity.WARNING, waits=15 * _MINUTE, threshold=2.0, unit=ThresholdUnit.DURATION, section="Speed"
    ),
    "BrokerSlow": Alert(Pack.SPEED, Severity.WARNING, waits=10 * _MINUTE, section="Speed"),
    "TrafficStopped": Alert(Pack.SPEED, Severity.WARNING, waits=30 * _MINUTE, threshold=1.0, section="Speed"),
    "LogCleanerDead": Alert(Pack.SPEED, Severity.WARNING, waits=15 * _MINUTE),
    "IsrShrink": Alert(Pack.EVENTS, Severity.INFO, waits=0.0, section="Events"),
    "IncidentOpen": Alert(Pack.EVENTS, Severity.INFO, waits=0.0, section="Events"),
    "InternalTopic": Alert(Pack.EVENTS, Severity.INFO, waits=_MINUTE, section="Events"),
    "BrokerRecovers": Alert(Pack.EVENTS, Severity.INFO, waits=_MINUTE, section="Events"),
    "BrokerGone": Alert(Pack.EVENTS, Severity.INFO, waits=15 * _MINUTE, section="Events"),
    "UpgradeUnfinished": Alert(Pack.EVENTS, Severity.INFO, waits=7 * _DAY, section="Events"),
}
PREFIX: Final = "Isrwatch"
ALERTS: Final = {
    PREFIX + name: alert._replace(section=PREFIX + (alert.section or name)) for name, alert in _ALERTS.items()
}
"""Every alert, by its name, in the order of the rules."""
