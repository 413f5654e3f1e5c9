"""Burn rates of the error budget: how fast the time is used up in which partitions may be unavailable.

In several windows (Google, *The Site Reliability Workbook*, chapter 5): a long one for what was used, a short one for
whether it still is. What is counted is exact and comes from the tables, so that it has what no scrape saw.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dashboards.alerts.recording import unavailable_share
from dashboards.alerts.same_trouble import BURNS_FAST, OFFLINE, UNCLEAN_ELECTION, UNDER_MIN_ISR, not_beside
from dashboards.alerts.templates import OF_CLUSTER, THIS_CLUSTER, Rule, rule, top

if TYPE_CHECKING:
    from dashboards.alerts.settings import AlertSettings

# One incident is one page: these say what is wrong. The longest short window still has what they paged for.
_PAGED: Final = f'last_over_time(ALERTS{{alertname=~"{UNDER_MIN_ISR}|{OFFLINE}", alertstate="firing"}}[30m])'


def burns_fast(settings: AlertSettings) -> Rule:
    """Page for a budget that is gone within days, by outages so short that no other page fires."""
    used = f"({_burn('1h', '5m', 14.4, settings)})\nor ({_burn('6h', '30m', 6, settings)})"
    return rule(
        BURNS_FAST,
        "page",
        not_beside(
            f"({used})\nunless on (cluster) {_PAGED}", BURNS_FAST, UNCLEAN_ELECTION, seconds=settings.same_trouble
        ),
        "Partitions of {{ $labels.cluster }} are unavailable again and again",
        f"{_spent(settings, '1h')} It is used up within days, by outages that are each too short for another page.",
        settings,
        run="isrwatch incidents --since 6h",
        lasting=settings.burns_for,
        goes_on=OF_CLUSTER,
    )


def burns(settings: AlertSettings) -> Rule:
    """Ticket for a budget that does not last."""
    return rule(
        "KafkaAvailabilityBurns",
        "ticket",
        _burn("3d", "6h", 1, settings),
        "The error budget of {{ $labels.cluster }} does not last",
        f"{_spent(settings, '3d')} At this rate less than the objective is reached.",
        settings,
        run="isrwatch incidents --since 3d",
        goes_on=OF_CLUSTER,
    )


def _burn(long: str, short: str, rate: float, settings: AlertSettings) -> str:
    limit = f"{rate * (1 - settings.availability_target):.6g}"
    return f"{unavailable_share(long)} > {limit} and on (cluster) {unavailable_share(short)} > {limit}"


def _spent(settings: AlertSettings, window: str) -> str:
    share = top(
        unavailable_share(window, THIS_CLUSTER), "{{ .Value | humanizePercentage }}", otherwise="an unknown share"
    )
    return (
        f"Partitions of cluster {{{{ $labels.cluster }}}} were offline or refused writes for {share} of the time of "
        f"all within {window}; the objective of {100 * settings.availability_target:g} % allows "
        f"{100 * (1 - settings.availability_target):.6g} %."
    )
