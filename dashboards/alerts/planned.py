"""What is planned, and so no reason for an alert: causes of ISR removals, and brokers that were stopped on purpose.

Partitions that are offline or under min ISR, lost records and unclean elections are never planned.
"""

from __future__ import annotations

from typing import Final

from dashboards import signals

# Causes of planned operations. Any other cause raises the alert, also one that a later version introduces.
PLANNED_CAUSES: Final = ("controlled_shutdown", "reassignment", "restart")
UNPLANNED_CAUSES: Final = f'cause!~"{"|".join(PLANNED_CAUSES)}"'

DOWN: Final = (
    f"({signals.BROKER_FENCED.now()} == 1 or ({signals.BROKER_REGISTERED.now()} == 0 "
    f"and on (cluster, broker) {signals.HOSTED.now()} > 0))"
)
"""Brokers that are fenced, or are not registered although replicas are assigned to them, by cluster and broker."""
STOPPED_ON_PURPOSE: Final = f"({signals.BROKER_SHUTTING_DOWN.now()} == 1)"
"""Brokers that shut down in a controlled way and have not registered since, by cluster and broker."""

# What was announced, by cluster and broker. A condition is added here, not in each alert.
_ANNOUNCED: Final[tuple[str, ...]] = ()


def unannounced(condition: str) -> str:
    """Leave out brokers for which work was announced; the condition has the labels cluster and broker."""
    return "\n".join((condition, *(f"unless on (cluster, broker) {announced}" for announced in _ANNOUNCED)))


def unplanned(condition: str) -> str:
    """Leave out brokers that were stopped on purpose, too."""
    return unannounced(f"{condition}\nunless on (cluster, broker) {STOPPED_ON_PURPOSE}")
