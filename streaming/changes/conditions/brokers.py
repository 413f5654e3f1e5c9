"""The one condition that a broker is in, if any. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.contracts.conditions import Condition

if TYPE_CHECKING:
    from streaming.changes.incidents.context import ClusterContext
    from streaming.changes.incidents.incident import Incident


def broker_condition(broker: int, was: Condition | None, context: ClusterContext) -> Condition | None:
    """Return the condition of a broker.

    A broker that was down is, until it serves all of its replicas again. One that was missing from ISRs before work on
    it was announced is not missing by plan.

    Args:
        broker: its id.
        was: its condition before.
        context: of its cluster, as it is now.
    """
    is_lacking, is_down = context.lacking[broker] > 0, context.is_down(broker)
    if not is_lacking:
        return None
    if was is Condition.BROKER_DOWN:
        return was
    if context.has_open_lease(broker) and (is_down or was is not Condition.UNDER_REPLICATED):
        return Condition.PLANNED_WORK
    return Condition.BROKER_DOWN if is_down else Condition.UNDER_REPLICATED


def explains(incident: Incident, broker: int) -> bool:
    """Return whether an incident is why a broker is down, or missing from ISRs."""
    if broker in incident.lost or broker in incident.planned or broker in incident.blamed:
        return True
    return any(left == broker for _, left in incident.departures)
